"""Lanes by an integer program: as near to one another as enumeration finds, and no other digits than it may take."""

import random
from collections.abc import Sequence

import pytest
from stages import proved

from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.lanes_program import Coefficients, least_runs
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.target import parse_target


def enumerated_runs(accesses: Coefficients, bits: Sequence[int], digits: int) -> int:
    """The least sum over all ways to take dimensions one after another."""
    best: list[int] = []

    def take(left: int, weights: list[list[int]], free: Sequence[int]) -> None:
        if not left:
            best.append(min([summed(accesses, weights), *best[-1:]]))
            return
        for dim in free:
            others = [other for other in free if other != dim]
            for count in range(1, min(left, bits[dim]) + 1):
                own = [[moved[dim] << b for _, moved in accesses] for b in range(count)]
                take(left - count, weights + own, others)

    take(digits, [], [dim for dim, most in enumerate(bits) if most])
    return best[-1] if best else 0


def summed(accesses: Coefficients, weights: Sequence[Sequence[int]]) -> int:
    """The distances of all accesses, by what each digit moves them."""
    total = 0
    for number, (weight, _) in enumerate(accesses):
        back = 0
        for m, moved in enumerate(weights):
            total += weight * (1 << (len(weights) - 1 - m)) * abs(moved[number] - back)
            back += moved[number]
    return total


def runs_summed(accesses: Coefficients, runs: Sequence[tuple[int, int]]) -> int:
    bits = [(dim, bit) for dim, lanes in runs for bit in range(lanes.bit_length() - 1)]
    return summed(accesses, [[moved[dim] << bit for _, moved in accesses] for dim, bit in bits])


KNOWN: dict[str, tuple[Coefficients, list[int], int]] = {
    "matmul": ([(1024, [1024, 0]), (1024, [0, 1]), (1, [1024, 1])], [10, 10], 31 * 1024 + 31),
    "transpose": ([(1, [1024, 1]), (1, [1, 1024])], [10, 10], 31775),
    "conv2d": ([(9, [200704, 0, 56, 1]), (9, [0, 576, 0, 0]), (1, [186624, 2916, 54, 1])], [3, 6, 5, 5], 310),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_program_and_enumeration_agree_on_known_bands(name: str) -> None:
    accesses, bits, d = KNOWN[name]
    assert runs_summed(accesses, least_runs(accesses, bits, 5)) == enumerated_runs(accesses, bits, 5) == d


def test_they_agree_on_random_bands() -> None:
    draw = random.Random(7)
    for _ in range(12):
        rank = draw.randint(1, 3)
        accesses = [
            (draw.choice([1, 4, 100]), [draw.choice([0, 1, -1, 2, 37, 128]) for _ in range(rank)])
            for _ in range(draw.randint(1, 2))
        ]
        bits = [draw.randint(0, 4) for _ in range(rank)]
        digits = min(5, sum(bits))
        found = least_runs(accesses, bits, digits)
        assert all(lanes <= 1 << bits[dim] for dim, lanes in found)
        assert runs_summed(accesses, found) == enumerated_runs(accesses, bits, digits)


PROGRAMS = {
    "transpose": "kernel k(A: f32[99, 77], B: f32[77, 99]) { par 99 i, 77 j { B[j, i] = A[i, j] } }",
    "rows": "kernel k(A: f32[64, 96], B: f32[64, 96]) { par 64 i, 96 j { B[i, j] = A[i, j] + A[i, 0] } }",
    "short": "kernel k(A: f32[512, 4], B: f32[512, 4]) { par 4 j, 512 i { B[i, j] = 2.0 * A[i, j] } }",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mapping_by_the_program_has_the_distance_of_one_by_enumeration(name: str) -> None:
    notes = []
    for objective in (Objective.DISTANCE, Objective.MILP):
        mapped = map_program(proved(PROGRAMS[name]), parse_target("cuda:sm_90a"), objective=objective)
        candidate = mapped.candidate
        assert isinstance(candidate, Candidate) and all(isinstance(c, Flat) for c in candidate.launches.values())
        notes.append(sum(int(note.split("d = ")[1].split()[0]) for note in mapped.report.notes if "d = " in note))
    assert notes[0] == notes[1] > 0


def test_an_address_that_is_not_affine_is_refused() -> None:
    text = "kernel k(A: f32[99, 77], B: f32[99, 77]) { par 99 i, 77 j { B[i, j] = A[i, (i + j) % 7] } }"
    with pytest.raises(TExprError, match="whose address is not affine"):
        map_program(proved(text), parse_target("cuda:sm_90a"), objective=Objective.MILP)
