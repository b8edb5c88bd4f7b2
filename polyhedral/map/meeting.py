"""Where the parts of a reduction meet: those of a block's threads, then those of all blocks that share its elements.

every thread of a team alone:  lanes by shuffles, then warps in shared memory, in all threads
several elements in a block:   every thread puts its own in shared memory, the first of each team adds, or before it
                               each thread those that a group of its team has of one element
blocks:                        each puts its results in memory; the last one to be counted adds those of all
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Compare,
    CompareOp,
    IndexExpr,
    IndexVar,
    Read,
)
from texpr.grammar.index.expr import (
    ZERO,
    add,
    ceildiv,
    const,
    constant_value,
    multiply,
)
from texpr.grammar.source import Span
from texpr.grammar.types import F64
from texpr.polyhedral.map.crew import Crew, Part, Stand
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.serial import Body, of_combining
from texpr.polyhedral.map.updates import combined, components
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.tree import Fresh, Guard, Last, Loop, Node
from texpr.polyhedral.program import Hazard


def together(crew: Crew, parts: Sequence[Part], suffix: str, *, members: int = 0) -> list[Node]:
    """The parts of a block's threads combined, in those that are the first of their team, where the first `members` of
    it have something (0: all)."""
    if crew.elements > 1:
        return _by_memory(crew, parts, suffix)
    nodes: list[Node] = []
    lanes = min(crew.warp, crew.choice.threads)
    for part in parts:
        name, at = crew.neighbour()
        got = crew.reduce(part, f"{suffix}lanes", crew.read(part, at=at), lanes=lanes, at=at)
        nodes += crew.each(name, (got,), part.update)
    if crew.choice.threads == lanes or 0 < members <= lanes:
        return nodes
    warps = const(crew.choice.threads // crew.warp)
    shape = (warps, const(crew.width)) if crew.width > 1 else (warps,)
    shared = [shared_parts(crew, part, shape) for part in parts]
    nodes += [Fresh(buffer=name) for names in shared for name in names]
    stand = crew.stand(("lane", "warp"), (crew.warp, crew.choice.threads // crew.warp))
    puts = list[Node]()
    for part, names in zip(parts, shared, strict=True):
        name, at = crew.neighbour()
        mine, slot = crew.read(part, at=at), (IndexVar(name=stand.outer), *at)
        puts += crew.each(name, crew.put(part, f"{suffix}put", names, slot, mine, stand.digits), part.update)
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=stand.inner), right=ZERO)
    nodes += [*stand.nodes, Guard(condition=first, body=tuple(puts), span=parts[0].update.span)]
    for part, names in zip(parts, shared, strict=True):
        index, (name, at) = crew.draft.names.fresh("each_warp"), crew.neighbour()
        values = crew.read(part, names, (IndexVar(name=index), *at))
        got = crew.reduce(part, f"{suffix}warps", values, over=((index, warps),), at=at)
        nodes += crew.each(name, (got,), part.update)
    return nodes


def shared_parts(crew: Crew, part: Part, shape: tuple[IndexExpr, ...]) -> tuple[str, ...]:
    """Where the components of a part meet, in shared memory."""
    named = zip(part.registers, part.components, strict=True)
    return tuple(crew.buffer(f"{register}s", c.dtype, shape, Memory.SHARED) for register, c in named)


BARRIER = 8  # reads of shared memory that take as long


def in_all(crew: Crew, parts: Sequence[Part]) -> list[Node]:
    """The parts of a team's threads combined, in every one of them."""
    nodes, gets = _put(crew, parts, "")
    return [*nodes, *gets[1]] if gets else []


def _by_memory(crew: Crew, parts: Sequence[Part], suffix: str) -> list[Node]:
    """Every thread puts its elements where the first of the team reads those of all."""
    nodes, gets = _put(crew, parts, suffix)
    if not gets:
        return []
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=gets[0].outer), right=ZERO)
    return [*nodes, Guard(condition=first, body=tuple(gets[1]), span=parts[0].update.span)]


