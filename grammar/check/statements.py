"""Reading statements: loops, binds and updates, locals, `let`, `if`, `anchor`, `atomic`, calls.

A statement that is refused is reported, the names that it would have defined are poisoned, and the next one is read.
"""

from functools import partial
from typing import assert_never

from texpr.grammar import ast, syntax
from texpr.grammar.ast import AccOp, Attr, Fn
from texpr.grammar.attributes import Construct
from texpr.grammar.check.arrays import assign_array, is_array, reg
from texpr.grammar.check.assembly import asm
from texpr.grammar.check.buffers import new
from texpr.grammar.check.context import Context
from texpr.grammar.check.fragments import assign_fragment
from texpr.grammar.check.functions import is_effectless, may_return_view
from texpr.grammar.check.indices import try_condition, try_index
from texpr.grammar.check.loops import attributes, emit_loops, open_loops
from texpr.grammar.check.nested import Nested
from texpr.grammar.check.reductions import REDUCTIONS, is_in, reduction, settled_type
from texpr.grammar.check.scope import Entity, IndexName, Poison, ValueName, ViewName
from texpr.grammar.check.typing import Typed, Untyped, Value, joined, operation, settle, stored, update, wraps_first
from texpr.grammar.check.values import as_index, truth_of
from texpr.grammar.check.views import Place, array_of, function_named, target
from texpr.grammar.permissions import unique_of
from texpr.grammar.refusals import LimitError, RefusedError, refuse
from texpr.grammar.source import Span
from texpr.grammar.surface import alike, name_place
from texpr.grammar.types import DType

UPDATES = {"+=": AccOp.ADD, "-=": AccOp.ADD, "*=": AccOp.MUL, "max=": AccOp.MAX, "min=": AccOp.MIN}


async def statements(ctx: Context, body: tuple[syntax.Stmt, ...]) -> None:
    """Check statements in the current scope and emit their core."""
    for statement in body:
        try:
            await ctx.statement(statement)
        except LimitError:
            raise
        except RefusedError as refused:
            ctx.report(refused)
            _poison(ctx, statement)


def _poison(ctx: Context, s: syntax.Stmt) -> None:
    """Enter the name that a refused statement would have defined, so that its uses are silent."""
    if isinstance(s, syntax.New | syntax.Let | syntax.Reg) and ctx.scope.lookup(s.name) is None:
        ctx.define(s.name, Poison(), s.span)


async def read_statement(ctx: Context, s: syntax.Stmt) -> None:
    """Check one statement and emit its core; what it defines is in the current scope."""
    match s:
        case syntax.Par():
            await _par(ctx, s)
        case syntax.Seq():
            await _seq(ctx, s)
        case syntax.Assign() | syntax.Atomic():
            with ctx.within(attrs=attributes(ctx, s.attrs, Construct.STATEMENT)):
                await (_assign(ctx, s) if isinstance(s, syntax.Assign) else _atomic(ctx, s))
        case syntax.New():
            new(ctx, s)
        case syntax.Let():
            ctx.define(s.name, await _meaning(ctx, s), name_place(s, s.name))
        case syntax.Reg():
            await reg(ctx, s)
        case syntax.If():
            await _choice(ctx, s, s.condition)
        case syntax.Anchor():
            value = settle(await ctx.value(s.value)).expr
            ctx.emit(ast.Anchor(id="", value=value, span=s.span, call_spans=ctx.call_spans))
        case syntax.Asm():
            await asm(ctx, s)
        case syntax.CallStmt():
            await _call(ctx, s)
        case syntax.Return():
            where = "at the end of a `fn`" if ctx.calls else "in a `fn`"
            raise refuse("E0212", f"`return` stands only {where}", s.span)
        case syntax.SizeDef():
            raise refuse("E0212", "`size` stands at file or kernel level", s.span, help="move it to the top")
        case _:
            assert_never(s)


# ---- loops and conditions --------------------------------------------------------------------------------------


async def _par(ctx: Context, s: syntax.Par) -> None:
    if s.fully and ctx.fully_text:
        raise refuse("E0212", "`fully par` does not nest in the text", s.span, help="make the inner one a `par`")
    ctx.bands += 1
    band = ctx.bands
    with ctx.inner() as body:
        loops = open_loops(ctx, s.dims)
        attrs = attributes(ctx, s.attrs, Construct.FULLY if s.fully else Construct.PAR, len(s.dims))
        if s.fully and ctx.fully:
            attrs = (*attrs, Attr(name="collective", span=s.span))
        with ctx.within(fully=ctx.fully or s.fully, fully_text=ctx.fully_text or s.fully):
            await statements(ctx, s.body.body)
    emit_loops(ctx, partial(ast.Par, band=band, fully=s.fully), loops, body, attrs)


