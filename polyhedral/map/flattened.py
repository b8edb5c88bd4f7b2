"""Flattened rows: two loops, one directly in the other, which several statements of a block have alike, become one, of
whose quotient and remainder they tell.

    par C c {                                          par C c {
        mean = sum B b, N j { X[b, c, j] }                 mean = sum B*N b_j { X[b_j / N, c, b_j % N] }
        par B b, N j { Y[b, c, j] = X[b, c, j] - mean }    par B*N b_j { Y[b_j / N, c, b_j % N] = X[b_j / N, … }

Of two loops of which one has a single iteration, the other one is left. So all of them go over one row, where the
threads of a block, or of a cluster of blocks, have room for it. Where all accesses to an array have the quotient and
the remainder side by side, these dimensions become one: X[b_j].
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Gather,
    IndexBinary,
    IndexConst,
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
from texpr.grammar.core import children
from texpr.grammar.index.expr import ZERO, combine, const, constant_value, multiply
from texpr.grammar.index.operators import IndexOp
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.map.merged import accesses, is_one, merged_buffer
from texpr.polyhedral.map.row_room import most_bytes
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.walk import adjacent, subscript_names, touched

Loop = Par | Seq


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two loops, one directly in the other, around leaves alone."""

    outer: Loop
    inner: Loop

    @property
    def indices(self) -> frozenset[str]:
        return frozenset((self.outer.index, self.inner.index))

    @property
    def extents(self) -> tuple[int, int] | None:
        """Those of the two, where both are numbers."""
        rows, length = constant_value(self.outer.extent), constant_value(self.inner.extent)
        return None if rows is None or length is None or min(rows, length) < 1 else (rows, length)

    @property
    def elements(self) -> int:
        return prod(self.extents or ())

    @property
    def rows(self) -> frozenset[str]:
        """The arrays that it reads at both indices."""
        found = ((name, subscripts) for leaf in self._leaves for name, subscripts in touched(leaf))
        return frozenset(name for name, subscripts in found if self.indices <= subscript_names(subscripts))

    def has_neighbours(self, name: str) -> bool:
        """Whether neighbours of a row are neighbours in an array, two by two at least."""
        if 1 in (self.extents or ()) or constant_value(combine(IndexOp.MOD, self.inner.extent, const(2))) == 0:
            return True
        both = (IndexVar(name=self.outer.index), IndexVar(name=self.inner.index))
        found = (subscripts for leaf in self._leaves for array, subscripts in touched(leaf) if array == name)
        rows = [subscripts for subscripts in found if self.indices & subscript_names(subscripts)]
        return all(any(subscripts[d : d + 2] == both for d in range(len(subscripts))) for subscripts in rows)

    @property
    def _leaves(self) -> Iterator[Bind | Accumulate]:
        return (stmt for stmt in self.inner.body if isinstance(stmt, Bind | Accumulate))

    def is_plain(self) -> bool:
        """Whether nothing but subscripts tells the indices, and each iteration of `par`s writes elements of its own,
        those of `seq`s all add to what none of them tells."""
        own = {stmt.buffer for stmt in self.inner.body if isinstance(stmt, New)}
        return all(isinstance(stmt, New | Bind | Accumulate) for stmt in self.inner.body) and all(
            self._is_told(leaf) and (leaf.buffer in own or self._is_apart(leaf)) for leaf in self._leaves
        )

    def _is_apart(self, leaf: Bind | Accumulate) -> bool:
        told = subscript_names(leaf.subscripts) & self.indices
        if isinstance(self.outer, Par):
            return isinstance(leaf, Bind) and told == self.indices
        return isinstance(leaf, Accumulate) and not told

    def _is_told(self, leaf: Bind | Accumulate) -> bool:
        """Whether the indices stand in plain subscripts alone."""
        if any(isinstance(s, Gather) for _, subscripts in touched(leaf) for s in subscripts):
            return False
        bare = rewrite(leaf, lambda node: replace(node, subscripts=()) if isinstance(node, Read) else node)
        return not any(isinstance(n, IndexVar) and n.name in self.indices for n in walk(replace(bare, subscripts=())))

    def flat(self, index: str) -> Loop:
        """One loop for the two."""
        outer, inner, row = self.outer, self.inner, IndexVar(name=index)
        if 1 in (self.extents or ()):
            one, other = (outer, inner) if constant_value(outer.extent) == 1 else (inner, outer)
            places: dict[str, IndexExpr] = {one.index: ZERO, other.index: row}
        else:
            places = {
                outer.index: combine(IndexOp.DIV, row, inner.extent),
                inner.index: combine(IndexOp.MOD, row, inner.extent),
            }

        def change(node: Node) -> Node:
            return places.get(node.name, node) if isinstance(node, IndexVar) else node

        named = f"{outer.source_name}_{inner.source_name}"
        body = tuple(rewrite(stmt, change) for stmt in inner.body)
        extent = multiply(outer.extent, inner.extent)
        return replace(outer, index=index, source_name=named, extent=extent, body=body)


