"""Of every sync that is dropped, doubled, moved or detuned, the checker and the simulator say that it is wrong.

They share nothing but the tree: one searches a graph of what happens before what, the other runs the program under
seeded schedules. Where neither finds anything, the change is harmless, and `HARMLESS` says why.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gemm_by_hand import Shape, gemm
from graphs import barrier, condition, copy, define, do, launch, loop, once, order, part, parts, program, when
from hand_built import GRAPHS, Graph
from rings import INITIALISED, ring
from spoil import detuned, spoiled
from stages import mapped, only_launch, without_barriers

import texpr
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.polyhedral.mapped.between import GridBarrier
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Acquire, Commit, End, Pipe, PipeKind, Release, Wait, WaitGroup
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.walks import goes_on_alone, launches, located
from texpr.polyhedral.orders import flow, happens
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.orders.small_sizes import small_sizes
from texpr.polyhedral.orders.trace import Fault
from texpr.polyhedral.simulate.stage import simulate

HARMLESS = (
    ("", r"double (barrier \((block|cluster|cluster, relaxed|grid, met)\)|wait at barrier)", "who has met has met"),
    ("", r"double fence", "what is visible stays visible"),
    ("", r"double (wait \(|await|after)", "what is over stays over"),
    ("", r"double close", "one more group, an empty one, makes waits for all but the youngest wait for more"),
    ("staged|named", r"later barrier \(block\)$", "it moves past the definition of an index"),
    ("named", r"earlier barrier \(block, left, right\)$", "it moves past the definition of an index"),
    ("exchanged", r"earlier barrier \(cluster, relaxed", "it moves past the definition of an index"),
    ("multicast", r"a relaxed barrier of the cluster$", "behind the fence it says that the pipes are there"),
    (
        "staged [234]",
        r"earlier wait ring",
        "the next copy is issued after the wait and not before, which is only slower",
    ),
    ("groups", r"later wait \(cp_async", "it moves past another wait"),
    ("groups", r"a barrier of warps", "the block is one warp"),
    ("exchanged", r"(later arrive|earlier wait) at barrier", "it moves past a read that no other thread writes"),
    ("look-back", r"earlier t = turn", "it moves past the definition of an index"),
    (
        "overlapping",
        r".* the next launch may begin",
        "it orders nothing, the next launch waits for the end of this one",
    ),
    ("overlapping", r"drop after", "then the launch begins when the one before is over"),
    ("overlapping", r"earlier after", "it moves past a read of what no launch writes"),
)
RUN = ("ring 2", "multicast 2", "handed on 2", "staged 2", "groups", "named", "exchanged", "look-back", "ticket")
RUN += ("two passes", "overlapping")


def why_harmless(name: str, text: str) -> str | None:
    return next((why for graph, change, why in HARMLESS if re.match(graph, name) and re.match(change, text)), None)


def changes(graph: Graph) -> Iterator[tuple[str, MappedProgram]]:
    yield from spoiled(graph.program)
    yield from detuned(graph.program)


def found_by_checker(changed: MappedProgram) -> bool:
    try:
        check_orders(changed)
    except InternalError:
        return True
    return False


def found_by_simulator(graph: Graph, changed: MappedProgram, seeds: int) -> bool:
    arrays = graph.arrays()
    for seed in range(seeds):
        try:
            got = simulate(changed, arrays, seed=seed, sizes=graph.sizes)
        except TExprError:
            return True
        if not np.array_equal(got[graph.result], graph.expected(arrays["A"])):
            return True
    return False


@pytest.mark.parametrize("name", GRAPHS)
def test_the_checker_finds_no_fault_in_a_right_graph(name: str) -> None:
    check_orders(GRAPHS[name].program)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_checker_finds_every_change_that_is_not_harmless(name: str) -> None:
    wrong = {text: found_by_checker(changed) for text, changed in changes(GRAPHS[name])}
    assert {t for t, found in wrong.items() if not found} == {t for t in wrong if why_harmless(name, t)}


@pytest.mark.parametrize("name", RUN)
def test_the_simulator_finds_every_change_that_is_not_harmless(name: str) -> None:
    graph = GRAPHS[name]
    missed = set()
    for text, changed in changes(graph):
        harmless = why_harmless(name, text) is not None
        if found_by_simulator(graph, changed, 1 if harmless else 8) == harmless:
            missed.add(text)
    assert not missed


def test_every_order_of_a_ring_is_missed_when_its_sync_goes() -> None:
    (only,) = ring(2).host
    assert isinstance(only, Launch)
    longer = replace(only, orders=(order("S2", "S0", "a", "anti", after="k", distance=1),))
    with pytest.raises(InternalError, match=r"K = 2: nothing orders S2 before S0 on a"):
        check_orders(replace(ring(2), host=(longer,)))


def test_slots_are_read_before_they_are_filled_again_whether_an_order_says_so_or_not() -> None:
    (only,) = ring(2).host
    assert isinstance(only, Launch)
    silent = replace(ring(2), host=(replace(only, orders=()),))
    check_orders(silent)
    early = next(changed for text, changed in spoiled(silent) if text == "earlier release ring")
    with pytest.raises(InternalError, match="nothing orders S2 before S0 in the same slot of a"):
        check_orders(early)


def test_an_order_that_a_sync_claims_and_does_not_enforce_is_found() -> None:
    graph = GRAPHS["two passes"].program
    (only,) = graph.host
    assert isinstance(only, Launch)
    claim = order("S1", "S0", "p", "anti", scope="grid")
    body = tuple(replace(n, orders=(claim,)) if isinstance(n, GridBarrier) else n for n in only.body)
    with pytest.raises(InternalError, match="no barrier orders S1 before S0 on p"):
        check_orders(replace(graph, host=(replace(only, body=body),)))
    stray = replace(only, orders=(replace(claim, source="if@0"),))
    with pytest.raises(InternalError, match="if@0 is ordered and is no operator"):
        check_orders(replace(graph, host=(stray,)))


def tangled() -> MappedProgram:
    """Two parts that each wait for the other's first turn before they commit their own."""
    pipes = tuple(
        Pipe(
            name=name,
            stages=1,
            kind=PipeKind.ARRIVE,
            scope=Scope.BLOCK,
            buffers=(),
            producers=(End(part=name),),
            consumers=(End(part=other),),
            commits=1,
            releases=1,
        )
        for name, other in (("left", "right"), ("right", "left"))
    )

    def half(own: str, other: str) -> tuple[object, ...]:
        return Acquire(pipe=own), Wait(pipe=other), Commit(pipe=own), Release(pipe=other)

    body = (
        *INITIALISED,
        parts(
            part("left", 1, once(loop("k", 1, *half("left", "right")))),  # type: ignore[arg-type]  # a Node each
            part("right", 1, once(loop("k", 1, *half("right", "left")))),  # type: ignore[arg-type]  # a Node each
        ),
    )
    return program("A: i32[32]", launch(*body, threads=64, pipes=pipes))


