"""Atoms: the instructions that operators are made of, as data.

    mma(F16, F32)      a warp, from sm_80 on: c[16, 8] += a[16, 16] * b[16, 8], a, b and c in registers
                       c: register x0 / 8 * 2 + x1 % 2, lane x0 % 8 * 4 + x1 / 2

An atom's operands are tiles, and a layout says of each where its elements lie or which thread of the unit holds them in
which register. So what every thread does follows from the layouts: the holder of an element of the result computes it
from the elements that the operator names (`Unload`: the same element; `Contract`: a row of a and a column of b; a tree
over lanes: its group). The simulator runs that. `wrapper` names the function of the device headers that does it, whose
host twin is of the same name; emission calls what is made of these. Loads and stores of a thread are no atoms
(`access.py`).

An atom is added by an entry here, its wrapper and the twin of that; `tests/atoms` holds it against NumPy, on the CPU
and on hardware.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import const
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8, DType
from texpr.polyhedral.layout.make import CHUNK_BYTES, SWIZZLES, fragment, repeated, row_major, swizzled, transposed
from texpr.polyhedral.layout.value import Layout, Term, Unit
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.monoids import Monoid
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.target import Target


class Team(StrEnum):
    """Which threads run an atom together. `Unit.LANE` counts the threads of the team."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """The architectures that have an instruction: from `least` on, or only those of that name with the suffix `a`."""

    least: int
    only: bool = False

    def has(self, target: Target) -> bool:
        """Whether the target's text may use it."""
        if not target.is_cuda:
            return False
        number = int(target.arch.removeprefix("sm_").rstrip("af"))
        return target.arch == f"sm_{self.least}a" if self.only else number >= self.least


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tile of an atom: where it is, how it lies there, and to what its first byte is aligned in a memory."""

    memory: Memory
    dtype: DType
    layout: Layout
    alignment_bytes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """The device function of an atom with its template arguments, and the header that has it."""

    header: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Atom:
    """One instruction, or one tree of them."""

    name: str
    team: Team
    arch: Arch
    operands: Mapping[str, Operand]
    wrapper: Wrapper
    completion: Completion = Completion.NOW

    @property
    def loads(self) -> bool:
        """Whether it brings what it moves to registers."""
        return self.operands["target"].memory is Memory.REG

    @property
    def held(self) -> Operand:
        """Of what it moves the side in registers."""
        return self.operands["target" if self.loads else "source"]


SM_80, SM_89, SM_90, SM_90A = Arch(least=80), Arch(least=89), Arch(least=90), Arch(least=90, only=True)


def _atom(name: str, team: Team, arch: Arch, wrapper: tuple[str, str], **operands: Operand) -> Atom:
    header, function = wrapper
    return Atom(
        name=name,
        team=team,
        arch=arch,
        operands=MappingProxyType(operands),
        wrapper=Wrapper(header=f"texpr/{header}.cuh", function=f"tx::{function}"),
    )


def _held(dtype: DType, layout: Layout) -> Operand:
    return Operand(memory=Memory.REG, dtype=dtype, layout=layout)


def _registers(count: int) -> Layout:
    """Elements one after another in the registers of one thread."""
    return Layout(shape=(const(count),), terms=(Term(dim=0, stride=const(1), unit=Unit.REGISTER),))


# ---- one thread --------------------------------------------------------------------------------------------------


def fma(dtype: DType) -> Atom:
    """c += a * b of single elements, one rounding."""
    one = _held(dtype, _registers(1))
    return _atom(f"fma {dtype}", Team.THREAD, SM_80, ("math", "fma"), a=one, b=one, c=one)


WARP_MATRICES = 4  # that one instruction moves
PRODUCT_BYTES = 32  # of each row of a, of one product
FACTORS = {F64: "f64", BF16: "bf16", F16: "f16", F32: "tf32", I8: "s8", U8: "u8", F8E4M3: "e4m3", F8E5M2: "e5m2"}
"""What the instructions call the types of factors."""
F8 = (F8E4M3, F8E5M2)
FRAGMENTS_OF = {
    F64: "mma1684", BF16: "mma16816", F16: "mma16816", F32: "mma1688", I8: "mma16832", U8: "mma16832",
    F8E4M3: "mma16832", F8E5M2: "mma16832",
}  # fmt: skip


def sums_of(dtype: DType) -> DType:
    """The type of sums of products of a type."""
    return I32 if dtype.is_integer else F64 if dtype == F64 else F32


def may_multiply(first: DType, second: DType) -> bool:
    """Whether instructions multiply elements of these types: of one, or of both kinds of f8."""
    return first == second or (first in F8 and second in F8)


def warps_multiply(dtype: DType, target: Target) -> bool:
    """Whether single warps of a target multiply factors of a type."""
    return dtype in FRAGMENTS_OF and _arch_of(dtype).has(target)


def _arch_of(dtype: DType) -> Arch:
    """The architectures whose warps multiply factors of a type."""
    return SM_89 if dtype in F8 else SM_80


def lies_along_k(dtype: DType) -> bool:
    """Whether factors of a type are contiguous along what is summed, and no other way."""
    return dtype.bits not in (16, 64)


# ---- a warp ------------------------------------------------------------------------------------------------------


def tree(monoid: Monoid, dtype: DType, lanes: int, target: Target, *, scan: bool = False) -> Atom:
    """Groups of neighbouring lanes combine one partial each; all lanes of a group get the result. Of a scan, each lane
    gets that of the lanes up to its own."""
    groups = target.warp_size // lanes
    if lanes < 2 or groups * lanes != target.warp_size or lanes & (lanes - 1):
        raise InternalError(f"no group is of {lanes} lanes")
    group, lane = Term(dim=0, stride=const(lanes), unit=Unit.LANE), Term(dim=1, stride=const(1), unit=Unit.LANE)
    each = Layout(shape=(const(groups), const(lanes)), terms=(group, lane))
    whole = Layout(shape=(const(groups),), terms=(group, lane), copies=(lanes,))
    function = "scan_lanes" if scan else "reduce_lanes"
    return _atom(
        f"{function} {monoid.name} {dtype} of {lanes}",
        Team.WARP,
        SM_80,
        ("lanes", f"{function}<tx::{monoid.name}<tx::{dtype}>, {lanes}>"),
        source=_held(dtype, each),
        target=_held(dtype, each if scan else whole),
    )


def mma(dtype: DType, sums: DType, other: DType | None = None) -> Atom:
    """c[16, 8] += a[16, k] * b[k, 8] on tensor cores, 32 bytes of k: f16, bf16, f8 or, cut to tf32, f32 into f32, f16
    into f16, i8 or u8 into i32; f64 into f64, each product added by one fused multiply-add, those of the least k first.
    b of an `other` type: both kinds of f8 multiply one another."""
    of_b = other or dtype
    if dtype not in FRAGMENTS_OF or (sums != sums_of(dtype) and not dtype == sums == F16):
        raise InternalError(f"no product of {dtype} with sums of {sums}")
    if not may_multiply(dtype, of_b):
        raise InternalError(f"no mma multiplies {dtype} and {of_b}")
    a, b, c = (fragment(FRAGMENTS_OF[dtype], role) for role in "abc")
    name = f"mma.m16n8k{PRODUCT_BYTES // dtype.size_bytes} {_kinds(dtype, of_b)} {sums}"
    held = {"a": _held(dtype, a), "b": _held(of_b, b), "c": _held(sums, c)}
    return _atom(name, Team.WARP, _arch_of(dtype), ("mma", "mma"), **held)


def _kinds(dtype: DType, other: DType) -> str:
    """What instructions call the types of both factors."""
    return FACTORS[dtype] if other == dtype else f"{FACTORS[dtype]} {FACTORS[other]}"


def load_matrices(dtype: DType, count: int, *, transposed: bool = False) -> Atom:
    """1, 2 or 4 matrices of 8 x 8 elements of 16 bits from shared memory; each row of 16 bytes lies anywhere."""
    tile, held = _matrices(dtype, count, transposed)
    name, wrapper = f"ldmatrix.x{count}{'.trans' * transposed}", f"load_matrices<{str(transposed).lower()}>"
    return _atom(f"{name} {dtype}", Team.WARP, SM_80, ("mma", wrapper), source=tile, target=held)


def store_matrices(dtype: DType, count: int, *, transposed: bool = False) -> Atom:
    """The same from registers into shared memory."""
    tile, held = _matrices(dtype, count, transposed)
    name, wrapper = f"stmatrix.x{count}{'.trans' * transposed}", f"store_matrices<{str(transposed).lower()}>"
    return _atom(f"{name} {dtype}", Team.WARP, SM_90, ("mma", wrapper), source=held, target=tile)


def store_pairs(dtype: DType) -> Atom:
    """What each lane has of 4 matrices of 8 x 8 elements goes to shared memory, two neighbours at a time."""
    if dtype.bits not in (16, 32, 64):
        raise InternalError(f"no pairs are of {dtype}")
    rows = Operand(
        memory=Memory.SHARED, dtype=dtype, layout=row_major((WARP_MATRICES * 8, 8)), alignment_bytes=CHUNK_BYTES
    )
    held = _held(dtype, fragment("ldmatrix", f"x{WARP_MATRICES}"))
    return _atom(f"pairs {dtype}", Team.WARP, SM_80, ("contract", "store_pairs"), source=held, target=rows)


def store_rows(dtype: DType) -> Atom:
    """The way of a warp's sums to shared memory, rounded to a type."""
    return store_matrices(dtype, WARP_MATRICES) if dtype.bits == 16 else store_pairs(dtype)


