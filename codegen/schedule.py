"""Operator order and barriers: where the threads of a block wait for one another.

Operators run in the order of the mapped tree; the barriers are the fewest that the order checker found to enforce
every `Order` of the launch (`texpr.polyhedral.orders.barriers`). A block of one thread needs none.
"""

from texpr.codegen.graph import BlockGraph
from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral.mapped.program import BarrierPosition, Launch


def place_barriers(graph: BlockGraph, launch: Launch) -> tuple[BarrierPosition, ...]:
    """The barrier positions of a launch, as paths in the body that graph and launch share."""
    if graph.block_dim == 1 or not launch.orders:
        return ()
    from texpr.polyhedral.orders.barriers import barrier_positions

    return tuple(barrier_positions(launch))


def check_barriers(graph: BlockGraph, launch: Launch, positions: tuple[BarrierPosition, ...]) -> None:
    """Verify the positions with the order checker of the mapping; InternalError where an order is not enforced."""
    if graph.block_dim == 1:
        if positions:
            raise InternalError(f"{graph.name}: one thread has no one to wait for")
        return
    from texpr.polyhedral.orders.barriers import check_positions

    violated = check_positions(launch, positions)
    if violated:
        first = violated[0]
        raise InternalError(f"{graph.name}: no barrier orders {first.source} before {first.sink} on {first.buffer}")
