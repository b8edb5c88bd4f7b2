"""Fused indices: adjacent indices of a band that all its accesses walk as one become one.

    par M i, N j { Y[i, j] = 2.0 * X[i, j] }      par M*N i_j { Y[i_j] = 2.0 * X[i_j] }      of X, Y: f32[M*N]
    par C c, H h, W w { Y[h, w, c] = X[c, h, w] } par C c, H*W h_w { Y[h_w, c] = X[c, h_w] }

So the length of rows costs no width, and a tile is not cut at their ends. An access walks two indices as one where it
says nothing of them but N*i + j. Dimensions of the arrays are fused with them, in all accesses of the kernel, none of
which may read such a subscript from data.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Gather,
    IndexExpr,
    IndexVar,
    Kernel,
    New,
    Node,
    Par,
    Read,
    Stmt,
    Subscript,
)
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import ZERO, add, index_names, multiply, names, substitute
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.permissions import padding_of
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.layout.declared import declared_layout
from texpr.polyhedral.map.bands import has_loop, nest_of
from texpr.polyhedral.names import Names, names_taken

Merges = Mapping[str, tuple[int, int]]
"""By buffer, the first and the last of the dimensions that become one."""


def fused(kernel: Kernel) -> Kernel:
    """The kernel with indices of its outermost bands fused, as far as can be."""
    while fusions := _agreed(kernel, [found for par in _outermost(kernel.body) if (found := _fusion(kernel, par))]):
        for fusion in fusions:
            kernel = fusion.pair.fuse(kernel)
        merges = {name: ends for fusion in fusions for name, ends in fusion.merges.items()}
        kernel = _with_merged(kernel, merges)
    return kernel


@dataclass(frozen=True, slots=True)
class _Fusion:
    """Two indices that become one in a band, and the dimensions that do with them."""

    band: Par
    pair: "_Pair"
    merges: Merges


def _fusion(kernel: Kernel, par: Par) -> _Fusion | None:
    """The innermost two indices of a band that can be fused."""
    nest = nest_of(par)
    box = not any(index_names(p.extent) for p in nest.pars)
    if has_loop(nest.body) or not box or any(p.attrs or p.fully for p in nest.pars):
        return None
    for outer, inner in reversed(list(pairwise(nest.pars))):
        pair = _Pair(kernel, outer, inner)
        merges = pair.merges(nest.body)
        if merges is not None:
            return _Fusion(par, pair, merges)
    return None


def _agreed(kernel: Kernel, fusions: list[_Fusion]) -> list[_Fusion]:
    """Those whose dimensions become one in all accesses to their arrays: no other band gets subscripts of which its
    author knows nothing."""
    if not fusions:
        return []
    everywhere = Counter(name for stmt in kernel.body for name, _ in _accesses(stmt))
    inside = {fusion.band.index: Counter(name for name, _ in _accesses(fusion.band)) for fusion in fusions}
    while True:
        alike: Counter[tuple[str, tuple[int, int]]] = Counter()
        for fusion in fusions:
            for name, ends in fusion.merges.items():
                alike[name, ends] += inside[fusion.band.index][name]
        kept = [f for f in fusions if all(alike[merge] == everywhere[merge[0]] for merge in f.merges.items())]
        if len(kept) == len(fusions):
            return kept
        fusions = kept


def _outermost(stmts: tuple[Stmt, ...]) -> Iterator[Par]:
    for stmt in stmts:
        if isinstance(stmt, Par):
            yield stmt
        else:
            yield from _outermost(children(stmt))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two indices of a band, one directly in the other."""

    kernel: Kernel
    outer: Par
    inner: Par

    @property
    def indices(self) -> frozenset[str]:
        return frozenset((self.outer.index, self.inner.index))

    def merges(self, body: tuple[Stmt, ...]) -> Merges | None:
        """The dimensions that become one with the indices; None where something in the band tells them apart."""
        own = {s.buffer for s in statements(body) if isinstance(s, New)}
        found: dict[str, tuple[int, int]] = {}
        for stmt in body:
            for node in walk(rewrite(stmt, self._without)):
                if isinstance(node, IndexVar) and node.name in self.indices:
                    return None
            for name, subscripts in _accesses(stmt):
                dims = [d for d, s in enumerate(subscripts) if names(s) & self.indices]
                if not dims:
                    continue
                ends = dims[0], dims[-1]
                buffer = self.kernel.buffer(name)
                if any(isinstance(s, Gather) for s in subscripts[ends[0] : ends[1] + 1]):
                    return None
                if name in own or not _is_one(buffer, ends) or not self._walks(_merged(buffer, subscripts, ends)):
                    return None
                low, high = found.get(name, ends)
                found[name] = min(low, ends[0]), max(high, ends[1])
        changed = {name: ends for name, ends in found.items() if ends[0] < ends[1]}
        if not all(
            self._is_own(s) for s in statements(body) if isinstance(s, Accumulate | Atomic) and s.buffer not in own
        ):
            return None
        told = any(
            isinstance(subscript, Gather)
            for name, subscripts in _accesses(self.outer)
            if name in changed
            for subscript in subscripts[changed[name][0] : changed[name][1] + 1]
        )
        return None if told else changed

    def _without(self, node: Node) -> Node:
        """Accesses without what may stand in them."""
        match node:
            case Read() | Bind() | Accumulate() | Atomic():
                return replace(node, subscripts=tuple(s for s in node.subscripts if isinstance(s, Gather)))
            case _:
                return node

    def _walks(self, subscript: IndexExpr) -> bool:
        """Whether a subscript says nothing of the indices but N*i + j."""
        i, j = IndexVar(name=self.outer.index), IndexVar(name=self.inner.index)
        together = add(multiply(self.inner.extent, i), j)
        said = substitute(self._as_one(subscript, self.inner.index), lambda leaf: together if leaf == j else None)
        return linear(said) == linear(subscript)

    def _is_own(self, update: Accumulate | Atomic) -> bool:
        """Whether each iteration of the two updates an element of its own, that of N*i + j."""
        i, j = IndexVar(name=self.outer.index), IndexVar(name=self.inner.index)
        dims = [d for d, s in enumerate(update.subscripts) if names(s) & self.indices]
        one = _merged(self.kernel.buffer(update.buffer), update.subscripts, (dims[0], dims[-1])) if dims else ZERO
        return linear(one) == linear(add(multiply(self.inner.extent, i), j))

    def _as_one(self, subscript: IndexExpr, index: str) -> IndexExpr:
        """A subscript at 0 of the outer index, with this name for the inner one."""
        put: dict[str, IndexExpr] = {self.outer.index: ZERO, self.inner.index: IndexVar(name=index)}
        return substitute(subscript, lambda leaf: put.get(leaf.name) if isinstance(leaf, IndexVar) else None)

    def fuse(self, kernel: Kernel) -> Kernel:
        """A kernel with one index for the two."""
        outer, inner = self.outer, self.inner
        index = Names(names_taken(kernel)).fresh(f"{outer.index}_{inner.index}")

        def change(node: Node) -> Node:
            match node:
                case IndexVar(name=name) if name == outer.index:
                    return ZERO
                case IndexVar(name=name) if name == inner.index:
                    return IndexVar(name=index, span=node.span)
                case Par() if node.index == outer.index:
                    (within,) = node.body
                    assert isinstance(within, Par), "the inner index stands directly in the outer one"
                    extent = multiply(outer.extent, inner.extent)
                    named = f"{outer.source_name}_{inner.source_name}"
                    return replace(node, index=index, source_name=named, extent=extent, body=within.body)
                case _:
                    return node

        return replace(kernel, body=tuple(rewrite(stmt, change) for stmt in kernel.body))


