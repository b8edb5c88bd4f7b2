"""What nothing can get going again: where no job runs, nothing is on its way and tasks are left, these fail (E0714)."""

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.task import MAX_TOLD, Phase, Task

if TYPE_CHECKING:
    from texpr.runtime.tasks.holdings import Holdings


def fail_stuck(holdings: "Holdings", waiting: Collection[Task], short: Sequence[deque[Task]]) -> list[Task]:
    """The tasks that wait for ever, which are taken out of what they wait in, with their errors; those that they wait
    for first. `short`: for each node, the tasks that wait for memory."""
    left = [task for task in waiting if task.phase is Phase.ACQUIRING] or list(waiting)
    names = ", ".join(map(str, left[:MAX_TOLD]))
    for task in left:
        accesses = task.holds[max(0, task.next - 1) : task.next]
        where = str(accesses[0].block) if accesses else "memory"
        for_memory = short[holdings.away(task.node)]
        if task in for_memory:
            for_memory.remove(task)
            task.holds = ()  # of which it was promised nothing
        elif accesses:
            residency = holdings.residency(accesses[0].block)
            holdings.machine.withdraw(residency, task.node or residency.places[accesses[0].mode], task)
            holdings.undo(task, task.next - 1)
        task.error = fail("E0714", f"{task} waits for {where}, and nothing runs that it could wait for: {names}")
    return left
