"""At which memory a task runs, where there are several: the policy says, at once (`AtOnce`) or later (`pool`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.functions import kinds_of
from texpr.runtime.tasks.policies import Placing, Policy
from texpr.runtime.tasks.pool import Pool
from texpr.runtime.tasks.task import Task

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


class Places(Protocol):
    """Who gives ready tasks to memories, by `flow.start`; under the engine's lock."""

    def put(self, task: Task) -> None: ...

    def draw(self) -> None:
        """Tasks are over somewhere."""


def places_of(flow: "Flow", policy: Policy) -> Places:
    return AtOnce(flow, policy) if isinstance(policy, Placing) else Pool(flow, policy)


def fitting(flow: "Flow", task: Task) -> Mapping[int, int]:
    """The nodes that run a task's function and can hold all of its buffers, with their loads."""
    kinds, nodes, holdings = kinds_of(task.fn), flow.holdings.nodes, flow.holdings
    return {node: count for node, count in flow.load.items() if nodes[node].kind in kinds and holdings.fits(task, node)}


class AtOnce:
    """Each task goes where the policy wants it; a policy that fails fails the task."""

    def __init__(self, flow: "Flow", policy: Placing) -> None:
        self._flow, self._policy = flow, policy

    def put(self, task: Task) -> None:
        self._flow.start(task, self._place(task))

    def draw(self) -> None:
        pass

    def _place(self, task: Task) -> int:
        if task.error is not None:  # it only passes through
            return next(iter(self._flow.load))
        fit = fitting(self._flow, task)
        try:
            node = self._policy.place(task, fit)
            if node not in fit:
                raise fail("E0703", f"{task}: the policy places it at {node!r}, not at one of {sorted(fit)}")
        except Exception as why:  # a plug-in's
            task.error, task.holds = why, ()
            return next(iter(fit))
        return node
