"""What ends an engine, or ends in it: deallocation, shutdown, exceptions, deadlocks, failed transfers, Ctrl-C."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy
import pytest
from test_engine import add, broken, copy, engine, nothing, put, vector
from test_tensors import refused

from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.engine import Engine
from texpr.runtime.tasks.nodes import MemoryNode
from texpr.runtime.tasks.permissions import accumulate, may_read, may_write, read, write
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.states import Op, Step
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Tensor

__all__ = ["engine"]  # the fixture


def test_a_tensor_that_was_deallocated_is_gone(engine: Engine) -> None:
    data = numpy.zeros(16)
    a, b = vector(), Tensor("B", (tiled(16, 4),), data=data)
    for block in (*a.blocks(), *b.blocks()):
        engine.submit(put, write(block), args=(block, 1.0))
    engine.deallocate(a)
    refused("E0703", "tensor A was deallocated", lambda: engine.submit(broken, may_read(a)))
    refused("E0703", "tensor A was deallocated", lambda: engine.array(a))
    assert engine.array(b).sum() == 16
    assert all(block.residency is None and block._home is None for block in a.known_blocks())


def test_an_engine_that_ended_takes_nothing_and_gives_its_tensors_free() -> None:
    a = vector()
    with Engine(1) as first, Engine(1) as second:
        first.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))
        refused("E0703", "tensor A belongs to another engine", lambda: second.submit(broken, may_read(a)))
        refused("E0703", "tensor A belongs to another engine", lambda: second.array(a))
        first.shutdown()
        first.shutdown()
        refused("E0711", "is submitted to an engine that is shut down", lambda: first.submit(broken, may_read(a)))
        second.submit(add, accumulate(a.block((0,))), args=(a.block((0,)), 1.0))
        assert second.array(a)[:4].tolist() == [2.0] * 4


def test_an_exception_drops_what_has_not_begun() -> None:
    before, begun, go = threading.active_count(), threading.Event(), threading.Event()
    a = vector()

    def slow(context: TaskContext) -> None:
        begun.set()
        go.wait()

    with pytest.raises(KeyboardInterrupt), Engine(1) as engine:
        running = engine.submit(slow, may_write(a))
        dropped = engine.submit(broken, may_write(a))
        begun.wait()
        threading.Timer(0.05, go.set).start()
        raise KeyboardInterrupt
    assert running.done and not dropped.done and dropped.exception() is None
    refused("E0711", "an engine that was aborted", lambda: engine.submit(broken))
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert threading.active_count() == before


def test_tasks_that_wait_for_ever_are_told() -> None:
    a, b = vector(), vector("B")
    with Engine(debug=True) as engine:
        flow = engine._flow
        engine.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))
        engine.wait()
        residency = flow.holdings.residency(a.block((0,)))
        with flow.lock.soon():
            flow.holdings.machine.request(residency, Op.WRITE, 0, "nobody")
        engine.submit(copy, read(a.block((0,))), write(b.block((0,))), args=(a.block((0,)), b.block((0,))))
        engine.submit(copy, read(b.block((0,))), write(b.block((1,))), args=(b.block((0,)), b.block((1,))))
        engine.submit(put, write(b.block((2,))), args=(b.block((2,)), 1.0))
        refused(
            "E0715", "task copy#1 waits for A[0], and nothing runs that it could wait for: task copy#1", engine.wait
        )
        with flow.lock.soon():
            flow.holdings.machine.cancel(residency, 0)
        assert engine.array(a)[0] == 1.0


WRONG_ENGINES: list[tuple[dict[str, Any], str]] = [
    ({"workers": 0}, "without workers"),
    ({"workers": -1}, "number of threads"),
    ({"workers": True}, "number of threads"),
    ({"workers": {"gpu": 1}}, "workers at 'gpu', which is no memory"),
    ({"workers": 1, "memories": {"home": 1}}, "a name but home"),
    ({"workers": 1, "memories": {"gpu": -1}}, "bytes or None"),
    ({"ahead": 0}, "a number of tasks is needed"),
]


@pytest.mark.parametrize(("options", "said"), WRONG_ENGINES)
def test_engines_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    refused("E0703", said, lambda: Engine(**options))


def test_what_is_no_function_is_no_task(engine: Engine) -> None:
    refused("E0703", "a task is a function, not a int", lambda: engine.submit(3))  # type: ignore[arg-type]  # on purpose


def test_a_transfer_that_fails_leaves_its_block_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = vector(tiles=2), vector("B", 2)

    carry = MemoryNode.carry

    def fails(node: MemoryNode, step: Step, *arrays: Any) -> None:
        if step is Step.GET:
            raise OSError("the memory is gone")
        carry(node, step, *arrays)

    monkeypatch.setattr(MemoryNode, "carry", fails)
    with Engine({"gpu": 1}, memories={"gpu": None}, debug=True) as engine:
        engine.submit(put, write(b.block((1,))), args=(b.block((1,)), 1.0))
        needs = engine.submit(copy, read(a.block((0,))), write(b.block((0,))), args=(a.block((0,)), b.block((0,))))
        refused("E0715", "task copy#1 failed: task copy#1: A[0] has no value", engine.wait)
        why = needs.exception()
        assert why is not None and isinstance(why.__cause__, OSError)
        engine.submit(put, write(b.block((0,))), args=(b.block((0,)), 2.0))
        assert engine.array(b).tolist() == [2.0] * 4 + [1.0] * 4


def test_what_did_not_fail_is_written_home_at_the_end() -> None:
    data = numpy.zeros(16)
    a = Tensor("A", (tiled(16, 4),), data=data)
    with pytest.raises(TExprError, match="E0715"), Engine({"gpu": 1}, memories={"gpu": None}) as engine:
        engine.submit(put, write(a.block((0,))), args=(a.block((0,)), 1.0))
        engine.submit(broken, write(a.block((1,))))
        engine.submit(put, write(a.block((2,))), args=(a.block((2,)), 3.0))
    assert data[:4].tolist() == [1.0] * 4 and data[8:12].tolist() == [3.0] * 4


class Elsewhere:
    """A policy that places the first task nowhere, and fails on the second one."""

    def place(self, task: Task, load: Mapping[int, int]) -> int:
        return 7 if task.number == 0 else load[7]


def test_a_policy_that_fails_fails_its_task() -> None:
    a = vector()
    with Engine({"home": 1, "gpu": 1}, memories={"gpu": None}, policy=Elsewhere(), debug=True) as engine:
        first, second = (engine.submit(put, write(b), args=(b, 1.0)) for b in list(a.blocks())[:2])
        refused("E0715", "task put#0: the policy places it at 7, not at one of [0, 1]", engine.wait)
        assert isinstance(second.exception(), KeyError) and first.exception() is not None
        assert engine.counters.finished == 2 and engine._flow.load == {0: 0, 1: 0}


def test_a_defect_in_a_thread_ends_the_engine_and_hangs_nobody() -> None:
    a, before = vector(), threading.active_count()
    with pytest.raises(InternalError, match="collapsed") as caught, Engine(2) as engine:

        def breaks(context: TaskContext) -> None:
            engine._flow._over = None  # type: ignore[assignment, method-assign]  # the defect

        engine.submit(breaks, may_write(a))
        last = engine.submit(nothing, may_write(a))
        assert not last.wait()
    assert isinstance(caught.value.__cause__, TypeError) and threading.active_count() == before


CTRL_C = """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits it as ignored
from texpr.tasks import Engine, Tensor, may_write, tiled

a = Tensor("A", (tiled(1, 1),))
begun = threading.Event()

def slow(context):
    if not begun.is_set():
        begun.set()
        print("begun", flush=True)
    time.sleep(0.01)

try:
    with Engine(2) as engine:
        for _ in range(100_000):
            engine.submit(slow, may_write(a))
except KeyboardInterrupt:
    print(threading.active_count(), engine.counters.finished < 100_000)
"""


def test_ctrl_c_ends_an_engine_and_its_threads() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (out, errors, process.returncode) == ("1 True\n", "", 0)
