"""The least and greatest value of an index expression over the ranges of its names.

bounds(N - i - 1, {"i": (0, M)}) = (N - M - 1, N - 1)      None where none is found
"""

from collections.abc import Mapping
from typing import assert_never

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import ONE, ZERO, add, combine, constant_value, is_nonnegative, multiply, names, subtract

Ranges = Mapping[str, tuple[IndexExpr, IndexExpr]]


def bounds(expr: IndexExpr, ranges: Ranges) -> tuple[IndexExpr, IndexExpr] | None:
    """Least and greatest value when each name of `ranges` runs over its inclusive range; other names are fixed.

    Interval arithmetic: right but not always tight. None where a product of two expressions may be negative.
    """
    match expr:
        case IndexConst():
            return expr, expr
        case IndexVar(name=name) | SizeVar(name=name):
            return ranges.get(name, (expr, expr))
        case IndexBinary(op=op, left=left, right=right):
            if not names(expr) & ranges.keys():
                return expr, expr
            a, b = bounds(left, ranges), bounds(right, ranges)
            return None if a is None or b is None else _binary_bounds(op, a, b)
        case _:
            assert_never(expr)


def _binary_bounds(
    op: IndexOp, a: tuple[IndexExpr, IndexExpr], b: tuple[IndexExpr, IndexExpr]
) -> tuple[IndexExpr, IndexExpr] | None:
    match op:
        case IndexOp.ADD:
            return add(a[0], b[0]), add(a[1], b[1])
        case IndexOp.SUB:
            return subtract(a[0], b[1]), subtract(a[1], b[0])
        case IndexOp.MUL:
            if isinstance(a[0], IndexConst) and a[0] == a[1]:
                a, b = b, a
            if isinstance(b[0], IndexConst) and b[0] == b[1] and b[0].value < 0:
                return multiply(a[1], b[0]), multiply(a[0], b[0])
            if is_nonnegative(a[0]) and is_nonnegative(b[0]):
                return multiply(a[0], b[0]), multiply(a[1], b[1])
            return (multiply(a[0], b[0]), multiply(a[1], b[1])) if b[0] == b[1] and is_nonnegative(b[0]) else None
        case IndexOp.DIV | IndexOp.CEILDIV:
            return (combine(op, a[0], b[0]), combine(op, a[1], b[0])) if b[0] == b[1] else None
        case IndexOp.MOD:
            return (ZERO, subtract(b[0], ONE)) if b[0] == b[1] else None
        case IndexOp.MIN | IndexOp.MAX:
            return combine(op, a[0], b[0]), combine(op, a[1], b[1])
        case _:
            assert_never(op)


def index_range(extent: IndexExpr, ranges: Ranges) -> tuple[IndexExpr, IndexExpr] | None:
    """0 to the greatest extent minus 1, with outer indices in their ranges; None where no bound is found."""
    found = bounds(extent, ranges)
    return None if found is None else (ZERO, subtract(found[1], ONE))


def most(extent: IndexExpr, ranges: Ranges) -> int | None:
    """A number that an extent does not exceed, at least 0; None where sizes leave it open."""
    found = bounds(extent, ranges)
    return None if found is None else _at_most(found[1])


def _at_most(expr: IndexExpr) -> int | None:
    if isinstance(expr, IndexBinary) and expr.op is IndexOp.MIN:
        sides = [side for side in (_at_most(expr.left), _at_most(expr.right)) if side is not None]
        return min(sides, default=None)
    value = constant_value(expr)
    return None if value is None else max(0, value)
