"""The engine: memories and worker threads, to which tasks are submitted.

    with Engine(workers=2) as engine:
        engine.submit(gemm, read(A[0, 1]), read(B[1, 0]), accumulate(C[0, 0]))
        total = engine.array(C)                 # waits for all tasks

Functions of tasks are called as `fn(context, *args)`, and never wait for other tasks (E0711).
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.distributions import Placement, owner
from texpr.runtime.tasks.drafts import draft
from texpr.runtime.tasks.elsewhere import Failed, said
from texpr.runtime.tasks.flow import Flow
from texpr.runtime.tasks.functions import FunctionDefinition
from texpr.runtime.tasks.gather import gather
from texpr.runtime.tasks.holdings import Bound
from texpr.runtime.tasks.permissions import may_write
from texpr.runtime.tasks.policies import Policy, ReadyQueue
from texpr.runtime.tasks.residency import Outcome
from texpr.runtime.tasks.spaces import is_count
from texpr.runtime.tasks.task import MAX_TOLD, Counters, Phase, Task
from texpr.runtime.tasks.tensors import GONE, Tensor, foreign
from texpr.runtime.transport.interface import Transport

if TYPE_CHECKING:
    from texpr.runtime.tracing.progress import Progress
    from texpr.runtime.tracing.recorder import Recorder


class Engine:
    """Runs tasks. Its `with` waits for all of them at the end, or drops them where an exception leaves it."""

    def __init__(
        self,
        workers: int | Mapping[str, int] = 2,
        *,
        memories: Mapping[str, Bound] | None = None,
        policy: Policy | None = None,
        ahead: int = 10_000,
        strict: bool = False,
        debug: bool = False,
        trace: str | Path | None = None,
        progress: bool = False,
        transport: Transport | None = None,
        placement: Placement = owner,
    ) -> None:
        """`workers` counts threads at home, or for each memory by name. `memories` names those beside "home", each with
        its bound in bytes or None, or a GPU as `gpu(0, bound=…)`. `submit` waits while `ahead` tasks are not over.
        `strict` refuses reads before writes under write permissions (E0713); `debug` checks invariants at every step.
        `trace` names a file, which has all that happened when the engine has ended: Perfetto opens it, `texpr trace
        FILE` sums it up. `progress` shows a bar on a terminal. Raises E0703, E0606 for a file that cannot be written,
        and E0503 or E0717 for a GPU that cannot be used.

        `transport` joins this engine to those of other ranks (`ranks`), which make the same calls of `submit`, `wait`,
        `array`, `deallocate` and `shutdown` in the same order; `placement(task, ranks)` says at which rank a task runs.
        What such an engine has of blocks at other ranks is in a memory "remote", which may have a bound, too. Later
        E0726 is raised where the ranks' calls differ, and E0727 where a rank is lost."""
        further = dict(memories or {})
        crews = dict(workers) if isinstance(workers, Mapping) else {"home": workers}
        if transport is not None and transport.size > 1:
            if crews.get("remote"):
                raise fail("E0703", "workers at 'remote', which is what other workers have of other ranks' blocks")
            further = {"remote": further.pop("remote", None), **further}
        for name, bound in further.items():
            if name == "home" or not (bound is None or is_count(bound) or hasattr(bound, "open")):
                said = f"memory {name!r} with bound {bound!r}: a name but home, and bytes or None, or `gpu(0)`"
                raise fail("E0703", said)
        for name, count in crews.items():
            if name != "home" and name not in further:
                raise fail("E0703", f"workers at {name!r}, which is no memory", help="name it in `memories`")
            if not is_count(count):
                raise fail("E0703", f"{count!r} workers at {name}: a number of threads is needed")
        if not is_count(ahead) or ahead == 0:
            raise fail("E0703", f"ahead = {ahead!r}: a number of tasks is needed")
        if not any(crews.values()):
            raise fail("E0703", "an engine without workers runs no task")
        threads = [crews.get(name, 0) for name in ("home", *further)]
        self._ended = False
        self._recorder = None if trace is None else _recorder(trace, transport)
        self._progress = _progress() if progress else None
        options = (list(further.items()), threads, policy or ReadyQueue(), ahead, strict, debug, transport, placement)
        self._flow = Flow(*options) if self._recorder is None else _traced(self._recorder, *options)
        if self._flow.ranks is not None:
            self._flow.ranks.open()
        if self._progress is not None:
            self._progress.follow(self._flow.counters)

    @property
    def counters(self) -> Counters:
        return self._flow.counters

    def submit(self, fn: Any, *declared: Any, args: Sequence[Any] = (), **named: Any) -> Task:
        """Submit `fn(context, *args)` with its permissions and accesses. It runs when what it needs is there.

        A compiled kernel is submitted as it is called, with blocks for arrays: `submit(gemm, A[0, 1], B[1, 0], C[0, 0],
        alpha=2.0)`; its accesses follow from its manifest. `fn` may be a `FunctionDefinition`, too.

        Raises E0703 and E0704 for declarations that are wrong, E0711 after the end, E0712 for a task that no memory can
        hold, E0716 for a function that no worker can run, E0601 to E0603 for arguments that a kernel does not take."""
        return self._flow.submit(None, draft(self._flow, None, fn, declared, args, named), False)

    def deallocate(self, tensor: Tensor) -> Task:
        """Give up a tensor's memory after all tasks that were submitted so far; later ones cannot use it (E0703)."""

        flow = self._flow

        def deallocated(context: TaskContext) -> None:
            if flow.ranks is None:
                with flow.lock.soon():
                    flow.forget(tensor)

        if flow.ranks is not None:
            flow.ranks.adopt([tensor])
            flow.ranks.drop(tensor)
        task = self.submit(FunctionDefinition(cpu=deallocated, cuda=deallocated), may_write(tensor))
        tensor.owner = GONE
        return task

    # waiting

    def wait(self) -> None:
        """Wait until all tasks are over. Raises E0715 for those that failed since the last time."""
        self._wait("wait")

    def _wait(self, what: str) -> None:
        flow = self._flow
        self._outside(what)
        with flow.lock.soon():
            if flow.ranks is not None and flow.closed is None:
                flow.ranks.note(what, mark=True)
            flow.watchers += 1
            try:
                while flow.unfinished and flow.closed is None:
                    flow.progress.wait()
            finally:
                flow.watchers -= 1
            failures, flow.failures = flow.failures, []
        flow.check_sound()
        if failures:
            raise _told(failures)

    def array(self, tensor: Tensor) -> Any:
        """A tensor's values as one NumPy array, once all tasks are over. Raises what `wait` does, and E0710 where a
        block has none."""
        self._check_own(tensor)
        self._wait(f"array {tensor.name}")
        self.flush(tensor)
        for block in tensor.known_blocks():
            if block.residency is not None and block.residency.spoilt is not None:
                raise fail("E0710", f"{block} has no value") from block.residency.spoilt
        return tensor.at_home() if self._flow.ranks is None else gather(self._flow.ranks, tensor)

    def flush(self, tensor: Tensor) -> None:
        """Write home what other memories have of a tensor, and wait for it."""
        self._outside("flush")
        self._check_own(tensor)
        flow, waiter = self._flow, _Flush()
        with flow.lock.soon():
            known = [block.residency for block in tensor.known_blocks() if block.residency is not None]
            waiter.left = sum(flow.holdings.flush(residency, waiter) for residency in known)
            if not waiter.left:
                return
            flow.waiters[waiter] = None
            flow.settle()
        waiter.over.wait()

    def _check_own(self, tensor: Tensor) -> None:
        """E0703 for a tensor whose values are not this engine's to give."""
        if tensor.owner is not None and tensor.owner is not self._flow:
            raise foreign(f"tensor {tensor.name}", tensor)

    def _outside(self, what: str) -> None:
        if self._flow.crew.is_mine(threading.get_ident()):
            said = f"a task's function calls `{what}`, and would wait for itself"
            raise fail("E0711", said, help="submit what follows as a child")

    # the end

    def shutdown(self) -> None:
        """Wait for all tasks, write home what other memories have, and end the threads. Raises what `wait` does."""
        failed: TExprError | None = None
        try:
            try:
                self._wait("shutdown")
            except TExprError as why:  # what did not fail is written home all the same
                failed = why
            if self._flow.closed is None:
                for tensor in list(self._flow.tensors):
                    self.flush(tensor)
        finally:
            self._close("is shut down")
        self._flow.check_sound()
        if failed is not None:
            raise failed

    def abort(self) -> None:
        """End at once: tasks that run are waited for, all others are dropped."""
        self._abort("it was aborted")

    def _abort(self, why: str) -> None:
        self._outside("abort")
        if self._flow.ranks is not None:
            self._flow.ranks.leave(why)
        self._close("was aborted")

    def _close(self, how: str) -> None:
        flow = self._flow
        with flow.lock.soon():
            flow.closed = flow.closed or how
            flow.wake()
        if self._ended:
            return
        self._ended = True
        flow.crew.end()
        flow.holdings.close()
        if flow.ranks is not None:
            flow.ranks.end()
        with flow.lock.soon():
            for tensor in flow.tensors:
                for block in tensor.known_blocks():
                    block.residency = None
                if tensor.owner is flow:
                    tensor.owner = None
            flow.tensors.clear()
        if self._progress is not None:
            self._progress.end()
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            from texpr.runtime.tracing.trace_file import write_trace

            write_trace(recorder, [node.name for node in flow.holdings.nodes], flow.crew.names)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if why is None:
            self.shutdown()
        else:
            self._abort(said(why))


