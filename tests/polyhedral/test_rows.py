"""Rows that the threads of a block hold: read from memory once where that is right and there is room."""

from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stages import mapped, only_launch

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Cases, Choices, Row
from texpr.polyhedral.mapped.operators import Copy, Reduce
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import operators
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SOFTMAX = """kernel k(X: f32[M, {n}], Y: f32[M, {n}]) {{ par M i {{
    let m = maximum {n} k {{ X[i, k] }}
    let s = sum {n} k {{ exp(X[i, k] - m) }}
    par {n} j {{ Y[i, j] = exp(X[i, j] - m) / s }}
}} }}"""


def blocks_of(choices: Choices) -> list[Blocks]:
    assert isinstance(choices, Candidate)
    return [choice for choice in choices.launches.values() if isinstance(choice, Blocks)]


def rows_of(program: MappedProgram) -> tuple[Row, ...]:
    (choice,) = blocks_of(program.candidate)
    return choice.rows


def reads(program: MappedProgram, name: str) -> int:
    """The places where an array is read."""
    launch = only_launch(program)
    return sum(read.buffer == name for operator in operators(launch.body) for read in operator.reads)


def right(program: MappedProgram, x: Any, columns: int | None = None, **more: Any) -> None:
    """Whether it computes what the interpreter computes of X."""
    given = (
        {"X": x}
        | more
        | ({"Y": np.zeros((len(x), columns or x.shape[1]), np.float32)} if "Y" in program.buffers else {})
    )
    got, expected = simulate(program, given, seed=1), interpret(program.kernel, given).outputs
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [64, 132, 1000, 77, 515])
def test_a_row_that_several_loops_read_is_read_from_memory_once(n: int) -> None:
    program = mapped(SOFTMAX.format(n=n), M=3)
    assert reads(program, "X") == 1 and len(rows_of(program)[0].indices) == 3
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    x[0, 1], x[1, 5] = -np.inf, 80.0
    right(program, x)


@pytest.mark.parametrize("n", [77, 132, 32000])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_rows_of_every_length_and_type_are_emitted(n: int, dtype: str) -> None:
    text = SOFTMAX.format(n=n).replace("f32[", f"{dtype}[").replace("X[i, k]", "f32(X[i, k])")
    text = text.replace("exp(X[i, j] - m) / s", f"{dtype}(f32(X[i, j]) - m + s)")
    source = texpr.parse(text).only.compile("cuda:sm_90a").source
    assert source.count(" = X(") + source.count("tx::load") == 1 and "X_row" in source


def test_a_row_of_infinities_or_nan_is_what_the_sequential_program_leaves() -> None:
    program = mapped(SOFTMAX.format(n=64), M=4)
    x = np.zeros((4, 64), np.float32)
    x[0], x[1, 7], x[2, 63] = -np.inf, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        right(program, x)


