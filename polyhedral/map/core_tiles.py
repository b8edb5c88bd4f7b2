"""Tiles on a CPU: what is read across the innermost loop is brought to a square beside the core first.

    par M i, N j { Y[j, i] = X[i, j] }      tiles of 64 iterations of j, a core's, and of i, the innermost loop

    for i in 64: for j in 64 (vector): X_square[i, j] = X[i, j]      whole lines, each once
    for j in 64: for i in 64 (vector): Y[j, i] = X_square[i, j]

Read directly, the lines of a tile come again for each j; where rows are a power of two long they all fall into one set
of the nearest cache, which has room for a few of them.
"""

from dataclasses import replace

from texpr.grammar.ast import Bind, IndexVar, Par, Read
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.choose_cores import lines_touched, step
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.rows import Piece
from texpr.polyhedral.map.runs import through
from texpr.polyhedral.map.vectors import Element, Wide, sure_reads
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Digit, Memory
from texpr.polyhedral.mapped.tree import Fresh, Loop, Node


def read_across(problem: Problem, nest: Nest, second: str, vector: str) -> tuple[Wide, ...]:
    """The reads that go along the second index from one element to the next, and along the vector from line to line."""
    found = []
    for wide in sure_reads(problem, nest.body, second, nest.indices):
        access = problem.access(*wide.element)
        if step(problem, access, second) == 1 and lines_touched(problem, access, vector) >= 1:
            found.append(wide)
    return tuple(found)


def in_tiles(
    draft: Draft, nest: Nest, tile: Digit, piece: tuple[Par, Piece], side: tuple[Par, Piece], inside: Loop
) -> Loop:
    """The iterations of a core, which has a `side` of the second par's, in tiles of a `piece` of the vector's, too;
    `inside` is the innermost loop, over the piece."""
    (vector, rows), (second, columns) = piece, side
    nodes: list[Node] = [rows.start]
    squares: dict[Element, Element] = {}
    here = (IndexVar(name=rows.digit.name), IndexVar(name=columns.digit.name))
    for wide in read_across(draft.problem, nest, second.index, vector.index):
        span, (array, subscripts) = wide.first.span, wide.element
        layout = row_major((rows.digit.radix, columns.digit.radix))
        reason = f"lines of {array} that a tile reads across"
        square = draft.local(f"{array}_square", wide.dtype, Memory.REG, layout, reason, span=span)
        squares[wide.element] = square, here
        id = draft.names.fresh(f"{square}_load")
        value = Read(buffer=array, subscripts=subscripts, dtype=wide.dtype, span=span)
        load = Bind(id=id, buffer=square, subscripts=here, value=value, span=span)
        bring = _over(second, columns, (Generic(id=id, leaf=load, origin=Origin.COPY_IN),), vector=True)
        nodes += [Fresh(buffer=square), _over(vector, rows, (bring,))]
    nodes.append(_over(second, columns, through((inside,), squares)))
    return Loop(index=tile.name, extent=tile.radix, body=tuple(nodes), digit=tile, span=vector.span)


def _over(par: Par, piece: Piece, body: tuple[Node, ...], *, vector: bool = False) -> Loop:
    """The loop over a piece."""
    define = replace(piece.define, digits=(*piece.define.digits, piece.digit))
    return Loop(
        index=piece.digit.name,
        extent=piece.extent,
        body=(define, *body),
        digit=piece.digit,
        vector=vector,
        span=par.span,
    )
