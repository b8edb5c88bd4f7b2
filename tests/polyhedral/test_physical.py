"""A planned program is simulated in the bytes that its plan gives: what lies wrongly there is found."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_built import GRAPHS, Graph
from stages import PIPE, mapped

from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import ZERO, const
from texpr.polyhedral.layout.make import strided
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.simulate.stage import simulate

TILES = """kernel tiles(A: f32[M, 64], B: f32[M, 64], C: i32[M]) {
    par M i {
        new t: f32[64]
        new c: i32[1]
        par 64 a { t[a] = A[i, a] }
        c[0] = 7
        par 64 b { B[i, b] = t[63 - b] }
        C[i] = c[0]
    }
}"""


def moved(planned: PlannedProgram, name: str, **changes: Any) -> PlannedProgram:
    """The plan with another address of one buffer."""
    changed = replace(planned.addresses[name], **changes)
    return replace(planned, addresses={**planned.addresses, name: changed})


def failure(planned: PlannedProgram, graph: Graph) -> str:
    """What is found under one of a few seeds, or `values` where only they are wrong."""
    arrays = graph.arrays()
    for seed in range(4):
        try:
            got = simulate(planned, arrays, seed=seed, sizes=graph.sizes)[graph.result]
        except TExprError as error:
            return error.diagnostics[0].message
        if not np.array_equal(got, graph.expected(arrays["A"])):
            return "values"
    return ""


@pytest.mark.parametrize("name", ["ring 3", "multicast 2", "staged 2", "groups", "named", "exchanged"])
def test_a_right_plan_computes_the_same(name: str) -> None:
    assert failure(plan(GRAPHS[name].program), GRAPHS[name]) == ""


def test_a_program_of_map_computes_the_same_in_its_bytes() -> None:
    arrays = {
        "A": np.arange(128, dtype=np.float32).reshape(2, 64),
        "B": np.zeros((2, 64), np.float32),
        "C": np.zeros(2, np.int32),
    }
    program = mapped(TILES.replace("new ", "new shared "))
    got = simulate(plan(program), arrays)
    np.testing.assert_array_equal(got["B"], arrays["A"][:, ::-1])
    np.testing.assert_array_equal(got["C"], [7, 7])
    for run in (plan(mapped(PIPE)), mapped(PIPE)):
        ones = {"A": np.ones((2, 3, 64), np.float32), "B": np.zeros((2, 64), np.float32)}
        assert (simulate(run, ones)["B"] == 3).all()


def test_buffers_that_overlap_are_found() -> None:
    message = failure(moved(plan(GRAPHS["groups"].program), "b", offset_bytes=ZERO), GRAPHS["groups"])
    assert "touch element" in message and "nothing orders" in message


SWIZZLED = """kernel swizzled(A: f32[M, 60], B: f32[M, 60]) {
    par M i {
        new shared t: f32[60] #swizzle(2, 4, 2)
        new shared u: f32[4]
        par 60 a { t[a] = A[i, a] }
        par 4 a { u[a] = 1.0 }
        par 60 b { B[i, b] = t[59 - b] * u[b % 4] }
    }
}"""


def test_a_swizzled_tile_takes_whole_blocks_and_less_room_is_found() -> None:
    arrays = {"A": np.arange(120, dtype=np.float32).reshape(2, 60), "B": np.zeros((2, 60), np.float32)}
    planned = plan(mapped(SWIZZLED))
    np.testing.assert_array_equal(simulate(planned, arrays)["B"], arrays["A"][:, ::-1])
    assert planned.addresses["u"].offset_bytes == const(256)
    with pytest.raises(TExprError, match="touch element"):
        simulate(moved(planned, "u", offset_bytes=const(240)), arrays)


def test_slots_that_overlap_are_found() -> None:
    message = failure(moved(plan(GRAPHS["ring 2"].program), "a", stage_bytes=128), GRAPHS["ring 2"])
    assert "of a and nothing orders" in message


def test_a_layout_that_puts_two_elements_in_one_place_is_found() -> None:
    message = failure(moved(plan(GRAPHS["named"].program), "a", layout=strided((64,), (0,))), GRAPHS["named"])
    assert "touch element (0,) of a" in message
