"""Reductions over the threads of a block: a `seq` at block level that only accumulates is split and combined.

    seq K k { v += e(k) }        v does not depend on k, no #ordered

    every thread:    p = 0 ; for k of this thread: p += e(k)
    every warp:      p = Sum of p over its lanes                by shuffles
    its first lane:  parts[warp] = p                            barrier
    who updates v:   p = Sum of parts[w] over all warps ; v += p

The update is made by every thread where v is its register, else by one. A block of one warp needs neither the parts nor
the barrier. The order of the sums is fixed, so results do not change from run to run. A band of rows whose elements lie
along `k` is given blocks for its iterations, so that lanes run along k: a matrix times a vector reads each row
contiguously.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    Expr,
    IndexExpr,
    IndexVar,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import ONE, ZERO, at_least_zero, ceildiv, const, constant_value
from texpr.grammar.index.interval import most
from texpr.grammar.numerics import identity
from texpr.grammar.source import Span
from texpr.grammar.types import F32, F64, DType
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import ThreadDigits, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.row_tiles import RowTile
from texpr.polyhedral.map.runs import in_run, make_run
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.vectors import along
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box, View
from texpr.polyhedral.prove.additions import CHAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who shares out a reduction: the threads of a block, with the parallel indices of the block. A thread takes
    `width` neighbouring iterations at a time, with wide accesses; of what `tile` holds it has them in registers."""

    outer: tuple[str, ...]
    threads: int
    width: int = 1
    tile: RowTile | None = None

    @property
    def covered(self) -> int:
        """The iterations of one round."""
        return self.threads * self.width


def split(draft: Draft, team: Team, seq: Seq) -> tuple[Node, ...]:
    """A `seq` over the block's threads."""
    extent = constant_value(seq.extent)
    inside = None
    from_line = team.tile is not None and team.tile.lead is not None
    if extent is None or (extent % team.covered and not from_line):
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=seq.index), right=seq.extent)
    rounds = ceildiv(at_least_zero(seq.extent), team.covered) if team.tile is None else const(team.tile.rounds)
    nodes = shared_out(draft, team, seq, seq.body, (), rounds, inside)
    if extent is None or extent <= 0:
        some = Compare(op=CompareOp.GT, left=seq.extent, right=ZERO)
        nodes = (Guard(condition=some, body=nodes, uniform=Scope.BLOCK, span=seq.span),)
    return nodes


def shared_out(
    draft: Draft,
    team: Team,
    loop: Seq | Par,
    body: tuple[Stmt, ...],
    places: tuple[Digit, ...],
    rounds: IndexExpr,
    inside: Condition | None,
    around: Sequence[tuple[Define, Digit]] = (),
    stride: Digit | None = None,
) -> tuple[Node, ...]:
    """The body's updates over the loop's index, a sum of `places` (of blocks, and the serial `stride`), `rounds` of a
    serial digit and all threads; `around` has the indices that a serial digit of their own runs over, too, and `inside`
    cuts what is no iteration."""
    turns = most(rounds, size_ranges(draft.kernel))
    if stride is None and not around and turns is not None and turns * team.width <= CHAIN:  # no thread's part is long
        body = tuple(_narrow(draft, s) if isinstance(s, Accumulate) else s for s in body)
    updates = [s for s in body if isinstance(s, Accumulate)]
    partials = {u.id: _local(draft, f"{u.buffer}_part", u.value.dtype, ()) for u in updates}
    nodes: list[Node] = []
    for update in updates:
        name = partials[update.id]
        start = identity(update.op, update.value.dtype).item()
        nodes.append(Fresh(buffer=name))
        first = Const(value=start, dtype=update.value.dtype, span=update.span)
        nodes.append(_bind(update, "init", Origin.INIT, name, (), first, unused=Unused.REPLICATED))
    nodes += _partial(draft, team, loop, body, partials, places, rounds, inside, around, stride)
    return (*nodes, *_combined(draft, team, updates, partials))