def test_parts_that_wait_for_one_another_are_a_circle_and_a_deadlock() -> None:
    with pytest.raises(InternalError, match=r"threads wait in a circle: .*wait right"):
        check_orders(tangled())
    with pytest.raises(TExprError) as caught:
        simulate(tangled(), {"A": np.zeros(32, np.int32)})
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0604"
    assert "nobody can go on" in diagnostic.message
    assert "block 0, part left, thread 0 waits at `wait right, turn 0`" in diagnostic.message
    assert "block 0, part right, thread 32 waits at `wait left, turn 0`" in diagnostic.message


EXCHANGE = """kernel exchange(C: i32[4, 64], f: i32[4]) {
    par 4 i {
        new t: i32[64]
        par 64 a { t[a] = C[i, a] }
        if f[i] > 0 { seq 2 q { par 64 b { C[i, b] += t[63 - b] } par 64 c { t[c] += C[i, 63 - c] } } }
    }
}"""


def test_a_launch_of_map_beside_one_with_pipes_is_checked_on_its_own() -> None:
    plain = mapped(EXCHANGE)
    rings = ring(2)
    both = replace(rings, host=(*plain.host, *rings.host), buffers={**plain.buffers, **rings.buffers})
    check_orders(both)
    spoilt = without_barriers(only_launch(plain))
    with pytest.raises(InternalError, match="no barrier orders"):
        check_orders(replace(both, host=(spoilt, *rings.host)))


