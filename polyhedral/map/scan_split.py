"""Long sums of scans: tiles hand them on in f64, and fold their own terms in f32.

    total_whole = f64(total_tile)                                what a tile adds to what is before the next one
    total_high = f32(total_before)
    total_rest = f32(total_before - f64(total_high))             0 where total_high is no number

Of the iterations of a tile `total_now` begins with the rest, and is read as total_high + total_now: no iteration
converts anything, and what it reads is off by the additions of its tile and one more. Where what is read is rounded to
f16 or bf16 as it is stored, `total_now` begins with total_high and is read alone: the additions of a thread's own terms
lose 2^-24 of what is stored each, next to 2^-12 of its rounding, and of the magnitudes of the tile's terms as much as
they lose else (what is before them is not greater than what is stored and these magnitudes together).
"""

import math
from collections.abc import Callable

from texpr.grammar.ast import Const, Expr, Fn, IndexExpr, Op, Select
from texpr.grammar.types import BOOL
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.scan_team import Fold, Team
from texpr.polyhedral.mapped.tree import Fresh, Node

Registers = tuple[IndexExpr, ...]


def each_element(team: Team, leaf: Callable[[Registers], Node]) -> tuple[Node, ...]:
    """A node for each element of a thread."""
    return team.each(name := team.draft.names.fresh("element"), team.width, (leaf(team.of_thread(name)),))


def whole(team: Team, fold: Fold, at: Registers) -> Expr:
    """A tile's fold in the type that tiles hand on."""
    return as_type(team.read(fold, fold.tile, at), fold.carrier.dtype)


def widened(team: Team, fold: Fold) -> tuple[Node, ...]:
    """A tile's fold, where other blocks are told of it."""
    if not fold.is_split:
        return ()
    leaves = each_element(team, lambda at: team.bind(fold, "whole", fold.whole, at, whole(team, fold, at)))
    return (Fresh(buffer=fold.whole), *leaves)


def split(team: Team, fold: Fold) -> tuple[Node, ...]:
    """What is before a tile in two parts."""
    if not fold.is_split:
        return ()

    def high(at: Registers) -> Node:
        rounded = as_type(team.read(fold, fold.before, at), fold.carrier.within)
        return team.bind(fold, "high", fold.high, at, rounded)

    def rest(at: Registers) -> Node:
        before, rounded = (team.read(fold, name, at) for name in (fold.before, fold.high))
        return team.bind(fold, "rest", fold.rest, at, rest_of(fold, before, rounded))

    nodes = (Fresh(buffer=fold.high), *each_element(team, high))
    return nodes if fold.is_rounded else (*nodes, Fresh(buffer=fold.rest), *each_element(team, rest))


def rest_of(fold: Fold, before: Expr, high: Expr) -> Expr:
    """What is before a tile less what that is rounded to, 0 where this is no number."""
    carrier = fold.carrier
    span, most = carrier.update.span, Const(value=math.inf, dtype=carrier.within)
    size = Op(fn=Fn.ABS, args=(high,), dtype=carrier.within, span=span)
    lost = Op(fn=Fn.SUB, args=(before, as_type(high, carrier.dtype)), dtype=carrier.dtype, span=span)
    return Select(
        condition=Op(fn=Fn.LT, args=(size, most), dtype=BOOL, span=span),
        then=as_type(lost, carrier.within),
        other=Const(value=0.0, dtype=carrier.within),
        dtype=carrier.within,
        span=span,
    )


def begin(fold: Fold) -> str:
    """With what the fold of a tile's iterations begins."""
    if not fold.is_split:
        return fold.before
    return fold.high if fold.is_rounded else fold.rest


def so_far(team: Team, fold: Fold, at: Registers) -> Expr:
    """The fold of all iterations so far."""
    now = team.read(fold, fold.now, at)
    if not fold.is_split or fold.is_rounded:
        return now
    args = (team.read(fold, fold.high, at), now)
    return Op(fn=Fn.ADD, args=args, dtype=fold.carrier.within, span=fold.carrier.update.span)
