"""Tasks that are ready and have no memory yet: each memory takes the next one when it has room for more.

So it stays open for as long as possible who does what: no memory runs out of tasks while another has many, and yet each
has so many ahead that their blocks arrive in time. Tasks that change one block are a group, and stay together: a memory
that has begun a group goes on with it; then it takes the one that its policy says costs the least, of the first few;
then, from the end, what others have begun.
"""

from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING

from texpr.runtime.tasks.functions import kinds_of
from texpr.runtime.tasks.permissions import Mode
from texpr.runtime.tasks.policies import Drawing
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow

AHEAD = 6  # tasks beside those that run, for which blocks are brought
WINDOW = 32  # groups that are compared

Kinds = frozenset[str]
Group = tuple[Kinds, Block | None]


class Pool:
    def __init__(self, flow: "Flow", policy: Drawing) -> None:
        self._flow, self._policy = flow, policy
        self._groups: dict[Kinds, dict[Group, deque[Task]]] = {}  # by the kinds of workers that run them
        self._begun: dict[int, Group] = {}  # by nodes
        self._limits = {node: AHEAD + flow.workers[node] for node in flow.load}

    def put(self, task: Task) -> None:
        if task.error is not None:  # it only passes through
            self._flow.start(task, next(iter(self._limits)))
            return
        group = kinds_of(task.fn), _block(task)
        self._groups.setdefault(group[0], {}).setdefault(group, deque()).append(task)
        self.draw()

    def draw(self) -> None:
        """Nodes that have room get tasks, in turns."""
        load, limits = self._flow.load, self._limits
        asking = [node for node, limit in limits.items() if load[node] < limit]
        while asking and any(self._groups.values()):
            node = min(asking, key=lambda node: load[node] - limits[node])
            task = self._take(node)
            if task is not None:
                self._flow.start(task, node)
            if task is None or load[node] >= limits[node]:
                asking.remove(node)

    def _take(self, node: int) -> Task | None:
        begun, kind = self._begun.get(node), self._flow.holdings.nodes[node].kind
        if begun is not None and begun in self._groups[begun[0]] and self._fits(begun, node):
            return self._pop(begun, 0)
        others = {group for at, group in self._begun.items() if at != node}
        all_of_kind = chain.from_iterable(groups for kinds, groups in self._groups.items() if kind in kinds)
        few = islice((group for group in all_of_kind if self._fits(group, node)), WINDOW)
        costs = {group: (group in others, self._cost(group, node)) for group in few}
        if not costs:
            return None
        best = min(costs, key=lambda group: costs[group])
        if best in others:
            return self._pop(best, -1)
        self._begun[node] = best
        return self._pop(best, 0)

    def _fits(self, group: Group, node: int) -> bool:
        return self._flow.holdings.fits(self._groups[group[0]][group][0], node)

    def _cost(self, group: Group, node: int) -> float:
        task = self._groups[group[0]][group][0]
        try:
            return self._policy.cost(task, node)
        except Exception as why:  # a plug-in's: it fails the task
            task.error, task.holds = why, ()
            return 0

    def _pop(self, group: Group, which: int) -> Task:
        groups = self._groups[group[0]]
        task = groups[group][which]
        del groups[group][which]
        if not groups[group]:
            del groups[group]
        return task


def _block(task: Task) -> Block | None:
    """The first block that the task changes, or else that it reads."""
    changed = (block for mode, block, _ in task.holds if mode is not Mode.READ)
    return next(changed, task.holds[0].block if task.holds else None)
