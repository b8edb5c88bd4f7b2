"""The first candidate of a product of matrices on tensor cores: the tiles that are done soonest.

    bf16 8192 x 8192 x 8192     tiles of 256 x 208, two blocks a cluster, 3 stages, 132 blocks that stay; of j by i,
                                where B lies along j
    bf16 4096 x 4096 x 4096     tiles of 128 x 256, two blocks a cluster, 4 stages
    bf16 1000 x 1304 x 2056     tiles of 64 x 192, four blocks a cluster, 6 stages: one wave
    bf16 1536 x 1536 x 1536     tiles of 192 x 96: one wave of 128
    bf16 2304 x 2304 x 2304     a wave of tiles of 128 x 192, and behind it the rows from 1408 on in tiles of 128 x 128
    bf16 1024 x 1024 x 1024     tiles of 64 x 128, 8 stages
    bf16 128 x 4096 x 4096      tiles of 128 x 64, two blocks for each, which share what is summed
    bf16 768 x 768 x 16384      tiles of 128 x 128, three blocks for each, which share its steps by memory
    bf16 16 x 4096 x 4096       tiles of 64 of the 4096 by all 16, two blocks for each: memory takes longest
    bf16 8192 x 8192 x 1024     tiles of 128 x 192, of which each of two warpgroups makes every second one

A wave of tiles takes what is around its products, and for each step of k what its tensor cores need, or what comes from
the L2 cache: the rows of a block, and its part of the columns that a cluster shares; rows that begin at no multiple of
128 bytes are more there. Where warpgroups alternate, what is around products is done beside those of the next tile, by
one of them. The figures are a fit to some hundred pairs of tile and sizes on an H200 (error .08).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod

from texpr.grammar.ast import Fn, Op, Par, Read, Seq
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.linear import linear
from texpr.grammar.permissions import may_use_tf32, stages_of
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32
from texpr.grammar.walk import walk
from texpr.polyhedral.map.matrix_product import STEP_BYTES, MatrixFactor, MatrixProduct, matrix_product
from texpr.polyhedral.map.multiplied import paired_columns
from texpr.polyhedral.map.piped_fits import MOST_COLUMNS, MOST_GROUPS, MOST_HELD, most_groups, piped_bytes, piped_fault
from texpr.polyhedral.map.piped_tiles import BY_TURNS, FEW, SPLIT, SPLITS, STREAMED, TILES, Tile, high_tiles
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.product_boxes import row_strides
from texpr.polyhedral.map.staged import asked_stages
from texpr.polyhedral.map.tile_turns import best_band
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.way_back import PANEL
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.walk import subscript_names

LEAST_SIDE, LEAST_SUM = 64, 64  # or most of a tile is empty, which matters where memory takes no longer
LEAST_BUSY = 3  # where a side is shorter: tiles for the third part of the multiprocessors
MOST_BEYOND = 2  # rows of boxes for each of those of a window
LEAST_PRODUCTS = 1 << 24  # below, a launch is over before a pipe is full
MOST_STAGES = 12  # that the compiler chooses by itself
BAND, UNALIGNED_BAND = 8, 4  # clusters; where rows are more in the L2 cache
CYCLE_US = 1 / 1710
PRODUCT_BYTES = 4096  # of what is summed, that a multiprocessor multiplies in a cycle for one element: 2048 of 16 bits
L2_BYTES = 70  # that come to a multiprocessor in a cycle
LINE_BYTES, LINES = 128, 1.75  # of the L2 cache: more of them where a row of a box begins between two
POWER = 0.2  # that what comes takes, in its own time
# Of high tiles the parts of a step's products, of what comes, and of what is read of shared memory: a fit to 160 to 208
# columns of 4096³ to 8192³, which tell tiles of as many products apart by what they move (error .005).
HIGH_POWER, SHARED_BYTES, HIGH_US = (0.4, 0.7, 0.6), 128, 1.0
TILE_US, AREA_US, AREA = 0.8, 0.7, 1 << 15  # around the products of a tile, and the way back of so many elements
HALVES, HALF_LINES = 1.02, 1.6  # what half a panel on the way back costs, and lines of half panels on the way in
PAIRS = 1.06  # clusters of blocks of one warpgroup each
LARGER = 2  # times as large as the other factor: the one that is to be brought less often, all else alike
MEMORY_BYTES = 4_200_000  # that come in a microsecond
CLUSTER_US = {1: 0.0, 2: 1.5, 4: 2.0}  # to begin with so many blocks of a cluster
MEETING_US = 8e-5  # for a byte of the sums that a block sends to others, who do the same
LONG_STEPS, LONG_STEP = 100, {1: 350, 2: 400, 4: 300}  # of one warpgroup: from so many on, each takes so many cycles
SHARED_STEP = 470  # at least, in clusters of so many blocks; and where blocks share steps by memory
L2_CACHE, BEYOND = 50 << 20, 1.35  # its bytes, and more of lines where factors that blocks share by memory are larger
SHARED_US, PART_US = 4.2, 1.55  # sums by memory, from the last block's products to its adds, and those of AREA of each
AT_ONCE = {1: 132, 2: 66, 4: 30}  # clusters of so many blocks on an H200
# By warpgroups, where memory takes longest: of 16 x 4096 x 4096, 8 stages of 10 KB take 10.3 us, 12 10.8; of
# 8 x 14336 x 4096, 6 of 18 KB 29.2, 12 31.2.
DEEP_STAGES = {1: 8, 2: 6}
FINISH_US, READ_US = 0.22, 4.0  # an operation around AREA sums by two warpgroups; reading an array of as many elements
AWAY_US, ALONE, READ_ALONE_US = 7.0, 3.5, 8.5  # the way back by one of them beside products, such operations, and reads
REST_US, LEAST_GAIN = 1.0, 1.03  # to begin with a launch of the rest, and what it is to be worth
MOST_WAVES, BEST_RATE = 4, 0.93  # of tiles before it: behind more there is less to gain; and the rate of the best tiles
BESIDE, TURN_US = 0.7, 0.15  # how much of operations is not hidden; and until the other warpgroup multiplies
PORTIONS = ((112, 1.14), (64, 1.35), (0, 1.06))  # what adding portions of more columns costs, of sums of f8,
PIECES = 1.22  # and what those of a window do
TURNS = 1.02  # what smaller tiles cost in power
OPERATIONS = dict.fromkeys((Fn.EXPM1, Fn.LOG, Fn.LOG2, Fn.LOG1P, Fn.POW, Fn.TANH, Fn.SIN, Fn.COS, Fn.XLOGY), 12) | {
    Fn.ERF: 16, Fn.NORMCDF: 9, Fn.SQRT: 6, Fn.RSQRT: 6, Fn.DIV: 4, Fn.EXP: 3, Fn.EXP2: 3, Fn.SIGMOID: 2,
}  # fmt: skip


def rate_of(choice: Piped, sums: int) -> float:
    """How near the products of so many sums come to the best rate in tiles of a choice."""
    rows, columns = choice.tile[choice.across], choice.tile[choice.along] * sums
    needed = rows * columns * STEP_BYTES / PRODUCT_BYTES
    return needed / _step(needed, (rows / choice.abreast + columns / choice.cluster) * LINE_BYTES)


def _step(needed: float, brought_bytes: float) -> float:
    """The cycles of a step whose products need so many, and which brings so much."""
    brought = brought_bytes / L2_BYTES
    return max(needed, brought) + POWER * brought


def choose_piped(problem: Problem, region: Region) -> Piped | None:
    """Tiles for products of matrices; None where there are none, or too small ones."""
    product = matrix_product(problem, region)
    if product is None or not is_large(problem, product):
        return None
    every = [(_time_us(problem, *pair), pair) for pair in _tiles(problem, region, product)]
    found, (own, best) = min(every, key=lambda one: (one[0][0] * (LEAST_GAIN if one[1][1].streamed else 1), one[0]))
    return _with_rest(problem, region, product, found[0]) or _choice(problem, region, own, best)


def pipings(problem: Problem, region: Region) -> Iterator[Piped]:
    """Tiles of every shape, in fewer stages and in other bands."""
    product = matrix_product(problem, region)
    if product is None:
        return
    for own, tile in _tiles(problem, region, product):
        usual = _choice(problem, region, own, tile)
        yield usual
        yield replace(usual, stages=max(2, usual.stages - 1))
        yield replace(usual, band=2 * usual.band)
        if tile.high == 1:
            yield replace(usual, alternate=not usual.alternate)


def _tiles(problem: Problem, region: Region, product: MatrixProduct) -> Iterator[tuple[MatrixProduct, Tile]]:
    """The tiles of each sum where the registers have room for all of them; where sizes say how many tiles there are,
    also such as several blocks share, and, where there are few rows, those that have these as columns."""
    plain = _is_plain(product)
    for tile in TILES:
        if product.window.loops and tile.cluster > 1:
            continue  # they share little, for which they wait: 4 to 9 % slower on an H200
        if tile.groups > MOST_GROUPS and not plain and len(product.row_loops) == 1:
            continue
        if tile.columns * product.sums <= MOST_COLUMNS and tile.groups <= most_groups(product, tile.columns):
            yield product, tile
    if product.boxed and plain and len(product.row_loops) == 1:
        yield from ((product, t) for t in BY_TURNS if t.groups * t.columns * product.sums <= MOST_HELD)
        yield from high_tiles(problem, region, product)
    extents = (*product.extents, *(par.extent for par in product.others))
    if not plain or not all(constant_value(extent) for extent in extents):
        return
    few = product.sizes(problem)[0] < LEAST_SIDE
    turned = matrix_product(problem, region, product.columns.index) if few else None
    for own, tiles in (
        (product, (*SPLIT, *STREAMED)),
        *(((turned, FEW),) if turned is not None and not turned.boxed else ()),
    ):
        for tile in tiles:
            if tile.columns * own.sums <= MOST_COLUMNS and _is_shared(problem, region, own, tile):
                yield own, tile


def _is_plain(product: MatrixProduct) -> bool:
    """Whether it is such a product as was measured in all shapes of tiles."""
    return not product.window.loops and product.domain is None and product.dtype.bits == 16


def _with_rest(problem: Problem, region: Region, product: MatrixProduct, alone_us: float) -> Piped | None:
    """Rows of tiles in whole waves, and behind them the other rows in tiles of their own, where that takes less than
    one launch does."""
    extents = (*product.extents, *(par.extent for par in product.others))
    asked = any(True for _ in asked_stages(product.one.reduction.loops))
    known = product.boxed and all(constant_value(extent) for extent in extents)
    if not (_is_plain(product) and known) or asked or product.epilogue.over:
        return None
    rows, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    row_us = others * columns * product.sums * depth * product.dtype.size_bytes * CYCLE_US
    row_us /= PRODUCT_BYTES * problem.target.multiprocessors * BEST_RATE
    worth_us = alone_us / LEAST_GAIN - REST_US
    if rows * row_us + 2 * TILE_US > worth_us:
        return None
    tiles = [tile for own, tile in _tiles(problem, region, product) if own is product and not tile.streamed]
    shared = [tile for tile in SPLIT if tile.columns * product.sums <= MOST_COLUMNS]

    @cache
    def behind(begin: int) -> tuple[float, Tile]:
        """The tiles of the rows from there on."""
        left = rows - begin
        few = (t for t in shared if _clusters(problem, product, t, left) <= _at_once(problem, t))
        every = ((_time_us(problem, product, t, left)[0], t) for t in (*tiles, *few))
        return min(every, key=lambda one: one[0])

    found: list[tuple[float, Tile, int]] = []
    for tile in (tile for tile in tiles if tile.split == 1):
        each, at_once = -(-columns // (tile.columns * tile.abreast)) * others, _at_once(problem, tile)
        whole = _clusters(problem, product, tile) // at_once
        for waves in range(1, whole + 1 if whole <= MOST_WAVES else 0):
            begin = waves * at_once // each * tile.rows * tile.cluster
            left_us = (rows - begin) * row_us + TILE_US
            if 0 < begin < rows and (first_us := _time_us(problem, product, tile, begin)[0]) + left_us < worth_us:
                found.append((first_us + behind(begin)[0], tile, begin))
    for taken, tile, begin in sorted(found, key=lambda one: one[0]):
        if taken > worth_us:
            return None
        rest = replace(_choice(problem, region, product, behind(begin)[1], rows - begin), begin=begin)
        choice = replace(_choice(problem, region, product, tile, begin), rest=rest)
        if piped_fault(problem, region, choice) is None:
            return choice
    return None


def _is_shared(problem: Problem, region: Region, product: MatrixProduct, tile: Tile) -> bool:
    """Whether all clusters that share tiles run at once, and there is room for theirs."""
    clusters = _clusters(problem, product, tile)
    if clusters * (2 if tile.streamed else 1) > _at_once(problem, tile) and (tile.split > 1 or tile.streamed):
        return False
    return piped_fault(problem, region, _choice(problem, region, product, tile)) is None


def is_large(problem: Problem, product: MatrixProduct) -> bool:
    """Whether tensor cores take a product: what an author asks of threads and tiles is theirs."""
    loops: tuple[Par | Seq, ...] = (*product.one.nest.pars, *product.one.reduction.loops)
    own = [attr for attr in problem.kernel.attrs if not may_use_tf32((attr,))]
    if own or any(a != stages_of(loop) for loop in loops for a in loop.attrs):
        return False
    rows, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    if depth < LEAST_SUM or others * rows * columns * depth < LEAST_PRODUCTS:
        return False
    if product.window.loops and -(-_whole_rows(problem, product) // GROUP_ROWS) * GROUP_ROWS > MOST_BEYOND * rows:
        return False
    tiles = _clusters(problem, product, Tile(1, PANEL // 2, 1))
    shares = max(
        1, min(2 * SPLITS[-1], depth // (product.depth * 2 * SPLITS[-1]))
    )  # of what is summed, several steps each
    return min(rows, columns) >= LEAST_SIDE or LEAST_BUSY * shares * tiles >= problem.target.multiprocessors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """What `product` is at the representative sizes, for all its tiles: how many lines of the L2 cache rows of both
    factors take for each of their own, `others` as many products, and what `finish_of` says."""

    product: MatrixProduct
    rows: int
    columns: int
    depth: int
    whole_rows: int
    others: int
    steps: int
    lines: tuple[float, ...]
    finish: tuple[int, int]


def _numbers(problem: Problem, product: MatrixProduct) -> _Numbers:
    return problem.once(("numbers of a product", id(product)), lambda: _found_numbers(problem, product))


def _found_numbers(problem: Problem, product: MatrixProduct) -> _Numbers:
    rows, columns, depth = product.sizes(problem)
    return _Numbers(
        product=product,
        rows=rows,
        columns=columns,
        depth=depth,
        whole_rows=_whole_rows(problem, product),
        others=prod(problem.representative(par.extent, {}) for par in product.others),
        steps=problem.representative(product.steps, {}),
        lines=tuple(LINES if _begins_between(problem, f) else 1.0 for f in (product.rows, product.columns)),
        finish=finish_of(product),
    )


def _clusters(problem: Problem, product: MatrixProduct, tile: Tile, own_rows: int = 0) -> int:
    """The clusters of tiles that there are, of so many rows (0: of all)."""
    of = _numbers(problem, product)
    rows = own_rows or of.whole_rows
    return -(-rows // (tile.rows * tile.cluster)) * -(-of.columns // (tile.columns * tile.abreast)) * of.others


def _at_once(problem: Problem, tile: Tile) -> int:
    """The clusters of blocks that run at a time, one block on each multiprocessor: of four not as many as there is room
    for, because they do not cross groups of multiprocessors."""
    blocks = tile.ranks * tile.split
    return max(1, problem.target.multiprocessors * AT_ONCE[blocks] // AT_ONCE[1])


def _whole_rows(problem: Problem, product: MatrixProduct) -> int:
    """The rows, those of boxes that go beyond them, too."""
    boxes = product.row_boxes(problem)
    return product.sizes(problem)[0] if boxes is None else GROUP_ROWS * problem.representative(boxes.total, {})


def _time_us(problem: Problem, product: MatrixProduct, tile: Tile, own_rows: int = 0) -> tuple[float, float, int]:
    """How long a launch takes, about, of so many rows (0: of all), how long if memory took no time, and how often the
    larger factor is brought."""
    of = _numbers(problem, product)
    rows, columns, depth, others = own_rows or of.rows, of.columns, of.depth, of.others
    clusters, at_once = _clusters(problem, product, tile, own_rows), _at_once(problem, tile)
    waves, sharers = -(-clusters // at_once), at_once // clusters if tile.streamed else 1
    own, shared = of.lines
    if tile.columns % PANEL and not product.columns.k_contiguous:
        shared *= HALF_LINES
    size, wide = product.dtype.size_bytes, tile.columns * product.sums
    lines = tile.rows * own / tile.abreast + min(columns, tile.columns) * product.sums * shared / tile.cluster
    if tile.streamed and others * (rows + columns * product.sums) * depth * size > L2_CACHE:
        lines *= BEYOND
    needed = tile.rows * wide * STEP_BYTES / PRODUCT_BYTES
    step = _step(needed, lines * STEP_BYTES)
    if tile.high > 1:
        read = tile.rows // GROUP_ROWS * (GROUP_ROWS + wide) * STEP_BYTES / SHARED_BYTES
        parts = (needed, lines * STEP_BYTES / L2_BYTES, read)
        step = sum(power * part for power, part in zip(HIGH_POWER, parts, strict=True))
    elif tile.columns % PANEL:
        step *= HALVES
    step *= PAIRS if tile.ranks > 1 and tile.groups == 1 else 1.0
    if product.in_portions:
        width = paired_columns(tile.columns, product.sums)
        step *= PIECES if product.window.loops else next(cost for most, cost in PORTIONS if width > most)
    area = tile.rows * wide / AREA
    (operations, reads), around = of.finish, TILE_US + AREA_US * area + (HIGH_US if tile.high > 1 else 0.0)
    steps = -(-of.steps // (tile.split * sharers))
    if tile.groups == 1 and tile.columns >= PANEL and (tile.streamed or steps > LONG_STEPS):
        step = max(step, SHARED_STEP if tile.streamed else LONG_STEP[tile.ranks])
    sent = tile.rows * wide * F32.size_bytes * (tile.split - 1) / tile.split
    products, finish = steps * step * CYCLE_US, (FINISH_US * operations + READ_US * reads) * area
    if tile.alternate:
        products *= TURNS
        back = (AWAY_US + ALONE * FINISH_US * operations + READ_ALONE_US * reads) * area
        turn = max(products, (products + back) / 2) + TURN_US + BESIDE * FINISH_US * operations
        taken = waves * turn + around + finish
    else:
        taken = waves * (around + finish + products)
    shared = SHARED_US + PART_US * sharers * area if tile.streamed else MEETING_US * sent
    found = CLUSTER_US[tile.ranks] + shared + taken
    brought = rows * depth // product.places + columns * product.sums * depth
    moved = (brought + rows * columns) * size * others
    often = 0
    if columns * product.sums >= LARGER * rows:
        often = -(-rows // (tile.rows * tile.cluster))
    elif rows >= LARGER * columns:
        often = -(-columns // (tile.columns * tile.abreast))
    return max(found, moved / MEMORY_BYTES), found, often


def finish_of(product: MatrixProduct) -> tuple[int, int]:
    """Operations around each element's sums, about, and the arrays of as many elements that they read."""
    if product.epilogue.plain:
        return 0, 0
    sides, operations, reads = {*product.rows.factor.side.indices, product.columns.index}, 0, 0
    for leaf in product.epilogue.leaves:
        for node in walk(leaf):
            if isinstance(node, Op):
                operations += OPERATIONS.get(node.fn, 1)
            elif isinstance(node, Read) and sides <= subscript_names(node.subscripts):
                reads += 1
    return operations + len(product.epilogue.over), reads


