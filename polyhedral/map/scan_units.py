"""What the units of a team have of a tile of a scan, and what is before each of them.

total_part[q] = Sum of total_terms[q, e] ;  total_lanes[q] = Sum before total_part[q] over the lanes
total_slots[q, unit] = total_part[q] + total_lanes[q]                          by the last lane; barrier
for each q, each unit: total_start[q] = total_tile where it is one's own ;  total_tile += total_slots[q, unit]
"""

from dataclasses import replace
from typing import Any

from texpr.grammar.ast import Compare, CompareOp, Expr, IndexExpr, IndexVar
from texpr.grammar.index.expr import ZERO, const
from texpr.polyhedral.map.scan_team import Fold, Team
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.operators import Scan as Prefixes
from texpr.polyhedral.mapped.tree import Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box, View

Registers = tuple[IndexExpr, ...]


def parts_of(team: Team, fold: Fold, chunks: int, inner_count: int) -> list[Node]:
    """What a thread has of each of its chunks, and the lanes before it; a unit's goes to its slot."""
    fresh = team.draft.names.fresh
    chunk, inner = fresh("chunk"), fresh("each")
    at = (IndexVar(name=chunk),) if chunks > 1 else ()
    place = (chunk, inner) if team.is_along else (inner, chunk)
    counts = (chunks, inner_count) if team.is_along else (inner_count, chunks)
    term = tuple(IndexVar(name=name) for name, count in zip(place, counts, strict=True) if count > 1)
    over: Box = ((inner, const(inner_count)),) if inner_count > 1 else ()
    value = team.term(fold, term)
    first: Node = team.bind(fold, "part", fold.part, at, value)
    if over:
        first = _combined(team, Reduce, fold, "part", value, fold.part, at, over=over)
    body = [first]
    if team.lanes > 1:
        mine = team.read(fold, fold.part, at)
        body.append(_combined(team, Prefixes, fold, "lanes", mine, fold.lanes, at, lanes=team.lanes, exclusive=True))
        body.append(team.combine(fold, "whole", fold.part, at, team.read(fold, fold.lanes, at)))
    if team.team > 1:
        slot = (at[0] if at else ZERO, IndexVar(name=team.unit), IndexVar(name=team.group))
        value = team.read(fold, fold.part, at)
        put: Node = team.bind(fold, "put", fold.slots, slot, value, digits=team.standing)
        if team.lanes > 1:
            last = Compare(op=CompareOp.EQ, left=IndexVar(name=team.lane), right=const(team.lanes - 1))
            put = Guard(condition=last, body=(put,), span=team.span)
        body.append(put)
    shared = (fold.slots,) if team.team > 1 else ()
    used = (fold.part, *((fold.lanes,) if team.lanes > 1 else ()), *shared)
    return [*(Fresh(buffer=name) for name in used), *team.each(chunk, chunks, body)]


def _combined(team: Team, kind: type[Reduce | Prefixes], fold: Fold, what: str, value: Expr, buffer: str, at: Registers,
              **how: Any) -> Reduce | Prefixes:  # fmt: skip
    update = fold.carrier.update
    return kind(
        id=team.draft.names.fresh(f"{update.id}_{what}"),
        monoid=OF_UPDATE[update.op],
        values=(value,),
        targets=(View(buffer=buffer, subscripts=at, dtype=value.dtype),),
        unused=Unused.REPLICATED,
        span=update.span,
        **how,
    )


def starts_of(team: Team, fold: Fold, chunks: int) -> list[Node]:
    """What the tile has before each chunk of the thread's unit, and as a whole, added from left to right."""
    fresh = team.draft.names.fresh
    chunk, each = fresh("chunk"), fresh("each_unit")
    at = (IndexVar(name=chunk),) if chunks > 1 else ()
    place = () if team.is_along else at
    if team.team == 1:
        whole = team.bind(fold, "tile", fold.tile, place, team.read(fold, fold.part, at))
        return [Fresh(buffer=fold.tile), *team.each(chunk, chunks, (whole,))]
    init = team.bind(fold, "tile", fold.tile, place, team.nothing(fold), Origin.INIT)
    slot = (at[0] if at else ZERO, IndexVar(name=each), IndexVar(name=team.group))
    found = team.read(fold, fold.slots, slot)
    own = Compare(op=CompareOp.EQ, left=IndexVar(name=team.unit), right=IndexVar(name=each))
    mine = team.bind(fold, "start", fold.start, at, team.read(fold, fold.tile, place), digits=team.standing)
    add_one = team.combine(fold, "slot", fold.tile, place, found, digits=team.standing)
    turn: tuple[Node, ...] = (Guard(condition=own, body=(mine,), span=team.span), add_one)
    loop = Loop(index=each, extent=const(team.units), body=turn, unroll=True, span=team.span)
    fresh_nodes = [Fresh(buffer=fold.start), Fresh(buffer=fold.tile)]
    if team.is_along:
        return [*fresh_nodes, init, *team.each(chunk, chunks, (loop,))]
    return [*fresh_nodes, *team.each(chunk, chunks, (init, loop))]


def of_terms(node: Node) -> Node:
    """A statement that is made for its term, beside the one of the program."""
    if not isinstance(node, Generic):
        return node
    id = f"{node.id}_term"
    return replace(node, id=id, leaf=replace(node.leaf, id=id), origin=Origin.COMBINE)
