"""Threads: workers, which run tasks and commits at one memory, and copiers, which make its transfers."""

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy

from texpr.grammar.diagnostics import InternalError
from texpr.runtime.tasks.residency import HOME, Transfer
from texpr.runtime.tasks.states import Op
from texpr.runtime.tasks.task import Task, no_value
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
                if flow.ranks is not None and flow.ranks.transfers.sends(self):
                    return  # the transport does it, and tells the flow
                home = flow.services.take(self.block, HOME)
                if self.op is Op.WRITE:
                    numpy.copyto(home, self.values)
                else:
                    numpy.add(home, self.values, out=home)
            except BaseException as why:  # it is the task's error
                error = why
        self.over(flow, error)

    def over(self, flow: "Flow", error: BaseException | None) -> None:
        """The values have reached their block, or not."""
        task = self.task
        with flow.lock.soon():
            residency = flow.holdings.residency(self.block)
            if self.refused:
                error = no_value(task, self.block)
            elif error is None:
                flow.machine.release(residency, HOME)
            else:
                flow.machine.cancel(residency, HOME, error)
            task.error = task.error if task.error is not None else error
            flow.ending.append(task)
            flow.settle()
            if self.queued:
                flow.idle()


class Crew:
    """All threads of an engine."""

    def __init__(self, flow: "Flow", workers: Sequence[int]) -> None:
        self._flow = flow
        self._jobs: list[SimpleQueue[Task | Commit | None]] = [SimpleQueue() for _ in workers]
        nodes = flow.holdings.nodes
        self._lanes = [nodes[node].copiers if node != HOME else () for node in range(len(workers))]
        self._transfers: list[list[SimpleQueue[Transfer | None]]] = [[SimpleQueue() for _ in n] for n in self._lanes]
        self._threads: list[threading.Thread] = []
        self.names: list[tuple[int, str]] = []  # the node and the name of each thread
        for node, count in enumerate(workers):
            for k in range(count):
                self._spawn(self._work, node, f"texpr-worker-{node}.{k}")
            lanes = [lane for lane, copiers in enumerate(self._lanes[node]) for _ in range(copiers)]
            for k, lane in enumerate(lanes):
                self._spawn(self._copy, node, f"texpr-copier-{node}.{k}", lane)
        self._counts = list(workers)
        self._mine = {thread.ident for thread in self._threads}

    def _spawn(self, loop: Any, node: int, name: str, *lane: int) -> None:
        thread = threading.Thread(target=self._guarded, args=(loop, node, *lane), name=name, daemon=True)
        self._threads.append(thread)
        self.names.append((node, name))
        thread.start()

    def give(self, node: int, job: Task | Commit) -> None:
        self._jobs[node].put(job)

    def move(self, transfer: Transfer) -> None:
        if self._flow.ranks is None or not self._flow.ranks.transfers.carries(transfer):
            self.copy(transfer)

    def copy(self, transfer: Transfer) -> None:
        """A copier of the node makes the transfer, or its part on this host."""
        lane = self._flow.holdings.nodes[transfer.node].lane(transfer.step)
        self._transfers[transfer.node][lane].put(transfer)

    def is_mine(self, thread: int) -> bool:
        return thread in self._mine

    def end(self) -> None:
        """Every thread ends after what it is doing; what is still in the queues is dropped."""
        for node, count in enumerate(self._counts):
            queues: list[SimpleQueue[Any]] = [self._jobs[node], *self._transfers[node]]
            for queue in queues:
                while not queue.empty():
                    queue.get_nowait()
            for _ in range(count):
                self._jobs[node].put(None)
            for transfers, copiers in zip(self._transfers[node], self._lanes[node], strict=True):
                for _ in range(copiers):
                    transfers.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _guarded(self, loop: Any, *where: int) -> None:
        try:
            loop(*where)
        except BaseException as why:  # functions and transfers are caught elsewhere: this is a defect of ours
            told = InternalError("the engine collapsed")
            told.__cause__ = why
            with self._flow.lock.soon():
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

    def _copy(self, node: int, lane: int) -> None:
        self._flow.holdings.nodes[node].enter(copies=True)
        get = self._transfers[node][lane].get
        while (transfer := get()) is not None:
            error: BaseException | None = None
            try:
                self._flow.carry(transfer)
                if self._flow.ranks is not None and self._flow.ranks.transfers.takes(transfer):
                    continue
            except BaseException as why:  # the block has no value then
                error = why
            self._flow.carried(transfer, error)
            del transfer
