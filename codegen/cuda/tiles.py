"""Products of tiles in CUDA, and the way of their sums back to shared memory: one call of contract.cuh each.

tx::Accumulator<64, 256> c;                                          what the threads of a warpgroup hold
const tx::MatrixTile<tx::bf16, tx::Major::kK, 128, 128> a_tile(a);   a tile as the tensor cores read it
tx::contract<64>(c, a_tile, ring.read() * 128 + 64 * g, 0, b_tile, ring.read() * 256, 0, k > 0);
tx::store_rows<tx::bf16, 64>(d, 1024 * w, c, 64 * q);

tx::WarpSums<64, 64, tx::f32> c;                                     the same of a warp, with tiles in slots
const tx::WarpTile<tx::f16, tx::Major::kK, 128, 64> a_tile(a);
tx::load_a(a_held, 1, a_tile, k % 3 * 128 + 64 * w, 0, 16);              16 of k of a warp's operand
tx::contract(c, a_held, 0, b_held, 0);
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.literals import storage_type
from texpr.grammar.ast import Always, Condition, Gather, IndexBinary, IndexExpr, IndexOp, IndexVar, Subscript
from texpr.grammar.attributes import WARP
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import ZERO, add, combine, const, constant_value
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.source import Span
from texpr.grammar.types import F32, I32
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.make import SWIZZLES, swizzled
from texpr.polyhedral.layout.normal import canonical, same
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.mapped.atoms import (
    PRODUCT_BYTES,
    SharedOperand,
    Team,
    lies_apart,
    load_blocks,
    mma_blocks,
    store_columns,
    store_pairs,
    store_rows,
    warp_sums,
    warp_tile,
    wgmma,
    wgmma_sums,
)
from texpr.polyhedral.mapped.operators import Contract, Unload
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.views import View

ROWS, WARP_ROWS = 64, 16  # of the sums that a warpgroup holds, and a warp of it
ROW_BYTES = (32, 64, 128)  # of a tile's row in shared memory, and of its swizzle


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
    rows, own = _extent(node, 0), "" if node.c.dtype == F32 else f", {storage_type(node.c.dtype)}"
    return f"tx::{'Accumulator' if rows == ROWS else 'RowBlocks'}<{rows}, {_extent(node, 1)}{own}>"


def product_columns(contracts: Iterable[Contract]) -> str:
    """What a text says before its headers of the numbers of columns that its warpgroups multiply: the instruction of
    each is much to read for a compiler. Empty where it has none."""
    numbers = sorted({_extent(node, 1) for node in contracts if node.atom.team is not Team.WARP})
    return f"#define TX_COLUMNS(n) ({' || '.join(f'n == {n}' for n in numbers)})" if numbers else ""


def held_type(buffer: MappedBuffer) -> str:
    """The type of sums that a warpgroup or a warp holds and no product makes, or of what rows of them become. Raises
    E0502 for registers that lie otherwise."""
    rows, columns = (constant_value(extent) or 0 for extent in (buffer.shape[0], buffer.shape[-1]))
    own = {F32: "", I32: ", tx::i32"}.get(buffer.dtype)
    if own is not None and columns in range(8, 257, 8) and same(buffer.layout, wgmma_sums(ROWS, columns)):
        return f"tx::Accumulator<{ROWS}, {columns}{own}>"
    whole = rows and columns and rows % WARP_ROWS == columns % WARP_ROWS == 0
    if own is not None and whole and same(buffer.layout, warp_sums(rows, columns)):
        return f"tx::WarpSums<{rows}, {columns}, {storage_type(buffer.dtype)}>"
    raise fail("E0502", f"{buffer.name}: a layout over the threads of a block is not emitted", buffer.span)


def operands_type(buffer: MappedBuffer, node: Contract, role: str) -> str:
    """The type of the operands that a warp holds, of several products: of those of a warpgroup its own rows."""
    slots = constant_value(buffer.shape[0])
    rows = _extent(node, "ab".index(role)) if node.atom.team is Team.WARP else WARP_ROWS
    return f"tx::WarpOperands<{storage_type(buffer.dtype)}, {rows // WARP_ROWS}, {slots}>"


def warp_tile_type(buffer: MappedBuffer, node: Unload, *, slots: int) -> str:
    """The type of a tile that warps load: in slots, [slot][m or n][k], or in panels, [slot][panel][k][m or n]; or the
    same in a pipe, whose slots (0) are its own. Raises E0502 for one that does not lie as it is read."""
    shape = _shape(buffer, node, slots=slots)
    bytes_ = shape[-1] * buffer.dtype.size_bytes
    if bytes_ not in SWIZZLES or not same(buffer.layout, warp_tile(shape, buffer.dtype)):
        raise _refused(node, f"{buffer.name} otherwise than under a swizzle of its rows")
    major = "kK" if len(shape) - slots == 2 else "kOuter"
    return f"tx::WarpTile<{storage_type(buffer.dtype)}, tx::Major::{major}, {shape[-2]}, {shape[-1]}>"


def tile_type(buffer: MappedBuffer, node: Contract) -> str:
    """The type of an operand in shared memory: [m or n][k], or in panels, [panel][k][m or n]. Raises E0502 for one that
    does not lie as it is read."""
    shape = _shape(buffer, node)
    row = shape[-1] * buffer.dtype.size_bytes
    if row not in ROW_BYTES:
        raise _refused(node, f"rows of {buffer.name} that have not {' or '.join(map(str, ROW_BYTES))} bytes")
    if not same(buffer.layout, swizzled(shape, buffer.dtype.size_bytes, row)):
        raise _refused(node, f"{buffer.name} otherwise than under a swizzle of {row} bytes")
    major = "kK" if len(shape) == 2 else "kOuter"
    return f"tx::MatrixTile<{storage_type(buffer.dtype)}, tx::Major::{major}, {shape[-2]}, {row}>"


def contract_call(node: Contract, names: TileNames, number: Number) -> str:
    """The call that starts a product, or makes it."""
    if node.atom.team is Team.WARP:
        return _warp_contract_call(node, names, number)
    m, n, k = (name for name, _ in node.over)
    held = names.buffer(node.a.buffer).memory is Memory.REG
    form = None if held else _operand(node.a, names, node)
    if node.atom != wgmma(node.a.dtype, _extent(node, 1), _operand(node.b, names, node), form, other=node.b.dtype):
        raise _refused(node, f"the instruction {node.atom.name} between such tiles")
    if _extent(node, 0) % ROWS:
        raise _refused(node, f"{_extent(node, 0)} rows")
    if [_steps(s, m, n) for s in node.c.subscripts] != [(1, 0), (0, 1)]:
        raise _refused(node, f"{node.c.buffer} at other places than its rows and columns")
    b = f"{names.tile(node.b.buffer)}, {_place(node.b, n, k, _extent(node, 1), names, node, number)}"
    if held:
        a = f"{names.sums(node.a.buffer)}, {number(_first_held(node, m, k)).text}"
    else:
        a = f"{names.tile(node.a.buffer)}, {_place(node.a, m, k, _extent(node, 0), names, node, number)}"
    condition = number(node.accumulate).text
    c, depth = names.sums(node.c.buffer), _extent(node, 2)
    return f"tx::contract<{depth}>({c}, {a}, {b}, {condition});"


def _first_held(node: Contract, row: str, deep: str) -> IndexExpr:
    """The slot of the first operand that a warpgroup holds, [slot][m][k]: all of a product one after another."""
    each, k = const(PRODUCT_BYTES // node.a.dtype.size_bytes), IndexVar(name=deep)
    first, own = _corner(node.a, node)[0], (IndexVar(name=row), combine(IndexOp.MOD, k, each))
    slot = node.a.subscripts[0]
    if (
        isinstance(slot, Gather)
        or linear(slot) != linear(add(first, combine(IndexOp.DIV, k, each)))
        or node.a.subscripts[1:] != own
    ):
        raise _refused(node, f"{node.a.buffer} at other places than its rows and columns")
    return first


def _operand(view: View, names: TileNames, node: Contract) -> SharedOperand:
    row = _shape(names.buffer(view.buffer), node)[-1] * view.dtype.size_bytes
    return SharedOperand(swizzle_bytes=row, k_contiguous=len(view.subscripts) == 2)


def _warp_contract_call(node: Contract, names: TileNames, number: Number) -> str:
    m, n, k = (name for name, _ in node.over)
    rows, columns, depth = (_extent(node, place) for place in range(3))
    if (
        node.atom != mma_blocks(node.a.dtype, rows, columns, node.b.dtype)
        or depth * node.a.dtype.size_bytes != PRODUCT_BYTES
    ):
        raise _refused(node, f"the instruction {node.atom.name}")
    if node.accumulate != Always(value=True):
        raise _refused(node, "sums that do not accumulate")
    own = (((0, 0), (1, 0), (0, 1)), ((0, 0), (0, 1), (1, 0)))
    if [_steps(s, m, n) for s in node.c.subscripts] != [(1, 0), (0, 1)] or any(
        tuple(_steps(s, side, k) for s in view.subscripts) != steps
        for view, side, steps in zip((node.a, node.b), (m, n), own, strict=True)
    ):
        raise _refused(node, "operands at other places than their rows and columns")
    a, b = (f"{names.sums(view.buffer)}, {number(_corner(view, node)[0]).text}" for view in (node.a, node.b))
    return f"tx::contract({names.sums(node.c.buffer)}, {a}, {b});"


def load_call(node: Unload, names: TileNames, number: Number) -> str:
    """The call that loads a warp's operands of products."""
    tile = names.buffer(node.source.buffer)
    slots = 0 if names.slot(tile.name, writes=False) is not None else 1
    along_k = len(tile.shape) - slots == 2
    side, deep = (name for name, _ in (node.over if along_k else reversed(node.over)))
    row_bytes = _shape(tile, node, slots=slots)[-1] * tile.dtype.size_bytes
    form = SharedOperand(swizzle_bytes=row_bytes, k_contiguous=along_k)
    held = [_steps(s, side, deep) for s in node.target.subscripts]
    role = {((0, 0), (1, 0), (0, 1)): "a", ((0, 0), (0, 1), (1, 0)): "b"}.get(tuple(held))  # type: ignore[arg-type]  # numbers
    extents = dict(node.over)
    if role is None or node.atom != load_blocks(tile.dtype, constant_value(extents[side]) or 0, form, role):
        raise _refused(node, f"the instruction {node.atom.name} from such a tile")
    slot = number(_corner(node.target, node)[0]).text
    where = _warp_place(node.source, side, deep, names, node, number)
    return f"tx::load_{role}({names.sums(node.target.buffer)}, {slot}, {names.tile(node.source.buffer)}, {where});"


