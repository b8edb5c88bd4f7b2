"""The closed table of fragment layouts: which element of a tile each lane holds in each register.

PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type": `mma16816.a`, `.b` and `.c` are the operands of
one 16x8x16 product over a warp. Layouts are quasi-affine in (lane, register), so a fragment is a bind through a
relation like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass

from texpr.grammar.ast import IndexConst, IndexExpr, IndexOp
from texpr.grammar.index.expr import add, combine, multiply


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A tile of `rows` x `columns` elements over `lanes` of `registers` elements each."""

    rows: int
    columns: int
    registers: int
    lanes: int = 32
    place: Callable[[IndexExpr, IndexExpr], tuple[IndexExpr, IndexExpr]]


def _div(e: IndexExpr, n: int) -> IndexExpr:
    return combine(IndexOp.DIV, e, IndexConst(value=n))


def _mod(e: IndexExpr, n: int) -> IndexExpr:
    return combine(IndexOp.MOD, e, IndexConst(value=n))


def _times(e: IndexExpr, n: int) -> IndexExpr:
    return multiply(e, IndexConst(value=n))


def _pair(lane: IndexExpr, register: IndexExpr) -> IndexExpr:
    """The column of a lane's two neighbouring elements: `lane % 4 * 2 + register % 2`."""
    return add(_times(_mod(lane, 4), 2), _mod(register, 2))


def _a(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    row = add(_div(lane, 4), _times(_mod(_div(register, 2), 2), 8))
    return row, add(_pair(lane, register), _times(_div(register, 4), 8))


def _b(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    return add(_pair(lane, register), _times(_div(register, 2), 8)), _div(lane, 4)


def _c(lane: IndexExpr, register: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    return add(_div(lane, 4), _times(_div(register, 2), 8)), _pair(lane, register)


FRAGMENTS: dict[str, dict[str, Fragment]] = {
    "mma16816": {
        "a": Fragment(rows=16, columns=16, registers=8, place=_a),
        "b": Fragment(rows=16, columns=8, registers=4, place=_b),
        "c": Fragment(rows=16, columns=8, registers=4, place=_c),
    },
}
