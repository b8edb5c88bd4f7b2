"""Strided reads: what neighbouring iterations read in short loops comes by wide accesses, all of it before them."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, proved

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

MEANS = """kernel k(X: {t}[B, {s} * H, {s} * W], Y: {t}[B, H, W]) {{
    par B b, H h, W w {{
        new s: f32
        s = sum {s} y, {s} x {{ f32(X[b, {s} * h + y, {s} * w + x]) }}
        Y[b, h, w] = s / 4.0
    }}
}}"""
MAXIMA = """kernel k(X: {t}[B, {s} * H, {s} * W], Y: {t}[B, H, W]) {{
    par B b, H h, W w {{ Y[b, h, w] = maximum {s} y, {s} x {{ X[b, {s} * h + y, {s} * w + x] }} }}
}}"""
ROWS = """kernel k(X: {t}[M + 2, N], K: f32[3], Z: {t}[M, N], Y: {t}[M, N]) {{
    par M i, N j {{
        new s: f32
        s = f32(Z[i, j])
        seq 3 y {{ s += f32(X[i + y, j]) * K[y] - f32(Z[i, j]) }}
        Y[i, j] = s
    }}
}}"""
PAIRS = """kernel k(X: {t}[M, 2 * N], Z: {t}[M, 3 * N], Y: {t}[M, N]) {{
    par M i, N j {{
        new s: f32
        s = 0.0
        seq 2 x {{ s += f32(X[i, 2 * j + x]) }}
        seq 3 x {{ s -= f32(Z[i, 3 * j + x]) }}
        Y[i, j] = s
    }}
}}"""
FOURS = """kernel k(X: {t}[M, N, 4], Z: {t}[N, 2, 1], Y: {t}[M, N]) {{
    par M i, N j {{
        new s: f32
        s = sum 4 x {{ f32(X[i, j, x]) }}
        seq 2 x {{ s -= f32(Z[j, x, 0]) }}
        Y[i, j] = s
    }}
}}"""
ONES = """kernel k(X: {t}[M, N, 1], Y: {t}[M, N]) {{
    par M i, N j {{ Y[i, j] = sum 1 x {{ f32(X[i, j, x]) }} }}
}}"""
SUMS = """kernel k(inout Y: f32[M, N], X: f32[M, 2 * N]) {
    par M i, N j { seq 2 x { Y[i, j] += X[i, 2 * j + x] } }
}"""
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
POOLS = {"means": MEANS, "maxima": MAXIMA}


def flat(program: MappedProgram) -> Flat:
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    return found


def with_width(text: str, sizes: dict[str, int], width: int, index: str | None = None) -> MappedProgram:
    """The program whose threads take so many iterations of an index, the first one of the grid unless it is said."""
    first = mapped(text, **sizes)
    assert isinstance(first.candidate, Candidate)
    (name,) = first.candidate.launches
    index = index or flat(first).grid[0]
    choice = replace(flat(first), widths={index: width}, lines={}, turns={}, patch={})
    return mapped(text, choices=replace(first.candidate, launches={name: choice}), **sizes)


def arguments(program: MappedProgram) -> dict[str, Any]:
    random = np.random.default_rng(5)
    return {
        b.name: random.integers(-9, 10, tuple(constant_value(n) or 0 for n in b.shape)).astype(TYPES[str(b.dtype)])
        for b in program.kernel.params
    }


def difference(program: MappedProgram) -> float:
    values = arguments(program)
    expected = interpret(program.kernel, values).outputs
    found = simulate(program, values)
    return max(
        float(np.abs(found[name].astype(float) - expected[name].astype(float)).max(initial=0.0)) for name in expected
    )


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(
    ("dtype", "step", "width", "threads"),
    [("f32", 2, 2, 512), ("bf16", 2, 4, 512), ("bf16", 4, 2, 256)],
)
def test_a_thread_takes_as_many_windows_as_fill_its_accesses(
    pool: str, dtype: str, step: int, width: int, threads: int
) -> None:
    program = mapped(POOLS[pool].format(t=dtype, s=step), B=4096, H=64, W=64)
    assert (list(flat(program).widths.values()), flat(program).threads) == ([width], threads)
    assert not flat(program).patch
    few = mapped(POOLS[pool].format(t=dtype, s=step), B=2, H=64, W=64)
    assert not flat(few).widths


def test_rows_of_free_sizes_are_taken_so_where_the_program_says_what_divides_them() -> None:
    text = MEANS.format(t="f32", s=2)
    assert not flat(mapped(text)).widths
    assert flat(mapped(text.replace(") {", ") where W % 2 == 0 {", 1))).widths == {"w": 2}


@pytest.mark.parametrize("step", [3, 4])
def test_windows_that_fill_many_registers_are_read_one_by_one(step: int) -> None:
    assert not flat(mapped(MEANS.format(t="f32", s=step), B=4096, H=64, W=64)).widths


def test_rows_are_loaded_before_all_iterations() -> None:
    text = show(mapped(MEANS.format(t="f32", s=2), B=4096, H=64, W=64))
    load = "copy X_row[y_row, w_element] = from X[2 * b_h + y_row, 2 * w_first + w_element] for w_element < 4"
    assert load in text
    assert text.index(load) < text.index("for w_vector < 2")
    assert "s += from X_row[y, 2 * w_vector + x]" in text


@pytest.mark.parametrize("w", [63, 65, 3])
def test_rows_at_no_known_multiple_are_not_taken_so(w: int) -> None:
    program = mapped(MEANS.format(t="f32", s=2), B=4096, H=64, W=w)
    assert not flat(program).widths
    with pytest.raises(TExprError, match="no access is wide where a thread takes 2 iterations of w"):
        with_width(MEANS.format(t="f32", s=2), {"B": 4096, "H": 64, "W": w}, 2, "w")


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("step", "width"), [(2, 2), (2, 4), (2, 8), (3, 4), (4, 2)])
@pytest.mark.parametrize(("b", "h", "w"), [(2, 3, 8), (1, 1, 40), (0, 4, 8), (3, 2, 16)])
def test_every_window_is_taken_once(pool: str, dtype: str, step: int, width: int, b: int, h: int, w: int) -> None:
    text = POOLS[pool].format(t=dtype, s=step)
    assert difference(with_width(text, {"B": b, "H": h, "W": w}, width)) == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("text", "width"), [(ROWS, 4), (ROWS, 8), (PAIRS, 4), (PAIRS, 8)])
@pytest.mark.parametrize(("m", "n"), [(3, 8), (1, 64), (5, 24)])
def test_all_reads_of_an_iteration_are_wide(dtype: str, text: str, width: int, m: int, n: int) -> None:
    program = with_width(text.format(t=dtype), {"M": m, "N": n}, width)
    assert "Z_row[" in show(program) or "Z_run[" in show(program)
    assert difference(program) == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("width", [2, 4])
def test_rows_of_iterations_that_follow_one_another_are_one(dtype: str, width: int) -> None:
    """A row of X is four elements of one subscript, and behind them lie those of the next iteration."""
    program = with_width(FOURS.format(t=dtype), {"M": 3, "N": 8}, width, "j")
    assert "copy X_row[" in show(program)
    assert (" / 4, " in show(program)) == (dtype == "bf16")
    assert difference(program) == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_loop_of_one_iteration_is_no_row(dtype: str) -> None:
    program = with_width(
        ONES.format(t=dtype).replace("= sum", f"= {dtype}(sum").replace("} }", "}) }", 1), {"M": 3, "N": 8}, 4
    )
    assert "X_row" in show(program)
    assert difference(program) == 0


def test_what_a_loop_adds_to_is_held_for_all_iterations() -> None:
    program = with_width(SUMS, {"M": 3, "N": 8}, 4)
    assert "X_row" in show(program)
    assert "Y_run" in show(program)
    assert difference(program) == 0


@pytest.mark.parametrize(
    "body",
    [
        "seq 2 x { X[i, 2 * j + x] = X[i, 2 * j + x] + 1.0 }",  # what it reads it writes
        "Y[i, j] = sum 2 x { select(R[i] > 0, X[i, 2 * j + x], 0.0) }",  # not surely read
        "Y[i, j] = sum 3 x { X[i, 2 * j + x / 2] }",  # no neighbours, one after the other
        "Y[i, j] = sum 2 x { X[i, 2 * (N - 1 - j) + x] }",  # the other way round
        "Y[i, j] = sum 2 x { X[i, N * x + j % 2 + 2 * (j / 2)] }",  # by quotients
        "Y[i, j] = sum 2 x { X[R[i] % M, 2 * j + x] }",  # of rows that data tells
        "Y[i, j] = sum 2 x, 17 y { X[i, 2 * j + x] }",  # too many iterations to be written out
        "if R[i] > 0 { Y[i, j] = sum 2 x { X[i, 2 * j + x] } }",  # not surely run
        "seq 2 x #unroll(2) { Y[i, j] = X[i, 2 * j + x] }",  # as the author says
    ],
)
def test_reads_that_are_not_strided_are_left_where_they_are(body: str) -> None:
    assert not rows_of(body)


def test_the_same_kernel_has_strided_reads_where_they_are_some() -> None:
    assert len(rows_of("Y[i, j] = sum 2 x { X[i, 2 * j + x] }")) == 2


def rows_of(body: str) -> list[str]:
    """What is printed of a kernel with that body whose threads take 2 and 4 iterations, where it has strided reads."""
    text = f"kernel k(inout X: f32[M, 2 * N], inout Y: f32[M, N], R: i32[M]) {{ par M i, N j {{ {body} }} }}"
    index, found = flat(mapped(text, M=8, N=64)).grid[0], list[str]()
    for width in (2, 4):
        with suppress(TExprError):  # nothing is wide then
            found.append(show(with_width(text, {"M": 8, "N": 64}, width, index)))
    return [one for one in found if "X_row" in one]


def test_windows_that_overlap_are_read_one_by_one() -> None:
    text = "kernel k(X: f32[M, 2 * N + 2], Y: f32[M, N]) { par M i, N j { Y[i, j] = sum 4 x { X[i, 2 * j + x] } } }"
    assert "X_row" not in show(mapped(text, M=4096, N=4096))


def test_the_distance_of_lanes_asks_for_none() -> None:
    program = map_program(
        proved(MEANS.format(t="f32", s=2), B=4096, H=64, W=64),
        parse_target("cuda:sm_90a"),
        objective=Objective.DISTANCE,
    )
    assert not flat(program).widths


def test_the_author_says_how_many() -> None:
    text = MEANS.format(t="f32", s=2).replace("W w", "W w #vector(4)")
    assert flat(mapped(text, B=2, H=3, W=64)).widths == {"w": 4}
    with pytest.raises(TExprError, match="vector"):
        mapped(text, B=2, H=3, W=63)


@pytest.mark.parametrize("count", [32, 64])
def test_more_iterations_than_are_mapped_are_refused(count: int) -> None:
    text = PAIRS.format(t="f32").replace("N j", f"N j #vector({count})")
    with pytest.raises(TExprError, match="nor read so in short loops"):
        mapped(text, M=4, N=64)


def test_iterations_counted_from_a_line_have_no_strided_reads() -> None:
    text = SUMS.replace("seq", "Y[i, j] = 0.0; seq")
    first = mapped(text, M=3, N=48)
    assert isinstance(first.candidate, Candidate)
    choice = replace(flat(first), widths={"i_j": 4}, lines={"i_j": "Y[i_j]"}, turns={}, patch={})
    with pytest.raises(TExprError, match="no access is wide where a thread takes 4 iterations of i_j"):
        mapped(text, choices=replace(first.candidate, launches={"k_0": choice}), M=3, N=48)


@pytest.mark.gxx
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_text_is_right_on_the_cpu(dtype: str) -> None:
    for text, width in ((MEANS, 4), (MAXIMA, 8), (ROWS, 8), (PAIRS, 4)):
        sizes = {"B": 2, "H": 3, "W": 24} if "B" in text else {"M": 3, "N": 24}
        program = with_width(text.format(t=dtype, s=2), sizes, width)
        values = arguments(program)
        expected = interpret(program.kernel, values).outputs["Y"]
        emitted = Emitted(program)
        held = {name: value.copy() for name, value in values.items()}
        assert emitted.run(HostModule(emitted.source, werror=True), held) is None
        np.testing.assert_array_equal(held["Y"], expected)
