"""Whether the choice of products of matrices on tensor cores fits them: its own numbers, and the band."""

from collections.abc import Iterator

from texpr.polyhedral.map.matrix_product import DEPTH, MatrixProduct, matrix_product
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.way_back import PANEL, row_bytes
from texpr.polyhedral.mapped.candidate import GROUP_ROWS, Piped

MOST_GROUPS = 2  # that multiply, with all registers of a multiprocessor
MOST_HELD = 384  # columns of sums of 64 rows each that a warpgroup has registers for
MOST_COLUMNS, MOST_STAGES, MOST_BAND = 256, 16, 1 << 16
CLUSTERS = (1, 2)
WORD_BYTES = 16  # of a slot of a pipe


def piped_fault(problem: Problem, region: Region, choice: Piped) -> str | None:
    """What does not fit, None where all does; where locals may lie, others say."""
    product = matrix_product(problem, region)
    if product is None:
        return "no product of matrices of 16 bits, in rows of multiples of 16 bytes, for tensor cores of sm_90a"
    return next(_faults(problem, product, choice), None)


def groups_of(choice: Piped) -> int:
    """The warpgroups that multiply."""
    return 2 if choice.alternate else choice.tile[choice.across] // GROUP_ROWS


def blocks_of(choice: Piped) -> int:
    """How many times 64 rows of sums each of them holds."""
    return choice.tile[choice.across] // GROUP_ROWS if choice.alternate else 1


def slots_of(choice: Piped) -> int:
    """Of what each of their warps sends back: one where the other group multiplies meanwhile."""
    return 1 if choice.alternate else 2


def piped_bytes(product: MatrixProduct, choice: Piped) -> int:
    """The shared memory of a block."""
    rows, columns = choice.tile[choice.across], choice.tile[choice.along]
    back = GROUP_ROWS * groups_of(choice) * slots_of(choice) * row_bytes(product, columns) if product.boxed else 0
    brought = rows + columns * product.sums
    return choice.stages * (brought * DEPTH * product.dtype.size_bytes + WORD_BYTES) + back


def _faults(problem: Problem, product: MatrixProduct, choice: Piped) -> Iterator[str]:
    if (choice.across, choice.along) != (product.rows.index, product.columns.index):
        yield f"`across` and `along`: the rows and columns are {product.rows.index} and {product.columns.index}"
        return
    if choice.tile.keys() != {choice.across, choice.along}:
        yield "`tile` gives the rows and the columns of a tile"
        return
    rows, columns = choice.tile[choice.across], choice.tile[choice.along]
    if rows not in range(GROUP_ROWS, GROUP_ROWS * MOST_GROUPS + 1, GROUP_ROWS):
        yield f"`tile`: {GROUP_ROWS} or {MOST_GROUPS * GROUP_ROWS} rows"
    if choice.cluster not in CLUSTERS:
        yield "`cluster`: 1 or 2 blocks"
        return
    if columns not in range(PANEL // 2, MOST_COLUMNS // product.sums + 1, PANEL // 2):
        yield f"`tile`: multiples of {PANEL // 2} columns up to {MOST_COLUMNS // product.sums}"
    most = MOST_HELD // product.sums
    if blocks_of(choice) * columns > most:
        yield f"`tile`: {blocks_of(choice) * columns} columns of sums by each warpgroup, which holds {most}"
    if not 2 <= choice.stages <= MOST_STAGES or not 1 <= choice.band <= MOST_BAND:
        yield f"`stages` are 2 to {MOST_STAGES}, and `band` 1 to {MOST_BAND}"
        return
    if (
        choice.persistent < 1
        or choice.persistent % choice.cluster
        or choice.persistent > problem.target.multiprocessors
    ):
        most = problem.target.multiprocessors
        yield f"`persistent`: whole clusters, at most the {most} multiprocessors of the target"
    needed = piped_bytes(product, choice)
    if needed > problem.target.shared_bytes:
        yield f"its tiles need {needed} bytes of shared memory, and a block has {problem.target.shared_bytes}"