def store_columns(dtype: DType) -> Atom:
    """The same of 16 bits, columns of sums as rows."""
    return store_matrices(dtype, WARP_MATRICES, transposed=True)


def lies_apart(row_bytes: int) -> bool:
    """Whether of eight rows of so many bytes, one after another and under no swizzle, no more than two begin in the
    same banks."""
    return row_bytes not in SWIZZLES and row_bytes % (4 * CHUNK_BYTES) != 0


def _matrices(dtype: DType, count: int, transposed: bool) -> tuple[Operand, Operand]:
    if count not in (1, 2, 4) or dtype.bits != 16:
        raise InternalError(f"no instruction moves {count} matrices of {dtype}")
    rows = row_major((8 * count, 8))
    held = fragment("ldmatrix", f"x{count}t" if transposed else f"x{count}")
    shared = Operand(memory=Memory.SHARED, dtype=dtype, layout=rows, alignment_bytes=CHUNK_BYTES)
    return shared, _held(dtype, held)


# ---- a warpgroup -------------------------------------------------------------------------------------------------

WGMMA_ROWS = 64  # of a, of one product
SWIZZLE_BYTES = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOperand:
    """An operand of products in shared memory: under which swizzle (16: none), and whether k is its contiguous
    dimension, tile[m or n][k], or the other one, tile[k][m or n]."""

    swizzle_bytes: int = 128
    k_contiguous: bool = True


