"""Which memory takes a task that waits for one with room: groups stay together, nobody is idle, all are tried."""

import sys
import threading
from typing import Any

import numpy
import pytest
from fake_gpu import FakeGpu
from test_tensors import refused

from texpr.grammar.diagnostics import TExprError
from texpr.tasks import (
    Block,
    Engine,
    FunctionDefinition,
    LeastTransfer,
    Task,
    TaskContext,
    Tensor,
    accumulate,
    gpu,
    may_write,
    on_arrays,
    read,
    tiled,
    write,
)


def vector(name: str, tiles: int) -> Tensor:
    return Tensor(name, (tiled(4 * tiles, 4),))


class Places:
    """Adds one, and notes at which node, when it is let go."""

    def __init__(self) -> None:
        self.nodes: dict[Block, list[int]] = {}
        self.go = threading.Event()

    def __call__(self, context: TaskContext, block: Block) -> None:
        self.go.wait()
        with context.get_buf_accumulate(block) as sums:
            self.nodes.setdefault(block, []).append(context.node)
            sums.array[...] += 1
            sums.release_add()


def sums_at_two(tiles: int, terms: int, **bounds: int) -> list[set[int]]:
    """The nodes that worked on each block."""
    places, total = Places(), vector("S", tiles)
    memories = {name: bounds.get(name) for name in "ab"}
    with Engine({"a": 1, "b": 1}, memories=memories, policy=LeastTransfer(), debug=True) as engine:
        for block in total.blocks():
            for _ in range(terms):
                engine.submit(places, accumulate(block), args=(block,))
        places.go.set()
        assert engine.array(total).tolist() == [terms] * 4 * tiles
    return [set(places.nodes[block]) for block in total.blocks()]


def test_tasks_on_one_block_stay_together_and_no_memory_is_idle() -> None:
    found = sums_at_two(8, 20)
    assert set().union(*found) == {1, 2}
    assert sum(len(nodes) > 1 for nodes in found) <= 2  # what is taken over at the end


def test_a_memory_without_work_takes_over_what_another_has_begun() -> None:
    assert sums_at_two(1, 100) == [{1, 2}]


def test_blocks_that_have_no_room_in_one_memory_go_to_another_one() -> None:
    assert sums_at_two(2, 30, a=31) == [{2}, {2}]


def test_many_tasks_for_one_kind_of_workers_hide_none_for_another_kind() -> None:
    done, a = threading.Event(), vector("A", 100)

    def wait(context: TaskContext) -> None:
        done.wait()

    def go(context: TaskContext) -> None:
        done.set()

    with Engine({"home": 1, "gpu": 1}, memories={"gpu": FakeGpu()}, policy=LeastTransfer(), debug=True) as engine:
        for block in a.blocks():
            engine.submit(wait, may_write(block))
        engine.submit(FunctionDefinition(cuda=go))


def test_a_policy_that_fails_fails_the_task_that_it_was_asked_about() -> None:
    class Broken:
        def cost(self, task: Task, node: int) -> float:
            raise ZeroDivisionError("on purpose")

    a = vector("A", 1)
    with Engine({"home": 1, "b": 1}, memories={"b": None}, policy=Broken(), debug=True) as engine:
        task = engine.submit(lambda context: None, write(a[0]))
        refused("E0715", "on purpose", engine.wait)
        assert isinstance(task.exception(), ZeroDivisionError)


def test_sums_of_several_memories_for_one_block_are_all_there() -> None:
    """Several copiers that add to one block at once lose terms."""
    extent = 1 << 21

    class InTurns:
        def place(self, task: Task, load: Any) -> int:
            return 1 + task.number % 3

    @on_arrays
    def add(sums: Any) -> None:
        sums += 1

    @on_arrays
    def look(sums: Any) -> None:
        assert (sums == 3).all(), numpy.unique(sums)

    names = "abc"
    for _ in range(2):
        total = Tensor("S", (tiled(extent, extent),), "i32")
        with Engine(dict.fromkeys(names, 1), memories=dict.fromkeys(names), policy=InTurns()) as engine:
            for _ in names:
                engine.submit(add, accumulate(total[0]))
            engine.submit(look, read(total[0]))


def test_threads_take_shorter_turns_as_long_as_an_engine_feeds_a_gpu() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.003)
    try:
        with Engine({"gpu": 1}, memories={"gpu": FakeGpu()}):
            short = sys.getswitchinterval()
            with Engine({"gpu": 1}, memories={"gpu": FakeGpu()}), Engine(1):
                pass
            assert sys.getswitchinterval() == short < 0.001
        assert sys.getswitchinterval() == pytest.approx(0.003)
        with pytest.raises(TExprError), Engine({"gpu": 1, "b": 1}, memories={"gpu": FakeGpu(), "b": gpu(99)}):
            pass
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


def test_what_is_clean_goes_before_what_must_be_written_back_is_home() -> None:
    a, s, memory = vector("A", 8), vector("S", 1), FakeGpu(bound=3 * 32)
    looked, enough, found = list[Block](), threading.Event(), list[bool]()

    def add(context: TaskContext, x: Block, sums: Block) -> None:
        with context.get_buf_read(x), context.get_buf_accumulate(sums) as buffer:
            buffer.release_add()

    def look(context: TaskContext, x: Block) -> None:
        with context.get_buf_read(x):
            looked.append(x)
        if len(looked) == 7:
            enough.set()

    def late(address: int, source: int, count: int, dtype: str, queue: int) -> None:
        memory.queues.put(queue, lambda: found.append(enough.wait(10)))

    memory.device.add = late  # type: ignore[method-assign]  # a slow one
    with Engine({"gpu": 1}, memories={"gpu": memory}, debug=True) as engine:
        engine.submit(FunctionDefinition(cuda=add), read(a[0]), accumulate(s[0]), args=(a[0], s[0]))
        for k in range(1, 8):
            engine.submit(FunctionDefinition(cuda=look), read(a[k]), args=(a[k],))
    assert found == [True]  # seven readers did not wait for the sum on its way home
