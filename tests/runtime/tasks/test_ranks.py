"""Engines of several ranks: who runs what, what ranks tell each other, and how they end when one of them does."""

import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from rank_stress import on_ranks
from test_engine import add, broken, copy, put, scale, sweep, vector
from test_tensors import refused

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.distributions import blocked, by_number, grid, home_rank
from texpr.runtime.tasks.homes import Homes
from texpr.runtime.tasks.ranks import Ranks
from texpr.runtime.transport import fake
from texpr.tasks import (
    Engine,
    TaskContext,
    Tensor,
    accumulate,
    may_accumulate,
    may_read,
    read,
    read_write,
    tiled,
    write,
)

Do = Callable[[Engine], Any]


def run(do: Do, ranks: int = 2, seed: int = 3, near: bool = False, **options: Any) -> list[Any]:
    """What a program gives at each rank; afterwards no thread is left."""
    before = threading.active_count()

    def rank(transport: Any) -> Any:
        with Engine(1, transport=transport, debug=True, **options) as engine:
            return do(engine)

    try:
        return on_ranks(fake(ranks, seed, silence_s=20.0, near=near), rank)
    finally:
        assert threading.active_count() == before


def told(do: Do, ranks: int = 2, **options: Any) -> list[str]:
    """The errors that a program ends with at each rank."""

    def rank(transport: Any) -> str:
        try:
            with Engine(1, transport=transport, **options) as engine:
                do(engine)
        except Exception as why:
            return str(why)
        return "no error"

    return on_ranks(fake(ranks, 3, silence_s=1.0), rank)


def rank_of(engine: Engine) -> int:
    ranks = engine._flow.ranks
    return 0 if ranks is None else ranks.rank


# who has and runs what


def test_blocks_are_where_their_distribution_says() -> None:
    n = tiled(8, 2)
    a = Tensor("A", (n, n))
    assert [home_rank(block, 3) for block in a[0].blocks()] == [0, 1, 2, 0]
    b = Tensor("B", (n, n), distribution=blocked)
    assert [home_rank(block, 3) for block in b.blocks()] == [0] * 6 + [1] * 5 + [2] * 5
    c = Tensor("C", (n, n), distribution=grid(2, 2))
    assert [home_rank(block, 4) for block in c[:2].blocks()] == [0, 1, 0, 1, 2, 3, 2, 3]
    d = Tensor("D", (n,), distribution=lambda block, ranks: ranks)
    refused("E0703", "puts D[0] at rank 2 of 2", lambda: home_rank(d.block((0,)), 2))
    refused("E0703", "a grid of ranks", lambda: grid(2, 0))


def test_tasks_run_at_the_owner_of_what_they_write() -> None:
    def where(context: TaskContext, ran: list[int], *blocks: Any) -> None:
        ran.append(context.task.number)

    def program(engine: Engine) -> list[int]:
        a, b = vector(), vector("B")
        ran: list[int] = []
        engine.submit(where, write(a.block((1,))), args=(ran,))
        engine.submit(where, read(a.block((1,))), read_write(b.block((0,))), args=(ran,))
        engine.submit(where, read(a.block((1,))), args=(ran,))
        engine.submit(where, may_accumulate(a), args=(ran,))
        engine.submit(where, args=(ran,))
        engine.wait()
        return sorted(ran)

    assert run(program) == [[1, 3, 4], [0, 2]]
    assert run(program, placement=by_number) == [[0, 2, 4], [1, 3]]


def test_large_blocks_have_pages_of_their_own_which_gpus_may_lock() -> None:
    homes = Homes(0, 1)
    small, large = Tensor("A", (tiled(12, 4),)), Tensor("B", (tiled(20_002, 9_000),))
    assert [spot.offset for spot in homes.lay(small).spots.values()] == [0, 64, 128]
    laid = homes.lay(large)  # 72 000, 72 000 and 16 016 bytes
    assert [spot.offset for spot in laid.spots.values()] == [0, 73_728, 147_456] and laid.sizes == [147_456 + 16_064]


def test_a_placement_that_names_no_rank_is_refused() -> None:
    def program(engine: Engine) -> None:
        refused("E0703", "the placement puts it at rank 5 of 2", lambda: engine.submit(broken))

    run(program, placement=lambda task, ranks: 5)


