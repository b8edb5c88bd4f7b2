"""Threads: workers, which run tasks and commits at one memory, and copiers, which make its transfers."""

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy

from texpr.grammar.diagnostics import InternalError
from texpr.runtime.tasks.residency import HOME, Transfer
from texpr.runtime.tasks.states import Op
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


class Commit:
    """Values that go to a block at home. `queued`: it waited for that, and a worker makes it; `refused`: in vain."""

    __slots__ = ("block", "op", "queued", "refused", "task", "values")

    def __init__(self, task: Task, block: Block, op: Op, values: Any) -> None:
        self.task, self.block, self.op, self.values = task, block, op, values
        self.queued, self.refused = True, False

    def run(self, flow: "Flow") -> None:
        error: BaseException | None = None
        if not self.refused:
            try:
                if flow.ranks is not None and flow.ranks.sends(self):
                    return  # the transport does it, and tells the flow
                home = flow.services.take(self.block, HOME)
                if self.op is Op.WRITE:
                    numpy.copyto(home, self.values)
                else:
                    numpy.add(home, self.values, out=home)
            except BaseException as why:  # it is the task's error
                error = why
        flow.committed(self, error)


class Crew:
    """All threads of an engine."""

    def __init__(self, flow: "Flow", workers: Sequence[int]) -> None:
        self._flow = flow
        self._jobs: list[SimpleQueue[Task | Commit | None]] = [SimpleQueue() for _ in workers]
        self._transfers: list[SimpleQueue[Transfer | None]] = [SimpleQueue() for _ in workers]
        self._threads: list[threading.Thread] = []
        self.names: list[tuple[int, str]] = []  # the node and the name of each thread
        for node, count in enumerate(workers):
            for k in range(count):
                self._spawn(self._work, node, f"texpr-worker-{node}.{k}")
            for k in range(self._copiers(node)):
                self._spawn(self._copy, node, f"texpr-copier-{node}.{k}")
        self._counts = list(workers)
        self._mine = {thread.ident for thread in self._threads}

    def _spawn(self, loop: Any, node: int, name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=(loop, node), name=name, daemon=True)
        self._threads.append(thread)
        self.names.append((node, name))
        thread.start()

    def _copiers(self, node: int) -> int:
        return self._flow.holdings.nodes[node].copiers if node != HOME else 0

    def give(self, node: int, job: Task | Commit) -> None:
        self._jobs[node].put(job)

    def move(self, transfer: Transfer) -> None:
        if self._flow.ranks is None or not self._flow.ranks.carries(transfer):
            self._transfers[transfer.node].put(transfer)

    def is_mine(self, thread: int) -> bool:
        return thread in self._mine

    def end(self) -> None:
        """Every thread ends after what it is doing; what is still in the queues is dropped."""
        for node, count in enumerate(self._counts):
            for queue in (self._jobs[node], self._transfers[node]):
                while not queue.empty():
                    queue.get_nowait()
            for _ in range(count):
                self._jobs[node].put(None)
            for _ in range(self._copiers(node)):
                self._transfers[node].put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _guarded(self, loop: Any, node: int) -> None:
        try:
            loop(node)
        except BaseException as why:  # functions and transfers are caught elsewhere: this is a defect of ours
            told = InternalError("the engine collapsed")
            told.__cause__ = why
            with self._flow.lock:
                self._flow.collapse(told)

    def _work(self, node: int) -> None:
        self._flow.holdings.nodes[node].enter()
        get, run = self._jobs[node].get, self._flow.run
        while (job := get()) is not None:
            if type(job) is Task:
                following: Task | None = job
                while following is not None:
                    following = run(following)
                del following
            else:
                job.run(self._flow)  # type: ignore[union-attr]  # a commit
            del job

    def _copy(self, node: int) -> None:
        self._flow.holdings.nodes[node].enter()
        get = self._transfers[node].get
        while (transfer := get()) is not None:
            error: BaseException | None = None
            try:
                self._flow.carry(transfer)
            except BaseException as why:  # the block has no value then
                error = why
            self._flow.carried(transfer, error)
            del transfer
