"""Parallel loops of one iteration in a band, directly around others or in them: their index is 0.

    par 1 i, N j { C[i, j] = sum K k { A[i, k] * B[j, k] } }      par N j { C[0, j] = sum K k { A[0, k] * B[j, k] } }

So a product with one row is that of a matrix and a vector, but where tensor cores have it (`one_row.py`).
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from texpr.grammar.ast import IndexVar, Kernel, Node, Par, Stmt
from texpr.grammar.index.expr import ONE, ZERO, index_names
from texpr.grammar.walk import rewrite


def without_single(kernel: Kernel, kept: Collection[str] = ()) -> Kernel:
    """The kernel without such loops, but for those `kept`, what an author says something of, and extents that name an
    index."""
    while (found := next(_singles(kernel, kept), None)) is not None:
        kernel = _without(kernel, *found)
    return kernel


def single_loops(kernel: Kernel) -> frozenset[str]:
    """The indices of such loops."""
    return frozenset(gone.index for gone, _, _ in _singles(kernel, ()))


def _bands(kernel: Kernel) -> Iterator[Stmt]:
    """The loops of the kernel's bands: those inside stand beside sums over the same dimensions, as rows."""
    for stmt in kernel.body:
        inner: tuple[Stmt, ...] = (stmt,)
        while len(inner) == 1 and isinstance(inner[0], Par):
            yield inner[0]
            inner = inner[0].body


def _singles(kernel: Kernel, kept: Collection[str]) -> Iterator[tuple[Par, Par, Par]]:
    """Each loop of one iteration with a loop directly in it or around it: both, and the outer one of them."""
    for stmt in _bands(kernel):
        match stmt:
            case Par(body=(Par() as inner,)) if not index_names(inner.extent):
                said = any(loop.attrs or loop.fully for loop in (stmt, inner))
                for gone, left in ((stmt, inner), (inner, stmt)):
                    if gone.extent == ONE and gone.index not in kept and not said:
                        yield gone, left, stmt


def _without(kernel: Kernel, gone: Par, left: Par, outer: Par) -> Kernel:
    def change(node: Node) -> Node:
        match node:
            case IndexVar(name=gone.index):
                return ZERO
            case Par(index=outer.index, body=(Par(body=body) as within,)):
                return replace(node if left is outer else within, body=body)
            case _:
                return node

    return replace(kernel, body=tuple(rewrite(stmt, change) for stmt in kernel.body))
