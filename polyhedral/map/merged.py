"""Merged dimensions: dimensions of arrays that lie one in the other become one, in all accesses of a kernel.

X: f32[M, N], X[i, j]      X: f32[M*N], X[N*i + j]
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Gather,
    IndexExpr,
    Kernel,
    Node,
    Read,
    Stmt,
    Subscript,
)
from texpr.grammar.index.expr import ZERO, add, multiply
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.permissions import padding_of
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.layout.declared import declared_layout

Merges = Mapping[str, tuple[int, int]]
"""By buffer, the first and the last of the dimensions that become one."""


def with_merged(kernel: Kernel, merges: Merges) -> Kernel:
    """The kernel with dimensions of its arrays as one."""
    buffers = {b.name: b for b in kernel.buffers}

    def change(node: Node) -> Node:
        match node:
            case Read() | Bind() | Accumulate() | Atomic() if node.buffer in merges:
                ends = merges[node.buffer]
                one = linear(merged(buffers[node.buffer], node.subscripts, ends)).expression()
                return replace(node, subscripts=(*node.subscripts[: ends[0]], one, *node.subscripts[ends[1] + 1 :]))
            case _:
                return node

    body = tuple(rewrite(stmt, change) for stmt in kernel.body)
    return replace(kernel, buffers=tuple(merged_buffer(b, merges) for b in kernel.buffers), body=body)


def accesses(stmt: Stmt) -> Iterator[tuple[str, tuple[Subscript, ...]]]:
    """Every access below a statement."""
    for node in walk(stmt):
        if isinstance(node, Read | Bind | Accumulate | Atomic):
            yield node.buffer, node.subscripts


def is_one(buffer: Buffer, ends: tuple[int, int]) -> bool:
    """Whether dimensions of an array lie one in the other without a gap."""
    layout = declared_layout(buffer)
    if layout.xor is not None:  # a swizzle is the author's, and of the rows that they have
        return False
    steps: dict[int, Linear] = {}
    for term in layout.terms:
        if (
            term.dim is None
            or term.dim in steps
            or term.divisor != 1
            or term.modulus is not None
            or term.offset != ZERO
        ):
            return False
        steps[term.dim] = linear(term.stride)
    inside = range(ends[0], ends[1])
    return padding_of(buffer) is None and all(steps[d] == steps[d + 1] * linear(buffer.shape[d + 1]) for d in inside)


def merged(buffer: Buffer, subscripts: tuple[Subscript, ...], ends: tuple[int, int]) -> IndexExpr:
    """The subscript of the dimensions as one."""
    total: IndexExpr = ZERO
    for dim in range(ends[0], ends[1] + 1):
        subscript = subscripts[dim]
        assert not isinstance(subscript, Gather), "what is read from data stands alone"
        total = add(multiply(total, buffer.shape[dim]), subscript)
    return total


def merged_buffer(buffer: Buffer, merges: Merges) -> Buffer:
    if buffer.name not in merges:
        return buffer
    low, high = merges[buffer.name]
    extent = buffer.shape[low]
    for inner in buffer.shape[low + 1 : high + 1]:
        extent = multiply(extent, inner)
    shape = (*buffer.shape[:low], extent, *buffer.shape[high + 1 :])
    steps = buffer.strides
    strides = None if steps is None else (*steps[:low], *steps[high:])
    return replace(buffer, shape=shape, strides=strides)
