"""Reading a kernel: parameters, sizes, facts, the body, and the core tree with its statements numbered."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from texpr.grammar import ast, syntax
from texpr.grammar.ast import IndexConst, IndexExpr, Role
from texpr.grammar.attributes import Place, check_attributes
from texpr.grammar.check.context import BufferDraft, whole
from texpr.grammar.check.flat import infer_lengths
from texpr.grammar.check.indices import expressions
from texpr.grammar.check.inline import returned
from texpr.grammar.check.scope import (
    Binding,
    FnName,
    IndexName,
    LimitError,
    Poison,
    RefusedError,
    Scope,
    TypeName,
    refuse,
)
from texpr.grammar.check.sizes import FreeNames
from texpr.grammar.check.statements import StatementReader
from texpr.grammar.diagnostics import Diagnostic, Label, error
from texpr.grammar.index.expr import index_names, size_names
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place
from texpr.grammar.types import ELEMENT_TYPES, F32

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known from outside: values of sizes, element types of a bare program's buffers, the module's constants.

    `used` collects the names of `sizes` and `types` that a kernel has, `called` the functions that were inlined.
    """

    sizes: Mapping[str, int]
    types: Mapping[str, str]
    constants: dict[str, int | None]
    used: set[str]
    called: list[syntax.FnDef]


