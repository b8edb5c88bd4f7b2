"""Counters of blocks, for all sizes at once: the last block to come runs a body after what all others did before.

    S6: p[part] = …                                    every block, before its ticket
    last of part of 528 at tickets[tile]               blocks of one tile take 528 tickets
      S8: s += p[k]                                    after S6 of all blocks with this tile

A `Last` of the outermost level is run once by every block. It is right where as many blocks have its counter as it
waits for: all those that differ only in grid digits that the counter's subscripts do not tell.
"""

from collections.abc import Sequence

from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.index.expr import product
from texpr.grammar.index.linear import linear
from texpr.polyhedral.mapped.between import Init
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import GRID_PLACES, Digit, Place, Scope
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.tree import Define, Last, Node
from texpr.polyhedral.mapped.walks import counted_blocks

Coordinate = tuple[Place, IndexExpr, IndexExpr]
"""Place, stride and radix: what a digit is, whatever index it belongs to."""
Path = tuple[int, ...]


def miscounted(launch: Launch) -> Last | None:
    """A counter that as many blocks do not come to as it waits for, None where all are right."""
    digits = {_coordinate(d) for d in launch.digits if d.place in GRID_PLACES}
    alone = {
        node.index: _coordinate(node.digits[0])
        for node in launch.body
        if isinstance(node, Define) and len(node.digits) == 1 and node.value == IndexVar(name=node.digits[0].name)
    }
    axes = (product(radix for place, _, radix in sorted(digits, key=str) if place is axis) for axis in GRID_PLACES)
    if any(linear(found) != linear(extent) for found, extent in zip(axes, launch.grid, strict=True)):
        return next(iter(counted_blocks(launch)), None)
    counters = set[str]()
    for node in counted_blocks(launch):
        told = {alone[at.name] for at in node.at if isinstance(at, IndexVar) and at.name in alone}
        rest = sorted(digits - told, key=str)
        wrong = len(told) != len(node.at) or not told <= digits or node.counter in counters
        if wrong or linear(product(radix for _, _, radix in rest)) != linear(node.n):
            return node
        counters.add(node.counter)
    return None


def unwritten(program: MappedProgram, launch: Launch) -> str | None:
    """A counter of a launch that nobody makes 0 before its first block comes."""
    zero = {words.name for words in program.words if words.init in (Init.ZERO_ONCE, Init.ZERO_EACH_CALL)}
    return next((node.counter for node in counted_blocks(launch) if node.counter not in zero), None)


def orders_blocks(body: Sequence[Node], order: Order, source: Path, sink: Path) -> bool:
    """Whether an order between blocks leads from before a counter into what the last block does."""
    within = order.scope is Scope.GRID and order.carried_by is None and len(sink) > 2
    return within and isinstance(body[sink[0]], Last) and source[0] < sink[0]


def _coordinate(digit: Digit) -> Coordinate:
    return digit.place, digit.stride, digit.radix
