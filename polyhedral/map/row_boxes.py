"""Rows of a tile that are boxes of several indices: the images, rows and columns over which a window moves.

    par N n, 56 h, 56 w, O o { Y[n, h, w, o] = sum 3 r, 3 s, C c { X[n, h + r, w + s, c] * F[r, s, c, o] } }

    64 rows of a warpgroup     8 h by 8 w of one n, numbered as the loops are, the last of them fastest
    a step of the sum          64 c at one place of the window

So what a step needs of X is a box of a tensor map, wherever the window is. A box has zeros beyond its array: where the
program has 0 in place of elements that are not there, and of no others, that is what it says (`is_edge`).
"""

from collections.abc import Iterator, Sequence
from itertools import product as choices
from math import prod

from texpr.grammar.ast import (
    And,
    Compare,
    CompareOp,
    Condition,
    Gather,
    IndexExpr,
    IndexOp,
    IndexVar,
    Not,
    Or,
    Par,
    Seq,
)
from texpr.grammar.index.expr import ONE, add, ceildiv, combine, const, multiply, names, product, subtract
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.contraction import Factor
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.slack import slack
from texpr.polyhedral.mapped.piped import GROUP_ROWS

BOUNDS = (CompareOp.LT, CompareOp.LE, CompareOp.GT, CompareOp.GE)


def is_windowed(problem: Problem, factor: Factor, deep: str) -> bool:
    """Whether boxes of a factor's side lie in boxes of its array: each of its indices is told by a subscript of its
    own, in their order, in steps of 1, beside whatever else is there; the last subscript is what is summed in steps."""
    buffer, subscripts = factor.element
    plain = [s for s in subscripts if not isinstance(s, Gather)]
    if len(plain) < len(subscripts) or plain[-1] != IndexVar(name=deep):
        return False
    told = [index for at in plain for index in factor.side.indices if index in names(at)]
    if told != list(factor.side.indices) or any(deep in names(at) for at in plain[:-1]):
        return False
    for at in plain:
        own = [index for index in factor.side.indices if index in names(at)]
        if len(own) > 1 or any(own[0] in names(subtract_index(at, own[0])) for _ in own):
            return False
    return factor.where is None or is_edge(plain, problem.kernel.buffer(buffer).shape, factor.where)


def subtract_index(at: IndexExpr, index: str) -> IndexExpr:
    """What a subscript is beside an index in steps of 1; the index is still there where its steps are others."""
    return linear(subtract(at, IndexVar(name=index))).expression()


def is_edge(subscripts: Sequence[IndexExpr], shape: Sequence[IndexExpr], where: Condition) -> bool:
    """Whether a condition holds wherever an element is in its array. (Where it holds, the element is: that is proved of
    every access.)"""
    inside: list[Linear] = []
    for at, extent in zip(subscripts, shape, strict=True):
        inside += (linear(add(at, ONE)), linear(subtract(extent, at)))  # each is positive there
    parts = [*_parts(where, holds=True)]
    return all(part is not None and any((linear(part) - one).is_nonnegative() for one in inside) for part in parts)


def _parts(condition: Condition, *, holds: bool) -> Iterator[IndexExpr | None]:
    """Numbers that are all positive exactly where a condition holds, or does not; None in place of what has none."""
    match condition:
        case And(parts=parts) if holds:
            yield from (number for part in parts for number in _parts(part, holds=True))
        case Or(parts=parts) if not holds:
            yield from (number for part in parts for number in _parts(part, holds=False))
        case Not(part=part):
            yield from _parts(part, holds=not holds)
        case Compare(op=op) if op in BOUNDS:
            yield slack(condition) if holds else slack(Not(part=condition))
        case _:
            yield None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBoxes:
    """Boxes of so many values (`sizes`) of each of some loops, counted over all of their iterations."""

    loops: tuple[Par | Seq, ...]
    sizes: tuple[int, ...]

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(loop.index for loop in self.loops)

    @property
    def counts(self) -> tuple[IndexExpr, ...]:
        """How many boxes lie along each loop."""
        return tuple(ceildiv(loop.extent, size) for loop, size in zip(self.loops, self.sizes, strict=True))

    @property
    def total(self) -> IndexExpr:
        return product(self.counts)

    def corner(self, number: IndexExpr) -> dict[str, IndexExpr]:
        """The first value of each index in the box of a number; beyond all boxes, more than the first loop has."""
        found: dict[str, IndexExpr] = {}
        for depth, (index, size) in enumerate(zip(self.indices, self.sizes, strict=True)):
            value = combine(IndexOp.DIV, number, product(self.counts[depth + 1 :]))
            value = combine(IndexOp.MOD, value, self.counts[depth]) if depth else value
            found[index] = multiply(const(size), value)
        return found

    def inner(self, depth: int) -> int:
        """How many rows neighbours of an index are apart within a box."""
        return prod(self.sizes[depth + 1 :])

    def places(self, row: IndexExpr) -> dict[str, IndexExpr]:
        """How far behind the corner each index is in a row of a box."""
        return {
            index: combine(IndexOp.MOD, combine(IndexOp.DIV, row, const(self.inner(depth))), const(size))
            for depth, (index, size) in enumerate(zip(self.indices, self.sizes, strict=True))
        }

    def part(self, rows: int) -> tuple[int, ...]:
        """The sizes of the boxes that so many neighbouring rows are, from a multiple of that on."""
        found: list[int] = []
        for size in reversed(self.sizes):
            found.insert(0, min(size, rows))
            rows //= found[0]
        return tuple(found)


def best_sizes(extents: Sequence[int]) -> tuple[int, ...]:
    """The sizes of boxes of a warpgroup's rows that go the least beyond these extents; of those, the ones nearest
    to squares of the last loops: neighbouring places of a window share the most of these."""
    powers = [1 << n for n in range(GROUP_ROWS.bit_length())]
    every = (sizes for sizes in choices(powers, repeat=len(extents)) if prod(sizes) == GROUP_ROWS)

    def beyond(sizes: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        made = prod(-(-extent // size) * size for extent, size in zip(extents, sizes, strict=True))
        return made, sizes[0], tuple(sorted(sizes[1:], reverse=True))

    return min(every, key=beyond)
