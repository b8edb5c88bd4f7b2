"""Products of tiles in CUDA, and the way of their sums back to shared memory: one call of contract.cuh each.

tx::Accumulator<64, 256> c;                                          what the threads of a warpgroup hold
const tx::MatrixTile<tx::bf16, tx::Major::kK, 128, 128> a_tile(a);   a tile as the tensor cores read it
tx::contract<64>(c, a_tile, ring.read() * 128 + 64 * g, 0, b_tile, ring.read() * 256, 0, k > 0);
tx::store_rows<tx::bf16, 64>(d, 1024 * w, c, 64 * q);

tx::WarpSums<64, 64, tx::f32> c;                                     the same of a warp, with tiles in slots
const tx::WarpTile<tx::f16, tx::Major::kK, 128, 64> a_tile(a);
tx::contract<64>(c, a_tile, k % 3 * 128 + 64 * w, 0, b_tile, k % 3 * 128, 0, k > 0);
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.literals import storage_type
from texpr.grammar.ast import Condition, Gather, IndexBinary, IndexExpr, IndexOp, IndexVar, Subscript
from texpr.grammar.attributes import WARP
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import ZERO, combine, const, constant_value
from texpr.grammar.index.linear import linear
from texpr.grammar.source import Span
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.make import SWIZZLES, swizzled
from texpr.polyhedral.layout.normal import canonical, same
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.mapped.atoms import SharedOperand, Team, mma_tiles, store_pairs, store_rows, wgmma
from texpr.polyhedral.mapped.operators import Contract, Unload
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.views import View

ROWS, WARP_ROWS = 64, 16  # of the sums that a warpgroup holds, and a warp of it
ROW_BYTES = 128  # of a tile's row in shared memory, and of its swizzle


Number = Callable[[IndexExpr | Condition], ix.Term]
"""The term of an expression that the text uses."""


Corner = Callable[[View, bool], tuple[str, str]]
"""The accessor and the number of the first element of a tile that is read, or written (True)."""


class TileNames(Protocol):
    """The C++ names of sums and tiles, and where an element is."""

    def sums(self, buffer: str) -> str: ...
    def tile(self, buffer: str) -> str: ...
    def slot(self, buffer: str, *, writes: bool) -> ix.Term | None: ...
    def buffer(self, buffer: str) -> MappedBuffer: ...


def sums_type(node: Contract) -> str:
    """The type of what the threads of the team hold."""
    if node.atom.team is Team.WARP:
        return f"tx::WarpSums<{_extent(node, 0)}, {_extent(node, 1)}, {storage_type(node.c.dtype)}>"
    return f"tx::Accumulator<{ROWS}, {_extent(node, 1)}>"


def tile_type(buffer: MappedBuffer, node: Contract) -> str:
    """The type of an operand in shared memory: [m or n][k], or in panels, [panel][k][m or n]. Raises E0502 for one that
    does not lie as it is read."""
    shape = _shape(buffer, node)
    if node.atom.team is Team.WARP:
        return _warp_tile_type(buffer, shape, node)
    if shape[-1] * buffer.dtype.size_bytes != ROW_BYTES:
        raise _refused(node, f"rows of {buffer.name} that have not {ROW_BYTES} bytes")
    if not same(buffer.layout, swizzled(shape, buffer.dtype.size_bytes, ROW_BYTES)):
        raise _refused(node, f"{buffer.name} otherwise than under a swizzle of {ROW_BYTES} bytes")
    major = "kK" if len(shape) == 2 else "kOuter"
    return f"tx::MatrixTile<{storage_type(buffer.dtype)}, tx::Major::{major}, {shape[-2]}, {ROW_BYTES}>"


def contract_call(node: Contract, names: TileNames, number: Number) -> str:
    """The call that starts a product, or makes it."""
    if node.atom.team is Team.WARP:
        return _warp_contract_call(node, names, number)
    m, n, k = (name for name, _ in node.over)
    forms = [SharedOperand(k_contiguous=len(view.subscripts) == 2) for view in (node.a, node.b)]
    if node.atom != wgmma(node.a.dtype, _extent(node, 1), forms[1], forms[0]):
        raise _refused(node, f"the instruction {node.atom.name} between such tiles")
    if _extent(node, 0) != ROWS:
        raise _refused(node, f"{_extent(node, 0)} rows")
    if [_steps(s, m, n) for s in node.c.subscripts] != [(1, 0), (0, 1)]:
        raise _refused(node, f"{node.c.buffer} at other places than its rows and columns")
    own = ((node.a, m, _extent(node, 0)), (node.b, n, _extent(node, 1)))
    a, b = (f"{names.tile(view.buffer)}, {_place(view, side, k, n, names, node, number)}" for view, side, n in own)
    condition = number(node.accumulate).text
    c, depth = names.sums(node.c.buffer), _extent(node, 2)
    return f"tx::contract<{depth}>({c}, {a}, {b}, {condition});"


def _warp_tile_type(buffer: MappedBuffer, shape: tuple[int, ...], node: Contract) -> str:
    """Slots of tiles: [slot][m or n][k], or in panels, [slot][panel][k][m or n]."""
    bytes_ = shape[-1] * buffer.dtype.size_bytes
    if bytes_ not in SWIZZLES or not same(buffer.layout, swizzled(shape, buffer.dtype.size_bytes, bytes_)):
        raise _refused(node, f"{buffer.name} otherwise than under a swizzle of its rows")
    major = "kK" if len(shape) == 3 else "kOuter"
    return f"tx::WarpTile<{storage_type(buffer.dtype)}, tx::Major::{major}, {shape[-2]}, {shape[-1]}>"


def _warp_contract_call(node: Contract, names: TileNames, number: Number) -> str:
    m, n, k = (name for name, _ in node.over)
    rows, columns, depth = (_extent(node, number_) for number_ in range(3))
    views = ((node.a, m), (node.b, n))
    forms = [
        SharedOperand(swizzle_bytes=_row_bytes(names.buffer(view.buffer), node), k_contiguous=len(view.subscripts) == 3)
        for view, _ in views
    ]
    if node.atom != mma_tiles(node.a.dtype, rows, columns, forms[0], forms[1]):
        raise _refused(node, f"the instruction {node.atom.name} between such tiles")
    if [_steps(s, m, n) for s in node.c.subscripts] != [(1, 0), (0, 1)]:
        raise _refused(node, f"{node.c.buffer} at other places than its rows and columns")
    a, b = (f"{names.tile(view.buffer)}, {_warp_place(view, side, k, names, node, number)}" for view, side in views)
    condition = number(node.accumulate).text
    return f"tx::contract<{depth}>({names.sums(node.c.buffer)}, {a}, {b}, {condition});"


def _row_bytes(buffer: MappedBuffer, node: Contract) -> int:
    return _shape(buffer, node)[-1] * buffer.dtype.size_bytes


def _warp_place(view: View, side: str, k: str, names: TileNames, node: Contract, number: Number) -> str:
    """The row and the column that a product reads first, rows counted over all slots."""
    shape, corner = _shape(names.buffer(view.buffer), node), _corner(view, node)
    if len(shape) == 3:
        if [_steps(s, side, k) for s in view.subscripts] != [(0, 0), (1, 0), (0, 1)] or corner[2] != ZERO:
            raise _refused(node, f"{view.buffer} at other places than its rows and columns")
        return f"{ix.add(ix.mul(number(corner[0]), ix.constant(shape[1])), number(corner[1])).text}, 0"
    panel, deep, inside = view.subscripts[1:]
    width = const(shape[3])
    own = panel.left if isinstance(panel, IndexBinary) else ZERO
    whole = (panel, inside) == (combine(IndexOp.DIV, own, width), combine(IndexOp.MOD, own, width))
    if not whole or deep != IndexVar(name=k) or linear(own).coefficient(side) != 1:
        raise _refused(node, f"{view.buffer} at other places than its panels")
    row = ix.mul(number(corner[0]), ix.constant(shape[1] * shape[2]))
    return f"{row.text}, {number(linear(own).without(side).expression()).text}"


def _place(view: View, side: str, k: str, count: int, names: TileNames, node: Contract, number: Number) -> str:
    """The row and the column that a product reads first, rows counted over the slots of a pipe."""
    shape, corner = _shape(names.buffer(view.buffer), node), _corner(view, node)
    slot = names.slot(view.buffer, writes=False)
    if len(shape) == 2:
        if [_steps(s, side, k) for s in view.subscripts] != [(1, 0), (0, 1)] or corner[1] != ZERO:
            raise _refused(node, f"{view.buffer} at other places than its rows and columns")
        row = number(corner[0])
        return f"{(row if slot is None else ix.add(ix.mul(slot, ix.constant(shape[0])), row)).text}, 0"
    panel, deep, inside = view.subscripts
    width, own = const(shape[2]), IndexVar(name=side)
    if count <= shape[2]:
        whole = inside == own and _steps(panel, side, k) == (0, 0)
    else:
        whole = (panel, inside) == (combine(IndexOp.DIV, own, width), combine(IndexOp.MOD, own, width))
    if not whole or deep != IndexVar(name=k):
        raise _refused(node, f"{view.buffer} at other places than its panels")
    row = ix.constant(0) if slot is None else ix.mul(slot, ix.constant(shape[0] * shape[1]))
    return f"{row.text}, {ix.mul(number(corner[0]), ix.constant(shape[2])).text}"


def unload_call(node: Unload, names: TileNames, corner: Corner, number: Number) -> str:
    """The call that stores a warp's rows of sums in a tile."""
    columns, dtype, of_warp = _extent(node, 1), node.target.dtype, is_of_warp(names.buffer(node.source.buffer))
    if dtype.bits not in (16, 32) or node.atom != (store_pairs if of_warp else store_rows)(dtype):
        raise _refused(node, f"the instruction {node.atom.name}")
    bytes_ = columns * dtype.size_bytes
    if _extent(node, 0) != WARP_ROWS or bytes_ not in ((ROW_BYTES // 2, ROW_BYTES) if of_warp else (ROW_BYTES,)):
        raise _refused(node, "other boxes than a warp's rows of 128 bytes")
    row, column = (number(place).text for place in _corner(node.source, node))
    own, first = corner(replace(node.target, subscripts=_corner(node.target, node)), True)
    if of_warp:
        xor = names.buffer(node.target.buffer).layout.xor
        if xor is None or xor.bits != SWIZZLES[bytes_]:
            raise _refused(node, f"{node.target.buffer} otherwise than under a swizzle of its rows")
        what = f"store_pairs<{storage_type(dtype)}, {columns}>"
        return f"tx::{what}({own}, {first}, {names.sums(node.source.buffer)}, {row}, {column});"
    what = f"store_rows<{storage_type(dtype)}, {columns}>" if dtype.bits == 16 else f"store_pairs<{columns}>"
    return f"tx::{what}({own}, {first}, {names.sums(node.source.buffer)}, {column});"


def tile_call(node: Contract | Unload, names: TileNames, corner: Corner, number: Number) -> str:
    """The call of an operator on tiles."""
    if isinstance(node, Contract):
        return contract_call(node, names, number)
    return unload_call(node, names, corner, number)


def check_corner(layout: Layout, corner: View, span: Span) -> None:
    """E0502 unless a tile whose addresses are mixed begins at a multiple of what the mixing repeats after."""
    if layout.xor is None:
        return
    subscripts = [ZERO if isinstance(s, Gather) else s for s in corner.subscripts]
    form = linear(coordinate(canonical(layout), Unit.ADDRESS, subscripts))
    if any(factor % layout.xor.period for factor in form.terms.values()):
        raise fail("E0502", f"a tile of {corner.buffer} that begins inside its swizzle is not emitted", span)


def _corner(view: View, node: Contract | Unload) -> tuple[IndexExpr, ...]:
    """The subscripts of the element at 0 of all indices of an operator, none of which may be read from data."""
    corner = view.first(node.over).plain
    if corner is None:
        raise _refused(node, "subscripts that are read from data")
    return corner


def _steps(subscript: Subscript, row: str, column: str) -> tuple[int | None, int | None]:
    """By how much a subscript grows with a row and a column."""
    if isinstance(subscript, Gather):
        return None, None
    form = linear(subscript)
    return form.coefficient(row), form.coefficient(column)


def _extent(node: Contract | Unload, number: int) -> int:
    found = constant_value(node.over[number][1])
    if found is None:
        raise _refused(node, "an extent that is no number")
    return found


def is_of_warp(sums: MappedBuffer) -> bool:
    """Whether single warps hold sums, and not warpgroups."""
    return constant_value(extent(sums.layout, Unit.LANE)) == WARP


def _shape(buffer: MappedBuffer, node: Contract) -> tuple[int, ...]:
    shape, slots = tuple(constant_value(size) or 0 for size in buffer.shape), int(node.atom.team is Team.WARP)
    if len(shape) - slots not in (2, 3) or not all(shape):
        raise _refused(node, f"{buffer.name}, which is no matrix of numbers")
    return shape


def _refused(node: Contract | Unload, what: str) -> TExprError:
    return fail("E0502", f"{node.id} takes {what}, which is not emitted for CUDA", node.span)
