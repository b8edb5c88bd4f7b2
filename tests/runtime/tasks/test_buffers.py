"""Buffers of a block: what each way of giving one back does, and what is refused, with task, tensor and block."""

import copy as copying
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from test_tensors import refused

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.buffers import Buffer
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
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.tensors import Block, Tensor

Body = Callable[[TaskContext, Block], Any]
MEMORIES: list[dict[str, Any]] = [{"workers": 1}, {"workers": {"gpu": 1}, "memories": {"gpu": 64}}]


def run(body: Body, *declare: Any, block: int = 0, **options: Any) -> list[float]:
    """The first elements of a tensor's blocks, 1 and 2 at first, after one task on one of them, which is the same in
    each kind of memory. Raises what the task did."""
    results = []
    for memory in MEMORIES:
        a = Tensor("A", (tiled(8, 4),), data=numpy.repeat([1.0, 2.0], 4))
        declared = [make(a.block((block,))) for make in declare]
        with Engine(**memory, debug=True, **options) as engine:
            engine.submit(body, *declared, args=(a.block((block,)),))
            try:
                whole = engine.array(a)
            except TExprError as failed:
                if failed.__cause__ is not None:
                    raise failed.__cause__ from None
                raise
            flow = engine._flow
            assert all(node.reserved == 0 for node in flow.holdings.nodes)
        results.append([float(whole[0]), float(whole[4])])
    assert results[0] == results[1]
    return results[0]


def test_what_is_written_or_added_is_the_block_s_value() -> None:
    def writes(context: TaskContext, block: Block) -> None:
        buffer = context.get_buf_write(block, fill=7.0)
        buffer.array[1:] = 0.0
        buffer.release_put()

    def changes(context: TaskContext, block: Block) -> None:
        buffer = context.get_buf_read_write(block)
        buffer.array[...] *= 5.0
        buffer.release_put()

    def adds(context: TaskContext, block: Block) -> None:
        buffer = context.get_buf_accumulate(block)
        buffer.array[...] += 3.0
        buffer.release_add()

    assert run(writes, write) == run(writes, may_write, write) == [7.0, 2.0]
    assert run(changes, read_write) == [5.0, 2.0]
    assert run(adds, accumulate, block=1) == run(adds, may_accumulate, accumulate, block=1) == [1.0, 5.0]


def test_cancellable_and_temp_buffers_touch_the_block_when_they_are_committed() -> None:
    def commits(get: str, end: str, value: float) -> Body:
        def body(context: TaskContext, block: Block) -> None:
            buffer = getattr(context, get)(block)
            buffer.array[...] = value if get != "get_buf_cread_write" else buffer.array * value
            getattr(buffer, end)()

        return body

    def cancellable(make: Any) -> Any:
        return lambda block: make(block, cancellable=True)

    for get, make, end in (
        ("get_buf_cwrite", write, "release_put"),
        ("get_buf_cread_write", read_write, "release_put"),
        ("get_buf_caccumulate", accumulate, "release_add"),
    ):
        kept = {"release_put": 9.0, "release_add": 10.0}[end]
        assert run(commits(get, end, 9.0), cancellable(make)) == [kept, 2.0]
        assert run(commits(get, "release", 9.0), cancellable(make)) == [1.0, 2.0]
        assert run(commits(get, "cancel", 9.0), cancellable(make)) == [1.0, 2.0]
    assert run(commits("get_buf_tmp", "release_put", 4.0), temp, may_write) == [4.0, 2.0]
    assert run(commits("get_buf_tmp", "release_add", 4.0), temp, may_accumulate) == [5.0, 2.0]
    assert run(commits("get_buf_tmp", "release", 4.0), temp) == [1.0, 2.0]


