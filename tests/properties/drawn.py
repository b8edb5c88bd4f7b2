"""Random programs in schedules forced at random, mapped by candidates drawn at random: each computes what the program
says, on the simulator, or compiled for a target of this machine; `tests/gpu/build.py --drawn` builds them for a GPU.

    python tests/properties/drawn.py FIRST COUNT [--drawn 4] [--on cuda-host:sm_90a]

Half of the programs are those of `programs.py`; the others have what a form of launch is for, at sizes around a warp, a
tile or a row: scans, picks, products, tiles that are counted from lines, rows of one length, copies of small arrays,
launches that follow one another. A candidate is drawn without preference from the space of the program after its moves,
and begins early whatever launches may. Prints how often each form was drawn, and what is wrong.
"""

import argparse
import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "polyhedral"))

from differential import Reference, by_target, copied, reference, special_arguments
from programs import Case, generate
from schedule_oracle import computed, moves

import texpr
from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.early import able
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Flat, Scanned, Tiled
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.mapped.operators import Reduce
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, operators
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule.draft import replay
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import Target, parse_target

REFUSED = {"E0307", "E0401", "E0402", "E0403", "E0404"}  # what is drawn need not fit, nor have room
FREE = 0.3  # of the programs have free sizes
TARGET = parse_target("cuda:sm_90a")
LENGTHS = (1, 2, 31, 32, 33, 64, 65, 100, 129)
LARGE = (*LENGTHS[-4:], 67, 131, 130)
ROWS = "par M i { new t: f32; t = maximum N j { X[i, j] }; par N k { Y[i, k] = X[i, k] - t } }"
TEXTS = {
    "scan": "kernel f(X: {t}[M, N], Y: {t}[M, N]) {{ par M i {{ new s: {t}; s = {zero}\n"
    "seq N j {{ s += X[i, j]; Y[i, j] = s }} }} }}",
    "long scan": "kernel f(X: {t}[K], Y: {t}[K]) {{ new s: {t}; s = {zero}\nseq K j {{ s += X[j]; Y[j] = s }} }}",
    "pick": "kernel f(X: {t}[M, N], Y: i64[M]) {{ par M i {{ new top: {t}; new at: i64; top = X[i, 0]; at = 0\n"
    "seq N j {{ if X[i, j] > top {{ top = X[i, j]; at = j }} }}; Y[i] = at }} }}",
    "product": "kernel f(A: {t}[M, K], B: {t}[K, N], C: {t}[M, N]) {{\n"
    "par M i, N j {{ C[i, j] = sum K k {{ A[i, k] * B[k, j] }} }} }}",
    "transpose": "kernel f(X: {t}[M, N], Y: {t}[N, M]) {{ par M i, N j {{ Y[j, i] = X[i, j] + X[i, j] }} }}",
    "rows": f"kernel f(X: f32[M, N], Y: f32[M, N]) {{{{ {ROWS.replace('{', '{{').replace('}', '}}')} }}}}",
    "counts": "kernel f(K: i32[N], H: i32[16]) {{ par 16 b {{ H[b] = 0 }}\n"
    "par N i {{ atomic H[bitand(K[i], 15)] += 1 }} }}",
    "chain": "kernel f(X: {t}[N], Y: {t}[N]) {{ new T: {t}[N]\n"
    "par N i {{ T[i] = X[N - 1 - i] }}; par N i {{ Y[i] = T[N - 1 - i] + T[i] }} }}",
    "sum": "kernel f(X: {t}[K], Y: {t}[1]) {{ Y[0] = sum K k {{ X[k] }} }}",
}


def shaped(seed: int) -> Case:
    """A program that has what one of the forms is for."""
    chance = random.Random(seed)
    dtype, kind = chance.choice(("f32", "i32")), chance.choice(list(TEXTS))
    text = TEXTS[kind].format(t=dtype, zero="0.0" if dtype == "f32" else "0")
    sides = LARGE if kind in ("product", "transpose") else LENGTHS
    found = {"M": chance.choice(sides), "N": chance.choice(sides), "K": chance.choice((1, 8, 33, 200, 3000))}
    if kind == "product":
        found["K"] = min(found["K"], 33)
    if kind in ("rows", "pick"):
        found |= {"M": chance.choice((1, 3, 5)), "N": chance.choice((*LENGTHS, 1000, 1023, 1024, 2050))}
    sizes = {name: size for name, size in found.items() if re.search(rf"[\[ ]{name}[\],]", text.partition(") {")[0])}
    return Case(seed, text, sizes, False)


def proved_of(case: Case, kernel: texpr.Kernel, *, free: bool) -> ProvedProgram | None:
    """The program at its sizes, or with `free` ones, where it is legal."""
    core = kernel.core(sizes=case.sizes, types=case.types)
    try:
        return prove(build_program(core if free else bind_sizes(core, case.sizes)))
    except TExprError:
        return None


