"""Attributes that changed nothing: kept, but with nothing there for them to act on. The mapping's report names each.

par N i { C[i] = A[i] #unique }     "`#unique` (line 1) changes nothing: its statement writes no gathered element"
"""

from collections.abc import Iterator, Mapping, Sequence

from texpr.grammar.ast import AccOp, Accumulate, Atomic, Attr, Fn, Kernel, Leaf, Op, Par, Seq
from texpr.grammar.core import promises_unique, statements
from texpr.grammar.walk import walk as nodes_of
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostNode, MappedBuffer
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import launches, located
from texpr.polyhedral.target import Target

Found = Iterator[tuple[Attr, str]]


def idle_attributes(
    kernel: Kernel, target: Target, host: Sequence[HostNode], buffers: Mapping[str, MappedBuffer]
) -> tuple[str, ...]:
    """A sentence for each attribute that changed nothing, in text order; the attributes were accepted before."""
    found = [*_of_kernel(kernel, target), *_of_statements(kernel, target, host), *_of_buffers(kernel, buffers)]
    found.sort(key=lambda each: each[0].span.start)
    lines = (f"`#{attr.name}` (line {attr.span.line}) changes nothing: {why}" for attr, why in found)
    return tuple(dict.fromkeys(lines))


def _of_kernel(kernel: Kernel, target: Target) -> Found:
    leaves = [s for s in statements(kernel.body) if isinstance(s, Leaf)]
    for attr in kernel.attrs:
        match attr.name:
            case "threads" if not target.is_cuda:
                yield attr, "a CPU has no thread blocks"
            case "threads" if not any(isinstance(s, Par) for s in statements(kernel.body)):
                yield attr, "no statement stands in a `par`"
            case "strict" if not any(_contracts(leaf) for leaf in leaves):
                yield attr, "no statement adds a product of floats"
            case "unique" if not any(promises_unique(leaf) for leaf in leaves):
                yield attr, "no statement writes a gathered element"
            case _:
                pass


def _of_statements(kernel: Kernel, target: Target, host: Sequence[HostNode]) -> Found:
    loops = (p.node for launch in launches(host) for p in located(launch.body) if isinstance(p.node, Loop))
    unrolled = {(loop.span.source.name, loop.span.start) for loop in loops if loop.unroll}
    for stmt in statements(kernel.body):
        for attr in stmt.attrs:
            match attr.name:
                case "grid" | "block" | "thread" if not target.is_cuda:
                    yield attr, "it names a place of a GPU"
                case "unroll" if not target.is_cuda:
                    yield attr, "the compiler of a CPU's code unrolls as it finds best"
                case "unroll" if (stmt.span.source.name, stmt.span.start) not in unrolled:
                    yield attr, "each thread has one of the iterations"
                case "ordered" if isinstance(stmt, Seq) and not any(
                    isinstance(s, Accumulate) for s in statements(stmt.body)
                ):
                    yield attr, "the loop accumulates nothing"
                case "strict" if isinstance(stmt, Leaf) and not _contracts(stmt):
                    yield attr, "its statement adds no product of floats"
                case "unique" if isinstance(stmt, Leaf) and not promises_unique(stmt):
                    yield attr, "its statement writes no gathered element"
                case _:
                    pass


def _of_buffers(kernel: Kernel, buffers: Mapping[str, MappedBuffer]) -> Found:
    for buffer in kernel.buffers:
        placed = buffers.get(buffer.name)
        for attr in buffer.attrs:
            if attr.name in ("align", "pad") and (placed is None or placed.memory is Memory.REG):
                yield (
                    attr,
                    "nothing uses the buffer" if placed is None else "the buffer is a thread's own, in registers",
                )


def _contracts(leaf: Leaf) -> bool:
    """Whether a product of floats may be one instruction with the addition that takes it."""
    ops = [node for node in nodes_of(leaf) if isinstance(node, Op) and node.dtype.is_float]
    products = any(op.fn is Fn.MUL for op in ops)
    adds = isinstance(leaf, Accumulate | Atomic) and leaf.op is AccOp.ADD
    return products and (adds or any(op.fn in (Fn.ADD, Fn.SUB) for op in ops))