class KernelReader(StatementReader):
    """Reads one kernel."""

    def __init__(self, scope: Scope, diagnostics: list[Diagnostic], given: Given) -> None:
        super().__init__(scope, diagnostics)
        self.given = given

    def use_sizes(self, index: IndexExpr) -> None:
        for name in size_names(index):
            if name not in self.sizes and name in self.given.constants:
                self.sizes[name] = ast.Size(name=name, default=self.given.constants[name])

    def note_call(self, definition: syntax.FnDef) -> None:
        if not any(definition is known for known in self.given.called):
            self.given.called.append(definition)

    # ---- a declared kernel

    def kernel(self, definition: syntax.KernelDef) -> ast.Kernel:
        """The core of a kernel; findings go to `diagnostics`."""
        with self.scoped():
            constants = [s for s in definition.body.body if isinstance(s, syntax.SizeDef)]
            self.free_sizes(definition)
            for constant in constants:
                self.guarded(self.constant, constant)
            self.kernel_attrs = self.attributes(definition.attrs, Place.KERNEL)
            for parameter in definition.params:
                self.guarded(self.parameter, parameter)
            for condition in definition.where:
                self.guarded(self.fact, condition)
            rest = tuple(s for s in definition.body.body if not isinstance(s, syntax.SizeDef))
            with self.scoped(), self.collecting() as body:
                self.guarded(self.statements, replace(definition.body, body=rest))
        return self.finished(definition.name, tuple(body), definition.span)

    def guarded(self, read: Callable[[Item], None], node: Item) -> None:
        """Read a part of the head; a refusal is reported and the rest goes on. LimitError ends the kernel."""
        try:
            read(node)
        except LimitError:
            raise
        except RefusedError as refused:
            self.report(refused)
            if isinstance(node, syntax.Param) and self.scope.lookup(node.name) is None:
                self.define(node.name, Poison(), node.span)

    def free_sizes(self, definition: syntax.KernelDef) -> None:
        """Enter the free names of shapes and extents as sizes."""
        known = self.scope.known() | {p.name for p in definition.params}
        known |= {s.name for s in definition.body.body if isinstance(s, syntax.SizeDef)}
        free = FreeNames(frozenset(known), bare=False)
        for parameter in definition.params:
            for e in parameter.type.shape or ():
                free.size(e)
            free.attributes(parameter.attrs)
        free.block(definition.body)
        self.enter_sizes(free.sizes)
        own = FreeNames(self.scope.known(), bare=False)
        for parameter in definition.params:
            for e in parameter.type.shape or ():
                own.size(e)
        for parameter in definition.params:
            if parameter.name in own.sizes:
                place = name_place(parameter, parameter.name)
                what = "a scalar" if parameter.type.shape is None else "a buffer"
                self.two_things(parameter.name, own.sizes[parameter.name], place, what)

    def two_things(self, name: str, size: Span, other: Span, what: str) -> None:
        """E0202 for one name as a size and something else; its uses are silent."""
        clash = Label(span=other, text=f"{what} here")
        message = f"`{name}` is a size and {what}"
        found = error("E0202", message, size, "a size here", secondary=(clash,), help="use two names")
        self.report(RefusedError(found))
        self.scope.names[name] = Binding(entity=Poison(), span=size)

    def enter_sizes(self, names: Mapping[str, Span]) -> None:
        for name, span in names.items():
            self.taken.add(name)
            default = self.given.sizes.get(name)
            if default is not None:
                self.given.used.add(name)
            self.sizes[name] = ast.Size(name=name, default=default, span=span)
            self.define(name, IndexName(index=ast.SizeVar(name=name, span=span), what="a size"), span)

    def constant(self, s: syntax.SizeDef) -> None:
        """`size NAME = …` at kernel level, or `size NAME`: a size that is given from outside."""
        self.taken.add(s.name)
        if s.value is None:
            self.enter_sizes({s.name: name_place(s, s.name)})
            return
        value = self.index(s.value, "a `size`")
        if index_names(value):
            raise refuse("E0206", "a `size` is built from integers and sizes", s.value.span)
        given = self.given.sizes.get(s.name)
        if given is not None:
            self.given.used.add(s.name)
        if given is not None or isinstance(value, IndexConst):
            default = given if given is not None else value.value if isinstance(value, IndexConst) else 0
            self.sizes[s.name] = ast.Size(name=s.name, default=default, span=s.span)
            value = ast.SizeVar(name=s.name, span=s.span)
        self.define(s.name, IndexName(index=value, what="a size"), name_place(s, s.name))

    def parameter(self, p: syntax.Param) -> None:
        """A parameter of a kernel as a buffer."""
        dtype, shape = self.element_type(p.type), self.shape(p.type)
        is_scalar = p.type.shape is None
        if is_scalar and p.direction in ("out", "inout"):
            raise refuse(
                "E0209", f"the scalar parameter `{p.name}` cannot be `{p.direction}`", p.span,
                help=f"write {p.direction} {p.name}: {dtype}[], a buffer of rank 0",
            )  # fmt: skip
        draft = BufferDraft(
            name=p.name,
            dtype=dtype,
            shape=shape,
            role=Role.SCALAR if is_scalar else Role.PARAM,
            direction="in" if is_scalar else p.direction,
            source_name=p.name,
            span=p.span,
        )
        if not is_scalar and not shape:
            draft.align = dtype.size_bytes  # so that a call takes an element of an array
        self.taken.add(p.name)
        self.buffers[p.name] = draft
        self.define(p.name, whole(draft, "a scalar parameter" if is_scalar else None), name_place(p, p.name))
        attrs = check_attributes(p.attrs, Place.PARAMETER, lambda e: self.index(e, "an argument"))
        if is_scalar and attrs:
            raise refuse("E0205", f"`#{attrs[0].name}` has no meaning on a scalar", attrs[0].span)
        self.place_buffer(draft, attrs, p.span)

    def fact(self, e: syntax.Expr) -> None:
        """A condition of `where`: over sizes only."""
        condition = self.try_condition(e)
        if condition is None:
            for node in expressions(e):
                if isinstance(node, syntax.Name):
                    self.lookup(node.name, node.span)
            raise refuse(
                "E0206", "a `where` is a comparison of integers and sizes", e.span, help="for example N % 8 == 0"
            )
        self.facts += condition.parts if isinstance(condition, ast.And) else (condition,)

    # ---- a bare program

    def bare(self, name: str, body: tuple[syntax.Stmt, ...], span: Span) -> ast.Kernel:
        """The core of a file of statements: undeclared views are flat buffers."""
        free = FreeNames(self.scope.known(), bare=True)
        block = syntax.Block(body=body, span=span)
        free.block(block)
        with self.scoped():
            for buffer, place in free.views.items():
                self.guarded(lambda item: self.flat_buffer(*item), (buffer, place))
            for size, place in free.sizes.items():
                if size in free.views:
                    self.two_things(size, place, free.views[size], "a buffer")
            self.enter_sizes({n: s for n, s in free.sizes.items() if n not in free.views})
            with self.scoped(), self.collecting() as core:
                self.guarded(self.statements, block)
        clean = not any(d.severity.value == "error" for d in self.diagnostics)
        if clean:
            self.guarded(lambda _: self.settle_lengths(tuple(core)), span)
        return self.finished(name, tuple(core), span, bare=True)

    def flat_buffer(self, name: str, span: Span) -> None:
        spelt = self.given.types.get(name, "f32")
        if name in self.given.types:
            self.given.used.add(name)
        dtype = ELEMENT_TYPES.get(spelt)
        if dtype is None:
            raise refuse(
                "E0211", f"`{spelt}` is not an element type, it was given for {name}", span,
                help="the types are " + ", ".join(ELEMENT_TYPES),
            )  # fmt: skip
        draft = BufferDraft(
            name=name,
            dtype=dtype,
            shape=(IndexConst(value=0),),
            role=Role.PARAM,
            flat=True,
            source_name=name,
            span=span,
        )
        self.taken.add(name)
        self.buffers[name] = draft
        self.define(name, whole(draft), span)

    def settle_lengths(self, body: tuple[ast.Stmt, ...]) -> None:
        flat = frozenset(name for name, draft in self.buffers.items() if draft.flat)
        for name, length in infer_lengths(body, flat).items():
            self.buffers[name].shape = (length,)

    # ---- the core tree

    def finished(self, name: str, body: tuple[ast.Stmt, ...], span: Span, *, bare: bool = False) -> ast.Kernel:
        for constant, value in self.given.constants.items():
            if constant in self.given.sizes and constant not in self.sizes:
                self.sizes[constant] = ast.Size(name=constant, default=value)
        order = [n for n, draft in self.buffers.items() if draft.role is not Role.LOCAL] + list(made(body))
        return ast.Kernel(
            name=name,
            buffers=tuple(self.buffers[n].settled() for n in order),
            sizes=tuple(self.sizes.values()),
            facts=tuple(self.facts),
            attrs=self.kernel_attrs,
            body=numbered(body, Counter()),
            bare=bare,
            span=span,
        )

    def checked_alone(self, function: FnName) -> None:
        """Read a `fn` that nothing calls as if it were a kernel, for the names in it: f32 for type parameters."""
        definition = function.definition
        names: dict[str, Span] = {}
        for p in definition.params:
            for e in p.type.shape or ():
                if isinstance(e, syntax.Name) and self.scope.lookup(e.name) is None:
                    names.setdefault(e.name, e.span)
        self.calls.append(definition)
        with self.scoped():
            self.enter_sizes(names)
            for p in definition.params:
                if p.type.element not in ELEMENT_TYPES and self.scope.lookup(p.type.element) is None:
                    self.define(p.type.element, TypeName(dtype=F32), p.type.span)
                dtype = ELEMENT_TYPES.get(p.type.element, F32)
                shape: tuple[IndexExpr, ...] = ()
                for e in p.type.shape or ():
                    extent = self.try_index(e)
                    shape = (*shape, extent if extent is not None else IndexConst(value=1))
                draft = BufferDraft(
                    name=self.fresh(p.name), dtype=dtype, shape=shape, role=Role.LOCAL, source_name=p.name
                )
                self.buffers[draft.name] = draft
                frozen = None if p.direction in ("out", "inout") else "an `in` parameter"
                self.define(p.name, whole(draft, frozen), name_place(p, p.name))
            for block in (definition.body, definition.reference):
                if block is not None:
                    rest = tuple(s for s in block.body if not isinstance(s, syntax.Return))
                    with self.scoped(), self.collecting():
                        self.statements(replace(block, body=rest))
                        result = returned(definition)
                        if block is definition.body and result is not None and self.array_of(result) is None:
                            self.value(result)


