"""The order in which blocks that stay take the tiles of products: in bands, column after column.

4 rows and 3 columns of tiles, 2 a band      0 2 4        each number a turn of one block; all blocks of a moment
                                             1 3 5        are near one another, so what they read of both sides
                                             6 8 10       is in the L2 cache
                                             7 9 11
"""

from collections.abc import Callable, Sequence

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar, Par
from texpr.grammar.index.expr import ZERO, add, combine, const, constant_value, minimum, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.tree import Define, Node
from texpr.polyhedral.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class TileOrder:
    """`down` clusters of `ranks` tiles, one below the other, by `across` tiles, in bands of so many clusters; as many
    for each value of the `others`. The first of them begins with the row `begin`."""

    down: IndexExpr
    across: IndexExpr
    ranks: int
    band: int
    others: Sequence[Par]
    begin: int = 0

    def nodes(
        self, names: Names, number: IndexExpr, rank: IndexExpr, rows: tuple[str, int], columns: tuple[str, int]
    ) -> tuple[Node, ...]:
        """Define the first row and the first column of the tile of a number, by the names and sizes of both, and the
        indices of the product that it is of."""
        found: list[Node] = []

        def let(name: str, value: IndexExpr) -> IndexExpr:
            found.append(Define(index=name, digits=(), offset=value))
            return IndexVar(name=name)

        inside = self._of_product(let(names.fresh("tile"), number), let)
        first: IndexExpr = ZERO
        height, down = minimum(const(self.band), self.down), constant_value(self.down)
        if down is None or down > self.band:
            each = multiply(const(self.band), self.across)
            band = let(names.fresh("band"), combine(IndexOp.DIV, inside, each))
            inside, first = combine(IndexOp.MOD, inside, each), multiply(const(self.band), band)
        if down is None or (down > self.band and down % self.band):
            height = let(names.fresh("height"), minimum(subtract(self.down, first), const(self.band)))
        row = add(multiply(const(self.ranks), add(first, combine(IndexOp.MOD, inside, height))), rank)
        let(rows[0], add(const(self.begin), multiply(const(rows[1]), row)))
        let(columns[0], multiply(const(columns[1]), combine(IndexOp.DIV, inside, height)))
        return tuple(found)

    def _of_product(self, number: IndexExpr, let: Callable[[str, IndexExpr], IndexExpr]) -> IndexExpr:
        """The number of a tile within its product."""
        if not self.others:
            return number
        each = multiply(self.down, self.across)
        left = combine(IndexOp.DIV, number, each)
        for place, par in reversed(list(enumerate(self.others))):
            let(par.index, combine(IndexOp.MOD, left, par.extent) if place else left)
            left = combine(IndexOp.DIV, left, par.extent)
        return combine(IndexOp.MOD, number, each)
