"""Products of f8 by single warps, from sm_89 on: in portions of a step, which are added in f32."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_portions import AROUND, KINDS, LARGE, arguments, chosen, text

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import LARGEST_PORTION
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.walks import launches, operators
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

ADA = "cuda:sm_89"


def small(candidate: Candidate, **how: Any) -> Candidate:
    """The same in tiles for small sizes."""
    tiles = {"tile": {"i": 64, "j": 64}, "each": {"i": 32, "j": 32}, "depth": 64, "stages": 2, "resident": 1, **how}
    launches = {n: replace(c, **tiles) if isinstance(c, Ringed) else c for n, c in candidate.launches.items()}
    return replace(candidate, launches=launches)


def mapped(program: str, candidate: Candidate, sizes: dict[str, int]) -> MappedProgram:
    made = texpr.parse(program).only.compile(ADA, stop_after="map", mapping=candidate, sizes=sizes)
    return made.mapping.program


def right(program: str, candidate: Candidate, sizes: dict[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is given and what comes of it, within the bounds of the float64 interpreter, nearer than a product is."""
    found = mapped(program, candidate, sizes)
    values = arguments(found)
    given = {name: value.copy() for name, value in values.items()}
    reference = texpr.parse(program).only.interpret(**given, float64=True)
    got = simulate(found, values)
    for name, bound in reference.bounds.items():
        off = np.abs(got[name].astype(float) - reference.outputs[name])
        assert (off <= 4 * bound).all(), name
        near = 2.0 ** -(2 if "8" in str(got[name].dtype) or "s: f8" in program else 7)
        assert (off <= near * np.abs(reference.outputs[name]).max()).all(), name
    return values, got


@pytest.mark.parametrize("target", ["sm_89", "sm_90", "sm_100a", "sm_120a"])
def test_warps_multiply_f8_from_sm_89_on(target: str) -> None:
    (choice,) = chosen(text(), f"cuda:{target}").launches.values()
    assert isinstance(choice, Ringed) and choice.depth <= LARGEST_PORTION


@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
def test_others_have_no_such_product(target: str) -> None:
    assert not any(isinstance(c, Ringed) for c in chosen(text(), f"cuda:{target}").launches.values())


def test_factors_that_lie_along_their_side_are_turned() -> None:
    program = text("f8e4m3", "f8e5m2").replace("B: f8e5m2[N, K]", "B: f8e5m2[K, N]").replace("B[j, k]", "B[k, j]")
    assert chosen(program, ADA).laid == {"B"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("a", "b"), KINDS)
def test_ragged_products_of_both_kinds_are_right_in_the_simulator(a: str, b: str) -> None:
    program = text(a, b)
    right(program, small(chosen(program, ADA), depth=64 if a == b else 128), {"M": 18, "N": 36, "K": 208})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", ["added", "held in f8", "scaled to f8", "two"])
def test_what_is_around_such_sums_is_done_with_them(what: str) -> None:
    program = text("f8e4m3", "f8e4m3", *AROUND[what])
    right(program, small(chosen(program, ADA)), {"M": 20, "N": 48, "K": 144})


@pytest.mark.gxx
def test_the_text_is_right_on_the_cpu_bit_by_bit() -> None:
    program, sizes = text("f8e4m3", "f8e5m2"), {"M": 18, "N": 40, "K": 208}
    candidate = small(chosen(program, ADA))
    values, got = right(program, candidate, sizes)
    texpr.parse(program).only.compile("cuda-host:sm_89", mapping=candidate, sizes=sizes)(**values)
    np.testing.assert_array_equal(values["C"], got["C"])


def test_a_portion_of_one_step_is_all_that_is_added_to() -> None:
    found = mapped(text(), small(chosen(text(), ADA), depth=128), {"M": 64, "N": 64, "K": 512})
    nodes = [node for launch in launches(found.host) for node in operators(launch.body)]
    products = [node for node in nodes if isinstance(node, Contract)]
    sums = {own.c.buffer for own in products}
    assert len(sums) == 1 and sums.isdisjoint({"C_sums"})
    assert max(constant_value(own.over[2][1]) or 0 for own in products) * 4 == LARGEST_PORTION


@pytest.mark.parametrize("what", ["scaled", "two"])
def test_portions_are_ordered(what: str) -> None:
    program = text("f8e4m3", "f8e4m3", *AROUND[what])
    found = mapped(program, small(chosen(program, ADA), stages=3), {"M": 64, "N": 64, "K": 272})
    assert faults(shortened(found), {}) == ()


def test_sums_without_registers_for_portions_are_refused() -> None:
    choice = small(chosen(text(), ADA), tile={"i": 128, "j": 128}, each={"i": 64, "j": 64})
    with pytest.raises(texpr.TExprError, match="`each`: at most 64 sums for each lane"):
        mapped(text(), choice, LARGE)
