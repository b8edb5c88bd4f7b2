"""Scans that threads share out: which loops are scans, how launches take them, and that they are right."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import barriers, mapped, only_launch, proved, with_launch, without_barrier
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Choice, Flat, Scanned
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

ROWS = "kernel k(X: f32[M, N], Y: f32[M, N]) { par M i { new s: f32; s = 0.0; seq N j { BODY } } }"
COLUMNS = ROWS.replace("par M i", "par N j").replace("seq N j", "seq M i")
STREAM = "kernel k(X: f32[N], Y: f32[N]) { new s: f32; s = 0.0; seq N j { s += X[j]; Y[j] = s } }"
INCLUSIVE = "s += X[i, j]; Y[i, j] = s"


def of(body: str, text: str = ROWS) -> str:
    return text.replace("BODY", body)


PROGRAMS = {
    "inclusive": of(INCLUSIVE),
    "columns": of(INCLUSIVE, COLUMNS),
    "stream": STREAM,
    "exclusive": of("Y[i, j] = s; s += X[i, j]"),
    "masked": of("if X[i, j] > 0.0 { s += X[i, j] }; Y[i, j] = s"),
    "masked columns": of("if X[i, j] > 0.0 { s += X[i, j] }; Y[i, j] = s", COLUMNS),
    "reversed": of("s += X[i, N - 1 - j]; Y[i, N - 1 - j] = s"),
    "of a product": of("let x = X[i, j] * 2.0; s += x * x; Y[i, j] = s - x"),
    "of a scalar": of("let x = X[i, j] * 2.0; let y = x * x; if y > 1.0 { s += y }; Y[i, j] = s"),
    "bound": of("s = max(X[i, j], s); Y[i, j] = s"),
    "previous": """kernel k(X: f32[M, N], Y: f32[M, N]) where N >= 1 {
        par M i { Y[i, 0] = X[i, 0]; seq 1..N j { Y[i, j] = Y[i, j - 1] + X[i, j] } }
    }""",
    "previous of columns": """kernel k(X: i32[M, N], Y: i32[M, N]) where M >= 1 {
        par N j { Y[0, j] = X[0, j]; seq M - 1 i { Y[i + 1, j] = min(X[i + 1, j], Y[i, j]) } }
    }""",
    "in place": "kernel k(inout A: i32[M, N]) where N >= 1 { par M i { seq 1..N j { A[i, j] += A[i, j - 1] } } }",
    "in place by a scalar": """kernel in_place(inout A: f32[M, N]) {
        par M i { new s: f32; s = 1.0; seq N j { s *= A[i, j]; A[i, j] = s } }
    }""",
    "element": "kernel k(X: f32[N], Y: f32[N], inout S: f32[1]) { seq N j { S[0] += X[j]; Y[j] = S[0] } }",
    "elements": """kernel k(X: i32[M, N], Y: i32[M, N], inout S: i32[M]) {
        par M i { seq N j { S[i] max= X[i, j]; Y[i, j] = S[i] } }
    }""",
    "two folds": """kernel k(X: f32[M, N], Y: f32[M, N], Z: f32[M, N]) {
        par M i {
            new s: f32; s = 0.0
            new m: f32; m = -9.0
            seq N j { s += X[i, j]; m max= X[i, j]; Y[i, j] = s - m; Z[i, j] = m }
        }
    }""",
    "two scans": """kernel k(X: f32[M, N], Y: f32[M, N], Z: f32[M]) {
        par M i {
            new s: f32; s = 0.0
            seq N j { s += X[i, j]; Y[i, j] = s }
            new t: f32; t = s
            seq N k { t += Y[i, k]; Y[i, k] = t }
            Z[i] = t - s
        }
    }""",
    "left": """kernel k(X: i32[N, M], Y: i32[N, M], T: i32[M]) {
        par M j { new s: i32; s = 2; seq N i { s += X[i, j]; Y[i, j] = s }; T[j] = s }
    }""",
    "halves": of(INCLUSIVE).replace("f32", "bf16"),
    "bytes": of("s += X[i, j]; Y[i, j] = s").replace("f32", "i8").replace("s = 0.0", "s = 0"),
    "doubles": of("s += X[i, j]; Y[i, j] = s").replace("f32", "f64"),
    "triangle": """kernel k(X: f32[M, N], Y: f32[M, N]) where N >= M + 96 {
        par M i { new s: f32; s = 0.0; seq i + 97 j { s += X[i, j]; Y[i, j] = s } }
    }""",
    "batches": """kernel k(X: f32[M, 3, N], Y: f32[M, 3, N]) {
        par M i, 3 c { new s: f32; s = 0.0; seq N j { s += X[i, c, j]; Y[i, c, j] = s } }
    }""",
    "of sums": """kernel k(X: f32[M, N, 3], Y: f32[M, N]) {
        par M i { new s: f32; s = 0.0; seq N j { s += sum 3 c { X[i, j, c] }; Y[i, j] = s } }
    }""",
    "compacted": """kernel k(X: i32[N], Y: i32[N], inout C: i32[1]) {
        seq N j { if X[j] > 0 { C[0] += 1 }; Y[j] = C[0] }
    }""",
}
SIZES = {"M": 3, "N": 301}


def choice(found: MappedProgram) -> Choice:
    assert isinstance(found.candidate, Candidate)
    (only,) = found.candidate.launches.values()
    return only


def narrowed(text: str, bound: dict[str, int] | None = None, **changes: Any) -> MappedProgram:
    """The program with few threads, so that small sizes have several tiles and, of rows, several in a block."""
    found = mapped(text, **(bound or {}))
    assert isinstance(found.candidate, Candidate)
    launches: dict[str, Choice] = {}
    for name, one in found.candidate.launches.items():
        assert isinstance(one, Scanned)
        across = one.along not in one.shared_out
        deal = tuple((index, 16) for index, _ in one.deal) if across else ()
        small = replace(one, threads=64, deal=deal, ahead=2, look_back=False, resident=0)
        launches[name] = replace(small, **changes)
    return mapped(text, choices=replace(found.candidate, launches=launches), **(bound or {}))


def results(program: MappedProgram, n: int, seed: int = 0, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the program computes on small whole numbers, and what the interpreter says."""
    sizes = {size.name: {**SIZES, "N": n}[size.name] for size in program.kernel.sizes}
    values = arguments(program.kernel, {**SIZES, **sizes})
    if "in_place" in program.kernel.name:
        values = {name: np.sign(array) for name, array in values.items()}
    expected = interpret(program.kernel, values, sizes=sizes).outputs
    return simulate(program, values, seed=seed, sizes=sizes, **how), expected