SAID = {
    ("ring 2", "drop release ring"): (
        "turn 0 of ring has 0 releases of 64",
        "block 0, part load, thread 0 waits at `acquire ring, turn 2`; block 0, part sum, threads 32 to ",
    ),
    ("ring 2", "earlier release ring"): (
        "nothing orders S2 before S0 on a",
        "of a and nothing orders S2 (line 1) and S0",
    ),
    ("groups", "drop fence (async_proxy)"): (
        "no fence shows S3 what S2 wrote",
        "of b and no fence of the writer lies between S2 (line 1) and S3",
    ),
    ("groups", "drop wait (bulk, all, read) (2)"): (
        "block 0 may end before S3 is over in its memory",
        "block 0 ends while copy S3 of thread 0 may not be over",
    ),
    ("exchanged", "drop barrier (cluster, relaxed)"): (
        "block 1 may not have begun when S0 reaches into its memory",
        "an access to its memory by thread 0: nothing says that block 1 has begun",
    ),
    ("exchanged", "a relaxed barrier of the cluster"): (
        "nothing orders S0 before S2 on t",
        "of t and nothing orders S0 (line 1) and S2",
    ),
    ("look-back", "one's own word awaited"): (
        "threads wait in a circle: await done[t], publish done[t]",
        "wait at `await done",
    ),
}


@pytest.mark.parametrize(("name", "text"), SAID)
def test_what_is_wrong_is_said_in_words(name: str, text: str) -> None:
    graph = GRAPHS[name]
    changed = next(c for t, c in changes(graph) if t == text)
    by_checker, by_simulator = SAID[name, text]
    with pytest.raises(InternalError, match=re.escape(by_checker)):
        check_orders(changed)
    with pytest.raises(TExprError, match=re.escape(by_simulator)):
        for seed in range(8):
            simulate(changed, graph.arrays(), seed=seed, sizes=graph.sizes)


def in_cluster(*body: Node) -> MappedProgram:
    """Two blocks of 32 threads that have begun, with a row of shared memory each."""
    begun = (define("i", lane=32), define("r", rank=2), barrier("cluster", relaxed=True))
    only = launch(*begun, *body, threads=32, grid=2, cluster=2)
    return program("A: i32[2, 32], B: i32[2, 32]", only, cluster={"t": (2, 32)})


def test_a_block_does_not_end_while_another_reads_its_memory() -> None:
    copied = (do("S0", "t[r, i] = A[r, i]"), barrier("cluster"), do("S1", "B[r, i] = t[1 - r, i]"))
    arrays = {name: np.ones((2, 32), np.int32) for name in "AB"}
    check_orders(in_cluster(*copied, barrier("cluster")))
    simulate(in_cluster(*copied, barrier("cluster")), arrays)
    with pytest.raises(InternalError, match="block 1 may end before S1 is over in its memory"):
        check_orders(in_cluster(*copied))
    with pytest.raises(TExprError, match=r"block \d ends while an access to its memory by thread \d+ may not be over"):
        simulate(in_cluster(*copied), arrays)


