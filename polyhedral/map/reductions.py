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

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
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
from texpr.grammar.index.expr import ONE, at_least_zero, ceildiv, const, constant_value, product, where_some
from texpr.grammar.index.interval import most
from texpr.grammar.permissions import BELOW
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, F32, F64
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.digits import over_ranks, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.paired import in_pairs
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.reducible import reduction
from texpr.polyhedral.map.reduction_parts import (
    Part,
    across_ranks,
    bound,
    place,
    put_parts,
    reads_of,
    reduce_parts,
    unused_of,
)
from texpr.polyhedral.map.row_tiles import RowTile, Shares
from texpr.polyhedral.map.runs import in_run, make_run
from texpr.polyhedral.map.scaled_sums import ScaledPair, at_end, base_of, based
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.updates import (
    Met,
    Scaled,
    Update,
    changed,
    components,
    in_registers,
    is_zero,
    local_of,
)
from texpr.polyhedral.map.vectors import Element, along
from texpr.polyhedral.map.winning import winner
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import map_statements
from texpr.polyhedral.prove.additions import CHAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who shares out a reduction: the threads of a block, or of all `ranks` of a cluster, with the parallel indices of
    the block. A thread takes `width` neighbouring iterations at a time, with wide accesses; of what `tile` holds it has
    them in registers."""

    outer: tuple[str, ...]
    threads: int
    width: int = 1
    tile: RowTile | None = None
    ranks: int = 1

    @property
    def covered(self) -> int:
        """The iterations of one round."""
        return self.threads * self.ranks * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """How the iterations of a loop are dealt: to all threads in `count` rounds of a serial digit, and to `places` (of
    blocks, and the serial `stride`). `around` has the indices that a serial digit of their own runs over, too, and
    `inside` cuts what is no iteration."""

    count: IndexExpr
    inside: Condition | None
    places: tuple[Digit, ...] = ()
    around: Sequence[tuple[Define, Digit]] = ()
    stride: Digit | None = None


def split(
    draft: Draft, team: Team, seq: Seq, outer: tuple[Seq, ...] = (), loads: tuple[Node, ...] = ()
) -> tuple[Node, ...]:
    """A `seq` over the block's threads. Those around it that do nothing else are loops of each thread, in which `loads`
    come first: threads combine once, at their end."""
    dealt = _rounds(team, seq)
    found = reduction(draft.kernel, (*outer, seq)[0], seq.index)
    assert found is not None, "what is shared out has been checked"
    short = _is_short(draft, team, product((dealt.count, *(at_least_zero(loop.extent) for loop in outer))))
    parts = [_part(draft, update, short=short) for update in found.updates]
    nodes = (*loads, *_partial(draft, team, seq, seq.body, parts, dealt))
    for loop in reversed(outer):
        nodes = (Body(draft, hardware=team.outer).loop(loop, nodes),)
    nodes = (*_starts(parts), *nodes, *_combined(draft, team, parts))
    some = where_some(loop.extent for loop in found.loops)
    return nodes if some is None else (Guard(condition=some, body=nodes, uniform=Scope.BLOCK, span=seq.span),)


def _rounds(team: Team, seq: Seq) -> Dealt:
    """A loop of which each thread has runs."""
    extent, inside = constant_value(seq.extent), None
    from_line = team.tile is not None and team.tile.lead is not None
    if extent is None or (extent % team.covered and not from_line):
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=seq.index), right=seq.extent)
    if team.tile is not None:
        return Dealt(count=const(team.tile.rounds), inside=inside)
    return Dealt(count=ceildiv(at_least_zero(seq.extent), team.covered), inside=inside)


def _is_short(draft: Draft, team: Team, rounds: IndexExpr) -> bool:
    """Whether no thread's part of a sum has many terms, in so many rounds."""
    turns = most(rounds, size_ranges(draft.kernel))
    return turns is not None and turns * team.width <= CHAIN


