"""Whether the choice of products of matrices on tensor cores fits them: its own numbers, and the band."""

from collections.abc import Iterator
from functools import reduce
from itertools import chain
from math import prod

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import ceildiv, constant_value, multiply
from texpr.grammar.types import F32
from texpr.polyhedral.map.lane_pairs import EIGHT
from texpr.polyhedral.map.loaded_rows import are_loaded
from texpr.polyhedral.map.matrix_product import STEP_BYTES, MatrixProduct, matrix_product
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.tile_rows import rows_of
from texpr.polyhedral.map.way_back import PANEL, row_bytes
from texpr.polyhedral.mapped.atoms import has_columns
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped

MOST_GROUPS, MOST_BOXES = 2, 4  # warpgroups that multiply, with all registers of a multiprocessor; of boxes
THREE, THREE_COLUMNS = 3, 192  # of plain rows, and the columns whose sums these have registers for
MOST_HELD = 384  # columns of sums of 64 rows each that a warpgroup has registers for
MOST_ALONE = 416  # the same where no statement is around them, of two warpgroups


HIGH = (1, 2)  # times 64 rows of a warpgroup
MOST_COLUMNS, MOST_STAGES, MOST_BAND = 256, 16, 1 << 16
FEW_COLUMNS = MOST_COLUMNS // 2  # that more warpgroups than two have room for
NARROW = (16,)  # columns of tiles whose elements threads store
CLUSTERS, ABREAST, SPLITS = (1, 2, 4), (1, 2), (1, 2, 4, 8)
WORD_BYTES = 16  # of a slot of a pipe


def piped_fault(problem: Problem, region: Region, choice: Piped) -> str | None:
    """What does not fit, None where all does; where locals may lie, others say."""
    own = matrix_product(problem, region, choice.across, crossed=choice.high > 1)
    product = own or matrix_product(problem, region)
    if product is None:
        return "no product of matrices that tensor cores of sm_90a take, in rows of multiples of 16 bytes"
    if choice.begin:
        return "`begin`: only a `rest` begins behind the first row"
    rest = () if choice.rest is None else _faults(problem, product, choice.rest)
    return next(chain(_faults(problem, product, choice), _rest_faults(product, choice), rest), None)


