"""The least and greatest value of an index expression over the ranges of its names: interval arithmetic, right but not
always tight, in integers where all ends are integers and in expressions of what stays fixed elsewhere.

    bounds(N - i - 1, {"i": (0, M)}) = (N - M - 1, N - 1)
"""

from collections.abc import Mapping

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    apply,
    combine,
    const,
    constant_value,
    is_nonnegative,
    multiply,
    subtract,
)
from texpr.grammar.index.operators import OPERATORS
from texpr.grammar.walk import fold

Ranges = Mapping[str, tuple[IndexExpr, IndexExpr]]
Ends = tuple[IndexExpr | None, IndexExpr | None]  # None where an end is not known


def bounds(expr: IndexExpr, ranges: Ranges) -> tuple[IndexExpr, IndexExpr] | None:
    """Least and greatest value when each name of `ranges` runs over its inclusive range; other names are fixed, and
    not negative. None where one of them is not found."""
    low, high = ends(expr, ranges)
    return None if low is None or high is None else (low, high)


def greatest(expr: IndexExpr, ranges: Ranges) -> IndexExpr | None:
    """The greatest value alone, which may be known where the least is not."""
    return ends(expr, ranges)[1]


def index_range(extent: IndexExpr, ranges: Ranges) -> tuple[IndexExpr, IndexExpr] | None:
    """0 to the greatest extent minus 1, with outer indices in their ranges; None where no bound is found."""
    found = bounds(extent, ranges)
    return None if found is None else (ZERO, subtract(found[1], ONE))


def most(extent: IndexExpr, ranges: Ranges) -> int | None:
    """A number that an extent does not exceed, at least 0; None where sizes leave it open."""

    def limit(node: IndexExpr, parts: list[int | None]) -> int | None:
        match node:
            case IndexBinary(op=IndexOp.MIN):
                return min((part for part in parts if part is not None), default=None)
            case IndexBinary(op=op, right=IndexConst(value=divisor)) if OPERATORS[op].rises == 0 and divisor > 0:
                return None if parts[0] is None else apply(op, parts[0], divisor)
            case _:
                return constant_value(node)

    found = greatest(extent, ranges)
    number = None if found is None else fold(found, limit)
    return None if number is None else max(0, number)


def least(extent: IndexExpr, ranges: Ranges) -> int:
    """A number below which an extent surely is not, at least 0."""
    low, _ = ends(extent, ranges)
    return max(0, (constant_value(low) or 0) if low is not None else 0)


def ends(expr: IndexExpr, ranges: Ranges) -> Ends:
    """Least and greatest value, each as far as it is known."""

    def of(node: IndexExpr, parts: list[Ends]) -> Ends:
        match node:
            case IndexBinary(op=op, left=left, right=right):
                a, b = _numbers(parts[0]), _numbers(parts[1])
                if a is not None and b is not None:
                    low, high = of_numbers(op, a, b)
                    return const(low), const(high)
                fixed = all(end is side for side, known in zip((left, right), parts, strict=True) for end in known)
                return (node, node) if fixed else _combined(op, parts[0], parts[1])
            case IndexConst():
                return node, node
            case _:
                return ranges.get(node.name, (node, node))

    return fold(expr, of)


def _combined(op: IndexOp, a: Ends, b: Ends) -> Ends:
    single = b[0] if b[0] == b[1] else None
    row = OPERATORS[op]
    if op is IndexOp.MUL:
        return _product(a, b)
    if op is IndexOp.MOD:
        return (ZERO, subtract(single, ONE)) if single is not None else (None, None)
    if row.rises is None:
        return None, None
    below, above = {1: b, -1: (b[1], b[0]), 0: (single, single)}[row.rises]
    low = (_either if row.chooses == "greatest" else _both)(op, a[0], below)
    high = (_either if row.chooses == "least" else _both)(op, a[1], above)
    return low, high


def _product(a: Ends, b: Ends) -> Ends:
    if isinstance(a[0], IndexConst) and a[0] == a[1]:
        a, b = b, a
    single = b[0] if b[0] == b[1] else None
    if isinstance(single, IndexConst) and single.value < 0:
        return _both(IndexOp.MUL, a[1], single), _both(IndexOp.MUL, a[0], single)
    if single is not None and is_nonnegative(single):
        return _both(IndexOp.MUL, a[0], single), _both(IndexOp.MUL, a[1], single)
    if a[0] is not None and b[0] is not None and is_nonnegative(a[0]) and is_nonnegative(b[0]):
        return multiply(a[0], b[0]), _both(IndexOp.MUL, a[1], b[1])
    return None, None


def _both(op: IndexOp, left: IndexExpr | None, right: IndexExpr | None) -> IndexExpr | None:
    return None if left is None or right is None else combine(op, left, right)


def _either(op: IndexOp, left: IndexExpr | None, right: IndexExpr | None) -> IndexExpr | None:
    """One side alone bounds a minimum from above and a maximum from below."""
    return left if right is None else right if left is None else combine(op, left, right)


def _numbers(known: Ends) -> tuple[int, int] | None:
    low, high = (None if end is None else constant_value(end) for end in known)
    return None if low is None or high is None else (low, high)


def of_numbers(op: IndexOp, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Least and greatest value of `x op y` for x in `a` and y in `b`; what is divided by 0 is 0."""
    row = OPERATORS[op]
    if row.range is not None:
        return row.range(a, b)
    if row.rises:
        below, above = b if row.rises > 0 else (b[1], b[0])
        return row.value(a[0], below), row.value(a[1], above)
    if row.divides and b[0] < 1:
        reach = max(abs(a[0]), abs(a[1]))
        return -reach, reach
    corners = [row.value(x, y) for x in a for y in b]
    return min(corners), max(corners)
