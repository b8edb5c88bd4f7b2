"""The seed's distance: its closed form, isl's exact value and the numbers beside enumeration; lanes chosen by it."""

from collections.abc import Mapping
from itertools import pairwise, product
from typing import Any

import pytest
from stages import only_launch, program, proved

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import const
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.distance import By, Lanes, distance
from texpr.polyhedral.map.objective import Objective, WeightedAccess
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Flat
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.names import Names
from texpr.polyhedral.target import parse_target
from texpr.polyhedral.walk import read_accesses

SHAPE = (32, 48)
EXTENTS = {"i": 32, "j": 48}


def lanes(*pieces: tuple[int, int], widths: Mapping[str, int] | None = None) -> Lanes:
    return Lanes.of(thread_digits(("i", "j"), pieces, Names(()), 32, widths or {}))


def access(text: str) -> WeightedAccess:
    """The only read of a kernel, of an array with rows."""
    whole = program(f"kernel f(A: f32[99, 99], C: f32[32, 48]) {{ par 32 i, 48 j {{ C[i, j] = A[{text}] }} }}")
    (read,) = read_accesses(whole.statements[0].leaf)
    return WeightedAccess(
        buffer="A", layout=row_major((const(99), const(99))), element_bytes=4, subscripts=read.subscripts
    )


def enumerated(text: str, own: Lanes) -> int:
    """The greatest sum over every place of a warp in 32 rows of 48."""
    greatest = 0
    covered = [own.covered(index) if index in own.at(0) else 1 for index in "ij"]
    for start in product(*(range(0, extent, step) for extent, step in zip(SHAPE, covered, strict=True))):
        at = []
        for lane in range(own.count):
            names = {index: first + own.at(lane).get(index, 0) for index, first in zip("ij", start, strict=True)}
            row, column = eval(f"({text.replace('/', '//')})", {"min": min, "max": max}, dict(names))
            at.append(99 * row + column)
        greatest = max(greatest, sum(abs(b - a) for a, b in pairwise(at)))
    return greatest


SPLITS = [((1, 32),), ((0, 32),), ((1, 8), (0, 4)), ((0, 2), (1, 16)), ((1, 2), (0, 8), (1, 2)), ((1, 4), (0, 2))]


@pytest.mark.parametrize("pieces", SPLITS)
@pytest.mark.parametrize("text", ["i, j", "j, i", "i, 5", "3, i + 2 * j", "31 - i, j", "i + j, 40 - j"])
def test_the_closed_form_is_what_enumeration_finds(text: str, pieces: tuple[tuple[int, int], ...]) -> None:
    own = lanes(*pieces)
    found = distance(access(text), own, {}, EXTENTS, program("kernel f(A: f32[1]) { A[0] = 1.0 }").work)
    assert found is not None and found.by is By.CLOSED_FORM and found.elements == enumerated(text, own)


@pytest.mark.parametrize("pieces", [SPLITS[0], SPLITS[3]])
@pytest.mark.parametrize("text", ["i, j / 2", "i / 3, j", "i, min(j + 1, 47)", "i, (j + 5) % 7", "j % 2, j / 2"])
def test_what_is_not_affine_is_exact_by_isl_or_said_to_be_of_numbers(
    text: str, pieces: tuple[tuple[int, int], ...]
) -> None:
    own = lanes(*pieces)
    found = distance(access(text), own, {}, EXTENTS, program("kernel f(A: f32[1]) { A[0] = 1.0 }").work)
    assert found is not None and found.by is not By.CLOSED_FORM
    wanted = enumerated(text, own)
    assert found.elements == wanted if found.by is By.ISL else found.elements > 0


def test_isl_says_some_of_them_and_a_gathered_access_has_none() -> None:
    work = program("kernel f(A: f32[1]) { A[0] = 1.0 }").work
    half = distance(access("i, j / 2"), lanes((1, 32)), {}, EXTENTS, work)
    assert half is not None and half.by is By.ISL
    text = "kernel f(A: f32[99], I: i32[48], C: f32[48]) { par 48 j { C[j] = A[I[j]] } }"
    reads = read_accesses(program(text).statements[0].leaf)
    (gathered,) = (read for read in reads if read.buffer == "A")
    layout = row_major((const(99),))
    assert distance(
        WeightedAccess(buffer="A", layout=layout, element_bytes=4, subscripts=gathered.subscripts),
        lanes((1, 32)), {}, EXTENTS, work,
    ) is None  # fmt: skip


def by_distance(text: str, **sizes: int) -> MappedProgram:
    return map_program(proved(text, **sizes), parse_target("cuda:sm_90a"), objective=Objective.DISTANCE)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("kernel f(A: f32[64, 96], C: f32[64, 96]) { par 64 i, 96 j { C[i, j] = A[i, j] } }", "i_j"),
        ("kernel f(A: f32[96, 64], C: f32[96, 64]) { par 64 i, 96 j { C[j, i] = A[j, i] + 1.0 } }", "i"),
        ("kernel f(A: f32[64, 9], B: f32[96, 9], C: f32[64, 96]) {"
         " par 64 i, 96 j { C[i, j] = sum 9 k { A[i, k] * B[j, k] } } }", "j"),
        ("kernel f(A: f32[900, 64], C: f32[64]) { par 64 i { C[i] = sum 900 k { A[k, i] } } }", "i"),
    ],
)  # fmt: skip
def test_bands_are_flat_with_the_nearest_neighbours_on_lanes(text: str, first: str) -> None:
    made = by_distance(text)
    (choice,) = made.candidate.launches.values()  # type: ignore[union-attr]  # one candidate
    assert isinstance(choice, Flat) and choice.deal[0][0] == first and not choice.widths
    assert only_launch(made).grid
    assert all("closed form" in note for note in made.report.notes) and made.report.notes


def test_no_other_split_of_a_warp_is_nearer() -> None:
    text = "kernel f(A: f32[8, 64], C: f32[64, 8]) { par 64 i, 8 j { C[i, j] = A[j, i] } }"
    made = by_distance(text)
    (choice,) = made.candidate.launches.values()  # type: ignore[union-attr]  # one candidate
    assert isinstance(choice, Flat)
    work, shapes = program(text).work, {"A": (8, 64), "C": (64, 8)}

    def of(pieces: tuple[tuple[int, int], ...]) -> int:
        own, total = lanes(*pieces), 0
        for statement in program(text).statements:
            for name, subscripts in (
                ("A", read_accesses(statement.leaf)[0].subscripts),
                ("C", statement.leaf.subscripts),
            ):  # type: ignore[union-attr]  # a bind
                layout = row_major(tuple(const(n) for n in shapes[name]))
                each = WeightedAccess(buffer=name, layout=layout, element_bytes=4, subscripts=subscripts)
                found = distance(each, own, {}, {}, work)
                total += found.elements if found else 0
        return total

    own = tuple(("ij".index(index), n) for index, n in choice.deal)
    tried = [((first, n), (1 - first, 32 // n)) for first in (0, 1) for n in (2, 4, 8, 16)]
    tried = [pieces for pieces in tried if dict(pieces)[1] <= 8]
    assert of(own) <= min(map(of, tried))


def test_an_objective_that_there_is_not_is_refused() -> None:
    speed: Any = "speed"
    with pytest.raises(TExprError, match="'time' or 'distance' or 'milp', not 'speed'") as caught:
        texpr.parse("kernel f(A: f32[1]) { A[0] = 1.0 }").only.compile("cuda:sm_90a", objective=speed)
    assert [d.code for d in caught.value.diagnostics] == ["E0607"]
