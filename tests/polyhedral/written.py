"""Index expressions, conditions, values and statements from texts in Python's grammar.

Names in capitals are sizes, others indices. Elements are i32 where no types say otherwise; numbers with a point are
f32, and so is `inf`.
"""

import ast as python
from collections.abc import Mapping
from typing import Any

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Always,
    And,
    Attr,
    Bind,
    Cast,
    Compare,
    CompareOp,
    Condition,
    Const,
    Expr,
    Fn,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Leaf,
    Op,
    Read,
    Select,
    SizeVar,
)
from texpr.grammar.source import SourceText, Span
from texpr.grammar.types import BOOL, ELEMENT_TYPES, F32, I32, DType

_INDEX = {
    python.Add: IndexOp.ADD,
    python.Sub: IndexOp.SUB,
    python.Mult: IndexOp.MUL,
    python.FloorDiv: IndexOp.DIV,
    python.Mod: IndexOp.MOD,
}
_VALUE = {python.Add: Fn.ADD, python.Sub: Fn.SUB, python.Mult: Fn.MUL, python.Div: Fn.DIV}
_COMPARED = {python.Eq: Fn.EQ, python.Lt: Fn.LT}
Types = Mapping[str, DType]
_COMPARE = {
    python.Eq: CompareOp.EQ,
    python.NotEq: CompareOp.NE,
    python.Lt: CompareOp.LT,
    python.LtE: CompareOp.LE,
    python.Gt: CompareOp.GT,
    python.GtE: CompareOp.GE,
}


def parsed(text: str) -> Any:
    return python.parse(text.strip(), mode="eval").body


def _index(node: Any) -> IndexExpr:
    match node:
        case python.Constant(value=value):
            return IndexConst(value=value)
        case python.Name(id=name):
            return SizeVar(name=name) if name.isupper() else IndexVar(name=name)
        case python.BinOp(op=op, left=left, right=right):
            return IndexBinary(op=_INDEX[type(op)], left=_index(left), right=_index(right))
        case python.Call(func=python.Name(id="min"), args=[left, right]):
            return IndexBinary(op=IndexOp.MIN, left=_index(left), right=_index(right))
    raise ValueError(python.unparse(node))


def index(value: str | int) -> IndexExpr:
    return _index(parsed(str(value)))


def condition(text: str) -> Condition:
    if text in ("true", "false"):
        return Always(value=text == "true")
    return _condition(parsed(text))


def _condition(node: Any) -> Condition:
    if isinstance(node, python.BoolOp):
        return And(parts=tuple(map(_condition, node.values)))
    return Compare(op=_COMPARE[type(node.ops[0])], left=_index(node.left), right=_index(node.comparators[0]))


def element(node: Any) -> tuple[str, tuple[IndexExpr, ...]]:
    parts = node.slice.elts if isinstance(node.slice, python.Tuple) else [node.slice]
    return node.value.id, tuple(_index(p) for p in parts)


def value(text: str, types: Types | None = None) -> Expr:
    return _value(parsed(text), types or {})


def _value(node: Any, types: Types) -> Expr:
    match node:
        case python.Constant(value=value):
            return Const(value=value, dtype=F32 if isinstance(value, float) else I32)
        case python.Name(id="inf"):
            return Const(value=float("inf"), dtype=F32)
        case python.UnaryOp(op=python.USub(), operand=python.Name(id="inf")):
            return Const(value=-float("inf"), dtype=F32)
        case python.Subscript():
            buffer, subscripts = element(node)
            return Read(buffer=buffer, subscripts=subscripts, dtype=types.get(buffer, I32))
        case python.BinOp(op=op, left=left, right=right):
            args = (_value(left, types), _value(right, types))
            return Op(fn=_VALUE[type(op)], args=args, dtype=args[0].dtype)
        case python.Compare(ops=[op], left=left, comparators=[right]):
            return Op(fn=_COMPARED[type(op)], args=(_value(left, types), _value(right, types)), dtype=BOOL)
        case python.Call(func=python.Name(id="select"), args=args):
            condition, then, other = (_value(a, types) for a in args)
            return Select(condition=condition, then=then, other=other, dtype=then.dtype)
        case python.Call(func=python.Name(id=name), args=[argument]) if name in ELEMENT_TYPES:
            return Cast(operand=_value(argument, types), dtype=ELEMENT_TYPES[name])
        case python.Call(func=python.Name(id=name), args=args):
            values = tuple(_value(a, types) for a in args)
            return Op(fn=Fn(name), args=values, dtype=values[0].dtype)
    raise ValueError(python.unparse(node))


def span_of(text: str) -> Span:
    """A span of its own source, so that messages show the statement."""
    return Span(source=SourceText(name="by hand", text=text), start=0, end=len(text))


def leaf(id: str, text: str, types: Types | None = None, *, fast: bool = False) -> Leaf:
    """The statement of a text; `fast`: with `#fast`."""
    span = span_of(f"{id}: {text}")
    attrs = (Attr(name="fast", span=span),) if fast else ()
    match python.parse(text).body[0]:
        case python.Assign(targets=[target], value=value):
            buffer, subscripts = element(target)
            bound = _value(value, types or {})
            return Bind(id=id, buffer=buffer, subscripts=subscripts, value=bound, attrs=attrs, span=span)
        case python.AugAssign(target=target, value=value):
            buffer, subscripts = element(target)
            added = _value(value, types or {})
            return Accumulate(
                id=id, op=AccOp.ADD, buffer=buffer, subscripts=subscripts, value=added, attrs=attrs, span=span
            )
    raise ValueError(text)
