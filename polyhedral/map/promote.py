"""Accumulator promotion: a loop that only accumulates into one element carries it in a register.

    seq K k { C[i, j] += A[i, k] * B[k, j] }

    C_acc = C[i, j]                      copy_in  (or init, where a bind of C[i, j] stands right before the loop)
    seq K k { C_acc += A[i, k] * B[k, j] }
    C[i, j] = C_acc                      copy_out

The register has the type that the updates are computed in, f32 for narrower floats and f64 for long sums, and is
rounded once at the end (docs/language.md, Numerics). Where the loop may have no iteration and no bind stands before
it, all three are guarded, for then the element need not exist. An atomic update carries a partial result from the
operator's identity, and adds it atomically once (init, combine). Not done where something else in the loop touches the
buffer.

    seq Q q { a = a_lane ; C[b] += … }        the band of `a` is defined in the loop, and fills the block's threads

Digits that the loop defines mean nothing around it. The copies of an atomic update are then made by every thread of the
block, each with its own partial result; other updates stay in such a loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from texpr.grammar.ast import Accumulate, Bind, Compare, CompareOp, Const, Expr, Gather, Leaf, Read
from texpr.grammar.identities import first_of
from texpr.grammar.index.expr import ZERO, constant_value
from texpr.grammar.permissions import keeps_order
from texpr.grammar.types import F32, F64
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.apart import inner_digits, sums_apart
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import every_node, of_kind, tree_buffers
from texpr.polyhedral.walk import read_accesses, subscript_names


def promote(draft: Draft, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The tree with every accumulation that allows it carried in a register; new buffers go to the draft."""
    found: list[Node] = []
    for node in body:
        match node:
            case Loop():
                updates = _carried(draft, node)
                before: dict[str, Node] = {}
                while found and (same := _bound_by(found[-1], updates)) is not None and same.id not in before:
                    before[same.id] = found.pop()
                found += _promoted(draft, node, updates, before)
            case Guard(body=inside, orelse=orelse):
                found.append(replace(node, body=promote(draft, inside), orelse=promote(draft, orelse)))
            case _:
                found.append(node)
    return tuple(found)


def _carried(draft: Draft, loop: Loop) -> tuple[Generic, ...]:
    """The accumulations that the loop may carry in registers; over a digit, the indivisible ones of a CPU's core."""
    if loop.digit is not None and draft.target.is_cuda:
        return ()
    defined = {loop.index}
    inner = inner_digits((loop,))
    updates: list[Generic] = []
    for node in every_node(loop.body):
        match node:
            case Loop(index=index):
                defined.add(index)
            case Define(index=index):
                defined.add(index)
            case Guard():
                return ()
            case Generic(leaf=Accumulate()):
                updates.append(node)
            case Generic() | Fresh():
                pass
    if loop.digit is not None:
        updates = [u for u in updates if u.atomic and u.id in draft.long]
    return tuple(u for u in updates if _invariant(draft, u, defined, inner) and _alone(u, loop))


def _invariant(draft: Draft, update: Generic, defined: set[str], inner: set[str]) -> bool:
    leaf = update.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are candidates"
    buffer = draft.buffers[leaf.buffer]
    return (
        (buffer.memory is not Memory.REG or (buffer.shape != () and update.id in draft.long))
        and not (update.atomic and keeps_order(leaf))
        and (update.atomic or inner.isdisjoint(update.digits))
        and not any(isinstance(s, Gather) for s in leaf.subscripts)
        and not subscript_names(leaf.subscripts) & defined
    )


def _alone(update: Generic, loop: Loop) -> bool:
    """Whether nothing else in the loop touches the updated buffer."""
    leaf = update.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are candidates"
    name = leaf.buffer
    if any(read.buffer == name for read in read_accesses(leaf)):
        return False
    others = [node for node in every_node(loop.body) if not isinstance(node, Loop | Guard) and node is not update]
    return name not in tree_buffers(others)


def _bound_by(node: Node, updates: Sequence[Generic]) -> Generic | None:
    """The update whose element the node binds, in the same threads."""
    if not isinstance(node, Generic) or not isinstance(node.leaf, Bind):
        return None
    if any(read.buffer == u.leaf.buffer for read in read_accesses(node.leaf) for u in updates if _is_update(u.leaf)):
        return None
    for update in updates:
        leaf, target = node.leaf, update.leaf
        if _is_update(target) and (leaf.buffer, leaf.subscripts) == (target.buffer, target.subscripts):
            return update if (node.digits, node.unused) == (update.digits, update.unused) else None
    return None