async def _seq(ctx: Context, s: syntax.Seq) -> None:
    with ctx.inner() as body:
        loops = open_loops(ctx, s.dims)
        attrs = attributes(ctx, s.attrs, Construct.SEQ, len(s.dims))
        await statements(ctx, s.body.body)
    emit_loops(ctx, ast.Seq, loops, body, attrs)


async def _choice(ctx: Context, s: syntax.If, condition: syntax.Expr) -> None:
    """`if`: affine parts restrict the domain, a part that reads data is a fresh bool local."""
    affine = try_condition(ctx, condition)
    rest: syntax.Expr | None = None
    if affine is None and isinstance(condition, syntax.Binary) and condition.op == "and" and s.orelse is None:
        affine = try_condition(ctx, condition.left)
        rest = condition.right if affine is not None else None
    chosen: ast.Condition | ast.Read
    chosen = affine if affine is not None else ctx.kept("condition", await truth_of(ctx, condition), condition.span)
    with ctx.inner() as yes:
        if rest is None:
            await statements(ctx, s.then.body)
        else:
            await Nested(_choice(ctx, s, rest))
    with ctx.inner() as no:
        if isinstance(s.orelse, syntax.If):
            ctx.deeper(s.orelse.span)
            await Nested(_choice(ctx, s.orelse, s.orelse.condition))
        elif s.orelse is not None:
            await statements(ctx, s.orelse.body)
    ctx.emit(ast.If(condition=chosen, then=tuple(yes), orelse=tuple(no), span=s.span, call_spans=ctx.call_spans))


# ---- binds and updates -----------------------------------------------------------------------------------------


async def _assign(ctx: Context, s: syntax.Assign) -> None:
    if isinstance(s.target, syntax.Call):
        await assign_fragment(ctx, s, s.target)
        return
    if s.op == "=" and is_array(ctx, s.target):
        await assign_array(ctx, s, s.target)
        return
    place = await target(ctx, s.target)
    _check_gather(ctx, place, s.target.span)
    if s.op != "=":
        await _accumulate(ctx, s, place)
        return
    value: Value
    other = _same_element(s)
    if other is not None:
        op, e = other
        found = await ctx.value(e)
        dtype = settled_type(ctx, place[0], found)
        if not wraps_first(op, found, dtype):
            _emit_update(ctx, place, op, update(op, found, dtype, e.span, ctx.called(place[0])), s.span)
            return
        fn = Fn.MAX if op is AccOp.MAX else Fn.MIN
        both = (await ctx.value(s.target), found)
        value = operation(fn, both, joined(both, s.value.span, f"`{fn.value}`"), s.value.span)
    elif isinstance(s.value, syntax.Reduce):
        value = await reduction(ctx, s.value, place)
        if is_in(value, place):
            return
    else:
        value = await ctx.value(s.value)
    dtype = settled_type(ctx, place[0], value)
    ctx.bind(*place, stored(value, dtype, s.value.span, ctx.called(place[0])), s.span, ctx.attrs)


def _same_element(s: syntax.Assign) -> tuple[AccOp, syntax.Expr] | None:
    """`v = max(v, e)` on one element: the operator and e."""
    if not isinstance(s.value, syntax.Call) or s.value.name not in ("max", "min") or len(s.value.args) != 2:
        return None
    first, second = s.value.args
    op = AccOp.MAX if s.value.name == "max" else AccOp.MIN
    if isinstance(first, syntax.Slice) or isinstance(second, syntax.Slice):
        return None
    if alike(first, s.target):
        return op, second
    return (op, first) if alike(second, s.target) else None


async def _accumulate(ctx: Context, s: syntax.Assign, place: Place) -> None:
    """An update; `v += sum K k { e }` accumulates into v itself where the body does not read it."""
    op = UPDATES[s.op]
    value: Value
    if isinstance(s.value, syntax.Reduce) and s.op != "-=" and REDUCTIONS[s.value.op] is op:
        value = await reduction(ctx, s.value, place, continues=True)
        if is_in(value, place):
            return
        span = s.value.span
    else:
        value, span = await ctx.value(s.value), s.span
    _emit_update(ctx, place, op, _amount(ctx, s, value, settled_type(ctx, place[0], value), place[0]), span)


