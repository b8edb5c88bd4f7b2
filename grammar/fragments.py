"""The closed table of fragment layouts: which element of a tile each lane holds in each register.

PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type": `mma16816.a`, `.b` and `.c` are the operands of
one 16x8x16 product over a warp; `mma1688` and `mma16832` those of elements of 32 and 8 bits, 1 and 4 to a word;
`mma1684` those of f64.
"Matrix load and store with ldmatrix, stmatrix": `ldmatrix.x1`, `.x2` and `.x4` are
one, two and four 8x8 matrices of 16-bit elements, one below the other; `.x1t` … are the transposed ones. "Register
fragments for wgmma.m64nNk16": `wgmma.a` is A where it comes from registers (`a32`: of elements of 32 bits), `wgmma.c`
every 8 columns of the accumulators; their lanes are the 128 threads of a warpgroup. Layouts are quasi-affine in (lane,
register), so a fragment is a bind through a relation like any other.
"""

from collections.abc import Callable

from texpr.grammar.ast import IndexConst, IndexExpr, IndexOp
from texpr.grammar.index.expr import add, combine, multiply
from texpr.grammar.records import dataclass

Place = Callable[[IndexExpr, IndexExpr], tuple[IndexExpr, IndexExpr]]
"""The element (row, column) that a lane holds in a register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A tile of `rows` x `columns` elements over `lanes` of `registers` elements each."""

    rows: int
    columns: int
    registers: int
    lanes: int = 32
    place: Place


def _div(e: IndexExpr, n: int) -> IndexExpr:
    return combine(IndexOp.DIV, e, IndexConst(value=n))


def _mod(e: IndexExpr, n: int) -> IndexExpr:
    return combine(IndexOp.MOD, e, IndexConst(value=n))


def _times(e: IndexExpr, n: int) -> IndexExpr:
    return multiply(e, IndexConst(value=n))


def _pair(lane: IndexExpr, register: IndexExpr) -> IndexExpr:
    """The column of a lane's two neighbouring elements: `lane % 4 * 2 + register % 2`."""
    return _in_word(lane, register, 2)


def _in_word(lane: IndexExpr, register: IndexExpr, each: int) -> IndexExpr:
    """The column of a lane's neighbouring elements, as many as a word has."""
    return add(_times(_mod(lane, 4), each), _mod(register, each))


def _a(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    return _rows_in_words(2)(lane, register)


def _rows_in_words(each: int) -> Place:
    """Rows 8 apart in neighbouring words, then columns 4 words apart."""

    def place(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        row = add(_div(lane, 4), _times(_mod(_div(register, each), 2), 8))
        return row, add(_in_word(lane, register, each), _times(_div(register, 2 * each), 4 * each))

    return place


def _columns_in_words(each: int) -> Place:
    """A column of each lane, rows of it 4 words apart."""

    def place(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        return add(_in_word(lane, register, each), _times(_div(register, each), 4 * each)), _div(lane, 4)

    return place


def _c(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    return add(_div(lane, 4), _times(_div(register, 2), 8)), _pair(lane, register)


def _transposed(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    """Of 8x8 matrices one below the other, `_c` with row and column of each matrix exchanged."""
    return add(_pair(lane, register), _times(_div(register, 2), 8)), _div(lane, 4)


def _of_warpgroup(place: Place) -> Place:
    """Each of its four warps has 16 rows, as in the fragment of one warp."""

    def warps(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        row, column = place(_mod(lane, 32), register)
        return add(row, _times(_div(lane, 32), 16)), column

    return warps


def _matrices(count: int, place: Place) -> Fragment:
    return Fragment(rows=8 * count, columns=8, registers=2 * count, place=place)


def _product(each: int) -> dict[str, Fragment]:
    """The operands of a product of a warp whose elements lie so many in a word."""
    return {
        "a": Fragment(rows=16, columns=8 * each, registers=4 * each, place=_rows_in_words(each)),
        "b": Fragment(rows=8 * each, columns=8, registers=2 * each, place=_columns_in_words(each)),
        "c": Fragment(rows=16, columns=8, registers=4, place=_c),
    }


FRAGMENTS: dict[str, dict[str, Fragment]] = {
    "mma1688": _product(1),
    "mma16832": _product(4),
    "mma1684": {
        "a": Fragment(rows=16, columns=4, registers=2, place=_rows_in_words(1)),
        "b": Fragment(rows=4, columns=8, registers=1, place=_columns_in_words(1)),
        "c": Fragment(rows=16, columns=8, registers=4, place=_c),
    },
    "mma16816": {
        "a": Fragment(rows=16, columns=16, registers=8, place=_a),
        "b": Fragment(rows=16, columns=8, registers=4, place=_transposed),
        "c": Fragment(rows=16, columns=8, registers=4, place=_c),
    },
    "ldmatrix": {f"x{count}": _matrices(count, _c) for count in (1, 2, 4)}
    | {f"x{count}t": _matrices(count, _transposed) for count in (1, 2, 4)},
    "wgmma": {
        "a": Fragment(rows=64, columns=16, registers=8, lanes=128, place=_of_warpgroup(_a)),
        "a32": Fragment(rows=64, columns=8, registers=4, lanes=128, place=_of_warpgroup(_rows_in_words(1))),
        "c": Fragment(rows=64, columns=8, registers=4, lanes=128, place=_of_warpgroup(_c)),
    },
}
