"""Where the parts meet of threads that have several neighbours of an index: each of them ends one element.

    S_parts[team, e, at] = S_part[e]                                                         every thread; barrier
    column: 0 .. 127 of the 256 threads ;  j = 128*j_block + column
      S_column = Sum of S_parts[each, column % 8, column / 8] for each < 16
      S_blocks[tile, part, column] = S_column
    the last block, of each column:  S_total = 0 ;  S_total += S_blocks[tile, each_part, column] for each_part < parts

Where a block has several threads for each of them, these share what blocks left: the parts of a group meet again.

A thread would else have all elements that are neighbours, and all others would wait for those few that end them.

Of rows of two indices, one of them dealt to lanes, the elements of a block are those of its rows, this one the fastest:

    S_parts[e, at + 8*member] = S_part[e]                       e = 8*m_row + n_row, 8 lanes at, team members
    column: 0 .. 511 ;  m = column / 64 ; n = 64*n_block + column % 64
      S_column = Sum of S_parts[8*(column / 64) + column % 8, column % 64 / 8 + 8*each] for each < 64
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexOp, IndexVar, Par, Read
from texpr.grammar.index.expr import add, ceildiv, combine, const, constant_value, multiply
from texpr.grammar.records import dataclass
from texpr.grammar.types import F64
from texpr.polyhedral.map.crew import Crew, Part
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.meeting import by_the_last, left_in_memory, shared_parts
from texpr.polyhedral.map.part_lines import own_columns
from texpr.polyhedral.map.serial import Body, of_combining
from texpr.polyhedral.map.tiles import BANKS_BYTES
from texpr.polyhedral.map.updates import combined, components
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node

BANKS = BANKS_BYTES // 4  # of shared memory
TOGETHER = 8  # parts of an element whose loads are on their way together

End = Callable[[Crew, Sequence[Part]], list[Node]]
"""What comes at the end for the elements of a crew, whose parts have these values."""


def ends_columns(choice: Parted, index: str | None) -> bool:
    """Whether the threads of a block are enough for a thread for each of its elements, which are neighbours along."""
    width = choice.widths.get(index, 1) if index is not None else 1
    lanes = dict(choice.deal).get(index, 1) if index is not None else 1
    alone = len(choice.deal) <= 1
    return alone and width > 1 and width < BANKS and 1 < lanes < choice.threads and lanes * width <= choice.threads


def ends_rows(choice: Parted) -> bool:
    """The same of the rows of one index that is dealt to threads, times those of another one, if any."""
    match choice.deal:
        case ((index, lanes),) if index in choice.patch:
            return 1 < lanes < choice.threads and lanes * prod(choice.patch.values()) <= choice.threads
    return False


def rows_apart(choice: Parted) -> int:
    """How far apart those of its elements lie in shared memory that a thread has: threads that end neighbours find
    them in different banks."""
    ((index, _),) = choice.deal
    return choice.threads + max(1, BANKS // choice.patch[index])


def row_of(lanes: int, width: int) -> int:
    """How many elements apart those lie in shared memory that a thread has of one neighbour and of the next: threads
    with neighbouring elements find them in different banks."""
    apart = BANKS // width
    return next(n for n in range(lanes, lanes + 2 * apart) if n % (2 * apart) == apart)


def meeting_slots(choice: Parted, lanes: int, width: int) -> int:
    """The parts of an update that lie in shared memory: of the block, and of groups in the last one."""
    count = lanes * width if choice.patch else own_columns(choice, lanes, width)
    groups = groups_of_last(choice, count)
    if choice.patch:
        return width * rows_apart(choice) + (groups * count if groups > 1 else 0)
    return choice.threads // lanes * width * row_of(lanes, width) + (groups * count if groups > 1 else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """The thread of an element: its number, the crew of the one that it has, and which threads have one. Where several
    have it, `groups` of them, `group` is the number of its own."""

    index: str
    crew: Crew
    there: Condition | None
    nodes: tuple[Node, ...]
    group: str = ""
    groups: int = 1

    def guarded(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        if self.there is None:
            return tuple(nodes)
        return (Guard(condition=self.there, body=tuple(nodes), span=self.crew.span),)


def by_columns(crew: Crew, parts: Sequence[Part], end: End) -> tuple[list[Node], tuple[Order, ...]]:
    """The parts of a block's threads combined, each element by a thread of its own; where blocks share the elements,
    the last one combines what all have. Also the orders between blocks."""
    nodes, shared = _put(crew, parts)
    column = _column(crew)
    inside, totals = list[Node](), list[Part]()
    for part, names in zip(parts, shared, strict=True):
        registers = tuple(crew.buffer(f"{c.word}_column", c.dtype, (), Memory.REG) for c in part.components)
        own = replace(part, registers=registers)
        inside += _met(column, own, names, crew) if crew.origin is None else _met_behind_leads(column, own, names, crew)
        totals.append(own)
    nodes += column.nodes
    if crew.part_digit is None:
        return [*nodes, *column.guarded([*inside, *end(column.crew, totals)])], ()
    more, ending, orders = _over_blocks(column, totals, end)
    nodes += column.guarded([*inside, *more])
    span = parts[0].update.span
    return [*nodes, by_the_last(crew.draft, crew.tile, crew.tiles, crew.parts, tuple(ending), orders, span)], orders


def _put(crew: Crew, parts: Sequence[Part]) -> tuple[list[Node], list[tuple[str, ...]]]:
    """Every thread puts its elements where the threads of these read them."""
    stand, rows = crew.stand(("at", "member"), (crew.elements, crew.team)), bool(crew.choice.patch)
    if rows:
        extents = [crew.width, rows_apart(crew.choice)]
    else:
        extents = [crew.team, crew.width, row_of(crew.elements, crew.width)]
    shared = [shared_parts(crew, part, tuple(map(const, extents))) for part in parts]
    nodes: list[Node] = [*(Fresh(buffer=name) for names in shared for name in names), *stand.nodes]
    at, member = IndexVar(name=stand.inner), IndexVar(name=stand.outer)
    for part, names in zip(parts, shared, strict=True):
        element = crew.draft.names.fresh("element")
        there = _among_rows(crew, IndexVar(name=element), at, member) if rows else (member, IndexVar(name=element), at)
        mine = crew.read(part, at=crew.element(element))
        nodes += crew.each(element, crew.put(part, "put", names, there, mine, stand.digits), part.update)
    return nodes, shared


def _place(column: str, width: int) -> tuple[IndexExpr, ...]:
    """Where an element of a block lies among those of a thread of its team."""
    return tuple(combine(op, IndexVar(name=column), const(width)) for op in (IndexOp.MOD, IndexOp.DIV))


def _among_rows(crew: Crew, element: IndexExpr, at: IndexExpr, member: IndexExpr) -> tuple[IndexExpr, ...]:
    """Where a thread of a team has an element of its rows."""
    return element, add(multiply(const(crew.elements), member), at)


def _row_of(crew: Crew, column: str) -> tuple[IndexExpr, IndexExpr]:
    """The number of an element among those of a thread that has its rows, and the place of this thread in its team."""
    found: IndexExpr = const(0)
    here: IndexExpr = const(0)
    for par, local in _locals(crew, column):
        count = const(crew.choice.patch[par.index])
        dealt = par.index in dict(crew.choice.deal)
        found = add(multiply(found, count), combine(IndexOp.MOD, local, count) if dealt else local)
        here = combine(IndexOp.DIV, local, count) if dealt else here
    return found, here


def _locals(crew: Crew, column: str) -> list[tuple[Par, IndexExpr]]:
    """The indices of which a thread has rows, and the element of this number among those of a block along each: along
    the one that is dealt to threads neighbours are."""
    (index, _), *_ = crew.choice.deal
    fast = const(crew.elements * crew.choice.patch[index])
    own = {index: combine(IndexOp.MOD, IndexVar(name=column), fast)}
    other = combine(IndexOp.DIV, IndexVar(name=column), fast)
    return [(par, own.get(par.index, other)) for par in crew.taken]


def _met(column: _Column, own: Part, names: Sequence[str], crew: Crew) -> list[Node]:
    """What the threads of a team have of one element."""
    each = crew.draft.names.fresh("each")
    if crew.choice.patch:
        there = _among_rows(crew, *_row_of(crew, column.index), IndexVar(name=each))
    else:
        there = (IndexVar(name=each), *_place(column.index, crew.width))
    values = crew.read(own, names, there)
    got = crew.reduce(own, "column", values, over=((each, const(crew.team)),), digits=column.crew.own)
    return [*(Fresh(buffer=name) for name in own.registers), got]


def _met_behind_leads(column: _Column, own: Part, names: Sequence[str], crew: Crew) -> list[Node]:
    """The same where each thread of a team begins before the block's first element, by a lead of its own."""
    fresh = crew.draft.names.fresh
    each, lead, place, id = fresh("each"), fresh("lead"), fresh("place"), fresh(f"{own.update.id}_column")
    assert crew.origin is not None, "threads begin at chunks"
    behind = add(IndexVar(name=column.index), IndexVar(name=lead))
    values = crew.read(own, names, (IndexVar(name=each), *_place(place, crew.width)))
    body: list[Node] = [crew.lead_of(lead, each), Define(index=place, digits=(), offset=behind)]
    more, _ = _combined(column.crew, own, values, id)
    loop = Loop(index=each, extent=const(crew.team), body=(*body, *more), unroll=True, span=own.update.span)
    return [*column.crew.started(own, "none"), loop]


