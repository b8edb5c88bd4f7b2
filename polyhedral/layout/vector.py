"""The vector width: how many elements that follow one another in a dimension lie one after another, aligned.

    vector_width(row_major((M, 64)), 1, 8)        8: every 8 columns from a multiple of 8 are at a multiple of 8
    vector_width(padded((128, 64), 4), 1, 8)      4: rows begin at multiples of 68
    vector_width(row_major((M, N)), 1, 8)         1, or 8 where `divides` knows that N % 8 == 0
    vector_width(swizzled tile of f16, 1, 8)      8: chunks of 16 bytes stay whole

Of an access, ask the composition of the layout with its subscripts, in the dimension that the vector runs over.
"""

from collections.abc import Callable

from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.linear import Linear, linear
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.value import Layout, Term, Unit

Divides = Callable[[Linear, int], bool]


def vector_width(layout: Layout, dim: int, most: int, divides: Divides = Linear.is_multiple) -> int:
    """The greatest power of two up to `most` such that every group of so many elements of the dimension, from a
    multiple of it on, lies at consecutive addresses from a multiple of it on, and with one holder. Address 0 is aligned
    to it, which is for the caller to see to. `divides(form, n)` says of what forms in sizes it is known."""
    form = canonical(layout)
    count = constant_value(form.shape[dim])
    width = 1
    while 2 * width <= most and (count is None or 2 * width <= count) and _aligned(form, dim, 2 * width, divides):
        width *= 2
    return width


def _aligned(layout: Layout, dim: int, width: int, divides: Divides) -> bool:
    if layout.xor is not None and layout.xor.base < width.bit_length() - 1:
        return False
    own = [t for t in layout.terms if t.dim == dim]
    lowest = [t for t in own if t.unit is Unit.ADDRESS and t.divisor == 1]
    if len(lowest) != 1 or constant_value(lowest[0].stride) != 1:
        return False
    for term in layout.terms:
        if term.dim == dim and not (
            divides(linear(term.offset), width) and (term.modulus or 0) * term.divisor % width == 0
        ):
            return False
        if term.dim == dim and term is not lowest[0] and term.divisor % width:
            return False
        if term.unit is Unit.ADDRESS and term is not lowest[0] and not _multiple(term, width, divides):
            return False
    return True


def _multiple(term: Term, width: int, divides: Divides) -> bool:
    """Whether all that a term adds is a multiple."""
    stride = linear(term.stride)
    if divides(stride, width):
        return True
    return term.dim is None and divides(linear(term.offset) * stride, width)
