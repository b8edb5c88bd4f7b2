"""Reading values: operators and their types, casts, lazy `select`, reads of elements, reductions.

Index expressions stay whole inside values (`IndexValue`), affine comparisons too (`ConditionValue`). What needs
statements (a reduction, the copy of an argument) is emitted before the statement that is being read, and refused
where evaluation is conditional.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Fn, IndexConst, IndexExpr, IndexOp
from texpr.grammar.check.context import Context
from texpr.grammar.check.indices import affine, try_condition
from texpr.grammar.check.reductions import reduction
from texpr.grammar.check.scope import FnName, IndexName, TypeName, ValueName, ViewName
from texpr.grammar.check.typing import (
    LITERAL,
    WRAPPING,
    Typed,
    Untyped,
    Value,
    convert,
    joined,
    literal,
    made,
    operand,
    operation,
    provenance,
    typed,
)
from texpr.grammar.check.views import element, place, read, read_scalar
from texpr.grammar.core import value_size
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.operators import DIVISIONS
from texpr.grammar.operators import COMPARISONS, FUNCTIONS, SYMBOLS, Operator, Takes
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, ELEMENT_TYPES, I64, DType, compute_type


def index_value(index: IndexExpr, span: Span, dtype: DType = I64) -> Typed:
    return Typed(expr=ast.IndexValue(index=index, dtype=dtype, span=span))


def as_index(value: Value) -> IndexExpr | None:
    """The index expression that a value is, literals included."""
    if isinstance(value, Untyped):
        return IndexConst(value=value.constant, span=value.span) if isinstance(value.constant, int) else None
    return value.expr.index if isinstance(value.expr, ast.IndexValue) and value.dtype == I64 else None


async def read_value(ctx: Context, e: syntax.Expr) -> Value:
    """The value of an expression; hoisted statements go to the current block."""
    match e:
        case syntax.IntLit() | syntax.FloatLit():
            return literal(e.value, e.span)
        case syntax.BoolLit():
            return Typed(expr=ast.Const(value=e.value, dtype=BOOL, span=e.span))
        case syntax.Name():
            return _named(ctx, e)
        case syntax.View():
            return read(ctx, await element(ctx, e), e.span)
        case syntax.Unary(op="-"):
            return _negated(await ctx.value(e.operand), e.span)
        case syntax.Binary() if e.op in SYMBOLS:
            left, right = await ctx.value(e.left), await ctx.value(e.right)
            return _applied(e.op, SYMBOLS[e.op], (left, right), e.span)
        case syntax.Unary() | syntax.Binary():
            return await _truth(ctx, e)
        case syntax.Call():
            return await _called(ctx, e)
        case syntax.Reduce():
            ctx.unconditional(e.span, f"`{e.op}`")
            return await reduction(ctx, e)
        case syntax.StringLit():
            raise refuse("E0212", "a text stands only in `asm`", e.span)
        case syntax.Member():
            raise refuse("E0212", f"`{e.owner}.{e.name}` stands only in `fragment`", e.span)


def _named(ctx: Context, e: syntax.Name) -> Value:
    entity = ctx.lookup(e.name, e.span)
    match entity:
        case IndexName():
            return index_value(entity.index, e.span, entity.dtype)
        case ValueName():
            ctx.charge(value_size(entity.value.expr), e.span)
            return entity.value
        case ViewName():
            return read_scalar(ctx, e.name, entity, e.span)
        case _:
            raise refuse("E0201", f"`{e.name}` is {_what(entity)}, not a value", e.span)


# ---- operators -------------------------------------------------------------------------------------------------


def _negated(value: Value, span: Span) -> Value:
    if isinstance(value, Untyped) and value.constant is not None:
        return literal(-value.constant, span)
    index = as_index(value)
    if index is not None and isinstance(value, Typed):
        result = affine(IndexOp.SUB, ZERO, index, span)
        if result is not None:
            return index_value(result, span)
    _demand_numbers((value,), span, "-")
    return operation(Fn.NEG, (value,), joined((value,), span, "`-`"), span)


def _applied(name: str, operator: Operator, values: Sequence[Value], span: Span) -> Value:
    """An operator on values: an index expression where it gives one, else an operation, if the types allow it."""
    if operator.index is not None:
        merged = _merged(operator.index, values[0], values[1], span)
        if merged is not None:
            return merged
    if operator.fn is None:
        raise refuse("E0206", f"`{name}` is for index expressions", span, help=operator.mend)
    _demand_numbers(values, span, name)
    dtype = joined(values, span, f"`{name}`")
    if operator.takes is Takes.INTEGERS and ((dtype is not None and dtype.is_float) or any(map(_is_float, values))):
        found = ", here is a float" if name in FUNCTIONS else ""
        raise refuse("E0204", f"`{name}` is for integers{found}", span, help=operator.mend)
    if operator.takes is Takes.FLOATS and dtype is not None and not dtype.is_float:
        raise refuse("E0204", f"`{name}` is for floats, this is {dtype}", span, help=operator.mend)
    result = operation(operator.fn, values, dtype, span)
    if operator.takes is Takes.FLOATS and isinstance(result, Untyped):
        return replace(result, is_float=True)
    return result


def _merged(op: IndexOp, left: Value, right: Value, span: Span) -> Typed | None:
    """Two index expressions as one, where that is affine for every binding of the sizes."""
    if isinstance(left, Untyped) and isinstance(right, Untyped):
        return None
    a, b = as_index(left), as_index(right)
    if a is None or b is None or (op in DIVISIONS and not isinstance(b, IndexConst)):
        return None
    result = affine(op, a, b, span)
    return None if result is None else index_value(result, span)


def _demand_numbers(values: Sequence[Value], span: Span, what: str) -> None:
    for value in values:
        if isinstance(value, Typed) and value.dtype.is_bool:
            help = "write i32(…) or f32(…) around it: 0 or 1"
            raise refuse("E0204", f"`{what}` is for numbers, this is bool", value.span, help=help)


def _is_float(value: Value) -> bool:
    return isinstance(value, Untyped) and value.is_float


# ---- truth -----------------------------------------------------------------------------------------------------


async def _truth(ctx: Context, e: syntax.Unary | syntax.Binary) -> Value:
    """`not`, `and`, `or` and comparisons: a condition where it is affine, else computed from data, the right side of
    `and` and `or` lazily."""
    condition = try_condition(ctx, e)
    if condition is not None:
        return Typed(expr=ast.ConditionValue(condition=condition, span=e.span))
    if isinstance(e, syntax.Unary):
        inner = await truth_of(ctx, e.operand)
        return Typed(expr=ast.Op(fn=Fn.NOT, args=(inner,), dtype=BOOL, span=e.span))
    if e.op in COMPARISONS:
        return await _comparison(ctx, e)
    first = await truth_of(ctx, e.left)
    with ctx.within(conditional=f"the right side of `{e.op}`"):
        second = await truth_of(ctx, e.right)
    chosen = first.condition if isinstance(first, ast.ConditionValue) else first
    constant = ast.Const(value=e.op == "or", dtype=BOOL, span=e.span)
    then, other = (second, constant) if e.op == "and" else (constant, second)
    return Typed(expr=ast.Select(condition=chosen, then=then, other=other, dtype=BOOL, span=e.span))


async def _comparison(ctx: Context, e: syntax.Binary) -> Value:
    left, right = await ctx.value(e.left), await ctx.value(e.right)
    fn = COMPARISONS[e.op][1]
    bools = [v for v in (left, right) if isinstance(v, Typed) and v.dtype.is_bool]
    if bools and fn not in (Fn.EQ, Fn.NE):
        raise refuse("E0204", f"`{e.op}` is for numbers, this is bool", bools[0].span, help="use ==, != , and, or")
    return operation(fn, (left, right), joined((left, right), e.span, f"`{e.op}`"), e.span)


async def truth_of(ctx: Context, e: syntax.Expr) -> ast.Expr:
    """The value of a condition; E0204 where it is not bool."""
    value = await ctx.value(e)
    if not isinstance(value, Typed) or not value.dtype.is_bool:
        found = value.dtype if isinstance(value, Typed) else "a number"
        raise refuse("E0204", f"a condition is bool, this is {found}", e.span, help="compare it: … != 0")
    return value.expr


# ---- calls -----------------------------------------------------------------------------------------------------


async def _called(ctx: Context, e: syntax.Call) -> Value:
    if e.name in ELEMENT_TYPES:
        return await _cast(ctx, e, ELEMENT_TYPES[e.name])
    if e.name == "select":
        return await _select(ctx, e)
    if e.name in FUNCTIONS:
        operator = FUNCTIONS[e.name]
        return _applied(e.name, operator, [await ctx.value(arg) for arg in _arguments(e, operator.operands)], e.span)
    if e.name == "fragment":
        raise refuse("E0212", "`fragment` stands alone on one side of a `reg` or of a bind", e.span)
    entity = ctx.lookup(e.name, e.span)
    if isinstance(entity, TypeName):
        return await _cast(ctx, e, entity.dtype)
    if not isinstance(entity, FnName):
        raise refuse("E0201", f"`{e.name}` is {_what(entity)}, not a function", e.span)
    result = await ctx.readers.call(ctx, e, entity)
    if result is None:
        raise refuse("E0207", f"`{e.name}` returns no value", e.span, help=f"call it as a statement: {e.name}(…)")
    if not isinstance(result, ViewName):
        return result
    if result.rank:
        raise refuse(
            "E0203", f"`{e.name}` returns {result.rank} dimensions, an element is wanted here", e.span,
            help=f"name it first: let r = {e.name}(…)",
        )  # fmt: skip
    return read(ctx, place(ctx, result, (), e.span), e.span)


def _arguments(e: syntax.Call, count: int) -> tuple[syntax.Expr, ...]:
    if len(e.args) != count:
        raise refuse(
            "E0207", f"`{e.name}` takes {count} argument{'s' * (count > 1)} and is given {len(e.args)}", e.span
        )
    plain: list[syntax.Expr] = []
    for arg in e.args:
        if isinstance(arg, syntax.Slice):
            raise refuse("E0207", "a slice stands only in a subscript", arg.span)
        plain.append(arg)
    return tuple(plain)


async def _cast(ctx: Context, e: syntax.Call, dtype: DType) -> Value:
    (arg,) = _arguments(e, 1)
    value = await ctx.value(arg)
    narrow = dtype if dtype in WRAPPING else None
    if isinstance(value, Untyped):
        value = _cast_literal(value, dtype, e.span)
    return Typed(expr=convert(value.expr, dtype), narrow=narrow)


def _cast_literal(value: Untyped, dtype: DType, span: Span) -> Typed:
    number = value.constant
    if isinstance(number, int) and dtype.is_integer:
        low, _ = dtype.integer_range
        return typed(ast.Const(value=(number - low) % (1 << dtype.bits) + low, dtype=dtype, span=span))
    if number is not None and dtype.is_float:
        return typed(made(value, dtype))
    wide = compute_type(dtype) if dtype.is_float == value.is_float and not dtype.is_bool else value.default
    return typed(made(value, wide))


async def _select(ctx: Context, e: syntax.Call) -> Value:
    test, *arms = _arguments(e, 3)
    condition: ast.Condition | ast.Expr | None = try_condition(ctx, test)
    if condition is None:
        found = await truth_of(ctx, test)
        condition = found.condition if isinstance(found, ast.ConditionValue) else found
    with ctx.within(conditional="an arm of `select`"):
        then, other = await ctx.value(arms[0]), await ctx.value(arms[1])
    chosen = condition
    if isinstance(then, Untyped) and isinstance(other, Untyped):
        either = ast.Select(condition=chosen, then=then.expr, other=other.expr, dtype=LITERAL, span=e.span)
        return Untyped(expr=either, is_float=then.is_float or other.is_float)
    dtype = _chosen_type(then, other, e.span)
    expr = ast.Select(
        condition=chosen, then=operand(then, dtype), other=operand(other, dtype), dtype=dtype, span=e.span
    )  # fmt: skip
    return Typed(expr=expr, narrow=provenance((then, other)))


def _chosen_type(then: Value, other: Value, span: Span) -> DType:
    """The type of a `select`: the arms' own where they agree, since nothing is computed."""
    types = {v.dtype for v in (then, other) if isinstance(v, Typed)}
    if len(types) == 1 and all(isinstance(v, Typed) for v in (then, other)):
        return types.pop()
    dtype = joined((then, other), span, "`select`")
    assert dtype is not None, "one arm at least is typed"
    return dtype


def _what(entity: object) -> str:
    return {FnName: "a function", TypeName: "a type", IndexName: "an index", ViewName: "a buffer"}.get(
        type(entity), "a value"
    )
