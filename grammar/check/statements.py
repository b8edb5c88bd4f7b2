"""Reading statements: loops, binds and updates, locals, `let`, `if`, `anchor`, `atomic`, calls.

A statement that is refused is reported, the names that it would have defined are poisoned, and the next one is read.
"""

from collections.abc import Callable
from typing import assert_never

from texpr.grammar import ast, syntax
from texpr.grammar.ast import AccOp, Attr, Fn
from texpr.grammar.attributes import Place
from texpr.grammar.check.arrays import ArrayReader
from texpr.grammar.check.reductions import REDUCTIONS
from texpr.grammar.check.scope import FnName, IndexName, LimitError, Poison, RefusedError, ValueName, ViewName, refuse
from texpr.grammar.check.typing import Typed, Untyped, Value, operation, settle, stored, update, wraps_first
from texpr.grammar.check.values import as_index
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place
from texpr.grammar.types import BOOL, DType

UPDATES = {"+=": AccOp.ADD, "-=": AccOp.ADD, "*=": AccOp.MUL, "max=": AccOp.MAX, "min=": AccOp.MIN}
Subscripts = tuple[ast.Subscript, ...]


class StatementReader(ArrayReader):
    """Reads statements into the current block."""

    def statements(self, block: syntax.Block) -> None:
        for statement in block.body:
            try:
                with self.deeper(statement.span):
                    self.read_statement(statement)
            except LimitError:
                raise
            except RefusedError as refused:
                self.report(refused)
                self.poison(statement)

    def poison(self, statement: syntax.Stmt) -> None:
        """Enter the name that a refused statement would have defined, so that its uses are silent."""
        if not isinstance(statement, syntax.New | syntax.Let | syntax.Reg):
            return
        if self.scope.lookup(statement.name) is None:
            self.define(statement.name, Poison(), statement.span)

    def read_statement(self, statement: syntax.Stmt) -> None:
        before = self.attrs
        try:
            match statement:
                case syntax.Par():
                    self.par(statement)
                case syntax.Seq():
                    self.seq(statement)
                case syntax.Assign():
                    self.attrs = self.attributes(statement.attrs, Place.STATEMENT)
                    self.assign(statement)
                case syntax.Atomic():
                    self.attrs = self.attributes(statement.attrs, Place.STATEMENT)
                    self.atomic(statement)
                case syntax.New():
                    self.new(statement)
                case syntax.Let():
                    self.let(statement)
                case syntax.Reg():
                    self.reg(statement)
                case syntax.If():
                    self.choice(statement)
                case syntax.Anchor():
                    value = settle(self.value(statement.value)).expr
                    self.emit(ast.Anchor(id="", value=value, span=statement.span, call_spans=self.call_spans))
                case syntax.Asm():
                    self.asm(statement)
                case syntax.CallStmt():
                    self.call_statement(statement)
                case syntax.Return():
                    where = "at the end of a `fn`" if self.calls else "in a `fn`"
                    raise refuse("E0212", f"`return` stands only {where}", statement.span)
                case syntax.SizeDef():
                    raise refuse(
                        "E0212", "`size` stands at file or kernel level", statement.span, help="move it to the top"
                    )
                case _:
                    assert_never(statement)
        finally:
            self.attrs = before

    # ---- loops and conditions

    def par(self, s: syntax.Par) -> None:
        if s.fully and self.fully_text:
            raise refuse("E0212", "`fully par` does not nest in the text", s.span, help="make the inner one a `par`")
        before = self.fully_text, self.fully_depth
        collective = s.fully and self.fully_depth > 0
        self.bands += 1
        band = self.bands
        with self.scoped():
            loops = self.open_loops(s.dims)
            attrs = self.attributes(s.attrs, Place.FULLY if s.fully else Place.PAR, len(s.dims))
            if collective:
                attrs = (*attrs, Attr(name="collective", span=s.span))
            self.fully_text = self.fully_text or s.fully
            self.fully_depth += s.fully
            with self.collecting() as body:
                self.statements(s.body)
            self.fully_text, self.fully_depth = before
        inner = tuple(body)
        for index, source_name, extent, span, low in reversed(loops):
            inner = (
                ast.Par(
                    index=index, source_name=source_name, extent=extent, band=band, fully=s.fully, body=inner,
                    attrs=attrs, span=span, call_spans=self.call_spans, low=low,
                ),
            )  # fmt: skip
        self.emit(inner[0])

    def seq(self, s: syntax.Seq) -> None:
        with self.scoped():
            loops = self.open_loops(s.dims)
            attrs = self.attributes(s.attrs, Place.SEQ, len(s.dims))
            with self.collecting() as body:
                self.statements(s.body)
        inner = tuple(body)
        for index, source_name, extent, span, low in reversed(loops):
            inner = (
                ast.Seq(
                    index=index, source_name=source_name, extent=extent, body=inner, attrs=attrs, span=span,
                    call_spans=self.call_spans, low=low,
                ),
            )  # fmt: skip
        self.emit(inner[0])

    def choice(self, s: syntax.If) -> None:
        """`if`: affine parts restrict the domain, a part that reads data is a fresh bool local."""
        self.branch(s, s.condition)

    def branch(self, s: syntax.If, condition: syntax.Expr) -> None:
        affine = self.try_condition(condition)
        if affine is not None:
            self.emit_if(affine, lambda: self.block_of(s.then), s)
            return
        if isinstance(condition, syntax.Binary) and condition.op == "and" and s.orelse is None:
            first = self.try_condition(condition.left)
            if first is not None:
                self.emit_if(first, lambda: self.branch(s, condition.right), s)
                return
        value = self.truth_of(self.value(condition), condition.span)
        draft = self.local("condition", BOOL, (), condition.span)
        self.bind(draft.name, (), value, condition.span, ())
        read = ast.Read(buffer=draft.name, subscripts=(), dtype=BOOL, span=condition.span)
        self.emit_if(read, lambda: self.block_of(s.then), s)

    def emit_if(self, condition: ast.Condition | ast.Read, then: Callable[[], None], s: syntax.If) -> None:
        with self.collecting() as yes:
            then()
        with self.collecting() as no:
            if isinstance(s.orelse, syntax.If):
                with self.scoped(), self.deeper(s.orelse.span):
                    self.choice(s.orelse)
            elif s.orelse is not None:
                self.block_of(s.orelse)
        self.emit(
            ast.If(condition=condition, then=tuple(yes), orelse=tuple(no), span=s.span, call_spans=self.call_spans)
        )

    def block_of(self, block: syntax.Block) -> None:
        with self.scoped():
            self.statements(block)

    # ---- binds and updates

    def assign(self, s: syntax.Assign) -> None:
        if isinstance(s.target, syntax.Call):
            self.assign_fragment(s, s.target)
            return
        if s.op == "=" and self.is_array(s.target):
            self.assign_array(s, s.target)
            return
        place = self.target(s.target)
        self.check_gather(place[1], s.target.span)
        if s.op != "=":
            self.accumulate(s, place)
            return
        value: Value
        other = self.same_element(s)
        if other is not None:
            op, e = other
            found = self.value(e)
            dtype = self.settle_draft(place[0], found)
            if not wraps_first(op, found, dtype):
                self.emit_update(place, op, update(op, found, dtype, e.span, self.called_buffer(place[0])), s.span)
                return
            fn = Fn.MAX if op is AccOp.MAX else Fn.MIN
            value = operation(fn, (self.value(s.target), found), s.value.span, f"`{fn.value}`")
        elif isinstance(s.value, syntax.Reduce):
            result = self.reduction(s.value, place)
            if isinstance(result.expr, ast.Read) and (result.expr.buffer, result.expr.subscripts) == place:
                return
            value = result
        else:
            value = self.value(s.value)
        dtype = self.settle_draft(place[0], value)
        expr = stored(value, dtype, s.value.span, self.called_buffer(place[0]))
        self.bind(place[0], place[1], expr, s.span, self.attrs)

    def same_element(self, s: syntax.Assign) -> tuple[AccOp, syntax.Expr] | None:
        """`v = max(v, e)` on one element: the operator and e."""
        if not isinstance(s.value, syntax.Call) or s.value.name not in ("max", "min") or len(s.value.args) != 2:
            return None
        first, second = s.value.args
        op = AccOp.MAX if s.value.name == "max" else AccOp.MIN
        if isinstance(first, syntax.Slice) or isinstance(second, syntax.Slice):
            return None
        if first == s.target:
            return op, second
        return (op, first) if second == s.target else None

    def called_buffer(self, buffer: str) -> str:
        return f"`{self.buffers[buffer].source_name}`"

    def accumulate(self, s: syntax.Assign, place: tuple[str, Subscripts]) -> None:
        op = UPDATES[s.op]
        if isinstance(s.value, syntax.Reduce) and s.op != "-=" and REDUCTIONS[s.value.op] is op:
            self.accumulate_reduction(s.value, place, op)
            return
        value = self.value(s.value)
        dtype = self.settle_draft(place[0], value)
        self.emit_update(place, op, self.amount(s, value, dtype, place[0]), s.span)

    def amount(self, s: syntax.Assign | syntax.Atomic, value: Value, dtype: DType, buffer: str) -> ast.Expr:
        """The value of an update in the type that it is computed in; `-=` adds the negation."""
        if s.op == "-=" and isinstance(value, Typed) and value.dtype.is_bool:
            raise refuse("E0204", "`-=` is for numbers, this is bool", s.value.span)
        expr = update(UPDATES[s.op], value, dtype, s.value.span, self.called_buffer(buffer))
        if s.op == "-=":
            return ast.Op(fn=Fn.NEG, args=(expr,), dtype=expr.dtype, span=s.value.span)
        return expr

    def accumulate_reduction(self, e: syntax.Reduce, place: tuple[str, Subscripts], op: AccOp) -> None:
        """`v += sum K k { e }`: the accumulations alone, where the body does not read v."""
        with self.collecting() as body:
            value = self.reduction(e, place)
        direct = isinstance(value.expr, ast.Read) and (value.expr.buffer, value.expr.subscripts) == place
        for statement in body:
            if direct and isinstance(statement, ast.Bind) and (statement.buffer, statement.subscripts) == place:
                continue
            self.emit(statement)
        if not direct:
            dtype = self.settle_draft(place[0], value)
            self.emit_update(place, op, update(op, value, dtype, e.span, self.called_buffer(place[0])), e.span)

    def emit_update(self, place: tuple[str, Subscripts], op: AccOp, value: ast.Expr, span: Span) -> None:
        self.emit(
            ast.Accumulate(
                id="", op=op, buffer=place[0], subscripts=place[1], value=value, span=span,
                attrs=self.written_attrs(place[1], self.attrs), call_spans=self.call_spans,
            )
        )  # fmt: skip

    def check_gather(self, subscripts: Subscripts, span: Span) -> None:
        """E0209 for a gathered write without a promise that no two iterations meet."""
        if not any(isinstance(s, ast.Gather) for s in subscripts):
            return
        if any(attr.name == "unique" for attr in (*self.attrs, *self.kernel_attrs)):
            return
        raise refuse(
            "E0209", "a gathered element is written without `atomic` or `#unique`", span,
            help="write `atomic v[…] += e`, or promise with `#unique` that no two iterations meet",
        )  # fmt: skip

    def atomic(self, s: syntax.Atomic) -> None:
        if s.op not in UPDATES:
            raise refuse("E0212", "`atomic` needs an update", s.span, help="write += -= *= max= or min=")
        place = self.target(s.target)
        value = self.value(s.value)
        dtype = self.settle_draft(place[0], value)
        self.emit(
            ast.Atomic(
                id="", op=UPDATES[s.op], buffer=place[0], subscripts=place[1],
                value=self.amount(s, value, dtype, place[0]), span=s.span,
                attrs=self.written_attrs(place[1], self.attrs), call_spans=self.call_spans,
            )
        )  # fmt: skip

    # ---- names

    def let(self, s: syntax.Let) -> None:
        view = self.let_view(s.value)
        if view is not None:
            self.define(s.name, view, name_place(s, s.name))
            return
        if isinstance(s.value, syntax.Reduce):
            self.unconditional(s.value.span, f"`{s.value.op}`")
            total = self.reduction(s.value, None, s.name).expr
            assert isinstance(total, ast.Read), "a reduction gives its local"
            self.define(
                s.name, ViewName(buffer=total.buffer, parts=(), shape=(), frozen_as="a `let`"), name_place(s, s.name)
            )
            return
        index = self.try_index(s.value)
        if index is not None and not isinstance(s.value, syntax.IntLit):
            self.define(s.name, IndexName(index=index, what="a `let`"), name_place(s, s.name))
            return
        value = self.value(s.value)
        literal = isinstance(value, Untyped) and value.constant is not None
        affine = isinstance(value, Typed) and isinstance(value.expr, ast.ConditionValue)
        if literal or affine or self.conditional is not None:
            self.define(s.name, ValueName(value=value), name_place(s, s.name))
            return
        if as_index(value) is not None and isinstance(value, Typed):
            assert isinstance(value.expr, ast.IndexValue), "as_index gave its index"
            self.define(s.name, IndexName(index=value.expr.index, what="a `let`"), name_place(s, s.name))
            return
        typed = settle(value)
        draft = self.local(s.name, typed.dtype, (), s.span)
        self.bind(draft.name, (), typed.expr, s.span, ())
        self.define(s.name, ViewName(buffer=draft.name, parts=(), shape=(), frozen_as="a `let`"), name_place(s, s.name))

    def let_view(self, e: syntax.Expr) -> ViewName | None:
        """The view that a `let` names, or None for a scalar."""
        match e:
            case syntax.View() if any(isinstance(s, syntax.Slice) for s in e.subscripts):
                return self.view(e)
            case syntax.Name():
                entity = self.lookup(e.name, e.span)
                return entity if isinstance(entity, ViewName) and entity.rank else None
            case syntax.Call():
                found = self.scope.lookup(e.name)
                if found is None or not isinstance(found.entity, FnName) or not _returns_view(found.entity):
                    return None
                result = self.result_of(e)
                return result if isinstance(result, ViewName) else None
            case _:
                return None

    def call_statement(self, s: syntax.CallStmt) -> None:
        found = self.scope.lookup(s.call.name)
        if found is None or not isinstance(found.entity, FnName):
            self.value(s.call)
            raise refuse("E0212", f"`{s.call.name}(…)` has no effect here", s.span, help="bind its value")
        if any(isinstance(arg, syntax.Slice) for arg in s.call.args):
            raise refuse("E0207", "a slice stands only in a subscript", s.call.span)
        if found.entity.definition.reference is None and is_effectless(found.entity):
            raise refuse("E0212", f"`{s.call.name}(…)` has no effect here", s.span, help="bind its value")
        self.result_of(s.call)


def is_effectless(function: FnName) -> bool:
    """Whether a function only computes a value."""
    body = function.definition.body.body
    return bool(body) and all(isinstance(s, syntax.Let | syntax.Return) for s in body)


def _returns_view(function: FnName) -> bool:
    """Whether a function may return a view: its body or its type says so."""
    result = function.definition.result
    body = function.definition.body.body
    last = body[-1] if body else None
    value = last.value if isinstance(last, syntax.Return) else None
    return (result is not None and result.shape is not None) or isinstance(value, syntax.Name | syntax.View)
