"""The orders that a launch needs between threads of one block, and the barriers that enforce them."""

from collections.abc import Mapping

from texpr.polyhedral.mapping import BarrierPosition, MappedBuffer, MappedLaunch, Order
from texpr.polyhedral.program import Program


def launch_orders(launch: MappedLaunch, buffers: Mapping[str, MappedBuffer], program: Program) -> tuple[Order, ...]:
    """The orders between threads of one block."""
    return ()


def barrier_positions(launch: MappedLaunch) -> tuple[BarrierPosition, ...]:
    """Barriers that enforce the launch's orders."""
    return ()


def check_positions(launch: MappedLaunch, positions: tuple[BarrierPosition, ...]) -> tuple[Order, ...]:
    """The orders that the positions violate."""
    return launch.orders