def _put(crew: Crew, parts: Sequence[Part], suffix: str) -> tuple[list[Node], tuple[Stand, list[Node]] | None]:
    """Every thread puts its elements where others read them; and how one reads those of its team, where it stands."""
    if crew.team == 1:
        return [], None
    put = crew.stand(("at", "member"), (crew.elements, crew.team))
    shared = [shared_parts(crew, part, (const(crew.team), const(crew.elements * crew.width))) for part in parts]
    nodes: list[Node] = [*(Fresh(buffer=name) for names in shared for name in names), *put.nodes]
    for part, names in zip(parts, shared, strict=True):
        name = crew.draft.names.fresh("element")
        there = (IndexVar(name=put.outer), _slot(crew, put, name))
        mine = crew.read(part, at=crew.element(name))
        nodes += crew.each(name, crew.put(part, f"{suffix}put", names, there, mine, put.digits), part.update)
    groups = groups_of(crew.team, crew.width)
    if groups:
        more, shared = _in_groups(crew, parts, shared, groups, suffix)
        nodes += more
    get, gets = crew.stand(("at", "member"), (crew.elements, crew.team)), list[Node]()
    for part, names in zip(parts, shared, strict=True):
        name, index = crew.draft.names.fresh("element"), crew.draft.names.fresh("each")
        values = crew.read(part, names, (IndexVar(name=index), _slot(crew, get, name)))
        over, at = ((index, const(groups or crew.team)),), crew.element(name)
        got = crew.reduce(part, f"{suffix}team", values, over=over, at=at, digits=get.digits)
        gets += crew.each(name, (got,), part.update)
    return [*nodes, *get.nodes], (get, gets)


def groups_of(team: int, width: int) -> int:
    """In how many groups the threads of a team, which have so many neighbours each, combine first: one thread then has
    the parts of one element from as many of its team as it has neighbours, and not those of all its elements from all
    of them; 0 where that is not less."""
    return team // width if width > 1 and team % width == 0 and team * width > team + width + BARRIER else 0


def _in_groups(
    crew: Crew, parts: Sequence[Part], shared: Sequence[tuple[str, ...]], groups: int, suffix: str
) -> tuple[list[Node], list[tuple[str, ...]]]:
    """What lies in shared memory for each member of a team, combined by all threads to one for each group of them."""
    count = crew.elements * crew.width
    stand, found = crew.stand(("slot", "group"), (count, groups)), list[tuple[str, ...]]()
    nodes, puts = list[Node](stand.nodes), list[Node]()
    group, slot = IndexVar(name=stand.outer), IndexVar(name=stand.inner)
    for part, names in zip(parts, shared, strict=True):
        registers = tuple(crew.buffer(f"{c.word}_of_group", c.dtype, (), Memory.REG) for c in part.components)
        own = replace(part, registers=registers)
        index, members = crew.draft.names.fresh("each"), crew.team // groups
        member = add(multiply(const(members), group), IndexVar(name=index))
        values = crew.read(part, names, (member, slot))
        got = crew.reduce(own, f"{suffix}group", values, over=((index, const(members)),), digits=stand.digits)
        found.append(shared_parts(crew, own, (const(groups), const(count))))
        nodes += [*(Fresh(buffer=name) for name in (*registers, *found[-1])), got]
        puts += crew.put(own, f"{suffix}grouped", found[-1], (group, slot), crew.read(own), stand.digits)
    return [*nodes, *puts], found


def _slot(crew: Crew, stand: Stand, name: str) -> IndexExpr:
    """The place of an element of a thread among those of its block: neighbouring threads have neighbouring places."""
    at = IndexVar(name=stand.inner)
    return add(multiply(const(crew.elements), IndexVar(name=name)), at) if crew.width > 1 else at