def _amount(ctx: Context, s: syntax.Assign | syntax.Atomic, value: Value, dtype: DType, buffer: str) -> ast.Expr:
    """The value of an update in the type that it is computed in; `-=` adds the negation."""
    if s.op == "-=" and isinstance(value, Typed) and value.dtype.is_bool:
        raise refuse("E0204", "`-=` is for numbers, this is bool", s.value.span)
    expr = update(UPDATES[s.op], value, dtype, s.value.span, ctx.called(buffer))
    if s.op == "-=":
        return ast.Op(fn=Fn.NEG, args=(expr,), dtype=expr.dtype, span=s.value.span)
    return expr


def _emit_update(ctx: Context, place: Place, op: AccOp, value: ast.Expr, span: Span) -> None:
    buffer, subscripts = place
    ctx.emit(
        ast.Accumulate(
            id="", op=op, buffer=buffer, subscripts=subscripts, value=value, span=span,
            attrs=ctx.written_attrs(subscripts, ctx.attrs), call_spans=ctx.call_spans,
        )
    )  # fmt: skip


def _check_gather(ctx: Context, place: Place, span: Span) -> None:
    """E0209 for a gathered write without a promise that no two iterations meet."""
    if not any(isinstance(s, ast.Gather) for s in place[1]):
        return
    if unique_of((*ctx.attrs, *ctx.kernel_attrs)):
        return
    raise refuse(
        "E0209", "a gathered element is written without `atomic` or `#unique`", span,
        help="write `atomic v[…] += e`, or promise with `#unique` that no two iterations meet",
    )  # fmt: skip


async def _atomic(ctx: Context, s: syntax.Atomic) -> None:
    if s.op not in UPDATES:
        raise refuse("E0212", "`atomic` needs an update", s.span, help="write += -= *= max= or min=")
    buffer, subscripts = await target(ctx, s.target)
    value = await ctx.value(s.value)
    amount = _amount(ctx, s, value, settled_type(ctx, buffer, value), buffer)
    ctx.emit(
        ast.Atomic(
            id="", op=UPDATES[s.op], buffer=buffer, subscripts=subscripts, value=amount, span=s.span,
            attrs=ctx.written_attrs(subscripts, ctx.attrs), call_spans=ctx.call_spans,
        )
    )  # fmt: skip


# ---- names and calls -------------------------------------------------------------------------------------------


async def _meaning(ctx: Context, s: syntax.Let) -> Entity:
    """What a `let` names: a view, an index expression, a literal or an affine condition as it is, else a local."""
    if isinstance(s.value, syntax.Reduce):
        ctx.unconditional(s.value.span, f"`{s.value.op}`")
        total = (await reduction(ctx, s.value, name=s.name)).expr
        assert isinstance(total, ast.Read), "a reduction gives its local"
        return _scalar(total)
    index = try_index(ctx, s.value)
    if index is not None and not isinstance(s.value, syntax.IntLit):
        return IndexName(index=index, what="a `let`")
    found = await array_of(ctx, s.value, may_return_view)
    if isinstance(found, ViewName):
        return found
    value = found if found is not None else await ctx.value(s.value)
    literal = isinstance(value, Untyped) and value.constant is not None
    affine = isinstance(value, Typed) and isinstance(value.expr, ast.ConditionValue)
    if literal or affine or ctx.conditional is not None:
        return ValueName(value=value)
    index = as_index(value)
    if index is not None:
        return IndexName(index=index, what="a `let`")
    return _scalar(ctx.kept(s.name, settle(value).expr, s.span))


def _scalar(kept: ast.Read) -> ViewName:
    """The name of a local that a `let` binds."""
    return ViewName(buffer=kept.buffer, parts=(), shape=(), frozen_as="a `let`")


async def _call(ctx: Context, s: syntax.CallStmt) -> None:
    function = function_named(ctx, s.call.name)
    if function is None:
        await ctx.value(s.call)
        raise refuse("E0212", f"`{s.call.name}(…)` has no effect here", s.span, help="bind its value")
    if any(isinstance(arg, syntax.Slice) for arg in s.call.args):
        raise refuse("E0207", "a slice stands only in a subscript", s.call.span)
    if is_effectless(function.definition):
        raise refuse("E0212", f"`{s.call.name}(…)` has no effect here", s.span, help="bind its value")
    await ctx.call(s.call, function)