def test_a_commit_may_come_from_any_copy_of_a_cancellable_buffer() -> None:
    def better(context: TaskContext, block: Block) -> None:
        buffer = context.get_buf_cread_write(block)
        tries = [copying.copy(buffer), copying.deepcopy(buffer), buffer.copy()]
        for k, one in enumerate(tries):
            one.array[...] += k
        tries[2].release_put()
        refused("E0706", "the buffer of A[0] is used after its `release_put`", tries[0].release_put)
        refused("E0706", "the buffer of A[0] is used after its `release_put`", lambda: buffer.array)

    def another(context: TaskContext, block: Block) -> None:
        buffer = context.get_buf_cwrite(block)
        refused("E0708", "an array float64[3] is no copy of it", lambda: buffer.release_put(numpy.zeros(3)))
        refused("E0708", "an array float32[4] is no copy of it", lambda: buffer.release_put(numpy.zeros(4, "f4")))
        buffer.release_put(numpy.full(4, 6.0))

    assert run(better, lambda b: read_write(b, cancellable=True)) == [3.0, 2.0]
    assert run(another, lambda b: write(b, cancellable=True)) == [6.0, 2.0]


def test_two_tasks_that_commit_into_each_other_s_blocks_do_not_wait_for_each_other() -> None:
    a = Tensor("A", (tiled(8, 4),))

    def both(context: TaskContext, mine: Block, other: Block) -> None:
        with context.get_buf_accumulate(mine) as buffer:
            with context.get_buf_tmp(other, fill=1.0) as also:
                also.release_add()
            buffer.array[...] += 2.0
            buffer.release_add()

    with Engine(2, debug=True) as engine:
        first, second = a.blocks()
        for _ in range(50):
            engine.submit(both, accumulate(first), may_accumulate(a), args=(first, second))
            engine.submit(both, accumulate(second), may_accumulate(a), args=(second, first))
        assert engine.array(a).tolist() == [150.0] * 8


def test_buffers_are_arrays_without_copies() -> None:
    def views(context: TaskContext, block: Block) -> None:
        with context.get_buf_read_write(block) as buffer:
            assert numpy.shares_memory(numpy.asarray(buffer), buffer.array)
            assert numpy.shares_memory(numpy.from_dlpack(buffer), buffer.array)
            assert context.node != 0 or numpy.shares_memory(buffer.array, block.home)
            assert not numpy.shares_memory(numpy.array(buffer, copy=True), buffer.array)
            numpy.from_dlpack(buffer)[...] = 8.0
            buffer.release_put()

    assert run(views, read_write) == [8.0, 2.0]


def test_what_is_read_cannot_be_written() -> None:
    def reads(context: TaskContext, block: Block) -> None:
        with context.get_buf_read(block) as buffer:
            with pytest.raises(ValueError, match="read-only"):
                buffer.array[...] = 0.0
            mine = buffer.copy()
            mine.array[...] = 0.0
            mine.release()
            assert buffer.array[0] == 1.0

    assert run(reads, read) == [1.0, 2.0]


def test_an_access_that_is_not_wanted_is_undone() -> None:
    def gives_up(context: TaskContext, block: Block) -> None:
        context.cancel(block)
        refused("E0703", "cancels its access to A[0], which it does not hold", lambda: context.cancel(block))

    def forgets(context: TaskContext, block: Block) -> None:
        pass

    for body in (gives_up, forgets):
        for make in (read, write, read_write, accumulate):
            assert run(body, make) == [1.0, 2.0]


def test_a_late_cancel_leaves_the_block_without_a_value_until_it_is_written() -> None:
    def late(context: TaskContext, block: Block) -> None:
        context.get_buf_accumulate(block).cancel()

    def mends(context: TaskContext, block: Block) -> None:
        with context.get_buf_write(block, fill=3.0) as buffer:
            buffer.release_put()

    with pytest.raises(TExprError, match=r"E0710.*A\[0\] has no value") as caught:
        run(late, accumulate)
    assert caught.value.diagnostics[0].message.endswith("task late#0 gave it up after it had begun")
    a = Tensor("A", (tiled(4, 4),))
    for memory in MEMORIES:
        with Engine(**memory, debug=True) as engine:
            engine.submit(late, accumulate(a.block((0,))), args=(a.block((0,)),))
            reader = engine.submit(late, accumulate(a.block((0,))), args=(a.block((0,)),))
            engine.submit(mends, write(a.block((0,))), args=(a.block((0,)),))
            refused("E0715", "task late#1 failed: task late#1: A[0] has no value", engine.wait)
            assert engine.counters.cancelled == 1 and reader.exception() is not None
            assert engine.array(a).tolist() == [3.0] * 4


