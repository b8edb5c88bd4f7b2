"""The tiles that are tried for products of matrices on tensor cores."""

from collections.abc import Iterator

from texpr.grammar.records import dataclass
from texpr.polyhedral.map.matrix_product import MatrixProduct, matrix_product
from texpr.polyhedral.map.piped_fits import MOST_ALONE, MOST_COLUMNS, column_step, is_high
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.way_back import PANEL
from texpr.polyhedral.mapped.piped import GROUP_ROWS

SPLITS = (2, 4)


@dataclass(frozen=True, slots=True)
class Tile:
    """Warpgroups, columns, blocks of a cluster, and those that share what is summed of a tile; whether two warpgroups
    `alternate`, or multiply 64 rows each, or `high` times as many; blocks of a cluster that are `abreast`; whether all
    blocks share the steps of all tiles (`streamed`)."""

    groups: int
    columns: int
    cluster: int
    split: int = 1
    alternate: bool = False
    high: int = 1
    abreast: int = 1
    streamed: bool = False

    @property
    def rows(self) -> int:
        return GROUP_ROWS * self.groups * self.high

    @property
    def ranks(self) -> int:
        """The blocks that share tiles of a factor."""
        return self.cluster * self.abreast


WIDTHS = range(MOST_COLUMNS, 0, -PANEL // 2)
TILES = tuple(Tile(groups, columns, cluster) for columns in WIDTHS for groups in (2, 1, 3) for cluster in (2, 1, 4))
BY_TURNS = tuple(
    Tile(2, columns, cluster, alternate=True)
    for columns in range(3 * PANEL, 2 * PANEL - 1, -PANEL // 2)
    for cluster in (2, 1)
)
SPLIT = tuple(
    Tile(groups, columns, 1, split) for columns in (2 * PANEL, PANEL) for groups in (2, 1) for split in SPLITS
)
FEW = tuple(
    Tile(groups, columns, 1, split)
    for columns in (PANEL, PANEL // 2, PANEL // 4)
    for groups in (1, 2)
    for split in (1, *SPLITS)
)
"""Of rows as columns."""
STREAMED = tuple(
    Tile(groups, columns, cluster, streamed=True)
    for columns in range(MOST_COLUMNS, 2 * PANEL - 1, -PANEL // 2)
    for groups, cluster in ((2, 1), (2, 2), (1, 1))
)


def high_tiles(problem: Problem, region: Region, product: MatrixProduct) -> Iterator[tuple[MatrixProduct, Tile]]:
    """Tiles of 256 rows, of which each of two warpgroups has 128: of which fewer bytes come for a product than of any
    with as many sums in registers. Where columns lie along their side, and rows do not, those of the exchanged product
    have columns in smaller steps."""
    across = product.rows.k_contiguous and not product.columns.k_contiguous
    exchanged = matrix_product(problem, region, product.columns.index, crossed=True) if across else None
    for own in (product, *((exchanged,) if exchanged is not None else ())):
        yield from ((own, tile) for tile in _high(own))


def _high(product: MatrixProduct) -> Iterator[Tile]:
    if not (is_high(product) and product.epilogue.plain and product.dtype.bits == 16):
        return
    most, step = MOST_ALONE // 2 // product.sums, column_step(product)
    for columns in range(most - most % step, 2 * PANEL - 1, -step):
        yield Tile(2, columns, 1, high=2, abreast=2)
