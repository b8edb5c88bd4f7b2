"""The check that the syncs of a program enforce its orders, by one of two that share nothing with what places syncs.

Threads that meet at whole barriers only, of blocks or of the grid, are checked for all sizes at once, on the control
flow of their launch (`flow.py`); pipes, groups, parts and other syncs between blocks at small sizes, on a graph of
what happens before what (`happens.py`).
"""

from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.orders.flow import check_enforced, decides, decides_phases
from texpr.polyhedral.orders.tickets import unwritten


def check_orders(program: MappedProgram) -> None:
    """InternalError where an order is not enforced, or a sync waits for what does not come."""
    others = 0
    for launch in launches(program.host):
        if decides(launch, program.buffers) or decides_phases(launch, program.buffers):
            check_enforced(launch)
            counter = unwritten(program, launch)
            if counter is not None:
                raise InternalError(f"{launch.name}: nobody makes {counter} 0 before the first block comes to it")
        else:
            others += 1
    if others:
        from texpr.polyhedral.orders.happens import check_syncs

        check_syncs(program)
