"""Where tasks run: policies are plug-ins, asked once for each task when nothing is before it any more.

A policy is an object with `place(task, load)`: from the task and, for each node with workers that can hold it, how many
tasks are there, the number of a node. It is called under the lock, and reads `block.residency` to see where values are.
"""

from collections.abc import Mapping
from typing import Protocol

from texpr.runtime.tasks.permissions import Mode
from texpr.runtime.tasks.states import State
from texpr.runtime.tasks.task import Task


class Policy(Protocol):
    def place(self, task: Task, load: Mapping[int, int]) -> int: ...


class ReadyQueue:
    """Each task goes where the fewest wait."""

    def place(self, task: Task, load: Mapping[int, int]) -> int:
        return min(load, key=lambda node: (load[node], node))


class Affinity:
    """Each task goes where most of the bytes that it shares have a buffer, and among equals where the fewest wait."""

    def place(self, task: Task, load: Mapping[int, int]) -> int:
        return max(load, key=lambda node: (_there(task, node), -load[node], -node))


class LeastTransfer:
    """Each task goes where the fewest bytes must move before it begins, and among equals where the fewest wait."""

    def place(self, task: Task, load: Mapping[int, int]) -> int:
        return min(load, key=lambda node: (_moved(task, node), load[node], node))


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
