"""Values while they are checked, and the conversions between element types (docs/language.md, Numerics).

A `Typed` value has its type; an `Untyped` one is made of literals only and takes the type of what it meets (`made`):
the compute type of the other operand, or the bind's. `narrow` remembers that an integer value was computed only from
i8, u8 or i16: it may be bound to that type again without a cast, and wraps.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import COMPARISONS, AccOp, Cast, Const, Expr, Fn, Node, Op, Select
from texpr.grammar.operators import TAKES, Takes
from texpr.grammar.records import dataclass
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, F32, I8, I16, I32, U8, U32, DType, Kind, common_type, compute_type
from texpr.grammar.walk import rewrite, walk

WRAPPING = (I8, U8, I16)
LITERAL = DType("literal", Kind.SIGNED, 0)
"""What a literal has until it meets a type; no core tree that leaves the checker has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A value of settled type."""

    expr: Expr
    narrow: DType | None = None

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    @property
    def span(self) -> Span:
        return self.expr.span


@dataclass(frozen=True, slots=True, kw_only=True)
class Untyped:
    """A value of literals only: what takes the type has the type `LITERAL`. `is_float` says that it needs a float."""

    expr: Expr
    is_float: bool

    @property
    def span(self) -> Span:
        return self.expr.span

    @property
    def constant(self) -> int | float | None:
        """The number where the value is one literal."""
        return self.expr.value if isinstance(self.expr, Const) else None

    @property
    def default(self) -> DType:
        return F32 if self.is_float else I32


Value = Typed | Untyped


def typed(expr: Expr) -> Typed:
    """A value whose provenance is its own type."""
    return Typed(expr=expr, narrow=expr.dtype if expr.dtype in WRAPPING else None)


def literal(value: int | float, span: Span) -> Untyped:
    """The value of an integer or float literal."""
    return Untyped(expr=Const(value=value, dtype=LITERAL, span=span), is_float=isinstance(value, float))


def made(value: Untyped, dtype: DType) -> Expr:
    """The value in a type; E0204 where the type does not have it."""
    if isinstance(value.expr, Const):
        return _constant(value.expr, dtype)

    for node in walk(value.expr):  # what holds is told before what it holds
        if isinstance(node, Op | Const) and node.dtype is LITERAL:
            _demand_kind(node, dtype) if isinstance(node, Op) else _constant(node, dtype)

    def change(node: Node) -> Node:
        if not isinstance(node, Const | Op | Select) or node.dtype is not LITERAL:
            return node
        if isinstance(node, Const):
            return _constant(node, dtype)
        return (
            replace(node, dtype=dtype, fn=_division(node.fn, dtype))
            if isinstance(node, Op)
            else replace(node, dtype=dtype)
        )

    return rewrite(value.expr, change, into=lambda node: getattr(node, "dtype", None) is LITERAL)


def _greatest(dtype: DType) -> float:
    """The least magnitude that rounds to infinity in a float type; f8 saturates instead, so it has none."""
    exponent = {64: 1023, 32: 127, 16: 15}.get(dtype.bits, 1023)
    if dtype.name == "bf16":
        exponent = 127
    if dtype.bits >= 64 or dtype.bits == 8:
        return math.inf
    return math.ldexp(2.0 - math.ldexp(1.0, -dtype.mantissa - 1), exponent)


def _constant(literal: Const, dtype: DType) -> Const:
    value, span = literal.value, literal.span
    if dtype.is_float:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        overflow = math.isinf(number) and not (isinstance(value, float) and math.isinf(value))
        if overflow or (math.isfinite(number) and abs(number) >= _greatest(dtype)):
            raise refuse("E0204", f"the literal is out of the range of {dtype}", span, help="write `inf` for infinity")
        return Const(value=number, dtype=dtype, span=span)
    if isinstance(value, float):
        raise refuse(
            "E0204", f"a float literal stands where {dtype} is wanted", span, help="write an integer, or a cast"
        )
    if not dtype.is_integer:
        raise refuse("E0204", f"a number stands where {dtype} is wanted", span, help="write `true` or `false`")
    low, high = dtype.integer_range
    if not low <= value <= high:
        raise refuse("E0204", f"the literal is out of the range of {dtype}, {low} to {high}", span)
    return Const(value=value, dtype=dtype, span=span)


def settle(value: Value) -> Typed:
    """The value with a type: an untyped one takes f32, or i32."""
    return value if isinstance(value, Typed) else typed(made(value, value.default))


def convert(expr: Expr, dtype: DType) -> Expr:
    """An explicit conversion where the types differ."""
    return expr if expr.dtype == dtype else Cast(operand=expr, dtype=dtype, span=expr.span)


def operand(value: Value, dtype: DType) -> Expr:
    """The value as an operand of an operation in `dtype`, which `joined` gave."""
    return made(value, dtype) if isinstance(value, Untyped) else convert(value.expr, dtype)


def joined(values: Sequence[Value], span: Span, what: str) -> DType | None:
    """The compute type of an operation on the values; None where all are untyped. E0204 where they do not mix."""
    types = [value.dtype for value in values if isinstance(value, Typed)]
    if not types:
        return None
    if all(found is types[0] for found in types):
        return compute_type(types[0])
    for position, left in enumerate(types):
        for right in types[position + 1 :]:
            if common_type(left, right) is None:
                raise refuse("E0204", f"{what} does not mix {left} and {right}", span, help=_cast_help(left, right))
    result = compute_type(types[0])
    for left in types:
        for right in types:
            common = common_type(left, right)
            if common is not None and (common.bits > result.bits or common is U32):
                result = common
    return result


def _cast_help(left: DType, right: DType) -> str:
    if left.is_bool or right.is_bool:
        number = left if right.is_bool else right
        return f"a bool mixes only with bool; {number}(…) around it is 0 or 1"
    if left.is_integer and right.is_integer:
        return f"write a cast, for example {left if left.kind is not right.kind and left.bits > 32 else 'i64'}(…)"
    wide = left if left.is_float else right
    return f"integers and floats do not mix: write {wide}(…) around the integer"


def provenance(values: Sequence[Value]) -> DType | None:
    """The narrow integer type from which alone the values were computed."""
    sources = {value.narrow for value in values if isinstance(value, Typed)}
    return sources.pop() if len(sources) == 1 else None


def operation(fn: Fn, values: Sequence[Value], dtype: DType | None, span: Span) -> Value:
    """`fn` on values in the type that `joined` gave; the operator's demands on it are the caller's to check."""
    if dtype is None and fn not in COMPARISONS:
        literals = [value for value in values if isinstance(value, Untyped)]
        expr = Op(fn=fn, args=tuple(value.expr for value in literals), dtype=LITERAL, span=span)
        return Untyped(expr=expr, is_float=any(value.is_float for value in literals))
    if dtype is None:
        dtype = F32 if any(isinstance(v, Untyped) and v.is_float for v in values) else I32
    args = tuple(operand(value, dtype) for value in values)
    if fn in COMPARISONS:
        return Typed(expr=Op(fn=fn, args=args, dtype=BOOL, span=span))
    return Typed(expr=Op(fn=_division(fn, dtype), args=args, dtype=dtype, span=span), narrow=provenance(values))


def _demand_kind(e: Op, dtype: DType) -> None:
    """E0204 where an operation on literals stands in a place of a type that it does not have."""
    takes = TAKES.get(e.fn, Takes.NUMBERS)
    if (takes is Takes.INTEGERS and dtype.is_float) or (takes is Takes.FLOATS and not dtype.is_float):
        kind, name = "integers" if dtype.is_float else "floats", "%" if e.fn is Fn.MOD else e.fn.value
        raise refuse("E0204", f"`{name}` is for {kind}, and {dtype} is wanted here", e.span, help=f"write {dtype}(…)")


def _division(fn: Fn, dtype: DType) -> Fn:
    """`/` is true division on floats and floors on integers."""
    return Fn.FLOORDIV if fn is Fn.DIV and not dtype.is_float else fn


def fits(source: DType, target: DType) -> bool:
    """Whether every value of an integer type is one of another."""
    low, high = source.integer_range
    least, greatest = target.integer_range
    return least <= low and high <= greatest


def stored(value: Value, dtype: DType, span: Span, what: str) -> Expr:
    """The value as a bind to a buffer of `dtype` stores it; E0204 where a cast is needed."""
    if isinstance(value, Untyped):
        if (dtype in WRAPPING or (dtype.is_float and dtype.bits < 32)) and value.constant is None:
            return convert(made(value, compute_type(dtype)), dtype)
        return made(value, dtype)
    source = value.dtype
    if source == dtype or (source.is_float and dtype.is_float):
        return convert(value.expr, dtype)
    if source.is_integer and dtype.is_integer and (fits(source, dtype) or value.narrow == dtype):
        return convert(value.expr, dtype)
    raise _mismatch(source, dtype, span, what)


def _mismatch(source: DType, dtype: DType, span: Span, what: str) -> Exception:
    narrows = source.is_integer and dtype.is_integer
    text = "does not hold every value of" if narrows else "is bound to a value of"
    if narrows:
        return refuse("E0204", f"{what} is {dtype}, which {text} {source}", span, help=f"write {dtype}(…)")
    return refuse("E0204", f"{what} is {dtype} and {text} {source}", span, help=f"write {dtype}(…)")


def update(op: AccOp, value: Value, dtype: DType, span: Span, what: str) -> Expr:
    """The value of an accumulation into a buffer of `dtype`, in the type that the update is computed in.

    A value computed only from a narrow integer type wraps to it: for `max=` and `min=` before the update, which would
    give something else after it.
    """
    if dtype.is_bool:
        raise refuse("E0204", f"{what} is bool, which has no {op.value} update", span, help="use `and`, `or` or select")
    selects = op in (AccOp.MAX, AccOp.MIN)
    computed = compute_type(dtype)
    if isinstance(value, Untyped):
        return convert(stored(value, dtype, span, what), computed) if selects else made(value, computed)
    common = common_type(dtype, value.dtype)
    if common is None:
        raise _mismatch(value.dtype, dtype, span, what)
    if dtype.is_integer:
        if value.narrow != dtype and not fits(value.dtype if selects else common, dtype):
            raise _mismatch(value.dtype, dtype, span, what)
        if wraps_first(op, value, dtype):
            return convert(convert(value.expr, dtype), computed)
    return convert(value.expr, common)


def wraps_first(op: AccOp, value: Value, dtype: DType) -> bool:
    """Whether an update by `op` wraps the value to `dtype` first: wrapping what it gives would be something else."""
    selects = op in (AccOp.MAX, AccOp.MIN)
    return selects and isinstance(value, Typed) and value.narrow == dtype and not fits(value.dtype, dtype)


def identity(op: AccOp, dtype: DType, span: Span) -> Const:
    """Where a fold starts: 0, 1, and for max and min the least and greatest value of the type."""
    match op:
        case AccOp.ADD | AccOp.MUL:
            number = 0 if op is AccOp.ADD else 1
            return Const(value=float(number) if dtype.is_float else number, dtype=dtype, span=span)
        case AccOp.MAX | AccOp.MIN:
            if dtype.is_float:
                return Const(value=-math.inf if op is AccOp.MAX else math.inf, dtype=dtype, span=span)
            low, high = dtype.integer_range
            return Const(value=low if op is AccOp.MAX else high, dtype=dtype, span=span)