def wgmma_tile(rows: int, columns: int, *, swizzle_bytes: int, element_bytes: int = 2) -> Layout:
    """A tile as wgmma reads it and TMA writes it: `swizzled`, or panels of 16 bytes without an XOR."""
    if swizzle_bytes != CHUNK_BYTES:
        return swizzled((rows, columns), element_bytes, swizzle_bytes)
    panel = CHUNK_BYTES // element_bytes
    terms = (
        Term(dim=0, stride=const(panel)),
        Term(dim=1, modulus=panel, stride=const(1)),
        Term(dim=1, divisor=panel, stride=const(panel * rows)),
    )
    return Layout(shape=(const(rows), const(columns)), terms=terms)


def has_columns(dtype: DType, columns: int) -> bool:
    """Whether a `wgmma` of factors of a type has so many columns."""
    return columns in range(8, 257, 8) and (not dtype.is_integer or columns in (8, 24) or columns % 16 == 0)


def wgmma(
    dtype: DType, columns: int, b: SharedOperand, a: SharedOperand | None = None, *, other: DType | None = None
) -> Atom:
    """c[64, columns] += a[64, k] * b[k, columns] on tensor cores, 32 bytes of k, over when its group is waited for. `a`
    None: from registers; b of an `other` type: both kinds of f8 multiply one another. The tiles in shared memory are
    parts of larger ones of the same swizzle."""
    of_b = other or dtype
    if dtype not in FACTORS or dtype == F64 or not has_columns(dtype, columns):
        raise InternalError(f"no wgmma of {dtype} has {columns} columns")
    if not may_multiply(dtype, of_b):
        raise InternalError(f"no wgmma multiplies {dtype} and {of_b}")
    held = {16: "a", 32: "a32"}.get(dtype.bits)
    if a is None and held is None:
        raise InternalError(f"wgmma takes {dtype} from shared memory")
    if lies_along_k(dtype) and not (b.k_contiguous and (a is None or a.k_contiguous)):
        raise InternalError(f"wgmma takes {dtype} from shared memory along k")
    atom = _atom(
        f"wgmma.m64n{columns}k{PRODUCT_BYTES // dtype.size_bytes} {_kinds(dtype, of_b)}",
        Team.WARPGROUP,
        SM_90A,
        ("wgmma", "wgmma"),
        a=_held(dtype, fragment("wgmma", held or "")) if a is None else _shared(dtype, WGMMA_ROWS, a),
        b=_shared(of_b, columns, b),
        c=_held(sums_of(dtype), wgmma_sums(WGMMA_ROWS, columns)),
    )
    return replace(atom, completion=Completion.WGMMA)


