"""Counters of blocks, for all sizes at once: the last block to come runs a body after what all others did before.

    S6: p[part] = …                                    every block, before its ticket
    last of part of 528 at tickets[tile]               blocks of one tile take 528 tickets
      S8: s += p[k]                                    after S6 of all blocks with this tile

A `Last` of the outermost level is run once by every block. It is right where as many blocks have its counter as it
waits for: all those that differ only in grid digits that the counter's subscripts do not tell.
"""

from collections.abc import Iterator, Sequence

from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.index.expr import product
from texpr.grammar.index.linear import linear
from texpr.polyhedral.mapped.between import GridBarrier, Init
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import GRID_PLACES, Digit, Place, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram
from texpr.polyhedral.mapped.tree import Define, Last, Node
from texpr.polyhedral.mapped.walks import counted_blocks, launches, of_kind

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


def miscounts(launch: Launch, node: LookBack) -> bool:
    """Whether blocks that look back at one place are not numbered as they begin, or two have one part: the part is the
    slowest digit of the grid, and the place tells the others."""
    grid = [digit for digit in launch.digits if digit.place in GRID_PLACES]
    of = {
        define.index: define.digits[0]
        for define in launch.body
        if isinstance(define, Define)
        and len(define.digits) == 1
        and define.value == IndexVar(name=define.digits[0].name)
    }
    named = [at.name for at in (*node.at, node.part) if isinstance(at, IndexVar) and at.name in of]
    told = [_coordinate(of[name]) for name in named]
    others = [digit for digit in grid if _coordinate(digit) != told[-1]] if told else grid
    return (
        not launch.turns
        or len(named) != len(node.at) + 1
        or {_coordinate(digit) for digit in grid} != set(told)
        or any(digit.place is not Place.GRID_X for digit in grid)
        or linear(of[named[-1]].stride)
        != linear(product(digit.radix for digit in {_coordinate(d): d for d in others}.values()))
        or sum(isinstance(other, LookBack) and other.flags == node.flags for other in launch.body) != 1
    )


def unwritten(program: MappedProgram, launch: Launch) -> str | None:
    """A counter of a launch that nobody makes 0 before its first block comes. Counters are 0 again behind it; flags
    stay, so that each call clears them, for a launch that it runs once."""
    inits = {words.name: words.init for words in program.words}
    counted: tuple[Last | GridBarrier, ...] = (*counted_blocks(launch), *of_kind(launch.body, GridBarrier))
    counters = (*(node.counter for node in counted), *((launch.turns,) if launch.turns else ()))
    flags = tuple(node.flags for node in launch.body if isinstance(node, LookBack))
    again = any(launch.name == other.name for other in _run_again(program.host))
    wrong = [name for name in counters if inits.get(name, Init.NONE) is Init.NONE]
    wrong += [name for name in flags if again or inits.get(name) is not Init.ZERO_EACH_CALL]
    return next(iter(wrong), None)


def _run_again(host: Sequence[HostNode]) -> Iterator[Launch]:
    """The launches that a call may run several times."""
    for node in host:
        match node:
            case HostLoop(body=body):
                yield from launches(body)
            case HostIf(then=then, orelse=orelse):
                yield from _run_again(then + orelse)
            case Launch():
                pass


def orders_blocks(body: Sequence[Node], order: Order, source: Path, sink: Path) -> bool:
    """Whether an order between blocks leads from before a counter into what the last block does."""
    within = order.scope is Scope.GRID and order.carried_by is None and len(sink) > 2
    return within and isinstance(body[sink[0]], Last) and source[0] < sink[0]


def _coordinate(digit: Digit) -> Coordinate:
    return digit.place, digit.stride, digit.radix
