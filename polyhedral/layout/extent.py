"""How much room a layout takes: the least and greatest coordinate in a unit, holes included.

extent(padded((128, 64), 8))                      127 * 72 + 64 = 9208 elements
extent(row_major((M, N)))                         M * N
extent(strided((M, N), (lda, 1)))                 (max(M, 1) - 1) * lda + max(N, 1)
extent(fragment("mma16816", "c"), Unit.LANE)      32
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from texpr.grammar.ast import IndexExpr, IndexOp
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    ceildiv,
    combine,
    const,
    constant_value,
    is_nonnegative,
    multiply,
    product,
    row_major,
    subtract,
)
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.normal import canonical, strides
from texpr.polyhedral.layout.value import Layout, Term, Unit

Ends = tuple[IndexExpr, IndexExpr]


def extent(layout: Layout, unit: Unit = Unit.ADDRESS) -> IndexExpr:
    """The number of coordinates from the least to the greatest one that an element has; 0 where there is no element.

    Exact for numbers whose digits divide one another, else no less. With sizes it is at least what the elements take;
    where one of them is 0 it may be more. Under an XOR the addresses take whole blocks of it.
    """
    if is_empty(layout):
        return ZERO
    if unit is Unit.ADDRESS and strides(layout) == row_major(layout.shape) and all(map(is_nonnegative, layout.shape)):
        return product(layout.shape)
    room = _room(layout, unit)
    if layout.xor is not None and unit is Unit.ADDRESS:
        room = multiply(ceildiv(room, layout.xor.block), const(layout.xor.block))
    return room


def extent_bytes(layout: Layout, element_bytes: int) -> IndexExpr:
    """The room of the addresses in bytes."""
    return multiply(extent(layout), const(element_bytes))


def is_empty(layout: Layout) -> bool:
    """Whether there is surely no element."""
    return any((count := constant_value(extent)) is not None and count <= 0 for extent in layout.shape)


def _room(layout: Layout, unit: Unit) -> IndexExpr:
    """As a polynomial without maxima where that is never negative: `M * N`, which is 0 for no rows."""
    plain = [_ends(layout, unit, guarded=guarded) for guarded in (False, True)]
    smooth, sure = (add(subtract(high, low), ONE) for low, high in plain)
    form = linear(smooth)
    return form.expression() if form.is_nonnegative() else sure


def ends(layout: Layout, unit: Unit = Unit.ADDRESS) -> Ends:
    """The least and the greatest coordinate (of addresses: before the XOR), an empty dimension taken as one element.

    A reversed array of N elements begins at -(N - 1) and ends at 0, when its address counts from the element 0.
    """
    return _ends(layout, unit, guarded=True)


def _ends(layout: Layout, unit: Unit, *, guarded: bool) -> Ends:
    form = canonical(layout)
    low: IndexExpr = ZERO
    high: IndexExpr = ZERO
    dims: dict[int | None, list[Term]] = defaultdict(list)
    for term in form.of(unit):
        dims[term.dim].append(term)
    for dim, terms in dims.items():
        count = ONE if dim is None else form.extents[dim]
        if guarded and constant_value(count) is None:
            count = combine(IndexOp.MAX, count, ONE)
        number = constant_value(count)
        exact = None if number is None else _exact(terms, number)
        for least, most in (_of_term(t, count) for t in terms) if exact is None else (exact,):
            low, high = add(low, least), add(high, most)
    return low, high


def _of_term(term: Term, count: IndexExpr) -> Ends:
    """The ends of one term over an index below `count`."""
    least, most = term.offset, add(term.offset, add(count, const(-1)))
    if term.divisor != 1:
        least, most = (combine(IndexOp.DIV, end, const(term.divisor)) for end in (least, most))
    if term.modulus is not None:
        first, last = constant_value(least), constant_value(most)
        if first is None or last is None or first // term.modulus != last // term.modulus:
            least, most = ZERO, const(term.modulus - 1)
        else:
            least, most = const(first % term.modulus), const(last % term.modulus)
    least, most = multiply(least, term.stride), multiply(most, term.stride)
    stride = constant_value(term.stride)
    if least == most or is_nonnegative(term.stride):
        return least, most
    if stride is not None:
        return most, least
    return combine(IndexOp.MIN, least, most), combine(IndexOp.MAX, least, most)


def _exact(terms: Sequence[Term], count: int) -> Ends | None:
    """The ends of the sum of one dimension's terms where they are digits over one another, without offsets.

    Every index below `count` is the last one, or agrees with it above some digit, is less there, and free below.
    """
    digits: list[tuple[int, int, int]] = []  # divisor, modulus, stride: those that no term names have stride 0
    reached = 1
    for term in sorted(terms, key=lambda t: t.divisor):
        stride = constant_value(term.stride)
        if stride is None or term.offset != ZERO or term.divisor % reached:
            return None
        modulus = max(count, 1) if term.modulus is None else term.modulus
        digits += ((reached, term.divisor // reached, 0), (term.divisor, modulus, stride))
        reached = term.divisor * modulus
    found = list(_corners((*digits, (reached, max(count, 1), 0)), count - 1))
    return const(min(low for low, _ in found)), const(max(high for _, high in found))


def _corners(digits: Sequence[tuple[int, int, int]], last: int) -> Iterator[tuple[int, int]]:
    above = 0
    for number in reversed(range(len(digits))):
        divisor, modulus, stride = digits[number]
        own = last // divisor % modulus
        if own:
            free = [*((below - 1) * step for _, below, step in digits[:number]), (own - 1) * stride]
            yield above + sum(min(0, reach) for reach in free), above + sum(max(0, reach) for reach in free)
        above += own * stride
    yield above, above
