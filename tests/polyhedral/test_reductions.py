"""Reductions over the threads of a block: lanes by shuffles, warps by one slot each and one barrier."""

from typing import Any

import numpy as np
import pytest
import stages

import texpr
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.operators import Reduce
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.walks import block_buffers, located
from texpr.polyhedral.simulate.stage import simulate

ROWS = """
kernel rows(X: f32[M, N], K: i32[M, N], most: f32[M], least: i32[M], product: i32[M], total: f32[M], both: f32[M])
    #threads({threads}) {{
    par M i {{
        new m: f32
        m = maximum N k {{ X[i, k] }}
        most[i] = m
        least[i] = minimum N k {{ K[i, k] }}
        product[i] = prod N k {{ K[i, k] }}
        total[i] = sum N k {{ X[i, k] }}
        new a: f32
        new b: i32
        a = 0.0
        b = 1
        seq N k {{
            a += X[i, k]
            b *= K[i, k]
        }}
        both[i] = a + f32(b % 100)
    }}
}}
"""
NAMES = ("most", "least", "product", "total", "both")


def rows(threads: int) -> str:
    return ROWS.format(threads=threads)


def arguments() -> dict[str, Any]:
    random = np.random.default_rng(2)
    x = random.integers(-3, 9, (5, 101)).astype(np.float32)
    x[1, 77], x[2, 3], x[3, :] = np.nan, np.inf, -np.inf
    results = {name: np.zeros(5, np.int32 if name in ("least", "product") else np.float32) for name in NAMES}
    return {"X": x, "K": random.integers(-9, 8, (5, 101)).astype(np.int32) | 1, **results}


@pytest.mark.parametrize("threads", [2, 16, 32, 96, 1024])
def test_blocks_of_any_size_reduce_rows_to_what_the_loop_leaves(threads: int) -> None:
    program = stages.mapped(rows(threads))
    given = arguments()
    expected = interpret(program.kernel, given).outputs
    got = simulate(program, given, seed=threads)
    for name in NAMES:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


@pytest.mark.parametrize("threads", [16, 96])
def test_the_emitted_text_does_too(threads: int) -> None:
    kernel = texpr.parse(rows(threads)).only
    given = arguments()
    expected = interpret(kernel.core(), given).outputs
    kernel.compile("cuda-host:sm_90")(**given)
    for name in NAMES:
        np.testing.assert_array_equal(given[name], expected[name], err_msg=name)


@pytest.mark.parametrize(("threads", "slots"), [(16, 0), (32, 0), (96, 3), (256, 8)])
def test_a_reduction_takes_a_slot_for_each_warp_and_one_barrier_where_there_are_several(
    threads: int, slots: int
) -> None:
    program = stages.mapped(rows(threads), M=4096, N=1 << 17)
    launch = stages.only_launch(program)
    loops = 5  # two of its six reductions are in one
    assert len(stages.barriers(launch)) == (loops if slots else 0)
    shared = [b for b in block_buffers(program, launch) if b.memory is Memory.SHARED]
    assert len(shared) == (loops + 1 if slots else 0)
    assert all([e.value for e in b.shape] == [slots] for b in shared)
    lanes = [p.node.lanes for p in located(launch.body) if isinstance(p.node, Reduce)]
    assert lanes.count(min(threads, 32)) == loops + 1
