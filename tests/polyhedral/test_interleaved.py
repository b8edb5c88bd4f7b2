"""Launches with parts, pipes, groups, flags and clusters compute what they should under every schedule."""

from typing import Any

import numpy as np
import pytest
from block_programs import SIZES, block_program
from hand_built import GRAPHS
from stages import PIPE, mapped, only_launch, with_launch, without_barrier

from texpr.grammar import numerics
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.value import index_value
from texpr.polyhedral.simulate import clocks
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


@pytest.mark.parametrize("number", [0, 1])
def test_a_barrier_that_goes_is_missed_interleaved_too(number: int) -> None:
    program = mapped(PIPE)
    spoilt = with_launch(program, without_barrier(only_launch(program), number))
    arrays = {"A": np.ones((1, 3, 64), np.float32), "B": np.zeros((1, 64), np.float32)}
    found = r"touch element .* of t and nothing orders|element .* of t is read before anything wrote it"
    with pytest.raises(TExprError, match=found):
        simulate(spoilt, arrays, interleaved=True)


@pytest.mark.parametrize("seed", range(4))
def test_random_block_programs_compute_the_same_in_lockstep_and_interleaved(seed: int) -> None:
    program = mapped(block_program(seed), **SIZES)
    random = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for buffer in program.kernel.params:
        shape = tuple(int(index_value(e, SIZES)) for e in buffer.shape)
        arrays[buffer.name] = random.integers(0, 5, shape).astype(numerics.storage(buffer.dtype))
    lockstep = simulate(program, arrays)
    for name, values in simulate(program, arrays, seed=seed, interleaved=True).items():
        np.testing.assert_array_equal(values, lockstep[name])


def test_more_threads_than_may_have_clocks_are_refused() -> None:
    graph = GRAPHS["ring 1"]
    with pytest.raises(TExprError, match=r"E0403.*more than 100 threads and asynchronous copies"):
        simulate(graph.program, graph.arrays(), sizes=graph.sizes, most=100)


def test_clocks_grow_up_to_the_most_that_the_caller_allows() -> None:
    found = clocks.Clocks(9)
    for count in (2, 3, 4):
        agents = found.add(["agent"] * count)
        found.tick(agents)
    assert found.known.shape == (9, 9) and (found.known == np.eye(9)).all()
    with pytest.raises(TExprError, match="more than 9 threads"):
        found.add(["agent"])


@pytest.mark.parametrize("name", ["look-back", "ticket", "two passes", "overlapping"])
def test_a_grid_of_no_blocks_waits_for_nothing(name: str) -> None:
    graph = GRAPHS[name]
    arrays = {n: a[:0] if len(a) == graph.sizes["N"] else a for n, a in graph.arrays().items()}
    assert not simulate(graph.program, arrays, sizes={"N": 0})[graph.result].any()
