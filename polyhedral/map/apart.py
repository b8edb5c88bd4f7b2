"""Long sums that `promote` leaves: under conditions, or with more than one update of the buffer in the loop.

    seq K k { if A[k] > 0 { S[0] += A[k] } ; S[1] += A[k] }

    S_sum = 0 ; S_some = false                       each update has a register of its own, in f64
    seq K k { if A[k] > 0 { S_sum += f64(A[k]) ; S_some = true } ; … }
    if S_some { S[0] += S_sum }                      the element need not exist where nothing is added to it

The sums start from 0 and are added to the element at the end, so two of one element are as right as two of two. Done
for long updates only: others lose nothing by going to memory each time.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import AccOp, Accumulate, Bind, Const, Gather, Read
from texpr.grammar.index.expr import constant_value
from texpr.grammar.types import BOOL, F32, F64, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import every_node, node_reads, of_kind, statements
from texpr.polyhedral.walk import read_accesses, subscript_names, touched


def sums_apart(draft: Draft, loop: Loop) -> tuple[tuple[Node, ...], Loop, tuple[Node, ...]]:
    """What stands before the loop, the loop with registers in place of its long sums' elements, what stands after."""
    starts: list[Node] = []
    ends: list[Node] = []
    for update in _apart(draft, loop):
        leaf, span = update.leaf, update.span
        assert isinstance(leaf, Accumulate), "only accumulations are carried"
        around = update
        if inner_digits((loop,)) & set(update.digits):
            around = replace(update, digits=(), unused=Unused.REPLICATED)
        every = replace(around, unused=Unused.REPLICATED) if around.unused is not None else around
        total = Read(buffer=_register(draft, update, "sum", F64), subscripts=(), dtype=F64, span=span)
        starts += [Fresh(buffer=total.buffer), _bind(draft, every, total, 0.0)]
        narrowed = update.atomic and draft.target.is_cuda and draft.buffers[leaf.buffer].dtype != F64
        added = as_type(total, F32) if narrowed else total
        combine = replace(leaf, id=f"{update.id}_out", value=added)
        end: Node = replace(around, id=combine.id, leaf=combine, origin=Origin.COMBINE)
        inside: tuple[Node, ...] = (
            replace(update, leaf=replace(leaf, buffer=total.buffer, subscripts=()), atomic=False),
        )
        if not _surely_runs(loop):
            some = Read(buffer=_register(draft, update, "some", BOOL), subscripts=(), dtype=BOOL, span=span)
            starts += [Fresh(buffer=some.buffer), _bind(draft, every, some, False)]
            inside = (*inside, _bind(draft, update, some, True))
            end = Guard(condition=some, body=(end,), span=span)
        ends.append(end)
        loop = replace(loop, body=_with(loop.body, update, inside))
    return tuple(starts), loop, tuple(ends)


def inner_digits(body: Sequence[Node]) -> set[str]:
    """The digits that mean something in a body only."""
    return {digit.name for define in of_kind(body, Define) for digit in define.digits}


def _apart(draft: Draft, loop: Loop) -> list[Generic]:
    """The long updates of elements that stay where they are in the loop, of buffers that it only adds to."""
    if loop.digit is not None:
        return []
    inside = list(every_node(loop.body))
    moving = {loop.index} | {node.index for node in inside if isinstance(node, Loop | Define)}
    found = [
        s
        for s in statements(loop.body)
        if s.id in draft.long
        and isinstance(s.leaf, Accumulate)
        and draft.buffers[s.leaf.buffer].memory is not Memory.REG
        and not any(isinstance(subscript, Gather) for subscript in s.leaf.subscripts)
        and not subscript_names(s.leaf.subscripts) & moving
        and (s.atomic or not inner_digits((loop,)) & set(s.digits))
    ]
    read = {r.buffer for node in inside for r in node_reads(node)}
    read |= {r.buffer for s in statements(loop.body) for r in read_accesses(s.leaf)}
    bound = {
        name
        for s in statements(loop.body)
        if not (isinstance(s.leaf, Accumulate) and s.leaf.op is AccOp.ADD)
        for name, _ in touched(s.leaf)
    }
    return [s for s in found if isinstance(s.leaf, Accumulate) and s.leaf.buffer not in read | bound]


def _surely_runs(loop: Loop) -> bool:
    inside = list(every_node((loop,)))
    extents = [node.extent for node in inside if isinstance(node, Loop)]
    return not any(isinstance(n, Guard) for n in inside) and all((constant_value(e) or 0) > 0 for e in extents)


def _register(draft: Draft, update: Generic, suffix: str, dtype: DType) -> str:
    assert isinstance(update.leaf, Accumulate), "only accumulations are carried"
    buffer = draft.kernel.buffer(update.leaf.buffer)
    said = buffer.source_name or buffer.name
    reason = f"carries {said} through a loop" if dtype == F64 else f"whether anything was added to {said}"
    return draft.local(f"{buffer.name}_{suffix}", dtype, Memory.REG, row_major(()), reason, span=buffer.span)


def _bind(draft: Draft, like: Generic, target: Read, value: float | bool) -> Generic:
    id = draft.names.fresh(f"{like.id}_{'zero' if target.dtype == F64 else 'some'}")
    constant = Const(value=value, dtype=target.dtype, span=like.span)
    leaf = Bind(id=id, buffer=target.buffer, subscripts=(), value=constant, span=like.span)
    return replace(like, id=id, leaf=leaf, origin=Origin.INIT, atomic=False)


def _with(body: Sequence[Node], update: Generic, inside: tuple[Node, ...]) -> tuple[Node, ...]:
    """The body with other nodes in the update's place."""
    found: list[Node] = []
    for node in body:
        match node:
            case Generic() if node is update:
                found += inside
            case Loop():
                found.append(replace(node, body=_with(node.body, update, inside)))
            case Guard():
                found.append(
                    replace(node, body=_with(node.body, update, inside), orelse=_with(node.orelse, update, inside))
                )
            case _:
                found.append(node)
    return tuple(found)
