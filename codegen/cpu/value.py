"""Values of the core tree as Python expressions for Numba.

A value of a float narrower than f32 is carried as its bits (`uint16`, `uint8`) and only casts and stores look inside;
every other type is Numba's own. Integer results are cast back to their type, since Numba widens; that is the wrap of
the language. Arms of a `select` stay lazy: a conditional expression, or an `if` where an arm needs statements.

    Op(add, Cast(f32, Read A), Const 1.0)   ->   decode_f16(A[i]) + np.float32(1.0)
"""

import math
from typing import assert_never

from texpr.codegen.cpu.context import Check, Context, CpuTensor, Writer
from texpr.grammar.ast import (
    COMPARISONS,
    AccOp,
    Cast,
    Condition,
    ConditionValue,
    Const,
    Expr,
    Fn,
    Gather,
    IndexExpr,
    IndexValue,
    Op,
    Read,
    Select,
    Subscript,
)
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.text import SUM
from texpr.grammar.operators import OPERATORS
from texpr.grammar.source import Span
from texpr.grammar.types import DType, Kind, compute_type

MAX_TEXT = 100  # characters of an expression before it gets a name of its own

_NUMPY = {"f64": "float64", "f32": "float32", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8"}
_NUMPY |= {"u32": "uint32", "u8": "uint8"}

_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.BITAND: "&", Fn.BITOR: "|", Fn.BITXOR: "^"}
_COMPARE = {Fn.EQ: "==", Fn.NE: "!=", Fn.LT: "<", Fn.LE: "<=", Fn.GT: ">", Fn.GE: ">="}
_BOOL_INFIX = {Fn.BITAND: "and", Fn.MIN: "and", Fn.MUL: "and", Fn.BITOR: "or", Fn.MAX: "or", Fn.ADD: "or"}
_CONTRACTED = {Fn.ADD: "add_c", Fn.SUB: "sub_c"}


def is_narrow(dtype: DType) -> bool:
    """Whether values of the type are carried as bits."""
    return dtype.is_float and dtype.bits < 32


def unwrapped(text: str) -> str:
    """The text without parentheses around all of it."""
    if text.startswith("(") and text.endswith(")"):
        depth = 0
        for position, char in enumerate(text):
            depth += (char == "(") - (char == ")")
            if depth == 0 and position < len(text) - 1:
                return text
        return text[1:-1]
    return text


def constant_text(value: int | float | bool, dtype: DType) -> str:
    """A literal in its type; a narrow float as its bits."""
    if dtype.is_bool:
        return str(bool(value))
    if is_narrow(dtype):
        from texpr.grammar.numerics import constant

        bits = int.from_bytes(constant(value, dtype).tobytes(), "little")
        return f"np.uint{dtype.bits}({bits:#x})"
    if dtype.is_float:
        try:
            number = float(value)
        except OverflowError:
            number = math.copysign(math.inf, value)
        text = repr(number)
        return f"np.{_NUMPY[dtype.name]}({text})"
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    if wrapped > dtype.integer_range[1]:
        wrapped -= 1 << dtype.bits
    return f"np.{_NUMPY[dtype.name]}({wrapped})"


def cast_text(text: str, source: DType, target: DType) -> str:
    """The conversion of a value, as the Numerics section says."""
    if source == target:
        return text
    if is_narrow(source):
        text, source = f"decode_{source.name}({unwrapped(text)})", compute_type(source)
        if source == target:
            return text
    inner = unwrapped(text)
    if target.is_bool:
        return f"({text} != 0)"
    if is_narrow(target):
        match source.kind:
            case Kind.FLOAT if source.bits == 32:
                wide = inner
            case Kind.FLOAT:
                wide = f"odd_f32({inner})"
            case Kind.BOOL:
                wide = f"np.float32({inner})"
            case Kind.SIGNED | Kind.UNSIGNED:
                wide = f"odd_f32_of_i64(np.int64({inner}))"
            case _:
                assert_never(source.kind)
        return f"encode_{target.name}({wide})"
    if source.is_float and target.is_integer:
        return f"to_{target.name}({inner})"
    return f"np.{_NUMPY[target.name]}({inner})"