def _serial(digit: Digit, body: tuple[Node, ...], span: Span, *, unroll: bool = False) -> Loop:
    return Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=unroll, span=span)


def _partial(
    draft: Draft,
    team: Team,
    loop: Seq | Par,
    body: tuple[Stmt, ...],
    partials: Mapping[str, str],
    places: tuple[Digit, ...],
    rounds: IndexExpr,
    inside: Condition | None,
    around: Sequence[tuple[Define, Digit]],
    stride: Digit | None,
) -> tuple[Node, ...]:
    """Every thread accumulates its iterations, or runs of them, as far apart as the threads take together."""
    index = first = loop.index
    band, digits = _band(draft, team, index)
    own: tuple[Digit, ...] = ()
    if rounds != ONE:
        name = draft.names.fresh(f"{index}_serial")
        own = (Digit(name=name, index=index, weight=team.covered, radix=rounds, stride=ONE, place=Place.SERIAL),)
    tile = team.tile
    line = tile.line(own) if tile is not None else None
    run = make_run(draft, index, loop.extent, team.width, loop.span, line) if team.width > 1 else None
    reading = body if tile is None else tile.through(body, index, own, run)
    worker = Body(draft, hardware=(*team.outer, index), digits=digits)
    nodes: tuple[Node, ...] = worker.nodes(
        tuple(replace(s, buffer=partials[s.id], subscripts=()) if isinstance(s, Accumulate) else s for s in reading)
    )
    if run is not None:
        held, origin = (tile.elements(index), tile.origin(index)) if tile is not None else ((), None)
        found = along(draft.problem, body, index, (*team.outer, index), held, origin).vectors(team.width)
        nodes, first = in_run(draft, run, found, nodes, digits), run.first
    if inside is not None:
        inside = rewrite(inside, lambda node: IndexVar(name=first) if node == IndexVar(name=index) else node)
        nodes = (Guard(condition=inside, body=nodes, padding=True, span=loop.span),)
    begin = tile.begin if tile is not None else ZERO
    nodes = (Define(index=first, digits=(*places, *own, *reversed(band.all)), offset=begin), *nodes)
    for digit in (*own, *(() if stride is None else (stride,))):
        nodes = (_serial(digit, nodes, loop.span, unroll=tile is not None),)
    for define, digit in around:
        nodes = (_serial(digit, (define, *nodes), loop.span),)
    draft.digits += (*(digit for _, digit in around), *(() if stride is None else (stride,)), *own)
    return nodes


def _narrow(draft: Draft, update: Accumulate) -> Accumulate:
    return replace(update, value=narrow(update.value)) if update.id in draft.long else update


def _combined(draft: Draft, team: Team, updates: Sequence[Accumulate], partials: Mapping[str, str]) -> tuple[Node, ...]:
    """The partial results of all threads, combined in the threads that make the updates; then these."""
    warp = draft.target.warp_size
    warps = team.threads // warp
    nodes: list[Node] = [
        _reduce(draft, u, "lanes", partials[u.id], _read(partials[u.id], (), u), lanes=min(warp, team.threads))
        for u in updates
    ]
    if warps > 1:
        parts = {u.id: _local(draft, f"{u.buffer}_parts", u.value.dtype, (const(warps),)) for u in updates}
        nodes += _put(draft, updates, partials, parts, warps)
        for update in updates:
            index = draft.names.fresh("each_warp")
            slot = _read(parts[update.id], (IndexVar(name=index),), update)
            over = ((index, const(warps)),)
            nodes.append(_reduce(draft, update, "warps", partials[update.id], slot, over=over))
    for update in updates:
        result: Expr = _read(partials[update.id], (), update)
        if update.id in draft.long:
            result = as_type(result, F64 if draft.buffers[update.buffer].dtype == F64 else F32)
        final = Body(draft, hardware=team.outer, unused=_unused(draft, update)).leaf(replace(update, value=result))
        nodes.append(replace(final, id=f"{update.id}_out", origin=Origin.COMBINE))
    return tuple(nodes)


