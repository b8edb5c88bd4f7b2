"""Reading views: elements of buffers, slices, and the composition of a view's subscripts with its buffer's."""

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Fn, IndexExpr, Subscript
from texpr.grammar.check.indices import IndexReader
from texpr.grammar.check.scope import FnName, IndexName, Part, TypeName, ValueName, ViewName, describe, refuse
from texpr.grammar.core import value_size
from texpr.grammar.index.expr import add, index_size
from texpr.grammar.source import Span
from texpr.grammar.types import I64

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


class ViewReader(IndexReader):
    """Reads elements and views."""

    def view_named(self, name: str, span: Span) -> ViewName:
        """The buffer or view of a name; E0201 for a name of another kind."""
        entity = self.lookup(name, span)
        if isinstance(entity, ViewName):
            return entity
        if isinstance(entity, ValueName | IndexName):
            raise refuse("E0203", f"`{name}` is {describe(entity)} and has no subscripts", span)
        if isinstance(entity, FnName | TypeName):
            raise refuse("E0201", f"`{name}` is {describe(entity)}, not a buffer", span, help=f"call it: {name}(…)")
        raise refuse("E0201", f"`{name}` is not a buffer", span)

    def element(self, e: syntax.View) -> Place:
        """The buffer and the subscripts of one element; E0203 for a wrong number of subscripts or a slice."""
        view = self.view_named(e.name, e.span)
        self.check_rank(view, e)
        subscripts: list[Subscript] = []
        for subscript in e.subscripts:
            if isinstance(subscript, syntax.Slice):
                raise refuse(
                    "E0203", "a slice names a view, and one element is wanted here", subscript.span,
                    help=f"write one subscript, or name the view: let v = {e.name}[…]",
                )  # fmt: skip
            subscripts.append(self.subscript(subscript))
        return self.place(view, tuple(subscripts), e.span)

    def check_rank(self, view: ViewName, e: syntax.View) -> None:
        if len(e.subscripts) == view.rank:
            return
        draft = self.buffers[view.buffer]
        count = f"{len(e.subscripts)} subscript{'s' * (len(e.subscripts) != 1)}"
        if draft.flat:
            raise refuse(
                "E0203", f"`{e.name}` is not declared, so it is flat, and has {count} here", e.span,
                help=f"declare it: kernel f({e.name}: f32[…, …]) {{ … }}",
            )  # fmt: skip
        if view.rank == 0:
            raise refuse("E0203", f"`{e.name}` is a scalar and has no subscripts", e.span, help=f"write {e.name}")
        dims = f"{view.rank} dimension{'s' * (view.rank != 1)}"
        raise refuse("E0203", f"`{e.name}` has {dims} and {count} here", e.span)

    def place(self, view: ViewName, subscripts: tuple[Subscript, ...], span: Span) -> Place:
        """The element of a view at subscripts of its rank, as subscripts of the buffer."""
        for part in view.parts:
            if isinstance(part.start, ast.Gather):
                self.charge(value_size(part.start.value), span)
            else:
                self.charge(index_size(part.start), span)
        rest = iter(subscripts)
        parts = (shifted(part.start, next(rest), span) if part.sliced else part.start for part in view.parts)
        return view.buffer, tuple(parts)

    def view(self, e: syntax.View | syntax.Name) -> ViewName:
        """The view that a name or a subscripted name with slices stands for."""
        view = self.view_named(e.name, e.span)
        if isinstance(e, syntax.Name):
            return view
        self.check_rank(view, e)
        rest = iter(e.subscripts)
        parts: list[Part] = []
        shape: list[IndexExpr] = []
        for part in view.parts:
            if not part.sliced:
                parts.append(part)
                continue
            subscript = next(rest)
            if isinstance(subscript, syntax.Slice):
                start = self.frozen(self.subscript(subscript.start), subscript.start.span)
                shape.append(self.index(subscript.extent, "the extent"))
                parts.append(Part(start=shifted(part.start, start, subscript.span), sliced=True))
            else:
                start = self.frozen(self.subscript(subscript), subscript.span)
                parts.append(Part(start=shifted(part.start, start, subscript.span), sliced=False))
        return ViewName(
            buffer=view.buffer, parts=tuple(parts), shape=tuple(shape), frozen_as=view.frozen_as, alias=True
        )

    def frozen(self, start: Subscript, span: Span) -> Subscript:
        """Where a view begins, as it is here: a start that data gives is kept in a local of its own. Where evaluation
        is conditional, nothing is written before the view is read, so it needs none."""
        if not isinstance(start, ast.Gather) or self.conditional is not None:
            return start
        kept = self.local("start", start.value.dtype, (), span)
        self.bind(kept.name, (), start.value, span, ())
        return ast.Gather(
            value=ast.Read(buffer=kept.name, subscripts=(), dtype=start.value.dtype, span=span), span=span
        )

    def writable(self, name: str, view: ViewName, span: Span) -> None:
        """E0209 where the view cannot be written."""
        if view.frozen_as is not None:
            help = "declare it `out` or `inout`" if "parameter" in view.frozen_as else "use `new` for what is written"
            if "scalar" in view.frozen_as:
                help = f"take a buffer of rank 0 instead: {name}: {self.buffers[view.buffer].dtype}[]"
            raise refuse("E0209", f"`{name}` is {view.frozen_as} and cannot be written", span, help=help)
        draft = self.buffers[view.buffer]
        if draft.role is ast.Role.SCALAR:
            raise refuse("E0209", f"`{name}` is a scalar parameter and cannot be written", span)

    def target(self, e: syntax.View | syntax.Name) -> Place:
        """The element that a statement writes; E0209 for what cannot be written."""
        if isinstance(e, syntax.Name):
            entity = self.lookup(e.name, e.span)
            if not isinstance(entity, ViewName):
                raise refuse(
                    "E0209", f"`{e.name}` is {describe(entity)} and cannot be written", e.span,
                    help="use `new` for what is written",
                )  # fmt: skip
            self.writable(e.name, entity, e.span)
            if entity.rank:
                raise refuse(
                    "E0203", f"`{e.name}` has {entity.rank} dimension{'s' * (entity.rank != 1)} and stands here "
                    "without subscripts", e.span, help=f"write {e.name}[{', '.join('…' for _ in entity.shape)}] = …",
                )  # fmt: skip
            return self.place(entity, (), e.span)
        entity = self.lookup(e.name, e.span)
        if isinstance(entity, IndexName | ValueName):
            raise refuse("E0209", f"`{e.name}` is {describe(entity)} and cannot be written", e.span)
        self.writable(e.name, self.view_named(e.name, e.span), e.span)
        return self.element(e)