def _begins_between(problem: Problem, factor: MatrixFactor) -> bool:
    """Whether rows of a factor begin between two lines of the L2 cache; not where a call decides it."""
    lines = LINE_BYTES // factor.factor.dtype.size_bytes
    open_ = {size.name: lines for size in problem.kernel.sizes}
    return not all(linear(step).is_multiple(lines, open_) for step in row_strides(problem, factor.buffer))


def _launched(tile: Tile, clusters: int, at_once: int) -> int:
    """The clusters of a launch: tiles that blocks share have as many each, which begin at the same steps, so that what
    they read is in the L2 cache (512 x 512 x 32768 in tiles of 128 x 128: by 8 each 41 us, by 132 of all 49)."""
    if tile.streamed:
        return at_once // clusters * clusters
    return min(at_once, clusters) if tile.split == 1 else clusters


def _choice(problem: Problem, region: Region, product: MatrixProduct, tile: Tile, own_rows: int = 0) -> Piped:
    """As many blocks as there is room or work for in so many rows (0: in all), with as many stages as have room, at
    most those that the author asks for."""
    blocks, clusters = tile.ranks * tile.split, _clusters(problem, product, tile, own_rows)
    at_once = _at_once(problem, tile)
    between = any(_begins_between(problem, factor) for factor in (product.rows, product.columns))
    boxes = product.row_boxes(problem)
    usual = UNALIGNED_BAND if between else BAND
    choice = Piped(
        along=product.columns.index,
        across=product.rows.index,
        tile={product.rows.index: tile.rows, product.columns.index: tile.columns},
        stages=2,
        alternate=tile.alternate,
        persistent=_launched(tile, clusters, at_once) * blocks,
        cluster=tile.cluster,
        abreast=tile.abreast,
        high=tile.high,
        split=tile.split,
        streamed=tile.streamed,
        band=best_band(problem, product, tile.rows * tile.cluster, tile.columns * tile.abreast, at_once, usual),
        box=dict(zip(boxes.indices, boxes.sizes, strict=True)) if boxes is not None else {},
        memory=memory_of(
            problem,
            product.one.nest.body,
            block_level=False,
            outer=product.one.nest.indices,
            ranges=region.nest[1],
        ),
    )
    deep = DEEP_STAGES.get(tile.groups, MOST_STAGES) if tile.columns < PANEL // 2 else MOST_STAGES
    most = max((stages for _, _, stages in asked_stages(product.one.reduction.loops)), default=deep)
    deeper = (replace(choice, stages=stages) for stages in range(most, 2, -1))
    fits = (one for one in deeper if piped_bytes(product, one) <= problem.target.shared_bytes)
    return next(fits, choice)
