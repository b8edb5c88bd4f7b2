"""Tasks run in the order that their permissions ask for, in any memory, whatever fails; and the engine ends."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from test_tensors import refused

from texpr.grammar.diagnostics import TExprError, TExprWarning
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.engine import Engine
from texpr.runtime.tasks.permissions import (
    accumulate,
    may_accumulate,
    may_read,
    may_read_write,
    may_write,
    read,
    read_write,
    temp,
    write,
)
from texpr.runtime.tasks.policies import Affinity, LeastTransfer, ReadyQueue
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.tensors import Block, Tensor

ENGINES: dict[str, dict[str, Any]] = {
    "home": {"workers": 2},
    "away": {"workers": {"gpu": 2}, "memories": {"gpu": None}},
    "both": {"workers": {"home": 1, "a": 1, "b": 1}, "memories": {"a": None, "b": 4 * 32}},
    "bound": {"workers": {"gpu": 2}, "memories": {"gpu": 3 * 32}},
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine that checks its invariants, of each kind; afterwards no thread is left."""
    before = threading.active_count()
    with Engine(**ENGINES[request.param], debug=True) as made:
        yield made
    assert threading.active_count() == before


def vector(name: str = "A", tiles: int = 4) -> Tensor:
    return Tensor(name, (tiled(4 * tiles, 4),))


def put(context: TaskContext, block: Block, value: float) -> None:
    with context.get_buf_write(block, fill=value) as buffer:
        buffer.release_put()


def add(context: TaskContext, block: Block, value: float) -> None:
    with context.get_buf_accumulate(block) as buffer:
        buffer.array[...] += value
        buffer.release_add()


def scale(context: TaskContext, block: Block, value: float) -> None:
    with context.get_buf_read_write(block) as buffer:
        buffer.array[...] *= value
        buffer.release_put()


def copy(context: TaskContext, source: Block, target: Block) -> None:
    with context.get_buf_read(source) as values, context.get_buf_write(target) as buffer:
        buffer.array[...] = values.array
        buffer.release_put()


def test_tasks_on_blocks_run_in_their_order(engine: Engine) -> None:
    a, b = vector(), vector("B")
    for block, other in zip(a.blocks(), b.blocks(), strict=True):
        engine.submit(put, write(block), args=(block, 1.0))
        for _ in range(5):
            engine.submit(add, accumulate(block), args=(block, 2.0))
        engine.submit(scale, read_write(block), args=(block, 3.0))
        engine.submit(copy, read(block), write(other), args=(block, other))
        engine.submit(put, write(block), args=(block, float(block.number)))
    assert numpy.array_equal(engine.array(b), numpy.full(16, 33.0))
    assert numpy.array_equal(engine.array(a), numpy.repeat(numpy.arange(4.0), 4))


def test_data_is_worked_on_in_place(engine: Engine) -> None:
    data = numpy.arange(16.0)
    a = Tensor("A", (tiled(16, 4),), data=data)
    for block in a.blocks():
        engine.submit(scale, read_write(block), args=(block, 2.0))
    engine.shutdown()
    assert numpy.array_equal(data, 2 * numpy.arange(16.0))


def sweep(context: TaskContext, tensor: Tensor, into: Block) -> None:
    for block in tensor.blocks():
        context.submit(total, read(block), accumulate(into), args=(block, into))


def total(context: TaskContext, block: Block, into: Block) -> None:
    with context.get_buf_read(block) as values, context.get_buf_accumulate(into) as sums:
        sums.array[...] += values.array
        sums.release_add()


def test_children_are_within_their_parent_and_before_those_after_it(engine: Engine) -> None:
    a, s = vector(), vector("S", 1)
    for block in a.blocks():
        engine.submit(put, write(block), args=(block, 2.0))
    parent = engine.submit(sweep, may_read(a), may_accumulate(s), args=(a, s.block((0,))))
    engine.submit(scale, read_write(s.block((0,))), args=(s.block((0,)), 10.0))
    assert parent.wait() and numpy.array_equal(engine.array(s), numpy.full(4, 80.0))


def countdown(context: TaskContext, block: Block, left: int) -> None:
    with context.get_buf_read_write(block) as buffer:
        buffer.array[...] += 1
        buffer.release_put()
    if left:
        context.submit_last(countdown, read_write(block), args=(block, left - 1))


def test_a_chain_of_last_children_keeps_no_task_alive() -> None:
    with Engine(debug=True) as engine:
        a = vector(tiles=1)
        first = engine.submit(countdown, read_write(a.block((0,))), args=(a.block((0,)), 300))
        assert numpy.array_equal(engine.array(a), numpy.full(4, 301.0))
        assert first.left == 0 and engine.counters.finished == 301


