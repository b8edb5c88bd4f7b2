"""Strips: tiles of whole rows of what is written, which blocks write as one run each."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, proved, with_launch, without_barriers
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import IndexOp, IndexVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import add, combine, const, multiply
from texpr.grammar.index.linear import linear, rejoined
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.layout.banks import bank_use
from texpr.polyhedral.map.stage import map_program, problem_of
from texpr.polyhedral.map.tiles import load_lanes, load_units, staged, tile_lanes
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Candidate, Tiled
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
ROWS = "kernel k(A: {t}[M, N], B: {t}[N, M]) {{ par M i, N j {{ B[j, i] = {v} }} }}"
TWO = "kernel k(A: {t}[M, N], C: {t}[M, N], B: {t}[N, M]) {{ par M i, N j {{ B[j, i] = A[i, j] - 2.0 * C[i, j] }} }}"
IMAGES = """kernel k(A: {t}[X, C, H, W], B: {t}[X, H, W, C]) {{
    par X b, C c, H h, W w {{ B[b, h, w, c] = A[b, c, h, w] }}
}}"""
BOTH = "kernel k(A: f32[M, N], B: f32[N, M]) { par M i, N j { B[j, i] += A[i, j] } }"


def rows(dtype: str, value: str = "A[i, j]") -> str:
    return ROWS.format(t=dtype, v=value)


def choice(program: MappedProgram) -> Tiled:
    assert isinstance(program.candidate, Candidate)
    (only,) = program.candidate.launches.values()
    assert isinstance(only, Tiled)
    return only


@pytest.mark.parametrize(
    ("text", "sizes", "strips"),
    [
        (rows("bf16"), {"M": 257, "N": 1003}, True),
        (rows("f32"), {"M": 129, "N": 1003}, True),
        (rows("f32"), {"M": 257, "N": 1003}, False),  # few blocks, and tiles of wide elements are seldom cut
        (rows("f32"), {"M": 257, "N": 1000003}, True),
        (rows("f32", "2.0 * A[i, j]"), {"M": 33, "N": 100}, True),
        (rows("bf16"), {"M": 258, "N": 1000}, True),  # accesses of 4 bytes else
        (TWO.format(t="bf16"), {"M": 35, "N": 77}, True),
        (IMAGES.format(t="bf16"), {"X": 3, "C": 37, "H": 7, "W": 9}, True),
        (rows("bf16"), {"M": 260, "N": 1000}, False),  # lanes would bring pieces of one sector
        (rows("f32"), {"M": 256, "N": 1003}, False),  # rows begin where accesses do
        (rows("bf16"), {"M": 2001, "N": 1003}, False),  # no room for a strip
        (rows("f32", "A[i, j] + f32(i)"), {"M": 33, "N": 100}, False),  # tells of its place
        (BOTH, {"M": 33, "N": 100}, False),
        ("kernel k(A: u8[M, N], B: f32[N, M]) { par M i, N j { B[j, i] = f32(A[i, j]) } }", {"M": 33, "N": 99}, False),
        (
            "kernel k(A: f32[M, N] #align(4), B: f32[N, M]) { par M i, N j { B[j, i] = A[i, j] } }",
            {"M": 33, "N": 99},
            False,
        ),
        (
            "kernel k(A: f32[M, N], B: f32[N, M, 2]) { par M i, N j { B[j, i, 0] = A[i, j] } }",
            {"M": 33, "N": 99},
            False,
        ),
        (rows("f32"), {"N": 99}, False),  # rows of a length that a call decides
    ],
)
def test_ragged_rows_one_behind_the_other_are_written_in_strips(text: str, sizes: dict[str, int], strips: bool) -> None:
    assert choice(mapped(text, **sizes)).strips == strips


SAME = [
    *((rows(t), {"M": m, "N": n}) for t in ("bf16", "f32") for m, n in ((17, 131), (33, 64), (131, 121))),
    (rows("f64"), {"M": 17, "N": 131}),
    (rows("bf16"), {"M": 258, "N": 130}),
    *((TWO.format(t=t), {"M": 35, "N": 77}) for t in ("bf16", "f32")),
    (IMAGES.format(t="bf16"), {"X": 3, "C": 37, "H": 7, "W": 9}),
    (IMAGES.format(t="f32"), {"X": 2, "C": 19, "H": 17, "W": 5}),
]


@pytest.mark.parametrize(("text", "sizes"), SAME)
def test_strips_compute_what_the_interpreter_computes(text: str, sizes: dict[str, int]) -> None:
    program = mapped(text, **sizes)
    assert choice(program).strips
    arrays = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, arrays).outputs["B"]
    np.testing.assert_array_equal(simulate(program, arrays)["B"], expected)


@pytest.mark.parametrize("count", [0, 1, 2, 119, 120, 121, 127])
def test_strips_of_any_number_of_rows_end_with_them(count: int) -> None:
    program = mapped(rows("bf16"), M=19)
    assert choice(program).strips
    arrays = arguments(program.kernel, {"M": 19, "N": count})
    expected = interpret(program.kernel, arrays).outputs["B"]
    np.testing.assert_array_equal(simulate(program, arrays)["B"], expected)


def test_lanes_that_have_not_all_chunks_of_a_row_take_them_in_turns() -> None:
    """Each turn has registers of its own, and none reads beyond the rows that the tile has."""
    few = Tiled(
        threads=32, along="i", across="j", tile={"i": 131, "j": 64}, staged=("A[i, j]",), grid=("j", "i"),
        widths={"i": 4, "j": 4}, lines={"i": "B[j, i]"}, phased=True, strips=True, resident=2,
    )  # fmt: skip
    program = mapped(rows("f32"), choices=Candidate(launches={"k_0": few}), M=131, N=129)
    arrays = arguments(program.kernel, {"M": 131, "N": 129})
    np.testing.assert_array_equal(simulate(program, arrays)["B"], arrays["A"].T)


def test_strips_run_on_the_cpu_as_emitted() -> None:
    kept: list[tuple[Emitted, dict[str, int], MappedProgram]] = []
    for number, (text, sizes) in enumerate(SAME):
        program = mapped(text.replace("kernel k", f"kernel k{number}", 1), **sizes)
        kept.append((Emitted(program), sizes, program))
    module = HostModule("\n".join(emitted.source for emitted, *_ in kept), werror=True)
    for emitted, sizes, program in kept:
        arrays = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, arrays).outputs["B"]
        assert emitted.run(module, arrays) is None
        np.testing.assert_array_equal(arrays["B"], expected)


def test_a_strip_is_written_as_one_run_in_whole_chunks() -> None:
    program = mapped(rows("bf16"), M=257, N=1003)
    text = Emitted(program).source
    assert "tx::store_apart<257>(A_tile, j_place, tx::take<8>(A_rows, 8 * i_serial" in text
    assert "tx::store_wanted(B, 257 * j_tile + j_i_first, " in text
    assert "/ 257" not in text
    assert "% 257" not in text
    assert all(copy.access is not Access.FUNNEL for copy in of_kind(only_launch(program).body, Copy))


@pytest.mark.parametrize(("dtype", "length"), [("bf16", 33), ("bf16", 258), ("f32", 131), ("f32", 258), ("f64", 17)])
def test_lanes_put_chunks_into_other_banks_of_a_strip(dtype: str, length: int) -> None:
    text, sizes = rows(dtype), {"M": length, "N": 1003}
    program = mapped(text, **sizes)
    found = choice(program)
    problem = problem_of(proved(text, **sizes), program)
    (region,) = problem.regions()
    nest, _ = region.nest
    (one,) = staged(problem, nest, found)
    lanes = load_lanes(problem, nest, found)
    at = tile_lanes(problem, nest, load_units(found, one), found.threads, {"j": one.across}, lanes)
    layout = program.buffers["A_tile"].layout
    assert bank_use(layout, one.wide.dtype.size_bytes, [at["j"] * length + at["i"]], SM90, width=1).degree == 1


def test_without_its_barrier_a_strip_is_read_before_it_is_written() -> None:
    program = mapped(rows("f32"), M=33, N=64)
    wrong = with_launch(program, without_barriers(only_launch(program)))
    with pytest.raises(TExprError, match="A_tile"):
        simulate(wrong, arguments(program.kernel, {"M": 33, "N": 64}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tile": {"i": 32, "j": 64}}, "`strips`: a tile has not all iterations of i"),
        ({"lines": {}}, "`phased`: runs are counted from no sectors"),
        ({"phased": False}, "`strips`: its tiles are not in phase"),
        ({"threads": 8}, "a block cannot have 8 threads|threads bring no rows of 16 chunks"),
        ({"tile": {"i": 33, "j": 48}}, "`tile` gives i and j powers of two"),
        ({"resident": 99}, "`resident`: a multiprocessor has no room for 99 blocks"),
    ],
)
def test_a_candidate_with_strips_that_do_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    text, sizes = rows("f32"), {"M": 33, "N": 100}
    program = mapped(text, **sizes)
    assert isinstance(program.candidate, Candidate)
    (name,) = program.candidate.launches
    other = replace(program.candidate, launches={name: replace(choice(program), **changes)})
    with pytest.raises(TExprError, match=said):
        map_program(proved(text, **sizes), SM90, choices=other)


def test_a_quotient_and_a_remainder_that_belong_together_are_one() -> None:
    x, y = IndexVar(name="x"), IndexVar(name="y")
    whole = add(x, const(3))
    both = add(
        multiply(const(10), combine(IndexOp.DIV, whole, const(5))),
        multiply(const(2), combine(IndexOp.MOD, whole, const(5))),
    )
    assert rejoined(linear(add(both, y))) == linear(add(multiply(const(2), whole), y))
    apart = add(multiply(const(9), combine(IndexOp.DIV, x, const(5))), combine(IndexOp.MOD, x, const(5)))
    assert rejoined(linear(apart)) == linear(apart)