def _unused(draft: Draft, update: Accumulate) -> Unused:
    """Every thread updates its register, one the element that they share."""
    return Unused.REPLICATED if draft.buffers[update.buffer].memory is Memory.REG else Unused.ONCE


def _put(
    draft: Draft,
    updates: Sequence[Accumulate],
    partials: Mapping[str, str],
    parts: Mapping[str, str],
    warps: int,
) -> Iterator[Node]:
    """The first lane of each warp puts its result where all warps see it."""
    fresh, warp = draft.names.fresh, draft.target.warp_size
    lane, slot = fresh("in_warp"), fresh("slot")
    digits = [
        Digit(name=fresh(f"{i}_{place.value}"), index=i, weight=1, radix=const(radix), stride=ONE, place=place)
        for i, place, radix in ((lane, Place.LANE, warp), (slot, Place.WARP, warps))
    ]
    draft.digits += digits
    yield from (Fresh(buffer=name) for name in parts.values())
    yield from (Define(index=digit.index, digits=(digit,)) for digit in digits)
    own = tuple(digit.name for digit in digits)
    puts = tuple(
        _bind(u, "part", Origin.COMBINE, parts[u.id], (IndexVar(name=slot),), _read(partials[u.id], (), u), own)
        for u in updates
    )
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=lane), right=ZERO)
    yield Guard(condition=first, body=puts, span=updates[0].span)


def _reduce(
    draft: Draft, update: Accumulate, suffix: str, partial: str, value: Read, *, over: Box = (), lanes: int = 1
) -> Reduce:
    """The partial result becomes the values combined: over lanes in every thread, over warps in those that update."""
    return Reduce(
        id=f"{update.id}_{suffix}",
        monoid=OF_UPDATE[update.op],
        values=(value,),
        targets=(View(buffer=partial, subscripts=(), dtype=value.dtype),),
        over=over,
        lanes=lanes,
        lift=False,
        unused=Unused.REPLICATED if lanes > 1 else _unused(draft, update),
        span=update.span,
    )


def _band(draft: Draft, team: Team, index: str) -> tuple[ThreadDigits, tuple[str, ...]]:
    """Digits of an index that runs over all threads, and their names."""
    pieces, each = ((0, team.threads),), {index: team.width}
    band = thread_digits((index,), pieces, draft.names, draft.target.warp_size, each)
    draft.digits += band.all
    return band, tuple(d.name for d in band.all)


def _local(draft: Draft, wanted: str, dtype: DType, shape: tuple[IndexExpr, ...]) -> str:
    """A new buffer: an array in shared memory, or a thread's own scalar."""
    name = draft.names.fresh(wanted)
    draft.buffers[name] = MappedBuffer(
        name=name,
        dtype=dtype,
        memory=Memory.SHARED if shape else Memory.REG,
        scope=Scope.BLOCK if shape else Scope.THREAD,
        layout=row_major(shape),
        role=Role.LOCAL,
        reason="partial results of a reduction over the threads of a block",
    )
    return name


def _read(buffer: str, subscripts: tuple[IndexExpr, ...], update: Accumulate) -> Read:
    return Read(buffer=buffer, subscripts=subscripts, dtype=update.value.dtype, span=update.span)


def _bind(
    update: Accumulate,
    suffix: str,
    origin: Origin,
    buffer: str,
    subscripts: tuple[IndexExpr, ...],
    value: Expr,
    digits: tuple[str, ...] = (),
    unused: Unused | None = None,
) -> Generic:
    """A bind of the reduction's own."""
    id = f"{update.id}_{suffix}"
    leaf = Bind(id=id, buffer=buffer, subscripts=subscripts, value=value, span=update.span)
    return Generic(id=id, leaf=leaf, origin=origin, digits=digits, unused=unused)
