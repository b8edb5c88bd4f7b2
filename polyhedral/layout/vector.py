"""The vector width: how many neighbouring elements of an access lie one after another, aligned.

A[i, j] of row_major((M, 64)) along j            8 of at most 8: every 8 from a multiple of 8 are at a multiple of 8
A[i, j] of padded((128, 64), 4)                  4: rows begin at multiples of 68
A[i, j] of row_major((M, N))                     1, or 8 where N is known to be a multiple of 8
A[3, 8 * lane + v] of padded((128, 256), 8)      8 along v
A[i, j] of a swizzled tile of f16                8: chunks of 16 bytes stay whole
"""

from collections.abc import Mapping, Sequence
from math import gcd

from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.index.expr import names
from texpr.grammar.index.linear import NO_DIVISORS, Linear, linear, variable
from texpr.grammar.index.operators import IndexOp
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
    form, most = _unwound(linear(coordinate(layout, Unit.ADDRESS, subscripts)), index, most)
    if form.coefficient(index) != 1 or any(index in found for found in held):
        return 1
    if layout.xor is not None:
        most = min(most, 1 << layout.xor.base)
    rest, width = form.without(index), 1
    while 2 * width <= most and rest.is_multiple(2 * width, divisors):
        width *= 2
    return width


def _unwound(form: Linear, index: str, most: int) -> tuple[Linear, int]:
    """The form with `index % N` as what lies in one turn of N, and the greatest width up to `most` of which so many
    neighbours never lie in two turns: `index / N`, a name of its own, is one number for all of them."""
    for atom in form.operations():
        turn = atom.right.value
        if index in atom.names and atom.left == variable(IndexVar(name=index)) and turn is not None and turn > 0:
            turns = variable(IndexVar(name=f"{index} / {turn}"))
            found = variable(IndexVar(name=index)) - turns * turn if atom.op is IndexOp.MOD else turns
            if atom.op in (IndexOp.DIV, IndexOp.MOD):
                form, most = form.replaced(atom, found), gcd(most, turn)
    return form, most