def _warp_place(view: View, side: str, deep: str, names: TileNames, node: Unload, number: Number) -> str:
    """The row and the column that a load reads first, rows counted over all slots, and from which of k on."""
    turn, corner = names.slot(view.buffer, writes=False), _corner(view, node)
    slots = 0 if turn is not None else 1
    slot = number(corner[0]) if turn is None else turn
    shape = _shape(names.buffer(view.buffer), node, slots=slots)[slots:]
    if len(shape) == 2:
        if [_steps(s, side, deep) for s in view.subscripts] != [*[(0, 0)] * slots, (1, 0), (0, 1)]:
            raise _refused(node, f"{view.buffer} at other places than its rows and columns")
        row = ix.add(ix.mul(slot, ix.constant(shape[0])), number(corner[-2]))
        return f"{row.text}, 0, {number(corner[-1]).text}"
    panel, _, inside = view.subscripts[slots:]
    width, own = const(shape[2]), panel.left if isinstance(panel, IndexBinary) else ZERO
    whole = (panel, inside) == (combine(IndexOp.DIV, own, width), combine(IndexOp.MOD, own, width))
    if not whole or _steps(view.subscripts[-2], side, deep) != (0, 1) or linear(own).coefficient(side) != 1:
        raise _refused(node, f"{view.buffer} at other places than its panels")
    row = ix.mul(slot, ix.constant(shape[0] * shape[1]))
    column = number(linear(own).without(side).expression())
    return f"{row.text}, {column.text}, {number(corner[-2]).text}"


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
        first = Linear() if isinstance(panel, Gather) else linear(panel) - linear(combine(IndexOp.DIV, own, width))
        whole = inside == combine(IndexOp.MOD, own, width) and first.coefficient(side) == first.coefficient(k) == 0
    if not whole or deep != IndexVar(name=k):
        raise _refused(node, f"{view.buffer} at other places than its panels")
    row = ix.constant(0) if slot is None else ix.mul(slot, ix.constant(shape[0] * shape[1]))
    return f"{row.text}, {ix.mul(number(corner[0]), ix.constant(shape[2])).text}"


