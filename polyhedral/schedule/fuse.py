"""Fusion, and the exchange of two statements: what stands side by side runs together, or the other way round."""

from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, Condition, If, IndexOp, Kernel, Par
from texpr.grammar.index.expr import add, combine, conjunction, const, subtract
from texpr.grammar.index.linear import difference
from texpr.polyhedral.moves import Fuse, Swap
from texpr.polyhedral.schedule.origins import Moved, Origin
from texpr.polyhedral.schedule.tree import (
    Block,
    Loop,
    index,
    leaves,
    loop_of,
    movable,
    neighbours,
    same_attrs,
    unfit,
    with_block,
    with_values,
)


def fuse(kernel: Kernel, move: Fuse) -> Moved:
    """One loop of two. Where one of them has fewer iterations, a condition says which; where that is not known both
    have one, and the loop runs to the greater extent."""
    (_, one), (_, two) = loop_of(kernel, move.first), loop_of(kernel, move.second)
    first, second = neighbours(kernel, move.first, move.second)
    if first.stmt is not one or second.stmt is not two:
        raise unfit(f"`{move.second}` stands under a condition: loops that follow one another fuse", two.span)
    if isinstance(one, Par) is not isinstance(two, Par):
        raise unfit("a `par` and a `seq` do not become one loop", two.span, "this loop")
    if not same_attrs(one.attrs, two.attrs):
        raise unfit("loops with different attributes do not become one", two.span, "this loop")
    if move.shift < 0:
        raise unfit(f"a shift is a number from 0, not {move.shift}", two.span)
    movable((one, two))
    here, last = index(one.index), add(two.extent, const(move.shift))
    longer = difference(one.extent, last)
    own: list[Condition] = []
    others: list[Condition] = [Compare(op=CompareOp.GE, left=here, right=const(move.shift))] if move.shift else []
    if longer is None or longer < 0:
        own.append(Compare(op=CompareOp.LT, left=here, right=one.extent))
    if longer is None or longer > 0:
        others.append(Compare(op=CompareOp.LT, left=here, right=last))
    extent = combine(IndexOp.MAX, one.extent, last) if longer is None else one.extent if longer >= 0 else last
    then = subtract(here, const(move.shift))
    body = (*_under(own, one.body), *_under(others, with_values(two.body, {two.index: then})))
    fused: Loop = replace(one, extent=extent, body=body)
    between = first.block[first.at + 1 : second.at]
    block = (*first.block[: first.at], *between, fused, *first.block[second.at + 1 :])
    origins = {leaf.id: Origin(statement=leaf.id, values={two.index: then}) for leaf in leaves(two.body)}
    return Moved(kernel=with_block(kernel, first, block), origins=origins)


def swap(kernel: Kernel, move: Swap) -> Moved:
    """The two statements in the other order."""
    first, second = neighbours(kernel, move.first, move.second)
    movable((first.stmt, second.stmt))
    between = first.block[first.at + 1 : second.at]
    block = (*first.block[: first.at], *between, second.stmt, first.stmt, *first.block[second.at + 1 :])
    return Moved(kernel=with_block(kernel, first, block))


def _under(conditions: list[Condition], body: Block) -> Block:
    if not conditions or not body:
        return body
    return (If(condition=conjunction(conditions), then=body, span=body[0].span),)
