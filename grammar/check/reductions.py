"""Reading reductions: a bind of the identity and a `seq` of accumulations, before the statement that holds them.

v[i] = sum K k { A[i, k] }    ->    v[i] = 0; seq K k { v[i] += A[i, k] }
v[i] = sum K k { let t = A[i, k]; t * t }    ->    v[i] = 0; seq K k { new t; t = A[i, k]; v[i] += t * t }
x = f(sum K k { A[i, k] })    ->    new sum; sum = 0; seq K k { sum += A[i, k] }; x = f(sum)
"""

from texpr.grammar import ast, syntax
from texpr.grammar.ast import AccOp
from texpr.grammar.check.scope import refuse
from texpr.grammar.check.typing import Typed, Value, identity, settle, update, wraps_first
from texpr.grammar.check.values import ValueReader
from texpr.grammar.check.views import Place
from texpr.grammar.core import buffers_of, buffers_read
from texpr.grammar.types import DType, compute_type

REDUCTIONS = {"sum": AccOp.ADD, "prod": AccOp.MUL, "maximum": AccOp.MAX, "minimum": AccOp.MIN}


class ReductionReader(ValueReader):
    """Reads reductions."""

    def reduction(self, e: syntax.Reduce, target: Place | None, name: str | None = None) -> Typed:
        """A `sum` and its kin: a bind of the identity and a `seq` of accumulations, into `target` or a fresh local
        called `name`.

        `target` is used where the body does not read that buffer; the value that comes back reads the result.
        """
        op = REDUCTIONS[e.op]
        with self.scoped():
            loops = self.open_loops(e.dims)
            attrs = self.loop_attributes(e.attrs, len(e.dims))
            with self.collecting() as body:
                for let in e.lets:
                    with self.deeper(let.span):
                        self.read_statement(let)
                value = self.value(e.body)
        if isinstance(value, Typed) and value.dtype.is_bool:
            help = "write i32(…) or f32(…) around it: 0 or 1"
            raise refuse("E0204", f"`{e.op}` is for numbers, this is bool", e.body.span, help=help)
        direct = target is not None and not self.touches(target, value, body) and not self.wraps(op, target, value)
        if target is not None and direct:
            buffer, subscripts = target
            dtype = self.settle_draft(buffer, value, computed=True)
            what = f"`{self.buffers[buffer].source_name}`"
        else:
            settled = settle(value)
            dtype = compute_type(settled.dtype)
            buffer, subscripts = self.local(name or e.op, dtype, (), e.span).name, ()
            what = f"`{e.op}`"
        amount = update(op, value, dtype, e.body.span, what)
        self.bind(buffer, subscripts, identity(op, dtype, e.span), e.span, self.attrs)
        body.append(
            ast.Accumulate(
                id="", op=op, buffer=buffer, subscripts=subscripts, value=amount, span=e.body.span, attrs=self.attrs,
                call_spans=self.call_spans,
            )
        )  # fmt: skip
        inner = tuple(body)
        for index, source_name, extent, span, low in reversed(loops):
            inner = (
                ast.Seq(
                    index=index, source_name=source_name, extent=extent, body=inner, attrs=attrs, span=span,
                    call_spans=self.call_spans, low=low,
                ),
            )  # fmt: skip
        self.emit(inner[0])
        narrow = value.narrow if isinstance(value, Typed) else None
        if not direct or target is None:
            read = ast.Read(buffer=buffer, subscripts=subscripts, dtype=dtype, span=e.span)
            return Typed(expr=read, narrow=narrow)
        return Typed(expr=ast.Read(buffer=buffer, subscripts=subscripts, dtype=dtype, span=e.span))

    def wraps(self, op: AccOp, target: Place, value: Value) -> bool:
        """Whether the elements would be wrapped to the target's type, and not what is reduced from them."""
        dtype = self.buffers[target[0]].dtype
        return dtype is not None and wraps_first(op, value, dtype)

    def touches(self, target: Place, value: Value, body: list[ast.Stmt]) -> bool:
        """Whether the body of a reduction reads the buffer that it is bound to, or the target is gathered."""
        buffer, subscripts = target
        if any(isinstance(s, ast.Gather) for s in subscripts):
            return True
        expr = settle(value).expr
        return buffer in buffers_read(expr) or any(buffer in buffers_of(statement) for statement in body)

    def settle_draft(self, buffer: str, value: Value, *, computed: bool = False) -> DType:
        """The buffer's type; the first bind of the seed's `new acc 16` gives it."""
        draft = self.buffers[buffer]
        if draft.dtype is None:
            dtype = settle(value).dtype
            draft.dtype = compute_type(dtype) if computed else dtype
        return draft.dtype