def _with_merged(kernel: Kernel, merges: Merges) -> Kernel:
    """The kernel with dimensions of its arrays as one."""
    buffers = {b.name: b for b in kernel.buffers}

    def change(node: Node) -> Node:
        match node:
            case Read() | Bind() | Accumulate() | Atomic() if node.buffer in merges:
                ends = merges[node.buffer]
                one = linear(_merged(buffers[node.buffer], node.subscripts, ends)).expression()
                return replace(node, subscripts=(*node.subscripts[: ends[0]], one, *node.subscripts[ends[1] + 1 :]))
            case _:
                return node

    body = tuple(rewrite(stmt, change) for stmt in kernel.body)
    return replace(kernel, buffers=tuple(_fused_buffer(b, merges) for b in kernel.buffers), body=body)


def _accesses(stmt: Stmt) -> Iterator[tuple[str, tuple[Subscript, ...]]]:
    """Every access below a statement."""
    for node in walk(stmt):
        if isinstance(node, Read | Bind | Accumulate | Atomic):
            yield node.buffer, node.subscripts


def _is_one(buffer: Buffer, ends: tuple[int, int]) -> bool:
    """Whether dimensions of an array lie one in the other without a gap."""
    layout = declared_layout(buffer)
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


def _merged(buffer: Buffer, subscripts: tuple[Subscript, ...], ends: tuple[int, int]) -> IndexExpr:
    """The subscript of the dimensions as one."""
    total: IndexExpr = ZERO
    for dim in range(ends[0], ends[1] + 1):
        subscript = subscripts[dim]
        assert not isinstance(subscript, Gather), "what is read from data stands alone"
        total = add(multiply(total, buffer.shape[dim]), subscript)
    return total


def _fused_buffer(buffer: Buffer, merges: Merges) -> Buffer:
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
