"""Fused indices: two loops, one directly in the other, that all their accesses walk as one become one.

    par M i, N j { Y[i, j] = 2.0 * X[i, j] }      par M*N i_j { Y[i_j] = 2.0 * X[i_j] }      of X, Y: f32[M*N]
    par C c, H h, W w { Y[h, w, c] = X[c, h, w] } par C c, H*W h_w { Y[h_w, c] = X[c, h_w] }
    S[c] = sum H h, W w { X[c, h, w] }            S[c] = sum H*W h_w { X[c, h_w] }

So the length of rows costs no width, a tile is not cut at their ends, and threads share out what several loops add. An
access walks two indices as one where it says nothing of them but N*i + j. Dimensions of the arrays are fused with them,
in all accesses of the kernel, none of which may read such a subscript from data.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

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
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import ZERO, add, index_names, multiply, names, substitute
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F16
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.map.merged import Merges, accesses, is_one, merged, with_merged
from texpr.polyhedral.names import Names, names_taken

Loop = Par | Seq


def fused(kernel: Kernel, *, bands: bool = True) -> Kernel:
    """The kernel with indices fused, as far as can be; without `bands` not those of outermost bands, which are dealt
    to cores one by one."""
    while fusions := _agreed(kernel, [found for pair in _pairs(kernel, bands) if (found := _fusion(pair)) is not None]):
        for fusion in fusions:
            kernel = fusion.pair.fuse(kernel)
        merges = {name: ends for fusion in fusions for name, ends in fusion.merges.items()}
        kernel = with_merged(kernel, merges)
    return kernel


@dataclass(frozen=True, slots=True)
class _Fusion:
    """Two indices that become one, and the dimensions that do with them."""

    pair: "_Pair"
    merges: Merges


def _pairs(kernel: Kernel, bands: bool) -> Iterator["_Pair"]:
    """Loops of one kind that have no other statement between them and no attribute, inner ones first; with or without
    those of outermost `bands`."""
    loops = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Par | Seq)]
    kept = set() if bands else {par.index for par in _outermost(kernel.body)}
    for outer in reversed(loops):
        if outer.index in kept:
            continue
        match outer.body:
            case (Par() | Seq() as inner,) if type(inner) is type(outer):
                plain = not any(loop.attrs or (isinstance(loop, Par) and loop.fully) for loop in (outer, inner))
                if plain and not index_names(outer.extent) | index_names(inner.extent):
                    yield _Pair(kernel, outer, inner)


def _outermost(body: tuple[Stmt, ...]) -> Iterator[Par]:
    """The pars of outermost bands: those in no other, and those that such a one has for its body."""
    for stmt in body:
        match stmt:
            case Par(body=(Par(),)):
                yield stmt
                yield from _outermost(stmt.body)
            case Par():
                yield stmt
            case _:
                yield from _outermost(children(stmt))


def _fusion(pair: "_Pair") -> _Fusion | None:
    merges = pair.merges(pair.inner.body)
    return None if merges is None else _Fusion(pair, merges)


def _agreed(kernel: Kernel, fusions: Sequence[_Fusion]) -> Sequence[_Fusion]:
    """The first of them whose dimensions become one in all accesses to their arrays, with those that this takes: no
    other loop gets subscripts of which its author knows nothing. Empty where there is none."""
    everywhere = Counter(name for stmt in kernel.body for name, _ in accesses(stmt))
    for first in fusions:
        together, merges = _alike(first, fusions)
        inside: Counter[tuple[str, tuple[int, int]]] = Counter()
        for fusion in together:
            here = Counter(name for name, _ in accesses(fusion.pair.outer))
            for name, ends in fusion.merges.items():
                inside[name, ends] += here[name]
        if all(inside[name, ends] == everywhere[name] for name, ends in merges):
            return together
    return ()


def _alike(first: _Fusion, fusions: Sequence[_Fusion]) -> tuple[Sequence[_Fusion], Set[tuple[str, tuple[int, int]]]]:
    """The fusions that make the same dimensions one, and those that do with these; and what they make one."""
    together: Sequence[_Fusion] = [first]
    while True:
        merges = {merge for fusion in together for merge in fusion.merges.items()}
        more = [f for f in fusions if not merges.isdisjoint(f.merges.items())] or [first]
        if len(more) == len(together):
            return more, merges
        together = more


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two loops, one directly in the other."""

    kernel: Kernel
    outer: Loop
    inner: Loop

    @property
    def indices(self) -> frozenset[str]:
        return frozenset((self.outer.index, self.inner.index))

    def merges(self, body: tuple[Stmt, ...]) -> Merges | None:
        """The dimensions that become one with the indices; None where something inside tells them apart."""
        own = {s.buffer for s in statements(body) if isinstance(s, New)}
        found: dict[str, tuple[int, int]] = {}
        for stmt in body:
            for node in walk(rewrite(stmt, self._without)):
                if isinstance(node, IndexVar) and node.name in self.indices:
                    return None
            for name, subscripts in accesses(stmt):
                dims = [d for d, s in enumerate(subscripts) if names(s) & self.indices]
                if not dims:
                    continue
                ends = dims[0], dims[-1]
                buffer = self.kernel.buffer(name)
                if any(isinstance(s, Gather) for s in subscripts[ends[0] : ends[1] + 1]):
                    return None
                if name in own or not is_one(buffer, ends) or not self._walks(merged(buffer, subscripts, ends)):
                    return None
                if ends[0] < ends[1] and isinstance(self.outer, Seq) and self._is_window(buffer, subscripts, ends):
                    return None
                low, high = found.get(name, ends)
                found[name] = min(low, ends[0]), max(high, ends[1])
        changed = {name: ends for name, ends in found.items() if ends[0] < ends[1]}
        shared = [s for s in statements(body) if isinstance(s, Bind | Accumulate | Atomic) and s.buffer not in own]
        if not all(map(self._is_own if isinstance(self.outer, Par) else self._is_sum, shared)):
            return None
        told = any(
            isinstance(subscript, Gather)
            for name, subscripts in accesses(self.outer)
            if name in changed
            for subscript in subscripts[changed[name][0] : changed[name][1] + 1]
        )
        return None if told else changed

    def _is_window(self, buffer: Buffer, subscripts: tuple[Subscript, ...], ends: tuple[int, int]) -> bool:
        """Whether loops move a window over an array of a type that tensor cores multiply: there each dimension is one
        of a tensor map's boxes, which do not overlap as the rows of both dimensions as one would."""
        moved = any(names(s) - self.indices for s in subscripts[ends[0] : ends[1] + 1])
        return moved and buffer.dtype in (F16, BF16)

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

    def _is_sum(self, leaf: Bind | Accumulate | Atomic) -> bool:
        """Whether all iterations of the two update one element."""
        return not isinstance(leaf, Bind) and not any(names(s) & self.indices for s in leaf.subscripts)

    def _is_own(self, leaf: Bind | Accumulate | Atomic) -> bool:
        """Whether each iteration of the two updates an element of its own, that of N*i + j, or binds one."""
        if isinstance(leaf, Bind):
            return True
        i, j = IndexVar(name=self.outer.index), IndexVar(name=self.inner.index)
        dims = [d for d, s in enumerate(leaf.subscripts) if names(s) & self.indices]
        one = merged(self.kernel.buffer(leaf.buffer), leaf.subscripts, (dims[0], dims[-1])) if dims else ZERO
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
                case Par() | Seq() if node.index == outer.index:
                    (within,) = node.body
                    assert isinstance(within, Par | Seq), "the inner index stands directly in the outer one"
                    extent = multiply(outer.extent, inner.extent)
                    named = f"{outer.source_name}_{inner.source_name}"
                    return replace(node, index=index, source_name=named, extent=extent, body=within.body)
                case _:
                    return node

        return replace(kernel, body=tuple(rewrite(stmt, change) for stmt in kernel.body))