def last(
    crew: Crew, parts: Sequence[Part], end: Callable[[Sequence[Part]], list[Node]]
) -> tuple[list[Node], tuple[Order, ...]]:
    """The block's results go to memory; the last block that shares the elements combines those of all, and does what
    comes at the `end`. Also the orders between blocks."""
    fresh, totals, here, orders = crew.draft.names.fresh, list[Part](), crew.tile, list[Order]()
    stand = crew.stand(("at", "member"), (crew.elements, crew.team))
    nodes, inside = list(stand.nodes), list[Node]()
    first = IndexVar(name=stand.outer)
    only = Compare(op=CompareOp.EQ, left=first, right=ZERO)
    for part in parts:
        update = part.update
        dtype = F64 if crew.is_long(update) else part.components[0].dtype
        several = crew.elements * crew.width > 1
        slots = (const(crew.elements * crew.width),) if several else ()
        shape = (*crew.tiles, crew.parts, *slots)
        spaces = [crew.buffer(f"{c.word}_blocks", c.dtype, shape, Memory.GLOBAL) for c in components(update, dtype)]
        name, each = fresh("element"), fresh("each_part")
        own = (_slot(crew, stand, name),) if several else ()
        mine = crew.read(part, at=crew.element(name))
        total = crew.registers(update, "total", dtype)
        totals.append(total)
        given = [as_type(value, c.dtype) for value, c in zip(mine, total.components, strict=True)]
        puts = crew.put(part, "block", spaces, (*here, IndexVar(name=crew.part), *own), given, stand.digits)
        nodes.append(Guard(condition=only, body=crew.each(name, puts, update), span=update.span))
        turn = add(first, multiply(const(crew.team), IndexVar(name=each)))
        more, sinks = _added(crew, total, spaces, (*here, turn), stand)
        there = Compare(op=CompareOp.LT, left=turn, right=crew.parts)
        every = Guard(condition=there, body=more, padding=True, span=update.span)
        inside += crew.started(total, "total")
        inside.append(Loop(index=each, extent=ceildiv(crew.parts, crew.team), body=(every,), span=update.span))
        orders += [
            left_in_memory(put.id, sink, space, update.span)
            for put, sink, space in zip(puts, sinks, spaces, strict=True)
        ]
    inside += together(crew, totals, "last_", members=constant_value(crew.parts) or 0)
    inside += end(totals)
    span = parts[0].update.span
    nodes.append(by_the_last(crew.draft, here, crew.tiles, crew.parts, tuple(inside), tuple(orders), span))
    return nodes, tuple(orders)


def left_in_memory(put: str, got: str, space: str, span: Span) -> Order:
    """What each block puts there is read by the last one."""
    return Order(
        source=put,
        sink=got,
        buffer=space,
        hazard=Hazard.FLOW,
        scope=Scope.GRID,
        carried_by=None,
        source_span=span,
        sink_span=span,
    )


def by_the_last(
    draft: Draft,
    tile: tuple[IndexExpr, ...],
    tiles: tuple[IndexExpr, ...],
    parts: IndexExpr,
    body: tuple[Node, ...],
    orders: tuple[Order, ...],
    span: Span,
) -> Last:
    """What the last of the blocks does that share a tile, one of so many: a counter of each tells."""
    counter = draft.names.fresh("tickets")
    draft.words.append(Words(name=counter, shape=tiles, init=Init.ZERO_ONCE))
    return Last(counter=counter, at=tile, n=parts, body=body, orders=orders, span=span)


def _added(
    crew: Crew, total: Part, spaces: Sequence[str], there: tuple[IndexExpr, ...], stand: Stand
) -> tuple[tuple[Node, ...], list[str]]:
    """What a block left in with the total, element by element, and the statements that read it. Several components are
    read before any are compared: else each comparison would wait for its own."""
    update, fresh, nodes, sinks = total.update, crew.draft.names.fresh, list[Node](), list[str]()

    def left(name: str) -> tuple[Read, ...]:
        own = (_slot(crew, stand, name),) if crew.elements * crew.width > 1 else ()
        return crew.read(total, spaces, (*there, *own))

    element = fresh("element")
    values = left(element)
    if len(values) > 1:
        other = crew.registers(update, "other")
        got = crew.put(total, "parts", other.registers, crew.element(element), values, stand.digits)
        nodes += [*(Fresh(buffer=name) for name in other.registers), *crew.each(element, got, update)]
        sinks += [one.id for one in got]
        element = fresh("element")
        values = crew.read(other, at=crew.element(element))
    id, into = fresh(f"{update.id}_parts"), crew.read(total, at=crew.element(element))
    body = Body(crew.draft, hardware=crew.nest.indices, digits=stand.digits)
    merged = of_combining(body.nodes(combined(update, into, values, id, total.local)))
    return (*nodes, *crew.each(element, merged, update)), sinks or [id]