@pytest.mark.parametrize("n", [512, 515, 1000])
@pytest.mark.parametrize("word", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_the_greatest_of_narrow_elements_is_chosen_two_at_once(dtype: str, word: str, n: int) -> None:
    text = SOFTMAX.replace("maximum", word).replace("X: f32", f"X: {dtype}").replace("X[i, k]", "f32(X[i, k])")
    program = mapped(text.replace("X[i, j]", "f32(X[i, j])").format(n=n), M=7)
    chosen = [o for o in operators(only_launch(program).body) if isinstance(o, Reduce) and o.over and o.lanes == 1]
    assert any(str(o.values[0].dtype) == dtype for o in chosen) is (dtype != "f32")
    x = (
        np.random.default_rng(n)
        .standard_normal((7, n))
        .astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}[dtype])
    )
    x[0, n // 2], x[1, n - 1], x[2, 0], x[3], x[4], x[5, 7] = np.nan, np.inf, -np.inf, -np.inf, -0.0, np.nan
    with np.errstate(invalid="ignore"):
        right(program, x)


@pytest.mark.parametrize("columns", [5000, 4093])
def test_nothing_is_asked_of_what_is_surely_in_the_row(columns: int) -> None:
    source = texpr.parse(SOFTMAX.format(n=columns)).only.compile("cuda:sm_90a", M=8192).source
    asked = [line for line in source.splitlines() if f" < {columns})" in line and "if (" in line]
    assert all("_serial < " in line for line in asked), asked
    assert bool(asked) is (columns == 5000), "-inf stands for what is no element of a row that begins anywhere"


def test_a_row_that_its_last_loop_overwrites_is_held_too() -> None:
    text = SOFTMAX.format(n=256).replace("X: f32[M, 256], Y: f32", "inout X: f32").replace("Y[i, j]", "X[i, j]")
    program = mapped(text, M=2)
    assert reads(program, "X") == 1
    right(program, np.random.default_rng(1).standard_normal((2, 256)).astype(np.float32))


def test_a_loop_that_writes_what_others_read_goes_over_their_row() -> None:
    text = """kernel k(inout X: f32[M, 256], Y: f32[M]) { par M i {
        let m = maximum 256 k { X[i, k] }
        Y[i] = sum 256 k { exp(X[i, k] - m) }
        par 256 j { X[i, j] = 0.0 }
    } }"""
    program = mapped(text, M=2)
    assert reads(program, "X") == 1 and len(rows_of(program)[0].indices) == 3


NOT_HELD = {
    "another element of the row": "par 256 j { Y[i, j] = X[i, 255 - j] / s }",
    "a row that changes before": "X[i, 3] = s; par 256 j { Y[i, j] = X[i, j] / s }",
    "a read after its own update": "par 256 j { X[i, j] = s; Y[i, j] = X[i, j] + 1.0 }",
    "another element, written": "par 256 j { Y[i, j] = X[i, j] / s; X[i, 255 - j] = 1.0 }",
}


@pytest.mark.parametrize("last", NOT_HELD.values(), ids=NOT_HELD.keys())
def test_what_may_be_another_value_by_then_is_not_held(last: str) -> None:
    text = f"kernel k(inout X: f32[M, 256], Y: f32[M, 256]) {{ par M i {{ let s = sum 256 k {{ X[i, k] }}; {last} }} }}"
    try:
        program = mapped(text, M=2)
    except TExprError as refused:  # a race
        assert {d.code for d in refused.diagnostics} == {"E0301"}
        return
    assert not any(len(row.indices) > 1 for row in rows_of(program))
    right(program, np.random.default_rng(1).standard_normal((2, 256)).astype(np.float32))


def test_what_only_some_iterations_read_is_not_loaded_for_all() -> None:
    last = "par 256 j { Y[i, j] = select(j < 200, X[i, j], 0.0) / s }"
    more = "let t = sum 256 k { select(k < 200, X[i, k], 1.0) }; "
    head = "kernel k(X: f32[M, 200], Y: f32[M, 256]) { par M i { let s = sum 256 k { select(k < 200, X[i, k], 0.0) }; "
    program = mapped(head + more + last + " } }", M=2)
    assert not rows_of(program)
    right(program, np.random.default_rng(1).standard_normal((2, 200)).astype(np.float32), columns=256)


@pytest.mark.parametrize("n", [515, 1024])
def test_one_loop_holds_what_no_other_block_reads(n: int) -> None:
    text = f"kernel k(X: f32[M, {n}], W: f32[{n}], Y: f32[M]) {{ par M i {{ Y[i] = sum {n} k {{ X[i, k] * W[k] }} }} }}"
    program = mapped(text)
    assert [name for name in program.buffers if name.endswith("_row")] == ["X_row"]
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, n), n))
    got = simulate(program, given := {"X": x, "W": w, "Y": np.zeros(3, np.float32)}, seed=1)
    np.testing.assert_allclose(got["Y"], interpret(program.kernel, given).outputs["Y"], rtol=1e-4, atol=1e-4)


def test_a_row_too_long_for_registers_is_read_again_and_the_report_says_so() -> None:
    program = mapped(SOFTMAX.format(n=1 << 20))
    assert not rows_of(program)
    assert "reads each row of X 3 times" in show(program)


def test_every_thread_has_what_it_reads_of_a_row_itself() -> None:
    copies = [c for c in operators(only_launch(mapped(SOFTMAX.format(n=512), M=2)).body) if isinstance(c, Copy)]
    assert [c.source.buffer for c in copies] == ["X", "Y_run"]