class OneMeeting:
    """A greatest value and the sum that it scales, for which threads meet once: each adds about what it has itself."""

    def __init__(self, draft: Draft, team: Team, pair: ScaledPair) -> None:
        self.draft, self.team, self.pair, self.update = draft, team, pair, pair.update
        assert _is_short(draft, team, _rounds(team, pair.first).count), "what is shared out has been checked"
        self.both = replace(_part(draft, pair.update, short=True), narrowed=False)
        self.parts = [
            replace(self.both, update=update, components=(component,), registers=(register,), narrowed=True)
            for update, component, register in zip(
                (pair.update.greatest, pair.update.total), self.both.components, self.both.registers, strict=True
            )
        ]

    def first(self) -> tuple[Node, ...]:
        """The greatest value that each thread has."""
        return (*_starts([self.both]), *self._guarded(self._loop(self.pair.first, self.parts[0])))

    def second(self) -> tuple[Node, ...]:
        """The sums about it, combined, and what the program has of both in the end."""
        draft, span = self.draft, self.update.span
        top, component = self.both.registers[0], self.both.components[0]
        name = place(draft, f"{component.word}_base", F32, ())
        base = Read(buffer=name, subscripts=(), dtype=F32, span=span)
        own = replace(self.parts[1], instead=based(self.update.total, self.update.greatest.buffer, base).value)
        bind = Bind(
            id=draft.names.fresh(name), buffer=name, subscripts=(), value=base_of(top, component.start), span=span
        )
        nodes = (
            Fresh(buffer=name),
            Generic(id=bind.id, leaf=bind, origin=Origin.COMBINE, unused=Unused.REPLICATED),
            *self._loop(self.pair.second, own),
            *_combined(draft, self.team, [self.both]),
        )
        return self._guarded(nodes)

    def _loop(self, loop: Seq, part: Part) -> tuple[Node, ...]:
        return _partial(self.draft, self.team, loop, loop.body, [part], _rounds(self.team, loop))

    def _guarded(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        some = where_some((self.pair.first.extent,))
        if some is None:
            return nodes
        return (Guard(condition=some, body=nodes, uniform=Scope.BLOCK, span=self.update.span),)


def shared_out(
    draft: Draft, team: Team, loop: Seq | Par, body: tuple[Stmt, ...], updates: Sequence[Update], dealt: Dealt
) -> tuple[Node, ...]:
    """The body's updates over the loop's index."""
    short = dealt.stride is None and not dealt.around and _is_short(draft, team, dealt.count)
    parts = [_part(draft, update, short=short) for update in updates]
    nodes = _partial(draft, team, loop, body, parts, dealt)
    return (*_starts(parts), *nodes, *_combined(draft, team, parts))


def _starts(parts: Sequence[Part]) -> Iterator[Node]:
    """Each thread's parts, at what they start from."""
    for part in parts:
        yield from (Fresh(buffer=register.buffer) for register in part.registers)
        starts = [c.start for c in part.components]
        yield from bound(part, "init", Origin.INIT, part.registers, starts, replicated=True)


def _part(draft: Draft, update: Met, *, short: bool) -> Part:
    """Registers for an update; `short`: no thread's part of a sum is long."""
    narrowed = short and update.id in draft.long
    found = components(update, narrow(update.value).dtype if isinstance(update, Accumulate) and narrowed else None)
    names = [place(draft, f"{c.word}_part", c.dtype, ()) for c in found]
    own = local_of(update)
    local = place(draft, "picked", BOOL, ()) if own is None else own
    registers = reads_of(found, names, (), update)
    return Part(update=update, components=found, registers=registers, narrowed=narrowed, local=local)


def _into(parts: Sequence[Part], stmt: Stmt) -> tuple[Stmt, ...] | None:
    """A statement of the loop as a thread runs it."""
    found = {part.update.id: part for part in parts}
    if isinstance(stmt, Accumulate) and stmt.id in found:
        part = found[stmt.id]
        value = stmt.value if part.instead is None else part.instead
        value = narrow(value) if part.narrowed else value
        attrs = stmt.attrs if part.instead is None else (*stmt.attrs, BELOW)
        return (replace(stmt, buffer=part.registers[0].buffer, subscripts=(), value=value, attrs=attrs),)

    def of_pick(pick: Pick) -> tuple[tuple[Read, ...], str]:
        return found[pick.id].registers, found[pick.id].local

    return in_registers(stmt, [part.update for part in parts if isinstance(part.update, Pick)], of_pick)


def _serial(digit: Digit, body: tuple[Node, ...], span: Span, *, unroll: bool = False) -> Loop:
    return Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=unroll, span=span)


def _partial(
    draft: Draft, team: Team, loop: Seq | Par, body: tuple[Stmt, ...], parts: Sequence[Part], dealt: Dealt
) -> tuple[Node, ...]:
    """Every thread accumulates its iterations, or runs of them, as far apart as the threads take together."""
    index, first, inside = loop.index, loop.index, dealt.inside
    serial = () if dealt.stride is None else (dealt.stride,)
    shares = _shares(draft, team, index)
    digits = shares.band.threads
    own: tuple[Digit, ...] = ()
    if dealt.count != ONE:
        name = draft.names.fresh(f"{index}_serial")
        own = (Digit(name=name, index=index, weight=team.covered, radix=dealt.count, stride=ONE, place=Place.SERIAL),)
    tile = team.tile
    won = winner(draft, tile, loop, parts, team.outer, digits) if team.width > 1 and own else None
    line = tile.line(own) if tile is not None else None
    run = make_run(draft, index, loop.extent, team.width, loop.span, line) if team.width > 1 else None
    reading = changed(body, lambda stmt: _into(parts, stmt))
    reading = reading if tile is None else tile.through(reading, index, own, run)
    nodes: tuple[Node, ...] = Body(draft, hardware=(*team.outer, index), digits=digits).nodes(reading)
    if run is not None:
        held, origin = (tile.elements(index), tile.origin(index)) if tile is not None else ((), None)
        found = along(draft.problem, body, index, (*team.outer, index), held, origin).vectors(team.width)
        zeros = {wide.element for wide in found.wide if wide.loads}
        if tile is None or tile.outside is None:
            spare = _unmoved(parts, {*held, *zeros})
        else:
            spare = tuple(part.registers[0].buffer for part in parts)
        nodes, first = in_run(draft, run, found, nodes, digits, spare), run.first
        if tile is not None:
            if won is None:
                nodes = in_pairs(draft, tile, reading, loop.extent, own, digits, nodes)
            else:
                nodes = won.in_run(run, own, nodes)
            nodes = (*tile.at_hand(draft, loop, run, own, shares), *nodes)
    if inside is not None and (tile is None or tile.outside is None):
        inside = rewrite(inside, lambda node: IndexVar(name=first) if node == IndexVar(name=index) else node)
        inside = inside if tile is None else tile.unless_whole(draft.kernel, loop.extent, own, inside)
        nodes = (Guard(condition=inside, body=nodes, padding=True, span=loop.span),)
    define = Define(index=first, digits=(*dealt.places, *own, *reversed(shares.digits)), offset=shares.begin)
    nodes = (*(tile.arrived(loop) if tile is not None else ()), *shares.threads, define, *nodes)
    for digit in (*own, *serial):
        nodes = (_serial(digit, nodes, loop.span, unroll=tile is not None),)
    for define, digit in dealt.around:
        nodes = (_serial(digit, (define, *nodes), loop.span),)
    draft.digits += (*(digit for _, digit in dealt.around), *serial, *own)
    return nodes if won is None else (*won.started(), *nodes, *won.searched())