def same(got: dict[str, Any], expected: dict[str, Any], name: str = "") -> None:
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=f"{name} {array}")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [301, 128, 1, 0])
def test_a_scan_that_threads_share_is_what_its_loop_computes(name: str, n: int) -> None:
    if ("where" in PROGRAMS[name] and n == 0) or (name == "triangle" and n < 99):
        return
    same(*results(narrowed(PROGRAMS[name]), n))


ROWS_OF_4 = {
    name: PROGRAMS[name] for name in ("inclusive", "exclusive", "halves", "doubles", "two folds", "of a product")
}
COLUMNS_OF_4 = {name: PROGRAMS[name] for name in ("columns", "previous of columns", "left")}
WIDE = [
    *((name, {"N": 512}, {"threads": 64}) for name in ROWS_OF_4),
    *((name, {"N": 100}, {"threads": 64, "deal": (("i", 4),)}) for name in ("inclusive", "halves")),
    ("columns", {"N": 64}, {"widths": {"j": 4}}),
    ("previous of columns", {"N": 64}, {"widths": {"j": 2}, "ahead": 1}),
    ("left", {"M": 64}, {"widths": {"j": 4}, "threads": 16}),
]
WIDE_FROM_LINES = ["inclusive", "exclusive", "masked", "halves", "bytes", "two folds", "in place", "previous", "bound"]
WIDE += [(name, {"N": n}, {"threads": 64, "deal": ()}) for name in WIDE_FROM_LINES for n in (301, 601)]


