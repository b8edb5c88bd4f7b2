"""The first candidate of a product of matrices by single warps: the tiles that keep the multiprocessors busy for the
shortest time.

    bf16 4096 x 4096 x 4096 on sm_80     tiles of 128 x 128, 64 x 64 a warp, 32 deep, 4 stages, two blocks together
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Par, Seq
from texpr.grammar.permissions import stages_of
from texpr.grammar.records import dataclass
from texpr.grammar.types import F64
from texpr.polyhedral.map.matrix_product import MatrixProduct, product_of_any_rows
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.ringed_fits import MOST_STAGES, UNIT, ringed_bytes, ringed_fault
from texpr.polyhedral.map.staged import asked_stages
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.target import RESERVED_BYTES

LEAST_SIDE, LEAST_SUM = 2 * UNIT, 2 * UNIT  # or most of a tile is empty
LEAST_PRODUCTS = 1 << 21  # below, a launch is over before a ring is full


@dataclass(frozen=True, slots=True)
class Shape:
    """A block's rows and columns, a warp's, all in sixteens, 32 bytes of the products of a step; the blocks of a
    multiprocessor, and how near its products come to the best rate."""

    rows: int
    columns: int
    high: int
    wide: int
    deep: int
    resident: int
    rate: float

    def tile(self, rows: str, columns: str) -> dict[str, int]:
        return {rows: UNIT * self.rows, columns: UNIT * self.columns}

    def each(self, rows: str, columns: str) -> dict[str, int]:
        return {rows: UNIT * self.high, columns: UNIT * self.wide}


SHAPES = (
    Shape(16, 8, 4, 4, 4, 1, 1.0),
    Shape(8, 16, 4, 4, 4, 1, 1.0),
    Shape(8, 8, 4, 4, 4, 2, 0.96),
    Shape(8, 8, 4, 4, 2, 2, 0.94),
    Shape(8, 8, 4, 2, 4, 1, 0.8),
    Shape(8, 4, 4, 2, 4, 2, 0.75),
    Shape(4, 8, 2, 4, 4, 2, 0.75),
    Shape(4, 4, 2, 2, 4, 3, 0.6),
    Shape(4, 4, 2, 2, 2, 4, 0.5),
)  # the first four and the fifth as measured, the others by the bytes of shared memory that a product reads
F64_SHAPES = (
    Shape(8, 8, 4, 2, 4, 1, 1.0),
    Shape(8, 4, 4, 2, 4, 2, 0.97),
    Shape(4, 4, 2, 2, 4, 3, 0.88),
)  # as measured
MOST_USED = 4  # stages; more bring nothing
DEPTH_BYTES = 32
BY_WARPS = 0.6  # of the best rate is that of products by single warps, on an H200,
READ = 0.0375  # who read so many rows and columns at most for each of their sums from shared memory


def rate_by_warps(choice: Ringed, sums: int) -> float:
    """How near the products of so many sums come to the best rate in tiles of a choice."""
    high, wide = choice.each[choice.across], choice.each[choice.along] * sums
    return BY_WARPS * min(1.0, READ * high * wide / (high + wide))


def choose_ringed(problem: Problem, region: Region) -> Ringed | None:
    """Tiles for products of matrices; None where there are none, or too small ones."""
    product = product_of_any_rows(problem, region, boxes=False)
    if product is None or not _is_worth(problem, product):
        return None
    loops: tuple[Par | Seq, ...] = (*product.one.nest.pars, *product.one.reduction.loops)
    if problem.kernel.attrs or any(a != stages_of(loop) for loop in loops for a in loop.attrs):
        return None  # what an author asks of threads and tiles is theirs
    return min(_choices(problem, region, product), key=lambda timed: timed[0], default=(0.0, None))[1]


def ringings(problem: Problem, region: Region) -> Iterator[Ringed]:
    """Tiles of every shape, with fewer stages and in other bands."""
    product = product_of_any_rows(problem, region, boxes=False)
    if product is None:
        return
    for _, usual in _choices(problem, region, product):
        yield usual
        yield replace(usual, stages=max(2, usual.stages - 1))
        yield replace(usual, band=2 * usual.band)


def _is_worth(problem: Problem, product: MatrixProduct) -> bool:
    rows, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    return min(rows, columns) >= LEAST_SIDE and depth >= LEAST_SUM and others * rows * columns * depth >= LEAST_PRODUCTS


def _choices(problem: Problem, region: Region, product: MatrixProduct) -> Iterator[tuple[float, Ringed]]:
    """The time of each choice that fits, in products of a multiprocessor, and the choice."""
    rows, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    nest = product.one.nest
    memory = memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=region.nest[1])
    sides = (product.rows.index, product.columns.index)
    double = product.dtype == F64
    for shape in F64_SHAPES if double else SHAPES:
        usual = Ringed(
            along=product.columns.index,
            across=product.rows.index,
            tile=shape.tile(*sides),
            each=shape.each(*sides),
            depth=DEPTH_BYTES * shape.deep // product.dtype.size_bytes,
            stages=2,
            resident=shape.resident,
            memory=memory,
        )
        choice = _staged(problem, usual, product)
        if choice is None or ringed_fault(problem, region, choice) is not None:
            continue
        high, wide = (choice.tile[side] for side in sides)
        tiles = -(-rows // high) * -(-columns // wide) * others
        together = 1 if double else choice.resident  # blocks of f64 keep a multiprocessor busy one by one, too
        turns = -(-tiles // (problem.target.multiprocessors * together))
        yield turns * together * high * wide * depth / shape.rate, choice


def _staged(problem: Problem, choice: Ringed, product: MatrixProduct) -> Ringed | None:
    """The same with as many stages as there is room for, at most those that the author asks for; None where there is
    none for two."""
    room = problem.target.resident_bytes // choice.resident - RESERVED_BYTES
    found, asked = None, [stages for _, _, stages in asked_stages(product.one.reduction.loops)]
    for stages in range(2, min(MOST_STAGES, max(asked, default=MOST_USED)) + 1):
        deeper = replace(choice, stages=stages)
        if ringed_bytes(deeper, product) <= room:
            found = deeper
    return found
