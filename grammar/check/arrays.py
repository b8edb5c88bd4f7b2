"""Reading `reg` and binds of whole arrays: loops over the elements with one bind in them."""

from collections.abc import Callable
from functools import partial

from texpr.grammar import ast, syntax
from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.check.buffers import element_type, of_sizes, shape
from texpr.grammar.check.context import Context, whole
from texpr.grammar.check.fragments import fragment_elements, is_fragment
from texpr.grammar.check.loops import Loop, emit_loops
from texpr.grammar.check.scope import ViewName
from texpr.grammar.check.typing import Value, settle, stored
from texpr.grammar.check.views import array_of, check_writable, has_slice, place, read, same_extent, view_of
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place

Element = Callable[[tuple[IndexExpr, ...]], Value]


async def reg(ctx: Context, s: syntax.Reg) -> None:
    """`new reg` and one bind for each element."""
    found = None if is_fragment(s.value) else await array_of(ctx, s.value)
    value = found if not isinstance(found, ViewName) else None
    if s.type is not None:
        dtype, extents = element_type(ctx, s.type), shape(ctx, s.type)
    elif is_fragment(s.value):
        raise refuse("E0207", "a `reg` that is a fragment has a type", s.span, help=f"reg {s.name}: f16[8] = …")
    elif isinstance(found, ViewName):
        dtype = ctx.type_of(found.buffer, s.value.span)
        extents = tuple(of_sizes(extent, s.value.span) for extent in found.shape)
    else:
        value = settle(value if value is not None else await ctx.value(s.value))
        dtype, extents = value.dtype, ()
    draft = ctx.local(s.name, dtype, extents, s.span)
    draft.memory = "reg"
    target = whole(draft)
    if isinstance(found, ViewName):
        _copy(ctx, target, found, s.span, s.value.span)
    elif is_fragment(s.value):
        _fill(ctx, target, await fragment_elements(ctx, s.value, target), s.span)
    else:
        one = value if value is not None else await ctx.value(s.value)
        _fill(ctx, target, lambda _: one, s.span)
    ctx.define(s.name, target, name_place(s, s.name))


def is_array(ctx: Context, e: syntax.View | syntax.Name) -> bool:
    """Whether what is bound is more than one element."""
    if isinstance(e, syntax.View):
        return has_slice(e)
    found = ctx.scope.lookup(e.name)
    return found is not None and isinstance(found.entity, ViewName) and found.entity.rank > 0


async def assign_array(ctx: Context, s: syntax.Assign, target: syntax.View | syntax.Name) -> None:
    """`v[i:16, j:8] = f(…)`: one bind for each element."""
    view = await view_of(ctx, target)
    check_writable(ctx, target.name, view, target.span)
    source = await array_of(ctx, s.value)
    if not isinstance(source, ViewName):
        raise refuse(
            "E0203", "a slice is bound to a function's array or to another view, and this is one value",
            s.value.span, help="write the loop: par N i { v[i] = … }",
        )  # fmt: skip
    _copy(ctx, view, source, s.span, s.value.span)


def _copy(ctx: Context, target: ViewName, source: ViewName, span: Span, source_span: Span) -> None:
    if target.rank != source.rank:
        raise refuse("E0203", f"the left side has rank {target.rank} and this rank {source.rank}", source_span)
    for wanted, actual in zip(target.shape, source.shape, strict=True):
        same_extent(ctx, wanted, actual, source_span)
    _fill(ctx, target, lambda at: read(ctx, place(ctx, source, at, source_span), source_span), span)


def _fill(ctx: Context, target: ViewName, element: Element, span: Span) -> None:
    """Loops over a view's elements with a bind in them: `seq` where one thread owns it, else `par`."""
    names = [ctx.fresh(f"e{d}" if target.rank > 1 else "e") for d in range(target.rank)]
    at = tuple(IndexVar(name=name, span=span) for name in names)
    dtype = ctx.type_of(target.buffer, span)
    with ctx.inner() as body:
        value = stored(element(at), dtype, span, ctx.called(target.buffer))
        ctx.bind(*place(ctx, target, at, span), value, span, ctx.attrs)
    loops = [
        Loop(index=name, source_name=name, extent=extent, span=span)
        for name, extent in zip(names, target.shape, strict=True)
    ]
    private = ctx.fully or ctx.buffers[target.buffer].memory == "reg"
    ctx.bands += not private
    emit_loops(ctx, ast.Seq if private else partial(ast.Par, band=ctx.bands), loops, body)
