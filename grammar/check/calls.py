"""Calls of `fn`: views by reference and scalars by value, type parameters and sizes from them, the body in place.

A function whose body is only `let` and `return` is pure: its call is an expression and may stand in an arm of
`select`. Any other call emits its body before the statement that is being read. Depth and the number of nodes are
limited (E0103), recursion is refused (E0208).
"""

from dataclasses import field

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr
from texpr.grammar.check.buffers import element_type, fn_attributes
from texpr.grammar.check.context import MAX_CALLS, Context, Result
from texpr.grammar.check.functions import is_pure, returned, signature
from texpr.grammar.check.indices import index
from texpr.grammar.check.scope import FnName, IndexName, Scope, TypeName, ValueName, ViewName
from texpr.grammar.check.statements import statements
from texpr.grammar.check.typing import WRAPPING, Typed, Untyped, Value, settle, stored
from texpr.grammar.check.values import as_index
from texpr.grammar.check.views import array_of, check_writable, dims, same_extent, view_argument
from texpr.grammar.diagnostics import Label
from texpr.grammar.records import dataclass
from texpr.grammar.refusals import RefusedError, refuse
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place, names_used
from texpr.grammar.types import ELEMENT_TYPES, DType, common_type

Argument = ViewName | Typed | Untyped


@dataclass(slots=True, kw_only=True)
class Frame:
    """One call while its arguments are matched."""

    call: syntax.Call
    definition: syntax.FnDef
    scope: Scope
    types: dict[str, DType] = field(default_factory=dict)

    def called(self, parameter: syntax.Param) -> str:
        """A parameter as messages call it."""
        return f"`{parameter.name}` of `{self.call.name}`"


async def read_call(ctx: Context, e: syntax.Call, function: FnName) -> Result:
    """Inline a call; its value, the view that it returned, or None."""
    definition = function.definition
    if any(active is definition for active in ctx.calls):
        raise refuse(
            "E0208", f"`{e.name}` calls itself", e.span, help="functions are inlined: write a loop",
            secondary=tuple(Label(span=s, text="called here") for s in ctx.call_spans[-1:]),
        )  # fmt: skip
    if len(ctx.calls) >= MAX_CALLS:
        raise refuse("E0103", f"calls nest deeper than {MAX_CALLS}", e.span, help="split the kernel")
    if len(e.args) != len(definition.params):
        wanted = len(definition.params)
        raise refuse(
            "E0207", f"`{e.name}` takes {wanted} argument{'s' * (wanted != 1)} and is given {len(e.args)}", e.span,
            help=signature(definition),
        )  # fmt: skip
    if not is_pure(definition):
        ctx.unconditional(e.span, f"the call of `{e.name}`")
    frame = Frame(call=e, definition=definition, scope=Scope(function.module))
    arguments = [await _argument(ctx, frame, p, a) for p, a in zip(definition.params, e.args, strict=True)]
    _bind_types(ctx, frame, arguments)
    _bind_shapes(ctx, frame, arguments)
    for parameter, argument, arg in zip(definition.params, arguments, e.args, strict=True):
        _bind_argument(ctx, frame, parameter, argument, arg.span)
    if not any(definition is known for known in ctx.given.called):
        ctx.given.called.append(definition)
    spans = (*ctx.call_spans, e.span)
    with ctx.within(scope=frame.scope, calls=(*ctx.calls, definition), call_spans=spans, fully_text=False):
        if definition.reference is None:
            return await _body(ctx, frame)
        await _intrinsic(ctx, frame, definition.reference)
        return None


# ---- arguments -------------------------------------------------------------------------------------------------


async def _argument(ctx: Context, frame: Frame, parameter: syntax.Param, arg: syntax.Expr | syntax.Slice) -> Argument:
    """What stands for a parameter: a view for an array or a written scalar, else a value."""
    if isinstance(arg, syntax.Slice):
        raise refuse("E0207", "a slice stands only in a subscript", arg.span, help="write the view: A[i:16]")
    written = parameter.direction in ("out", "inout")
    if parameter.attrs:
        raise refuse("E0205", "an attribute has no meaning on the parameter of a `fn`", parameter.attrs[0].span)
    if parameter.type.shape is None and not written:
        return await ctx.value(arg)
    view = await view_argument(ctx, arg)
    if view is None:
        raise refuse(
            "E0207", f"{frame.called(parameter)} is a view, this is a value", arg.span,
            help="write a buffer or a slice of one: A[i:16, 0:8]",
        )  # fmt: skip
    wanted = 0 if parameter.type.shape is None else len(parameter.type.shape)
    if view.rank != wanted:
        raise refuse(
            "E0207", f"{frame.called(parameter)} has {dims(wanted)}, this view {dims(view.rank)}", arg.span,
            help="a plain subscript drops its dimension, a slice keeps it",
        )  # fmt: skip
    if written:
        name = arg.name if isinstance(arg, syntax.Name | syntax.View) else frame.call.name
        check_writable(ctx, name, view, arg.span)
    return view


