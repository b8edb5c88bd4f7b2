"""Arithmetic on core index expressions: folding, polynomials over the integers, substitution.

Everything here is pure and exact. `combine` folds constants and the identities of `+ - * / %`; a polynomial maps a
sorted product of atoms (indices, sizes, and quotients that stay whole) to its coefficient.

    polynomial((i + 1) * N - N)  ==  {(N, i): 1}
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from texpr.grammar.ast import CompareOp, IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.source import NO_SPAN, Span

Monomial = tuple[IndexExpr, ...]
Polynomial = dict[Monomial, int]

MAX_TERMS = 2000  # a product with more terms stays whole
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

ZERO = IndexConst(value=0)
ONE = IndexConst(value=1)


def apply(op: IndexOp, left: int, right: int) -> int:
    """The value of an operator on integers; ZeroDivisionError for a divisor 0."""
    match op:
        case IndexOp.ADD:
            return left + right
        case IndexOp.SUB:
            return left - right
        case IndexOp.MUL:
            return left * right
        case IndexOp.DIV:
            return left // right
        case IndexOp.MOD:
            return left % right
        case IndexOp.CEILDIV:
            return -(-left // right)
        case IndexOp.MIN:
            return min(left, right)
        case IndexOp.MAX:
            return max(left, right)
    assert_never(op)


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
    """`left op right`, folded where both are constants and by the identities of 0 and 1."""
    a = left.value if isinstance(left, IndexConst) else None
    b = right.value if isinstance(right, IndexConst) else None
    divides = op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV)
    if a is not None and b is not None and not (divides and b <= 0):
        return IndexConst(value=apply(op, a, b), span=span)
    match op:
        case IndexOp.ADD if a == 0:
            return right
        case IndexOp.ADD | IndexOp.SUB if b == 0:
            return left
        case IndexOp.MUL if a == 1:
            return right
        case IndexOp.MUL | IndexOp.DIV | IndexOp.CEILDIV if b == 1:
            return left
        case IndexOp.MUL if a == 0 or b == 0:
            return IndexConst(value=0, span=span)
        case IndexOp.MOD if b == 1:
            return IndexConst(value=0, span=span)
        case IndexOp.ADD | IndexOp.SUB if b is not None and isinstance(left, IndexBinary):
            shifted = _shift(left, b if op is IndexOp.ADD else -b, span)
            if shifted is not None:
                return shifted
    if op in (IndexOp.SUB, IndexOp.MIN, IndexOp.MAX) and left == right:
        return left if op is not IndexOp.SUB else IndexConst(value=0, span=span)
    return IndexBinary(op=op, left=left, right=right, span=span)


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


def row_major(shape: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """Strides in elements of a dense tensor, last dimension fastest."""
    strides: list[IndexExpr] = []
    step: IndexExpr = ONE
    for extent in reversed(shape):
        strides.append(step)
        step = multiply(extent, step)
    return tuple(reversed(strides))


def leaves(expression: IndexExpr) -> Iterator[IndexConst | IndexVar | SizeVar]:
    """Constants, indices and sizes of an expression, from left to right."""
    stack: list[IndexExpr] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, IndexBinary):
            stack += (node.right, node.left)
        else:
            yield node


def index_size(expression: IndexExpr) -> int:
    """The number of nodes above the leaves."""
    return sum(1 for _ in leaves(expression)) - 1


def names(expression: IndexExpr) -> frozenset[str]:
    """Names of the indices and sizes in an expression."""
    return frozenset(leaf.name for leaf in leaves(expression) if not isinstance(leaf, IndexConst))


def index_names(expression: IndexExpr) -> frozenset[str]:
    """Names of the loop indices in an expression."""
    return frozenset(leaf.name for leaf in leaves(expression) if isinstance(leaf, IndexVar))


def size_names(expression: IndexExpr) -> tuple[str, ...]:
    """Names of the sizes in an expression in order of appearance."""
    return tuple(dict.fromkeys(leaf.name for leaf in leaves(expression) if isinstance(leaf, SizeVar)))


Inexact = Callable[[IndexBinary, int, int], None]


def substitute(
    expression: IndexExpr, leaf: Callable[[IndexVar | SizeVar], IndexExpr | None], inexact: Inexact | None = None
) -> IndexExpr:
    """The expression with indices and sizes replaced where `leaf` gives something, folded on the way up.

    `inexact(node, left, right)` is called for each floor division of two constants that leaves a remainder.
    """
    match expression:
        case IndexConst():
            return expression
        case IndexVar() | SizeVar():
            replaced = leaf(expression)
            return expression if replaced is None else replaced
        case IndexBinary():
            left = substitute(expression.left, leaf, inexact)
            right = substitute(expression.right, leaf, inexact)
            if (
                inexact is not None
                and expression.op is IndexOp.DIV
                and isinstance(left, IndexConst)
                and isinstance(right, IndexConst)
                and right.value > 0
                and left.value % right.value
            ):
                inexact(expression, left.value, right.value)
            return combine(expression.op, left, right, expression.span)
    assert_never(expression)


# ---- polynomials -----------------------------------------------------------------------------------------------


def _atom_key(atom: IndexExpr) -> str:
    return write_index(atom)


def polynomial(expression: IndexExpr) -> Polynomial:
    """The expression as a polynomial; quotients, remainders, minima and maxima are atoms."""
    match expression:
        case IndexConst(value=value):
            return {(): value} if value else {}
        case IndexVar() | SizeVar():
            return {(expression,): 1}
        case IndexBinary(op=IndexOp.ADD):
            return _sum(polynomial(expression.left), polynomial(expression.right), 1)
        case IndexBinary(op=IndexOp.SUB):
            return _sum(polynomial(expression.left), polynomial(expression.right), -1)
        case IndexBinary(op=IndexOp.MUL):
            left, right = polynomial(expression.left), polynomial(expression.right)
            if len(left) * len(right) > MAX_TERMS:
                return {(expression,): 1}
            product: Polynomial = {}
            for first, a in left.items():
                for second, b in right.items():
                    key = tuple(sorted(first + second, key=_atom_key))
                    product[key] = product.get(key, 0) + a * b
            return {key: value for key, value in product.items() if value}
        case IndexBinary():
            return {(expression,): 1}
    assert_never(expression)


def _sum(left: Polynomial, right: Polynomial, sign: int) -> Polynomial:
    total = dict(left)
    for key, value in right.items():
        total[key] = total.get(key, 0) + sign * value
    return {key: value for key, value in total.items() if value}


def from_polynomial(terms: Polynomial) -> IndexExpr:
    """An expression for a polynomial: terms of high degree first, positive before negative, the constant last."""
    ordered = sorted(terms.items(), key=lambda item: (not item[0], item[1] < 0, -len(item[0]), str(item[0])))
    total: IndexExpr = ZERO
    for key, value in ordered:
        term: IndexExpr = ONE
        for atom in key:
            term = multiply(term, atom)
        if value < 0:
            total = subtract(total, multiply(term, IndexConst(value=-value)))
        else:
            total = add(total, multiply(term, IndexConst(value=value)))
    return total


def difference(left: IndexExpr, right: IndexExpr) -> int | None:
    """`left - right` where it is the same number for all sizes and indices, else None."""
    terms = _sum(polynomial(left), polynomial(right), -1)
    if not terms:
        return 0
    return terms[()] if set(terms) == {()} else None


_RANK = {
    IndexOp.ADD: 1,
    IndexOp.SUB: 1,
    IndexOp.MUL: 2,
    IndexOp.DIV: 2,
    IndexOp.MOD: 2,
}


def write_index(expression: IndexExpr, rank: int = 0) -> str:
    """The expression in the language's own words, with the brackets that it needs."""
    match expression:
        case IndexConst(value=value):
            return f"({value})" if value < 0 and rank else str(value)
        case IndexVar(name=name) | SizeVar(name=name):
            return name
        case IndexBinary(op=op) if op in _RANK:
            own = _RANK[op]
            text = f"{write_index(expression.left, own)} {op.value} {write_index(expression.right, own + 1)}"
            return f"({text})" if own < rank else text
        case IndexBinary(op=op):
            return f"{op.value}({write_index(expression.left)}, {write_index(expression.right)})"
    assert_never(expression)
