"""Conditional updates of a value with what is known of its iteration: which loops are reductions of pairs.
Their results are the sequential program's, to the bit."""

import random
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from pick_programs import odd_data, pick_program
from stages import mapped
from test_parted import with_launch_name

import texpr
from texpr.codegen.host_run import HostModule
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Parted, Row
from texpr.polyhedral.mapped.operators import Reduce
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.walks import launches, located
from texpr.polyhedral.simulate.stage import simulate


def small(text: str, **sizes: int) -> MappedProgram:
    """The program with few threads and blocks where blocks share out its loop, so that small sizes have several."""
    found = mapped(text, **sizes)
    if not isinstance(found.candidate, Candidate):
        return found
    launches_ = dict(found.candidate.launches)
    for name, choice in launches_.items():
        if isinstance(choice, Parted):
            deal = tuple((index, min(n, 16)) for index, n in choice.deal)
            launches_[name] = replace(
                choice, threads=64, deal=deal, blocks=dict.fromkeys(choice.blocks, 9), ahead=2, resident=1, lines={},
                strip=0,
            )  # fmt: skip
    return mapped(text, choices=replace(found.candidate, launches=launches_), **sizes)


def check(program: MappedProgram, sizes: dict[str, int], seed: int) -> None:
    """The mapped program leaves what the interpreter does, to the bit."""
    values = odd_data(program.kernel, sizes, seed)
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    expected = interpret(program.kernel, values, sizes=known).outputs
    got = simulate(program, values, seed=seed, sizes=known)
    for name, found in expected.items():
        assert got[name].tobytes() == found.tobytes(), (name, got[name], found)


def monoids(program: MappedProgram) -> set[str]:
    """Those by which threads combine."""
    return {p.node.monoid for x in launches(program.host) for p in located(x.body) if isinstance(p.node, Reduce)}


NUMBERS = {"GreatestNumber", "LeastNumber"}  # of a run
PICKS = {"FirstGreatest", "LastGreatest", "FirstLeast", "LastLeast"}
SIZES = ((1, 1), (3, 64), (2, 301), (167, 5), (270, 70), (5, 131))


@pytest.mark.parametrize("seed", range(10))
def test_random_picks_are_shared_out_and_leave_what_the_sequential_program_leaves(seed: int) -> None:
    rng = random.Random(seed)
    text = pick_program(rng)
    most = 9 if "seq M i" in text else 300
    free, bound = ({"M": min(m, most), "N": n} for m, n in rng.sample(SIZES, 2))
    program = small(text)
    assert monoids(program) & PICKS, text
    check(program, free, seed)
    check(small(text, **bound), bound, seed)