def _type_of(ctx: Context, argument: Argument, span: Span) -> DType | None:
    match argument:
        case ViewName():
            return ctx.type_of(argument.buffer, span)
        case Typed():
            return argument.dtype
        case Untyped():
            return None


def _bind_types(ctx: Context, frame: Frame, arguments: list[Argument]) -> None:
    """Type parameters from the arguments: arrays first, then scalars, whose types are joined."""
    pairs = list(zip(frame.definition.params, arguments, frame.call.args, strict=True))
    for arrays in (True, False):
        for parameter, argument, arg in pairs:
            name, is_array = parameter.type.element, parameter.type.shape is not None
            found = _type_of(ctx, argument, arg.span)
            if name in ELEMENT_TYPES or is_array is not arrays or found is None:
                continue
            before = frame.types.get(name)
            if before is None or before == found:
                frame.types[name] = found
            elif arrays:
                raise refuse("E0207", f"`{name}` is {before} and {found} in this call", arg.span)
            elif (common := common_type(before, found)) is not None:
                frame.types[name] = common
            else:
                raise refuse("E0204", f"`{name}` is {before} and {found}, which do not mix", arg.span)
    for parameter, argument, _ in pairs:
        if isinstance(argument, Untyped) and parameter.type.element not in ELEMENT_TYPES:
            frame.types.setdefault(parameter.type.element, argument.default)
    for name, dtype in frame.types.items():
        frame.scope.define(name, TypeName(dtype=dtype), frame.definition.span)


def _bind_shapes(ctx: Context, frame: Frame, arguments: list[Argument]) -> None:
    """Sizes of the function from the shapes of views; E0207 where a shape does not fit."""
    rest: list[tuple[syntax.Expr, ast.IndexExpr, Span]] = []
    for parameter, argument, arg in zip(frame.definition.params, arguments, frame.call.args, strict=True):
        if not isinstance(argument, ViewName):
            continue
        for expr, actual in zip(parameter.type.shape or (), argument.shape, strict=True):
            if isinstance(expr, syntax.Name) and frame.scope.lookup(expr.name) is None:
                frame.scope.define(expr.name, IndexName(index=actual, what="a size"), expr.span)
            else:
                rest.append((expr, actual, arg.span))
    for expr, actual, span in rest:
        with ctx.within(scope=frame.scope):
            wanted = index(ctx, expr, "the shape")
        same_extent(ctx, wanted, actual, span)


def _bind_argument(ctx: Context, frame: Frame, parameter: syntax.Param, argument: Argument, span: Span) -> None:
    """Enter a parameter into the function's scope; values that are used twice are computed once."""
    with ctx.within(scope=frame.scope):
        dtype = element_type(ctx, parameter.type)
    place = name_place(parameter, parameter.name)
    if isinstance(argument, ViewName):
        found = ctx.type_of(argument.buffer, span)
        if found != dtype:
            raise refuse("E0207", f"{frame.called(parameter)} is {dtype}, this view is {found}", span)
        frozen = None if parameter.direction in ("out", "inout") else "an `in` parameter"
        view = ViewName(
            buffer=argument.buffer, parts=argument.parts, shape=argument.shape, frozen_as=frozen, alias=True
        )  # fmt: skip
        frame.scope.define(parameter.name, view, place)
        return
    value: Value = argument
    is_constant = isinstance(argument, Untyped) and argument.constant is not None
    if not is_constant or parameter.type.element in ELEMENT_TYPES:  # a literal of a type parameter stays literal
        value = _passed(argument, dtype, span, frame.called(parameter))
    as_one = as_index(value)
    if as_one is not None and isinstance(value, Typed):
        frame.scope.define(parameter.name, IndexName(index=as_one, what="an index"), parameter.span)
        return
    pure = is_pure(frame.definition)
    plain = isinstance(value, Untyped) or isinstance(value.expr, ast.Const | ast.IndexValue | ast.ConditionValue)
    again = pure and (_is_simple(value.expr) or ctx.conditional is not None)
    if plain or again or (pure and _uses(ctx, frame.definition).get(parameter.name, 0) <= 1):
        frame.scope.define(parameter.name, ValueName(value=value), parameter.span)
        return
    kept = ctx.kept(parameter.name, settle(value).expr, span, ctx.attrs)
    entity = ViewName(buffer=kept.buffer, parts=(), shape=(), frozen_as="an `in` parameter")
    frame.scope.define(parameter.name, entity, place)


