"""Sums of a row, on a CPU: a `seq` around a contiguous loop adds to a tile on the core's stack, of f64 where they are
long, of the type that they are computed in where the row has a narrower one.

    seq K k { par N j { C[i, j] += A[i, k] * B[k, j] } }          K may be above 4096, or C is of bf16

    for j_tile: row[0 .. 1023] = C[i, 1024*j_tile + …]            f64; `partials` puts f32 partials around chunks of k
                for k: for j in the tile: row[j_vector] += A[i, k] * B[k, j]
                C[i, 1024*j_tile + …] = row[0 .. 1023]

Not done where the elements need not exist, or are touched by anything else in the `seq`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Const,
    Expr,
    Gather,
    If,
    IndexExpr,
    IndexVar,
    Intrinsic,
    Leaf,
    New,
    Par,
    Read,
    Seq,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import (
    ONE,
    at_least_zero,
    ceildiv,
    const,
    constant_value,
    minimum,
    names,
    subtract,
    where_some,
)
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.narrow_sums import is_narrow
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import map_statements
from texpr.polyhedral.walk import subscript_names, touched

TILE = 1024  # elements of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive iterations of a dimension: their digit, `start` defining the first index, the definition of
    the index, and how many there are."""

    digit: Digit
    start: Define
    define: Define
    extent: IndexExpr


def summed_rows(draft: Draft, par: Par, seq: Seq) -> tuple[Accumulate, ...]:
    """The long and the narrow updates of `seq` that a tile over `par` can carry; none where one cannot be."""
    inside = [s for s in statements((seq,)) if not isinstance(s, Bind)]
    updates = [s for s in inside if isinstance(s, Accumulate) and (s.id in draft.long or is_narrow(draft.problem, s))]
    loops = [s for s in inside if isinstance(s, Seq | Par)]
    moving = {loop.index for loop in loops}
    if any(isinstance(s, If | New | Intrinsic) for s in inside) or any(names(s.extent) & moving for s in loops):
        return ()
    buffers = [name for s in statements((seq,)) if isinstance(s, Leaf) for name, _ in touched(s)]
    for update in updates:
        used = subscript_names(update.subscripts)
        alone = buffers.count(update.buffer) == 1 and draft.buffers[update.buffer].memory is not Memory.REG
        if not alone or used & moving or par.index not in used or any(isinstance(s, Gather) for s in update.subscripts):
            return ()
        if shared_updates(draft.proved.program, update.id, (par.index,)):
            return ()
    return tuple(updates)


def tiles(draft: Draft, par: Par, length: int = TILE) -> tuple[Digit, Piece]:
    """The digit that counts the tiles of a dimension, and a tile."""
    fresh = draft.names.fresh
    radix = ceildiv(at_least_zero(par.extent), length)
    tile = Digit(
        name=fresh(f"{par.index}_tile"), index=par.index, weight=length, radix=radix, stride=ONE, place=Place.SERIAL
    )
    piece = piece_of(draft, par, (tile,), length)
    draft.digits += (tile, piece.digit)
    return tile, piece


def piece_of(draft: Draft, par: Par, above: tuple[Digit, ...], length: int) -> Piece:
    """The piece of at most `length` consecutive iterations that the digits above it choose."""
    name, first = draft.names.fresh(f"{par.index}_vector"), draft.names.fresh(f"{par.index}_first")
    known = constant_value(par.extent)
    alone = known is not None and known <= length
    return Piece(
        digit=Digit(name=name, index=par.index, weight=1, radix=const(length), stride=ONE, place=Place.VECTOR),
        start=Define(index=first, digits=above),
        define=Define(index=par.index, digits=above),
        extent=par.extent if alone else minimum(const(length), subtract(par.extent, IndexVar(name=first))),
    )


def over_piece(loop: Loop, piece: Piece) -> Loop:
    """The loop over the piece's dimension, over the piece alone."""
    define = replace(piece.define, digits=(*piece.define.digits, piece.digit))
    body = (define, *loop.body)
    own = replace(loop, index=piece.digit.name, extent=piece.extent, body=body, digit=piece.digit)
    return replace(own, parallel=False, unroll_by=None)


def carried_rows(
    draft: Draft,
    seq: Seq,
    updates: Sequence[Accumulate],
    body: tuple[Node, ...],
    piece: Piece,
    over: Callable[[Generic], Node],
    together: tuple[tuple[IndexExpr, IndexExpr], ...] = (),
) -> tuple[Node, ...]:
    """The loops of `seq` over a piece with its updates carried in rows; `over` is a statement at each index of it.
    `together`: there is a row for each index of another loop, which has this place among so many."""
    starts: list[Node] = []
    ends: list[Node] = []
    shape = (*(count for _, count in together), piece.digit.radix)
    here = (*(place for place, _ in together), IndexVar(name=piece.digit.name))
    for update in updates:
        buffer, span, wide = draft.buffers[update.buffer], update.span, update.value.dtype
        reason = f"carries a tile of {update.buffer} through a loop"
        layout = row_major(shape)
        name = draft.local(f"{update.buffer}_row", wide, Memory.REG, layout, reason, span=span)
        own = Read(buffer=name, subscripts=here, dtype=wide, span=span)
        there = Read(buffer=update.buffer, subscripts=update.subscripts, dtype=buffer.dtype, span=span)

        every = tuple(draft.names.fresh("row") for _ in shape)
        zero = Const(value=0.0, dtype=wide, span=span)
        made = partial(_made, draft, update)
        each = replace(own, subscripts=tuple(IndexVar(name=index) for index in every))
        node: Node = made("zero", each, zero, Origin.INIT)
        for index, extent in reversed(list(zip(every, shape, strict=True))):
            node = Loop(index=index, extent=extent, body=(node,), vector=index == every[-1], span=span)
        starts += [
            Fresh(buffer=name),
            node,
            over(made("in", own, as_type(there, wide), Origin.COPY_IN)),
        ]
        ends.append(over(made("out", there, as_type(own, buffer.dtype), Origin.COPY_OUT)))
        body = map_statements(
            body,
            partial(_moved, id=update.id, to=own),
        )
    nodes = (*starts, *body, *ends)
    some = where_some(s.extent for s in statements((seq,)) if isinstance(s, Seq | Par))
    return nodes if some is None else (Guard(condition=some, body=nodes, span=seq.span),)


def _made(draft: Draft, update: Accumulate, suffix: str, target: Read, value: Expr, origin: Origin) -> Generic:
    id = draft.names.fresh(f"{update.id}_{suffix}")
    leaf = Bind(id=id, buffer=target.buffer, subscripts=target.subscripts, value=value, span=update.span)
    return Generic(id=id, leaf=leaf, origin=origin)


def _moved(statement: Generic, *, id: str, to: Read) -> Generic:
    if statement.id != id or not isinstance(statement.leaf, Accumulate):
        return statement
    return replace(statement, leaf=replace(statement.leaf, buffer=to.buffer, subscripts=to.subscripts))
