"""Index expressions as polynomials over the integers: a sorted product of atoms to its coefficient.

polynomial((i + 1) * N - N)  ==  {(N, i): 1}
"""

from typing import assert_never

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import ONE, ZERO, add, multiply, subtract
from texpr.grammar.index.text import write_index

Monomial = tuple[IndexExpr, ...]
Polynomial = dict[Monomial, int]

MAX_TERMS = 2000  # a product with more terms stays whole
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
