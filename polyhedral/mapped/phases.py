"""Why threads wait for one another: the orders of a synchronisation told as phases of the buffers' lives.

S1 writes tile[i] in line 4, S2 reads it in line 5      tile is written (line 4) before it is read (line 5)
a Reduce reads the partial results of warps             s_parts is written before it is combined
the same again in every iteration of j                  s_parts is combined before it is written in the next j
"""

from collections.abc import Collection, Sequence

from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.program import Hazard


def phases(orders: Sequence[Order], combining: Collection[str]) -> tuple[str, ...]:
    """A sentence for each buffer and kind of order. `combining` are the operators that combine what they read."""
    return tuple(dict.fromkeys(f"{order.buffer} is {_clause(order, combining)}" for order in orders))


def _clause(order: Order, combining: Collection[str]) -> str:
    before, after = ("read", "written") if order.hazard is Hazard.ANTI else ("written", "read")
    if order.hazard is Hazard.OUTPUT:
        after = "written again"
    if before == "read" and order.source in combining:
        before = "combined"
    if after == "read" and order.sink in combining:
        after = "combined"
    first, last = (span.line if span.source.text else 0 for span in (order.source_span, order.sink_span))
    apart = first != last and first and last
    carried = f" in the next {order.carried_by}" if order.carried_by else ""
    one, other = (f" (line {line})" if apart else "" for line in (first, last))
    return f"{before}{one} before it is {after}{other}{carried}"