def test_who_waits_at_a_relaxed_barrier_may_wait_in_a_circle() -> None:
    first, second = barrier("cluster", name="first", relaxed=True), barrier("cluster", name="second")
    crossed = in_cluster(when("r == 0", first, second, orelse=(second, first)))
    check_orders(in_cluster(first, second))
    with pytest.raises(InternalError, match=r"threads wait in a circle: .*first"):
        check_orders(crossed)
    with pytest.raises(TExprError, match=r"nobody can go on: .*first"):
        simulate(crossed, {name: np.ones((2, 32), np.int32) for name in "AB"})
    with pytest.raises(InternalError, match="a barrier of the block is not relaxed"):
        barrier("block", relaxed=True)


def test_syncs_whose_facts_hold_at_no_small_size_are_not_passed_in_silence() -> None:
    fine = ring(2)
    large = replace(fine, kernel=replace(fine.kernel, facts=(condition("K >= 1000000"),)))
    check_orders(fine)
    with pytest.raises(InternalError, match="its facts hold at no small sizes, so its syncs are not checked"):
        check_orders(large)


def test_the_check_of_whole_barriers_leaves_what_is_named_or_goes_on_alone_to_the_graph() -> None:
    plain = launch(do("S0", "B[0] = 1", once=True), barrier("block"), threads=64)
    assert flow.decides(plain, {})
    assert not flow.decides(replace(plain, body=(*plain.body, barrier("block", name="half"))), {})
    (product,) = launches(gemm(Shape(256, 256, 192)).host)
    going = next(p.node for p in located(product.body) if type(p.node).__name__ == "Contract" and goes_on_alone(p.node))
    assert not flow.decides(replace(plain, body=(*plain.body, going)), {})


def test_a_copy_of_a_band_does_not_leave_its_buffer_the_same_for_all_threads() -> None:
    one = copy("S0", "f[0] = A[i]")
    assert flow._written_alike((one,), "f")
    assert not flow._written_alike((replace(one, unused=None, digits=("i_lane",)),), "f")


def test_facts_that_allow_no_great_sizes_leave_those_of_tiles() -> None:
    text = "kernel k(A: bf16[B, M, K], X: bf16[B, K, N], C: bf16[B, M, N]) { "
    text += "par B b, M i, N j { C[b, i, j] = sum K k { A[b, i, k] * X[b, k, j] } } }"
    whole = texpr.parse(text).only.compile("cuda:sm_90a", stop_after="map").mapping.program  # it checks the syncs
    assert any(launch.pipes for launch in launches(whole.host))


def test_what_happens_alike_at_several_sizes_is_checked_once_and_what_is_wrong_at_one_is_said() -> None:
    only = ring(2)
    tried, known = list(small_sizes(only)), set[Hashable]()
    assert [happens.faults(only, sizes, known) for sizes in (*tried, *tried)] == [()] * (2 * len(tried))
    assert len(known) == len(tried) > 2  # another number of turns is something else
    early = next(changed for text, changed in spoiled(only) if text == "drop release ring")
    alone = [happens.faults(early, sizes) for sizes in tried]
    assert any(alone) and [happens.faults(early, sizes, set()) for sizes in tried] == alone
    known = set()
    assert [happens.faults(early, sizes, known) for sizes in (*tried, *tried)] == [*alone, *alone]


def _behind(node: Any, behind: int) -> Any:
    """A tree whose waits for groups leave so many of them."""
    if isinstance(node, tuple):
        return tuple(_behind(each, behind) for each in node)
    if isinstance(node, WaitGroup):
        return replace(node, behind=behind)
    return replace(node, body=_behind(node.body, behind)) if isinstance(node, Loop | Guard | Launch) else node


def test_a_wait_that_leaves_more_groups_than_there_are_waits_for_none() -> None:
    graph = GRAPHS["groups"].program

    def found(behind: int) -> list[tuple[Fault, ...]]:
        left = replace(graph, host=_behind(graph.host, behind))
        return [happens.faults(left, {"K": turns}) for turns in (1, 2)]

    assert not any(found(0)) and all(found(3))
    assert [found(behind) for behind in range(4, 9)] == [found(20)] * 5
    assert all("nothing orders S0 before S2 on a" in {one.message for one in each} for each in found(20))
