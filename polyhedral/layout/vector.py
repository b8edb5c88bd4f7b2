"""The vector width: how many neighbouring elements of an access lie one after another, aligned.

A[i, j] of row_major((M, 64)) along j            8 of at most 8: every 8 from a multiple of 8 are at a multiple of 8
A[i, j] of padded((128, 64), 4)                  4: rows begin at multiples of 68
A[i, j] of row_major((M, N))                     1, or 8 where N is known to be a multiple of 8
A[3, 8 * lane + v] of padded((128, 256), 8)      8 along v
A[i, j] of a swizzled tile of f16                8: chunks of 16 bytes stay whole
"""

from collections.abc import Mapping, Sequence

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import names
from texpr.grammar.index.linear import NO_DIVISORS, linear
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Layout, Unit


def vector_width(
    layout: Layout,
    subscripts: Sequence[IndexExpr],
    index: str,
    most: int,
    divisors: Mapping[str, int] = NO_DIVISORS,
) -> int:
    """The greatest power of two up to `most` such that the elements at so many neighbouring values of the index, from a
    multiple of it on, lie at consecutive addresses from a multiple of it on, and with one holder. Address 0 is aligned
    to it, which is for the caller to see to; `divisors` says by what sizes are divisible."""
    held = (names(subscripts[t.dim]) for t in layout.terms if t.dim is not None and t.unit is not Unit.ADDRESS)
    form = linear(coordinate(layout, Unit.ADDRESS, subscripts))
    if form.coefficient(index) != 1 or any(index in found for found in held):
        return 1
    if layout.xor is not None:
        most = min(most, 1 << layout.xor.base)
    rest, width = form.without(index), 1
    while 2 * width <= most and rest.is_multiple(2 * width, divisors):
        width *= 2
    return width