ROWS = """kernel k(X: f32[M, N], Y: f32[M, N], B: bf16[M, N], L: i64[M], R: f32[M]) {{
    par M i {{
        new best: f32
        new half: bf16
        new at: i64
        best = -inf
        half = -inf
        at = 0
        seq N j {{
            {body}
        }}
        L[i] = at
        R[i] = best + f32(half)
    }}
}}"""
PICKED = {
    "a let": ("let x = abs(X[i, j]); if x > best { best = x; at = j }", "FirstGreatest"),
    "turned": ("if best > X[i, j] { best = X[i, j]; at = j }", "FirstLeast"),
    "last": ("if X[i, j] >= best { best = X[i, j]; at = j }", "LastGreatest"),
    "the value alone": ("if best >= X[i, j] { best = X[i, j] }", "LastLeast"),
    "the place alone": ("if X[i, j] > X[i, at] { at = j }", "FirstGreatest"),
    "narrow": ("if B[i, j] > half { half = B[i, j]; at = j }", "FirstGreatest"),
    "widened": ("if f32(B[i, j]) > best { best = f32(B[i, j]); at = j }", "FirstGreatest"),
    "truncated": ("if i32(X[i, j]) > i32(best) { best = X[i, j]; at = j }", "FirstGreatest"),
    "by magnitude": ("if abs(X[i, j]) >= abs(best) { at = j; best = X[i, j] }", "LastGreatest"),
    "selects": ("at = select(X[i, j] > best, j, at); best = select(X[i, j] > best, X[i, j], best)", "FirstGreatest"),
    "selects by a let": (
        "let c = X[i, j] > best; best = select(c, X[i, j], best); at = select(c, j, at)",
        "FirstGreatest",
    ),
    "the last where": ("if X[i, j] == 1.0 { at = j; best = Y[i, j] }", "Greatest"),
    "the first where": ("if best < 0.0 and X[i, j] == 1.0 { at = j; best = 5.0 }", "Least"),
    "the first of none": ("if at == 0 and X[i, j] == 1.0 { at = j + 1 }", "Least"),
    "any": ("half = select(X[i, j] > Y[i, j], 1.0, half)", "Greatest"),
    "another array": ("if X[i, j] > best { best = X[i, j]; half = B[i, j]; at = j }", "FirstGreatest"),
    "through a local": ("let y = 2 * j; if X[i, j] > best { best = X[i, j]; at = y + 1 }", "FirstGreatest"),
    "rounded": ("if B[i, j] > half { half = B[i, j]; best = f32(i32(Y[i, j])) }", "FirstGreatest"),
    "masked": ("if Y[i, j] > 0.0 and X[i, j] > best { best = X[i, j]; at = j }", "FirstGreatest"),
    "under a condition": ("if j % 2 == 0 { if X[i, j] > best { best = X[i, j]; at = j } }", "FirstGreatest"),
}
KEPT = {
    "what is kept is rounded": "if X[i, j] > f32(half) { half = bf16(X[i, j]); at = j }",
    "another value is kept": "if X[i, j] > best { best = Y[i, j]; at = j }",
    "it is told from the second": "if X[i, j] > best { best = X[i, j]; at = j } else { half = B[i, j] }",
    "a later statement asks it": "if X[i, j] > best { best = X[i, j]; at = j }\nif best > 1.0 { half = 1.0 }",
    "how often it changes is counted": "if X[i, j] > best { best = X[i, j]; at += 1 }",
    "what was there is kept": "if X[i, j] > best { best = X[i, j]; at = at + j }",
    "it is equal": "if X[i, j] == best { best = X[i, j]; at = j }",
}


@pytest.mark.parametrize("name", PICKED)
@pytest.mark.sampled(2)
def test_a_pick_is_known_by_what_it_does(name: str) -> None:
    body, monoid = PICKED[name]
    text = ROWS.format(body=body).replace(") {", ") where N >= 4 {", 1)
    program = mapped(text)
    assert monoids(program) - NUMBERS == {monoid}
    for sizes in ({"M": 3, "N": 70}, {"M": 2, "N": 133}):
        check(program, sizes, 5)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_function_of_a_pair_stays_in_its_order(name: str) -> None:
    text = ROWS.format(body=KEPT[name])
    program = mapped(text)
    assert not monoids(program), name
    check(program, {"M": 3, "N": 70}, 5)


ARGMAX = """kernel argmax(X: f32[M, N], I: i64[M]) {
    par M i {
        new top: f32
        top = -inf
        I[i] = 0
        seq N j {
            if X[i, j] > top {
                top = X[i, j]
                I[i] = j
            }
        }
    }
}"""


def test_the_text_of_rows_is_the_golden_one(golden: Callable[[str, str], None]) -> None:
    golden("cuda/argmax.cu", Emitted(mapped(ARGMAX, M=4096, N=1024)).source)


def test_ordered_keeps_a_pick_in_one_thread() -> None:
    text = ROWS.format(body=PICKED["a let"][0])
    assert monoids(mapped(text)) and not monoids(mapped(text.replace("seq N j", "seq N j #ordered")))


def test_a_nan_to_start_from_stays_and_one_among_the_values_is_never_picked() -> None:
    text = ROWS.format(body=PICKED["turned"][0].replace("best >", "best >=")).replace("best = -inf", "best = Y[i, 0]")
    x = np.full((4, 130), np.inf, np.float32)
    x[0, 7], x[1, 8:] = np.nan, np.nan
    y = np.full((4, 130), np.inf, np.float32)
    y[3, 0] = np.nan
    given = {
        "X": x,
        "Y": y,
        "B": np.zeros((4, 130), np.uint16),
        "L": np.zeros(4, np.int64),
        "R": np.zeros(4, np.float32),
    }
    program = mapped(text.replace(") {", ") where N >= 1 {", 1))
    known = {"M": 4, "N": 130}
    given["B"] = odd_data(program.kernel, known, 0)["B"]
    got = simulate(program, given, sizes=known)["L"]
    assert got.tolist() == [129, 7, 129, 0]
    assert interpret(program.kernel, given, sizes=known).outputs["L"].tolist() == got.tolist()