@pytest.mark.parametrize(("name", "bound", "changes"), WIDE)
def test_threads_take_neighbours_with_wide_accesses(name: str, bound: dict[str, int], changes: dict[str, Any]) -> None:
    program = narrowed(PROGRAMS[name], bound, **changes)
    copies = [access for access in program.report.accesses if access.width > 1]
    assert copies
    sizes = {**SIZES, **bound, **({} if "N" in bound else {"N": 77})}
    values = arguments(program.kernel, sizes)
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    same(simulate(program, values, sizes=known), interpret(program.kernel, values, sizes=known).outputs, name)


@pytest.mark.parametrize("name", ["inclusive", "columns", "two scans", "previous"])
def test_any_order_of_warps_is_right_and_gives_the_same_bits(name: str) -> None:
    program = narrowed(PROGRAMS[name])
    for seed in (0, 1):
        same(*results(program, 301, seed, interleaved=True), name)
    values = {n: np.random.default_rng(3).normal(size=v.shape) for n, v in arguments(program.kernel, SIZES).items()}
    values = {n: v.astype(np.float32) for n, v in values.items()}
    known = {size.name: SIZES[size.name] for size in program.kernel.sizes}
    where = dict.fromkeys(values, 16)
    first, second = (
        simulate(program, values, seed=seed, sizes=known, addresses=where, interleaved=bool(seed)) for seed in (0, 5)
    )
    same(first, second)


@pytest.mark.gxx
@pytest.mark.sampled(2)
@pytest.mark.parametrize("turn", [0, 1])
def test_the_text_is_right_on_the_cpu(turn: int) -> None:
    wide = {f"{one[0]} wide {n}": narrowed(PROGRAMS[one[0]], *one[1:-1], **one[-1]) for n, one in enumerate(WIDE)}
    programs = {} if turn else {name: narrowed(PROGRAMS[name]) for name in PROGRAMS}
    right_on_the_cpu(programs | {name: wide[name] for name in list(wide)[turn::2]})


def right_on_the_cpu(programs: Mapping[str, MappedProgram]) -> None:
    """The emitted texts compute what the interpreter says."""
    texts = {name: Emitted(with_names(program, f"scanned_{n}")) for n, (name, program) in enumerate(programs.items())}
    module = HostModule("\n".join(e.source for e in texts.values()), werror=True)
    for name, emitted in texts.items():
        kernel = programs[name].kernel
        known = {size.name: {**SIZES, "N": 701}[size.name] for size in kernel.sizes}
        values = arguments(kernel, known)
        if kernel.name == "in_place":
            values = {n: np.sign(array) for n, array in values.items()}
        arrays = {n: np.array(v) for n, v in values.items()}
        assert emitted.run(module, arrays, 3) is None
        same(arrays, interpret(kernel, values, sizes=known).outputs, name)


def with_names(program: MappedProgram, name: str) -> MappedProgram:
    host = tuple(
        replace(node, name=f"{name}_{number}") if isinstance(node, Launch) else node
        for number, node in enumerate(program.host)
    )
    return replace(program, host=host)


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1.0]


