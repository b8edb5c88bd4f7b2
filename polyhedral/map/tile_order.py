"""The order in which blocks that stay take the tiles of products: in bands, column after column.

4 rows and 3 columns of tiles, 2 a band      0 2 4        each number a turn of one block; all blocks of a moment
                                             1 3 5        are near one another, so what they read of both sides
                                             6 8 10       is in the L2 cache
                                             7 9 11

`winding`: every second band goes back from where the one before has ended. `turned`: bands of columns, row after row.
"""

from collections.abc import Callable, Sequence

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar, Par
from texpr.grammar.index.expr import ONE, ZERO, add, combine, const, constant_value, minimum, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.tree import Define, Node
from texpr.polyhedral.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class TileOrder:
    """`down` by `across` clusters of `ranks` tiles, one below the other, or side by side where they are `abreast`, in
    bands of so many clusters; as many for each value of the `others`. The first of them begins with the row `begin`."""

    down: IndexExpr
    across: IndexExpr
    ranks: int
    band: int
    others: Sequence[Par]
    begin: int = 0
    abreast: bool = False
    winding: bool = False
    turned: bool = False

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
        side, length = (self.across, self.down) if self.turned else (self.down, self.across)
        first: IndexExpr = ZERO
        height, known = minimum(const(self.band), side), constant_value(side)
        band: IndexExpr | None = None
        if known is None or known > self.band:
            each = multiply(const(self.band), length)
            band = let(names.fresh("band"), combine(IndexOp.DIV, inside, each))
            inside, first = combine(IndexOp.MOD, inside, each), multiply(const(self.band), band)
        if known is None or (known > self.band and known % self.band):
            height = let(names.fresh("height"), minimum(subtract(side, first), const(self.band)))
        row, column = add(first, combine(IndexOp.MOD, inside, height)), combine(IndexOp.DIV, inside, height)
        if self.winding and band is not None:
            column = let(names.fresh("along"), column)
            back = subtract(subtract(length, ONE), multiply(const(2), column))
            column = add(column, multiply(combine(IndexOp.MOD, band, const(2)), back))
        row, column = (column, row) if self.turned else (row, column)
        several = const(self.ranks)
        if self.abreast:
            column = add(multiply(several, column), rank)
        else:
            row = add(multiply(several, row), rank)
        let(rows[0], add(const(self.begin), multiply(const(rows[1]), row)))
        let(columns[0], multiply(const(columns[1]), column))
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
