"""Distribution, interchange, sinking, and loops that need no order: nests of loops become what one wants them to be."""

from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, Condition, If, Kernel, New, Par, Seq
from texpr.grammar.core import buffers_of
from texpr.grammar.index.expr import ONE, ZERO, add, names, subtract
from texpr.grammar.index.interval import index_range
from texpr.polyhedral.moves import Distribute, Interchange, Parallelize, Sink
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.schedule.origins import Moved, Origin
from texpr.polyhedral.schedule.tree import (
    Loop,
    index,
    label_of,
    leaves,
    loop_of,
    movable,
    neighbours,
    place_of,
    plain,
    unfit,
    with_block,
    with_values,
)


def distribute(kernel: Kernel, move: Distribute) -> Moved:
    """Two loops of one; a local that both parts use is expanded first."""
    place, loop = loop_of(kernel, move.loop)
    plain(loop, or_ordered=True)
    movable((loop,))
    at = next((n for n, stmt in enumerate(loop.body) if label_of(stmt) == move.before), 0)
    head, tail = loop.body[:at], loop.body[at:]
    if all(isinstance(stmt, New) for stmt in head):
        raise unfit(f"`{move.before}` is no statement of `{move.loop}` with another before it", loop.span, "this loop")
    later = set().union(*map(buffers_of, tail))
    both = later & set().union(*map(buffers_of, head))
    for stmt in head:
        if isinstance(stmt, New) and stmt.buffer in both:
            raise unfit(f"both parts use {stmt.buffer}", stmt.span, "a local of the loop", help="expand it first")
    moved = tuple(stmt for stmt in head if isinstance(stmt, New) and stmt.buffer in later)
    name = Names(names_taken(kernel)).fresh(loop.index)
    first: Loop = replace(loop, body=tuple(stmt for stmt in head if stmt not in moved))
    second: Loop = replace(loop, index=name, body=with_values((*moved, *tail), {loop.index: index(name)}))
    origins = {leaf.id: Origin(statement=leaf.id, values={loop.index: index(name)}) for leaf in leaves(tail)}
    block = (*place.block[: place.at], first, second, *place.block[place.at + 1 :])
    return Moved(kernel=with_block(kernel, place, block), origins=origins)


def interchange(kernel: Kernel, move: Interchange) -> Moved:
    """The inner loop outside. Instances keep their indices, which stand in another order."""
    place, outer = loop_of(kernel, move.outer)
    inner = outer.body[0] if len(outer.body) == 1 else None
    if not isinstance(inner, Par | Seq):
        raise unfit(f"`{outer.index}` does not hold one loop alone", outer.span, "this loop")
    for loop in (outer, inner):
        plain(loop, or_ordered=True)
    movable((outer,))
    extent, body = inner.extent, inner.body
    if outer.index in names(extent):
        found = index_range(extent, {outer.index: (ZERO, subtract(outer.extent, ONE))})
        if found is None:
            raise unfit(f"the extent of `{inner.index}` has no bound without `{outer.index}`", inner.span, "this loop")
        extent = add(found[1], ONE)
        inside = Compare(op=CompareOp.LT, left=index(inner.index), right=inner.extent)
        body = (If(condition=inside, then=body, span=inner.span),)
    turned: Loop = replace(inner, extent=extent, body=(replace(outer, body=body),))
    block = (*place.block[: place.at], turned, *place.block[place.at + 1 :])
    return Moved(kernel=with_block(kernel, place, block))


def parallelize(kernel: Kernel, move: Parallelize) -> Moved:
    """The same loop as a band of its own."""
    place, loop = loop_of(kernel, move.loop)
    if isinstance(loop, Par):
        raise unfit(f"`{loop.source_name}` is a `par` already", loop.span, "this loop")
    plain(loop)
    movable((loop,))
    par = Par(
        index=loop.index,
        source_name=loop.source_name,
        extent=loop.extent,
        band=0,  # bands are numbered when all is done
        body=loop.body,
        low=loop.low,
        span=loop.span,
        call_spans=loop.call_spans,
    )
    return Moved(kernel=with_block(kernel, place, (*place.block[: place.at], par, *place.block[place.at + 1 :])))


def sink(kernel: Kernel, move: Sink) -> Moved:
    """The statement in the loop's first or last iteration."""
    _, loop = loop_of(kernel, move.loop)
    before = place_of(kernel, move.statement).at < place_of(kernel, move.loop).at
    pair = (move.statement, move.loop) if before else (move.loop, move.statement)
    first, second = neighbours(kernel, *pair)
    stmt = first.stmt if before else second.stmt
    if (second.stmt if before else first.stmt) is not loop:
        raise unfit(f"`{move.loop}` stands under a condition", loop.span, "this loop")
    plain(loop, or_ordered=True)
    movable((stmt, loop))
    sunk = If(condition=turn_of(kernel, move), then=(stmt,), span=stmt.span)
    grown: Loop = replace(loop, body=(sunk, *loop.body) if before else (*loop.body, sunk))
    between = first.block[first.at + 1 : second.at]
    block = (*first.block[: first.at], *between, grown, *first.block[second.at + 1 :])
    return Moved(kernel=with_block(kernel, first, block))


def turn_of(kernel: Kernel, move: Sink) -> Condition:
    """The iteration of the loop that gets the statement."""
    place, loop = loop_of(kernel, move.loop)
    before = place_of(kernel, move.statement).at < place.at
    turn = ZERO if before else subtract(loop.extent, ONE)
    return Compare(op=CompareOp.EQ, left=index(loop.index), right=turn)
