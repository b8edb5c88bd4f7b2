"""Index expressions: constructors that fold, and what stands in an expression.

Everything here is pure and exact. What is built stays what the author wrote but for constants, the identities of 0
and 1, and sums that cancel: `ceildiv(64, 32)` is 2, `ceildiv(N, 32)` stays.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Node,
    Not,
    SizeVar,
    operands,
)
from texpr.grammar.index.operators import OPERATORS
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.walk import fold, walk

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

ZERO = IndexConst(value=0)
ONE = IndexConst(value=1)


def const(value: int) -> IndexConst:
    """The integer as an expression."""
    return IndexConst(value=value)


def constant_value(expression: IndexExpr) -> int | None:
    """The integer that a constant is, else None."""
    return expression.value if isinstance(expression, IndexConst) else None


def apply(op: IndexOp, left: int, right: int) -> int:
    """The value of an operator on integers; ZeroDivisionError for a divisor 0."""
    value: int = OPERATORS[op].value(left, right)
    return value


COMPARE: dict[CompareOp, Callable[[Any, Any], Any]] = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
"""The truth of a comparison, of integers or of arrays element by element."""


def combine(op: IndexOp, left: IndexExpr, right: IndexExpr, span: Span = NO_SPAN) -> IndexExpr:
    """`left op right`, folded where both are constants, by the identities of 0 and 1, and where a sum cancels."""
    a, b = constant_value(left), constant_value(right)
    row = OPERATORS[op]
    if a is not None and b is not None and not (row.divides and b <= 0):
        return IndexConst(value=apply(op, a, b), span=span)
    if a is not None and a == row.units[0]:
        return right
    if b is not None and b == row.units[1]:
        return left
    match op:
        case IndexOp.MUL if a == 0 or b == 0:
            return IndexConst(value=0, span=span)
        case IndexOp.MOD if b == 1:
            return IndexConst(value=0, span=span)
        case IndexOp.ADD if isinstance(left, IndexBinary) and left.op is IndexOp.SUB and same(left.right, right):
            return left.left
        case IndexOp.SUB if isinstance(left, IndexBinary) and left.op is IndexOp.ADD and same(left.right, right):
            return left.left
        case IndexOp.ADD | IndexOp.SUB if b is not None and isinstance(left, IndexBinary):
            shifted = _shift(left, b if op is IndexOp.ADD else -b, span)
            if shifted is not None:
                return shifted
        case _:
            pass
    if row.alone is not None and same(left, right):
        return left if row.alone == "self" else IndexConst(value=int(row.alone), span=span)
    return IndexBinary(op=op, left=left, right=right, span=span)


def same(left: IndexExpr, right: IndexExpr) -> bool:
    """Whether two expressions are written alike; `==` of trees recurses."""
    work = [(left, right)]
    while work:
        a, b = work.pop()
        if isinstance(a, IndexBinary) and isinstance(b, IndexBinary) and a is not b:
            if a.op is not b.op:
                return False
            work += ((a.left, b.left), (a.right, b.right))
        elif a is not b and a != b:
            return False
    return True


def _shift(expression: IndexBinary, amount: int, span: Span) -> IndexExpr | None:
    """`(x + c) + amount` as `x + (c + amount)`; None where the last operand is not a constant."""
    if expression.op not in (IndexOp.ADD, IndexOp.SUB) or not isinstance(expression.right, IndexConst):
        return None
    own = expression.right.value if expression.op is IndexOp.ADD else -expression.right.value
    total = own + amount
    if total == 0:
        return expression.left
    op = IndexOp.ADD if total > 0 else IndexOp.SUB
    return IndexBinary(op=op, left=expression.left, right=IndexConst(value=abs(total)), span=span)


def add(left: IndexExpr, right: IndexExpr, span: Span = NO_SPAN) -> IndexExpr:
    return combine(IndexOp.ADD, left, right, span)


def subtract(left: IndexExpr, right: IndexExpr, span: Span = NO_SPAN) -> IndexExpr:
    return combine(IndexOp.SUB, left, right, span)


def multiply(left: IndexExpr, right: IndexExpr, span: Span = NO_SPAN) -> IndexExpr:
    return combine(IndexOp.MUL, left, right, span)


def ceildiv(left: IndexExpr, right: int) -> IndexExpr:
    return combine(IndexOp.CEILDIV, left, const(right))


def minimum(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    return combine(IndexOp.MIN, left, right)


def at_least_zero(expression: IndexExpr) -> IndexExpr:
    """The extent with a negative value read as empty."""
    return expression if is_nonnegative(expression) else combine(IndexOp.MAX, ZERO, expression)


def product(parts: Iterable[IndexExpr]) -> IndexExpr:
    result: IndexExpr = ONE
    for part in parts:
        result = multiply(result, part)
    return result


def is_nonnegative(expression: IndexExpr) -> bool:
    """Whether the expression is plainly at least 0: sizes, indices, and what is built from them without minus."""

    def nonnegative(node: IndexExpr, parts: list[bool]) -> bool:
        match node:
            case IndexConst(value=value):
                return value >= 0
            case IndexBinary(op=op):
                return OPERATORS[op].nonnegative(parts)
            case _:
                return True

    return fold(expression, nonnegative)


def conjunction(parts: Sequence[Condition]) -> Condition:
    """All of the conditions as one; of none, what always holds."""
    match parts:
        case []:
            return Always(value=True)
        case [part]:
            return part
        case _:
            return And(parts=tuple(parts))


_OPPOSITE = {
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
    CompareOp.LT: CompareOp.GE,
    CompareOp.LE: CompareOp.GT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.GE: CompareOp.LT,
}


def negation(condition: Condition) -> Condition:
    """What holds where the condition does not."""
    match condition:
        case Compare(op=op):
            return replace(condition, op=_OPPOSITE[op])
        case Not(part=part):
            return part
        case _:
            return Not(part=condition)


def where_some(extents: Iterable[IndexExpr]) -> Condition | None:
    """Where each of the loops of these extents has an iteration; None where they surely have."""
    free = [extent for extent in extents if (constant_value(extent) or 0) <= 0]
    return conjunction([Compare(op=CompareOp.GT, left=extent, right=ZERO) for extent in free]) if free else None


def row_major(shape: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """Strides in elements of a dense tensor, last dimension fastest."""
    strides: list[IndexExpr] = []
    step: IndexExpr = ONE
    for extent in reversed(shape):
        strides.append(step)
        step = multiply(extent, step)
    return tuple(reversed(strides))


_LEAF = IndexConst | IndexVar | SizeVar  # made once: these are asked of every node
_NAMED = IndexVar | SizeVar


def leaves(tree: Node) -> Iterator[IndexConst | IndexVar | SizeVar]:
    """Constants, indices and sizes of an expression or a condition, from left to right."""
    return (node for node in walk(tree) if isinstance(node, _LEAF))


def index_size(expression: IndexExpr) -> int:
    """The number of nodes above the leaves."""
    if not isinstance(expression, IndexBinary):
        return 0
    return sum(1 for _ in leaves(expression)) - 1


def names(tree: Node) -> frozenset[str]:
    """Names of the indices and sizes in an expression, a condition, or any other tree."""
    found: set[str] = set()
    work: list[Node] = [tree]
    while work:
        node = work.pop()
        if isinstance(node, _NAMED):
            found.add(node.name)
        elif not isinstance(node, IndexConst):
            work += operands(node)
    return frozenset(found)


def index_names(expression: IndexExpr) -> frozenset[str]:
    """Names of the loop indices in an expression."""
    return frozenset(leaf.name for leaf in leaves(expression) if isinstance(leaf, IndexVar))


def size_names(expression: IndexExpr) -> tuple[str, ...]:
    """Names of the sizes in an expression in order of appearance."""
    if not isinstance(expression, IndexBinary):
        return (expression.name,) if isinstance(expression, SizeVar) else ()
    return tuple(dict.fromkeys(leaf.name for leaf in leaves(expression) if isinstance(leaf, SizeVar)))


Inexact = Callable[[IndexBinary, int, int], None]


def substitute(
    expression: IndexExpr, leaf: Callable[[IndexVar | SizeVar], IndexExpr | None], inexact: Inexact | None = None
) -> IndexExpr:
    """The expression with indices and sizes replaced where `leaf` gives something, folded on the way up.

    `inexact(node, left, right)` is called for each floor division of two constants that leaves a remainder.
    """

    def replaced(node: IndexExpr, parts: list[IndexExpr]) -> IndexExpr:
        if not isinstance(node, IndexBinary):
            return node if isinstance(node, IndexConst) else leaf(node) or node
        left, right = parts
        if inexact is not None and node.op is IndexOp.DIV:
            a, b = constant_value(left), constant_value(right)
            if a is not None and b is not None and b > 0 and a % b:
                inexact(node, a, b)
        return combine(node.op, left, right, node.span)

    return fold(expression, replaced)