def wgmma_sums(rows: int, columns: int) -> Layout:
    """Sums of one or several `wgmma`s of 64 rows, one below the other, in the registers of a warpgroup."""
    return repeated(_blocks(rows // WGMMA_ROWS, columns // 8), fragment("wgmma", "c"))


def mma_blocks(dtype: DType, rows: int, columns: int, other: DType | None = None) -> Atom:
    """c[rows, columns] += a[rows, k] * b[k, columns] by a warp, 32 bytes of k: as many `mma`s as it takes."""
    if rows % 16 or columns % 16 or not rows or not columns:
        raise InternalError(f"no warp multiplies {rows} x {columns}")
    one = mma(dtype, sums_of(dtype), other)
    a, b = (one.operands[role].layout for role in "ab")
    return _atom(
        f"{one.name} of {rows} x {columns}",
        Team.WARP,
        one.arch,
        ("warp_contract", "contract"),
        a=_held(dtype, repeated(_blocks(rows // 16, 1), a)),
        b=_held(other or dtype, repeated(_blocks(1, columns // 8), b)),
        c=_held(sums_of(dtype), warp_sums(rows, columns)),
    )


def warp_sums(rows: int, columns: int) -> Layout:
    """Sums of `mma_blocks` in the registers of a warp: every product leaves them alike."""
    return repeated(_blocks(rows // 16, columns // 8), fragment("mma16816", "c"))


def load_blocks(dtype: DType, side: int, tile: SharedOperand, role: str) -> Atom:
    """An operand of `mma_blocks`, of so many rows (a) or columns (b), or of a warp's 16 rows of a from registers of
    `wgmma`, from a tile in shared memory, whose rows have as many bytes as its swizzle: `ldmatrix`es; of f64, and of
    f32 across k, a load of each element. Both lie here as the tile does: rows first, or those of k."""
    across = dtype == F32 and not tile.k_contiguous
    fits = side > 0 and side % 16 == 0 and (tile.k_contiguous or not lies_along_k(dtype) or (across and role == "a"))
    if not fits or tile.swizzle_bytes not in (64, 128) or role not in ("a", "b"):
        raise InternalError(f"no warp loads {side} of {role}")
    held = mma_blocks(dtype, side, side).operands[role]
    turned = tile.k_contiguous == (role == "b")
    return _atom(
        f"{'loads' if dtype == F64 or across else 'ldmatrix'} {dtype} of {side} {role}",
        Team.WARP,
        SM_80,
        ("warp_contract", f"load_{role}"),
        source=_shared(dtype, side, tile, _chunk_bytes(dtype)),
        target=replace(held, layout=transposed(held.layout)) if turned else held,
    )


def warp_tile(shape: Sequence[int], dtype: DType) -> Layout:
    """A tile as warps load it, under a swizzle of its rows of 64 or 128 bytes."""
    return swizzled(shape, dtype.size_bytes, shape[-1] * dtype.size_bytes, _chunk_bytes(dtype))


def _chunk_bytes(dtype: DType) -> int:
    """What stays whole in a tile that warps load: what `ldmatrix` reads, 8 of them at once; of f64 what 4 lanes read,
    4 rows of it at once."""
    return 2 * CHUNK_BYTES if dtype == F64 else CHUNK_BYTES


def panel_of(dtype: DType) -> int:
    """How many elements of a row of 128 bytes a tile in panels has."""
    return SWIZZLE_BYTES[-1] // dtype.size_bytes


def _blocks(rows: int, columns: int) -> Layout:
    """Blocks one after another, row by row, in registers."""
    terms = (Term(dim=0, stride=const(columns), unit=Unit.REGISTER), Term(dim=1, stride=const(1), unit=Unit.REGISTER))
    return Layout(shape=(const(rows), const(columns)), terms=terms)


def _shared(dtype: DType, outer: int, operand: SharedOperand, chunk_bytes: int = CHUNK_BYTES) -> Operand:
    if operand.swizzle_bytes not in SWIZZLE_BYTES:
        raise InternalError(f"no swizzle is of {operand.swizzle_bytes} bytes")
    panel, depth = operand.swizzle_bytes // dtype.size_bytes, PRODUCT_BYTES // dtype.size_bytes
    shape = (outer, depth) if operand.k_contiguous else (depth, outer)
    rows, columns = shape[0], -(-shape[1] // panel) * panel
    layout = wgmma_tile(rows, columns, swizzle_bytes=operand.swizzle_bytes, element_bytes=dtype.size_bytes)
    if chunk_bytes != CHUNK_BYTES:
        layout = swizzled((rows, columns), dtype.size_bytes, operand.swizzle_bytes, chunk_bytes)
    return Operand(memory=Memory.SHARED, dtype=dtype, layout=layout, alignment_bytes=8 * operand.swizzle_bytes)
