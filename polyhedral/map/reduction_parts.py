"""What each thread has of a reduction, and where the parts of warps meet: in the memory of a block, or of a cluster's.

its lanes:       p = Sum of p over 32 lanes              by shuffles
lane 0:          parts[warp] = p                         a barrier, then every thread combines the parts
a cluster:       lane 0 sends p to parts[slot] of all    every block waits for what all warps send, and combines it
"""

from collections.abc import Iterator, Sequence

from texpr.grammar.ast import (
    Bind,
    Compare,
    CompareOp,
    Expr,
    IndexExpr,
    IndexVar,
    Read,
)
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    const,
    multiply,
)
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.updates import (
    Component,
    Met,
    monoid_of,
    targets,
)
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.operators import Copy, Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.sync import Acquire, Commit, End, Pipe, PipeKind, Wait
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Node
from texpr.polyhedral.mapped.views import Box, View
from texpr.polyhedral.program import Hazard


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a thread has of an update, in registers; `narrowed`: a sum in f32 that is none of many terms. The condition
    of a pick is in `local`. An accumulation adds `instead` of its own value."""

    update: Met
    components: tuple[Component, ...]
    registers: tuple[Read, ...]
    narrowed: bool
    local: str
    instead: Expr | None = None


def unused_of(draft: Draft, update: Met) -> Unused:
    """Every thread updates its registers, and asks them; one alone the elements that they share."""

    def shared(name: str) -> bool:
        return draft.buffers[name].memory is not Memory.REG

    alone = all(shared(name) for name, _ in targets(update))
    if isinstance(update, Pick):
        alone = alone and any(shared(read.buffer) for read in update.states)
    return Unused.ONCE if alone else Unused.REPLICATED


def put_parts(draft: Draft, parts: Sequence[Part], slots: Sequence[Sequence[str]], warps: int) -> Iterator[Node]:
    """The first lane of each warp puts its result where all warps see it."""
    fresh, warp = draft.names.fresh, draft.target.warp_size
    lane, slot = fresh("lane"), fresh("warp")
    digits = [
        Digit(name=fresh(f"{i}_{where.value}"), index=i, weight=1, radix=const(radix), stride=ONE, place=where)
        for i, where, radix in ((lane, Place.LANE, warp), (slot, Place.WARP, warps))
    ]
    draft.digits += digits
    yield from (Fresh(buffer=name) for names in slots for name in names)
    yield from (Define(index=digit.index, digits=(digit,)) for digit in digits)
    own, puts = tuple(digit.name for digit in digits), list[Generic]()
    for part, names in zip(parts, slots, strict=True):
        there = reads_of(part.components, names, (IndexVar(name=slot),), part.update)
        puts += bound(part, "part", Origin.COMBINE, there, part.registers, digits=own)
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=lane), right=ZERO)
    yield Guard(condition=first, body=tuple(puts), span=parts[0].update.span)


def across_ranks(draft: Draft, ranks: int, parts: Sequence[Part], warps: int) -> Iterator[Node]:
    """The first lane of each warp sends its result to all blocks of the cluster, which wait for the bytes of all of
    them and combine these. (To publish at a barrier of the cluster costs a fence of the device, and to see it the whole
    L1: by two of these softmax of 8192 x 32000 in f32 ran at .87 on an H200, so at 1.00.)"""
    fresh, warp, slots = draft.names.fresh, draft.target.warp_size, ranks * warps
    lanes = min(warp, slots & -slots)  # so that each has as many
    lane, slot, get, turn = (fresh(word) for word in ("lane", "slot", "each", "turn"))
    pieces = (
        (lane, Place.LANE, warp, 1),
        (slot, Place.WARP, warps, 1),
        (slot, Place.CLUSTER, ranks, warps),
        (get, Place.LANE, lanes, 1),
    )
    digits = [
        Digit(name=fresh(f"{i}_{where.value}"), index=i, weight=weight, radix=const(radix), stride=ONE, place=where)
        for i, where, radix, weight in pieces
    ]
    draft.digits += digits
    names = [[place(draft, f"{c.word}_parts", c.dtype, (const(slots),)) for c in p.components] for p in parts]
    pipe = _pipe(draft, [name for own in names for name in own], ranks, warps)
    draft.pipes.append(pipe)
    yield from (Define(index=i, digits=tuple(d for d in digits if d.index == i)) for i in (lane, slot, get))
    sends, combined, orders = list[Copy](), list[Reduce](), list[Order]()
    for part, own in zip(parts, names, strict=True):
        mine = [*_sends(part, own, IndexVar(name=slot), pipe.name, (digits[0].name, digits[1].name))]
        over = ((turn, const(slots // lanes)),) if slots > lanes else ()
        here = add(IndexVar(name=get), multiply(const(lanes), IndexVar(name=turn))) if over else IndexVar(name=get)
        values = reads_of(part.components, own, (here,), part.update)
        combined.append(reduce_parts(draft, part, "ranks", values, over=over, lanes=lanes))
        orders += (_met(send, combined[-1]) for send in mine)
        sends += mine
    span = parts[0].update.span
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=lane), right=ZERO)
    yield Guard(condition=first, body=(Acquire(pipe=pipe.name), *sends, Commit(pipe=pipe.name)), span=span)
    yield Wait(pipe=pipe.name, orders=tuple(orders), span=span)
    yield from combined


def _pipe(draft: Draft, buffers: Sequence[str], ranks: int, warps: int) -> Pipe:
    """What counts the bytes that all warps of a cluster send to a block: once, so that nothing frees its slot."""
    every = tuple(range(ranks))
    element = sum(draft.buffers[name].dtype.size_bytes for name in buffers)
    return Pipe(
        name=draft.names.fresh("met"),
        stages=1,
        kind=PipeKind.TRANSACTION,
        scope=Scope.CLUSTER,
        buffers=tuple(buffers),
        producers=(End(ranks=(every,) * ranks),),
        consumers=(End(),),
        commits=warps,
        releases=0,
        bytes=ranks * warps * element,
    )


def _sends(part: Part, buffers: Sequence[str], slot: IndexExpr, pipe: str, digits: tuple[str, ...]) -> Iterator[Copy]:
    """A warp's result on its way to all blocks."""
    for component, register, name in zip(part.components, part.registers, buffers, strict=True):
        yield Copy(
            id=f"{component.id}_part",
            source=View(buffer=register.buffer, subscripts=(), dtype=register.dtype),
            target=View(buffer=name, subscripts=(slot,), dtype=component.dtype),
            over=(),
            completion=Completion.TRANSACTION,
            pipe=pipe,
            digits=digits,
            span=part.update.span,
        )


