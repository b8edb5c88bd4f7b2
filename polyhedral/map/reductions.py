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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Expr,
    IndexExpr,
    IndexVar,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import ONE, ZERO, at_least_zero, ceildiv, const, constant_value, where_some
from texpr.grammar.index.interval import most
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, F32, F64, DType
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import ThreadDigits, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.row_tiles import RowTile
from texpr.polyhedral.map.runs import in_run, make_run
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.sharing import shared_reduction
from texpr.polyhedral.map.updates import (
    Component,
    Update,
    changed,
    components,
    in_registers,
    local_of,
    monoid_of,
    targets,
)
from texpr.polyhedral.map.vectors import along
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box, View
from texpr.polyhedral.mapped.walks import map_statements
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
    found = shared_reduction(draft.problem, seq, {})
    assert found is not None, "what is shared out has been checked"
    nodes = shared_out(draft, team, seq, seq.body, found.updates, (), rounds, inside)
    some = where_some([seq.extent])
    return nodes if some is None else (Guard(condition=some, body=nodes, uniform=Scope.BLOCK, span=seq.span),)


def shared_out(
    draft: Draft,
    team: Team,
    loop: Seq | Par,
    body: tuple[Stmt, ...],
    updates: Sequence[Update],
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
    short = stride is None and not around and turns is not None and turns * team.width <= CHAIN
    parts = [_part(draft, update, short=short) for update in updates]
    nodes: list[Node] = []
    for part in parts:
        nodes += [Fresh(buffer=register.buffer) for register in part.registers]
        nodes += _each(part, "init", Origin.INIT, part.registers, [c.start for c in part.components], replicated=True)
    nodes += _partial(draft, team, loop, body, parts, places, rounds, inside, around, stride)
    return (*nodes, *_combined(draft, team, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a thread has of an update, in registers; `narrowed`: a sum in f32 that is none of many terms. The condition
    of a pick is in `local`."""

    update: Update
    components: tuple[Component, ...]
    registers: tuple[Read, ...]
    narrowed: bool
    local: str


def _part(draft: Draft, update: Update, *, short: bool) -> _Part:
    """Registers for an update; `short`: no thread's part of a sum is long."""
    narrowed = short and update.id in draft.long
    found = components(update, narrow(update.value).dtype if isinstance(update, Accumulate) and narrowed else None)
    names = [_local(draft, f"{c.word}_part", c.dtype, ()) for c in found]
    own = local_of(update)
    local = _local(draft, "picked", BOOL, ()) if own is None else own
    registers = _reads(found, names, (), update)
    return _Part(update=update, components=found, registers=registers, narrowed=narrowed, local=local)


def _into(parts: Sequence[_Part], stmt: Stmt) -> tuple[Stmt, ...] | None:
    """A statement of the loop as a thread runs it."""
    found = {part.update.id: part for part in parts}
    if isinstance(stmt, Accumulate) and stmt.id in found:
        part = found[stmt.id]
        value = narrow(stmt.value) if part.narrowed else stmt.value
        return (replace(stmt, buffer=part.registers[0].buffer, subscripts=(), value=value),)

    def of_pick(pick: Pick) -> tuple[tuple[Read, ...], str]:
        return found[pick.id].registers, found[pick.id].local

    return in_registers(stmt, [part.update for part in parts], of_pick)


def _serial(digit: Digit, body: tuple[Node, ...], span: Span, *, unroll: bool = False) -> Loop:
    return Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=unroll, span=span)


def _partial(
    draft: Draft,
    team: Team,
    loop: Seq | Par,
    body: tuple[Stmt, ...],
    parts: Sequence[_Part],
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
    reading = changed(body, lambda stmt: _into(parts, stmt))
    reading = reading if tile is None else tile.through(reading, index, own, run)
    nodes: tuple[Node, ...] = Body(draft, hardware=(*team.outer, index), digits=digits).nodes(reading)
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


def _combined(draft: Draft, team: Team, parts: Sequence[_Part]) -> tuple[Node, ...]:
    """The partial results of all threads, combined in the threads that make the updates; then these."""
    warp = draft.target.warp_size
    warps = team.threads // warp
    nodes: list[Node] = [_reduce(draft, p, "lanes", p.registers, lanes=min(warp, team.threads)) for p in parts]
    if warps > 1:
        slots = [[_local(draft, f"{c.word}_parts", c.dtype, (const(warps),)) for c in p.components] for p in parts]
        nodes += _put(draft, parts, slots, warps)
        for part, names in zip(parts, slots, strict=True):
            index = draft.names.fresh("each_warp")
            values = _reads(part.components, names, (IndexVar(name=index),), part.update)
            nodes.append(_reduce(draft, part, "warps", values, over=((index, const(warps)),)))
    for part in parts:
        nodes += _final(draft, team, part)
    return tuple(nodes)


def _final(draft: Draft, team: Team, part: _Part) -> tuple[Node, ...]:
    """The program's own update, by what all threads have."""
    update, values = part.update, part.registers
    if isinstance(update, Pick):
        return _final_pick(draft, team, update, values, part.local)
    value: Expr = values[0]
    if update.id in draft.long:
        value = as_type(value, F64 if draft.buffers[update.buffer].dtype == F64 else F32)
    final = Body(draft, hardware=team.outer, unused=_unused(draft, update)).leaf(replace(update, value=value))
    return (replace(final, id=f"{update.id}_out", origin=Origin.COMBINE),)


def _final_pick(draft: Draft, team: Team, pick: Pick, values: Sequence[Read], local: str) -> tuple[Node, ...]:
    """What was picked, bound by every thread to its registers, and by one to what they share."""
    unused = _unused(draft, pick)

    def own(statement: Generic) -> Generic:
        shared = any(draft.buffers[name].memory is not Memory.REG for name, _ in statement.writes)
        return replace(statement, origin=Origin.COMBINE, unused=Unused.ONCE if shared else unused)

    return map_statements(Body(draft, hardware=team.outer, unused=unused).nodes(pick.at_end(values, local)), own)


def _unused(draft: Draft, update: Update) -> Unused:
    """Every thread updates its registers, and asks them; one alone the elements that they share."""

    def shared(name: str) -> bool:
        return draft.buffers[name].memory is not Memory.REG

    alone = all(shared(name) for name, _ in targets(update))
    if isinstance(update, Pick):
        alone = alone and any(shared(read.buffer) for read in update.states)
    return Unused.ONCE if alone else Unused.REPLICATED


def _put(draft: Draft, parts: Sequence[_Part], slots: Sequence[Sequence[str]], warps: int) -> Iterator[Node]:
    """The first lane of each warp puts its result where all warps see it."""
    fresh, warp = draft.names.fresh, draft.target.warp_size
    lane, slot = fresh("lane"), fresh("warp")
    digits = [
        Digit(name=fresh(f"{i}_{place.value}"), index=i, weight=1, radix=const(radix), stride=ONE, place=place)
        for i, place, radix in ((lane, Place.LANE, warp), (slot, Place.WARP, warps))
    ]
    draft.digits += digits
    yield from (Fresh(buffer=name) for names in slots for name in names)
    yield from (Define(index=digit.index, digits=(digit,)) for digit in digits)
    own, puts = tuple(digit.name for digit in digits), list[Generic]()
    for part, names in zip(parts, slots, strict=True):
        there = _reads(part.components, names, (IndexVar(name=slot),), part.update)
        puts += _each(part, "part", Origin.COMBINE, there, part.registers, digits=own)
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=lane), right=ZERO)
    yield Guard(condition=first, body=tuple(puts), span=parts[0].update.span)


def _reduce(
    draft: Draft, part: _Part, suffix: str, values: tuple[Read, ...], *, over: Box = (), lanes: int = 1
) -> Reduce:
    """The partial result becomes the values combined: over lanes in every thread, over warps in those that update."""
    return Reduce(
        id=f"{part.update.id}_{suffix}",
        monoid=monoid_of(part.update),
        values=values,
        targets=tuple(View(buffer=r.buffer, subscripts=(), dtype=r.dtype) for r in part.registers),
        over=over,
        lanes=lanes,
        unused=Unused.REPLICATED if lanes > 1 else _unused(draft, part.update),
        span=part.update.span,
    )


def _band(draft: Draft, team: Team, index: str) -> tuple[ThreadDigits, tuple[str, ...]]:
    """Digits of an index that runs over all threads, and their names."""
    pieces, each = ((0, team.threads),), {index: team.width}
    band = thread_digits((index,), pieces, draft.names, draft.target.warp_size, each)
    draft.digits += band.all
    return band, tuple(d.name for d in band.all)


def _local(draft: Draft, wanted: str, dtype: DType, shape: tuple[IndexExpr, ...]) -> str:
    """A new buffer: an array in shared memory, or a thread's own scalar."""
    reason = "partial results of a reduction over the threads of a block"
    return draft.local(wanted, dtype, Memory.SHARED if shape else Memory.REG, row_major(shape), reason)


def _reads(
    found: Sequence[Component], buffers: Sequence[str], at: tuple[IndexExpr, ...], update: Update
) -> tuple[Read, ...]:
    named = zip(buffers, found, strict=True)
    return tuple(Read(buffer=name, subscripts=at, dtype=c.dtype, span=update.span) for name, c in named)


def _each(
    part: _Part,
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
