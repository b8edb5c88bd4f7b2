"""Accumulator promotion: a loop that only accumulates into one element carries it in a register.

    seq K k { C[i, j] += A[i, k] * B[k, j] }

    C_acc = C[i, j]                      copy_in  (or init, where a bind of C[i, j] stands right before the loop)
    seq K k { C_acc += A[i, k] * B[k, j] }
    C[i, j] = C_acc                      copy_out

The register has the type that the updates are computed in, f32 for narrower floats, and is rounded once at the end
(LANGUAGE.md, Numerics). Where the loop may have no iteration and no bind stands before it, all three are guarded, for
then the element need not exist. Not done where the update is atomic or something else in the loop touches the buffer.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Accumulate, Bind, Buffer, Cast, Compare, CompareOp, Expr, Gather, Read, Role
from texpr.grammar.types import DType
from texpr.polyhedral.indices import ZERO, constant_value
from texpr.polyhedral.mapping import (
    Define,
    Free,
    Fresh,
    Guard,
    Loop,
    MappedBuffer,
    MappedStatement,
    Memory,
    Node,
    Origin,
    Scope,
)
from texpr.polyhedral.session import Session
from texpr.polyhedral.tree import located, tree_buffers
from texpr.polyhedral.walk import read_accesses, subscript_names


def promote(session: Session, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The tree with every accumulation that allows it carried in a register; new buffers go to the session."""
    found: list[Node] = []
    for node in body:
        match node:
            case Loop() if (update := _carried(session, node)) is not None:
                before = found.pop() if found and _binds_same(found[-1], update) else None
                found += _promoted(session, node, update, before)
            case Loop(body=inside):
                found.append(replace(node, body=promote(session, inside)))
            case Guard(body=inside, orelse=orelse):
                found.append(replace(node, body=promote(session, inside), orelse=promote(session, orelse)))
            case _:
                found.append(node)
    return tuple(found)


def _carried(session: Session, loop: Loop) -> MappedStatement | None:
    """The accumulation that the loop may carry in a register, None where there is none or more than one."""
    if loop.digit is not None:
        return None
    defined = {loop.index}
    updates: list[MappedStatement] = []
    for place in located(loop.body):
        match place.node:
            case Loop(index=index):
                defined.add(index)
            case Define(index=index):
                defined.add(index)
            case Guard():
                return None
            case MappedStatement(leaf=Accumulate()):
                updates.append(place.node)
            case MappedStatement() | Fresh():
                pass
    candidates = [u for u in updates if _invariant(session, u, defined) and _alone(u, loop)]
    return candidates[0] if len(candidates) == 1 else None


def _invariant(session: Session, update: MappedStatement, defined: set[str]) -> bool:
    leaf = update.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are candidates"
    buffer = session.buffers[leaf.buffer]
    return (
        not update.atomic
        and buffer.memory is not Memory.REG
        and not any(isinstance(s, Gather) for s in leaf.subscripts)
        and not subscript_names(leaf.subscripts) & defined
    )


def _alone(update: MappedStatement, loop: Loop) -> bool:
    """Whether nothing else in the loop touches the updated buffer."""
    leaf = update.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are candidates"
    name = leaf.buffer
    if any(read.buffer == name for read in read_accesses(leaf)):
        return False
    others = [p.node for p in located(loop.body) if not isinstance(p.node, Loop | Guard) and p.node is not update]
    return name not in tree_buffers(others)


def _binds_same(node: Node, update: MappedStatement) -> bool:
    """Whether the node binds the element that is updated, in the same threads."""
    if not isinstance(node, MappedStatement):
        return False
    leaf, target = node.leaf, update.leaf
    return (
        isinstance(leaf, Bind)
        and isinstance(target, Accumulate)
        and (leaf.buffer, leaf.subscripts) == (target.buffer, target.subscripts)
        and (node.digits, node.unused) == (update.digits, update.unused)
    )


def _promoted(session: Session, loop: Loop, update: MappedStatement, before: Node | None) -> tuple[Node, ...]:
    leaf = update.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are promoted"
    carried = leaf.value.dtype
    stored = session.buffers[leaf.buffer].dtype
    local = session.names.fresh(f"{leaf.buffer}_acc")
    session.buffers[local] = _register(session.kernel.buffer(leaf.buffer), local, carried)
    here = Read(buffer=local, subscripts=(), dtype=carried, span=leaf.span)
    there = Read(buffer=leaf.buffer, subscripts=leaf.subscripts, dtype=stored, span=leaf.span)

    def moved(origin: Origin, suffix: str, buffer: str, target: Read, value: Expr) -> MappedStatement:
        bind = Bind(
            id=f"{update.id}_{suffix}", buffer=buffer, subscripts=target.subscripts, value=value, span=leaf.span
        )
        return replace(update, id=bind.id, leaf=bind, origin=origin)

    out = moved(Origin.COPY_OUT, "out", leaf.buffer, there, _as(here, stored))
    inside = _replace_leaf(loop, update, replace(leaf, buffer=local, subscripts=()))
    if isinstance(before, MappedStatement) and isinstance(before.leaf, Bind):
        init = replace(before.leaf, buffer=local, subscripts=(), value=_as(before.leaf.value, carried))
        return Fresh(buffer=local), replace(before, leaf=init, origin=Origin.INIT), inside, out
    copy = moved(Origin.COPY_IN, "in", local, here, _as(there, carried))
    nodes: tuple[Node, ...] = (Fresh(buffer=local), copy, inside, out)
    extents = [n.extent for n in (loop, *(p.node for p in located(loop.body))) if isinstance(n, Loop)]
    if all((constant_value(e) or 0) > 0 for e in extents):
        return nodes
    if len(extents) > 1:
        return (loop,)
    some = Compare(op=CompareOp.GT, left=loop.extent, right=ZERO)
    return (Guard(condition=some, body=nodes, span=loop.span),)


def _as(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else Cast(operand=value, dtype=dtype, span=value.span)


def _register(buffer: Buffer, name: str, dtype: DType) -> MappedBuffer:
    return MappedBuffer(
        name=name,
        dtype=dtype,
        shape=(),
        memory=Memory.REG,
        scope=Scope.THREAD,
        layout=Free(),
        role=Role.LOCAL,
        reason=f"carries {buffer.source_name or buffer.name} through a loop",
        span=buffer.span,
    )


def _replace_leaf(loop: Loop, update: MappedStatement, leaf: Accumulate) -> Loop:
    """The loop with the update's leaf replaced."""

    def within(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(
            replace(n, leaf=leaf) if n is update else replace(n, body=within(n.body)) if isinstance(n, Loop) else n
            for n in nodes
        )

    return replace(loop, body=within(loop.body))
