"""Reads together: what a short loop of one thread reads of an array, neighbours for its iterations, is one access
before the loop.

    for x < 2: s += X[2*h + y, 2*w + x]        copy X_pair[e] = X[2*h + y, 2*w + e] for e < 2  (aligned)
                                               for x < 2: s += X_pair[x]

Only what every iteration surely reads, of arrays that the launch does not write, at an address that is a multiple of
the bytes of all of them.
"""

from collections.abc import Set
from dataclasses import replace

from texpr.grammar.ast import Gather, IndexVar, Read
from texpr.grammar.index.expr import const, constant_value
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.vectors import (
    ACCESS_BYTES,
    Element,
    arrays_of,
    at,
    element_width,
    events_of,
    is_run,
)
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy, Generic
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.mapped.walks import branches, tree_writes, with_branches
from texpr.polyhedral.walk import map_reads


def together(draft: Draft, nodes: tuple[Node, ...], changed: Set[str] = frozenset()) -> tuple[Node, ...]:
    """The nodes of a thread, with one access before each loop that reads neighbours."""
    changed = changed or tree_writes(nodes)
    found: list[Node] = []
    for node in nodes:
        inside = with_branches(node, [together(draft, branch, changed) for branch in branches(node)])
        found += _before(draft, inside, changed) if isinstance(inside, Loop) else (inside,)
    return tuple(found)


def _before(draft: Draft, loop: Loop, changed: Set[str]) -> tuple[Node, ...]:
    """The accesses of a loop, and the loop, which reads registers."""
    count = constant_value(loop.extent)
    if count is None or count < 2 or loop.digit is not None or not all(isinstance(n, Generic) for n in loop.body):
        return (loop,)
    copies: list[Node] = []
    registers: dict[Element, str] = {}
    for node in loop.body:
        assert isinstance(node, Generic), "asked above"
        for event in events_of((node.leaf,)):
            if event is None or event.writes or not event.surely or event.element in registers:
                continue
            name, subscripts = event.element
            known = name in arrays_of(draft.problem) - changed and not any(isinstance(s, Gather) for s in subscripts)
            if known and _is_access(draft, event.element, loop.index, count):
                registers[event.element], made = _access(draft, node, event.element, loop, count)
                copies += made

    def change(read: Read) -> Read:
        own = registers.get((read.buffer, read.subscripts))
        return read if own is None else replace(read, buffer=own, subscripts=(IndexVar(name=loop.index),))

    body = tuple(
        replace(node, leaf=replace(node.leaf, value=map_reads(node.leaf.value, change)))
        for node in loop.body
        if isinstance(node, Generic)
    )
    return (*copies, replace(loop, body=body)) if registers else (loop,)


def _is_access(draft: Draft, element: Element, index: str, count: int) -> bool:
    size = draft.kernel.buffer(element[0]).dtype.size_bytes
    whole = count & (count - 1) == 0 and count * size <= ACCESS_BYTES
    return whole and is_run(draft.problem, element, index) and element_width(draft.problem, element, index) >= count


def _access(draft: Draft, node: Generic, element: Element, loop: Loop, count: int) -> tuple[str, tuple[Node, ...]]:
    """The registers of what a loop reads of an array, and what brings it."""
    (name, subscripts), fresh = element, draft.names.fresh
    dtype = draft.kernel.buffer(name).dtype
    own = draft.local(
        f"{name}_pair" if count == 2 else f"{name}_few",
        dtype,
        Memory.REG,
        row_major((const(count),)),
        f"neighbours of {name} that one loop reads",
    )
    each = fresh(f"{loop.index}_element")
    here = at(subscripts, loop.index, IndexVar(name=each))
    copy = Copy(
        id=fresh(f"{name}_read"),
        source=View(buffer=name, subscripts=here, dtype=dtype),
        target=View(buffer=own, subscripts=(IndexVar(name=each),), dtype=dtype),
        over=((each, const(count)),),
        access=Access.ALIGNED,
        digits=node.digits,
        span=node.span,
    )
    return own, (Fresh(buffer=own), copy)
