"""Synchronisation: nodes at which threads of a block wait for one another, each with the orders that it enforces."""

from dataclasses import dataclass

from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Every thread of the `scope` waits here for all others. The first order is one that no other barrier enforces."""

    scope: Scope
    orders: tuple[Order, ...]


Sync = Barrier
