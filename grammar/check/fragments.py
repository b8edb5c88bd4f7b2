"""Reading `fragment(view, table.member, lane)`: registers of a lane as elements of a view, and back."""

from collections.abc import Callable
from typing import TypeGuard

from texpr.grammar import ast, syntax
from texpr.grammar.ast import IndexConst, IndexExpr, IndexVar
from texpr.grammar.check.context import Context
from texpr.grammar.check.indices import index
from texpr.grammar.check.loops import Loop, emit_loops
from texpr.grammar.check.scope import ViewName
from texpr.grammar.check.typing import Value, stored
from texpr.grammar.check.views import array_of, check_writable, place, read, same_extent, view_argument
from texpr.grammar.diagnostics import did_you_mean
from texpr.grammar.fragments import FRAGMENTS, Fragment
from texpr.grammar.refusals import refuse

FORM = "write fragment(view, mma16816.a, lane)"


def is_fragment(e: syntax.Expr) -> TypeGuard[syntax.Call]:
    return isinstance(e, syntax.Call) and e.name == "fragment"


async def fragment_elements(
    ctx: Context, e: syntax.Call, registers: ViewName
) -> Callable[[tuple[IndexExpr, ...]], Value]:
    """The relation from a register to an element of the view, as the value at a register's subscript."""
    view, fragment, lane = await _parts(ctx, e, registers)
    return lambda at: read(ctx, place(ctx, view, fragment.place(lane, at[0]), e.span), e.span)


async def _parts(ctx: Context, e: syntax.Call, registers: ViewName) -> tuple[ViewName, Fragment, IndexExpr]:
    if len(e.args) != 3:
        raise refuse("E0207", f"`fragment` takes 3 arguments and is given {len(e.args)}", e.span, help=FORM)
    first, member, last = e.args
    if isinstance(first, syntax.Slice) or isinstance(member, syntax.Slice) or isinstance(last, syntax.Slice):
        raise refuse("E0207", "a slice stands only in a subscript", e.span, help=FORM)
    if not isinstance(member, syntax.Member):
        raise refuse("E0207", "the second argument of `fragment` is a layout", member.span, help=FORM)
    table = FRAGMENTS.get(member.owner)
    if table is None or member.name not in table:
        known = [f"{owner}.{name}" for owner, names in FRAGMENTS.items() for name in names]
        wanted = f"{member.owner}.{member.name}"
        raise refuse(
            "E0201", f"`{wanted}` is not a fragment layout", member.span,
            help=did_you_mean(wanted, known, "the layouts are " + ", ".join(known)),
        )  # fmt: skip
    fragment = table[member.name]
    view = await view_argument(ctx, first)
    if view is None or view.rank != 2:
        raise refuse("E0207", "the first argument of `fragment` is a view of 2 dimensions", first.span)
    for wanted_extent, actual in zip((fragment.rows, fragment.columns), view.shape, strict=True):
        same_extent(ctx, IndexConst(value=wanted_extent), actual, first.span)
    if registers.rank != 1:
        raise refuse("E0207", f"this fragment has {fragment.registers} elements in each lane", e.span)
    same_extent(ctx, IndexConst(value=fragment.registers), registers.shape[0], e.span)
    return view, fragment, index(ctx, last, "the lane")


async def assign_fragment(ctx: Context, s: syntax.Assign, target: syntax.Call) -> None:
    """`fragment(v, table.member, lane) = r`: the bind through the relation, backwards."""
    if not is_fragment(target) or s.op != "=":
        raise refuse("E0209", f"`{target.name}(…)` cannot be written", target.span, help="only `fragment(…) = r`")
    source = await array_of(ctx, s.value)
    if not isinstance(source, ViewName):
        raise refuse("E0203", "a fragment is bound to an array of registers", s.value.span)
    view, fragment, lane = await _parts(ctx, target, source)
    first = target.args[0]
    check_writable(ctx, first.name if isinstance(first, syntax.Name | syntax.View) else "fragment", view, target.span)
    name = ctx.fresh("e")
    at = IndexVar(name=name, span=s.span)
    value = read(ctx, place(ctx, source, (at,), s.value.span), s.value.span)
    with ctx.inner() as body:
        buffer, subscripts = place(ctx, view, fragment.place(lane, at), target.span)
        expr = stored(value, ctx.type_of(buffer, target.span), s.value.span, f"`{buffer}`")
        ctx.bind(buffer, subscripts, expr, s.span, ctx.attrs)
    emit_loops(ctx, ast.Seq, [Loop(index=name, source_name=name, extent=source.shape[0], span=s.span)], body)