def flattened(kernel: Kernel, max_cluster: int) -> Kernel:
    """The kernel with the loops of its blocks flattened, as far as several go over one row for which a cluster of at
    most so many blocks has room."""
    room = {b.name: most_bytes(b.dtype.size_bytes, max_cluster) // b.dtype.size_bytes for b in kernel.params}
    narrow = {b.name for b in kernel.params if b.dtype.size_bytes < 4}
    while pairs := next(filter(None, (_alike(block, room, narrow) for block in _blocks(kernel.body))), ()):
        taken = Names(names_taken(kernel))
        made = {p.outer.index: p.flat(taken.fresh(f"{p.outer.index}_{p.inner.index}")) for p in pairs}

        def change(node: Node, made: Mapping[str, Loop] = made) -> Node:
            return made.get(node.index, node) if isinstance(node, Par | Seq) else node

        kernel = _merged(replace(kernel, body=tuple(rewrite(stmt, change) for stmt in kernel.body)))
    return kernel


def _blocks(stmts: Sequence[Stmt]) -> Iterator[tuple[Stmt, ...]]:
    """The statements in each innermost loop of a band."""
    for stmt in stmts:
        match stmt:
            case Par():
                inside = adjacent(stmt)[-1].body
                if len(inside) > 1:
                    yield inside
            case _:
                yield from _blocks(children(stmt))


def _alike(block: tuple[Stmt, ...], room: Mapping[str, int], narrow: Set[str]) -> tuple[_Pair, ...]:
    """The first loops of a block that have the same extents and read one row of an array, sums and `par`s both, that
    has no more elements than `room`, and neighbours where elements are `narrow`; empty where there are none."""
    pairs = [pair for stmt in block if (pair := _pair(stmt)) is not None]
    for first in pairs:
        rows = {name for name in first.rows if first.elements <= room.get(name, 0)}
        rows = {name for name in rows if name not in narrow or first.has_neighbours(name)}
        alike = [pair for pair in pairs if pair.extents == first.extents and pair.rows & rows]
        if len({type(pair.outer) for pair in alike}) == 2:
            return tuple(alike)
    return ()


def _pair(stmt: Stmt) -> _Pair | None:
    match stmt:
        case Par(body=(Par() as inner,)) | Seq(body=(Seq() as inner,)):
            loops = (stmt, inner)
            plain = not any(loop.attrs or (isinstance(loop, Par) and loop.fully) for loop in loops)
            pair = _Pair(stmt, inner)
            return pair if plain and pair.extents is not None and pair.is_plain() else None
        case _:
            return None


def _merged(kernel: Kernel) -> Kernel:
    """The kernel with those dimensions of its arrays as one of which every access tells a quotient and a remainder."""
    ways: dict[str, set[int | None]] = {}
    for name, subscripts in (access for stmt in kernel.body for access in accesses(stmt)):
        buffer = kernel.buffer(name)
        ways.setdefault(name, set()).add(
            next((d for d in range(len(subscripts) - 1) if _row(buffer, d, subscripts)), None)
        )
    merges: dict[str, tuple[int, int]] = {}
    for name, found in ways.items():
        dim = found.pop()
        if dim is not None and not found and is_one(kernel.buffer(name), (dim, dim + 1)):
            merges[name] = dim, dim + 1

    def change(node: Node) -> Node:
        if not isinstance(node, Read | Bind | Accumulate | Atomic) or node.buffer not in merges:
            return node
        dim = merges[node.buffer][0]
        row = _row(kernel.buffer(node.buffer), dim, node.subscripts)
        assert row is not None, "every access tells a row"
        return replace(node, subscripts=(*node.subscripts[:dim], row, *node.subscripts[dim + 2 :]))

    body = tuple(rewrite(stmt, change) for stmt in kernel.body)
    return replace(kernel, buffers=tuple(merged_buffer(b, merges) for b in kernel.buffers), body=body)


def _row(buffer: Buffer, dim: int, subscripts: tuple[Subscript, ...]) -> IndexVar | None:
    """The index whose quotient and remainder two subscripts are, by the length of the inner dimension."""
    match subscripts[dim : dim + 2]:
        case (
            IndexBinary(op=IndexOp.DIV, left=IndexVar() as row, right=IndexConst(value=turn)),
            IndexBinary(op=IndexOp.MOD, left=IndexVar(name=other), right=IndexConst(value=length)),
        ) if row.name == other and turn == length == constant_value(buffer.shape[dim + 1]):
            return row
        case _:
            return None
