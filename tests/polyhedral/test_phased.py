"""Tiles in phase with what is written: which bands have them, and that they compute what the program says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, proved
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import map_program, problem_of
from texpr.polyhedral.map.tiles import load_lanes
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Candidate, Tiled
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
BOXES = "kernel k(A: {t}[P, Q, R], B: {t}[R, Q, P]) {{ par P i, Q j, R k {{ B[k, j, i] = A[i, j, k] }} }}"
ROWS = "kernel k(A: {t}[M, N], B: {t}[N, M]) {{ par M i, N j {{ B[j, i] = A[i, j] }} }}"
ADDED = "kernel k(A: f32[M, N], C: f32[N, M], B: f32[N, M]) { par M i, N j { B[j, i] += A[i, j] * C[j, i] } }"
SIZES = {"P": 37, "Q": 5, "R": 67}


def choice(program: MappedProgram) -> Tiled:
    assert isinstance(program.candidate, Candidate)
    (only,) = program.candidate.launches.values()
    assert isinstance(only, Tiled)
    return only


def in_phase(text: str, along: int, across: int, threads: int, **sizes: int) -> MappedProgram:
    """The program in tiles in phase, of which a block owns so many iterations."""
    program = mapped(text, **sizes)
    found = choice(program)
    beyond = 32 // 2 if "bf16" in text else 32 // 4
    tile = {found.along: along + beyond, found.across: across}
    whole = 8 if "bf16" in text else 4
    other = replace(
        found,
        tile=tile,
        threads=threads,
        resident=1,
        phased=True,
        strips=False,
        widths=dict.fromkeys(tile, whole),
        lines=found.lines or {found.along: "B[j, i]"},
    )
    assert isinstance(program.candidate, Candidate)
    (name,) = program.candidate.launches
    return map_program(proved(text, **sizes), SM90, choices=replace(program.candidate, launches={name: other}))


@pytest.mark.parametrize(
    ("text", "sizes", "phased"),
    [
        (BOXES.format(t="bf16"), SIZES, True),  # the place of a row takes a division
        (BOXES.format(t="f32"), SIZES, False),  # whose shift is of whole registers
        (BOXES.format(t="bf16"), SIZES | {"P": 32, "Q": 6}, False),  # rows begin where accesses do
        (ROWS.format(t="bf16"), {"M": 2001, "N": 1003}, False),
    ],
)
def test_narrow_elements_of_rows_at_a_quotient_are_in_phase(text: str, sizes: dict[str, int], phased: bool) -> None:
    assert choice(mapped(text, **sizes)).phased == phased


@pytest.mark.parametrize(
    ("sizes", "along", "threads", "resident"),
    [
        ({"P": 509, "Q": 521, "R": 503}, 144, 512, 2),
        ({"P": 257, "Q": 307, "R": 331}, 80, 256, 4),  # whose last blocks would end late
    ],
)
def test_few_blocks_have_shorter_tiles(sizes: dict[str, int], along: int, threads: int, resident: int) -> None:
    found = choice(mapped(BOXES.format(t="bf16"), **sizes))
    assert (found.tile[found.along], found.threads, found.resident) == (along, threads, resident)


def test_a_row_of_a_tile_is_brought_in_whole_lines_of_memory() -> None:
    text, sizes = BOXES.format(t="bf16"), {"P": 509, "Q": 521, "R": 503}
    program = mapped(text, **sizes)
    found, problem = choice(program), problem_of(proved(text, **sizes), program)
    (region,) = problem.regions()
    nest, _ = region.nest
    assert load_lanes(problem, nest, found) == {found.across: 16, found.along: 2}


@pytest.mark.parametrize(
    ("text", "tile", "threads", "sizes"),
    [
        (BOXES.format(t="bf16"), (128, 128), 512, SIZES),
        (BOXES.format(t="bf16"), (32, 64), 64, SIZES),
        (BOXES.format(t="f32"), (64, 32), 128, SIZES),
        (ROWS.format(t="bf16"), (64, 32), 128, {"M": 131, "N": 77}),
        (ROWS.format(t="f32"), (32, 32), 256, {"M": 77, "N": 65}),
        (ROWS.format(t="f32"), (32, 32), 64, {"M": 33, "N": 131}),
        (ADDED, (32, 32), 64, {"M": 77, "N": 65}),
    ],
)
def test_tiles_in_phase_compute_what_the_interpreter_computes(
    text: str, tile: tuple[int, int], threads: int, sizes: dict[str, int]
) -> None:
    program = in_phase(text, *tile, threads, **sizes)
    arrays = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, arrays).outputs["B"]
    np.testing.assert_array_equal(simulate(program, arrays)["B"], expected)
    assert all(
        copy.access is not Access.FUNNEL or copy.source.buffer == "C"
        for copy in of_kind(only_launch(program).body, Copy)
    )
    emitted = Emitted(program)
    assert emitted.run(HostModule(emitted.source, werror=True), arrays) is None
    np.testing.assert_array_equal(arrays["B"], expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tile": {"i": 64, "j": 32}}, "what a block has of a tile along is no power of two"),
        ({"tile": {"i": 80, "j": 48}}, "`tile` gives i and j powers of two"),
        ({"threads": 96}, "96 threads bring no rows of 4 chunks|a tile has no equal shares for 96 threads"),
        ({"lines": {}}, "`phased`: runs are counted from no sectors"),
        (
            {"tile": {"i": 144, "j": 256}, "staged": ("A[i, j]",), "threads": 64, "resident": 33},
            "no room for 33 blocks",
        ),
    ],
)
def test_a_candidate_in_phase_that_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    text, sizes = ROWS.format(t="bf16"), {"M": 131, "N": 77}
    program = in_phase(text, 64, 32, 128, **sizes)
    (name,) = program.candidate.launches if isinstance(program.candidate, Candidate) else ()
    other = Candidate(launches={name: replace(choice(program), **changes)})
    with pytest.raises(TExprError, match=said):
        map_program(proved(text, **sizes), SM90, choices=other)


def test_reads_of_other_types_are_not_in_phase() -> None:
    text = "kernel k(A: bf16[M, N], B: f32[N, M]) { par M i, N j { B[j, i] = f32(A[i, j]) } }"
    with pytest.raises(TExprError, match="is not read in chunks of as many elements as are written"):
        in_phase(text, 64, 32, 128, M=131, N=77)
