"""What layouts mean, term by term in plain integers, and random ones: what `polyhedral/layout` is compared with."""

from collections.abc import Iterator, Mapping
from itertools import product

from hypothesis import strategies as st

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import const
from texpr.grammar.index.value import index_value
from texpr.polyhedral.layout.value import Layout, Term, Unit, Xor

Place = tuple[tuple[Unit, int], ...]


def number(expr: IndexExpr, names: Mapping[str, int] | None = None) -> int:
    return int(index_value(expr, names or {}))


def elements_of(layout: Layout, names: Mapping[str, int] | None = None) -> Iterator[tuple[int, ...]]:
    yield from product(*(range(max(0, number(extent, names))) for extent in layout.shape))


def place_of(layout: Layout, point: tuple[int, ...], names: Mapping[str, int] | None = None) -> dict[Unit, int]:
    """The coordinates of one element, copies last in `point`, by the definition."""
    found = {Unit.ADDRESS: 0}
    for t in layout.terms:
        x = 0 if t.dim is None else point[t.dim]
        value = (x + number(t.offset, names)) // t.divisor
        if t.modulus is not None:
            value = value - value // t.modulus * t.modulus
        found[t.unit] = found.get(t.unit, 0) + value * number(t.stride, names)
    if layout.xor is not None:
        address, xor = found[Unit.ADDRESS], layout.xor
        for bit in range(xor.bits):
            if address >> (xor.base + xor.shift + bit) & 1:
                found[Unit.ADDRESS] ^= 1 << (xor.base + bit)
    return found


def places_of(layout: Layout, element: tuple[int, ...], names: Mapping[str, int] | None = None) -> set[Place]:
    """All places of an element; a coordinate of 0 is left out, so that units without terms are none."""
    copies = product(*(range(count) for count in layout.copies))
    return {tuple(sorted((u, v) for u, v in place_of(layout, element + c, names).items() if v)) for c in copies}


def everything(layout: Layout, names: Mapping[str, int] | None = None) -> dict[tuple[int, ...], set[Place]]:
    return {element: places_of(layout, element, names) for element in elements_of(layout, names)}


EXTENTS = st.sampled_from((0, 1, 2, 3, 5, 7, 8))


@st.composite
def layouts(draw: st.DrawFn, *, digits: bool = False, copies: bool = True, address: bool = False) -> Layout:
    """Any layout of few elements; with `digits`, one whose divisors are powers of two and whose offsets are 0, with
    `address`, one without other units."""
    shape = draw(st.lists(EXTENTS, max_size=3))
    copied = draw(st.lists(st.integers(1, 3), max_size=2)) if copies else []
    dims = len(shape) + len(copied)
    units = [Unit.ADDRESS] if address else [Unit.ADDRESS, Unit.ADDRESS, Unit.LANE, Unit.REGISTER]
    radices = st.sampled_from((1, 2, 4) if digits else (1, 2, 3, 4, 6))
    terms = []
    for _ in range(draw(st.integers(0, 5))):
        dim = draw(st.sampled_from((None, *range(dims))))
        term = Term(
            dim=dim,
            stride=const(draw(st.integers(0 if digits else -4, 20))),
            divisor=draw(radices),
            modulus=draw(st.one_of(st.none(), radices)),
            offset=const(0 if digits and dim is not None else draw(st.integers(0 if digits else -9, 9))),
            unit=draw(st.sampled_from(units)),
        )
        terms.append(term)
    xor = draw(st.sampled_from((None, None, Xor(bits=1, base=0, shift=1), Xor(bits=2, base=1, shift=3))))
    return Layout(shape=tuple(map(const, shape)), terms=tuple(terms), xor=xor, copies=tuple(copied))


@st.composite
def mixed_radix(draw: st.DrawFn) -> Layout:
    """A layout of digits that nest: dims of 1 to 3 digits, shuffled over units, strides with holes between them."""
    shape, parts = [], []
    for dim in range(draw(st.integers(0, 3))):
        divisor = 1
        radices = draw(st.lists(st.sampled_from((1, 2, 3, 5)), min_size=1, max_size=3))
        for k, radix in enumerate(radices):
            top = k + 1 == len(radices)
            parts.append((dim, divisor, None if top else radix, radix))
            divisor *= radix
        shape.append(draw(st.integers(max(1, divisor - 2), divisor)))
    reach = dict.fromkeys((Unit.ADDRESS, Unit.LANE, Unit.REGISTER), 1)
    terms = []
    for dim, divisor, modulus, radix in draw(st.permutations(parts)):
        unit = draw(st.sampled_from(tuple(reach)))
        stride = reach[unit] + draw(st.sampled_from((0, 0, 1, 3)))
        reach[unit] += stride * (radix - 1)
        terms.append(Term(dim=dim, divisor=divisor, modulus=modulus, stride=const(stride), unit=unit))
    xor = draw(st.sampled_from((None, Xor(bits=1, base=1, shift=2))))
    return Layout(shape=tuple(map(const, shape)), terms=tuple(terms), xor=xor)