@pytest.mark.parametrize("op", ["s += X[i, j]", "s max= X[i, j]", "s min= X[i, j]", "s *= X[i, j]"])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_nan_and_infinities_come_and_stay_where_they_do_in_the_loop(op: str) -> None:
    program = narrowed(of(f"{op}; Y[i, j] = s"))
    random = np.random.default_rng(7)
    for special in SPECIAL:
        x = random.integers(1, 3, (3, 301)).astype(np.float32)
        x[random.integers(0, 3, 9), random.integers(0, 301, 9)] = special
        x[0, 40:60], x[1, 100], x[1, 101] = special, np.inf, -np.inf
        x = np.sign(x) * np.minimum(np.abs(x), 1.0) if "*" in op and np.isfinite(special) else x
        values = {"X": x, "Y": np.zeros_like(x)}
        with np.errstate(all="ignore"):
            expected = interpret(program.kernel, values, sizes={"M": 3, "N": 301}).outputs["Y"]
            got = simulate(program, values)["Y"]
            finite = np.where(np.isfinite(x), x, 0).astype(np.float64).cumsum(axis=1)
        over = (np.abs(finite) > np.finfo(np.float32).max) if "+" in op else np.zeros_like(finite, bool)
        over = np.logical_or.accumulate(over, axis=1)  # f32 has no room for what finite terms made on the way
        np.testing.assert_array_equal(np.isfinite(got[over]), np.isfinite(expected[over]), err_msg=str(special))
        np.testing.assert_array_equal(got[~over], expected[~over], err_msg=str(special))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_scans_are_what_their_loops_compute(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(["s += {}", "s max= {}", "s min= {}", "s = s + {}", "s = min({}, s)"]))
    index = data.draw(st.sampled_from(["j", "N - 1 - j"]))
    dims = data.draw(st.sampled_from(["i, {}", "{}, i", "i, {} + 2"]))
    shape = {"i, {}": "M, N", "{}, i": "N, M", "i, {} + 2": "M, N + 2"}[dims]
    element = f"X[{dims.format(index)}]"
    term = data.draw(st.sampled_from([element, f"{element} * {element}", f"({element} - i32(j))"]))
    update = op.format(term)
    if data.draw(st.booleans()):
        update = f"if {element} > 0 {{ {update} }}"
    parts = [update, f"Y[{dims.format(index)}] = s * 2"]
    body = "; ".join(reversed(parts) if data.draw(st.booleans()) else parts)
    low = data.draw(st.sampled_from(["", "1.."]))
    text = f"""kernel k(X: i32[{shape}], inout Y: i32[{shape}]) where N >= 1 {{
        par M i {{ new s: i32; s = i32(i); seq {low}N j {{ {body} }} }}
    }}"""
    sizes = {"M": data.draw(st.integers(1, 5)), "N": data.draw(st.sampled_from([1, 2, 63, 64, 65, 127, 200]))}
    bound = data.draw(st.sampled_from([{}, {"N": sizes["N"]}, sizes])) if sizes["N"] >= 65 else {}
    threads = data.draw(st.sampled_from([32, 64, 128]))
    ahead, look_back = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.booleans())
    program = narrowed(text, bound, ahead=ahead, threads=threads, look_back=look_back)
    values = arguments(program.kernel, sizes)
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    same(simulate(program, values, sizes=known), interpret(program.kernel, values, sizes=known).outputs, text)


@pytest.mark.parametrize(
    "text",
    [
        of("s += X[i, j]; Y[i, j] = s").replace("seq N j {", "seq N j #ordered {"),
        of("s += X[i, j] * s; Y[i, j] = s"),
        of("s += X[i, j]; t += s; Y[i, j] = t").replace("s = 0.0;", "s = 0.0; new t: f32; t = 0.0;"),
        of("s = X[i, j] - s; Y[i, j] = s"),
        of("s += X[i, j]; s += 1.0; Y[i, j] = s"),
        of("if s < 9.0 { s += X[i, j] }; Y[i, j] = s"),
        of("Y[i, j] = X[i, j] * 2.0; s += Y[i, j]; Y[i, j] = s"),
        of("s += X[i, j]; Y[i, N - 1 - j] = s + Y[i, j]").replace("Y: f32", "inout Y: f32"),
        of(INCLUSIVE).replace("seq N j", "seq 40 j").replace("f32[M, N]", "f32[M, 40]"),
        "kernel k(inout A: f32[N]) { seq 2..N j { A[j] = A[j - 1] + A[j - 2] } }",
        "kernel k(X: f32[N], inout Y: f32[N]) { seq 1..N j { if X[j] > 0.0 { Y[j] = Y[j - 1] + X[j] } } }",
        "kernel k(X: i32[N], Y: i32[N], inout S: i32[N]) { seq N j { S[j / 2] += X[j]; Y[j] = S[j / 2] } }",
        of(INCLUSIVE).replace("seq N j {", "seq N j #unroll(4) {"),
    ],
)  # fmt: skip
def test_what_is_no_scan_stays_a_loop(text: str) -> None:
    candidate = mapped(text).candidate
    assert isinstance(candidate, Candidate)
    assert not any(isinstance(one, Scanned) for one in candidate.launches.values())


