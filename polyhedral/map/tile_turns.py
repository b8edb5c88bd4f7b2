"""How many turns blocks take that stay for several tiles: of a triangle they pass over the tiles that it does not meet.

8192 x 8192, j < i + 1, clusters of 256 x 256, 66 of them      of 16 turns at most 9 have a tile in bands of 16,
                                                               10 in bands of 8, 11 in bands of 4
"""

from typing import TYPE_CHECKING

from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.index.expr import add, const
from texpr.grammar.index.value import condition_value
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.triangle import meets

if TYPE_CHECKING:
    import numpy as np
else:
    from texpr.grammar.numpy_later import np

MOST_TILES = 1 << 20  # that are looked at one by one; of more, half have a turn
BANDS = (16, 8, 4)


def most_turns(problem: Problem, product: MatrixProduct, high: int, wide: int, at_once: int, band: int) -> int:
    """The turns with a tile, of the cluster of blocks that has the most: `at_once` of them, in bands of so many, each
    of whose tiles are so `high` and `wide` together."""
    rows, columns, _ = product.sizes(problem)
    down, across, domain = -(-rows // high), -(-columns // wide), product.domain
    if domain is None:
        return -(-down * across // at_once)
    if down * across > MOST_TILES:
        return -(-down * across // (2 * at_once))
    number = np.arange(down * across)
    bands, inside = np.divmod(number, band * across)
    height = np.minimum(down - band * bands, band)
    first = {
        product.rows.index: high * (band * bands + inside % height),
        product.columns.index: wide * (inside // height),
    }

    def ends(index: str, count: int) -> tuple[IndexExpr, IndexExpr]:
        return IndexVar(name=index), add(IndexVar(name=index), const(count - 1))

    ranges = {index: ends(index, count) for index, count in zip(first, (high, wide), strict=True)}
    some = meets(domain, ranges)
    assert some is not None, "the ends of a tile tell it"
    others = dict.fromkeys((par.index for par in product.others), 0)
    there = condition_value(some, {**problem.sizes, **others, **first})
    return int(np.bincount(number % at_once, weights=np.broadcast_to(there, number.shape)).max())


def best_band(problem: Problem, product: MatrixProduct, high: int, wide: int, at_once: int, usual: int) -> int:
    """The clusters of a band: the usual number, or those with which a triangle takes the fewest turns."""
    if product.domain is None:
        return usual
    return min((usual, *BANDS), key=lambda band: most_turns(problem, product, high, wide, at_once, band))
