"""The slack of a condition: a number that is positive exactly where the condition holds.

    1 <= h + r and h + r <= H      min(h + r, H - (h + r) + 1)

So a condition is one bound among others, which an access asks without a branch.
"""

from functools import reduce
from typing import assert_never

from texpr.grammar.ast import Always, And, Compare, CompareOp, Condition, IndexExpr, IndexOp, Not, Or
from texpr.grammar.index.expr import ONE, ZERO, add, combine, minimum, subtract


def slack(condition: Condition) -> IndexExpr:
    """The number."""
    match condition:
        case Compare(op=op, left=left, right=right):
            return _of_compare(op, left, right)
        case And(parts=parts):
            return reduce(minimum, map(slack, parts)) if parts else ONE
        case Or(parts=parts):
            return reduce(_maximum, map(slack, parts)) if parts else ZERO
        case Not(part=part):
            return subtract(ONE, slack(part))
        case Always(value=value):
            return ONE if value else ZERO
        case _:
            assert_never(condition)


def _of_compare(op: CompareOp, left: IndexExpr, right: IndexExpr) -> IndexExpr:
    match op:
        case CompareOp.LT:
            return subtract(right, left)
        case CompareOp.LE:
            return add(subtract(right, left), ONE)
        case CompareOp.GT:
            return subtract(left, right)
        case CompareOp.GE:
            return add(subtract(left, right), ONE)
        case CompareOp.EQ:
            return add(minimum(subtract(left, right), subtract(right, left)), ONE)
        case CompareOp.NE:
            return _maximum(subtract(left, right), subtract(right, left))
        case _:
            assert_never(op)


def _maximum(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    return combine(IndexOp.MAX, left, right)
