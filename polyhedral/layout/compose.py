"""Layouts of what is seen through subscripts: views, tiles, divisions, patterns of access.

    compose(padded((128, 64), 8), {i: 64, j: 128}, (j, i))     address x0 + x1 * 72: the transposed view
    tile(row_major((M, N)), (i0, j0), (16, 8))                 address x0 * N + x1 + (i0 * N + j0)
    divide(row_major((128, 64)), (16, 8))                      address x0 * 1024 + x1 * 8 + x2 * 64 + x3, 4 dims

The address of what a warp touches is a composition too: subscripts in the lane and the element of its vector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import IndexExpr
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, const, multiply
from texpr.polyhedral.layout.digits import digits
from texpr.polyhedral.layout.place import term_value, variable
from texpr.polyhedral.layout.value import Layout, Term


def compose(layout: Layout, indices: Mapping[str, IndexExpr], subscripts: Sequence[IndexExpr]) -> Layout:
    """The layout of the view whose element (indices) is the layout's at (subscripts). `indices` maps the view's
    dimensions, in order, to their extents; copies, where the layout has any, come last in both. Raises
    NotDigitsError for subscripts that cut across the terms, as `i + j` under a remainder does."""
    if len(subscripts) != len(layout.extents):
        raise InternalError(f"{len(subscripts)} subscripts for {len(layout.extents)} dimensions")
    numbers = {name: dim for dim, name in enumerate(indices)}
    terms: list[Term] = []
    for term in layout.terms:
        found = digits(term_value(term, ZERO if term.dim is None else subscripts[term.dim]), indices)
        for digit, coefficient in found.parts.items():
            terms.append(
                Term(
                    dim=numbers[digit.index],
                    stride=coefficient.expression(),
                    divisor=digit.divisor,
                    modulus=digit.modulus,
                    offset=digit.offset.expression(),
                    unit=term.unit,
                )
            )
        if found.rest.terms:
            terms.append(Term(dim=None, stride=ONE, offset=found.rest.expression(), unit=term.unit))
    extents = tuple(indices.values())
    shape = extents[: len(extents) - len(layout.copies)]
    return replace(layout, shape=shape, terms=tuple(terms))


def tile(layout: Layout, origin: Sequence[IndexExpr], shape: Sequence[IndexExpr]) -> Layout:
    """The part of a layout that begins at an element; exact for every layout and origin."""
    moved = tuple(
        replace(t, offset=add(origin[t.dim], t.offset)) if t.dim is not None and t.dim < layout.rank else t
        for t in layout.terms
    )
    return replace(layout, shape=tuple(shape), terms=moved)


def divide(layout: Layout, shape: Sequence[int]) -> Layout:
    """The layout in tiles of a shape: twice the dimensions, the tile's number and then the element in it. The last tile
    of an extent that the shape does not divide has elements that the tensor has not. Raises NotDigitsError where a tile
    cuts across a term, as tiles of 12 columns do under a swizzle's panels of 64."""
    rank = layout.rank
    counts = [ceildiv(extent, step) for extent, step in zip(layout.shape, shape, strict=True)]
    extents = (*counts, *map(const, shape), *map(const, layout.copies))
    indices = {variable(dim).name: extent for dim, extent in enumerate(extents)}
    inside = [add(multiply(variable(dim), const(step)), variable(rank + dim)) for dim, step in enumerate(shape)]
    copies = [variable(2 * rank + number) for number in range(len(layout.copies))]
    return compose(layout, indices, (*inside, *copies))