def _is_update(leaf: Leaf) -> TypeGuard[Accumulate]:
    return isinstance(leaf, Accumulate)


def _promoted(draft: Draft, loop: Loop, updates: Sequence[Generic], before: Mapping[str, Node]) -> tuple[Node, ...]:
    """The loop with its accumulations in registers, and the copies around it; `before` has binds of their elements.
    Long sums whose elements need not exist are kept apart, and loops inside carry what stays in place there."""
    extents = [inner.extent for inner in of_kind((loop,), Loop)]
    runs = all((constant_value(e) or 0) > 0 for e in extents)
    if not runs and (before or len(extents) > 1):
        updates = [u for u in updates if u.id in before]
    starts: list[Node] = []
    ends: list[Node] = []
    inside = loop
    for update in updates:
        inside = _one(draft, inside, update, before.get(update.id), starts, ends)
    apart_starts, inside, apart_ends = sums_apart(draft, inside)
    inside = replace(inside, body=promote(draft, inside.body))
    kept = (*starts, *apart_starts, inside, *apart_ends, *ends)
    if runs or before or not updates:
        return kept
    some = Compare(op=CompareOp.GT, left=loop.extent, right=ZERO)
    return (Guard(condition=some, body=kept, span=loop.span),)


def _one(draft: Draft, loop: Loop, update: Generic, start: Node | None, starts: list[Node], ends: list[Node]) -> Loop:
    """The loop with one accumulation in a register; what comes before and after it is appended."""
    leaf = update.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are promoted"
    carried = leaf.value.dtype
    stored = draft.buffers[leaf.buffer].dtype
    around = update
    if inner_digits((loop,)) & set(update.digits):
        around = replace(update, digits=(), unused=Unused.REPLICATED)
    buffer = draft.kernel.buffer(leaf.buffer)
    reason = f"carries {buffer.source_name or buffer.name} through a loop"
    local = draft.local(f"{leaf.buffer}_acc", carried, Memory.REG, row_major(()), reason, span=buffer.span)
    here = Read(buffer=local, subscripts=(), dtype=carried, span=leaf.span)
    there = Read(buffer=leaf.buffer, subscripts=leaf.subscripts, dtype=stored, span=leaf.span)

    def moved(origin: Origin, suffix: str, target: Read, value: Expr) -> Generic:
        id = f"{update.id}_{suffix}"
        bind = Bind(id=id, buffer=target.buffer, subscripts=target.subscripts, value=value, span=leaf.span)
        return replace(around, id=id, leaf=bind, origin=origin)

    starts.append(Fresh(buffer=local))
    if isinstance(start, Generic) and isinstance(start.leaf, Bind):
        init = replace(start.leaf, buffer=local, subscripts=(), value=as_type(start.leaf.value, carried))
        starts.append(replace(start, leaf=init, origin=Origin.INIT))
    elif update.atomic:
        first = Const(value=first_of(leaf.op, carried), dtype=carried, span=leaf.span)
        starts.append(replace(moved(Origin.INIT, "init", here, first), atomic=False))
    else:
        starts.append(moved(Origin.COPY_IN, "in", here, as_type(there, carried)))
    if update.atomic:
        narrowed = update.id in draft.long and draft.target.is_cuda and stored != F64
        added = as_type(here, F32) if narrowed else here
        combine = replace(leaf, id=f"{update.id}_out", value=added)
        ends.append(replace(around, id=combine.id, leaf=combine, origin=Origin.COMBINE))
    else:
        ends.append(moved(Origin.COPY_OUT, "out", there, as_type(here, stored)))
    return _replace_leaf(loop, update, replace(leaf, buffer=local, subscripts=()))


def _replace_leaf(loop: Loop, update: Generic, leaf: Accumulate) -> Loop:
    """The loop with the update's leaf replaced."""

    def within(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(
            replace(n, leaf=leaf, atomic=False)
            if n is update
            else replace(n, body=within(n.body))
            if isinstance(n, Loop)
            else n
            for n in nodes
        )

    return replace(loop, body=within(loop.body))
