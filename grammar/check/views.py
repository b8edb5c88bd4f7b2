"""Reading views: elements of buffers, slices, and the composition of a view's subscripts with its buffer's."""

from collections.abc import Callable

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Fn, IndexExpr, Subscript
from texpr.grammar.check.context import Context, Result
from texpr.grammar.check.functions import declares_array
from texpr.grammar.check.indices import index, not_an_index, try_index
from texpr.grammar.check.scope import FnName, IndexName, Part, TypeName, ValueName, ViewName, describe
from texpr.grammar.check.typing import Typed, Value, typed
from texpr.grammar.core import buffers_read, value_size
from texpr.grammar.index.expr import add, index_names, index_size, same
from texpr.grammar.index.linear import difference
from texpr.grammar.index.text import in_words
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span
from texpr.grammar.types import ELEMENT_TYPES, I64

Place = tuple[str, tuple[Subscript, ...]]


def shifted(start: Subscript, offset: Subscript, span: Span) -> Subscript:
    """The sum of two subscripts; a gather makes the sum a gather."""
    if not isinstance(start, ast.Gather) and not isinstance(offset, ast.Gather):
        return add(start, offset, span)
    left, right = (
        s.value if isinstance(s, ast.Gather) else ast.IndexValue(index=s, span=span) for s in (start, offset)
    )
    if isinstance(left, ast.IndexValue) and left.index == ast.IndexConst(value=0):
        return ast.Gather(value=right, span=span)
    if isinstance(right, ast.IndexValue) and right.index == ast.IndexConst(value=0):
        return ast.Gather(value=left, span=span)
    return ast.Gather(value=ast.Op(fn=Fn.ADD, args=(left, right), dtype=I64, span=span), span=span)


def view_named(ctx: Context, name: str, span: Span) -> ViewName:
    """The buffer or view of a name; E0201 for a name of another kind."""
    entity = ctx.lookup(name, span)
    if isinstance(entity, ViewName):
        return entity
    if isinstance(entity, ValueName | IndexName):
        raise refuse("E0203", f"`{name}` is {describe(entity)} and has no subscripts", span)
    if isinstance(entity, FnName | TypeName):
        raise refuse("E0201", f"`{name}` is {describe(entity)}, not a buffer", span, help=f"call it: {name}(…)")
    raise refuse("E0201", f"`{name}` is not a buffer", span)


# ---- subscripts


async def subscript(ctx: Context, e: syntax.Expr) -> Subscript:
    """An affine subscript, or a gather where the expression reads data."""
    index = try_index(ctx, e)
    if index is not None:
        return index
    value = await ctx.value(e)
    if isinstance(value, Typed):
        if isinstance(value.expr, ast.IndexValue):
            return value.expr.index
        if not buffers_read(value.expr):
            raise not_an_index(ctx, e, "a subscript")
    return _gather(value, e.span)


def _gather(value: Value, span: Span) -> ast.Gather:
    """The gathered subscript of an integer value; E0204 for any other."""
    if not isinstance(value, Typed) or not value.dtype.is_integer:
        found = value.dtype if isinstance(value, Typed) else value.default
        raise refuse("E0204", f"a subscript is an integer, this is {found}", span, help="cast it: i32(…)")
    expr = value.expr
    if expr.dtype != I64:
        expr = ast.Cast(operand=expr, dtype=I64, span=span)
    return ast.Gather(value=expr, span=span)


def _check_rank(ctx: Context, view: ViewName, e: syntax.View) -> None:
    if len(e.subscripts) == view.rank:
        return
    draft = ctx.buffers[view.buffer]
    count = f"{len(e.subscripts)} subscript{'s' * (len(e.subscripts) != 1)}"
    if draft.flat:
        raise refuse(
            "E0203", f"`{e.name}` is not declared, so it is flat, and has {count} here", e.span,
            help=f"declare it: kernel f({e.name}: f32[…, …]) {{ … }}",
        )  # fmt: skip
    if view.rank == 0:
        raise refuse("E0203", f"`{e.name}` is a scalar and has no subscripts", e.span, help=f"write {e.name}")
    raise refuse("E0203", f"`{e.name}` has {dims(view.rank)} and {count} here", e.span)


