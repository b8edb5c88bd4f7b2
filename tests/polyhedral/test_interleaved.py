"""Launches with parts, pipes, groups, flags and clusters compute what they should under every schedule."""

from typing import Any

import numpy as np
import pytest
from hand_built import GRAPHS
from stages import PIPE, mapped

from texpr.polyhedral.simulate.stage import simulate


@pytest.mark.parametrize("name", GRAPHS)
def test_a_right_graph_computes_its_values_under_every_schedule(name: str) -> None:
    graph = GRAPHS[name]
    arrays = graph.arrays()
    for seed in range(3):
        got = simulate(graph.program, arrays, seed=seed, sizes=graph.sizes)
        np.testing.assert_array_equal(got[graph.result], graph.expected(arrays["A"]))


@pytest.mark.parametrize("name", GRAPHS)
def test_loops_that_do_not_run_wait_for_nothing(name: str) -> None:
    graph = GRAPHS[name]
    if "K" in graph.sizes:
        arrays: dict[str, Any] = {n: a[:0] if len(a) == graph.sizes["K"] else a for n, a in graph.arrays().items()}
        got = simulate(graph.program, arrays, sizes={"K": 0})[graph.result]
        assert not got.any()


def test_a_program_of_map_computes_the_same_in_lockstep_and_interleaved() -> None:
    program = mapped(PIPE)
    random = np.random.default_rng(0)
    arrays = {
        "A": random.integers(0, 9, (2, 3, 64)).astype(np.float32),
        "B": random.integers(0, 9, (2, 64)).astype(np.float32),
    }
    lockstep = simulate(program, arrays)["B"]
    for seed in range(2):
        np.testing.assert_array_equal(simulate(program, arrays, seed=seed, interleaved=True)["B"], lockstep)
