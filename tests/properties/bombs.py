"""Short texts that are long to prove: each is answered within the time and memory of the bar, on one core.

    python tests/properties/bombs.py FIRST COUNT [--seconds 10] [--megabytes 1024] [--targets cpu,cuda:sm_90a]

brews texts of up to 16 KiB from a seed, each of one kind (facts, sizes, ranks, statements, pars, nests, coefficients,
moduli, functions, conditions, extrema, shared buffers) or of several, compiles each in a process of its own with limits
on processor time and address space, and prints the outcomes, the worst texts, and every text that leaves the bar.
"""

import argparse
import os
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

LONGEST = 16 << 10  # bytes of a text
SECONDS = 10
MEGABYTES = 1024
TARGETS = ("cpu", "cuda:sm_90a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bomb:
    """A text, with what it is made of."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a text was answered: `built`, the codes of its refusal, or what went wrong in words; seconds of the
    processor and the greatest resident memory."""

    answer: str
    seconds: float
    megabytes: float

    @property
    def answered(self) -> bool:
        return self.answer == "built" or self.answer.startswith("E")


def many(r: Random, most: int) -> int:
    """A count, small and large alike."""
    return max(1, int(most ** r.uniform(0.3, 1.0)))


def facts(r: Random) -> str:
    n = many(r, 300)
    forms = ("N{0} != 7", "N{0} != N{1}", "(N{0} < 3 or N{0} > 9)", "N{0} % 8 == 0", "N{0} <= N{1}", "N{0} + N{1} != 5")
    chosen = [r.choice(forms)] if r.random() < 0.6 else forms
    sizes = r.choice((1, 2, n))
    stated = ", ".join(r.choice(chosen).format(i % sizes, (i * 7 + 1) % sizes) for i in range(n))
    used = min(sizes, r.choice((1, 4, sizes)), 400)
    if r.random() < 0.5:
        shapes = ", ".join(f"A{i}: f32[N{i}]" for i in range(sizes))
        body = " ".join(f"par N{i} x{i} {{ A{i}[x{i}] = 1.0 }}" for i in range(used))
    else:
        used = min(sizes, 12)
        shapes = ", ".join(f"A{i}: f32[N{i}]" for i in range(sizes))
        body = f"par N0 i {{ A0[i] = {' + '.join(f'select(i < N{k}, 1.0, 2.0)' for k in range(used))} }}"
    return f"kernel k({shapes}) where {stated} {{ {body} }}"


def sizes(r: Random) -> str:
    n = many(r, 200)
    match r.randrange(3):
        case 0:
            params = ", ".join(f"A{i}: f32[N{i}, N{i + 1}]" for i in range(n))
            body = " ".join(f"par N{i} x{i}, N{i + 1} j{i} {{ A{i}[x{i}, j{i}] = 1.0 }}" for i in range(n))
        case 1:
            params = "inout A: f32[" + " + ".join(f"N{i}" for i in range(n)) + "]"
            body = " ".join(
                f"par N{i} x{i} {{ A[{' + '.join([f'x{i}', *(f'N{k}' for k in range(i))])}] = 1.0 }}" for i in range(n)
            )
        case _:
            rank = min(n, 20)
            params = (
                "A: f32["
                + ", ".join(f"N{i}" for i in range(rank))
                + "], "
                + ", ".join(f"B{i}: f32[N{i}]" for i in range(n))
            )
            subscripts = ", ".join(f"x{i}" for i in range(rank))
            loops = ", ".join(f"N{i} x{i}" for i in range(rank))
            body = f"par {loops} {{ A[{subscripts}] = {' + '.join(f'B{i}[x{i}]' for i in range(rank))} }}"
    return f"kernel k({params}) {{ {body} }}"


def ranks(r: Random) -> str:
    n = r.randint(2, 23)
    extent = r.choice(("2", "N", "3"))
    indices = [f"x{k}" for k in range(n)]
    r.shuffle(indices)
    shape = ", ".join([extent] * n)
    parallel = r.randint(0, n)
    head = "".join(f"{'par' if k < parallel else 'seq'} {extent} x{k} {{ " for k in range(n))
    straight = ", ".join(f"x{k}" for k in range(n))
    body = f"{head}B[{', '.join(indices)}] += A[{straight}] {'}' * n}"
    return f"kernel k(A: f32[{shape}], inout B: f32[{shape}]) {{ {body} }}"


def statements(r: Random) -> str:
    n = many(r, 800)
    forms = (
        "A[i] += 1.0",
        "A[i] = A[i] + 1.0",
        "A[{0} * N + i] = 1.0",
        "A[i * {1} + {0}] += 1.0",
        "A[(i * {0}) % 97] += 1.0",
    )
    chosen = [r.choice(forms)] if r.random() < 0.7 else forms
    lines = "; ".join(r.choice(chosen).format(k, n) for k in range(n))
    loop = r.choice(("par N i", "seq N i", "par 64 b { seq 32 s { par 32 i", "seq 9 t { par N i"))
    shape = r.choice(("M", "1000", "N * 800"))
    return f"kernel k(inout A: f32[{shape}]) {{ {loop} {{ {lines} {'}' * loop.count('{')} }} }}"


def pars(r: Random) -> str:
    n = many(r, 250)
    where = r.choice(("par 8 b", "par N b"))
    forms = (
        "par {1} p{0} {{ t[p{0}] += 1.0 }}",
        "par {1} p{0} {{ t[(p{0} + {0} * s) % {1}] += 1.0 }}",
        "par {1} p{0} {{ t[p{0}] = t[{1} - 1 - p{0}] }}",
        "par {1} p{0} {{ t[{1} - 1 - p{0}] = u[(p{0} * 3 + s) % {1}] }} par {1} q{0} {{ u[q{0}] = t[q{0}] }}",
        "par {1} p{0} {{ t[p{0}] = u[p{0} / {2} * 3 % 61] }} par {1} q{0} {{ u[q{0}] = t[(q{0} + s / {2}) % {1}] }}",
    )
    chosen = [r.choice(forms)] if r.random() < 0.7 else forms
    extent = r.choice((32, 64, 100, 256, 1024))
    bands = " ".join(r.choice(chosen).format(k, extent, k % 9 + 2) for k in range(n))
    inner = f"seq {r.choice(('10', 'M'))} s {{ {bands} }}"
    return (
        f"kernel k(inout A: f32[1000, 1]) {{ {where} {{ new t: f32[{extent}]; new u: f32[{extent}]; "
        f"par {extent} z {{ t[z] = 0.0; u[z] = 0.0 }} {inner} A[b, 0] = t[0] }} }}"
    ).replace("A: f32[1000, 1]", f"A: f32[{'8' if where == 'par 8 b' else 'N'}, 1]")


def nests(r: Random) -> str:
    n = r.randint(2, 23)
    bounds = [
        "N",
        *(
            r.choice((f"x{k - 1} + 1", f"N - x{k - 1}", f"min(x{k - 1}, 9) + 1", f"x{k - 1} / 2 + 1", "7"))
            for k in range(1, n)
        ),
    ]
    kinds = [r.choice(("par", "seq")) for _ in range(n)]
    head = "".join(f"{kind} {bound} x{k} {{ " for k, (kind, bound) in enumerate(zip(kinds, bounds, strict=True)))
    target = r.choice(
        ("A[x0]", f"A[x{n - 1}]", f"A[(x0 + x{n - 1}) % N]", f"A[{' + '.join(f'x{k}' for k in range(n))}]")
    )
    shape = r.choice(("N", "N * 30 + 1000"))
    return f"kernel k(inout A: f32[{shape}]) {{ {head}{target} += 1.0 {'}' * n} }}"


def coefficients(r: Random) -> str:
    bits = r.choice((8, 16, 30, 40, 60))
    loops = [f"x{k}" for k in range(r.randint(1, 8))]

    def combination() -> str:
        return " + ".join(f"{i} * {r.randrange(1, 1 << bits)}" for i in loops)

    head = f"par {', '.join(f'{r.choice((10, 1000, 99991))} {i}' for i in loops)}"
    modulus = r.randrange(2, 1 << bits)
    tail = r.choice(("", f" % {modulus}", f" / {modulus}"))
    lines = "; ".join(f"A[({combination()}){tail}] {r.choice(('+=', '='))} 1.0" for _ in range(many(r, 12)))
    return f"kernel k(inout A: f32[{r.choice((1 << 40, 1 << 61, 1000))}]) {{ {head} {{ {lines} }} }}"


def moduli(r: Random) -> str:
    depth = many(r, 60)
    value = "i"
    for _ in range(depth):
        value = r.choice(
            (
                f"({value}) * 3 % {r.randint(3, 97)}",
                f"({value} + j) / {r.randint(2, 9)}",
                f"({value} + i) % {r.randint(3, 1009)}",
            )
        )
        if len(value) > 1500:
            break
    wide = " + ".join(f"(i + j * {r.randint(1, 50)}) {r.choice('%/')} {r.randint(2, 97)}" for _ in range(many(r, 12)))
    subscript = r.choice((value, wide))
    lines = r.choice(
        (
            f"par 100 i, 100 j {{ A[{subscript}] = 1.0 }}",
            f"seq 100 i {{ par 100 j {{ A[{subscript}] += 1.0 }} }}",
            f"seq N i {{ seq N j {{ A[{subscript}] = A[{wide}] }} }}",
            f"par 100 i {{ seq 100 j {{ if {subscript} < 5 {{ A[i] = 1.0 }} else {{ A[i] = A[i] + 1.0 }} }} }}",
        )
    )
    return f"kernel k(inout A: f32[100000]) {{ {lines} }}"


def functions(r: Random) -> str:
    depth, fan = many(r, 60), r.randint(1, 4)
    text = "fn g0(x: f32): f32 { return x * 2.0 }\n"
    for k in range(1, depth + 1):
        text += f"fn g{k}(x: f32): f32 {{ return {' + '.join([f'g{k - 1}(x)'] * fan)} }}\n"
    return text + f"kernel k(A: f32[N], B: f32[N]) {{ par N i {{ B[i] = g{depth}(A[i]) }} }}"


def conditions(r: Random) -> str:
    n = many(r, 200)
    forms = ("i != {0}", "(i < {0} or i > {1})", "i % {2} != 0", "j != i + {0}", "(i + j) % {2} != {0}")
    chosen = [r.choice(forms)] if r.random() < 0.6 else forms
    said = r.choice((" and ", " or ")).join(r.choice(chosen).format(k, k + 3, k % 17 + 2) for k in range(n))
    chain = "".join(f"if i % {k % 30 + 2} == {k % 7} {{ A[i, j] = {k}.0 }} else {{ " for k in range(min(n, 60)))
    body = r.choice(
        (
            f"if {said} {{ A[i, j] = 1.0 }}",
            f"if {said} {{ A[i, j] = 1.0 }} else {{ A[i, j] = A[i, j] + 1.0 }}",
            f"A[i, j] = select({said}, 1.0, A[i, j])",
            f"{chain} A[i, j] = 0.0 {'}' * min(n, 60)}",
        )
    )
    outer, inner = r.choice((("par N i", "par M j"), ("seq N i", "par M j"), ("par N i", "seq M j")))
    return f"kernel k(inout A: f32[N, M]) {{ {outer} {{ {inner} {{ {body} }} }} }}"


def extrema(r: Random) -> str:
    n = many(r, 40)
    terms = [f"{r.choice(('min', 'max'))}(i + {k}, j * {r.randint(1, 5)})" for k in range(n)]
    nested = "i"
    for k in range(n):
        nested = f"{r.choice(('min', 'max'))}({nested} + {k}, j + {k * 3 % 17})"
    value = r.choice((" + ".join(terms), nested))
    return f"kernel k(inout A: f32[100000]) {{ par 100 i {{ seq 100 j {{ A[{value}] += 1.0 }} }} }}"


KINDS: tuple[Callable[[Random], str], ...] = (
    facts, sizes, ranks, statements, pars, nests, coefficients, moduli, functions, conditions, extrema,
)  # fmt: skip


def brew(seed: int) -> Bomb:
    """The text of a seed."""
    r = Random(seed)
    while True:
        kind = KINDS[seed % len(KINDS)]
        text = kind(r)
        if len(text.encode()) <= LONGEST:
            return Bomb(name=f"{seed} {kind.__name__}", text=text)


def judge(text: str, target: str, seconds: int = SECONDS, megabytes: int = MEGABYTES) -> Verdict:
    """Compiles a text in a process of its own, to emitted text; what this process has already is not the text's."""
    held, resident = memory_bytes()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (held + (megabytes << 20),) * 2)
        os.write(writer, answer_of(text, target).encode("utf-8", "replace")[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    _, status, used = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        answer = f"ended by signal {os.WTERMSIG(status)}"
    return Verdict(
        answer=answer, seconds=used.ru_utime + used.ru_stime, megabytes=used.ru_maxrss / 1024 - resident / 2**20
    )


def memory_bytes() -> tuple[int, int]:
    """The address space of this process, and what of it is in memory."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]
    address_space, resident = (int(count) * os.sysconf("SC_PAGE_SIZE") for count in pages)
    return address_space, resident


def answer_of(text: str, target: str) -> str:
    """`built`, the codes of a refusal, or an error of another kind."""
    import texpr
    from texpr.grammar.diagnostics import TExprError

    warnings.simplefilter("ignore")
    try:
        for kernel in texpr.parse(text):
            kernel.compile(target, stop_after="emit")
    except TExprError as refused:
        return " ".join(sorted({d.code for d in refused.diagnostics}))
    except BaseException as failure:
        return f"{type(failure).__name__}: {failure}"
    return "built"


def load_everything() -> None:
    """Loads the compiler before the first process is split off."""
    answer_of("kernel k(A: f32[N], inout B: f32[N]) { par N i { B[i] += A[i] } }", "cuda:sm_90a")
    answer_of("kernel k(A: f32[N], inout B: f32[N]) { par N i { B[i] += A[i] } }", "cpu")


def explode(
    bombs: Sequence[Bomb], targets: Sequence[str], seconds: int, megabytes: int
) -> list[tuple[Bomb, str, Verdict]]:
    """The verdict of every text for every target."""
    load_everything()
    return [(b, target, judge(b.text, target, seconds, megabytes)) for b in bombs for target in targets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--keep", type=Path, help="a folder for the texts that leave the bar")
    given = parser.parse_args()
    began = time.monotonic()
    bombs = [brew(seed) for seed in range(given.first, given.first + given.count)]
    found = explode(bombs, given.targets.split(","), given.seconds, given.megabytes)
    counts = Counter(v.answer if v.answered else "left the bar" for _, _, v in found)
    for number, (bomb, target, verdict) in enumerate(sorted(found, key=lambda f: -f[2].seconds)):
        if number < 15 or not verdict.answered:
            cost = f"{verdict.seconds:6.2f} s {verdict.megabytes:5.0f} MB"
            print(f"{cost} {bomb.name:20} {len(bomb.text):6} {target:12} {verdict.answer[:100]}")
    for bomb, _, verdict in found:
        if given.keep and not verdict.answered:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"{bomb.name.replace(' ', '_')}.tex").write_text(bomb.text, encoding="utf-8")
    print(dict(counts.most_common()), f"{time.monotonic() - began:.0f} s")
    sys.exit(counts["left the bar"] > 0)


if __name__ == "__main__":
    main()
