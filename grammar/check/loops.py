"""Reading the loops of a band: extents, ranges, indices, attributes; and putting them around a body."""

from collections.abc import Callable, Sequence

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr, IndexConst, IndexExpr, IndexVar
from texpr.grammar.attributes import Construct, check_attributes
from texpr.grammar.check.context import Context
from texpr.grammar.check.indices import index, operands, try_index
from texpr.grammar.check.scope import IndexName
from texpr.grammar.index.expr import ZERO, add, size_names, substitute, subtract
from texpr.grammar.records import dataclass
from texpr.grammar.refusals import RefusedError
from texpr.grammar.source import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop of a band: `index` is its name in the core, from 0; the author's `source_name` runs from `low`."""

    index: str
    source_name: str
    extent: IndexExpr
    span: Span
    low: IndexExpr = ZERO


def open_loops(ctx: Context, dims: tuple[syntax.Dim, ...]) -> list[Loop]:
    """Enter the indices of a band into the scope; a refused extent is reported and taken as 1."""
    return [_open(ctx, dim) for dim in dims]


def _open(ctx: Context, dim: syntax.Dim) -> Loop:
    low: IndexExpr = ZERO
    try:
        if isinstance(dim.extent, syntax.Range):
            low = index(ctx, dim.extent.low, "the extent")
            extent = subtract(index(ctx, dim.extent.high, "the extent"), low, dim.extent.span)
            _check_divisions(ctx, dim.extent.low)
            _check_divisions(ctx, dim.extent.high)
        else:
            extent = index(ctx, dim.extent, "the extent")
            _check_divisions(ctx, dim.extent)
    except RefusedError as refused:
        ctx.report(refused)
        extent = IndexConst(value=1)
    name = ctx.fresh(dim.index)
    span = dim.index_span if dim.index_span.source.text else dim.span
    shifted = add(IndexVar(name=name, span=span), low, span)
    ctx.define(dim.index, IndexName(index=shifted, what="an index"), span)
    return Loop(index=name, source_name=dim.index, extent=extent, span=dim.span, low=low)


def emit_loops(
    ctx: Context,
    kind: Callable[..., ast.Par | ast.Seq],
    loops: Sequence[Loop],
    body: Sequence[ast.Stmt],
    attrs: tuple[Attr, ...] = (),
) -> None:
    """Emit the body inside the loops, the first one outermost; `kind` makes one loop."""
    inner = tuple(body)
    for loop in reversed(loops):
        inner = (
            kind(
                index=loop.index, source_name=loop.source_name, extent=loop.extent, body=inner, attrs=attrs,
                span=loop.span, call_spans=ctx.call_spans, low=loop.low,
            ),
        )  # fmt: skip
    for statement in inner:
        ctx.emit(statement)


def attributes(ctx: Context, attrs: tuple[syntax.Attr, ...], construct: Construct, dims: int = 1) -> tuple[Attr, ...]:
    """The core attributes of a construct; a refused one is reported and left out."""
    if not attrs:
        return ()
    try:
        return check_attributes(attrs, construct, lambda e: index(ctx, e, "an argument"), dims)
    except RefusedError as refused:
        ctx.report(refused)
        return ()


# ---- divisions that leave a remainder --------------------------------------------------------------------------


EXACT = "write ceildiv(…) and guard the last part, or state the divisibility"


def missed_range(value: int, divisor: int) -> str:
    """The sentence of W0302 for `value / divisor`."""
    covered = value // divisor * divisor
    which = f"{covered}" if covered == value - 1 else f"{covered} to {value - 1}"
    return f"{value} / {divisor} floors: {which} of {value} are missed"


def _check_divisions(ctx: Context, extent: syntax.Expr) -> None:
    """W0302 for a floor division of constants in an extent that leaves a remainder."""
    stack = [extent]
    while stack:
        e = stack.pop()
        inside = operands(e)
        if inside is None:
            continue
        stack += reversed(inside[1])
        if inside[0] is not ast.IndexOp.DIV:
            continue
        left, right = (try_index(ctx, part) for part in inside[1])
        if left is not None and right is not None:
            a, b = _with_defaults(ctx, left), _with_defaults(ctx, right)
            if isinstance(a, IndexConst) and isinstance(b, IndexConst) and b.value > 0 and a.value % b.value:
                ctx.warn("W0302", missed_range(a.value, b.value), e.span, help=EXACT)


def _with_defaults(ctx: Context, expression: IndexExpr) -> IndexExpr:
    """The expression with the `size` constants and bound sizes replaced by their values."""
    values = {name: size.default for name, size in ctx.sizes.items() if size.default is not None}
    if not any(name in values for name in size_names(expression)):
        return expression

    def leaf(node: ast.IndexVar | ast.SizeVar) -> IndexExpr | None:
        value = values.get(node.name) if isinstance(node, ast.SizeVar) else None
        return None if value is None else IndexConst(value=value)

    return substitute(expression, leaf)
