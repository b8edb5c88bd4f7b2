"""Who holds which element, from both sides.

    elements(fragment("mma16816", "c"))      x0 = lane / 4 + register / 2 * 8, x1 = lane % 4 * 2 + register % 2
    held((16, 8), {lane: 32, register: 4}, (lane / 4 + register / 2 * 8, lane % 4 * 2 + register % 2))
                                             the layout back: lane x0 % 8 * 4 + x1 / 2, register x0 / 8 * 2 + x1 % 2

A part of a holder's coordinate that the element does not depend on is a copy: `held` of a column vector over the lanes
of C gives one copy for each of the four lanes of a row.
"""

from collections.abc import Mapping, Sequence

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ZERO, add, combine, const, constant_value, multiply, subtract
from texpr.polyhedral.layout.digits import Digit, NotDigitsError, digits
from texpr.polyhedral.layout.nest import nest
from texpr.polyhedral.layout.place import xored
from texpr.polyhedral.layout.value import Layout, Term, Unit


def elements(layout: Layout, coordinates: Mapping[Unit, IndexExpr] | None = None) -> tuple[IndexExpr, ...]:
    """The element that the holder at these coordinates (by default an index for each unit, of the unit's name) has in
    each dimension. Says nothing for coordinates that hold no element. Raises NotDigitsError where the digits of the
    layout do not nest; then only comparing places tells who holds what."""
    found = nest(layout)
    if found is None:
        raise NotDigitsError("the digits of the layout do not nest, so the coordinates cannot be read back")
    given = coordinates if coordinates is not None else {u: IndexVar(name=u.value) for u in layout.units}
    values: dict[Term, IndexExpr] = {}
    for unit, ordered in found.units.items():
        at = xored(layout.xor, given[unit]) if layout.xor is not None and unit is Unit.ADDRESS else given[unit]
        values.update(_digits(subtract(at, found.constants[unit]), ordered))
    return tuple(_index(cover, values) for cover in found.dims)


def _digits(coordinate: IndexExpr, ordered: Sequence[Term]) -> dict[Term, IndexExpr]:
    """The value of each digit, from the greatest stride down: what is left below it is the remainder by it."""
    values: dict[Term, IndexExpr] = {}
    base, below = coordinate, None  # what is left is base % below
    for term in reversed(ordered):
        whole = combine(IndexOp.DIV, base, term.stride)
        step, limit = constant_value(term.stride), None if below is None else constant_value(below)
        if below is None:
            values[term] = whole
        elif step is not None and limit is not None and limit % step == 0:
            values[term] = combine(IndexOp.MOD, whole, const(limit // step))
        else:
            base = combine(IndexOp.MOD, base, below)
            values[term] = combine(IndexOp.DIV, base, term.stride)
        below = term.stride
    return values


def _index(cover: Sequence[Term], values: Mapping[Term, IndexExpr]) -> IndexExpr:
    total: IndexExpr = ZERO
    for term in reversed(cover):
        total = add(total, multiply(values[term], const(term.divisor)))
    if not cover or cover[0].offset == ZERO:
        return total
    total, top = subtract(total, cover[0].offset), cover[-1]
    if top.modulus is None:
        return total
    return combine(IndexOp.MOD, total, const(top.divisor * top.modulus))


def held(shape: Sequence[int], holders: Mapping[Unit, int], element: Sequence[IndexExpr]) -> Layout:
    """The layout of a tile of that shape of which the holder at `holders` (units with the number of their coordinates;
    an index of the unit's name each) has `element`. Raises NotDigitsError where that is no sum of digits that follow
    one another in each dimension, InternalError where a digit says two dimensions."""
    indices: dict[str, IndexExpr] = {unit.value: const(count) for unit, count in holders.items()}
    terms: list[Term] = []
    used: list[Digit] = []
    for dim, expression in enumerate(element):
        found = digits(expression, indices)
        if found.rest.terms:
            raise NotDigitsError(f"dimension {dim} does not begin at 0")
        for digit, weight in found.parts.items():
            values, step = _values(digit, holders), weight.value
            if step is None or step < 1 or digit.offset.terms or digit in used:
                raise InternalError(f"dimension {dim} of a fragment is no sum of digits of its own")
            used.append(digit)
            stride, unit = const(digit.divisor), Unit(digit.index)
            terms.append(Term(dim=dim, stride=stride, divisor=step, modulus=values, unit=unit))
        _follow([t for t in terms if t.dim == dim], shape[dim])
    copies: list[int] = []
    for unit, count in holders.items():
        for divisor, modulus in _unused([(d.divisor, _values(d, holders)) for d in used if d.index == unit], count):
            terms.append(Term(dim=len(shape) + len(copies), stride=const(divisor), unit=unit))
            copies.append(modulus)
    return Layout(shape=tuple(map(const, shape)), terms=tuple(terms), copies=tuple(copies))


def _values(digit: Digit, holders: Mapping[Unit, int]) -> int:
    count = -(-holders[Unit(digit.index)] // digit.divisor)
    return count if digit.modulus is None else min(digit.modulus, count)


def _follow(terms: Sequence[Term], extent: int) -> None:
    reached = 1
    for term in sorted(terms, key=lambda t: t.divisor):
        if term.divisor != reached:
            raise NotDigitsError(f"no holder has the elements {reached} to {term.divisor - 1} of a dimension")
        reached *= term.modulus or 1
    if reached < extent:
        raise NotDigitsError(f"no holder has the elements from {reached} on of a dimension of {extent}")


def _unused(used: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """What is left of a coordinate below `count` when some digits of it are taken: (divisor, values)."""
    found: list[tuple[int, int]] = []
    reached = 1
    for divisor, values in sorted(used):
        if divisor % reached:
            raise NotDigitsError(f"digits of a holder's coordinate overlap at {divisor}")
        if divisor > reached:
            found.append((reached, divisor // reached))
        reached = divisor * values
    if reached < count:
        found.append((reached, -(-count // reached)))
    return found