def dims(count: int) -> str:
    """The number of dimensions in words."""
    return "no dimensions" if count == 0 else f"{count} dimension{'s' * (count != 1)}"


# ---- elements


async def element(ctx: Context, e: syntax.View) -> Place:
    """The buffer and the subscripts of one element; E0203 for a wrong number of subscripts or a slice."""
    view = view_named(ctx, e.name, e.span)
    _check_rank(ctx, view, e)
    subscripts: list[Subscript] = []
    for part in e.subscripts:
        if isinstance(part, syntax.Slice):
            raise refuse(
                "E0203", "a slice names a view, and one element is wanted here", part.span,
                help=f"write one subscript, or name the view: let v = {e.name}[…]",
            )  # fmt: skip
        subscripts.append(await subscript(ctx, part))
    return place(ctx, view, tuple(subscripts), e.span)


def place(ctx: Context, view: ViewName, subscripts: tuple[Subscript, ...], span: Span) -> Place:
    """The element of a view at subscripts of its rank, as subscripts of the buffer."""
    for part in view.parts:
        if isinstance(part.start, ast.Gather):
            ctx.charge(value_size(part.start.value), span)
        else:
            ctx.charge(index_size(part.start), span)
    rest = iter(subscripts)
    parts = (shifted(part.start, next(rest), span) if part.sliced else part.start for part in view.parts)
    return view.buffer, tuple(parts)


def read(ctx: Context, at: Place, span: Span) -> Typed:
    """The value of an element."""
    buffer, subscripts = at
    return typed(ast.Read(buffer=buffer, subscripts=subscripts, dtype=ctx.type_of(buffer, span), span=span))


def read_scalar(ctx: Context, name: str, view: ViewName, span: Span) -> Typed:
    """The value of a name without subscripts; E0203 for an array."""
    if view.rank:
        raise refuse(
            "E0203", f"`{name}` has {dims(view.rank)} and stands here without subscripts", span,
            help=f"write {name}[{', '.join('…' for _ in view.shape)}]",
        )  # fmt: skip
    return read(ctx, place(ctx, view, (), span), span)


async def target(ctx: Context, e: syntax.View | syntax.Name) -> Place:
    """The element that a statement writes; E0209 for what cannot be written."""
    entity = ctx.lookup(e.name, e.span)
    if isinstance(e, syntax.View):
        if isinstance(entity, IndexName | ValueName):
            raise refuse("E0209", f"`{e.name}` is {describe(entity)} and cannot be written", e.span)
        check_writable(ctx, e.name, view_named(ctx, e.name, e.span), e.span)
        return await element(ctx, e)
    if not isinstance(entity, ViewName):
        raise refuse(
            "E0209", f"`{e.name}` is {describe(entity)} and cannot be written", e.span,
            help="use `new` for what is written",
        )  # fmt: skip
    check_writable(ctx, e.name, entity, e.span)
    if entity.rank:
        raise refuse(
            "E0203", f"`{e.name}` has {dims(entity.rank)} and stands here without subscripts", e.span,
            help=f"write {e.name}[{', '.join('…' for _ in entity.shape)}] = …",
        )  # fmt: skip
    return place(ctx, entity, (), e.span)


def check_writable(ctx: Context, name: str, view: ViewName, span: Span) -> None:
    """E0209 where the view cannot be written."""
    if view.frozen_as is not None:
        help = "declare it `out` or `inout`" if "parameter" in view.frozen_as else "use `new` for what is written"
        if "scalar" in view.frozen_as:
            help = f"take a buffer of rank 0 instead: {name}: {ctx.buffers[view.buffer].dtype}[]"
        raise refuse("E0209", f"`{name}` is {view.frozen_as} and cannot be written", span, help=help)
    if ctx.buffers[view.buffer].role is ast.Role.SCALAR:
        raise refuse("E0209", f"`{name}` is a scalar parameter and cannot be written", span)


# ---- views