def unload_call(node: Unload, names: TileNames, corner: Corner, number: Number) -> str:
    """The call that stores a warp's rows of sums in a tile."""
    if node.target.dtype.bits == 16 and node.atom == store_columns(node.target.dtype):
        return _columns_call(node, names, corner, number)
    columns, dtype, of_warp = _extent(node, 1), node.target.dtype, is_of_warp(names.buffer(node.source.buffer))
    if dtype.bits not in (16, 32, 64) or node.atom != (store_pairs if of_warp else store_rows)(dtype):
        raise _refused(node, f"the instruction {node.atom.name}")
    bytes_ = columns * dtype.size_bytes
    wanted = ROW_BYTES[1:] if of_warp else ROW_BYTES if dtype.bits == 16 else ROW_BYTES[2:]
    odd = dtype.bits == 16 and not of_warp and lies_apart(bytes_)
    if odd and names.buffer(node.target.buffer).layout.xor is not None:
        raise _refused(node, f"{node.target.buffer} under a swizzle of no rows")
    if _extent(node, 0) != WARP_ROWS or (bytes_ not in wanted and not odd):
        raise _refused(node, f"other boxes than a warp's rows of {' or '.join(map(str, wanted))} bytes")
    row, column = (number(place).text for place in _corner(node.source, node))
    own, first = corner(replace(node.target, subscripts=_corner(node.target, node)), True)
    if of_warp:
        xor = names.buffer(node.target.buffer).layout.xor
        if xor is None or xor.bits != SWIZZLES[bytes_]:
            raise _refused(node, f"{node.target.buffer} otherwise than under a swizzle of its rows")
        what = f"store_pairs<{storage_type(dtype)}, {columns}>"
        return f"tx::{what}({own}, {first}, {names.sums(node.source.buffer)}, {row}, {column});"
    what = f"store_rows<{storage_type(dtype)}, {columns}>" if dtype.bits == 16 else f"store_pairs<{columns}>"
    sums = names.buffer(node.source.buffer)
    held = f"{names.sums(sums.name)}{_block(sums, _corner(node.source, node)[0], number)}"
    return f"tx::{what}({own}, {first}, {held}, {column});"