def _met(send: Copy, reduce: Reduce) -> Order:
    """What a warp sends is there before any block of the cluster combines it."""
    return Order(
        source=send.id,
        sink=reduce.id,
        buffer=send.target.buffer,
        hazard=Hazard.FLOW,
        scope=Scope.CLUSTER,
        carried_by=None,
        source_span=send.span,
        sink_span=reduce.span,
    )


def reduce_parts(
    draft: Draft, part: Part, suffix: str, values: tuple[Read, ...], *, over: Box = (), lanes: int = 1
) -> Reduce:
    """The partial result becomes the values combined: over lanes in every thread, over warps in those that update."""
    return Reduce(
        id=f"{part.update.id}_{suffix}",
        monoid=monoid_of(part.update),
        values=values,
        targets=tuple(View(buffer=r.buffer, subscripts=(), dtype=r.dtype) for r in part.registers),
        over=over,
        lanes=lanes,
        unused=Unused.REPLICATED if lanes > 1 else unused_of(draft, part.update),
        span=part.update.span,
    )


def place(draft: Draft, wanted: str, dtype: DType, shape: tuple[IndexExpr, ...]) -> str:
    """A new buffer: an array that threads share, or a thread's own scalar."""
    reason = "partial results of a reduction over the threads of a block"
    return draft.local(wanted, dtype, Memory.SHARED if shape else Memory.REG, row_major(shape), reason)


def reads_of(
    found: Sequence[Component], buffers: Sequence[str], at: tuple[IndexExpr, ...], update: Met
) -> tuple[Read, ...]:
    named = zip(buffers, found, strict=True)
    return tuple(Read(buffer=name, subscripts=at, dtype=c.dtype, span=update.span) for name, c in named)


def bound(
    part: Part,
    suffix: str,
    origin: Origin,
    there: Sequence[Read],
    values: Sequence[Expr],
    *,
    digits: tuple[str, ...] = (),
    replicated: bool = False,
) -> Iterator[Generic]:
    """Binds of the reduction's own, one for each component."""
    unused = Unused.REPLICATED if replicated else None
    for component, to, value in zip(part.components, there, values, strict=True):
        id, span = f"{component.id}_{suffix}", part.update.span
        leaf = Bind(id=id, buffer=to.buffer, subscripts=to.subscripts, value=value, span=span)
        yield Generic(id=id, leaf=leaf, origin=origin, digits=digits, unused=unused)
