"""The blocks' residency as the engine keeps it: buffers and their bounds, what tasks were promised, what they hold.

Before a task asks for its blocks, all the memory that it needs at its node is promised at once (`promise`): blocks that
are there are pinned, for others bytes are reserved, and blocks that nobody pinned are evicted, the least recently used
first. So a task that has been promised its memory ends without more of it, and no two tasks wait for each other's.
Its caller holds the engine's lock.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.machine import Machine
from texpr.runtime.tasks.nodes import MemoryNode
from texpr.runtime.tasks.permissions import Mode
from texpr.runtime.tasks.residency import GRANTED, HOME, Outcome, Residency
from texpr.runtime.tasks.states import Op, State
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Block, Tensor


class Holdings:
    """All blocks of an engine's tensors in all its memories."""

    def __init__(self, bounds: Sequence[tuple[str, int | None]], *, debug: bool) -> None:
        self.nodes = [MemoryNode(HOME, "home", None)]
        self.nodes += [MemoryNode(k + 1, name, bound) for k, (name, bound) in enumerate(bounds)]
        self.machine = Machine(self, debug=debug)
        self.leaving = [0] * len(self.nodes)  # bytes that are being written back
        self._leaving: list[set[Residency]] = [set() for _ in self.nodes]
        self._idle: list[OrderedDict[Residency, None]] = [OrderedDict() for _ in self.nodes]  # longest unused first

    def residency(self, block: Block) -> Residency:
        found = block.residency
        if found is None:
            found = block.residency = Residency(block, len(self.nodes))
        return found

    # the machine's memory

    def allocate(self, residency: Residency, node: int) -> None:
        block: Block = residency.key
        memory = self.nodes[node]
        if residency.pins[node]:
            memory.reserved -= block.size_bytes
        residency.buffers[node] = memory.allocate(block.shape, block.tensor.dtype)
        if not residency.pins[node]:
            self._idle[node][residency] = None

    def free(self, residency: Residency, node: int) -> None:
        block: Block = residency.key
        residency.buffers[node] = None
        self.nodes[node].free(block.size_bytes)
        if residency in self._leaving[node]:
            self._leaving[node].remove(residency)
            self.leaving[node] -= block.size_bytes

    # promises

    def needs(self, task: Task) -> int:
        """All bytes of a task's buffers, those of its own among them."""
        return self._own(task) + sum(block.size_bytes for _, block, _ in task.holds)

    def _own(self, task: Task) -> int:
        return sum(block.size_bytes for mode, block, copy in task.grants.accesses if copy or mode is Mode.TEMP)

    def promise(self, task: Task) -> bool:
        """Whether all that the task needs at its node is there or reserved, from now until `withdraw`."""
        memory = self.nodes[task.node]
        if memory.number == HOME:
            return True
        own = self._own(task)
        residencies = [self.residency(block) for _, block, _ in task.holds]
        absent = [r for r in residencies if r.state[task.node] is State.UNALLOCATED and not r.pins[task.node]]
        size = own + sum(r.key.size_bytes for r in absent)
        if not self._make_room(memory, size, residencies):
            return False
        for residency in residencies:
            self._pin(residency, memory)
        memory.reserved += own
        task.memory = own
        return True

    def _make_room(self, memory: MemoryNode, size: int, keep: Sequence[Residency]) -> bool:
        """Evict what is not needed until `size` bytes are free, or will be when all that leaves is home; False where
        they are not, or not yet."""
        if memory.fits(size):
            return True
        node = memory.number
        idle, kept, passed = self._idle[node], set(map(id, keep)), list[Residency]()
        while idle and not memory.fits(size - self.leaving[node]):
            residency, _ = idle.popitem(last=False)
            block: Block = residency.key
            outcome = Outcome.REFUSED if id(residency) in kept else self.machine.evict(residency, node)
            if outcome is Outcome.REFUSED:
                passed.append(residency)
            elif outcome is Outcome.WAITING:
                self._leaving[node].add(residency)
                self.leaving[node] += block.size_bytes
        for residency in reversed(passed):
            idle[residency] = None
            idle.move_to_end(residency, last=False)
        return memory.fits(size)

    def _pin(self, residency: Residency, memory: MemoryNode) -> None:
        node = memory.number
        if not residency.pins[node] and residency.state[node] is State.UNALLOCATED:
            memory.reserved += residency.key.size_bytes
        residency.pins[node] += 1
        self._idle[node].pop(residency, None)

    def _unpin(self, residency: Residency, memory: MemoryNode) -> None:
        node = memory.number
        residency.pins[node] -= 1
        if residency.pins[node]:
            return
        if residency.state[node] is State.UNALLOCATED:
            memory.reserved -= residency.key.size_bytes
        else:
            self._idle[node][residency] = None

    def withdraw(self, task: Task) -> None:
        """The task is over: what it was promised is free again."""
        if task.node == HOME:
            return
        memory = self.nodes[task.node]
        memory.reserved -= task.memory
        task.memory = 0
        for block in (*(block for _, block, _ in task.holds), *(task.guests or ())):
            self._unpin(self.residency(block), memory)

    def admit(self, task: Task, residency: Residency) -> bool:
        """Promise one more block to a task that runs; False where its memory cannot be had, or not yet."""
        memory = self.nodes[task.node]
        if memory.number == HOME:
            return True
        absent = residency.state[task.node] is State.UNALLOCATED and not residency.pins[task.node]
        if not self._make_room(memory, residency.key.size_bytes if absent else 0, (residency,)):
            return False
        self._pin(residency, memory)
        task.guests = [*(task.guests or ()), residency.key]
        return True

    def lend(self, task: Task, size: int) -> bool:
        """More memory for a task that runs, if it can be had at once."""
        memory = self.nodes[task.node]
        if not self._make_room(memory, size, ()):
            return False
        memory.reserved += size
        task.memory += size
        return True

    def too_small(self, task: Task, nodes: Iterable[int], kinds: frozenset[str]) -> TExprError:
        """E0712 for a task whose declared buffers none of the nodes that run its function holds together."""
        memory = next(self.nodes[node] for node in nodes if self.nodes[node].kind in kinds)
        blocks = ", ".join(str(block) for _, block, _ in task.holds[:8])
        return fail(
            "E0712",
            f"{task} needs {self.needs(task)} bytes at node {memory.name}, which is bound to {memory.bound}: {blocks}",
            help="raise the bound, or use smaller tiles",
        )

    def no_room(self, task: Task, block: Block) -> TExprError:
        """E0712 for a buffer that was not declared, and for which there is no memory."""
        memory = self.nodes[task.node]
        return fail(
            "E0712",
            f"{task}: no room for {block}, {block.size_bytes} bytes, at node {memory.name}, which is bound to "
            f"{memory.bound} and has promised {memory.reserved} to tasks",
            help="declare the access: what is declared is promised before the task runs",
        )

    # requests

    def acquire(self, task: Task) -> Outcome:
        """Ask for the task's blocks, from where it stopped: GRANTED when it has all of them; WAITING: the task itself
        is the token that will be answered; REFUSED: the block before `task.next` has no value."""
        holds, node, request = task.holds, task.node, self.machine.request
        while task.next < len(holds):
            mode, block, _ = holds[task.next]
            task.next += 1
            outcome = request(block.residency or self.residency(block), mode, node, task)
            if outcome is not GRANTED:
                return outcome
        return GRANTED

    def undo(self, task: Task, count: int) -> None:
        """Give up the first `count` blocks of a task that did not begin."""
        for _, block, _ in task.holds[:count]:
            self.machine.cancel(self.residency(block), task.node)

    def flush(self, residency: Residency, token: Any) -> int:
        """Begin to write home what other nodes have; how many answers the token will get."""
        waiting = 0
        for node in range(1, len(self.nodes)):
            if residency.state[node] in (State.DIRTY, State.PARTIAL) or residency.outgoing[node]:
                waiting += self.machine.request(residency, Op.FLUSH, node, token) is Outcome.WAITING
        return waiting

    def forget(self, tensor: Tensor) -> None:
        """Give up every buffer of a tensor that no task uses; those that are on their way home are evicted later."""
        for block in tensor.known_blocks():
            residency = block.residency
            if residency is None:
                continue
            moving = bool(residency.chains or any(residency.incoming))
            for node in range(1, len(self.nodes)):
                if residency.buffers[node] is not None and not moving:
                    self._idle[node].pop(residency, None)
                    self.free(residency, node)
            block.residency = None
            block.forget()