AFTER = """kernel k(X: f32[M, N], V: f32[M], Y: f32[M, N]) where N >= 1 {
    par M i {
        new at: i64
        V[i] = X[i, 0]
        at = 0
        seq N j { if V[i] < X[i, j] { at = j; V[i] = X[i, j] } }
        par N j { Y[i, j] = select(j == 0, V[i], X[i, j]) + f32(at) }
    }
}"""


def test_all_threads_know_what_was_picked_where_one_of_them_keeps_the_value() -> None:
    program = mapped(AFTER)
    assert monoids(program) == {"FirstGreatest"}
    for seed, sizes in enumerate(({"M": 3, "N": 301}, {"M": 270, "N": 64})):
        check(program, sizes, seed)
        check(mapped(AFTER, **sizes), sizes, seed)


FOUND = """kernel k(X: f32[M, N], any_: bool[M], all_: bool[M], n: i32[M], q: i64[M]) {
    par M i {
        any_[i] = false
        all_[i] = true
        n[i] = 0
        q[i] = N
        seq N j {
            let good = X[i, j] > 1.0
            any_[i] = any_[i] or good
            all_[i] = all_[i] and X[i, j] > -2.0
            if good { n[i] += 1 }
            if q[i] == N and X[i, j] == 2.0 { q[i] = j }
        }
    }
}"""


def test_whether_any_or_all_hold_how_many_and_which_first_is_shared_out() -> None:
    program = mapped(FOUND)
    assert monoids(program) == {"Greatest", "Sum", "Least"}
    for seed, sizes in enumerate(({"M": 9, "N": 70}, {"M": 2, "N": 301})):
        check(program, sizes, seed)
        check(small(FOUND, **sizes), sizes, seed)


NEAREST = """kernel k(P: f32[D], C: f32[N, D], L: i64[]) {
    new best: f32
    best = inf
    L = -1
    seq N j {
        let d = sum D k { let e = P[k] - C[j, k]; e * e }
        if d < best { best = d; L = j }
    }
}"""


def test_what_is_compared_may_be_a_sum_of_the_iteration() -> None:
    program = mapped(NEAREST, D=3)
    assert monoids(program) == {"FirstLeast"}
    check(program, {"N": 400}, 5)


def test_where_all_are_nan_nothing_is_updated_though_the_least_value_is_no_less_than_itself() -> None:
    program = mapped(ROWS.format(body=PICKED["last"][0]))
    values = odd_data(program.kernel, {"M": 2, "N": 130}, 0)
    values["X"] = np.full((2, 130), np.nan, np.float32)
    values["X"][1, 64] = -np.inf
    assert simulate(program, values, sizes={"M": 2, "N": 130})["L"].tolist() == [0, 64]


INFINITE = """kernel k(X: f8e5m2[N], V: f8e5m2[], P: i64[]) where N >= 1 {
    V = X[0]
    P = -1
    seq N j { if X[j] <= V { V = X[j]; P = j } }
}"""


def test_an_infinity_is_picked_as_it_is_also_of_a_type_to_which_none_is_converted() -> None:
    program = small(INFINITE)
    assert monoids(program) == {"LastLeast"}
    dtype = storage(program.kernel.buffer("X").dtype)
    values = {"X": np.full(130, np.inf, dtype), "V": np.zeros((), dtype), "P": np.zeros((), np.int64)}
    got = simulate(program, values, sizes={"N": 130})
    assert (float(got["V"]), got["P"]) == (np.inf, 129)


COLUMNS = """kernel k(X: f32[M, N], L: i64[N]) {{
    par N j {{
        new best: f32
        best = 0.0
        L[j] = -1
        seq M i {{ if X[i, j] {op} best {{ best = X[i, j]; L[j] = i }} }}
    }}
}}"""


@pytest.mark.parametrize(("op", "found"), [(">", 0), (">=", 299)])
def test_of_equal_values_in_several_blocks_the_first_or_the_last_is_picked(op: str, found: int) -> None:
    sizes = {"M": 300, "N": 5}
    program = small(COLUMNS.format(op=op))
    given = {"X": np.ones((300, 5), np.float32), "L": np.zeros(5, np.int64)}
    assert simulate(program, given, sizes=sizes)["L"].tolist() == [found] * 5


VECTOR = """kernel k(X: bf16[N], P: i64[], V: bf16[]) {
    V = -inf
    P = -1
    seq N j { if X[j] > V { V = X[j]; P = j } }
}"""