class Values:
    """Emits the values of one statement. `contract` allows a multiply and an add of the statement to become one."""

    def __init__(self, context: Context, contract: bool) -> None:
        self.context = context
        self.contract = contract

    def value(self, expr: Expr, contracted: bool = False) -> str:
        """The text of a value in the representation of its type; may write statements before it. `contracted`: the
        value is a product that an addition takes up."""
        match expr:
            case Const(value=value, dtype=dtype):
                return constant_text(value, dtype)
            case IndexValue(index=index, dtype=dtype):
                from texpr.grammar.types import I64

                return cast_text(f"np.int64({self.context.names.text(index)})", I64, dtype)
            case ConditionValue(condition=condition, dtype=dtype):
                from texpr.grammar.types import BOOL

                return cast_text(f"({self.context.names.text(condition)})", BOOL, dtype)
            case Read():
                return self._read(expr)
            case Cast(operand=operand, dtype=dtype):
                return cast_text(self.value(operand), operand.dtype, dtype)
            case Op():
                return self._shortened(self._op(expr, contracted))
            case Select():
                return self._select(expr)
            case _:
                assert_never(expr)

    def _shortened(self, text: str) -> str:
        if len(text) <= MAX_TEXT:
            return text
        name = self.context.names.fresh("t")
        self.context.writer.line(f"{name} = {unwrapped(text)}")
        return name

    def _read(self, read: Read) -> str:
        tensor = self.context.tensor(read.buffer)
        if tensor.scalar:
            return tensor.identifier
        text = f"{tensor.identifier}[{self.element(tensor, read.subscripts, read.span)}]"
        return f"({text} != 0)" if tensor.dtype.is_bool else text

    def element(self, tensor: CpuTensor, subscripts: tuple[Subscript, ...], span: Span) -> str:
        """The offset of an element; gathered subscripts are read and checked first, in their order."""
        settled: list[IndexExpr | str] = []
        for dim, subscript in enumerate(subscripts):
            if not isinstance(subscript, Gather):
                settled.append(subscript)
                continue
            name = self.context.names.fresh("g")
            writer = self.context.writer
            writer.line(f"{name} = np.int64({unwrapped(self.value(subscript.value))})")
            extent = self.context.names.text(tensor.layout.shape[dim], SUM)
            message = f"subscript {dim + 1} of {tensor.name} is VALUE, and the dimension has EXTENT elements"
            self.context.checks.append(Check(message=message, span=span))
            with writer.block(f"if {name} < 0 or {name} >= {extent}:"):
                writer.line(f"return finding({len(self.context.checks)}, {name}, {extent})")
            settled.append(name)
        return self.context.offset(tensor, tuple(settled))

    def _select(self, select: Select) -> str:
        context = self.context
        if isinstance(select.condition, Condition):
            condition = context.names.text(select.condition)
        else:
            condition = self.value(select.condition)
        outer = context.writer
        texts: list[str] = []
        lines: list[list[str]] = []
        for arm in (select.then, select.other):
            context.writer = Writer(outer.depth + 1, outer.loops)
            texts.append(self.value(arm))
            lines.append(context.writer.lines)
        context.writer = outer
        if not lines[0] and not lines[1]:
            return self._shortened(f"({texts[0]} if {condition} else {texts[1]})")
        name = context.names.fresh("t")
        for head, text, before in zip((f"if {condition}:", "else:"), texts, lines, strict=True):
            with outer.block(head):
                outer.lines += before
                outer.line(f"{name} = {unwrapped(text)}")
        return name

    def _op(self, op: Op, contracted: bool) -> str:
        operand = op.args[0].dtype if op.fn in COMPARISONS else op.dtype
        if is_narrow(op.dtype) or is_narrow(operand):
            wide = compute_type(operand)
            args = [cast_text(self.value(a), a.dtype, wide) for a in op.args]
            result = apply_text(op.fn, args, wide)
            return result if op.fn in COMPARISONS else cast_text(result, wide, op.dtype)
        if self.contract and operand.is_float and op.fn in _CONTRACTED and any(map(_is_product, op.args)):
            left, right = (unwrapped(self.value(a, contracted=_is_product(a))) for a in op.args)
            return f"{_CONTRACTED[op.fn]}({left}, {right})"
        if self.contract and contracted:
            if op.fn is Fn.NEG:
                return f"(-{self.value(op.args[0], contracted=True)})"
            left, right = (unwrapped(self.value(a)) for a in op.args)
            return f"mul_c({left}, {right})"
        return apply_text(op.fn, [self.value(a) for a in op.args], operand)


def _is_product(expr: Expr) -> bool:
    return isinstance(expr, Op) and (expr.fn is Fn.MUL or (expr.fn is Fn.NEG and _is_product(expr.args[0])))


