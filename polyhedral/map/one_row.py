"""One row of a product of matrices: a parallel loop of one iteration that tensor cores have as a side.

    par 1 i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }      B in boxes of 64 columns, A one of 16 rows

What lies across the sum the copy engine brings without a register, and blocks of a cluster share what is summed: on an
H200 with cold caches 1 x 4096 x 4096 in bf16 runs at .93 of a sum that only reads B, at .89 where threads load rows of
B and blocks meet in memory. Where B lies along the sum, a block for each element has .92.
"""

from collections.abc import Iterator

from texpr.grammar.index.expr import ONE
from texpr.polyhedral.map.choose_piped import choose_piped
from texpr.polyhedral.map.matrix_product import matrix_product
from texpr.polyhedral.map.problem import Problem

BUSY = 4 / 3  # of the multiprocessors that have a block, at least


def rows_of_one(problem: Problem) -> Iterator[str]:
    """The loops of one iteration that are the rows of such products, and the columns of their tiles."""
    for region in problem.regions():
        product = matrix_product(problem, region)
        if product is None or product.rows.factor.side.extent != ONE or product.columns.k_contiguous:
            continue
        choice = choose_piped(problem, region)
        if choice is None or choice.along != product.rows.index:
            continue
        if BUSY * choice.persistent >= problem.target.multiprocessors:
            yield choice.along