def test_an_array_of_any_length_is_shared_by_as_many_blocks_as_a_gpu_runs() -> None:
    for bound, index in (({"N": 1 << 27}, "i32"), ({"N": 1 << 33}, "i64"), ({}, "i64")):
        found = mapped(VECTOR, **bound)
        assert isinstance(found.candidate, Candidate)
        (choice,) = found.candidate.launches.values()
        assert isinstance(choice, Parted) and choice.blocks == {"j": 528} and choice.widths == {"j": 8}
        assert str(found.buffers["at_blocks"].dtype) == index
    program = small(VECTOR)
    for n in (0, 1, 4095, 9001):
        check(program, {"N": n}, n)


@pytest.mark.gxx
@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", [100, 105])
def test_the_text_of_picks_is_right_on_the_cpu_in_every_order(first: int) -> None:
    """All of them in one module: rows in registers, several blocks, several rows in a block."""
    texts = [VECTOR, *(pick_program(random.Random(seed)) for seed in range(first, first + 5))]
    emitted = []
    for number, text in enumerate(texts):
        program = small(text)
        if len(program.host) == 1 and isinstance(program.host[0], Launch):
            emitted.append(Emitted(with_launch_name(program, f"picks_{number}_0")))
    module = HostModule("\n".join(e.source for e in emitted), werror=True)
    for one in emitted:
        sizes = {"M": 5, "N": 131}
        values = odd_data(one.program.kernel, sizes, 3)
        known = {size.name: sizes[size.name] for size in one.program.kernel.sizes}
        expected = interpret(one.program.kernel, values, sizes=known).outputs
        for seed in (0, 7):
            arrays = {n: np.array(v) for n, v in values.items()}
            assert one.run(module, arrays, seed) is None
            for name, found in expected.items():
                assert arrays[name].tobytes() == found.tobytes(), (one.source, name)


NARROW = """kernel k(X: {t}[3, {n}], I: i64[3], V: f32[3]) {{
    par 3 i {{
        new best: f32
        new at: i64
        best = {start}
        at = 7
        seq {n} j {{ if f32(X[i, j]) {op} best {{ best = X[i, j]; at = j }} }}
        I[i] = at
        V[i] = best
    }}
}}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize(
    ("t", "n", "op"), [("bf16", 1027, ">"), ("f16", 2048, ">"), ("bf16", 2052, "<"), ("f16", 777, "<")]
)
def test_the_run_that_wins_has_what_is_picked(t: str, n: int, op: str, slots: bool) -> None:
    """Rows of ties, of signed zeros, of infinities and of NaN, counted from a line or from their first element."""
    text = NARROW.format(t=t, n=n, op=op, start="-inf" if op == ">" else "inf")
    program = mapped(text)
    assert isinstance(program.candidate, Candidate)
    (name,) = program.candidate.launches
    row = Row(indices=("j",), line=128 if n % 8 else 0, slots=slots)
    memory = dict.fromkeys(("best", "at", "condition"), Memory.REG)
    forced = Blocks(threads=64, grid=("i",), shared_out=("j",), widths={"j": 8}, rows=(row,), memory=memory)
    program = mapped(text, choices=Candidate(launches={name: forced}))
    assert monoids(program) & NUMBERS
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[t]
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.integers(-3, 4, (3, n)).astype(dtype)
        x[rng.random((3, n)) < 0.2] = np.nan
        x[rng.random((3, n)) < 0.2] = -0.0
        x[0] = (-np.inf, np.nan, np.inf, x[0], 0.0, x[0])[seed]
        x[1, :: 9 if seed % 2 else n] = np.inf if op == "<" else -np.inf
        given = {"X": x, "I": np.zeros(3, np.int64), "V": np.zeros(3, np.float32)}
        expected = interpret(program.kernel, given).outputs
        got = simulate(program, given, seed=seed)
        for output in ("I", "V"):
            assert got[output].tobytes() == expected[output].tobytes(), (seed, output, got[output], expected[output])
        if seed == 3 and slots and t == "bf16":
            compiled = texpr.parse(text).only.compile("cuda-host:sm_90a", mapping=program.candidate)
            compiled(**given)
            assert given["I"].tolist() == expected["I"].tolist()


def test_picks_of_the_last_of_equal_values_ask_each_element() -> None:
    assert not monoids(mapped(NARROW.format(t="bf16", n=1027, op=">=", start="-inf"))) & NUMBERS