def test_runs_of_a_row_that_is_not_aligned_are_counted_from_a_line_of_memory() -> None:
    program = mapped(SOFTMAX.format(n=515), M=5)
    (row,) = rows_of(program)
    copies = [c for c in operators(only_launch(program).body) if isinstance(c, Copy)]
    assert row.line == 128 and {c.access for c in copies} == {Access.ALIGNED} and all(c.within for c in copies)
    text = SOFTMAX.format(n=515).replace("X: f32[M, 515]", "X: f32[M, 515], W: f32[515]").replace("/ s", "/ s * W[j]")
    weighted = mapped(text, M=5)
    assert rows_of(weighted)[0].line == 128
    x = np.random.default_rng(1).standard_normal((5, 515)).astype(np.float32)
    right(weighted, x, W=np.arange(515, dtype=np.float32))


def test_runs_begin_at_a_row_where_what_is_written_would_not_be_aligned() -> None:
    program = mapped(SOFTMAX.format(n=515).replace("Y: f32[M, 515]", "Y: f32[M, 516]"), M=3)
    assert rows_of(program)[0].line == 0 and reads(program, "X") == 1


def test_a_block_has_as_many_threads_as_its_row_needs() -> None:
    found = [only_launch(mapped(SOFTMAX.format(n=n))).threads for n in (64, 1024, 2048, 4093, 4096, 8192)]
    assert found == [32, 32, 256, 288, 512, 512]


LONG = SOFTMAX.replace("f32[", "bf16[").replace("X[i, k]", "f32(X[i, k])").replace("exp(X[i, j] - m)", "f32(X[i, j])")


def test_a_long_row_leaves_room_for_another_block_on_its_multiprocessor() -> None:
    launch = only_launch(mapped(LONG.replace("/ s", "* (1.0 / s)").format(n=32000), M=8))
    assert (launch.threads, launch.min_blocks) == (512, 2)
    assert "__launch_bounds__(512, 2)" in texpr.parse(SOFTMAX.format(n=16384)).only.compile("cuda:sm_90a").source


def test_no_bound_is_put_on_a_row_that_leaves_room_or_is_read_once() -> None:
    for text in (SOFTMAX.format(n=8192), TOTAL.format(n=32000), SOFTMAX.format(n=16384).replace("{", OWN, 1)):
        assert all(choice.resident == 0 for choice in blocks_of(mapped(text, M=8).candidate))


OWN = "#threads(1024) {"
TOTAL = "kernel k(X: f32[M, {n}], Y: f32[M]) {{ par M i {{ Y[i] = sum {n} k {{ X[i, k] }} }} }}"
FREE = SOFTMAX.replace("{n}", "N").replace("{{", "{").replace("}}", "}")


@cache
def of_free_length() -> MappedProgram:
    return mapped(FREE)


@pytest.mark.parametrize("n", [0, 1, 31, 1025, 8193])
def test_rows_whose_length_a_call_decides_are_held_where_they_are_short(n: int) -> None:
    program = of_free_length()
    assert isinstance(program.candidate, Cases)
    held = [choice.rows for case in program.candidate.cases for choice in blocks_of(case.candidate)]
    assert {row.line for rows in held for row in rows} == {0, 128}
    assert "k_0 reads each row of X 3 times: sizes leave its length open" in show(program)
    right(program, np.random.default_rng(n).standard_normal((2, n)).astype(np.float32))


def test_a_bound_that_the_program_knows_is_no_case() -> None:
    program = mapped(FREE.replace(") {", ") where N <= 700 {", 1))
    assert isinstance(program.candidate, Candidate) and reads(program, "X") == 1


WRONG = {
    "two rows": ((Row(indices=("k", "j")), Row(indices=("k_1", "j"))), "in two rows"),
    "another order": ((Row(indices=("j", "k")),), "no loops of one extent"),
    "another line": ((Row(indices=("k", "k_1", "j"), line=64),), "lines of 64 bytes"),
    "no loop": ((Row(indices=("i",)),), "no loops of one extent"),
}


@pytest.mark.parametrize(("rows", "why"), WRONG.values(), ids=WRONG.keys())
def test_rows_that_are_none_are_refused(rows: tuple[Row, ...], why: str) -> None:
    program = mapped(SOFTMAX.format(n=256), M=2)
    ((name, choice),) = program.candidate.launches.items()
    with pytest.raises(TExprError, match=why):
        mapped(
            SOFTMAX.format(n=256), choices=replace(program.candidate, launches={name: replace(choice, rows=rows)}), M=2
        )


