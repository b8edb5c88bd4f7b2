"""Values of an iteration whose number is data: what was a function of the loops' indices, of a number that is read.

2 * j + 3             2 * at + 3                  j is at
Y[i, j]               Y[i, {at % N}]              i * N + j is at
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    Gather,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexValue,
    IndexVar,
    Node,
    Op,
    Read,
    Seq,
    Subscript,
)
from texpr.grammar.index.expr import ONE, names, subtract
from texpr.grammar.types import I64
from texpr.grammar.walk import fold, rewrite, walk
from texpr.polyhedral.map.conversions import converted

_ON_VALUES = {
    IndexOp.ADD: Fn.ADD,
    IndexOp.SUB: Fn.SUB,
    IndexOp.MUL: Fn.MUL,
    IndexOp.DIV: Fn.FLOORDIV,
    IndexOp.MOD: Fn.MOD,
    IndexOp.MIN: Fn.MIN,
    IndexOp.MAX: Fn.MAX,
}


def indices_of(loops: Sequence[Seq], at: Read) -> dict[str, Expr]:
    """The indices of nested loops, of the number of an iteration of all of them."""
    rest: Expr = at if at.dtype == I64 else Cast(operand=at, dtype=I64)
    found: dict[str, Expr] = {}
    for loop in loops[:0:-1]:
        extent = IndexValue(index=loop.extent)
        found[loop.index] = Op(fn=Fn.MOD, args=(rest, extent), dtype=I64)
        rest = Op(fn=Fn.FLOORDIV, args=(rest, extent), dtype=I64)
    return {**found, loops[0].index: rest}


def at_iteration(value: Expr, indices: Mapping[str, Expr]) -> Expr | None:
    """The value where indices are data; None where an affine condition asks them."""
    if any(isinstance(node, Condition) and names(node) & indices.keys() for node in walk(value)):
        return None

    def change(node: Node) -> Node:
        match node:
            case IndexValue(index=index, dtype=dtype) if names(index) & indices.keys():
                return converted(_on_values(index, indices), dtype)
            case Read(subscripts=subscripts):
                return replace(node, subscripts=tuple(_gathered(s, indices) for s in subscripts))
            case Cast(operand=operand, dtype=dtype):
                return converted(operand, dtype)
            case _:
                return node

    return rewrite(value, change, lambda node: not isinstance(node, IndexExpr | Condition))


def _gathered(subscript: Subscript, indices: Mapping[str, Expr]) -> Subscript:
    if isinstance(subscript, Gather) or not names(subscript) & indices.keys():
        return subscript
    return Gather(value=_on_values(subscript, indices))


def _on_values(index: IndexExpr, indices: Mapping[str, Expr]) -> Expr:
    """An index expression of which some indices are data."""

    def of(node: IndexExpr, parts: list[Expr]) -> Expr:
        match node:
            case IndexConst(value=value):
                return Const(value=value, dtype=I64)
            case IndexVar(name=name) if name in indices:
                return indices[name]
            case IndexBinary() if not names(node) & indices.keys():
                return IndexValue(index=node)
            case IndexBinary(op=IndexOp.CEILDIV, right=right):
                more = Op(fn=Fn.ADD, args=(parts[0], IndexValue(index=subtract(right, ONE))), dtype=I64)
                return Op(fn=Fn.FLOORDIV, args=(more, parts[1]), dtype=I64)
            case IndexBinary(op=op):
                return Op(fn=_ON_VALUES[op], args=tuple(parts), dtype=I64)
            case _:
                return IndexValue(index=node)

    return fold(index, of)