def _column(crew: Crew) -> _Column:
    """The thread of each element, and the index of the band there."""
    assert crew.along is not None, "threads have neighbours along an index"
    index, rows = crew.draft.names.fresh("column"), bool(crew.choice.patch)
    count = crew.elements * crew.width if rows else own_columns(crew.choice, crew.elements, crew.width)
    band = crew.digits((index,), ((0, crew.choice.threads),))
    there = None
    if count < crew.choice.threads:
        there = Compare(op=CompareOp.LT, left=IndexVar(name=index), right=const(count))
    own = copy(crew)
    own.own, own.width, own.team, own.elements = tuple(d.name for d in band.all), 1, 1, count
    number = Define(index=index, digits=tuple(reversed(band.digits[0])))
    found = _locals(crew, index) if rows else [(crew.along, IndexVar(name=index))]
    iterations = (
        Define(index=par.index, digits=tuple(d for d in (crew.block.get(par.index),) if d is not None), offset=offset)
        for par, offset in found
    )
    own.along = None
    return _Column(index=index, crew=own, there=there, nodes=(number, *iterations))


def _over_blocks(column: _Column, parts: Sequence[Part], end: End) -> tuple[list[Node], list[Node], tuple[Order, ...]]:
    """What a block leaves in memory, what the last one does with that of all, and the orders between them."""
    crew, own = column.crew, IndexVar(name=column.index)
    reader = _in_groups(column)
    puts, inside, totals, orders = list[Node](), list[Node](), list[Part](), list[Order]()
    if reader is not column:
        inside += reader.nodes
    for part in parts:
        update = part.update
        dtype = F64 if crew.is_long(update) else part.components[0].dtype
        shape = (*crew.tiles, crew.parts, const(crew.elements))
        spaces = [crew.buffer(f"{c.word}_blocks", c.dtype, shape, Memory.GLOBAL) for c in components(update, dtype)]
        total = crew.registers(update, "total", dtype)
        totals.append(total)
        given = [as_type(value, c.dtype) for value, c in zip(crew.read(part), total.components, strict=True)]
        left = crew.put(part, "block", spaces, (*crew.tile, IndexVar(name=crew.part), own), given, crew.own)
        puts += left
        more, sinks = _added(reader, total, spaces)
        inside += [*reader.crew.started(total, "total"), *more]
        orders += [
            left_in_memory(put.id, sink, space, update.span)
            for put, sink, space in zip(left, sinks, spaces, strict=True)
        ]
    if reader is column:
        return puts, list(column.guarded([*inside, *end(crew, totals)])), tuple(orders)
    ending = list[Node]()
    for total in totals:
        shared = shared_parts(crew, total, (const(reader.groups), const(crew.elements)))
        there, each = (IndexVar(name=reader.group), IndexVar(name=reader.index)), crew.draft.names.fresh("each_group")
        inside += [Fresh(buffer=name) for name in shared]
        inside += crew.put(total, "group", shared, there, crew.read(total), reader.crew.own)
        values = crew.read(total, shared, (IndexVar(name=each), own))
        ending.append(crew.reduce(total, "groups", values, over=((each, const(reader.groups)),), digits=crew.own))
    return puts, [*inside, *column.guarded([*ending, *end(crew, totals)])], tuple(orders)