def _unmoved(parts: Sequence[Part], zeros: Collection[Element]) -> tuple[str, ...]:
    """The registers of sums to which nothing is added where these elements are 0, as they are where there is no
    iteration: of each element nothing is asked then."""
    return tuple(
        part.registers[0].buffer
        for part in parts
        if isinstance(part.update, Accumulate) and part.update.op is AccOp.ADD and is_zero(part.update.value, zeros)
    )


def _combined(draft: Draft, team: Team, parts: Sequence[Part]) -> tuple[Node, ...]:
    """The partial results of all threads, combined in the threads that make the updates; then these."""
    warp = draft.target.warp_size
    warps = team.threads // warp
    nodes: list[Node] = [reduce_parts(draft, p, "lanes", p.registers, lanes=min(warp, team.threads)) for p in parts]
    if team.ranks > 1:
        nodes += across_ranks(draft, team.ranks, parts, warps)
    elif warps > 1:
        slots = [[place(draft, f"{c.word}_parts", c.dtype, (const(warps),)) for c in p.components] for p in parts]
        nodes += put_parts(draft, parts, slots, warps)
        for part, names in zip(parts, slots, strict=True):
            index = draft.names.fresh("each_warp")
            values = reads_of(part.components, names, (IndexVar(name=index),), part.update)
            nodes.append(reduce_parts(draft, part, "warps", values, over=((index, const(warps)),)))
    for part in parts:
        nodes += _final(draft, team, part)
    return tuple(nodes)


def _final(draft: Draft, team: Team, part: Part) -> tuple[Node, ...]:
    """The program's own update, by what all threads have."""
    update, values = part.update, part.registers
    if isinstance(update, Pick):
        return _final_pick(draft, team, update, values, part.local)
    if isinstance(update, Scaled):
        greatest, total = at_end(update, values)
        return (*_final_sum(draft, team, greatest, values[0]), *_final_sum(draft, team, update.total, total))
    return _final_sum(draft, team, update, values[0])


def _final_sum(draft: Draft, team: Team, update: Accumulate, value: Expr) -> tuple[Node, ...]:
    if update.id in draft.long:
        value = as_type(value, F64 if draft.buffers[update.buffer].dtype == F64 else F32)
    final = Body(draft, hardware=team.outer, unused=unused_of(draft, update)).leaf(replace(update, value=value))
    return (replace(final, id=f"{update.id}_out", origin=Origin.COMBINE),)


def _final_pick(draft: Draft, team: Team, pick: Pick, values: Sequence[Read], local: str) -> tuple[Node, ...]:
    """What was picked, bound by every thread to its registers, and by one to what they share."""
    unused = unused_of(draft, pick)

    def own(statement: Generic) -> Generic:
        shared = any(draft.buffers[name].memory is not Memory.REG for name, _ in statement.writes)
        return replace(statement, origin=Origin.COMBINE, unused=Unused.ONCE if shared else unused)

    return map_statements(Body(draft, hardware=team.outer, unused=unused).nodes(pick.at_end(values, local)), own)


def _shares(draft: Draft, team: Team, index: str) -> Shares:
    """Digits of an index that runs over all threads."""
    pieces, each = ((0, team.threads),), {index: team.width}
    band = thread_digits((index,), pieces, draft.names, draft.target.warp_size, each)
    band = over_ranks(band, team.ranks, draft.names)
    shares = Shares(band=band, digits=band.digits[0]) if team.tile is None else team.tile.shares(draft, band)
    draft.digits += shares.band.all
    return shares