def test_every_rank_gathers_the_same_array() -> None:
    def program(engine: Engine) -> list[float]:
        a, s, untouched = vector(), vector("S", 1), vector("U", 2)
        for block in a.blocks():
            engine.submit(put, write(block), args=(block, float(block.number)))
            engine.submit(scale, read_write(block), args=(block, 2.0))
        engine.submit(sweep, may_read(a), may_accumulate(s), args=(a, s.block((0,))))
        assert not engine.array(untouched).any()
        return [*engine.array(a)[::4].tolist(), float(engine.array(s)[0])]

    for options in ({}, {"placement": by_number}, {"placement": lambda task, ranks: ranks - 1}):
        assert run(program, 3, **options) == [[0.0, 2.0, 4.0, 6.0, 12.0]] * 3


def test_at_the_end_each_rank_has_its_own_blocks_of_its_data() -> None:
    def program(engine: Engine) -> Any:
        data = numpy.arange(16.0)
        a = Tensor("A", (tiled(16, 4),), data=data)
        for block in a.blocks():
            engine.submit(scale, read_write(block), args=(block, -1.0))
        engine.shutdown()
        with Engine(1) as alone:
            assert numpy.array_equal(alone.array(a), data)
        return data[::4].tolist()

    for near in (False, True):
        assert run(program, near=near) == [[0.0, 4.0, -8.0, 12.0], [0.0, -4.0, 8.0, -12.0]]


def test_ranks_that_reach_each_other_copy_nothing() -> None:
    def program(engine: Engine) -> tuple[list[float], int]:
        a, b = vector(), vector("B")
        for source, target in zip(a.blocks(), reversed(list(b.blocks())), strict=True):
            engine.submit(put, write(source), args=(source, 3.0))
            engine.submit(copy, read(source), write(target), args=(source, target))
        engine.wait()
        moved = engine.counters.transfers
        return engine.array(b)[::4].tolist(), moved

    for placement in ({}, {"placement": lambda task, ranks: ranks - 1}):
        assert run(program, near=True, **placement) == [([3.0] * 4, 0)] * 2
    assert max(moved for _, moved in run(program)) > 0


def test_a_rank_knows_whether_its_workers_have_something_to_do() -> None:
    busy: dict[int, list[bool]] = {}

    def asking(engine: Engine) -> None:
        ranks, a = engine._flow.ranks, vector()
        assert ranks is not None

        def ask(context: TaskContext) -> None:
            busy[ranks.rank].append(ranks.is_busy())

        busy[ranks.rank] = [ranks.is_busy()]
        for block in a[:2].blocks():
            engine.submit(ask, write(block))
        engine.wait()
        busy[ranks.rank].append(ranks.is_busy())

    run(asking)
    assert busy == {0: [False, True, False], 1: [False, True, False]}


def test_copies_of_other_ranks_blocks_keep_to_their_bound() -> None:
    def program(engine: Engine) -> float:
        a, b = vector(tiles=8), vector("B", 8)
        for source, target in zip(a.blocks(), reversed(list(b.blocks())), strict=True):
            engine.submit(put, write(source), args=(source, 3.0))
            engine.submit(copy, read(source), write(target), args=(source, target))
        total = float(engine.array(b).sum())
        remote = engine._flow.holdings.nodes[1]
        assert remote.name == "remote" and 0 < remote.peak <= 64
        return total

    assert run(program, memories={"remote": 64}) == [96.0] * 2


def test_a_task_that_is_too_large_for_its_rank_fails_at_all() -> None:
    def program(engine: Engine) -> None:
        a, b = vector(), vector("B")
        engine.submit(copy, read(a.block((0,))), write(b.block((1,))), args=(a.block((0,)), b.block((1,))))

    for text in told(program, memories={"remote": 8}):
        assert "E0715" in text and "needs 32 bytes at node remote, which is bound to 8" in text


def test_sums_of_halves_are_refused_between_ranks() -> None:
    def program(engine: Engine) -> None:
        h = Tensor("H", (tiled(4, 4),), "f16")
        said = "accumulates into H, and sums over several ranks are not of float16"
        refused("E0725", said, lambda: engine.submit(add, accumulate(h.block((0,))), args=(h.block((0,)), 1.0)))

    run(program)


def test_a_tensor_is_deallocated_at_every_rank() -> None:
    def program(engine: Engine) -> float:
        a, b = vector(), vector("A")
        for block in a.blocks():
            engine.submit(put, write(block), args=(block, 1.0))
        engine.deallocate(a)
        refused("E0703", "tensor A was deallocated", lambda: engine.submit(broken, may_read(a)))
        for block in b.blocks():
            engine.submit(add, accumulate(block), args=(block, 2.0))
        found = float(engine.array(b).sum())
        assert all(block._home is None and block.residency is None for block in a.known_blocks())
        return found

    assert run(program, placement=by_number) == [32.0, 32.0]


