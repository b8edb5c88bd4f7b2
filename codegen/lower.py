"""Lowering: a mapped program becomes a kernel graph, values unchanged.

The tree of every `Launch` is kept node by node, so that a barrier's path means the same before and after; each
leaf statement becomes a `Generic` with its loads in evaluation order and its typed store; buffers become tensors of
the device (parameters, then workspaces) or of a block.

    Generic S0: C[i] = A[idx[i]]   ->   Generic S0  loads idx[i], A[gather]  store C[i] bind
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from texpr.codegen import graph as g
from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Atomic,
    Attr,
    Bind,
    Cast,
    ConditionValue,
    Const,
    Expr,
    Gather,
    If,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexValue,
    IndexVar,
    Intrinsic,
    Kernel,
    Leaf,
    Op,
    Par,
    Read,
    Role,
    Select,
    Seq,
    SizeVar,
    Stmt,
    Subscript,
)
from texpr.grammar.core import promises_unique
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import row_major
from texpr.polyhedral.mapped import operators as o
from texpr.polyhedral.mapped import places as p
from texpr.polyhedral.mapped import program as m
from texpr.polyhedral.mapped import tree as t
from texpr.polyhedral.mapped.sync import Barrier

_HARDWARE = frozenset(p.Place) - {p.Place.SERIAL, p.Place.VECTOR}


def lower(mapped: m.MappedProgram) -> g.KernelGraph:
    """The kernel graph of a mapped program. Raises E0403 where an extent of a block tensor is not a number."""
    kernel = mapped.kernel
    buffers = mapped.buffers
    attributes = inherited_attributes(kernel)
    params = [_device_tensor(buffers[p.name]) for p in kernel.params if p.name in buffers]
    workspaces = [_device_tensor(b) for b in buffers.values() if b.role is Role.LOCAL and b.memory is p.Memory.GLOBAL]
    return g.KernelGraph(
        name=kernel.name,
        source_name=kernel.span.source.name,
        tensors=(*params, *workspaces),
        sizes=tuple(size.name for size in kernel.sizes),
        facts=kernel.facts,
        body=tuple(_host(node, mapped, attributes) for node in mapped.host),
    )


def _device_tensor(buffer: m.MappedBuffer) -> g.DTensor:
    match buffer.layout:
        case m.Fixed(strides=strides):
            pass
        case m.Free():
            strides = row_major(buffer.shape)
        case _:
            assert_never(buffer.layout)
    return g.DTensor(
        name=buffer.name,
        dtype=buffer.dtype,
        shape=buffer.shape,
        strides=strides,
        role=buffer.role,
        align=buffer.align,
        span=buffer.span,
    )


def _number(expr: IndexExpr, buffer: m.MappedBuffer) -> int:
    match expr:
        case IndexConst(value=value):
            return value
        case IndexVar() | SizeVar() | IndexBinary():
            raise fail(
                "E0403",
                f"{buffer.name} is placed in {buffer.memory} memory, so its extents must be numbers",
                buffer.span,
                help="bind the size at compile time, or place the buffer with `new global`",
            )
        case _:
            assert_never(expr)


def _block_tensor(buffer: m.MappedBuffer) -> g.BlockTensor:
    strides: tuple[int, ...] | None
    match buffer.layout:
        case m.Fixed(strides=exprs):
            strides = tuple(_number(s, buffer) for s in exprs)
        case m.Free():
            strides = None
        case _:
            assert_never(buffer.layout)
    return g.BlockTensor(
        name=buffer.name,
        dtype=buffer.dtype,
        shape=tuple(_number(e, buffer) for e in buffer.shape),
        strides=strides,
        memory=buffer.memory,
        align=buffer.align,
        span=buffer.span,
    )


def _host(node: m.HostNode, mapped: m.MappedProgram, attributes: dict[str, tuple[Attr, ...]]) -> g.KernelNode:
    match node:
        case m.Launch():
            return g.Launch(graph=_block_graph(node, mapped, attributes))
        case m.HostLoop(index=index, extent=extent, body=body):
            return g.HostLoop(index=index, extent=extent, body=tuple(_host(n, mapped, attributes) for n in body))
        case m.HostIf(condition=condition, then=then, orelse=orelse):
            return g.HostIf(
                condition=condition,
                then=tuple(_host(n, mapped, attributes) for n in then),
                orelse=tuple(_host(n, mapped, attributes) for n in orelse),
            )
        case _:
            assert_never(node)


INHERITED = ("strict", "fast", "tf32", "ordered")
UNIQUE_OVER = "unique over"  # not a name that the language has: `#unique` with its parallel indices


def inherited_attributes(kernel: Kernel) -> dict[str, tuple[Attr, ...]]:
    """For every leaf statement, by id, the attributes that it takes over: `#strict`, `#fast` and `#tf32` of the
    kernel, `#ordered` of a `seq` around it, and for its own `#unique` the indices of the `par`s around it, whose
    iterations are promised to reach different elements."""
    found: dict[str, tuple[Attr, ...]] = {}
    general = tuple(a for a in kernel.attrs if a.name in INHERITED)
    pending: list[tuple[Stmt, tuple[Attr, ...], tuple[IndexVar, ...]]] = [(s, general, ()) for s in kernel.body]
    while pending:
        statement, attrs, pars = pending.pop()
        match statement:
            case Seq(body=body):
                inner = attrs + tuple(a for a in statement.attrs if a.name == "ordered")
                pending.extend((s, inner, pars) for s in body)
            case Par(body=body, index=index):
                pending.extend((s, attrs, (*pars, IndexVar(name=index))) for s in body)
            case If(then=then, orelse=orelse):
                pending.extend((s, attrs, pars) for s in then + orelse)
            case Intrinsic(reference=reference):
                pending.extend((s, attrs, pars) for s in reference)
            case Bind() | Accumulate() | Atomic() | Anchor():
                unique = (Attr(name=UNIQUE_OVER, args=pars),) if promises_unique(statement) else ()
                found[statement.id] = attrs + unique
            case _:
                pass
    return found


def _block_graph(launch: m.Launch, mapped: m.MappedProgram, attributes: dict[str, tuple[Attr, ...]]) -> g.BlockGraph:
    if launch.cluster != (1, 1, 1):
        raise fail("E0502", f"clusters of {launch.cluster} blocks are not emitted", launch.span)
    body = tuple(_node(node, attributes) for node in launch.body)
    used = set(tensors_of(body))
    return g.BlockGraph(
        name=launch.name,
        grid_dim=launch.grid,
        cluster_dim=(1, 1, 1),
        block_dim=launch.threads,
        digits=tuple(d for d in launch.digits if d.place in _HARDWARE),
        tensors=tuple(
            _block_tensor(b)
            for b in mapped.buffers.values()
            if b.role is Role.LOCAL and b.memory is not p.Memory.GLOBAL and b.name in used
        ),
        body=body,
        orders=launch.orders,
        arguments=launch.arguments,
        span=launch.span,
    )


def _node(node: t.Node, attributes: dict[str, tuple[Attr, ...]]) -> g.BlockNode:
    match node:
        case t.Define(index=index, digits=digits):
            return g.Define(index=index, terms=tuple((d.weight, d.name) for d in digits))
        case t.Loop(index=index, extent=extent, body=body):
            return g.Loop(
                index=index,
                extent=extent,
                body=tuple(_node(n, attributes) for n in body),
                unroll=node.unroll,
                vector=node.vector,
                span=node.span,
            )
        case t.Guard(condition=condition, body=body, orelse=orelse):
            return g.Guard(
                condition=condition,
                body=tuple(_node(n, attributes) for n in body),
                orelse=tuple(_node(n, attributes) for n in orelse),
                uniform=node.uniform,
                once=node.once,
                span=node.span,
            )
        case t.Fresh(buffer=buffer):
            return g.Fresh(tensor=buffer)
        case Barrier():
            return node
        case o.Generic():
            return _generic(node, attributes)
        case _:
            raise fail("E0502", f"{type(node).__name__} is not emitted")


def _generic(statement: o.Generic, attributes: dict[str, tuple[Attr, ...]]) -> g.Generic:
    leaf = statement.leaf
    extra = tuple(a for a in attributes.get(leaf.id, ()) if not leaf.has(a.name))
    if extra:
        leaf = replace(leaf, attrs=leaf.attrs + extra)
    loads = list(loads_of(leaf.value))
    store = _store(leaf, statement.atomic)
    if store is not None:
        for subscript in store.subscripts:
            if isinstance(subscript, Gather):
                loads.extend(loads_of(subscript.value))
    return g.Generic(
        id=statement.id,
        leaf=leaf,
        loads=tuple(loads),
        store=store,
        origin=statement.origin,
        once=statement.unused is o.Unused.ONCE,
        span=leaf.span,
        call_spans=leaf.call_spans,
    )


def _store(leaf: Leaf, atomic: bool) -> g.Store | None:
    match leaf:
        case Anchor():
            return None
        case Bind(buffer=buffer, subscripts=subscripts):
            return g.Store(tensor=buffer, subscripts=subscripts, mode=g.StoreMode.BIND, span=leaf.span)
        case Accumulate(buffer=buffer, subscripts=subscripts, op=op):
            mode = g.StoreMode.ATOMIC if atomic else g.StoreMode.UPDATE
            return g.Store(tensor=buffer, subscripts=subscripts, mode=mode, op=op, span=leaf.span)
        case Atomic(buffer=buffer, subscripts=subscripts, op=op):
            return g.Store(tensor=buffer, subscripts=subscripts, mode=g.StoreMode.ATOMIC, op=op, span=leaf.span)
        case _:
            assert_never(leaf)


def loads_of(expr: Expr) -> Iterator[g.Load]:
    """The loads of a value in evaluation order: what a gather reads stands before the gathered read."""
    match expr:
        case Const() | IndexValue() | ConditionValue():
            return
        case Read(buffer=buffer, subscripts=subscripts):
            gathered = False
            for subscript in subscripts:
                if isinstance(subscript, Gather):
                    gathered = True
                    yield from loads_of(subscript.value)
            mode = g.LoadMode.GATHER if gathered else g.LoadMode.PLAIN
            yield g.Load(tensor=buffer, subscripts=subscripts, mode=mode, span=expr.span)
        case Op(args=args):
            for arg in args:
                yield from loads_of(arg)
        case Cast(operand=operand):
            yield from loads_of(operand)
        case Select(condition=condition, then=then, other=other):
            if isinstance(condition, Expr):
                yield from loads_of(condition)
            yield from loads_of(then)
            yield from loads_of(other)
        case _:
            assert_never(expr)


def tensors_of(body: tuple[g.BlockNode, ...]) -> Iterator[str]:
    """The names of all tensors that a body touches, with repetitions."""
    for node in body:
        match node:
            case g.Define() | Barrier():
                pass
            case g.Loop(body=inner):
                yield from tensors_of(inner)
            case g.Guard(condition=condition, body=inner, orelse=orelse):
                if isinstance(condition, Read):
                    yield from _subscripted(condition.buffer, condition.subscripts)
                yield from tensors_of(inner)
                yield from tensors_of(orelse)
            case g.Fresh(tensor=tensor):
                yield tensor
            case g.Generic(loads=loads, store=store):
                yield from (load.tensor for load in loads)
                if store is not None:
                    yield store.tensor
            case _:
                assert_never(node)


def _subscripted(tensor: str, subscripts: tuple[Subscript, ...]) -> Iterator[str]:
    yield tensor
    for subscript in subscripts:
        if isinstance(subscript, Gather):
            yield from (load.tensor for load in loads_of(subscript.value))
