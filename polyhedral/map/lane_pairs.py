"""Which sums a lane holds of a warp's, by matrix instructions: pairs of a row, eight columns for four lanes.

    rows 0-7      row = 8 * half + lane / 4           lane 5, half 1, eight 3, one 0: row 9, column 26
    columns 0-7   column = 8 * eight + 2 * (lane % 4) + one

So `mma.sync` m16n8 and `wgmma` m64n8 lay them, each warp of a warpgroup 16 rows (PTX ISA, 9.7.14 and 9.7.15).
"""

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar
from texpr.grammar.index.expr import add, combine, const, multiply

EIGHT = 8  # rows, or columns, that the lanes of a warp hold together
PAIR = 2
_LANES = const(EIGHT // PAIR)  # of a row


def lane_row(lane: str, half: IndexExpr) -> IndexExpr:
    """The row of 16, of which a lane has one in either half."""
    return add(multiply(const(EIGHT), half), combine(IndexOp.DIV, IndexVar(name=lane), _LANES))


def lane_pair(lane: str) -> IndexExpr:
    """The first column of a lane's pair among eight."""
    return multiply(const(PAIR), combine(IndexOp.MOD, IndexVar(name=lane), _LANES))


def lane_column(lane: str, eight: IndexExpr, one: IndexExpr) -> IndexExpr:
    """The column of the first or second of a lane's pair."""
    return add(multiply(const(EIGHT), eight), add(lane_pair(lane), one))
