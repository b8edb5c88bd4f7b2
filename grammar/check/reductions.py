"""Reading reductions: a bind of the identity and a `seq` of accumulations, before the statement that holds them.

v[i] = sum K k { A[i, k] }    ->    v[i] = 0; seq K k { v[i] += A[i, k] }
v[i] = sum K k { let t = A[i, k]; t * t }    ->    v[i] = 0; seq K k { new t; t = A[i, k]; v[i] += t * t }
x = f(sum K k { A[i, k] })    ->    new sum; sum = 0; seq K k { sum += A[i, k] }; x = f(sum)
"""

from texpr.grammar import ast, syntax
from texpr.grammar.ast import AccOp
from texpr.grammar.attributes import Construct
from texpr.grammar.check.context import Context
from texpr.grammar.check.loops import attributes, emit_loops, open_loops
from texpr.grammar.check.typing import Typed, Value, identity, settle, update, wraps_first
from texpr.grammar.check.views import Place
from texpr.grammar.core import buffers_of, buffers_read
from texpr.grammar.refusals import refuse
from texpr.grammar.types import DType, compute_type

REDUCTIONS = {"sum": AccOp.ADD, "prod": AccOp.MUL, "maximum": AccOp.MAX, "minimum": AccOp.MIN}


async def reduction(
    ctx: Context, e: syntax.Reduce, target: Place | None = None, *, name: str | None = None, continues: bool = False
) -> Typed:
    """A `sum` and its kin: a bind of the identity and a `seq` of accumulations, into `target` or a fresh local
    called `name`.

    `target` is used where the body does not read that buffer, and is not bound first where the reduction `continues`
    what is in it. The value that comes back reads the result.
    """
    op = REDUCTIONS[e.op]
    with ctx.inner() as body:
        loops = open_loops(ctx, e.dims)
        attrs = attributes(ctx, e.attrs, Construct.SEQ, len(e.dims))
        for let in e.lets:
            await ctx.statement(let)
        value = await ctx.value(e.body)
    if isinstance(value, Typed) and value.dtype.is_bool:
        help = "write i32(…) or f32(…) around it: 0 or 1"
        raise refuse("E0204", f"`{e.op}` is for numbers, this is bool", e.body.span, help=help)
    direct = target is not None and not _touches(target, value, body) and not _wraps(ctx, op, target, value)
    if target is not None and direct:
        (buffer, subscripts), what = target, ctx.called(target[0])
        dtype = settled_type(ctx, buffer, value, computed=True)
    else:
        dtype, what = compute_type(settle(value).dtype), f"`{e.op}`"
        buffer, subscripts = ctx.local(name or e.op, dtype, (), e.span).name, ()
    amount = update(op, value, dtype, e.body.span, what)
    if not (direct and continues):
        ctx.bind(buffer, subscripts, identity(op, dtype, e.span), e.span, ctx.attrs)
    step = ast.Accumulate(
        id="", op=op, buffer=buffer, subscripts=subscripts, value=amount, span=e.body.span, attrs=ctx.attrs,
        call_spans=ctx.call_spans,
    )  # fmt: skip
    emit_loops(ctx, ast.Seq, loops, (*body, step), attrs)
    narrow = value.narrow if isinstance(value, Typed) and not direct else None
    return Typed(expr=ast.Read(buffer=buffer, subscripts=subscripts, dtype=dtype, span=e.span), narrow=narrow)


def is_in(value: Typed, place: Place) -> bool:
    """Whether a reduction was made in the place itself, where it was to be bound."""
    return isinstance(value.expr, ast.Read) and value.expr.buffer == place[0] and value.expr.subscripts is place[1]


def _wraps(ctx: Context, op: AccOp, target: Place, value: Value) -> bool:
    """Whether the elements would be wrapped to the target's type, and not what is reduced from them."""
    dtype = ctx.buffers[target[0]].dtype
    return dtype is not None and wraps_first(op, value, dtype)


def _touches(target: Place, value: Value, body: list[ast.Stmt]) -> bool:
    """Whether the body of a reduction reads the buffer that it is bound to, or the target is gathered."""
    buffer, subscripts = target
    if any(isinstance(s, ast.Gather) for s in subscripts):
        return True
    expr = settle(value).expr
    return buffer in buffers_read(expr) or any(buffer in buffers_of(statement) for statement in body)


def settled_type(ctx: Context, buffer: str, value: Value, *, computed: bool = False) -> DType:
    """The buffer's type; the first bind of the seed's `new acc 16` gives it."""
    draft = ctx.buffers[buffer]
    if draft.dtype is None:
        dtype = settle(value).dtype
        draft.dtype = compute_type(dtype) if computed else dtype
    return draft.dtype
