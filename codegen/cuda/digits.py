"""The digits of parallel indices in CUDA: coordinate / stride % radix, and no remainder where the place has no more.

i_warp: warp / 2 % 4      warp / 2 % 4
"""

from dataclasses import replace
from math import prod

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.stand import Stand
from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp
from texpr.polyhedral.mapped.places import Digit, Place
from texpr.polyhedral.mapped.program import Launch

_COORDINATES: dict[Place, str] = {
    Place.GRID_X: "tx::block_x()",
    Place.GRID_Y: "tx::block_y()",
    Place.GRID_Z: "tx::block_z()",
}
_GRID_AXIS = {Place.GRID_X: 0, Place.GRID_Y: 1, Place.GRID_Z: 2}


def digit_value(digit: Digit, launch: Launch, scope: ix.IndexScope, stand: Stand) -> ix.Term:
    """The value of a digit of a hardware place in a thread that stands there. Raises E0502 for a place that this target
    does not have."""
    value = ix.div(_coordinate(digit.place, launch, scope, stand), _factor(digit.stride, scope))
    return value if _highest(digit, launch) else ix.mod(value, _factor(digit.radix, scope))


def _coordinate(place_: Place, launch: Launch, scope: ix.IndexScope, stand: Stand) -> ix.Term:
    if place_ not in _GRID_AXIS:
        return stand.coordinate(place_, launch)
    if place_ in stand.named:
        return stand.named[place_]
    blocks = ix.term(launch.grid[_GRID_AXIS[place_]], scope)
    return ix.variable(_COORDINATES[place_], 0, min(max(blocks.high - 1, 0), ix.INT_MAX - 1))


def _factor(expr: IndexExpr, scope: ix.IndexScope) -> ix.Term:
    """A stride or radix of a digit in 32 bits. It divides the extent of its place, which is positive, as the
    thread runs, and below 2^31."""
    term = ix.term(expr, scope)
    low, high = max(term.low, 1), max(min(term.high, ix.INT_MAX), 1)
    return replace(term.as_int(), low=low, high=high)


def _highest(digit: Digit, launch: Launch) -> bool:
    """Whether stride * radix is the extent of the digit's grid axis, so that no remainder is needed."""
    if digit.place not in _GRID_AXIS:
        return False
    extent = launch.grid[_GRID_AXIS[digit.place]]
    if digit.stride == IndexConst(value=1) and digit.radix == extent:
        return True
    match extent:
        case IndexBinary(op=IndexOp.MUL, left=left, right=right):
            return (left, right) in ((digit.radix, digit.stride), (digit.stride, digit.radix))
        case IndexConst(value=blocks):
            factors = (digit.stride, digit.radix)
            return prod(f.value if isinstance(f, IndexConst) else 0 for f in factors) == blocks
        case _:
            return False
