"""The first candidate of a contraction in tiles: the shape that keeps the multiprocessors busy for the shortest time.

    f32 4096 x 4096 x 4096     1024 tiles of 128 x 128: 8 for each of 132 multiprocessors, two at once
    f32 1000 x 1000 x 1000     64 tiles, of whose products four blocks each have a part

A thread of a large tile reads less of shared memory for each product, which its share of the best rate says; a block
that is alone on a multiprocessor takes little less time, and bringing the sums of several together takes time, too. Of
what is nearly as fast the shape with the fewest sums of a thread is chosen, whose text compiles in less time.

The figures are those of f32 products of matrices, and of convolutions where factors come one element at a time, on an
H200 (`benchmarks/contractions.py`, `--shape`). Products of other types, and other GPUs, go by the same ones: nobody has
measured these.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import prod

from texpr.grammar.attributes import WARP
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import raster_of, tile_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.author_tiles import serial_tile, shares_asked
from texpr.polyhedral.map.contracted_fits import contracted_fault
from texpr.polyhedral.map.contracted_tiles import bringing, nearest
from texpr.polyhedral.map.contraction import Contraction, contracted_nest, contractions
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.side import joined_by
from texpr.polyhedral.map.tiles_kept import check_tiles
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.mapped.candidate import Contracted
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.target import REGISTERS, Target

LEAST_SIDE = 64  # shorter sides leave most of a usual tile empty
SHORTEST = 4  # of a narrow tile, whose other side is no shorter than that
LEAST_SUM = 16  # products, or there is nothing to stage
LEAST_PART = 64  # products of a block, where several share a tile
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 33, 48, 66, 99, 132, 264, 528)  # blocks that share a tile
MEETING, MEETING_EACH = 1.2e6, 0.2  # products that it takes as long as to meet, and to leave and read a sum in memory
GAIN = 1.05  # blocks share a tile where that is so many times as fast
OWN_TIME = 0.85  # of a block whose products go by turns: it takes so much of its time whoever is beside it
ENOUGH_WARPS = 8  # of a multiprocessor, or all of them wait at once
ENOUGH_SUMS = 640  # of one thread of each warp on a multiprocessor, so that products never wait for one another
USUAL_SUMS = 64  # of a thread: those that have more leave and read one after the other
LEAST_BLOCKS = 2  # or too much of a GPU is idle
JOINED = 1.05  # the index arithmetic of a joined side: some 100 instructions for 2048 products of a thread
EACH = ((8, 16), (8, 8), (16, 8), (4, 8), (8, 4), (4, 4), (2, 4), (2, 2))  # what a thread may have of an author's tile
FOR_ADDRESSES = 64  # registers of a thread beside its sums
FEW = 2  # of narrow tiles so many multiprocessors have one at most: they are for what memory brings
CROWDED = 1 / 3  # how likely the last blocks are to go to few multiprocessors, where others end together
CUT = 0.95  # of the rate: what cut tiles have where products stand in a row
NEARLY, SPARED = 0.03, 2.5e7  # of a launch's time, and some 0.13 ms: what a text of half the length is worth
BUSY = 8  # of long sums, tiles keep one multiprocessor in so many busy, or they do not pay


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The threads of a `team` on both sides (across, along), what `each` has of them, and how near such threads come to
    the best one: where none, one or both of the factors are turned, where both come one element at a time, and where
    one of a joined side does, which takes registers for addresses. Rates are compared with those of other shapes for
    the same.
    """

    team: tuple[int, int]
    each: tuple[int, int]
    rates: tuple[float, ...]
    resident: int
    depth: int = 16
    ahead: int = 2

    @property
    def threads(self) -> int:
        return prod(self.team)

    @property
    def tile(self) -> tuple[int, int]:
        return self.team[0] * self.each[0], self.team[1] * self.each[1]


OF_FOUR_BYTES = (
    Shape(team=(8, 16), each=(16, 8), rates=(1.0, 1.0, 1.0, 0.72, 0.7), resident=2),
    Shape(team=(16, 16), each=(8, 8), rates=(0.97, 0.98, 0.99, 0.89, 0.89), resident=2),
    Shape(team=(8, 16), each=(8, 8), rates=(0.91, 0.92, 0.92, 0.87, 0.91), resident=3),
    Shape(team=(8, 16), each=(8, 8), rates=(0.9, 0.92, 0.91, 0.9, 0.85), resident=4),
    Shape(team=(8, 16), each=(8, 8), rates=(0.93, 0.94, 0.93, 0.85, 0.85), resident=3, ahead=1),
    Shape(team=(16, 8), each=(8, 8), rates=(0.91, 0.92, 0.91, 0.87, 0.89), resident=3),
    Shape(team=(16, 8), each=(8, 8), rates=(0.91, 0.92, 0.92, 0.9, 0.84), resident=4),
    Shape(team=(16, 8), each=(4, 8), rates=(0.79, 0.77, 0.76, 0.75, 0.72), resident=4),
    Shape(team=(16, 8), each=(4, 8), rates=(0.95, 0.94, 0.94, 0.9, 0.88), resident=4, ahead=1),  # less a fifth: `_time`
)
FOR_FEW_TILES = tuple(one for one in OF_FOUR_BYTES if one.ahead == 1 or prod(one.each) < USUAL_SUMS)
OF_EIGHT_BYTES = (Shape(team=(16, 16), each=(8, 4), rates=(1.0,) * 5, resident=2, depth=8, ahead=1),)  # no rate tells