async def view_of(ctx: Context, e: syntax.View | syntax.Name) -> ViewName:
    """The view that a name or a subscripted name with slices stands for."""
    view = view_named(ctx, e.name, e.span)
    if isinstance(e, syntax.Name):
        return view
    _check_rank(ctx, view, e)
    rest = iter(e.subscripts)
    parts: list[Part] = []
    shape: list[IndexExpr] = []
    for part in view.parts:
        if not part.sliced:
            parts.append(part)
            continue
        given = next(rest)
        sliced = isinstance(given, syntax.Slice)
        begin = given.start if isinstance(given, syntax.Slice) else given
        start = _kept(ctx, await subscript(ctx, begin), begin.span)
        if isinstance(given, syntax.Slice):
            shape.append(index(ctx, given.extent, "the extent"))
        parts.append(Part(start=shifted(part.start, start, given.span), sliced=sliced))
    return ViewName(buffer=view.buffer, parts=tuple(parts), shape=tuple(shape), frozen_as=view.frozen_as, alias=True)


def _kept(ctx: Context, start: Subscript, span: Span) -> Subscript:
    """Where a view begins, as it is here: a start that data gives is kept in a local of its own. Where evaluation
    is conditional, nothing is written before the view is read, so it needs none."""
    if not isinstance(start, ast.Gather) or ctx.conditional is not None:
        return start
    return ast.Gather(value=ctx.kept("start", start.value, span), span=span)


def has_slice(e: syntax.View) -> bool:
    return any(isinstance(part, syntax.Slice) for part in e.subscripts)


async def array_of(
    ctx: Context, e: syntax.Expr, returns_array: Callable[[syntax.FnDef], bool] = declares_array
) -> Result:
    """The array that an expression is. None for a scalar, which is not read; of a call that `returns_array` is true
    for, and which gives a scalar all the same, that scalar: a call is inlined once."""
    match e:
        case syntax.Name():
            entity = ctx.lookup(e.name, e.span)
            return entity if isinstance(entity, ViewName) and entity.rank else None
        case syntax.View() if has_slice(e):
            return await view_of(ctx, e)
        case syntax.Call():
            function = function_named(ctx, e.name)
            if function is not None and returns_array(function.definition):
                return await ctx.call(e, function)
    return None


def function_named(ctx: Context, name: str) -> FnName | None:
    found = ctx.scope.lookup(name)
    return found.entity if found is not None and isinstance(found.entity, FnName) else None


async def view_argument(ctx: Context, arg: syntax.Expr) -> ViewName | None:
    """The view that is passed where a function takes one, of rank 0 too; None for a value."""
    match arg:
        case syntax.Name():
            entity = ctx.lookup(arg.name, arg.span)
            return entity if isinstance(entity, ViewName) else None
        case syntax.View():
            return await view_of(ctx, arg)
        case syntax.Call() if arg.name not in ELEMENT_TYPES:
            function = function_named(ctx, arg.name)
            result: Result = await (ctx.value(arg) if function is None else ctx.call(arg, function))
            return result if isinstance(result, ViewName) else None
        case _:
            return None


def same_extent(ctx: Context, wanted: IndexExpr, actual: IndexExpr, span: Span) -> None:
    """E0207 where two extents differ; what only sizes decide becomes a fact of the kernel."""
    found = difference(wanted, actual)
    if found == 0:
        return
    texts = in_words(wanted), in_words(actual)
    if found is not None:
        raise refuse("E0207", f"an extent of {texts[0]} is wanted here, this one is {texts[1]}", span)
    if index_names(wanted) or index_names(actual):
        raise refuse(
            "E0207", f"the extent {texts[1]} is not {texts[0]} for every iteration", span,
            help="take a slice of the extent that the function wants",
        )  # fmt: skip
    stated = (f for f in ctx.facts if isinstance(f, ast.Compare) and f.op is ast.CompareOp.EQ)
    if not any(same(f.left, actual) and same(f.right, wanted) for f in stated):
        ctx.facts.append(ast.Compare(op=ast.CompareOp.EQ, left=actual, right=wanted, span=span))
