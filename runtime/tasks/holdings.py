"""The blocks' residency as the engine keeps it: buffers and their bounds, what tasks were promised, what they hold.

Before a task asks for its blocks, all the memory that it needs at its node is promised at once (`promise`): blocks that
are there are pinned, for others bytes are reserved, and blocks that nobody pinned are evicted, the least recently used
first. So a task that has been promised its memory ends without more of it, and no two tasks wait for each other's.
Its caller holds the engine's lock.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.device_nodes import DeviceNode
from texpr.runtime.tasks.devices import DeviceMemory
from texpr.runtime.tasks.idle import Entry, Idle
from texpr.runtime.tasks.machine import Machine
from texpr.runtime.tasks.nodes import MemoryNode
from texpr.runtime.tasks.permissions import EFFECT, Effect, Mode
from texpr.runtime.tasks.residency import AT_HOME, GRANTED, HOME, REMOTE, Outcome, Residency, Transfer
from texpr.runtime.tasks.states import Op, State, Step
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Block, Tensor

Places = Callable[[Block], tuple[int, ...]]
LOCKS = 16  # for sums on their way home

Bound = int | None | DeviceMemory


def _node(number: int, name: str, bound: Bound) -> MemoryNode:
    return (
        MemoryNode(number, name, bound) if bound is None or isinstance(bound, int) else DeviceNode(number, name, bound)
    )


class Holdings:
    """All blocks of an engine's tensors in all its memories."""

    def __init__(
        self,
        bounds: Sequence[tuple[str, Bound]],
        places: Places | None = None,
        *,
        debug: bool,
    ) -> None:
        """`places`: with several ranks, the nodes at which workers at home have a block; the first of `bounds` is
        REMOTE then."""
        self.nodes = [MemoryNode(HOME, "home", None)]
        try:
            for name, bound in bounds:
                self.nodes.append(_node(len(self.nodes), name, bound))
        except BaseException:
            self.close()
            raise
        self._places = places
        self.machine = Machine(self, debug=debug)
        self.leaving = [0] * len(self.nodes)  # bytes that are being written back
        self._leaving: list[set[Residency]] = [set() for _ in self.nodes]
        self._adding = [threading.Lock() for _ in range(LOCKS)]
        self._idle = [Idle(node) for node in range(len(self.nodes))]

    def residency(self, block: Block) -> Residency:
        found = block.residency
        if found is None:
            places = self._places(block) if self._places is not None else AT_HOME
            found = block.residency = Residency(block, len(self.nodes), places)
        return found

    def away(self, node: int) -> int:
        """The memory with a bound that a task at a node works in: that node, or what serves home (HOME: none)."""
        return node or (REMOTE if self._places is not None else HOME)

    def _brought(self, task: Task, node: int) -> list[Residency]:
        """The blocks that a task at a node has in that memory."""
        if node != HOME:
            return [self.residency(block) for _, block, _ in task.holds]
        return [r for mode, block, _ in task.holds if (r := self.residency(block)).places[mode] != HOME]

    # the machine's memory

    def allocate(self, residency: Residency, node: int) -> None:
        block: Block = residency.key
        memory = self.nodes[node]
        if residency.pins[node]:
            memory.reserved -= block.size_bytes
        residency.buffers[node] = memory.allocate(block.shape, block.tensor.dtype)
        if not residency.pins[node]:
            self._idle[node].add(residency)

    def free(self, residency: Residency, node: int) -> None:
        block: Block = residency.key
        buffer, residency.buffers[node] = residency.buffers[node], None
        self.nodes[node].free(buffer, block.size_bytes)
        if residency in self._leaving[node]:
            self._leaving[node].remove(residency)
            self.leaving[node] -= block.size_bytes

    def close(self) -> None:
        """The engine has ended, or does not begin."""
        for memory in self.nodes:
            memory.close()

    def near(self, node: int, other: int) -> bool:
        return isinstance(self.nodes[node], DeviceNode) and isinstance(self.nodes[other], DeviceNode)

    def carry(self, transfer: Transfer) -> None:
        """Make a transfer; outside the lock. Sums of several nodes for one block come home one after another."""
        residency, source = transfer.residency, transfer.source
        if transfer.passage is not None:
            step = Step.GET if transfer.step is Step.GET else Step.PUT
            self.nodes[transfer.node].carry(step, transfer.passage, residency.buffers[transfer.node], None)
            return
        peer = residency.buffers[source] if source != HOME else None
        sums = transfer.step is Step.ADD
        with self._adding[residency.key.number % LOCKS] if sums else nullcontext():
            self.nodes[transfer.node].carry(transfer.step, residency.key.home, residency.buffers[transfer.node], peer)

    # promises

    def fits(self, task: Task, node: int) -> bool:
        """Whether a task can run at a node at all."""
        memory = self.nodes[self.away(node)]
        return memory.bound is None or memory.holds(self._needs(task, node))

    def _needs(self, task: Task, node: int) -> int:
        """All bytes of a task's buffers, those of its own among them."""
        blocks: list[Block] = [residency.key for residency in self._brought(task, node)]
        return self._own(task, node) + sum(block.size_bytes for block in blocks)

    def _own(self, task: Task, node: int) -> int:
        """What it has of its own at home is not counted."""
        if node == HOME:
            return 0
        return sum(block.size_bytes for mode, block, copy in task.grants.accesses if copy or mode is Mode.TEMP)

    def promise(self, task: Task) -> bool:
        """Whether all that the task needs at its node is there or reserved, from now until `withdraw`."""
        memory = self.nodes[self.away(task.node)]
        node = memory.number
        if node == HOME:
            return True
        own = self._own(task, task.node)
        residencies = self._brought(task, task.node)
        absent = [r for r in residencies if r.state[node] is State.UNALLOCATED and not r.pins[node]]
        size = own + sum(r.key.size_bytes for r in absent)
        if not self._make_room(memory, size, residencies):
            return False
        for residency in residencies:
            self._pin(residency, memory)
        memory.reserved += own
        task.memory = own
        return True

    def _make_room(self, memory: MemoryNode, size: int, keep: Sequence[Residency]) -> bool:
        """Evict what is not needed until `size` bytes are free; False where they are not, or not yet. What must be
        written back first is begun as far as it will do; it takes time, so others that need none go instead."""
        if memory.fits(size):
            return True
        node = memory.number
        idle, kept, passed = self._idle[node], set(map(id, keep)), list[Entry]()
        while not memory.fits(size):
            taken = idle.take(dirty=not memory.fits(size - self.leaving[node]))
            if taken is None:
                break
            _, residency = taken
            outcome = Outcome.REFUSED if id(residency) in kept else self.machine.evict(residency, node)
            if outcome is Outcome.REFUSED:
                passed.append(taken)
            elif outcome is Outcome.WAITING:
                self._leaving[node].add(residency)
                self.leaving[node] += residency.key.size_bytes
        idle.put_back(passed)
        return memory.fits(size)

    def cleaned(self, residency: Residency, node: int) -> None:
        """What a node has of a block need not be written back any more."""
        self._idle[node].cleaned(residency)

    def _pin(self, residency: Residency, memory: MemoryNode) -> None:
        node = memory.number
        if not residency.pins[node] and residency.state[node] is State.UNALLOCATED:
            memory.reserved += residency.key.size_bytes
        residency.pins[node] += 1
        self._idle[node].discard(residency)

    def _unpin(self, residency: Residency, memory: MemoryNode) -> None:
        node = memory.number
        residency.pins[node] -= 1
        if residency.pins[node]:
            return
        if residency.state[node] is State.UNALLOCATED:
            memory.reserved -= residency.key.size_bytes
        else:
            self._idle[node].add(residency)

    def withdraw(self, task: Task) -> None:
        """The task is over: what it was promised is free again."""
        memory = self.nodes[self.away(task.node)]
        if memory.number == HOME:
            return
        memory.reserved -= task.memory
        task.memory = 0
        for residency in (*self._brought(task, task.node), *map(self.residency, task.guests or ())):
            self._unpin(residency, memory)

    def admit(self, task: Task, residency: Residency, mode: int) -> bool:
        """Promise one more block to a task that runs; False where its memory cannot be had, or not yet."""
        node = task.node or residency.places[mode]
        if node == HOME:
            return True
        memory = self.nodes[node]
        absent = residency.state[node] is State.UNALLOCATED and not residency.pins[node]
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
        node = next(node for node in nodes if self.nodes[node].kind in kinds)
        memory = self.nodes[self.away(node)]
        blocks = ", ".join(str(r.key) for r in self._brought(task, node)[:8])
        need = self._needs(task, node)
        return fail(
            "E0712",
            f"{task} needs {need} bytes at node {memory.name}, which is bound to {memory.bound}: {blocks}",
            help="raise the bound, or use smaller tiles",
        )

    def no_room(self, task: Task, block: Block) -> TExprError:
        """E0712 for a buffer that was not declared, and for which there is no memory."""
        memory = self.nodes[self.away(task.node)]
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
            residency = block.residency or self.residency(block)
            outcome = request(residency, mode, node or residency.places[mode], task)
            if outcome is not GRANTED:
                return outcome
        return GRANTED

    def give_up(self, task: Task, blocks: Iterable[Block]) -> None:
        """A task that is over did not ask for the buffers of these blocks."""
        for residency in map(self.residency, blocks):
            self.machine.cancel(residency, residency.held_at(task.node))

    def leave(self, task: Task, blocks: Iterable[Block], failed: TExprError | None) -> None:
        """A task that is over no longer holds these blocks, with which it did what it was to do, or failed."""
        for residency in map(self.residency, blocks):
            node = residency.held_at(task.node)
            if failed is None:
                self.machine.release(residency, node)
            else:
                self.machine.cancel(residency, node, failed)

    def undo(self, task: Task, count: int) -> None:
        """Give up the first `count` blocks of a task that did not begin."""
        for mode, block, _ in task.holds[:count]:
            residency = self.residency(block)
            self.machine.cancel(residency, task.node or residency.places[mode])

    def flush(self, residency: Residency, token: Any) -> int:
        """Begin to write home what other nodes have; how many answers the token will get."""
        waiting = 0
        for node in range(1, len(self.nodes)):
            if residency.state[node] in (State.DIRTY, State.PARTIAL) or residency.outgoing[node]:
                waiting += self.machine.request(residency, Op.FLUSH, node, token) is Outcome.WAITING
        return waiting

    def spoil(self, task: Task, why: BaseException) -> None:
        """What a task that failed could have written has no value."""
        rights = dict(task.grants.blocks)
        for tensor, right in task.grants.whole.items():
            rights.update((block, right) for block in tensor.blocks())
        for block, right in rights.items():
            if EFFECT[right] is not Effect.READ and not block.is_zero:
                self.machine.spoil(self.residency(block), why)

    def forget(self, tensor: Tensor) -> None:
        """Give up every buffer of a tensor that no task uses; those that are on their way home are evicted later."""
        for block in tensor.known_blocks():
            residency = block.residency
            if residency is None:
                continue
            moving = bool(residency.chains or any(residency.incoming))
            for node in range(1, len(self.nodes)):
                if residency.buffers[node] is not None and not moving:
                    self._idle[node].discard(residency)
                    self.free(residency, node)
            block.residency = None
            for memory in self.nodes:
                memory.forget(block)
            block.forget()
