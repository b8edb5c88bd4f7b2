"""Layouts that stand for something: rows, padding, swizzles of the hardware, fragments, stages, repetitions.

    row_major((4, 8))                      address x0 * 8 + x1
    padded((4, 8), 1)                      address x0 * 9 + x1
    swizzled((8, 64), 2, 128)              address x0 * 64 + x1, xor(bits 3, base 3, shift 3)
    staged(row_major((4, 8)), 3)           address x1 * 8 + x2, stage x0
    repeated(layout over (2, 4), tile)     the tile, once for each place of the layout

Shapes and strides are given as integers or expressions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.fragments import FRAGMENTS
from texpr.grammar.index.expr import add, combine, const, constant_value, multiply
from texpr.grammar.index.expr import row_major as row_major_strides
from texpr.polyhedral.layout.compose import compose
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.inverse import held
from texpr.polyhedral.layout.place import variable
from texpr.polyhedral.layout.value import Layout, Term, Unit, Xor

CHUNK_BYTES = 16  # what the hardware's swizzles move as a whole
SWIZZLES = {32: 1, 64: 2, 128: 3}  # bytes of a row: bits of the chunk's number that are mixed

Extents = Sequence[IndexExpr | int]


def expressions(values: Extents) -> tuple[IndexExpr, ...]:
    """Integers as constants."""
    return tuple(const(value) if isinstance(value, int) else value for value in values)


def strided(shape: Extents, strides: Extents, xor: Xor | None = None) -> Layout:
    """One stride for each dimension, which may be 0 (one element for all indices) or negative."""
    terms = tuple(Term(dim=dim, stride=stride) for dim, stride in enumerate(expressions(strides)))
    if len(terms) != len(shape):
        raise InternalError(f"{len(terms)} strides for {len(shape)} dimensions")
    return Layout(shape=expressions(shape), terms=terms, xor=xor)


def row_major(shape: Extents) -> Layout:
    """Dense, the last dimension fastest."""
    return strided(shape, row_major_strides(expressions(shape)))


def padded(shape: Extents, amount: IndexExpr | int) -> Layout:
    """Row-major with that many elements of nothing after each row."""
    extents = expressions(shape)
    if len(extents) < 2:
        return row_major(shape)
    pad = const(amount) if isinstance(amount, int) else amount
    return strided(shape, row_major_strides((*extents[:-1], add(extents[-1], pad))))


def reversed_dim(layout: Layout, dim: int) -> Layout:
    """The layout read backwards along a dimension: its element x is the old one's at extent - 1 - x."""
    indices = {variable(d).name: extent for d, extent in enumerate(layout.extents)}
    last = add(layout.shape[dim], const(-1))
    subscripts: list[IndexExpr] = [variable(d) for d in range(len(layout.extents))]
    subscripts[dim] = combine(IndexOp.SUB, last, subscripts[dim])
    return compose(layout, indices, subscripts)


