"""Certificates of distances: made by an exact linear program, believed only by what shares nothing with it."""

import random
from fractions import Fraction
from itertools import pairwise

import pytest
from mutated_certificates import apart, mapping, run

from texpr.polyhedral.figures.certify import certificate
from texpr.polyhedral.figures.measure import lane_digits
from texpr.polyhedral.figures.value import LaneDigit
from texpr.polyhedral.verify.stage import Verdict, verify

RADICES = [(32,), (8, 4), (2, 2, 2, 2, 2), (4, 8), (16, 2), (3, 5), (1,)]


@pytest.mark.parametrize("radices", RADICES, ids=str)
def test_the_linear_program_gives_the_sum_over_the_lanes(radices: tuple[int, ...]) -> None:
    draw = random.Random(sum(radices))
    for _ in range(6):
        digits, stride = list[LaneDigit](), 1
        for radix in radices:
            digits.append(LaneDigit(stride=stride, radix=radix, weight=draw.choice([0, 1, -3, 7, 1024, 99991])))
            stride *= radix
        at = [sum(d.weight * (lane // d.stride % d.radix) for d in digits) for lane in range(stride)]
        assert certificate(digits, stride).distance == sum(abs(b - a) for a, b in pairwise(at))


def test_multipliers_are_exact_fractions_not_negative_on_inequalities() -> None:
    proof = certificate([LaneDigit(stride=1, radix=8, weight=1), LaneDigit(stride=8, radix=4, weight=1000)], 32)
    for step in proof.steps:
        for side in (step.above, step.below):
            assert all(isinstance(value, Fraction) for value in side)
            assert all(value >= 0 for value, row in zip(side, step.rows, strict=True) if not row.exact)


def test_digits_that_overlap_are_added_and_those_that_do_not_nest_have_none() -> None:
    both = lane_digits([(1, 8, 5), (4, 8, 100)], 32)
    assert both is not None and [(d.stride, d.radix, d.weight) for d in both] == [(1, 4, 5), (4, 2, 120), (8, 4, 200)]
    assert lane_digits([(1, 3, 1)], 32) is None
    assert lane_digits([], 32) == (LaneDigit(stride=1, radix=32, weight=0),)


@pytest.mark.parametrize("name", ["matmul_seed", "softmax", "scatter_max", "host_condition"])
def test_every_affine_access_has_a_certificate_and_every_certificate_holds(name: str) -> None:
    data = mapping(name)
    found = verify(data)
    assert not [f for f in found if f.verdict is Verdict.REFUTED]
    proved = sum(f.about == "d" and f.verdict is Verdict.PROVED for f in found)
    assert proved == sum(entry["certificate"] is not None for entry in data["accesses"]) > 0


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda-host:sm_90a", "cpu"])
def test_other_targets_are_verified_too(target: str) -> None:
    found = verify(mapping("transpose_swizzled", target))
    assert not [f for f in found if f.verdict is Verdict.REFUTED]
    assert any(f.verdict is Verdict.PROVED and f.about == "iterations" for f in found)


def test_d_is_what_the_lanes_of_a_sampled_warp_say() -> None:
    data = mapping("permute_021")
    checked = [e for e in data["accesses"] if e["certificate"] and apart(e) is not None]
    assert checked and all(e["d"] == apart(e) for e in checked)


def test_a_certificate_with_one_field_changed_is_refuted_or_true() -> None:
    refuted, true = run(400, ("matmul_seed", "transpose"))
    assert refuted > 300 and refuted + true == 400