@pytest.mark.parametrize(("head", "why"), [("{", "more threads than a"), ("#blocks_per_sm(2) {", "asks for 2 blocks")])
def test_more_blocks_than_there_is_room_for_or_than_the_author_asks_for_are_refused(head: str, why: str) -> None:
    text = SOFTMAX.format(n=256).replace("{", head, 1)
    program = mapped(text, M=2)
    ((name, choice),) = program.candidate.launches.items()
    with pytest.raises(TExprError, match=why):
        mapped(text, choices=replace(program.candidate, launches={name: replace(choice, resident=100)}), M=2)


LAYER = """kernel k(X: {t}[M, {n}], G: {t}[{n}], Y: {t}[M, {n}]) {{ par M i {{
    let m = (sum {n} k {{ f32(X[i, k]) }}) / {n}.0
    let v = sum {n} k {{ (f32(X[i, k]) - m) * (f32(X[i, k]) - m) }}
    par {n} j {{ Y[i, j] = {t}((f32(X[i, j]) - m) * rsqrt(v / {n}.0 + 1.0e-5) * f32(G[j])) }}
}} }}"""


@pytest.mark.parametrize(
    ("dtype", "n", "resident"), [("bf16", 4093, 10), ("f16", 1501, 0), ("bf16", 4096, 0), ("f32", 4093, 0)]
)
def test_a_norm_of_narrow_ragged_rows_has_threads_of_64_registers(dtype: str, n: int, resident: int) -> None:
    program = mapped(LAYER.format(t=dtype, n=n), M=32768)
    assert isinstance(program.candidate, Candidate)
    (choice,) = program.candidate.launches.values()
    assert isinstance(choice, Blocks)
    assert choice.resident == resident, choice


ROOT = """kernel k(X: {t}[M, {n}], G: {t}[{n}], Y: {t}[M, {n}]) {{ par M i {{
    let s = sum {n} k {{ f32(X[i, k]) * f32(X[i, k]) }}
    par {n} j {{ Y[i, j] = {t}(f32(X[i, j]) * rsqrt(s / {n}.0 + 1.0e-5) * f32(G[j])) }}
}} }}"""


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90a", "cuda:sm_120a"])
@pytest.mark.parametrize(("text", "n"), [(LAYER, 4608), (LAYER, 5120), (ROOT, 4096), (ROOT, 5120)])
def test_rows_of_words_beside_vectors_have_three_blocks_where_their_threads_fit(target: str, text: str, n: int) -> None:
    program = mapped(text.format(t="f32", n=n), target=target, M=32768)
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Blocks)
    room = parse_target(target).resident_threads
    threads = -(-n // (2 * 4 * 32)) * 32
    assert ((found.threads, found.resident) == (threads, 3)) == (3 * threads <= room)
    assert found.resident * found.threads <= room
    assert mapped(text.format(t="f32", n=n), target=target, choices=program.candidate, M=32768).host == program.host


def test_rows_whose_threads_need_more_registers_have_more_blocks() -> None:
    """Two arrays, elements of f64, and many vectors beside spilled in the 32 registers of such a thread."""
    two = ROOT.replace("G: {t}", "Z: {t}[M, {n}], G: {t}", 1).replace("f32(X[i, k])", "f32(X[i, k] + Z[i, k])", 1)
    two = two.replace("f32(X[i, j])", "f32(X[i, j] + Z[i, j])")
    many = ROOT.replace("G: {t}[{n}]", "G: {t}[{n}], H: {t}[{n}], I: {t}[{n}]").replace(
        "f32(G[j])", "f32(G[j]) * f32(H[j]) * f32(I[j])"
    )
    for text, dtype, n in ((two, "f32", 4608), (many, "f32", 4608), (ROOT, "f64", 2560), (ROOT, "f32", 8192)):
        (found,) = getattr(mapped(text.format(t=dtype, n=n), M=32768).candidate, "launches", {}).values()
        assert isinstance(found, Blocks) and found.resident != 3, text
