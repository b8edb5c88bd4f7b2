"""Kernel graphs as readable text, before and after planning.

kernel graph vadd  sizes N
  A: f32[N] strides (1)
  …
  BlockGraph vadd_0  grid (ceildiv(N, 256), 1, 1)  block 256
    digits i_block: grid.x, i_lane: lane / 1 % 32
    define i = 256*i_block + 32*i_warp + i_lane
    guard i < N
      generic S0: C[i] = add(A[i], B[i])    loads A[i], B[i]    store C[i] bind
"""

from collections.abc import Iterator
from typing import assert_never

from texpr.codegen import graph as g
from texpr.grammar.ast import Accumulate, Anchor, Atomic, Bind, Gather, IndexConst, Leaf, Read, Role, Subscript
from texpr.grammar.index.text import in_words
from texpr.grammar.show import show_value
from texpr.polyhedral.mapped.sync import Barrier


def show(graph: g.KernelGraph | g.PlannedGraph) -> str:
    """The text of a graph; of a planned one with addresses and layouts. Ends with a newline."""
    match graph:
        case g.PlannedGraph():
            return "\n".join(_kernel(graph.graph, graph)) + "\n"
        case g.KernelGraph():
            return "\n".join(_kernel(graph, None)) + "\n"
        case _:
            assert_never(graph)


def _kernel(graph: g.KernelGraph, planned: g.PlannedGraph | None) -> Iterator[str]:
    yield f"kernel graph {graph.name}" + (f"  sizes {', '.join(graph.sizes)}" if graph.sizes else "")
    if graph.facts:
        yield "  where " + ", ".join(in_words(fact) for fact in graph.facts)
    for tensor in graph.tensors:
        shape = ", ".join(in_words(e) for e in tensor.shape)
        strides = ", ".join(in_words(e) for e in tensor.strides)
        text = f"  {tensor.name}: {tensor.dtype}[{shape}] strides ({strides})"
        if tensor.role is Role.SCALAR:
            text = f"  {tensor.name}: {tensor.dtype}"
        elif tensor.role is Role.LOCAL:
            text += "  workspace"
            if planned is not None:
                text += f" at byte {in_words(planned.workspace.offsets[tensor.name])}"
        yield text
    if planned is not None and planned.workspace.total_bytes != IndexConst(value=0):
        yield f"  workspace of {in_words(planned.workspace.total_bytes)} bytes"
    for node in graph.body:
        yield from _host(node, planned, 1)


def _host(node: g.KernelNode, planned: g.PlannedGraph | None, depth: int) -> Iterator[str]:
    pad = "  " * depth
    match node:
        case g.Launch(graph=block):
            yield from (pad + line for line in _block(block, planned))
        case g.HostLoop(index=index, extent=extent, body=body):
            yield f"{pad}host loop {index} < {in_words(extent)}"
            for inner in body:
                yield from _host(inner, planned, depth + 1)
        case g.HostIf(condition=condition, then=then, orelse=orelse):
            yield f"{pad}host if {in_words(condition)}"
            for inner in then:
                yield from _host(inner, planned, depth + 1)
            if orelse:
                yield f"{pad}else"
            for inner in orelse:
                yield from _host(inner, planned, depth + 1)
        case _:
            assert_never(node)


def _block(block: g.BlockGraph, planned: g.PlannedGraph | None) -> Iterator[str]:
    grid = ", ".join(in_words(e) for e in block.grid_dim)
    cluster = f"  cluster {block.cluster_dim}" if block.cluster_dim != (1, 1, 1) else ""
    arguments = f"  arguments {', '.join(block.arguments)}" if block.arguments else ""
    yield f"BlockGraph {block.name}  grid ({grid}){cluster}  block {block.block_dim}{arguments}"
    if block.digits:
        places = [f"{d.name}: {d.place} / {in_words(d.stride)} % {in_words(d.radix)}" for d in block.digits]
        yield "  digits " + ", ".join(places)
    for tensor in block.tensors:
        yield "  " + _tensor(block, tensor, planned)
    if planned is not None and planned.shared[block.name].total_bytes:
        yield f"  shared memory of {planned.shared[block.name].total_bytes} bytes"
    yield from ("  " + line for line in _nodes(block.body))


