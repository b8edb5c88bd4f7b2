"""The greatest value of an address where indices lie between two ends.

503*(f / 509) + k      0 <= f <= 127, 64 <= k <= 191      503*(127 / 509) + 191
"""

from collections.abc import Mapping

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import combine, const, substitute
from texpr.grammar.index.linear import Linear, Operation, atom_names, linear

Ends = Mapping[str, tuple[IndexExpr, IndexExpr]]
"""The least and the greatest value of indices, by name."""


def greatest(address: Linear, ends: Ends) -> IndexExpr | None:
    """The greatest value, or a greater one; None where it goes up with an index at one place and down at another."""
    for operation in address.operations():
        if operation.names.isdisjoint(ends):
            continue
        most = _most(operation, ends)
        if most is None or any(c < 0 for monomial, c in address.terms.items() if operation in monomial):
            return None
        address = address.replaced(operation, linear(most))
    places: dict[str, IndexExpr] = {}
    for index, (first, last) in ends.items():
        signs = {c > 0 for monomial, c in address.terms.items() if any(index in atom_names(a) for a in monomial)}
        if len(signs) > 1:
            return None
        places[index] = last if signs == {True} else first

    def put(name: IndexVar | SizeVar) -> IndexExpr | None:
        return places.get(name.name)

    return substitute(address.expression(), put)


def _most(operation: Operation, ends: Ends) -> IndexExpr | None:
    """The greatest value of a floor or a remainder by a number."""
    by = operation.right.value
    if by is None or by < 1:
        return None
    if operation.op is IndexOp.MOD:
        return const(by - 1)
    above = greatest(operation.left, ends)
    return combine(IndexOp.DIV, above, const(by)) if operation.op is IndexOp.DIV and above is not None else None
