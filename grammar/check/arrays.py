"""Reading locals and whole arrays: `new`, `reg`, binds of slices, fragments, `asm` operands."""

from collections.abc import Callable

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr, IndexConst, IndexExpr, IndexVar, Role
from texpr.grammar.attributes import Place, check_attributes, check_fn_attributes
from texpr.grammar.check.assembly import check_asm
from texpr.grammar.check.context import BufferDraft, whole
from texpr.grammar.check.inline import Inliner
from texpr.grammar.check.scope import FnName, Part, RefusedError, ViewName, refuse
from texpr.grammar.check.typing import Typed, Value, settle, stored
from texpr.grammar.diagnostics import did_you_mean
from texpr.grammar.fragments import FRAGMENTS, Fragment
from texpr.grammar.index.expr import ONE, index_names, multiply
from texpr.grammar.index.linear import difference
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place

Element = Callable[[tuple[IndexExpr, ...]], Value]


class ArrayReader(Inliner):
    """Reads locals and statements on whole arrays."""

    def fn_attributes(self, definition: syntax.FnDef) -> tuple[Attr, ...]:
        try:
            return check_fn_attributes(definition, lambda e: self.index(e, "an argument"))
        except RefusedError as refused:
            self.report(refused)
            return ()

    # ---- locals

    def shape(self, type_: syntax.TypeExpr) -> tuple[IndexExpr, ...]:
        return tuple(self.extent(e) for e in type_.shape or ())

    def extent(self, e: syntax.Expr) -> IndexExpr:
        """An extent of a `new`: sizes only, since the storage is one for all iterations; E0206 else."""
        extent = self.index(e, "the shape")
        if index_names(extent):
            raise refuse("E0206", "a shape is built from integers and sizes, not from indices", e.span)
        if isinstance(extent, IndexConst) and extent.value < 0:
            raise refuse("E0206", "an extent is not negative", e.span)
        return extent

    def new(self, s: syntax.New) -> None:
        if s.type is None:
            assert s.flat_extent is not None, "the seed's form has an extent"
            shape: tuple[IndexExpr, ...] = (self.extent(s.flat_extent),)
            dtype = None
        else:
            shape, dtype = self.shape(s.type), self.element_type(s.type)
        attrs = check_attributes(s.attrs, Place.NEW, lambda e: self.index(e, "an argument"))
        draft = self.local(s.name, dtype, shape, s.span)
        draft.memory = s.level
        self.place_buffer(draft, attrs, s.span)
        self.define(s.name, whole(draft), name_place(s, s.name))

    def place_buffer(self, draft: BufferDraft, attrs: tuple[Attr, ...], span: Span) -> None:
        """Strides, alignment and the rest of a buffer's attributes; E0205 where they do not fit its shape."""
        rest: list[Attr] = []
        for attr in attrs:
            match attr.name:
                case "strides":
                    draft.strides = tuple(arg for arg in attr.args if not isinstance(arg, str))
                    if len(draft.strides) != len(draft.shape):
                        raise refuse(
                            "E0205", f"`#strides` has one stride for each dimension, here are {len(draft.shape)}",
                            attr.span,
                        )  # fmt: skip
                case "layout":
                    if any(before.name == "strides" for before in attrs):
                        raise refuse("E0205", "`#layout` and `#strides` say two things", attr.span, help="remove one")
                    if attr.args == ("col",):
                        draft.strides = _column_strides(draft.shape)
                case "align":
                    (value,) = attr.args
                    if not isinstance(value, IndexConst):
                        raise refuse("E0205", "`#align` takes an integer", attr.span)
                    least = draft.dtype.size_bytes if draft.dtype is not None else 1
                    if value.value < least:
                        raise refuse(
                            "E0205", f"`#align({value.value})` is less than an element of {draft.dtype} needs",
                            attr.span, help=f"write #align({least}) or more",
                        )  # fmt: skip
                    draft.align = value.value
                    rest.append(attr)
                case "pad":
                    if len(draft.shape) < 2:
                        raise refuse(
                            "E0205", "`#pad` stands between the rows of a buffer, and this one has no rows", attr.span,
                            help="remove it, or declare the buffer with two dimensions",
                        )  # fmt: skip
                    if any(other.name in ("strides", "layout") for other in attrs):
                        raise refuse("E0205", "`#pad` and another layout say two things", attr.span, help="remove one")
                    rest.append(attr)
                case _:
                    rest.append(attr)
        draft.attrs = tuple(rest)

    def reg(self, s: syntax.Reg) -> None:
        """`new reg` and one bind for each element."""
        view: ViewName | None = None
        value: Value | None = None
        fragment = isinstance(s.value, syntax.Call) and s.value.name == "fragment"
        if not fragment:
            view = self.array_of(s.value)
        if s.type is not None:
            dtype, shape = self.element_type(s.type), self.shape(s.type)
        elif fragment:
            raise refuse("E0207", "a `reg` that is a fragment has a type", s.span, help=f"reg {s.name}: f16[8] = …")
        elif view is not None:
            dtype, shape = (
                self.type_of(view.buffer, s.value.span),
                tuple(self.plain(e, s.value.span) for e in view.shape),
            )
        else:
            value = settle(self.value(s.value))
            dtype, shape = value.dtype, ()
        draft = self.local(s.name, dtype, shape, s.span)
        draft.memory = "reg"
        target = whole(draft)
        if fragment:
            assert isinstance(s.value, syntax.Call), "a fragment is a call"
            self.fill(target, self.fragment(s.value, target, s.value.span), s.span)
        elif view is not None:
            self.copy(target, view, s.span, s.value.span)
        else:
            found = value if value is not None else self.value(s.value)
            self.fill(target, lambda _: found, s.span)
        self.define(s.name, target, name_place(s, s.name))

    def plain(self, extent: IndexExpr, span: Span) -> IndexExpr:
        if index_names(extent):
            raise refuse("E0206", "a shape is built from integers and sizes, not from indices", span)
        return extent

    # ---- whole arrays

    def array_of(self, e: syntax.Expr) -> ViewName | None:
        """The array that an expression is, or None for a scalar."""
        match e:
            case syntax.Name():
                entity = self.lookup(e.name, e.span)
                return entity if isinstance(entity, ViewName) and entity.rank else None
            case syntax.View() if any(isinstance(s, syntax.Slice) for s in e.subscripts):
                return self.view(e)
            case syntax.Call():
                found = self.scope.lookup(e.name)
                if found is None or not isinstance(found.entity, FnName):
                    return None
                declared = found.entity.definition.result
                if declared is None or declared.shape is None:
                    return None
                result = self.result_of(e)
                return result if isinstance(result, ViewName) and result.rank else None
            case _:
                return None

    def is_array(self, e: syntax.View | syntax.Name) -> bool:
        if isinstance(e, syntax.View):
            return any(isinstance(s, syntax.Slice) for s in e.subscripts)
        found = self.scope.lookup(e.name)
        return found is not None and isinstance(found.entity, ViewName) and found.entity.rank > 0

    def assign_array(self, s: syntax.Assign, target: syntax.View | syntax.Name) -> None:
        """`v[i:16, j:8] = f(…)`: one bind for each element."""
        view = self.view(target)
        self.writable(target.name, view, target.span)
        source = self.array_of(s.value)
        if source is None:
            raise refuse(
                "E0203", "a slice is bound to a function's array or to another view, and this is one value",
                s.value.span, help="write the loop: par N i { v[i] = … }",
            )  # fmt: skip
        self.copy(view, source, s.span, s.value.span)

    def copy(self, target: ViewName, source: ViewName, span: Span, source_span: Span) -> None:
        if target.rank != source.rank:
            raise refuse("E0203", f"the left side has rank {target.rank} and this rank {source.rank}", source_span)
        for wanted, actual in zip(target.shape, source.shape, strict=True):
            if difference(wanted, actual) != 0:
                self.same_extent(wanted, actual, source_span)
        self.fill(target, lambda at: self.read(self.place(source, at, source_span), source_span), span)

    def fill(self, target: ViewName, element: Element, span: Span) -> None:
        """Loops over a view's elements with a bind in them: `seq` where one thread owns it, else `par`."""
        indices = tuple(self.fresh(f"e{d}" if target.rank > 1 else "e") for d in range(target.rank))
        at = tuple(IndexVar(name=name, span=span) for name in indices)
        dtype = self.type_of(target.buffer, span)
        with self.collecting() as body:
            value = stored(element(at), dtype, span, f"`{self.buffers[target.buffer].source_name}`")
            buffer, subscripts = self.place(target, at, span)
            self.bind(buffer, subscripts, value, span, self.attrs)
        inner = tuple(body)
        private = self.fully_depth > 0 or self.buffers[target.buffer].memory == "reg"
        self.bands += not private
        for name, extent in reversed(tuple(zip(indices, target.shape, strict=True))):
            if private:
                loop: ast.Stmt = ast.Seq(
                    index=name, source_name=name, extent=extent, body=inner, span=span, call_spans=self.call_spans
                )
            else:
                loop = ast.Par(
                    index=name, source_name=name, extent=extent, band=self.bands, body=inner, span=span,
                    call_spans=self.call_spans,
                )  # fmt: skip
            inner = (loop,)
        for statement in inner:
            self.emit(statement)

    # ---- fragments

    def fragment(self, e: syntax.Call, registers: ViewName, span: Span) -> Element:
        """`fragment(view, table.member, lane)` as a relation from the register to an element of the view."""
        view, fragment, lane = self.fragment_parts(e, registers)

        def element(at: tuple[IndexExpr, ...]) -> Value:
            return self.read(self.place(view, fragment.place(lane, at[0]), span), span)

        return element

    def fragment_parts(self, e: syntax.Call, registers: ViewName) -> tuple[ViewName, Fragment, IndexExpr]:
        if len(e.args) != 3:
            raise refuse(
                "E0207", f"`fragment` takes 3 arguments and is given {len(e.args)}", e.span, help=FRAGMENT_FORM
            )
        first, member, last = e.args
        if isinstance(first, syntax.Slice) or isinstance(member, syntax.Slice) or isinstance(last, syntax.Slice):
            raise refuse("E0207", "a slice stands only in a subscript", e.span, help=FRAGMENT_FORM)
        if not isinstance(member, syntax.Member):
            raise refuse("E0207", "the second argument of `fragment` is a layout", member.span, help=FRAGMENT_FORM)
        table = FRAGMENTS.get(member.owner)
        if table is None or member.name not in table:
            known = [f"{owner}.{name}" for owner, names in FRAGMENTS.items() for name in names]
            wanted = f"{member.owner}.{member.name}"
            raise refuse(
                "E0201", f"`{wanted}` is not a fragment layout", member.span,
                help=did_you_mean(wanted, known, "the layouts are " + ", ".join(known)),
            )  # fmt: skip
        fragment = table[member.name]
        view = self.view_argument(first)
        if view is None or view.rank != 2:
            raise refuse("E0207", "the first argument of `fragment` is a view of 2 dimensions", first.span)
        for wanted_extent, actual in zip((fragment.rows, fragment.columns), view.shape, strict=True):
            self.same_extent(IndexConst(value=wanted_extent), actual, first.span)
        if registers.rank != 1:
            raise refuse("E0207", f"this fragment has {fragment.registers} elements in each lane", e.span)
        self.same_extent(IndexConst(value=fragment.registers), registers.shape[0], e.span)
        return view, fragment, self.index(last, "the lane")

    def assign_fragment(self, s: syntax.Assign, target: syntax.Call) -> None:
        """`fragment(v, table.member, lane) = r`: the bind through the relation, backwards."""
        if target.name != "fragment" or s.op != "=":
            raise refuse("E0209", f"`{target.name}(…)` cannot be written", target.span, help="only `fragment(…) = r`")
        source = self.array_of(s.value)
        if source is None:
            raise refuse("E0203", "a fragment is bound to an array of registers", s.value.span)
        view, fragment, lane = self.fragment_parts(target, source)
        first = target.args[0]
        self.writable(first.name if isinstance(first, syntax.Name | syntax.View) else "fragment", view, target.span)
        index = self.fresh("e")
        at = IndexVar(name=index, span=s.span)
        value = self.read(self.place(source, (at,), s.value.span), s.value.span)
        with self.collecting() as body:
            buffer, subscripts = self.place(view, fragment.place(lane, at), target.span)
            dtype = self.type_of(buffer, target.span)
            self.bind(buffer, subscripts, stored(value, dtype, s.value.span, f"`{buffer}`"), s.span, self.attrs)
        self.emit(
            ast.Seq(
                index=index, source_name=index, extent=source.shape[0], body=tuple(body), span=s.span,
                call_spans=self.call_spans,
            )
        )  # fmt: skip

    # ---- asm

    def asm(self, s: syntax.Asm) -> None:
        operands: list[ast.AsmOperand] = []
        clobbers: list[Attr] = []
        count: int | None = 0
        for operand in s.operands:
            if operand.label == "clobber":
                clobbers.append(self.clobber(operand))
                continue
            read, elements = self.asm_operand(operand)
            operands.append(read)
            count = None if count is None or elements is None else count + elements
        text = check_asm(s.text, count)
        self.emit(
            ast.Asm(
                id="", text=text, operands=tuple(operands), attrs=tuple(clobbers), span=s.span,
                call_spans=self.call_spans,
            )
        )  # fmt: skip

    def clobber(self, operand: syntax.AsmOperand) -> Attr:
        e = operand.value
        if not isinstance(e, syntax.StringLit) or e.text not in ("memory", "cc"):
            raise refuse("E0213", 'a clobber is "memory" or "cc"', operand.span)
        return Attr(name="clobber", args=(e.text,), span=operand.span)

    def asm_operand(self, operand: syntax.AsmOperand) -> tuple[ast.AsmOperand, int | None]:
        """A whole local, or one element of one; the value of an `in` goes through a local. With its element count."""
        e = operand.value
        if operand.label not in ("in", "out", "inout"):
            raise refuse("E0213", f"`{operand.label}` is not a kind of operand", operand.span, help="in, out or inout")
        view = self.array_of(e) if isinstance(e, syntax.Name | syntax.View) else None
        if view is not None:
            if operand.label != "in" and isinstance(e, syntax.Name | syntax.View):
                self.writable(e.name, view, e.span)
            if self.buffers[view.buffer].role is not Role.LOCAL or not _is_whole(view):
                raise refuse("E0209", "an operand of `asm` is a whole local", e.span, help="copy it: reg r: f32[4] = …")
            return ast.AsmOperand(mode=operand.label, buffer=view.buffer, span=operand.span), _count(view)
        if operand.label == "in":
            value: Typed = settle(self.value(e))
            draft = self.local("operand", value.dtype, (), e.span)
            self.bind(draft.name, (), value.expr, e.span, ())
            return ast.AsmOperand(mode="in", buffer=draft.name, span=operand.span), 1
        if not isinstance(e, syntax.Name | syntax.View):
            raise refuse("E0209", "what an `asm` writes is a local", e.span)
        buffer, subscripts = self.target(e)
        if self.buffers[buffer].role is not Role.LOCAL:
            raise refuse("E0209", "what an `asm` writes is a local", e.span, help="write a `reg` and bind it after")
        if not subscripts:
            return ast.AsmOperand(mode=operand.label, buffer=buffer, span=operand.span), 1
        return ast.AsmOperand(mode=operand.label, buffer=buffer, subscripts=subscripts, span=operand.span), 1


FRAGMENT_FORM = "write fragment(view, mma16816.a, lane)"


def _is_whole(view: ViewName) -> bool:
    return all(part == Part(start=IndexConst(value=0), sliced=True) for part in view.parts)


def _count(view: ViewName) -> int | None:
    """The number of elements of a view of constant shape."""
    total = 1
    for extent in view.shape:
        if not isinstance(extent, IndexConst):
            return None
        total *= extent.value
    return total


def _column_strides(shape: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
    strides: list[IndexExpr] = []
    stride: IndexExpr = ONE
    for extent in shape:
        strides.append(stride)
        stride = multiply(stride, extent)
    return tuple(strides)