class _Flush:
    """Somebody waits for `left` buffers to be written home."""

    def __init__(self) -> None:
        self.left = 0
        self.over = threading.Event()

    def answer(self, outcome: Outcome) -> bool:
        """One more of them is; whether that was the last one. REFUSED: the engine ends, and none will be."""
        self.left -= 1
        last = self.left == 0 or outcome is Outcome.REFUSED
        if last:
            self.over.set()
        return last


def _recorder(path: str | Path, transport: Transport | None) -> "Recorder":
    """Of several ranks each has a file: `run.json` is `run.0.json` and so on."""
    from texpr.runtime.tracing.recorder import Recorder

    if transport is not None and transport.size > 1:
        path = Path(path).with_suffix(f".{transport.rank}{Path(path).suffix}")
    return Recorder(path)


def _traced(recorder: "Recorder", *options: Any) -> Flow:
    from texpr.runtime.tracing.traced import TracedFlow

    return TracedFlow(recorder, *options)


def _progress() -> "Progress":
    from texpr.runtime.tracing.progress import Progress

    return Progress()


def _told(failures: list[Task | Failed]) -> TExprError:
    """E0715 for tasks that failed, with the first one's error as the cause."""
    first = next((task for task in failures if task.phase is Phase.FAILED), failures[0])
    others = [str(task) for task in failures if task is not first]
    why = first.error
    said = why.diagnostics[0].message if isinstance(why, TExprError) else f"{type(why).__name__}: {why}"
    more = f" and {len(others) - MAX_TOLD} more" if len(others) > MAX_TOLD else ""
    rest = f"; so did, or were cancelled, {', '.join(others[:MAX_TOLD])}{more}" if others else ""
    told = fail("E0715", f"{first} failed: {said[:500]}{rest}")
    told.__cause__ = why
    return told