def moved(proved: ProvedProgram, chance: random.Random) -> tuple[Any, ...]:
    """Some moves that fit one after the other, often none."""
    found: tuple[Any, ...] = ()
    for _ in range(chance.choice((0, 0, 1, 2))):
        kernel = replay(proved, found).proved.program.kernel
        possible = [*moves(kernel), *computed(kernel)]
        for move in chance.sample(possible, min(6, len(possible))):
            try:
                replay(proved, (*found, move))
            except TExprError:
                continue
            found = (*found, move)
            break
    return found


def drawn(problem: Problem, chance: random.Random, count: int) -> Iterator[Candidate]:
    """Candidates of the space; what may begin early does, in some."""
    space = list(candidates(problem))
    for candidate in chance.sample(space, min(count, len(space))):
        early = frozenset(name for name in able(problem, candidate.launches) if chance.random() < 0.7)
        yield replace(candidate, early=early)


def forms(program: MappedProgram, candidate: Candidate) -> Iterator[str]:
    """What a program shows of the forms that there are."""
    if candidate.early:
        yield "early"
    if candidate.moves:
        yield "moved"
    for choice in candidate.launches.values():
        yield type(choice).__name__
        match choice:
            case Blocks(rows=rows, together=together, cluster=cluster):
                yield from (name for name, has in (("rows", rows), ("together", together > 1)) if has)
                yield from ["cluster"] if cluster > 1 else []
            case Flat(lines=lines, turns=turns):
                yield from (name for name, has in (("lines", lines), ("turns", turns)) if has)
            case Tiled(lines=lines):
                yield from ["cut tiles"] if lines else []
            case Scanned(look_back=look_back):
                yield from ["look back"] if look_back else []
            case _:
                pass
    combined = (
        node for launch in launches(program.host) for node in operators(launch.body) if isinstance(node, Reduce)
    )
    if any(MONOIDS[node.monoid].indexed for node in combined):
        yield "picks"


@dataclass(frozen=True)
class Draw:
    """A program with its arguments, and the candidates that were drawn for it."""

    text: str
    proved: ProvedProgram
    ref: Reference
    candidates: tuple[Candidate, ...]


def draw(seed: int, count: int, target: Target = TARGET) -> Draw | None:
    """The program of a seed and so many candidates, or fewer; None of one that is not legal, or does not fit after its
    moves."""
    chance = random.Random(seed)
    case = shaped(seed) if seed % 2 else generate(seed, bend=0.0)
    kernel = texpr.parse(case.text, f"drawn_{seed}").only
    free = chance.random() < FREE
    proved = proved_of(case, kernel, free=free)
    if proved is None:
        return None
    made, dynamic = moved(proved, chance), tuple(case.sizes) if free else ()
    values = special_arguments(kernel, case.sizes, 2 * seed, case.types)
    ref = reference(kernel, case.sizes, values, case.types, dynamic)
    try:
        scheduled = replay(proved, made)
        problem = Problems(keep_nothing(scheduled.proved, scheduled.moves), target, {}).wide
        return Draw(case.text, proved, ref, tuple(drawn(problem, chance, count)))
    except TExprError as refused:
        if {d.code for d in refused.diagnostics} <= REFUSED:
            return None
        raise AssertionError(f"seed {seed}: {refused}\n{case.text}") from refused


def compute(
    each: Draw, candidate: Candidate, program: MappedProgram, seed: int, on: Target | None
) -> Mapping[str, Any]:
    """The arguments after a run, on a target of this machine or the simulator."""
    if on:
        return by_target(on.name, mapping=candidate)(each.ref, seed)
    return simulate(program, copied(each.ref.values), seed=seed, sizes=each.ref.free)


def run(seed: int, count: int, found: Counter[str], on: Target | None = None) -> list[str]:
    """Draws so many candidates of the program of a seed; what went wrong."""
    try:
        each = draw(seed, count, on or TARGET)
    except Exception:  # a defect, whatever it is
        return [f"seed {seed}: {traceback.format_exc()[-800:]}"]
    if each is None:
        return []
    wrong = list[str]()
    for candidate in each.candidates:
        try:
            program = map_program(each.proved, on or TARGET, choices=candidate)
            got = compute(each, candidate, program, seed, on)
        except TExprError as refused:
            if not {d.code for d in refused.diagnostics} <= REFUSED:
                wrong.append(f"seed {seed}: {candidate}: {refused}\n{each.text}")
            found["refused"] += 1
            continue
        except Exception:  # a defect, whatever it is
            wrong.append(f"seed {seed}: {candidate}: {traceback.format_exc()[-800:]}\n{each.text}")
            continue
        found.update(dict.fromkeys(forms(program, candidate), 1))
        if any(comparison.wrong for comparison in each.ref.compare(got)):
            wrong.append(f"seed {seed}: {candidate}: {each.ref.compare(got)}\n{each.text}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--drawn", type=int, default=4)
    parser.add_argument("--on", type=parse_target, help="cpu or cuda-host:sm_90a; else the simulator")
    asked = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(asked.first, asked.first + asked.count):
        for line in run(seed, asked.drawn, found, asked.on):
            print(line, flush=True)
    print(dict(found.most_common()))


if __name__ == "__main__":
    main()