def nothing(context: TaskContext, *args: Any) -> None:
    pass


def child_of_too_much(context: TaskContext, a: Tensor, b: Tensor) -> None:
    context.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))


def child_after_the_last(context: TaskContext, a: Tensor, b: Tensor) -> None:
    context.submit_last(nothing, read(a.block((0,))))
    context.submit(nothing, read(a.block((0,))))


def access_after_a_child(context: TaskContext, a: Tensor, b: Tensor) -> None:
    context.submit(put, write(b.block((0,))), args=(b.block((0,)), 1.0))
    context.get_buf_read(b.block((0,)))


def waits(context: TaskContext, a: Tensor, b: Tensor) -> None:
    ENGINE[0].wait()


def waits_for_a_task(context: TaskContext, a: Tensor, b: Tensor) -> None:
    context.task.wait()


ENGINE: list[Engine] = []
NESTED = {
    child_of_too_much: ("E0705", "but its parent task child_of_too_much#0 may only read it"),
    child_after_the_last: ("E0703", "submits a child after its last one"),
    access_after_a_child: ("E0705", "`read` of B[0] after a child was submitted that works on it"),
    waits: ("E0711", "a task's function calls `wait`"),
    waits_for_a_task: ("E0711", "a task's function waits for task waits_for_a_task#0"),
}


@pytest.mark.parametrize("fn", NESTED, ids=lambda fn: fn.__name__)
def test_what_a_task_must_not_do_with_others_is_its_error(fn: Any) -> None:
    code, said = NESTED[fn]
    a, b = vector(), vector("B")
    with Engine(debug=True) as engine:
        ENGINE[:] = [engine]
        task = engine.submit(fn, may_read(a), may_write(b), args=(a, b))
        refused("E0715", said, engine.wait)
        why = task.exception()
        assert isinstance(why, TExprError) and why.diagnostics[0].code == code


def broken(context: TaskContext, *args: Any) -> None:
    raise RuntimeError("on purpose")


def test_a_failure_spoils_what_the_task_could_have_written_and_stops_nothing_else(engine: Engine) -> None:
    a, b = vector(), vector("B")
    blocks = list(a.blocks())
    engine.submit(put, write(blocks[0]), args=(blocks[0], 1.0))
    failed = engine.submit(broken, may_read_write(a[1:3]), read(blocks[0]))
    needs = engine.submit(copy, read(blocks[1]), write(b.block((0,))), args=(blocks[1], b.block((0,))))
    further = engine.submit(add, accumulate(b.block((0,))), args=(b.block((0,)), 1.0))
    other = engine.submit(put, write(blocks[3]), args=(blocks[3], 4.0))
    again = engine.submit(put, write(blocks[2]), args=(blocks[2], 3.0))
    refused(
        "E0715", "task broken#1 failed: RuntimeError: on purpose; so did, or were cancelled, task copy#2", engine.wait
    )
    assert other.exception() is again.exception() is None
    assert isinstance(failed.exception(), RuntimeError)
    why = further.exception()
    assert isinstance(why, TExprError) and "task add#3: B[0] has no value" in str(why)
    assert why.__cause__ is needs.exception() and why.__cause__.__cause__ is failed.exception()
    engine.wait()
    refused("E0710", "A[1] has no value", lambda: engine.array(a))
    engine.submit(put, write(blocks[1]), args=(blocks[1], 2.0))
    assert numpy.array_equal(engine.array(a), numpy.repeat([1.0, 2.0, 3.0, 4.0], 4))


def test_no_more_tasks_are_ahead_than_may_be() -> None:
    a = vector()
    seen: list[int] = []

    def counts(context: TaskContext, engine: Engine) -> None:
        seen.append(engine.counters.submitted - engine.counters.finished)

    with Engine(1, ahead=8) as engine:
        for _ in range(200):
            engine.submit(counts, may_write(a), args=(engine,))
    assert len(seen) == 200 and max(seen) <= 8


def test_a_long_chain_is_cancelled_without_deep_calls() -> None:
    with Engine() as engine:
        a = vector(tiles=1)
        engine.submit(broken, write(a.block((0,))))
        last = [engine.submit(scale, read_write(a.block((0,))), args=(a.block((0,)), 2.0)) for _ in range(3000)][-1]
        with pytest.raises(TExprError, match="and 2992 more"):
            engine.wait()
        assert last.exception() is not None and engine.counters.cancelled == 3000