def _passed(value: Value, dtype: DType, span: Span, what: str) -> Value:
    """The value as a parameter of a type: literals take it, others may widen; narrowing needs a cast."""
    if isinstance(value, Typed):
        narrows = value.dtype.is_float and dtype.is_float and common_type(value.dtype, dtype) != dtype
        if narrows and value.dtype != dtype and dtype.bits < value.dtype.bits:
            raise refuse("E0204", f"{what} is {dtype}, this value is {value.dtype}", span, help=f"write {dtype}(…)")
        if value.dtype == dtype:
            return value
    return Typed(expr=stored(value, dtype, span, what), narrow=dtype if dtype in WRAPPING else None)


def _is_simple(e: ast.Expr) -> bool:
    """Whether evaluating it twice costs no more than a load: a read, or a conversion of one."""
    return isinstance(e, ast.Read) or (isinstance(e, ast.Cast) and isinstance(e.operand, ast.Read | ast.IndexValue))


def _uses(ctx: Context, definition: syntax.FnDef) -> dict[str, int]:
    """How often each name stands in the body, counted once for each function."""
    if id(definition) not in ctx.uses:
        ctx.uses[id(definition)] = names_used(definition.body)
    return ctx.uses[id(definition)]


# ---- the body --------------------------------------------------------------------------------------------------


async def _body(ctx: Context, frame: Frame) -> Result:
    definition = frame.definition
    result = returned(definition)
    body = definition.body.body
    if body and isinstance(body[-1], syntax.Return):
        body = body[:-1]
    failed = len(ctx.diagnostics)
    await statements(ctx, body)
    if len(ctx.diagnostics) > failed and result is not None:
        raise RefusedError()
    if result is None:
        return None
    if isinstance(result, syntax.Name | syntax.View):
        view = await array_of(ctx, result)
        if isinstance(view, ViewName):
            _check_result(ctx, frame, view, result.span)
            return view
    value = await ctx.value(result)
    if definition.result is not None:
        dtype = element_type(ctx, definition.result)
        expr = stored(value, dtype, result.span, f"the result of `{definition.name}`")
        value = Typed(expr=expr, narrow=dtype if dtype in WRAPPING else None)
    if is_pure(definition) or isinstance(value, Untyped):
        return value
    return Typed(expr=ctx.kept(definition.name, value.expr, result.span, ctx.attrs), narrow=value.narrow)


def _check_result(ctx: Context, frame: Frame, view: ViewName, span: Span) -> None:
    declared = frame.definition.result
    if declared is None:
        return
    dtype, found = element_type(ctx, declared), ctx.type_of(view.buffer, span)
    if dtype != found:
        raise refuse("E0204", f"the result of `{frame.call.name}` is {dtype}, this view is {found}", span)
    shape = declared.shape or ()
    if len(shape) != view.rank:
        message = f"the result of `{frame.call.name}` has {dims(len(shape))}, this view {dims(view.rank)}"
        raise refuse("E0207", message, span)
    for expr, actual in zip(shape, view.shape, strict=True):
        same_extent(ctx, index(ctx, expr, "the shape"), actual, span)


async def _intrinsic(ctx: Context, frame: Frame, reference: syntax.Block) -> None:
    """Both bodies of a function with a `reference`, inlined side by side."""
    definition = frame.definition
    bodies: list[tuple[ast.Stmt, ...]] = []
    for block in (reference, definition.body):
        with ctx.inner() as body:
            await statements(ctx, block.body)
        bodies.append(tuple(body))
    attrs = fn_attributes(ctx, definition)
    if ctx.fully and any(isinstance(s, ast.Par) and s.fully for s in bodies[1]):
        attrs = (*attrs, Attr(name="collective", span=frame.call.span))
    ctx.emit(
        ast.Intrinsic(
            name=definition.name, reference=bodies[0], hardware=bodies[1], attrs=attrs, span=frame.call.span,
            call_spans=ctx.call_spans[:-1],
        )
    )  # fmt: skip
