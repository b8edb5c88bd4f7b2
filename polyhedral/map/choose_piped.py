"""The first candidate of a product of matrices on tensor cores: the tiles that keep the multiprocessors busy for the
shortest time.

    bf16 8192 x 8192 x 8192     tiles of 128 x 256, two blocks a cluster, 4 stages, 132 blocks that stay

A tile's rate is what its products take of shared memory: a warpgroup reads its 64 rows and all columns for each step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from texpr.grammar.ast import Par, Seq
from texpr.grammar.permissions import stages_of
from texpr.polyhedral.map.matrix_product import MatrixProduct, matrix_product
from texpr.polyhedral.map.piped_fits import piped_bytes
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.staged import asked_stages
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.way_back import PANEL
from texpr.polyhedral.mapped.candidate import GROUP_ROWS, Piped

LEAST_SIDE, LEAST_SUM = 64, 64  # or most of a tile is empty
LEAST_PRODUCTS = 1 << 24  # below, a launch is over before a pipe is full
BAND = 8  # clusters
MOST_STAGES = 8  # that the compiler chooses by itself


@dataclass(frozen=True, slots=True)
class Tile:
    """Warpgroups that multiply, panels of columns, blocks of a cluster, and how near its products come to the best
    rate."""

    groups: int
    panels: int
    cluster: int
    rate: float

    @property
    def rows(self) -> int:
        return GROUP_ROWS * self.groups

    @property
    def columns(self) -> int:
        return PANEL * self.panels


TILES = (
    Tile(2, 4, 2, 1.0),
    Tile(2, 4, 1, 0.97),
    Tile(2, 3, 1, 0.92),
    Tile(2, 2, 2, 0.85),
    Tile(2, 2, 1, 0.82),
    Tile(2, 1, 1, 0.55),
    Tile(1, 4, 1, 0.6),
    Tile(1, 2, 1, 0.5),
    Tile(1, 1, 1, 0.35),
)  # not measured but the first: by the bytes of shared memory that a product reads


def rate_of(choice: Piped, sums: int) -> float:
    """How near the products of so many sums come to the best rate in tiles of a choice."""
    shape = (choice.tile[choice.across] // GROUP_ROWS, choice.tile[choice.along] * sums // PANEL, choice.cluster)
    return next((t.rate for t in TILES if (t.groups, t.panels, t.cluster) == shape), TILES[-1].rate)


def choose_piped(problem: Problem, region: Region) -> Piped | None:
    """Tiles for products of matrices; None where there are none, or too small ones."""
    product = matrix_product(problem, region)
    if product is None or not is_large(problem, product):
        return None
    return min((_choice(problem, region, product, tile) for tile in _tiles(product)), key=lambda timed: timed[0])[1]


def pipings(problem: Problem, region: Region) -> Iterator[Piped]:
    """Tiles of every shape, in fewer stages and in other bands."""
    product = matrix_product(problem, region)
    if product is None:
        return
    for tile in _tiles(product):
        _, usual = _choice(problem, region, product, tile)
        yield usual
        yield replace(usual, stages=max(2, usual.stages - 1))
        yield replace(usual, band=2 * usual.band)


def _tiles(product: MatrixProduct) -> list[Tile]:
    """The tiles of each sum where the registers have room for all of them, which take as long as one of all columns."""
    by_shape = {(tile.groups, tile.panels, tile.cluster): tile for tile in TILES}
    wide = ((tile, by_shape.get((tile.groups, tile.panels * product.sums, tile.cluster))) for tile in TILES)
    return [replace(tile, rate=whole.rate) for tile, whole in wide if whole is not None]


def is_large(problem: Problem, product: MatrixProduct) -> bool:
    """Whether tensor cores take a product: what an author asks of threads and tiles is theirs."""
    loops: tuple[Par | Seq, ...] = (*product.one.nest.pars, *product.one.reduction.loops)
    if problem.kernel.attrs or any(a != stages_of(loop) for loop in loops for a in loop.attrs):
        return False
    rows, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    return min(rows, columns) >= LEAST_SIDE and depth >= LEAST_SUM and others * rows * columns * depth >= LEAST_PRODUCTS


def _choice(problem: Problem, region: Region, product: MatrixProduct, tile: Tile) -> tuple[float, Piped]:
    """The time of a choice, in products of a multiprocessor, and the choice."""
    rows, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    down = -(-rows // (tile.rows * tile.cluster))
    clusters = down * -(-columns // tile.columns) * others
    at_once = problem.target.multiprocessors // tile.cluster
    waves = -(-clusters // at_once)
    choice = Piped(
        along=product.columns.index,
        across=product.rows.index,
        tile={product.rows.index: tile.rows, product.columns.index: tile.columns},
        stages=2,
        persistent=min(at_once, clusters) * tile.cluster,
        cluster=tile.cluster,
        band=BAND,
        memory=memory_of(
            problem,
            product.one.nest.body,
            block_level=False,
            outer=product.one.nest.indices,
            ranges=region.nest[1],
        ),
    )
    return waves * tile.rows * tile.columns * depth / tile.rate, _staged(problem, choice, product)


def _staged(problem: Problem, choice: Piped, product: MatrixProduct) -> Piped:
    """The same with as many stages as there is room for, at most those that the author asks for."""
    found = choice
    most = max((stages for _, _, stages in asked_stages(product.one.reduction.loops)), default=MOST_STAGES)
    for stages in range(3, most + 1):
        deeper = replace(choice, stages=stages)
        if piped_bytes(deeper, product.dtype.size_bytes, product.sums) <= problem.target.shared_bytes:
            found = deeper
    return found