def _columns_call(node: Unload, names: TileNames, corner: Corner, number: Number) -> str:
    """The call that stores a warp's rows of sums in a tile whose rows are their columns."""
    tile, columns, dtype = names.buffer(node.target.buffer), _extent(node, 0), node.target.dtype
    row_bytes, xor = (constant_value(tile.shape[-1]) or 0) * dtype.size_bytes, tile.layout.xor
    if is_of_warp(names.buffer(node.source.buffer)) or _extent(node, 1) != WARP_ROWS or columns % WARP_ROWS:
        raise _refused(node, "other boxes than a warp's rows, 16 columns at a time")
    if row_bytes != ROW_BYTES[-1] or xor is None or xor.bits != SWIZZLES[row_bytes]:
        raise _refused(node, f"{tile.name} otherwise than under a swizzle of its rows, of {ROW_BYTES[-1]} bytes")
    column, row = (name for name, _ in node.over)
    if [_steps(s, row, column) for s in node.source.subscripts] != [(1, 0), (0, 1)]:
        raise _refused(node, f"{node.source.buffer} at other places than its rows and columns")
    at, first_column = _corner(node.source, node)
    *rows, place = _corner(node.target, node)
    own, first = corner(replace(node.target, subscripts=(*rows, ZERO)), True)
    held = f"{names.sums(node.source.buffer)}{_block(names.buffer(node.source.buffer), at, number)}"
    what = f"store_columns<{storage_type(dtype)}, {columns}>"
    return f"tx::{what}({own}, {first}, {number(place).text}, {held}, {number(first_column).text});"


def _block(sums: MappedBuffer, row: IndexExpr, number: Number) -> str:
    """Which 64 rows of sums a row is among, where there are more."""
    return "" if constant_value(sums.shape[0]) == ROWS else f".block[{number(_whole(row)).text}]"


def _whole(row: IndexExpr) -> IndexExpr:
    """The block of 64 rows that a row of sums is in, where the rest of it is a warp's."""
    return Linear({of: factor // ROWS for of, factor in linear(row).terms.items() if factor % ROWS == 0}).expression()


def tile_call(node: Contract | Unload, names: TileNames, corner: Corner, number: Number) -> str:
    """The call of an operator on tiles."""
    if isinstance(node, Contract):
        return contract_call(node, names, number)
    if node.atom.loads:
        return load_call(node, names, number)
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


def _shape(buffer: MappedBuffer, node: Contract | Unload, *, slots: int = 0) -> tuple[int, ...]:
    """The extents of a tile of so many dimensions of slots before its own."""
    shape = tuple(constant_value(size) or 0 for size in buffer.shape)
    if len(shape) - slots not in (2, 3) or not all(shape):
        raise _refused(node, f"{buffer.name}, which is no matrix of numbers")
    return shape


def _refused(node: Contract | Unload, what: str) -> TExprError:
    return fail("E0502", f"{node.id} takes {what}, which is not emitted for CUDA", node.span)
