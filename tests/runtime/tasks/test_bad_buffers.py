"""What a task must not do with its buffers: each its own error, with task, tensor and block."""

import copy as copying
from typing import Any

import pytest
from test_buffers import Body, run
from test_tensors import refused

from texpr.runtime.tasks.buffers import Buffer
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.permissions import accumulate, may_accumulate, may_read, read, read_write, temp, write
from texpr.runtime.tasks.tensors import Block


def taken(context: TaskContext, block: Block) -> Buffer:
    return context.get_buf_read_write(block)


def leaves(context: TaskContext, block: Block) -> None:
    with context.get_buf_write(block):
        pass


def leaves_a_sum(context: TaskContext, block: Block) -> None:
    with context.get_buf_caccumulate(block):
        pass


def keeps(context: TaskContext, block: Block) -> None:
    context.get_buf_accumulate(block)


def twice(context: TaskContext, block: Block) -> None:
    buffer = taken(context, block)
    buffer.release_put()
    buffer.release_put()


def reads_twice(context: TaskContext, block: Block) -> None:
    buffer = context.get_buf_read(block)
    buffer.release()
    buffer.release()


def writes_after(context: TaskContext, block: Block) -> None:
    buffer = taken(context, block)
    buffer.release_put()
    buffer.array[...] = 0.0


def asks_twice(context: TaskContext, block: Block) -> None:
    with context.get_buf_read(block):
        context.get_buf_read(block)


def commits_a_copy(context: TaskContext, block: Block) -> None:
    copying.deepcopy(taken(context, block)).release_put()


def commits_an_array(context: TaskContext, block: Block) -> None:
    buffer = taken(context, block)
    buffer.release_put(buffer.array.copy())


def releases_a_writer(context: TaskContext, block: Block) -> None:
    taken(context, block).release()


def puts_a_sum(context: TaskContext, block: Block) -> None:
    context.get_buf_accumulate(block).release_put()


def adds_a_write(context: TaskContext, block: Block) -> None:
    taken(context, block).release_add()


def puts_a_read(context: TaskContext, block: Block) -> None:
    context.get_buf_read(block).release_put()


def puts_a_temp(context: TaskContext, block: Block) -> None:
    context.get_buf_tmp(block).release_put()


def writes(context: TaskContext, block: Block) -> None:
    context.get_buf_write(block)


def reads_all(context: TaskContext, block: Block) -> None:
    context.get_buf_read(block.tensor)  # type: ignore[arg-type]  # on purpose


def asks_otherwise(context: TaskContext, block: Block) -> None:
    context.get_buf_cwrite(block)


def reads_other(context: TaskContext, block: Block) -> None:
    context.get_buf_read(block.tensor.block((1,)))


WRONG: list[tuple[Body, Any, str, str]] = [
    (leaves, write, "E0707", "task leaves#0 leaves its write buffer of A[0] without a decision"),
    (leaves_a_sum, may_accumulate, "E0707", "leaves its accumulate buffer of A[0] without a decision"),
    (keeps, accumulate, "E0707", "task keeps#0 leaves its accumulate buffer of A[0] without a decision"),
    (twice, read_write, "E0706", "task twice#0: the buffer of A[0] is used after its `release_put`"),
    (reads_twice, read, "E0706", "the buffer of A[0] is used after its `release`"),
    (writes_after, read_write, "E0706", "the buffer of A[0] is used after its `release_put`"),
    (asks_twice, read, "E0706", "asks for A[0] a second time, and still has a buffer of it"),
    (commits_a_copy, read_write, "E0708", "task commits_a_copy#0: the read_write buffer of A[0]: a copy of it cannot"),
    (commits_an_array, read_write, "E0708", "a copy of it cannot be committed"),
    (releases_a_writer, read_write, "E0708", "`release` would leave it half changed"),
    (puts_a_sum, accumulate, "E0708", "the accumulate buffer of A[0]: `release_put` is not for it"),
    (adds_a_write, read_write, "E0708", "the read_write buffer of A[0]: `release_add` is not for it"),
    (puts_a_read, read, "E0708", "the read buffer of A[0]: `release_put` is not for it"),
    (puts_a_temp, may_accumulate, "E0704", "`release_put` of A[0], but the task may only accumulate into it"),
    (puts_a_temp, temp, "E0704", "`release_put` of A[0], but the task has no permission on it"),
    (writes, read, "E0704", "task writes#0: `write` of A[0], but the task may only read it"),
    (reads_other, read, "E0704", "task reads_other#0: `read` of A[1], but the task has no permission on it"),
    (reads_all, may_read, "E0703", "a buffer is of one block, not of Tensor(A"),
    (asks_otherwise, write, "E0703", "declares `write` of A[0], and asks for another buffer"),
]


@pytest.mark.parametrize(("body", "make", "code", "said"), WRONG, ids=lambda v: getattr(v, "__name__", None))
def test_what_a_task_must_not_do_with_a_buffer_is_its_error(body: Body, make: Any, code: str, said: str) -> None:
    refused(code, said, lambda: run(body, make))