def piped_bytes(product: MatrixProduct, choice: Piped) -> int:
    """The shared memory of a block."""
    rows, columns = choice.tile[choice.across], choice.tile[choice.along]
    row = row_bytes(product, columns // choice.split) if product.boxed else 0
    back = GROUP_ROWS * choice.groups * choice.slots * row
    parts = rows * columns * product.sums * F32.size_bytes + WORD_BYTES if choice.split > 1 else 0
    brought = rows + columns * product.sums
    return choice.stages * (brought * STEP_BYTES + WORD_BYTES) + back + parts


def tiles_of(product: MatrixProduct, choice: Piped) -> IndexExpr:
    """The tiles that all blocks of a cluster have together, in all products."""
    rows, columns = choice.tile[choice.across] * choice.cluster, choice.tile[choice.along]
    one = multiply(ceildiv(rows_of(product, choice), rows), ceildiv(product.extents[1], columns))
    return reduce(multiply, (par.extent for par in product.others), one)


def most_groups(product: MatrixProduct, columns: int) -> int:
    """How many warpgroups may multiply in tiles of so many columns."""
    if product.in_portions:
        return MOST_GROUPS
    if len(product.row_loops) > 1:
        return MOST_BOXES if columns * product.sums <= FEW_COLUMNS else MOST_GROUPS
    return THREE if columns * product.sums <= THREE_COLUMNS and not are_loaded(product) else MOST_GROUPS


def is_high(product: MatrixProduct) -> bool:
    """Whether a warpgroup may have several times 64 rows of a tile, and blocks side by side share its rows."""
    one = len(product.row_loops) == 1 and not product.window.loops and product.domain is None
    return one and product.boxed and not (product.in_portions or are_loaded(product))


def column_step(product: MatrixProduct) -> int:
    """What columns of a tile are multiples of: panels of those that lie along a factor are halves of swizzles at least,
    others end with a box on their way back."""
    plain = is_high(product) and product.dtype.bits == 16 and product.result_dtype.bits == 16
    along_k = all(factor.k_contiguous for factor in product.factors[1:])
    return PANEL // 4 if plain and along_k else PANEL // 2


def _faults(problem: Problem, product: MatrixProduct, choice: Piped) -> Iterator[str]:
    if (choice.across, choice.along) != (product.rows.index, product.columns.index):
        yield f"`across` and `along`: the rows and columns are {product.rows.index} and {product.columns.index}"
        return
    if choice.tile.keys() != {choice.across, choice.along}:
        yield "`tile` gives the rows and the columns of a tile"
        return
    rows, columns = choice.tile[choice.across], choice.tile[choice.along]
    loops = [loop.index for loop in product.row_loops]
    if choice.box.keys() != (set(loops) if len(loops) > 1 else set()):
        yield f"`box` gives the sizes of boxes of {', '.join(loops)}, where rows are several indices"
        return
    if choice.box and (prod(choice.box.values()) != GROUP_ROWS or any(n & (n - 1) for n in choice.box.values())):
        yield f"`box`: powers of two, {GROUP_ROWS} rows together"
        return
    if choice.high not in HIGH or (choice.high > 1 and (choice.alternate or not is_high(product))):
        yield "`high`: 1, or 2 of rows that are one index, of which no two groups alternate"
        return
    most = MOST_GROUPS if choice.alternate else choice.high * most_groups(product, choice.high * columns)
    least = GROUP_ROWS * choice.high
    if rows not in range(least, GROUP_ROWS * most + 1, least):
        yield f"`tile`: multiples of {least} rows up to {most * GROUP_ROWS}"
        return
    if choice.alternate and product.domain is not None:
        yield "`alternate`: of a triangle blocks pass over turns, so that no group has every second tile"
    if product.in_portions and (choice.alternate or choice.split > 1):
        yield "`alternate` and `split`: sums of f8 are made in portions, beside which no registers are left for either"
        return
    if are_loaded(product) and choice.blocks > 1:
        yield f"`tile`: each warpgroup loads {GROUP_ROWS} rows into registers, and not several times as many"
    if choice.cluster not in CLUSTERS:
        yield "`cluster`: 1, 2 or 4 blocks"
        return
    beside = is_high(product) and not product.epilogue.over and choice.cluster == 1
    if choice.abreast not in ABREAST or (choice.abreast > 1 and not beside):
        yield "`abreast`: 1, or 2 blocks of a cluster without others, where rows are one index and not added up"
        return
    narrow = NARROW if not product.boxed and product.dtype.bits == 16 else ()
    each = column_step(product)
    if columns not in (*narrow, *range(PANEL // 2, MOST_COLUMNS // product.sums + 1, each)):
        yield f"`tile`: multiples of {each} columns up to {MOST_COLUMNS // product.sums}"
    most = (MOST_ALONE if product.epilogue.plain and choice.high > 1 else MOST_HELD) // product.sums
    if choice.blocks * columns > most:
        yield f"`tile`: {choice.blocks * columns} columns of sums by each warpgroup, which holds {most}"
    if product.dtype.is_integer and not has_columns(product.dtype, columns):
        yield f"`tile`: no instruction multiplies {product.dtype} in {columns} columns"
    if choice.split > 1:
        yield from _split_faults(product, choice)
    if choice.streamed:
        yield from _streamed_faults(product, choice)
    if not 2 <= choice.stages <= MOST_STAGES or not 1 <= choice.band <= MOST_BAND:
        yield f"`stages` are 2 to {MOST_STAGES}, and `band` 1 to {MOST_BAND}"
        return
    if choice.persistent < 1 or choice.persistent % choice.ranks or choice.persistent > problem.target.multiprocessors:
        most = problem.target.multiprocessors
        yield f"`persistent`: whole clusters, at most the {most} multiprocessors of the target"
    needed = piped_bytes(product, choice)
    if needed > problem.target.shared_bytes:
        yield f"its tiles need {needed} bytes of shared memory, and a block has {problem.target.shared_bytes}"


def _split_faults(product: MatrixProduct, choice: Piped) -> Iterator[str]:
    """Why blocks of a cluster do not share what is summed."""
    columns = choice.tile[choice.along]
    if product.one.dtype != F32:
        yield f"`split`: blocks share sums of f32, not of {product.one.dtype}"
        return
    alone = choice.ranks == choice.high == 1 and not (choice.alternate or choice.box or product.domain)
    if choice.split not in SPLITS or not alone:
        yield f"`split`: {', '.join(map(str, SPLITS[1:]))} blocks of a cluster that share nothing else"
        return
    least = EIGHT if not product.boxed else PANEL // 4 if product.result_dtype.bits == 16 else PANEL // 2
    if product.epilogue.over:
        yield "`split`: blocks that share sums do not add up rows of a tile"
    if columns % (choice.split * least):
        yield f"`split`: each block ends whole groups of {least} columns"
    known, steps = constant_value(tiles_of(product, choice)), constant_value(product.steps)
    if known is None or choice.persistent != known * choice.split:
        yield "`split`: a cluster for each tile, of which the sizes say how many there are"
    if steps is None or steps < choice.split:
        yield f"`split`: each block has {product.depth} products of a sum at least"


def _streamed_faults(product: MatrixProduct, choice: Piped) -> Iterator[str]:
    """Why blocks do not share the steps of all tiles."""
    if product.one.dtype != F32:
        yield f"`streamed`: blocks share sums of f32, not of {product.one.dtype}"
        return
    alone = choice.split == choice.abreast == choice.high == 1
    if not alone or choice.alternate or choice.rest is not None or choice.begin:
        yield "`streamed`: blocks that share all steps share nothing else, and make all rows together"
    if product.in_portions or are_loaded(product) or product.window.loops or product.domain is not None:
        yield "`streamed`: products of whole steps from shared memory, one after the other, of all elements"
        return
    tiles, steps = constant_value(tiles_of(product, choice)), constant_value(product.steps)
    if tiles is None or steps is None:
        yield "`streamed`: the sizes say how many tiles and steps there are"
    elif tiles * steps * choice.cluster < choice.persistent:
        yield "`streamed`: each block has a step at least"


def _rest_faults(product: MatrixProduct, choice: Piped) -> Iterator[str]:
    """Why the last rows have no launch of their own."""
    rest, known = choice.rest, constant_value(product.extents[0])
    if rest is None:
        return
    if known is None or len(product.row_loops) > 1 or product.domain is not None or product.epilogue.over:
        yield "`rest`: of rows that are one index, as many as the sizes say, and which are not added up"
        return
    step = choice.tile[choice.across] * choice.cluster
    if rest.begin not in range(step, known, step):
        yield f"`begin`: the rest follows on whole clusters of tiles, multiples of {step} rows below {known}"
    if rest.rest is not None or rest.memory != choice.memory:
        yield "`rest`: it has none of its own, and its locals lie where those of the launch before do"
