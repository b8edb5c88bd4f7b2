"""Parallel loops of one iteration in a band, directly around others or in them: their index is 0.

    par 1 i, N j { C[i, j] = sum K k { A[i, k] * B[j, k] } }      par N j { C[0, j] = sum K k { A[0, k] * B[j, k] } }

So a product with one row is that of a matrix and a vector.
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.ast import IndexVar, Kernel, Node, Par, Stmt
from texpr.grammar.index.expr import ONE, ZERO, index_names
from texpr.grammar.walk import rewrite


def without_single(kernel: Kernel) -> Kernel:
    """The kernel without such loops, but for what an author says something of, and extents that name an index."""
    while (pair := next((found for s in _bands(kernel) if (found := _pair(s)) is not None), None)) is not None:
        kernel = _without(kernel, *pair)
    return kernel


def _bands(kernel: Kernel) -> Iterator[Stmt]:
    """The loops of the kernel's bands: those inside stand beside sums over the same dimensions, as rows."""
    for stmt in kernel.body:
        inner: tuple[Stmt, ...] = (stmt,)
        while len(inner) == 1 and isinstance(inner[0], Par):
            yield inner[0]
            inner = inner[0].body


def _pair(stmt: Node) -> tuple[Par, Par] | None:
    """A loop with another one directly in it, of which one has a single iteration."""
    match stmt:
        case Par(body=(Par() as inner,)) if ONE in (stmt.extent, inner.extent):
            said = any(loop.attrs or loop.fully for loop in (stmt, inner))
            return None if said or index_names(inner.extent) else (stmt, inner)
        case _:
            return None


def _without(kernel: Kernel, outer: Par, inner: Par) -> Kernel:
    gone, left = (outer, inner) if outer.extent == ONE else (inner, outer)

    def change(node: Node) -> Node:
        match node:
            case IndexVar(name=gone.index):
                return ZERO
            case Par(index=outer.index, body=(Par(body=body) as within,)):
                return replace(within if left is inner else node, body=body)
            case _:
                return node

    return replace(kernel, body=tuple(rewrite(stmt, change) for stmt in kernel.body))
