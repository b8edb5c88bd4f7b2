"""What running tasks ask of their engine: buffers that they did not declare, more memory, commits. All but the values
themselves is done under the engine's lock."""

import threading
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.residency import HOME, Outcome
from texpr.runtime.tasks.states import Op
from texpr.runtime.tasks.task import Task, no_value
from texpr.runtime.tasks.tensors import Block
from texpr.runtime.tasks.workers import Commit

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


class Waiter:
    """A task's function that waits for a buffer it did not declare."""

    __slots__ = ("outcome", "there")

    def __init__(self) -> None:
        self.there = threading.Event()
        self.outcome = Outcome.WAITING

    def answer(self, outcome: Outcome) -> bool:
        """It is there, or will not be; whether nothing more is waited for."""
        self.outcome = outcome
        self.there.set()
        return True


class Services:
    """What the contexts of a flow's tasks call."""

    def __init__(self, flow: "Flow") -> None:
        self.flow = flow
        self._holdings, self._machine = flow.holdings, flow.machine
        self._warned: set[Any] = set()

    def request(self, task: Task, block: Block, op: Op, waiter: Waiter) -> Outcome:
        """A block that a running task did not declare. Raises E0712."""
        with self.flow.lock.soon():
            residency = self._holdings.residency(block)
            while not self._holdings.admit(task, residency, op):
                self._starve(task, block)
            outcome = self._machine.request(residency, op, task.node or residency.places[op], waiter)
            if outcome is Outcome.WAITING:
                self.flow.waiters[waiter] = None
                if self.flow.closed is not None:
                    self.flow.wake()
            self.flow.settle()
            return outcome

    def lend(self, task: Task, block: Block) -> None:
        """Memory of a task's own, of a block's size, that was not promised to it. Raises E0712."""
        with self.flow.lock.soon():
            while not self._holdings.lend(task, block.size_bytes):
                self._starve(task, block)
            self.flow.settle()

    def _starve(self, task: Task, block: Block) -> None:
        """Wait for memory to become free at a running task's node; E0712 where nobody is left who could free some."""
        flow, node = self.flow, task.node
        flow.settle()
        starving = flow.starving[node] + 1
        others = min(flow.running[node], flow.workers[node]) > starving
        if flow.closed is not None or not (others or self._holdings.leaving[self._holdings.away(node)]):
            raise self._holdings.no_room(task, block)
        flow.starving[node] += 1
        flow.progress.wait()
        flow.starving[node] -= 1

    def take(self, block: Block, node: int) -> Any:
        """The buffer that a task holds, which it begins to use."""
        residency = self._holdings.residency(block)
        node = residency.held_at(node)
        if node != HOME:
            self._holdings.nodes[node].check(residency.buffers[node])
        if residency.undo is not None:
            with self.flow.lock.soon():
                self._machine.take(residency, node)
                self.flow.settle()
        return residency.buffers[node] if node != HOME else block.home

    def give_back(self, block: Block, node: int, taken: bool, spoilt: TExprError | None) -> None:
        """A task no longer holds a block. `taken`: it had its buffer in its hands."""
        residency = self._holdings.residency(block)
        with self.flow.lock.soon():
            node = residency.held_at(node)
            if taken and spoilt is None:
                self._machine.release(residency, node)
            else:
                self._machine.cancel(residency, node, spoilt)
            self.flow.settle()

    def commit(self, task: Task, block: Block, op: Op, values: Any) -> None:
        """Values of a task's own go to a block: at once, or by a worker when nobody holds it. Raises E0710."""
        commit = Commit(task, block, op, values)
        with self.flow.lock.soon():
            outcome = self._machine.request(self._holdings.residency(block), op, HOME, commit)
            self.flow.settle()
            if outcome is Outcome.REFUSED:
                raise no_value(task, block)
            task.left += 1
            commit.queued = outcome is Outcome.WAITING
        if not commit.queued:
            commit.run(self.flow)

    def undeclared(self, fn: Any) -> bool:
        """Count an access that was not declared; whether it is the function's first."""
        code = getattr(fn, "__code__", fn)
        with self.flow.lock.soon():
            self.flow.counters.undeclared += 1
            if code in self._warned:
                return False
            self._warned.add(code)
            return True