def test_one_transport_serves_several_engines() -> None:
    def rank(transport: Any) -> float:
        a = vector()
        for _ in range(3):
            with Engine(1, transport=transport) as engine:
                for block in a.blocks():
                    engine.submit(add, accumulate(block), args=(block, 1.0))
                found = float(engine.array(a).sum())
        return found

    assert on_ranks(fake(2, 1), rank) == [48.0, 48.0]


# failures


def test_a_failure_is_told_at_every_rank_and_cancels_what_needs_it() -> None:
    def program(engine: Engine) -> list[float]:
        a, b = vector(), vector("B")
        engine.submit(broken, write(a.block((1,))))
        needs = engine.submit(copy, read(a.block((1,))), write(b.block((0,))), args=(a.block((1,)), b.block((0,))))
        engine.submit(put, write(b.block((1,))), args=(b.block((1,)), 2.0))
        with pytest.raises(TExprError, match="E0715") as caught:
            engine.wait()
        assert "RuntimeError: on purpose" in str(caught.value) and "task copy#1" in str(caught.value)
        assert needs.exception() is not None
        with pytest.raises(TExprError, match=r"E0710.*A\[1\] has no value"):
            engine.array(a)
        engine.submit(put, write(a.block((1,))), args=(a.block((1,)), 7.0))
        engine.submit(put, write(b.block((0,))), args=(b.block((0,)), 1.0))
        return [*engine.array(a)[::4].tolist(), *engine.array(b)[::4].tolist()]

    assert run(program) == [[0.0, 7.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0]] * 2


def test_a_child_that_fails_is_told_at_every_rank() -> None:
    def parent(context: TaskContext, block: Any) -> None:
        context.submit(broken, write(block))

    def program(engine: Engine) -> None:
        a = vector()
        engine.submit(parent, write(a.block((1,))), args=(a.block((1,)),))

    for text in told(program):
        assert "E0715" in text and "on purpose" in text


def test_ranks_that_submit_other_tasks_are_told_the_first_that_differs() -> None:
    def program(engine: Engine) -> None:
        a = vector()
        for k in range(5):
            block = a.block((k % 4 if k < 3 or rank_of(engine) == 0 else 0,))
            engine.submit(put, write(block), args=(block, 1.0))

    said = "submission 4 is not the same: rank {}: put(write A[{}]) at rank {}; rank {}: put(write A[{}]) at rank {}"
    left, right = (said.format(0, 3, 1, 1, 0, 0), said.format(1, 0, 0, 0, 3, 1))
    for text in told(program):
        assert "E0726" in text and (left in text or right in text)


def test_ranks_that_wait_where_others_submit_are_told() -> None:
    def program(engine: Engine) -> None:
        a = vector()
        if rank_of(engine) == 0:
            engine.wait()
        engine.submit(put, write(a.block((1,))), args=(a.block((1,)), 1.0))
        engine.wait()

    for text in told(program):
        assert "submission 0 is not the same" in text and "wait" in text and "Tensor(A" in text


def test_a_rank_that_leaves_by_an_exception_ends_the_others() -> None:
    def program(engine: Engine) -> None:
        a = vector()
        engine.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))
        if rank_of(engine) == 1:
            raise KeyError("lost my keys")
        engine.submit(put, write(a.block((1,))), args=(a.block((1,)), 1.0))
        engine.wait()

    zero, one, two = told(program, 3)
    assert one == "'lost my keys'"
    for text in (zero, two):
        assert "E0727" in text and "rank 1 is not there any more: KeyError: 'lost my keys'" in text


def test_a_rank_that_falls_silent_is_lost() -> None:
    before = threading.active_count()
    zero, _ = on_ranks(fake(2, 1, silence_s=1.5), _lost)
    assert "E0727" in zero and "rank 1 is not there any more: it has said nothing for 1.5 s" in zero
    assert threading.active_count() == before


def _lost(transport: Any) -> str:
    """Rank 1 dies after the first task; what rank 0 is told."""
    a = vector()
    engine = Engine(1, transport=transport)
    engine.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))
    engine.wait()
    if transport.rank == 1:
        transport.silence()
        flow = engine._flow
        flow.crew.end()
        assert flow.ranks is not None
        flow.ranks.courier.stop()
        return "dead"
    engine.submit(put, write(a.block((1,))), args=(a.block((1,)), 1.0))
    with pytest.raises(TExprError) as caught:
        engine.shutdown()
    return str(caught.value)


def test_a_transport_that_fails_ends_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Ranks, *news: Any) -> None:
        raise OSError("the wire is cut")

    monkeypatch.setattr(Ranks, "heard", fails)

    def program(engine: Engine) -> None:
        a = vector()
        engine.submit(put, write(a.block((1,))), args=(a.block((1,)), 1.0))

    for text in told(program):
        assert "E0727" in text