@pytest.mark.parametrize("name", ["inclusive", "left"])
def test_every_barrier_of_a_scan_is_needed(name: str) -> None:
    program = narrowed(PROGRAMS[name])
    launch = only_launch(program)
    assert len(barriers(launch)) == 2
    for number in range(2):
        wrong = with_launch(program, without_barrier(launch, number))
        with pytest.raises(InternalError, match="no barrier orders"):
            check_orders(wrong)
        with pytest.raises(TExprError, match="no barrier orders"):
            results(wrong, 701)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("inclusive", {"shared_out": ("k",)}, "k are no scans that the threads of a block can share"),
    ("inclusive", {"shared_out": ("j", "j")}, "j, j are no scans"),
    ("inclusive", {"threads": 48}, "a block cannot have 48 threads"),
    ("inclusive", {"deal": (("i", 64),)}, "lanes lie along j, and one thread has all of it"),
    ("inclusive", {"along": "i"}, "lanes lie along one of j, not i"),
    ("inclusive", {"deal": (("j", 2),)}, "`deal` deals threads to j, not some of i"),
    ("inclusive", {"deal": (("i", 3),)}, "`deal` deals 3 threads, in pieces that do not number 64"),
    ("inclusive", {"ahead": 3}, "`ahead` is a power of two up to 8"),
    ("inclusive", {"resident": 99}, "more threads than a multiprocessor runs"),
    ("inclusive", {"widths": {"i": 2}}, "a thread takes neighbours of j"),
    ("inclusive", {"grid": ()}, "`grid` orders none; the band has i"),
    ("inclusive", {"memory": {}}, "`memory` places none; the locals are s"),
    ("triangle", {"deal": (("i", 2),)}, "the extent of j depends on an index that has threads"),
    ("columns", {"widths": {"i": 2}}, "a thread takes neighbours of j"),
    ("reversed", {"widths": {"j": 4}}, "no access is wide where a thread takes 4 iterations of j"),
    ("two scans", {"shared_out": ("k",), "along": "k"}, "k are no scans that the threads of a block can share"),
    ("columns", {"ahead": 128}, "`ahead` is a power of two up to 64"),
    ("inclusive", {"lines": {"j": "X[i, j]"}}, r"runs of j are counted from Y\[i, j\], not from X\[i, j\]"),
    ("inclusive", {"widths": {}}, r"runs of j are counted from none, not from Y\[i, j\]"),
    ("columns", {"lines": {"j": "Y[i, j]"}}, r"runs of j are counted from none, not from Y\[i, j\]"),
]


@pytest.mark.parametrize(("name", "change", "why"), REFUSED)
def test_a_choice_that_does_not_fit_is_refused(name: str, change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why) as refused:
        narrowed(PROGRAMS[name], **change)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]


