"""Where elements lie: a layout asked for index expressions, or for many elements at once.

offset(padded((128, 64), 8), (i, j))                  72 * i + j
owner(fragment("mma16816", "c"), (i, j))              {register: i / 8 * 2 + j % 2, lane: i % 8 * 4 + j / 2}
coordinates(layout, (rows, columns))[Unit.ADDRESS]    the addresses as an array
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar
from texpr.grammar.index.expr import ZERO, add, combine, const, multiply, subtract
from texpr.grammar.index.value import index_value
from texpr.polyhedral.layout.value import Layout, Term, Unit, Xor

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_SIZES: Mapping[str, int] = MappingProxyType({})


def variable(dim: int) -> IndexVar:
    """The index of a dimension by a name that no program has."""
    return IndexVar(name=f"#{dim}")


def term_value(term: Term, index: IndexExpr) -> IndexExpr:
    """What a term adds at an index of its dimension."""
    value = add(index, term.offset)
    if term.divisor != 1:
        value = combine(IndexOp.DIV, value, const(term.divisor))
    if term.modulus is not None:
        value = combine(IndexOp.MOD, value, const(term.modulus))
    return multiply(value, term.stride)


def coordinate(layout: Layout, unit: Unit, subscripts: Sequence[IndexExpr]) -> IndexExpr:
    """The coordinate of one element in a unit, the address before its XOR. Subscripts of copies come last."""
    total: IndexExpr = ZERO
    for term in layout.of(unit):
        total = add(total, term_value(term, ZERO if term.dim is None else subscripts[term.dim]))
    return total


def offset(layout: Layout, subscripts: Sequence[IndexExpr]) -> IndexExpr:
    """The address of one element, in elements."""
    address = coordinate(layout, Unit.ADDRESS, subscripts)
    return address if layout.xor is None else xored(layout.xor, address)


def xored(xor: Xor, address: IndexExpr) -> IndexExpr:
    """The XOR as a quasi-affine expression: a ^ b is (a + b) % 2 for bits."""
    total = address
    for place in range(xor.base, xor.base + xor.bits):
        own = combine(IndexOp.DIV, address, const(1 << place))
        other = combine(IndexOp.DIV, address, const(1 << (place + xor.shift)))
        mixed = combine(IndexOp.MOD, add(own, other), const(2))
        change = subtract(mixed, combine(IndexOp.MOD, own, const(2)))
        total = add(total, multiply(const(1 << place), change))
    return total


def owner(layout: Layout, subscripts: Sequence[IndexExpr]) -> dict[Unit, IndexExpr]:
    """All coordinates of one element but its address."""
    return {unit: coordinate(layout, unit, subscripts) for unit in layout.units if unit is not Unit.ADDRESS}


def coordinates(layout: Layout, points: Sequence[Any], sizes: Mapping[str, int] = NO_SIZES) -> dict[Unit, Any]:
    """All coordinates of many elements: one integer, array or `Points` of subscripts for each dimension, copies last,
    arrays of shapes that broadcast; one of that shape for each unit that has a term, and for the address always."""
    found: dict[Unit, Any] = {Unit.ADDRESS: 0}
    for term in layout.terms:
        value: Any = index_value(term.offset, sizes)
        if term.dim is not None:
            value = points[term.dim] + value if value else points[term.dim]
        if term.divisor != 1:
            value = value // term.divisor
        if term.modulus is not None:
            value = value % term.modulus
        found[term.unit] = found.get(term.unit, 0) + value * index_value(term.stride, sizes)
    if layout.xor is not None:
        found[Unit.ADDRESS] = layout.xor.apply(found[Unit.ADDRESS])
    return found


def every_place(layout: Layout, sizes: Mapping[str, int] = NO_SIZES) -> dict[Unit, "NDArray[Any]"]:
    """The coordinates of all elements of a layout, each an array of its extents (those of copies last)."""
    import numpy as np

    extents = [max(0, int(index_value(extent, sizes))) for extent in layout.extents]
    points = np.meshgrid(*map(np.arange, extents), indexing="ij", sparse=True) if extents else []
    return {u: np.broadcast_to(np.asarray(v), extents) for u, v in coordinates(layout, points, sizes).items()}
