"""Whether the choice of products of matrices by single warps fits them: its own numbers, and the band."""

from collections.abc import Iterator

from texpr.grammar.ast import Gather, IndexVar
from texpr.grammar.types import F32
from texpr.polyhedral.layout.vector import vector_width
from texpr.polyhedral.map.crew_fits import listed
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct, product_of_any_rows
from texpr.polyhedral.map.piped_fits import piped_fault
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element
from texpr.polyhedral.map.way_back import PANEL, SWIZZLE_BYTES, WARP_ROWS
from texpr.polyhedral.mapped.atoms import panel_of
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.ringed import Ringed

LEAST_BYTES = 4  # of what a thread copies at once
MOST_STAGES, MOST_BAND = 8, 1 << 16
UNIT = 16  # rows of a product
EACH = tuple(UNIT * n for n in (2, 4, 8))
TILES = tuple(UNIT * n for n in (4, 8, 16))
DEPTHS_BYTES = (64, 128)  # of each row of a factor, in a step
MOST_SUMS = 8 * UNIT  # of 32 bits: registers of a thread


def piece_elements(problem: Problem, factor: MatrixFactor) -> int:
    """How many neighbours of a factor one copy of a thread moves."""
    return _aligned(problem, factor.factor.element)


def piece_row(choice: Ringed, factor: MatrixFactor) -> int:
    """The elements of a row of a factor's tile, all of which threads bring one beside the other."""
    return choice.depth if factor.k_contiguous else panel_of(factor.factor.dtype)


def is_piecewise(problem: Problem, factor: MatrixFactor) -> bool:
    """Whether rows of a factor lie as threads copy pieces of them."""
    return piece_elements(problem, factor) * factor.factor.dtype.size_bytes >= LEAST_BYTES


def result_piece(problem: Problem, product: MatrixProduct, most: int) -> int:
    """How many neighbours of the result one store of a thread moves."""
    return min(most, _aligned(problem, product.result))


def _aligned(problem: Problem, element: Element) -> int:
    """How many elements from a multiple of that many on one access moves, along the last subscript."""
    name, subscripts = element
    buffer, plain = problem.kernel.buffer(name), [s for s in subscripts if not isinstance(s, Gather)]
    most = min(ACCESS_BYTES, buffer.align) // buffer.dtype.size_bytes
    last = plain[-1]
    assert isinstance(last, IndexVar), "a side, or what is summed"
    return vector_width(problem.layouts[name], plain, last.name, most, problem.divisors)


def back_columns(choice: Ringed, product: MatrixProduct) -> int:
    """The columns of what a warp sends back at once: a row of a swizzle, or a panel that threads store."""
    row = SWIZZLE_BYTES // product.result_dtype.size_bytes if product.boxed else PANEL
    return min(row, choice.each[choice.along])


def ringed_bytes(choice: Ringed, product: MatrixProduct) -> int:
    """The shared memory of a block."""
    rows, columns = choice.tile[choice.across], choice.tile[choice.along]
    back = choice.warps * WARP_ROWS * back_columns(choice, product) * product.result_dtype.size_bytes
    size = product.dtype.size_bytes
    brought = rows + columns * product.sums
    return choice.stages * brought * choice.depth * size + (back if product.boxed else 0)


def product_fault(problem: Problem, region: Region, choice: Piped | Ringed) -> str | None:
    """What does not fit of either form of products of matrices."""
    if isinstance(choice, Piped):
        return piped_fault(problem, region, choice)
    return ringed_fault(problem, region, choice)


def ringed_fault(problem: Problem, region: Region, choice: Ringed) -> str | None:
    """What does not fit, None where all does; where locals may lie, others say."""
    product = product_of_any_rows(problem, region, boxes=False)
    if product is None:
        return "no product of matrices for tensor cores"
    return next(_faults(problem, product, choice), None)


def _faults(problem: Problem, product: MatrixProduct, choice: Ringed) -> Iterator[str]:
    sides = (product.rows.index, product.columns.index)
    if (choice.across, choice.along) != sides:
        yield f"`across` and `along`: the rows and columns are {sides[0]} and {sides[1]}"
        return
    if choice.tile.keys() != set(sides) or choice.each.keys() != set(sides):
        yield "`tile` and `each` give the rows and the columns of a tile, and those of a warp"
        return
    if any(choice.each[side] not in EACH for side in sides):
        yield f"`each`: {', '.join(map(str, EACH))} rows or columns"
        return
    if any(choice.tile[side] not in TILES or choice.tile[side] % choice.each[side] for side in sides):
        yield "`tile`: 64, 128 or 256 rows or columns, whole warps of them"
        return
    most = MOST_SUMS * F32.size_bytes // product.one.dtype.size_bytes // (2 if product.in_portions else 1)
    if product.sums * choice.each[sides[0]] * choice.each[sides[1]] > most * problem.target.warp_size:
        yield f"`each`: at most {most} sums for each lane"
    depths = [bytes_ // product.dtype.size_bytes for bytes_ in DEPTHS_BYTES]
    if choice.depth not in depths:
        yield f"`depth`: {' or '.join(map(str, depths))} products"
        return
    if not 2 <= choice.stages <= MOST_STAGES or not 1 <= choice.band <= MOST_BAND:
        yield f"`stages` are 2 to {MOST_STAGES}, and `band` 1 to {MOST_BAND}"
        return
    if choice.threads > problem.target.max_threads or not 1 <= choice.resident <= problem.target.resident_blocks:
        yield f"`resident`: {choice.resident} blocks of {choice.threads} threads do not fit"
        return
    if product.turned:
        yield f"tensor cores take {listed(product.turned)} along {product.summed}, and not along another index"
        return
    for factor in product.factors:
        yield from _rounds(problem, factor, choice)
    needed = ringed_bytes(choice, product)
    if needed > problem.target.shared_bytes:
        yield f"its tiles need {needed} bytes of shared memory, and a block has {problem.target.shared_bytes}"


def _rounds(problem: Problem, factor: MatrixFactor, choice: Ringed) -> Iterator[str]:
    """Whether all threads have as many pieces of a factor's tile."""
    count = piece_elements(problem, factor)
    if not is_piecewise(problem, factor):
        yield f"rows of {factor.buffer} do not begin at multiples of {LEAST_BYTES} bytes"
        return
    rows = choice.tile[factor.index] if factor.k_contiguous else choice.depth
    pieces = piece_row(choice, factor) // count
    if pieces > problem.target.warp_size or not _is_whole(rows, choice.threads // pieces, factor, choice):
        yield f"{choice.threads} threads have no whole rounds of the tile of {factor.buffer}"


def _is_whole(rows: int, at_once: int, factor: MatrixFactor, choice: Ringed) -> bool:
    """Whether threads that bring so many rows at once have whole rounds of them, or of whole panels."""
    if factor.k_contiguous or at_once <= rows:
        return rows % at_once == 0
    return at_once % rows == 0 and choice.tile[factor.index] // panel_of(factor.factor.dtype) % (at_once // rows) == 0