def swizzled(shape: Sequence[int], element_bytes: int, swizzle_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Layout:
    """A tile as TMA writes and wgmma reads it under a swizzle of 32, 64 or 128 bytes: the columns in panels of that
    many bytes, each panel its rows one after another, and within them the number of the 16-byte chunk XORed with bits 7
    and up of the byte address (for 128 bytes: the row, mod 8). The tile lies at a multiple of `xor.period` elements.
    Threads that read single elements may have larger chunks.

        swizzled((128, 128), 2, 128)      address x0 * 64 + x1 / 64 * 8192 + x1 % 64, xor(bits 3, base 3, shift 3)
    """
    wider = (chunk_bytes // CHUNK_BYTES).bit_length() - 1
    bits, shift = SWIZZLES[swizzle_bytes] - wider, 3 - wider
    panel, chunk = swizzle_bytes // element_bytes, chunk_bytes // element_bytes
    if not shape or shape[-1] % panel or chunk * element_bytes != chunk_bytes or bits < 1:
        raise InternalError(
            f"rows of {shape[-1:]} elements of {element_bytes} bytes are no multiple of {swizzle_bytes}"
        )
    *rows, last = expressions((*shape[:-1], panel))
    strides = row_major_strides((*rows, last))
    terms = [Term(dim=dim, stride=stride) for dim, stride in enumerate(strides[:-1])]
    terms.append(Term(dim=len(rows), modulus=panel, stride=const(1)))
    terms.append(Term(dim=len(rows), divisor=panel, stride=multiply(strides[0], rows[0]) if rows else const(panel)))
    xor = Xor(bits=bits, base=chunk.bit_length() - 1, shift=shift)
    return Layout(shape=expressions(shape), terms=tuple(terms), xor=xor)


def fragment(instruction: str, operand: str) -> Layout:
    """Who holds what of an operand of an instruction, by the table on the grammar floor.

        fragment("mma16816", "c")      (16, 8): register x0 / 8 * 2 + x1 % 2, lane x0 % 8 * 4 + x1 / 2

    KeyError for what the table does not have.
    """
    found = FRAGMENTS[instruction][operand]
    lane, register = IndexVar(name=Unit.LANE.value), IndexVar(name=Unit.REGISTER.value)
    holders = {Unit.LANE: found.lanes, Unit.REGISTER: found.registers}
    return held((found.rows, found.columns), holders, found.place(lane, register))


def transposed(layout: Layout) -> Layout:
    """The layout of a matrix with rows and columns exchanged."""
    first, second = layout.shape
    terms = tuple(t if t.dim is None or t.dim > 1 else replace(t, dim=1 - t.dim) for t in layout.terms)
    return replace(layout, shape=(second, first), terms=terms)


def numbered(layout: Layout, count: int, unit: Unit) -> Layout:
    """So many of a tensor one after another in a unit, by a leading dimension."""
    room = extent(layout, unit)
    own = Term(dim=0, stride=room, unit=unit)
    return replace(layout, shape=(const(count), *layout.shape), terms=(own, *_behind(layout, 1)))


def staged(layout: Layout, stages: IndexExpr | int, unit: Unit = Unit.STAGE) -> Layout:
    """The tile of a pipeline: one dimension more in front, the slot; or the tiles of a cluster's blocks, by rank."""
    slot = Term(dim=0, stride=const(1), unit=unit)
    return replace(layout, shape=(*expressions((stages,)), *layout.shape), terms=(slot, *_behind(layout, 1)))


def copied(layout: Layout, counts: Extents) -> Layout:
    """Copies of a tensor one after another, by leading dimensions.

    copied(padded((4, 8), 1), (N,))      (N, 4, 8): address x0 * 35 + x1 * 9 + x2
    """
    if layout == row_major(layout.shape):
        return row_major((*counts, *layout.shape))
    room = extent(layout)
    _check_step(layout, Unit.ADDRESS, room)
    leading = strided(counts, row_major_strides((*expressions(counts), room))[:-1])
    terms = (*leading.terms, *_behind(layout, len(counts)))
    return replace(layout, shape=(*leading.shape, *layout.shape), terms=terms)


def _behind(layout: Layout, count: int) -> Iterator[Term]:
    """The terms of a layout that has so many dimensions more in front."""
    return (t if t.dim is None else replace(t, dim=t.dim + count) for t in layout.terms)


def folded(layout: Layout, unit: Unit, stride: IndexExpr) -> Layout:
    """A unit's coordinate as part of the address, one step of it `stride` elements: where stages lie one after another,
    or where a simulator keeps what all lanes hold. The step is whole periods of an XOR."""
    _check_step(layout, unit, stride)
    terms = tuple(
        replace(t, unit=Unit.ADDRESS, stride=multiply(t.stride, stride)) if t.unit is unit else t for t in layout.terms
    )
    return replace(layout, terms=terms)


def _check_step(layout: Layout, unit: Unit, stride: IndexExpr) -> None:
    """A step of an address under an XOR is whole periods of it, or it would mix other bits."""
    step = constant_value(stride)
    if layout.xor is not None and (step is None or step % layout.xor.period):
        raise InternalError(f"a step of the {unit} that is no multiple of {layout.xor.period} elements changes the XOR")


def repeated(outer: Layout, inner: Layout) -> Layout:
    """The inner layout once for each element of the outer one, whose coordinates count whole inner ones.

        repeated(Layout((4, 8), warp x0, register x1), fragment("mma16816", "c"))
        (64, 64): register x0 / 8 % 2 * 2 + x1 / 8 * 4 + x1 % 2, lane x0 % 8 * 4 + x1 / 2 % 4, warp x0 / 16

    The inner layout's shape is of numbers.
    """
    if outer.rank != inner.rank or outer.xor is not None or outer.copies:
        raise InternalError("what is repeated has the rank of the layout of its repetitions, which is without XOR")
    tile = [_whole(step) for step in inner.shape]
    shape = tuple(multiply(count, const(step)) for count, step in zip(outer.shape, tile, strict=True))
    indices = {variable(dim).name: size for dim, size in enumerate(shape)}
    copies = {variable(outer.rank + c).name: const(count) for c, count in enumerate(inner.copies)}
    low = [combine(IndexOp.MOD, variable(dim), const(step)) for dim, step in enumerate(tile)]
    high = [combine(IndexOp.DIV, variable(dim), const(step)) for dim, step in enumerate(tile)]
    inside = compose(inner, indices | copies, (*low, *(variable(outer.rank + c) for c in range(len(copies)))))
    scales = {unit: extent(inner, unit) for unit in inner.units}
    _check_step(inner, Unit.ADDRESS, scales.get(Unit.ADDRESS, const(0)) if Unit.ADDRESS in outer.units else const(0))
    around = tuple(
        replace(term, stride=multiply(term.stride, scales.get(term.unit, const(1))))
        for term in compose(outer, indices, high).terms
    )
    return replace(inside, terms=(*inside.terms, *around))


def _whole(extent: IndexExpr) -> int:
    number = constant_value(extent)
    if number is None or number < 1:
        raise InternalError("what is repeated has a shape of positive numbers")
    return number