def made(body: tuple[ast.Stmt, ...]) -> Iterator[str]:
    """Names of the locals in order of their `new`."""
    for s in body:
        match s:
            case ast.New():
                yield s.buffer
            case ast.Par() | ast.Seq():
                yield from made(s.body)
            case ast.If():
                yield from made((*s.then, *s.orelse))
            case ast.Intrinsic():
                yield from made((*s.reference, *s.hardware))
            case _:
                pass


class Counter:
    """Numbers the leaf statements: S0, S1, …"""

    def __init__(self) -> None:
        self.next = 0

    def take(self) -> str:
        self.next += 1
        return f"S{self.next - 1}"


def numbered(body: tuple[ast.Stmt, ...], counter: Counter) -> tuple[ast.Stmt, ...]:
    """The body with its leaf statements numbered in text order."""
    result: list[ast.Stmt] = []
    for s in body:
        match s:
            case ast.Par():
                result.append(replace(s, body=numbered(s.body, counter)))
            case ast.Seq():
                result.append(replace(s, body=numbered(s.body, counter)))
            case ast.If():
                then = numbered(s.then, counter)
                result.append(replace(s, then=then, orelse=numbered(s.orelse, counter)))
            case ast.Intrinsic():
                reference = numbered(s.reference, counter)
                result.append(replace(s, reference=reference, hardware=numbered(s.hardware, counter)))
            case ast.Bind() | ast.Accumulate() | ast.Atomic() | ast.Anchor() | ast.Asm():
                result.append(replace(s, id=counter.take()))
            case ast.New():
                result.append(s)
    return tuple(result)
