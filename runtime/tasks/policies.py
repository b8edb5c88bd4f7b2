"""Where tasks run: policies are plug-ins, asked when nothing is before a task any more. There are two kinds:

    place(task, load)    at once: from the task and, for each node with workers that can hold it, how many tasks are
                         there, the number of a node
    cost(task, node)     when a node has room: what is against the task there; the node takes one that has the least
                         (`pool`)

Both are called under the lock, and read `block.residency` to see where values are.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from texpr.runtime.tasks.permissions import Mode
from texpr.runtime.tasks.states import State
from texpr.runtime.tasks.task import Task


@runtime_checkable
class Placing(Protocol):
    def place(self, task: Task, load: Mapping[int, int]) -> int: ...


class Drawing(Protocol):
    def cost(self, task: Task, node: int) -> float: ...


Policy = Placing | Drawing


class ReadyQueue:
    """Each task goes where the fewest wait."""

    def place(self, task: Task, load: Mapping[int, int]) -> int:
        return min(load, key=lambda node: (load[node], node))


class Affinity:
    """Each task goes where most of the bytes that it shares have a buffer, and among equals where the fewest wait."""

    def place(self, task: Task, load: Mapping[int, int]) -> int:
        return max(load, key=lambda node: (_there(task, node), -load[node], -node))


class LeastTransfer:
    """Each memory takes tasks for which the fewest bytes must move before they begin."""

    def cost(self, task: Task, node: int) -> float:
        return _moved(task, node)


def _there(task: Task, node: int) -> int:
    return sum(
        block.size_bytes
        for _, block, _ in task.holds
        if block.residency is not None and block.residency.state[node] > State.UNINITIALISED
    )


def _moved(task: Task, node: int) -> int:
    """The bytes that must move for a task at a node: what others changed goes home, what is not here comes."""
    moved = 0
    for mode, block, _ in task.holds:
        states = block.residency.state if block.residency is not None else [State.READY]
        changed = any(
            state in (State.DIRTY, State.PARTIAL) for other, state in enumerate(states) if other not in (0, node)
        )
        reads = mode in (Mode.READ, Mode.READ_WRITE)
        absent = node != 0 and (node >= len(states) or states[node] not in (State.READY, State.DIRTY))
        moved += block.size_bytes * ((changed and mode is not Mode.WRITE) + (reads and absent))
    return moved
