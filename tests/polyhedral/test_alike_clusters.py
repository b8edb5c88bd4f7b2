"""Clusters in which the same happens are checked once: what is left out is like what stays, and orders keep all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

import texpr
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.orders import trace as traces
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.orders.trace import Trace, unrolled

PRODUCT = """kernel product(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""


def product(n: int) -> tuple[MappedProgram, Launch]:
    made = texpr.parse(PRODUCT, "product").only.compile("cuda:sm_90a", M=4096, N=n, K=4096, stop_after="map")
    program = shortened(made.mapping.program)
    (launch,) = launches(program.host)
    return program, launch


def every(program: MappedProgram, launch: Launch) -> Trace:
    """The trace of all clusters that stand for others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "_leave_alike", lambda trace, blocks: None)
        return unrolled(program, (launch,), {})


def counts(trace: Trace) -> dict[tuple[int, ...], Counter[int]]:
    """How many events each block of a cluster has of each node."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    for event in trace.events:
        found.setdefault(trace.grids[0].cluster_of(event.block), Counter())[id(event.node)] += 1
    return found


def kinds(trace: Trace) -> set[Sequence[tuple[int, int]]]:
    return {tuple(sorted(own.items())) for own in counts(trace).values()}


def test_of_clusters_that_do_the_same_one_is_left() -> None:
    program, launch = product(4096)
    found, whole = unrolled(program, (launch,), {}), every(program, launch)
    assert len(counts(found)) == 1 < len(counts(whole)) == 3
    assert list(found.blocks[0]) == list(whole.blocks[0])[: launch.cluster[0]]
    assert kinds(found) == kinds(whole)


def test_clusters_with_other_tiles_stay() -> None:
    program, launch = product(10 * 256)
    found, whole = unrolled(program, (launch,), {}), every(program, launch)
    assert len(kinds(whole)) > 1, "some clusters have a tile more"
    assert kinds(found) == kinds(whole) and len(counts(found)) == len(kinds(whole))


def test_where_blocks_of_several_clusters_are_ordered_all_stay() -> None:
    program, launch = product(4096)
    wide = replace(launch, orders=(*launch.orders, replace(launch.orders[0], scope=Scope.GRID)))
    assert unrolled(program, (wide,), {}).blocks == every(program, wide).blocks