def _tensor(block: g.BlockGraph, tensor: g.BlockTensor, planned: g.PlannedGraph | None) -> str:
    shape = ", ".join(map(str, tensor.shape))
    strides = tensor.strides if planned is None else planned.strides[block.name][tensor.name]
    layout = "free layout" if strides is None else f"strides ({', '.join(map(str, strides))})"
    text = f"{tensor.name}: {tensor.dtype}[{shape}] {layout} in {tensor.memory}"
    if planned is not None and tensor.name in planned.shared[block.name].offsets:
        text += f" at byte {planned.shared[block.name].offsets[tensor.name]}"
    return text


def _nodes(body: tuple[g.BlockNode, ...]) -> Iterator[str]:
    for node in body:
        yield from _node(node)


def _node(node: g.BlockNode) -> Iterator[str]:
    match node:
        case g.Define(index=index, terms=terms):
            parts = [name if weight == 1 else f"{weight}*{name}" for weight, name in terms]
            yield f"define {index} = {' + '.join(parts) or '0'}"
        case g.Loop(index=index, extent=extent, body=body):
            marks = [word for word, on in (("unroll", node.unroll), ("vector", node.vector)) if on]
            yield f"loop {index} < {in_words(extent)}" + "".join(f"  {mark}" for mark in marks)
            yield from ("  " + line for line in _nodes(body))
        case g.Guard(condition=condition, body=body, orelse=orelse):
            asked = show_value(condition) if isinstance(condition, Read) else in_words(condition)
            yield f"guard {asked}{'    once' if node.once else ''}"
            yield from ("  " + line for line in _nodes(body))
            if orelse:
                yield "else"
                yield from ("  " + line for line in _nodes(orelse))
        case g.Fresh(tensor=tensor):
            yield f"fresh {tensor}"
        case Barrier(scope=scope, orders=orders):
            reasons = dict.fromkeys(f"{o.source} -> {o.sink} on {o.buffer} ({o.hazard})" for o in orders)
            yield f"barrier {scope}: {', '.join(reasons)}"
        case g.Generic():
            yield _generic(node)
        case _:
            assert_never(node)


def _generic(operator: g.Generic) -> str:
    text = f"generic {operator.id}: {_leaf(operator.leaf)}"
    if operator.loads:
        loads = [
            _element(load.tensor, load.subscripts) + (" gather" if load.mode is g.LoadMode.GATHER else "")
            for load in operator.loads
        ]
        text += f"    loads {', '.join(loads)}"
    if operator.store is not None:
        text += f"    store {_element(operator.store.tensor, operator.store.subscripts)} {operator.store.mode}"
    if operator.origin != "source":
        text += f"    {operator.origin}"
    return text + ("    once" if operator.once else "")


def _leaf(leaf: Leaf) -> str:
    match leaf:
        case Anchor(value=value):
            return f"anchor {show_value(value)}"
        case Bind(buffer=buffer, subscripts=subscripts, value=value):
            return f"{_element(buffer, subscripts)} = {show_value(value)}"
        case Accumulate(buffer=buffer, subscripts=subscripts, value=value, op=op):
            return f"{_element(buffer, subscripts)} {op}= {show_value(value)}"
        case Atomic(buffer=buffer, subscripts=subscripts, value=value, op=op):
            return f"atomic {_element(buffer, subscripts)} {op}= {show_value(value)}"
        case _:
            assert_never(leaf)


def _element(buffer: str, subscripts: tuple[Subscript, ...]) -> str:
    if not subscripts:
        return buffer
    texts = [f"[{show_value(s.value)}]" if isinstance(s, Gather) else in_words(s) for s in subscripts]
    return f"{buffer}[{', '.join(texts)}]"
