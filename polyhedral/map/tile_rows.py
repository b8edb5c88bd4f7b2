"""Where the rows of a tile are: neighbours of one index, or boxes of several, one for each warpgroup.

    i_tile = 128*(…)                    row x of a tile:    i = i_tile + x
    box = 2*(…), n_first = 4*(box / 196), …
                                        row x of a box:     n = n_first + x / 16, h = h_first + x / 4 % 4, …

`number` counts what a tile begins with: a row, or a box.
"""

from collections.abc import Mapping

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexOp, IndexVar
from texpr.grammar.index.expr import ZERO, add, ceildiv, combine, const, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.row_boxes import RowBoxes
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.tree import Define, Node
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """The value of each index of the rows in the first row of a warpgroup's; so many rows `behind`, where rows are
    neighbours."""

    first: Mapping[str, IndexExpr]
    behind: IndexExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class TileRows:
    """The rows of the tiles of a product; `boxes` where they are several indices."""

    product: MatrixProduct
    boxes: RowBoxes | None
    groups: int

    @property
    def unit(self) -> int:
        """How many of what is counted a tile has."""
        return self.groups if self.boxes is not None else self.groups * GROUP_ROWS

    @property
    def word(self) -> str:
        """What is counted."""
        return "box" if self.boxes is not None else f"{self.product.rows.index}_tile"

    def down(self, choice: Piped) -> IndexExpr:
        """How many clusters of tiles a launch has from top to bottom."""
        every = self.boxes.total if self.boxes is not None else rows_of(self.product, choice)
        return ceildiv(every, self.unit * choice.cluster)

    def corner(self, names: Names, number: IndexExpr, group: IndexExpr) -> tuple[tuple[Node, ...], Corner]:
        """The first row of a group's, and what defines it."""
        if self.boxes is None:
            return (), Corner(first={self.product.rows.index: number}, behind=multiply(const(GROUP_ROWS), group))
        found: list[Node] = []

        def let(name: str, value: IndexExpr) -> IndexExpr:
            own = names.fresh(name)
            found.append(Define(index=own, digits=(), offset=value))
            return IndexVar(name=own)

        own = let("own_box", add(number, group))
        first = {index: let(f"{index}_first", value) for index, value in self.boxes.corner(own).items()}
        return tuple(found), Corner(first=first, behind=ZERO)

    def at(self, corner: Corner, piece: IndexExpr, count: int, row: IndexExpr) -> dict[str, IndexExpr]:
        """The value of each index in a row of a piece of a group's, of so many rows each."""
        if self.boxes is None:
            return {index: add(first, row) for index, first in self.first_of(corner, piece, count).items()}
        behind = self.boxes.places(add(multiply(const(count), piece), row))
        return {index: add(first, behind[index]) for index, first in corner.first.items()}

    def box(self, names: Names, plain: str, count: int) -> tuple[Box, IndexExpr, dict[str, IndexExpr]]:
        """The indices over so many neighbouring rows from a multiple of that on, the number of a row among them, and
        how far each index of the rows is behind the first."""
        if self.boxes is None:
            return ((plain, const(count)),), IndexVar(name=plain), {self.product.rows.index: IndexVar(name=plain)}
        over: list[tuple[str, IndexExpr]] = []
        row: IndexExpr = ZERO
        behind: dict[str, IndexExpr] = {}
        for depth, (index, size) in enumerate(zip(self.boxes.indices, self.boxes.part(count), strict=True)):
            behind[index] = ZERO
            if size > 1:
                own = names.fresh(f"{index}_row")
                over.append((own, const(size)))
                behind[index] = IndexVar(name=own)
                row = add(row, multiply(const(self.boxes.inner(depth)), IndexVar(name=own)))
        return tuple(over), row, behind

    def first_of(self, corner: Corner, piece: IndexExpr, count: int) -> dict[str, IndexExpr]:
        """The first row of a piece of a group's, of so many rows each."""
        if self.boxes is None:
            behind = add(corner.behind, multiply(const(count), piece))
            return {index: add(first, behind) for index, first in corner.first.items()}
        found: dict[str, IndexExpr] = {}
        for depth, (index, size) in enumerate(zip(self.boxes.indices, self.boxes.sizes, strict=True)):
            inner = self.boxes.inner(depth)
            if inner >= count:
                behind = combine(IndexOp.MOD, combine(IndexOp.DIV, piece, const(inner // count)), const(size))
            elif inner * size > count:
                behind = multiply(const(count // inner), piece)
                if depth and any(n > 1 for n in self.boxes.sizes[:depth]):
                    behind = combine(IndexOp.MOD, behind, const(size))
            else:
                behind = ZERO
            found[index] = add(corner.first[index], behind)
        return found

    def beyond(self, ranks: int, divisors: Mapping[str, int]) -> list[Condition]:
        """Which rows of tiles there are; none where all are."""
        if self.boxes is None:
            (loop,) = self.product.row_loops
            if linear(loop.extent).is_multiple(ranks * self.unit, divisors):
                return []
            return [_below(loop.index, loop.extent)]
        whole = linear(self.boxes.total).is_multiple(ranks * self.unit, divisors)
        return [
            _below(loop.index, loop.extent)
            for depth, (loop, size) in enumerate(zip(self.boxes.loops, self.boxes.sizes, strict=True))
            if not linear(loop.extent).is_multiple(size, divisors) or (depth == 0 and not whole)
        ]


def rows_of(product: MatrixProduct, choice: Piped) -> IndexExpr:
    """How many rows a launch has."""
    end = product.extents[0] if choice.rest is None else const(choice.rest.begin)
    return subtract(end, const(choice.begin)) if choice.begin else end


def tile_rows(product: MatrixProduct, choice: Piped) -> TileRows:
    """The rows of a choice's tiles."""
    loops = product.row_loops
    boxes = RowBoxes(loops=loops, sizes=tuple(choice.box[loop.index] for loop in loops)) if choice.box else None
    return TileRows(product=product, boxes=boxes, groups=choice.tile[choice.across] // GROUP_ROWS)


def _below(index: str, extent: IndexExpr) -> Condition:
    return Compare(op=CompareOp.LT, left=IndexVar(name=index), right=extent)
