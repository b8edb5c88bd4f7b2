"""Where the parts of a reduction meet: those of a block's threads, then those of all blocks that share its elements.

every thread of a team alone:  lanes by shuffles, then warps in shared memory, in all threads
several elements in a block:   every thread puts its own in shared memory, the first of each team adds
blocks:                        each puts its results in memory; the last one to be counted adds those of all
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
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
    multiply,
)
from texpr.grammar.types import F64
from texpr.polyhedral.map.crew import Crew, Part, Stand
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.tree import Fresh, Guard, Last, Loop, Node
from texpr.polyhedral.program import Hazard


def together(crew: Crew, parts: Sequence[Part], suffix: str) -> list[Node]:
    """The parts of a block's threads combined, in those that are the first of their team."""
    if crew.elements > 1:
        return _by_memory(crew, parts, suffix)
    nodes: list[Node] = []
    lanes = min(crew.warp, crew.choice.threads)
    for part in parts:
        nodes.append(crew.reduce(part, f"{suffix}lanes", crew.read(part), lanes=lanes))
    if crew.choice.threads == lanes:
        return nodes
    warps = const(crew.choice.threads // crew.warp)
    shared = {p.register: crew.buffer(f"{p.register}s", p.dtype, (warps,), Memory.SHARED) for p in parts}
    nodes += [Fresh(buffer=name) for name in shared.values()]
    stand = crew.stand(("in_warp", "slot"), (crew.warp, crew.choice.threads // crew.warp))
    slot = (IndexVar(name=stand.outer),)
    puts = tuple(
        crew.bind(p.update, f"{suffix}put", Origin.COMBINE, shared[p.register], slot, crew.read(p), stand.digits)
        for p in parts
    )
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=stand.inner), right=ZERO)
    nodes += [*stand.nodes, Guard(condition=first, body=puts, span=parts[0].update.span)]
    for part in parts:
        index = crew.draft.names.fresh("each_warp")
        value = crew.read(part, shared[part.register], (IndexVar(name=index),))
        over = ((index, warps),)
        nodes.append(crew.reduce(part, f"{suffix}warps", value, over=over))
    return nodes


def _by_memory(crew: Crew, parts: Sequence[Part], suffix: str) -> list[Node]:
    """Every thread puts its elements where the first of the team reads those of all."""
    count = const(crew.elements * crew.width)
    if crew.team == 1:
        return []
    put, get = (crew.stand(("at", "member"), (crew.elements, crew.team)) for _ in range(2))
    puts, gets = list[Node](), list[Node]()
    shared = {
        p.register: crew.buffer(f"{p.register}s", p.dtype, (const(crew.team), count), Memory.SHARED) for p in parts
    }
    for part in parts:
        name, index = crew.draft.names.fresh("element"), crew.draft.names.fresh("each")
        there = (IndexVar(name=put.outer), _slot(crew, put, name))
        mine = crew.read(part, part.register, crew.element(name))
        leaf = crew.bind(part.update, f"{suffix}put", Origin.COMBINE, shared[part.register], there, mine, put.digits)
        puts += crew.each(name, (leaf,), part.update)
        value = crew.read(part, shared[part.register], (IndexVar(name=index), _slot(crew, get, name)))
        over, at = ((index, const(crew.team)),), crew.element(name)
        got = crew.reduce(part, f"{suffix}team", value, over=over, at=at, digits=get.digits)
        gets += crew.each(name, (got,), part.update)
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=get.outer), right=ZERO)
    fresh = (Fresh(buffer=name) for name in shared.values())
    return [
        *fresh,
        *put.nodes,
        *puts,
        *get.nodes,
        Guard(condition=first, body=tuple(gets), span=parts[0].update.span),
    ]


def _slot(crew: Crew, stand: Stand, name: str) -> IndexExpr:
    """The place of an element of a thread among those of its block."""
    at = multiply(const(crew.width), IndexVar(name=stand.inner))
    return add(at, IndexVar(name=name)) if crew.width > 1 else at


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
        dtype = F64 if crew.is_long(update) else part.dtype
        slots = (const(crew.elements * crew.width),) if crew.elements > 1 else ()
        space = crew.buffer(f"{update.buffer}_blocks", dtype, (*crew.tiles, crew.parts, *slots), Memory.GLOBAL)
        name, each = fresh("element"), fresh("each_part")
        own = () if crew.elements == 1 else (_slot(crew, stand, name),)
        mine = as_type(crew.read(part, part.register, crew.element(name)), dtype)
        put = crew.bind(
            update,
            "block",
            Origin.COMBINE,
            space,
            (*here, IndexVar(name=crew.part), *own),
            mine,
            stand.digits,
        )
        nodes.append(Guard(condition=only, body=crew.each(name, (put,), update), span=update.span))
        total = replace(part, register=crew.register(update, dtype, "total"), dtype=dtype)
        totals.append(total)
        element = fresh("element")
        place = () if crew.elements == 1 else (_slot(crew, stand, element),)
        turn = add(first, multiply(const(crew.team), IndexVar(name=each)))
        value = Read(buffer=space, subscripts=(*here, turn, *place), dtype=dtype, span=update.span)
        id = fresh(f"{update.id}_parts")
        leaf = Accumulate(
            id=id,
            op=update.op,
            buffer=total.register,
            subscripts=crew.element(element),
            value=value,
            span=update.span,
        )
        add_one = Generic(id=id, leaf=leaf, origin=Origin.COMBINE, digits=stand.digits)
        there = Compare(op=CompareOp.LT, left=turn, right=crew.parts)
        every = Guard(condition=there, body=crew.each(element, (add_one,), update), padding=True, span=update.span)
        inside += crew.started(total, total.register, dtype, "total")
        inside.append(Loop(index=each, extent=ceildiv(crew.parts, crew.team), body=(every,), span=update.span))
        orders.append(
            Order(
                source=put.id,
                sink=id,
                buffer=space,
                hazard=Hazard.FLOW,
                scope=Scope.GRID,
                carried_by=None,
                source_span=update.span,
                sink_span=update.span,
            )
        )
    inside += together(crew, totals, "last_")
    inside += end(totals)
    counter = fresh("tickets")
    crew.draft.words.append(Words(name=counter, shape=crew.tiles, init=Init.ZERO_ONCE))
    last = Last(
        counter=counter, at=here, n=crew.parts, body=tuple(inside), orders=tuple(orders),
        span=parts[0].update.span,
    )  # fmt: skip
    return [*nodes, last], tuple(orders)