def test_lanes_lie_where_memory_does_and_threads_have_several_loads_on_their_way() -> None:
    rows = choice(mapped(PROGRAMS["inclusive"], M=32768, N=4096))
    assert rows == Scanned(
        threads=256, grid=("i",), shared_out=("j",), along="j", ahead=4, widths={"j": 4}, memory={"s": Memory.REG}
    )
    ragged = choice(mapped(PROGRAMS["halves"], M=32749, N=4093))
    assert isinstance(ragged, Scanned) and ragged.lines == {"j": "Y[i, j]"} and ragged.widths == {"j": 8}
    assert ragged.threads * 8 * ragged.ahead >= 4093 + 63 > (ragged.threads - 32) * 8 * ragged.ahead
    words = choice(mapped(PROGRAMS["inclusive"], M=32749, N=4093))
    assert isinstance(words, Scanned) and (words.threads, words.ahead, words.widths) == (288, 4, {"j": 4})
    short = choice(mapped(PROGRAMS["inclusive"], M=32768, N=128))
    assert isinstance(short, Scanned) and short.deal == (("i", 4),) and short.threads == 128
    columns = [choice(mapped(PROGRAMS["columns"], M=m, N=n)) for m, n in ((4096, 1 << 20), (32768, 4096))]
    assert [c.look_back for c in columns if isinstance(c, Scanned)] == [False, True]
    assert all(isinstance(c, Scanned) and c.along == "j" and c.widths == {"j": 2} for c in columns)
    halves = of(INCLUSIVE, COLUMNS).replace("f32", "bf16")
    tall = [mapped(text, M=131072, N=1024) for text in (PROGRAMS["columns"], halves)] + [mapped(halves, M=4096, N=512)]
    assert [c.ahead for c in map(choice, tall) if isinstance(c, Scanned)] == [32, 64, 8]
    long = [choice(mapped(PROGRAMS["halves"], M=m, N=100003)) for m in (8192, 257, 16)]
    assert [(c.threads, c.ahead, c.look_back) for c in long if isinstance(c, Scanned)] == [
        (256, 4, False),
        (512, 2, False),
        (256, 4, True),
    ]
    stream = [choice(mapped(STREAM, N=n)) for n in (1 << 27, 4096)]
    assert [(c.threads, c.ahead, c.look_back) for c in stream if isinstance(c, Scanned)] == [
        (256, 4, True),
        (256, 4, False),
    ]
    assert {type(choice(mapped(PROGRAMS[n], target="cpu"))).__name__ for n in ("inclusive", "columns")} == {"Cores"}


ASKED = [("stream", 96), ("inclusive", 96), ("columns", 992), ("columns", 448)]


@pytest.mark.parametrize(("name", "threads"), ASKED)
def test_any_warps_that_the_author_asks_for_share_scans(name: str, threads: int) -> None:
    asked, sizes = PROGRAMS[name].replace(") {", f") #threads({threads}) {{", 1), {"M": 70, "N": 300}
    bound = {size: n for size, n in sizes.items() if name != "stream" or size == "N"}
    program = mapped(asked, **bound)
    found = choice(program)
    assert isinstance(found, Scanned) and found.threads == threads
    assert isinstance(program.candidate, Candidate)
    assert choice(mapped(asked, choices=program.candidate, **bound)) == found
    values = arguments(program.kernel, bound)
    same(simulate(program, values), interpret(program.kernel, values).outputs)


def test_scans_whose_folds_have_no_room_stay_with_one_thread() -> None:
    count = 40
    folds = "; ".join(f"new s{c}: f64; s{c} = 0.0" for c in range(count))
    body = "; ".join(f"s{c} += X[j, i] * {c}.0; Y[{c}, j, i] = s{c}" for c in range(count))
    text = f"""kernel k(X: f64[512, N], Y: f64[{count}, 512, N]) #threads(1024) {{
        par N i {{ {folds}; seq 512 j {{ {body} }} }}
    }}"""
    assert isinstance(choice(mapped(text, N=64)), Flat)


def test_the_text_of_a_running_sum_is_the_golden_one(golden: Any) -> None:
    golden("cuda/running_sum.cu", Emitted(mapped(PROGRAMS["inclusive"], M=32768, N=4096)).source)


def test_all_candidates_of_a_scan_are_right() -> None:
    program = mapped(PROGRAMS["inclusive"], N=320)
    tried = {type(one.launches["k_0"]) for one in candidates(problem_of(proved(PROGRAMS["inclusive"], N=320), program))}
    assert {Scanned, Flat} <= tried