OF_SHORT_SIDES = (
    Shape(team=(4, WARP), each=(8, 8), rates=(0.8,) * 5, resident=3, ahead=1),
    Shape(team=(2, 2 * WARP), each=(8, 4), rates=(0.55,) * 5, resident=4, ahead=1),
    Shape(team=(2, WARP), each=(4, 4), rates=(0.4,) * 5, resident=8, ahead=1),
    Shape(team=(1, 2 * WARP), each=(4, 4), rates=(0.4,) * 5, resident=8, ahead=1),
)  # across a short side; not measured, but by loads of shared memory: two times for 4 by 4 sums, four times for 8 by 8


def choose_contracted(problem: Problem, region: Region) -> Contracted | None:
    """Tiles for a band that sums products; None where it does not, or where its sides are too short for them. Sides are
    joined where that is faster."""
    nest = contracted_nest(region)
    if any(attr != tile_of(par) for par in nest.pars for attr in par.attrs):
        return None
    usual: tuple[float, Contracted] | None = None
    for one in contractions(problem, nest):
        joins = any(side.joins for side in one.sides)
        if usual is None or joins:
            timed = _fastest(problem, region, one)
            if timed is not None and (usual is None or JOINED * timed[0] < usual[0]):
                usual = timed
    return usual[1] if usual is not None else None