def test_no_destructor_has_an_effect() -> None:
    def drops(context: TaskContext, block: Block) -> None:
        context.get_buf_cwrite(block, fill=5.0)
        assert not hasattr(Buffer, "__del__")
        buffer = context.get_buf_tmp(block)
        del buffer
        context.get_buf_cwrite(block).release()

    with pytest.raises(TExprError, match="E0707"):
        run(drops, lambda b: write(b, cancellable=True))


def raises(context: TaskContext, block: Block) -> None:
    with context.get_buf_write(block):
        raise RuntimeError("on purpose")


def test_an_exception_in_a_with_gives_the_buffer_up() -> None:
    with pytest.raises(RuntimeError, match="on purpose"):
        run(raises, write)


def test_a_buffer_is_of_no_use_after_its_task() -> None:
    kept: list[Any] = []

    def body(context: TaskContext, block: Block) -> None:
        kept[:] = [context, context.get_buf_read(block), context.get_buf_tmp(block), block]

    assert run(body, may_read, read) == [1.0, 2.0]
    context, values, mine, block = kept
    refused("E0706", "task body#0: the buffer of A[0] is used after its `release`", lambda: values.array)
    refused("E0706", "used after its `release`", mine.release_put)
    refused("E0706", "task body#0 asks for a buffer after its end", lambda: context.get_buf_tmp(block))
    refused("E0711", "task body#0 is over, and cannot submit children", lambda: context.submit(body))


def test_zero_blocks_read_as_zeros_and_take_nothing() -> None:
    a = Tensor("A", (tiled(8, 4),), zero=lambda i: i == 1)
    zero = a.block((1,))

    def reads(context: TaskContext) -> None:
        with context.get_buf_read(zero) as buffer:
            assert not buffer.array.any()

    def writes_zero(context: TaskContext) -> None:
        context.get_buf_write(zero)

    def commits_zero(context: TaskContext) -> None:
        context.get_buf_tmp(zero, fill=1.0).release_put()

    for memory in MEMORIES:
        with Engine(**memory, debug=True) as engine:
            engine.submit(reads, read(zero))
            engine.wait()
            engine.submit(writes_zero, may_write(a))
            refused("E0715", "task writes_zero#1: `write` of A[1], which is a zero block", engine.wait)
            engine.submit(commits_zero, may_write(a))
            refused("E0715", "`release_put` of A[1], which is a zero block", engine.wait)
            for fn in (writes_zero, commits_zero):
                task = engine.submit(fn, may_write(a))
                task.wait()
                why = task.exception()
                assert isinstance(why, TExprError) and why.diagnostics[0].code == "E0709"
            with pytest.raises(TExprError):
                engine.wait()


def test_strict_engines_find_reads_before_writes_under_a_write_permission() -> None:
    def reads_first(context: TaskContext, block: Block) -> None:
        context.get_buf_read(block)

    def writes_first(context: TaskContext, block: Block) -> None:
        with context.get_buf_write(block, fill=6.0) as buffer:
            buffer.release_put()
        with context.get_buf_read(block) as buffer:
            assert buffer.array[0] == 6.0

    assert run(reads_first, may_write) == [1.0, 2.0]
    refused(
        "E0713",
        "task reads_first#0: `read` of A[0], which it may only write, and has not written",
        lambda: run(reads_first, may_write, strict=True),
    )
    refused("E0713", "`read` of A[0]", lambda: run(reads_first, may_write, read, strict=True))
    refused("E0713", "`read_write` of A[0]", lambda: run(lambda c, b: c.get_buf_read_write(b), may_write, strict=True))
    assert run(writes_first, may_write, strict=True) == [6.0, 2.0]
    assert run(reads_first, may_read_write, strict=True) == [1.0, 2.0]
