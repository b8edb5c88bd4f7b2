"""Sides: loops that are counted as one, the last of them fastest.

    N n, 56 h, 56 w     3136*N values:   n = number / 3136, h = number / 56 % 56, w = number % 56

So tiles of a contraction are no wider than rows are long, and a sum over a window and channels is one over products.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from texpr.grammar.ast import Condition, IndexExpr, IndexOp, IndexVar, Node, Par, Seq
from texpr.grammar.index.expr import at_least_zero, combine, constant_value, product
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.names import stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Loops, outermost first, whose extents no other one of them moves."""

    loops: tuple[Par | Seq, ...]

    @property
    def index(self) -> str:
        """The innermost index, after which a side is called."""
        return self.loops[-1].index

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(loop.index for loop in self.loops)

    @property
    def joins(self) -> bool:
        """Whether it has several loops."""
        return len(self.loops) > 1

    @property
    def word(self) -> str:
        """What names of its values begin with."""
        return "_".join(map(stem, self.indices))

    @property
    def extent(self) -> IndexExpr:
        """How many values it has, a negative number being none."""
        return product(at_least_zero(loop.extent) for loop in self.loops) if self.joins else self.loops[0].extent

    def places(self, number: IndexExpr) -> dict[str, IndexExpr]:
        """The value of each index at a number."""
        found: dict[str, IndexExpr] = {}
        for depth, loop in enumerate(self.loops):
            inside = product(inner.extent for inner in self.loops[depth + 1 :])
            value = combine(IndexOp.DIV, number, inside)
            found[loop.index] = combine(IndexOp.MOD, value, loop.extent) if depth else value
        return found

    def whole(self, most: int) -> int:
        """The greatest power of two up to `most` by which so many neighbouring values, from a multiple of it on, are in
        one innermost loop."""
        width, extent = most, constant_value(self.loops[-1].extent)
        while self.joins and width > 1 and (extent is None or extent % width):
            width //= 2
        return width


def joinable(pars: Sequence[Par]) -> Iterator[Side]:
    """The sides of several of these loops, outermost first, the last one among them: those inside another one have a
    known extent, so that their values are quasi-affine."""
    for first in reversed(range(len(pars) - 1)):
        if not constant_value(pars[first + 1].extent):
            return
        yield Side(loops=tuple(pars[first:]))


def joined_by(sides: Sequence[Side]) -> Mapping[str, tuple[str, ...]]:
    """The indices before the innermost one, for each side that has several."""
    return {side.index: side.indices[:-1] for side in sides if side.joins}


def at_condition(condition: Condition, places: Mapping[str, IndexExpr]) -> Condition:
    """A condition at other values of some indices."""

    def put(node: Node) -> Node:
        return places.get(node.name, node) if isinstance(node, IndexVar) else node

    return rewrite(condition, put)


def defined(side: Side, number: IndexExpr, names: Mapping[str, str] = MappingProxyType({})) -> tuple[Define, ...]:
    """The indices of a side at a number, under other `names` where they are given."""
    return tuple(
        Define(index=names.get(index, index), digits=(), offset=place) for index, place in side.places(number).items()
    )