def _fastest(problem: Problem, region: Region, one: Contraction) -> tuple[float, Contracted] | None:
    """The tiles of a contraction that take the shortest time, and that; None where its sides are too short."""
    sizes = {side.index: problem.representative(side.extent, {}) for side in one.blocked}
    length = problem.representative(one.extent, {})
    short, long = sorted(sizes[side.index] for side in one.sides)
    shortest = SHORTEST if one.dtype.size_bytes == 4 else LEAST_SIDE
    if length < LEAST_SUM or long < LEAST_SIDE or short < shortest:
        return None
    shared = constant_value(one.extent) is not None and not region.saved and raster_of(problem.kernel) is None
    shared = shared and one.nest.domain is None
    most = max(1, length // LEAST_PART) if shared else 1
    least = problem.target.multiprocessors // BUSY if length > CHAIN else LEAST_BLOCKS
    if short < LEAST_SIDE:
        least = problem.target.multiprocessors // FEW
    free = any(constant_value(side.extent) is None for side in one.sides)  # there may be many tiles
    timed = [
        (_time(problem.target, shape, rate, _blocks(choice, sizes), length, parts), replace(choice, parts=parts))
        for shape, choice in shaped(problem, region, one)
        if not (free and shape in FOR_FEW_TILES)
        for rate in (_rate(problem, one, shape, choice, is_cut=_is_cut(choice, sizes, length)),)
        for parts in PARTS
        if parts <= most and _blocks(choice, sizes) * parts >= least
    ]
    return _short(timed) if timed else None


def _short(timed: Sequence[tuple[float, Contracted]]) -> tuple[float, Contracted]:
    """The fastest of those with the fewest sums of a thread that are nearly as fast as any: each sum stands three times
    in the text, so that twice as many take the compilers twice as long."""
    least = min(time for time, _ in timed)
    near = [pair for pair in timed if pair[0] <= least + min(NEARLY * least, SPARED)]
    return min(near, key=lambda pair: (prod(pair[1].each.values()), pair[0]))


def _rate(problem: Problem, one: Contraction, shape: Shape, choice: Contracted, *, is_cut: bool) -> float:
    """The rate of a shape for the factors that there are, and tiles that are whole or are cut."""
    brought = [bringing(problem, one, choice, side.index) for side in one.sides]
    *turned, alone, joined = shape.rates
    if any(own.width == 1 and own.factor.side.joins for own in brought):
        return joined
    rate = alone if all(own.width == 1 for own in brought) else turned[sum(own.turned for own in brought)]
    return rate * (CUT if is_cut and shape.ahead == 1 else 1.0)


def shaped(problem: Problem, region: Region, one: Contraction) -> Iterator[tuple[Shape, Contracted]]:
    """The tiles of every shape that a contraction may have: narrow ones where a side is short."""
    sizes = {side.index: problem.representative(side.extent, {}) for side in one.sides}
    asked, along = threads_asked(problem.kernel, problem.target), nearest(problem, one)
    across = next(side.index for side in one.sides if side.index != along)
    others = (side.index for side in reversed(one.blocked) if side.index not in (along, across))
    grid, (_, ranges) = (along, across, *others), plain_nest(region)
    memory = memory_of(problem, one.nest.body, block_level=False, outer=one.nest.indices, ranges=ranges)
    for shape in _shapes(one, along, across, sizes):
        choice = Contracted(
            threads=shape.threads,
            along=along,
            across=across,
            tile=dict(zip((across, along), shape.tile, strict=True)),
            each=dict(zip((across, along), shape.each, strict=True)),
            depth=shape.depth,
            grid=grid,
            joined=joined_by(one.sides),
            ahead=shape.ahead,
            resident=shape.resident,
            memory=memory,
        )
        if asked in (None, shape.threads) and contracted_fault(problem, one.nest, choice) is None:
            with suppress(TExprError):  # whose tiles are not those of the author
                check_tiles(region.stmts, one.nest.pars, choice)
                yield shape, choice


def _over(shape: Shape) -> Shape:
    """The shape along a short side."""
    (high, wide), (rows, columns) = shape.team, shape.each
    return replace(shape, team=(wide, high), each=(columns, rows))


def _shapes(one: Contraction, along: str, across: str, sizes: Mapping[str, int]) -> Iterator[Shape]:
    """The measured shapes, or narrow ones; where the author gives a tile or its depth, those that have it."""
    usual: tuple[Shape, ...] = OF_EIGHT_BYTES
    if one.dtype.size_bytes == 4:
        usual = OF_FOUR_BYTES
        if min(sizes.values()) < LEAST_SIDE:
            usual = OF_SHORT_SIDES if sizes[across] < sizes[along] else tuple(map(_over, OF_SHORT_SIDES))
    shares, depth = shares_asked(one.nest.pars), serial_tile(one.reduction.loops[-1])
    if not shares.block and depth is None:
        yield from usual
        return
    if shares.block and not {along, across} <= shares.block.keys():
        return
    tiles = [shape.tile for shape in usual] if not shares.block else [(shares.block[across], shares.block[along])]
    for tile, each, deep, ahead in product(dict.fromkeys(tiles), EACH, (16, 8) if depth is None else (depth,), (2, 1)):
        team = tile[0] // each[0], tile[1] // each[1]
        if prod(team) >= WARP:
            threads, registers = prod(team), FOR_ADDRESSES + prod(each) * one.dtype.size_bytes // 4
            resident = min(usual[0].resident, max(1, REGISTERS // (threads * registers)))
            known = next((shape.rates for shape in usual if shape.each == each), (0.8,) * 5)
            yield Shape(team=team, each=each, rates=known, resident=resident, depth=deep, ahead=ahead)


def _blocks(choice: Contracted, sizes: Mapping[str, int]) -> int:
    return prod(-(-size // choice.tile.get(index, 1)) for index, size in sizes.items())


def _is_cut(choice: Contracted, sizes: Mapping[str, int], length: int) -> bool:
    """Whether tiles or steps reach beyond what there is."""
    return bool(length % choice.depth) or any(sizes[side] % tile for side, tile in choice.tile.items())


def _time(target: Target, shape: Shape, rate: float, tiles: int, length: int, parts: int) -> float:
    """How long the busiest multiprocessor takes for so many tiles of sums of a length, in products of the best rate."""
    at_once = target.multiprocessors * shape.resident
    full, more = divmod(tiles * parts, at_once)

    def of(blocks: int) -> float:
        """So many blocks on a multiprocessor together, each counted as long as one that is never waited for."""
        if not blocks:
            return 0.0
        if shape.ahead > 1:
            return OWN_TIME * shape.resident + (1 - OWN_TIME) * blocks
        warps = blocks * shape.threads // target.warp_size
        return blocks / min(1.0, warps / ENOUGH_WARPS, warps * prod(shape.each) / ENOUGH_SUMS)

    last = of(-(-more // target.multiprocessors))
    if full and more:
        last += CROWDED * (of(min(more, shape.resident)) - last)
    products = length / parts + (shape.ahead - 1) * shape.depth / 2  # by turns, the last one stands behind all
    alone = prod(shape.tile) * products / rate * (full * of(shape.resident) + last)
    left = prod(shape.tile) * tiles * parts * prod(shape.each) / USUAL_SUMS
    return alone if parts == 1 else GAIN * (alone + MEETING + MEETING_EACH * left)
