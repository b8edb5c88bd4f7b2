"""At which memory a task runs: where its function has an entry and its buffers have room, the policy chooses."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.functions import kinds_of
from texpr.runtime.tasks.task import Task

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


def fitting(flow: "Flow", task: Task) -> Mapping[int, int]:
    """The nodes that run a task's function and can hold all of its buffers, with their loads."""
    kinds, nodes, holdings = kinds_of(task.fn), flow.holdings.nodes, flow.holdings
    return {node: count for node, count in flow.load.items() if nodes[node].kind in kinds and holdings.fits(task, node)}


def place(flow: "Flow", task: Task) -> int:
    """Where the policy wants the task; a policy that fails fails the task."""
    if task.error is not None:  # it only passes through
        return next(iter(flow.load))
    fit = fitting(flow, task)
    try:
        node = flow.policy.place(task, fit)
        if node not in fit:
            raise fail("E0703", f"{task}: the policy places it at {node!r}, not at one of {sorted(fit)}")
    except Exception as why:  # a plug-in's
        task.error, task.holds = why, ()
        return next(iter(fit))
    return node