def is_contractible(expr: Expr) -> bool:
    """Whether the value is a product in f32 or f64, which an accumulation may take up in one rounding."""
    return expr.dtype.is_float and expr.dtype.bits >= 32 and _is_product(expr)


def apply_text(fn: Fn, args: list[str], dtype: DType) -> str:
    """An operator on values of `dtype` (f32 and wider, integers, bool); comparisons give bool."""
    bare = ", ".join(map(unwrapped, args))
    if fn in COMPARISONS:
        if dtype.is_bool:
            args = [f"np.uint8({unwrapped(a)})" for a in args]
        return f"({args[0]} {_COMPARE[fn]} {args[1]})"
    if dtype.is_bool:
        return _bool_text(fn, args)
    if dtype.is_float:
        return _float_text(fn, args, bare, dtype)
    return f"np.{_NUMPY[dtype.name]}({_integer_text(fn, args, bare, dtype)})"


def _bool_text(fn: Fn, args: list[str]) -> str:
    if fn is Fn.NOT:
        return f"(not {args[0]})"
    if fn is Fn.BITXOR:
        return f"({args[0]} != {args[1]})"
    if fn in _BOOL_INFIX:
        return f"({args[0]} {_BOOL_INFIX[fn]} {args[1]})"
    raise InternalError(f"{fn.value} has no meaning on bool")


def _float_text(fn: Fn, args: list[str], bare: str, dtype: DType) -> str:
    match fn:
        case Fn.ADD | Fn.SUB | Fn.MUL:
            return f"({args[0]} {_INFIX[fn]} {args[1]})"
        case Fn.DIV:
            return f"({args[0]} / {args[1]})"
        case Fn.NEG:
            return f"(-{args[0]})"
        case Fn.RSQRT:
            return f"(np.{_NUMPY[dtype.name]}(1.0) / sqrt({bare}))"
        case _ if fn in OPERATORS and OPERATORS[fn].cpu:
            return f"{OPERATORS[fn].cpu.format(dtype.name)}({bare})"
        case _:
            raise InternalError(f"{fn.value} has no meaning on {dtype}")


def _integer_text(fn: Fn, args: list[str], bare: str, dtype: DType) -> str:
    match fn:
        case Fn.ADD | Fn.SUB | Fn.MUL | Fn.BITAND | Fn.BITOR | Fn.BITXOR:
            return f"{args[0]} {_INFIX[fn]} {args[1]}"
        case Fn.NEG:
            return f"0 - {args[0]}"
        case Fn.ABS:
            return f"absolute({bare})"
        case Fn.MIN | Fn.MAX:
            return f"{fn.value}({bare})"
        case Fn.FLOORDIV | Fn.MOD:
            return f"{fn.value}({bare})"
        case Fn.SHL | Fn.SHR:
            return f"{fn.value}({bare}, {dtype.bits})"
        case Fn.FMA:
            product = f"np.{_NUMPY[dtype.name]}({args[0]} * {args[1]})"
            return f"{product} + {args[2]}"
        case Fn.FLOOR | Fn.CEIL | Fn.ROUND:
            return unwrapped(args[0])
        case _:
            raise InternalError(f"{fn.value} has no meaning on {dtype}")


def update_text(op: AccOp, current: str, value: str, dtype: DType, reorder: bool, contract: bool) -> str:
    """`op(current, value)` of an accumulation computed in `dtype`. `reorder`: it may be split and reordered;
    `contract`: the value is a product whose rounding may be left out."""
    fn = Fn(op.value)
    if is_narrow(dtype):
        wide = compute_type(dtype)
        wides = [cast_text(current, dtype, wide), cast_text(value, dtype, wide)]
        return cast_text(apply_text(fn, wides, wide), wide, dtype)
    if dtype.is_float and op is AccOp.ADD and (reorder or contract):
        name = "add_rc" if reorder and contract else "add_r" if reorder else "add_c"
        return f"{name}({current}, {unwrapped(value)})"
    if dtype.is_float and op is AccOp.MUL and reorder:
        return f"mul_r({current}, {unwrapped(value)})"
    return apply_text(fn, [current, value], dtype)


def identity_text(op: AccOp, dtype: DType) -> str:
    """The value that a fold in `dtype` starts from."""
    from texpr.grammar.numerics import identity

    return constant_text(identity(op, dtype).item(), dtype)