def undeclared(context: TaskContext, a: Tensor, b: Tensor) -> None:
    copy(context, a.block((0,)), b.block((0,)))
    add(context, b.block((0,)), 1.0)
    with context.get_buf_tmp(b.block((1,)), fill=2.0) as mine:
        mine.release_put()
    with context.get_buf_cread_write(b.block((1,))) as mine:
        mine.array[...] += 1
        mine.release_put(mine.array * 2)


def test_accesses_that_were_not_declared_are_fetched_counted_and_warned_about() -> None:
    a, b = vector(tiles=2), vector("B", 2)
    with Engine(**ENGINES["both"], debug=True) as engine:
        engine.submit(put, write(a.block((0,))), args=(a.block((0,)), 5.0))
        with pytest.warns(TExprWarning, match=r"W0701.*task undeclared#1: `read` of A\[0\] was not declared") as told:
            engine.submit(undeclared, may_read(a), may_read_write(b), args=(a, b))
            whole = engine.array(b)
        assert len(told) == 1 and told[0].filename == __file__
        assert engine.counters.undeclared == 4
        assert whole[:4].tolist() == [6.0] * 4 and whole[4:].tolist() == [6.0] * 4


def test_each_undeclared_access_is_told_at_its_line() -> None:
    def sums(context: TaskContext, block: Block) -> None:
        context.get_buf_accumulate(block).release_add()

    def changes(context: TaskContext, block: Block) -> None:
        context.get_buf_cread_write(block).release()

    for fn in (sums, changes):
        block = vector().block((0,))
        with pytest.warns(TExprWarning, match="was not declared") as told, Engine(1) as engine:
            for _ in range(3):
                engine.submit(fn, may_read_write(block), args=(block,))
        [warning] = told
        assert (warning.filename, warning.lineno) == (__file__, fn.__code__.co_firstlineno + 1)


def test_an_unbounded_sum_of_tasks_needs_no_more_than_the_bound() -> None:
    a, s = vector("A", 16), vector("S", 1)
    for policy in (ReadyQueue(), Affinity(), LeastTransfer()):
        s = vector("S", 1)
        with Engine({"a": 1, "b": 1}, memories={"a": 96, "b": 64}, policy=policy, debug=True) as engine:
            for _ in range(3):
                for block in a.blocks():
                    engine.submit(put, write(block), args=(block, float(block.number)))
                    engine.submit(total, read(block), accumulate(s.block((0,))), args=(block, s.block((0,))))
            assert engine.array(s).tolist() == [360.0] * 4
            nodes = engine._flow.holdings.nodes
            assert all(node.peak <= (node.bound or 0) and node.reserved == 0 for node in nodes[1:])
            assert engine.counters.transfers > 20


def test_a_task_that_no_memory_holds_is_refused() -> None:
    a = vector()
    with Engine({"small": 1}, memories={"small": 64}) as engine:
        accesses = [read(block) for block in a.blocks()][:3]
        refused(
            "E0712",
            "needs 96 bytes at node small, which is bound to 64: A[0], A[1], A[2]",
            lambda: engine.submit(broken, *accesses),
        )
        refused("E0712", "needs 96 bytes", lambda: engine.submit(broken, *accesses[:2], temp(a.block((3,)))))
        engine.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))

        def more(context: TaskContext) -> None:
            kept = [context.get_buf_tmp(block) for block in a.blocks()]
            assert not kept

        engine.submit(more, may_read(a))
        refused("E0715", "task more#1: no room for A[2], 32 bytes, at node small, which is bound to 64", engine.wait)
        assert engine.array(a)[0] == 1.0
        assert engine._flow.holdings.nodes[1].reserved == 0


def test_the_example_of_the_package_is_right() -> None:
    import itertools

    import texpr.tasks as package

    example = [line[4:] for line in (package.__doc__ or "").splitlines() if line[:4] == "    " or not line]
    program = "\n".join(example)
    rng = numpy.random.default_rng(0)
    scope: dict[str, Any] = {"a": rng.integers(-5, 5, (1000, 1000)) / 1.0, "b": rng.integers(-5, 5, (1000, 1000)) / 1.0}
    scope["itertools"] = itertools
    exec(program, scope)
    assert numpy.array_equal(scope["c"], scope["a"] @ scope["b"])


def test_the_program_of_the_guide_is_right() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")
    program = "\n".join(line[4:] for line in guide.partition("\n## ")[0].splitlines() if line[:4] == "    " or not line)
    scope: dict[str, Any] = {}
    exec(program, scope)
    assert numpy.array_equal(scope["c"], scope["a"] @ scope["b"])