def groups_of_last(choice: Parted, count: int) -> int:
    """How many threads of the last block share what all blocks left of each of so many elements, where they left more
    than one asks for at a time."""
    many = max(choice.blocks.values(), default=1) > TOGETHER
    fits = is_power_of_two(count) and is_power_of_two(choice.threads)
    return max(1, choice.threads // count) if many and fits else 1


def _in_groups(column: _Column) -> _Column:
    """The threads that share an element of the last block: the one that it has, where there are no others for it."""
    crew, groups = column.crew, groups_of_last(column.crew.choice, column.crew.elements)
    if groups == 1:
        return column
    stand, own = crew.stand(("column", "group"), (crew.elements, groups)), copy(crew)
    own.own = stand.digits
    return _Column(index=stand.inner, crew=own, there=None, nodes=stand.nodes, group=stand.outer, groups=groups)


def _added(column: _Column, total: Part, spaces: Sequence[str]) -> tuple[tuple[Node, ...], list[str]]:
    """What all blocks left combined, and the statements that read it: of several parts at a time all that is read comes
    before what is made of it."""
    crew, update, fresh = column.crew, total.update, column.crew.draft.names.fresh
    turn, each = fresh("parts_turn"), fresh("each_part")
    known = constant_value(crew.parts)
    together = TOGETHER if known is None else min(TOGETHER, -(-known // column.groups))
    part: IndexExpr = add(multiply(const(together), IndexVar(name=turn)), IndexVar(name=each))
    if column.groups > 1:
        part = add(multiply(const(column.groups), part), IndexVar(name=column.group))
    left = crew.read(total, spaces, (*crew.tile, part, IndexVar(name=column.index)))
    cut = known is None or known % (column.groups * together)

    def each_of(nodes: Sequence[Node]) -> Loop:
        if cut:
            there = Compare(op=CompareOp.LT, left=part, right=crew.parts)
            nodes = [Guard(condition=there, body=tuple(nodes), padding=True, span=update.span)]
        return Loop(index=each, extent=const(together), body=tuple(nodes), unroll=True, span=update.span)

    inside, sinks = list[Node](), list[str]()
    if len(left) > 1:  # else each comparison would wait for what it compares
        names = [crew.buffer(f"{c.word}_left", c.dtype, (const(together),), Memory.REG) for c in total.components]
        got = crew.put(total, f"{fresh('parts')}", names, (IndexVar(name=each),), left, crew.own)
        sinks = [one.id for one in got]
        inside += [*(Fresh(buffer=name) for name in names), each_of(got)]
        left = crew.read(total, names, (IndexVar(name=each),))
    nodes, ends = _merged(crew, total, left, fresh(f"{update.id}_parts"))
    inside.append(each_of(nodes))
    turns = ceildiv(crew.parts, column.groups * together)
    return (Loop(index=turn, extent=turns, body=tuple(inside), span=update.span),), sinks or ends


def _combined(crew: Crew, into: Part, values: Sequence[Read], id: str) -> tuple[list[Node], list[str]]:
    """Values combined into registers, and the statements that read them. Several components are read before any are
    compared: else each comparison would wait for its own."""
    if len(values) == 1:
        return _merged(crew, into, values, id)
    other = crew.registers(into.update, "other")
    got = crew.put(into, f"{crew.draft.names.fresh('parts')}", other.registers, (), values, crew.own)
    merged, _ = _merged(crew, into, crew.read(other), id)
    return [*(Fresh(buffer=name) for name in other.registers), *got, *merged], [one.id for one in got]


def _merged(crew: Crew, into: Part, values: Sequence[Read], id: str) -> tuple[list[Node], list[str]]:
    """The same of values that are at hand."""
    body = Body(crew.draft, hardware=crew.nest.indices, digits=crew.own)
    return list(of_combining(body.nodes(combined(into.update, crew.read(into), values, id, into.local)))), [id]
