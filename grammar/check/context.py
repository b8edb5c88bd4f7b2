"""What is known while one kernel is checked, and what its readers share: names, limits, findings, emitted statements.

Readers are functions of a `Context` and a part of the surface tree. They raise `RefusedError`; the loop over the
statements of a block reports it and goes on. What nests is awaited through `value`, `statement` and `call`, so that its
depth is counted and takes no room on Python's stack.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypedDict, Unpack

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr, IndexExpr, Role
from texpr.grammar.check.nested import Nested, Reading, Stack
from texpr.grammar.check.scope import Entity, FnName, IndexName, Part, Poison, Scope, ViewName, reserved_as
from texpr.grammar.check.typing import Value
from texpr.grammar.diagnostics import MAX_TOLD, Diagnostic, Label, Severity, did_you_mean, error
from texpr.grammar.index.expr import size_names
from texpr.grammar.permissions import unique_of
from texpr.grammar.records import dataclass
from texpr.grammar.refusals import LimitError, RefusedError, refuse
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import F32, DType

MAX_CALLS = 64  # depth of nested calls
MAX_NODES = 100_000  # statements and operators of one kernel after inlining
MAX_HEIGHT = 256  # blocks, operators and calls over one another

Result = Value | ViewName | None  # of a call: None where it returns nothing


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """The readers that hold one another: an expression holds calls, a call statements, a statement expressions."""

    value: Callable[["Context", syntax.Expr], Reading[Value]]
    statement: Callable[["Context", syntax.Stmt], Reading[None]]
    call: Callable[["Context", syntax.Call, FnName], Reading[Result]]


@dataclass(slots=True, kw_only=True)
class BufferDraft:
    """A buffer as far as it is known: the seed's `new acc 16` takes its type from the first bind."""

    name: str
    dtype: DType | None
    shape: tuple[IndexExpr, ...]
    role: Role
    strides: tuple[IndexExpr, ...] | None = None
    direction: str | None = None
    memory: str | None = None
    align: int = 16
    attrs: tuple[Attr, ...] = ()
    flat: bool = False
    source_name: str = ""
    span: Span = NO_SPAN

    def settled(self) -> ast.Buffer:
        """The core buffer; an untyped one that nothing binds is f32."""
        return ast.Buffer(
            name=self.name,
            dtype=self.dtype or F32,
            shape=self.shape,
            strides=self.strides,
            role=self.role,
            direction=self.direction,
            memory=self.memory,
            align=self.align,
            attrs=self.attrs,
            flat=self.flat,
            source_name=self.source_name or self.name,
            span=self.span,
        )


class Here(TypedDict, total=False):
    """What holds at one place of the program: see the fields of `Context`."""

    scope: Scope
    block: list[ast.Stmt]
    attrs: tuple[Attr, ...]
    calls: tuple[syntax.FnDef, ...]
    call_spans: tuple[Span, ...]
    conditional: str | None
    fully: bool
    fully_text: bool


class Context:
    """The state of one check. The first fields are of the whole kernel and grow; those of `Here` change by `within`."""

    def __init__(self, scope: Scope, diagnostics: list[Diagnostic], given: Given, readers: Readers) -> None:
        self.given = given
        self.readers = readers
        self.stack = Stack()
        self.diagnostics = diagnostics
        self.told: set[tuple[str, str, object]] = set()
        self.poisoned: set[str] = set()  # unknown names, told once
        self.buffers: dict[str, BufferDraft] = {}
        self.sizes: dict[str, ast.Size] = {}
        self.facts: list[ast.Condition] = []
        self.kernel_attrs: tuple[Attr, ...] = ()
        self.taken: set[str] = set()  # names of the core
        self.numbers: dict[str, int] = {}  # the next number of each name that is taken
        self.uses: dict[int, dict[str, int]] = {}  # of names in the body of a function, by its definition
        self.bands = 0
        self.nodes = 0
        self.scope = scope
        self.block: list[ast.Stmt] = []  # where statements are emitted to
        self.attrs: tuple[Attr, ...] = ()  # of the statement that is read
        self.calls: tuple[syntax.FnDef, ...] = ()  # the functions that are being inlined, outermost first
        self.call_spans: tuple[Span, ...] = ()  # and where each was called
        self.conditional: str | None = None  # what is not always evaluated: nothing may be emitted for it before
        self.fully = False  # inside a `fully par`
        self.fully_text = False  # and in the same text as it

    # ---- the place in the program

    @contextmanager
    def within(self, **here: Unpack[Here]) -> Iterator[None]:
        """Inside, what is given holds; afterwards what held before."""
        before = {name: getattr(self, name) for name in here}
        for name, value in here.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    @contextmanager
    def inner(self) -> Iterator[list[ast.Stmt]]:
        """A block: names that are defined in it end with it, and what is emitted in it goes to a list of its own."""
        before = self.scope, self.block
        self.scope, self.block = Scope(self.scope), []
        try:
            yield self.block
        finally:
            self.scope, self.block = before

    def unconditional(self, span: Span, what: str) -> None:
        """E0212 where the expression stands in an arm that may not be evaluated."""
        if self.conditional is not None:
            raise refuse(
                "E0212",
                f"{what} stands in {self.conditional}, which is not always evaluated",
                span,
                help="compute it before, with `let`, or write the choice as an `if`",
            )

    # ---- what nests, and limits

    def value(self, e: syntax.Expr) -> Nested[Value]:
        """The value of an expression; hoisted statements go to the current block."""
        self.deeper(e.span)
        return Nested(self.readers.value(self, e))

    def statement(self, s: syntax.Stmt) -> Nested[None]:
        """Check one statement and emit its core."""
        self.deeper(s.span)
        return Nested(self.readers.statement(self, s))

    def call(self, e: syntax.Call, function: FnName) -> Nested[Result]:
        """Inline a call: its value, the view that it returns, or None."""
        self.deeper(e.span)
        return Nested(self.readers.call(self, e, function))

    def deeper(self, span: Span) -> None:
        """Count one node of the kernel, and refuse one more level of nesting past the limit (E0103)."""
        self.charge(1, span)
        if self.stack.height >= MAX_HEIGHT:
            raise refuse("E0103", f"the kernel nests deeper than {MAX_HEIGHT} after inlining", span, help="split it")

    def charge(self, count: int, span: Span) -> None:
        """Count the nodes of an expression that is used in a second place; E0103 past the limit."""
        self.nodes += count
        if self.nodes > MAX_NODES:
            message = f"the kernel has more than {MAX_NODES} nodes after inlining"
            raise LimitError(error("E0103", message, span, help="split it"))

    # ---- names

    def fresh(self, name: str) -> str:
        """A core name that nothing else in the kernel has: `i`, then `i_1`, `i_2`, …"""
        number = self.numbers.get(name, 0)
        candidate = f"{name}_{number}" if number else name
        while candidate in self.taken or (number and self.scope.lookup(candidate) is not None):
            number += 1
            candidate = f"{name}_{number}"
        self.numbers[name] = number + 1
        self.taken.add(candidate)
        return candidate

    def lookup(self, name: str, span: Span) -> Entity:
        """What a name stands for; E0201 once for an unknown one, then silence."""
        found = self.scope.lookup(name)
        if found is None:
            if name in self.poisoned:
                raise RefusedError()
            self.poisoned.add(name)
            raise refuse("E0201", f"`{name}` is not known here", span, help=self._suggest(name))
        if isinstance(found.entity, Poison):
            raise RefusedError()
        if isinstance(found.entity, IndexName):
            self.use_sizes(found.entity.index)
        return found.entity

    def _suggest(self, name: str) -> str | None:
        reserved = reserved_as(name)
        if reserved is not None:
            return f"`{name}` is {reserved} of the language: call it, {name}(…)"
        size = "a size is a name that stands in a shape or an extent" if name[:1].isupper() else None
        return did_you_mean(name, (known for known, _ in self.scope.visible()), size)

    def use_sizes(self, index: IndexExpr) -> None:
        """Enter constants into the kernel's sizes where they are first used."""
        for name in size_names(index):
            if name not in self.sizes and name in self.given.constants:
                self.sizes[name] = ast.Size(name=name, default=self.given.constants[name])

    def define(self, name: str, entity: Entity, span: Span) -> None:
        """Enter a name; a clash is reported and the name poisoned, so that the statement can go on."""
        try:
            self.scope.define(name, entity, span)
        except RefusedError as refused:
            self.report(refused)

    # ---- findings

    def report(self, refused: RefusedError) -> None:
        """Keep a finding, once for each place. LimitError where an error was found beyond MAX_TOLD: the rest of the
        file is not read; warnings stop nothing."""
        found = refused.diagnostic
        if found is None:
            return
        if self.call_spans and found.primary is not None and len(found.secondary) < 4:
            called = Label(span=self.call_spans[-1], text="in this call")
            if called.span != found.primary.span:
                found = replace(found, secondary=(*found.secondary, called))
        key = (found.code, found.message, _place(found))
        if key in self.told:
            return
        self.told.add(key)
        full = too_many(self.diagnostics, found.severity)
        if not full:
            self.diagnostics.append(found)
        if found.severity is Severity.ERROR and (full or too_many(self.diagnostics)):
            raise LimitError()

    def warn(self, code: str, message: str, span: Span, *, help: str | None = None) -> None:
        """Keep a warning, once for each place."""
        found = Diagnostic(
            code=code, message=message, primary=Label(span=span), help=help, severity=Severity.WARNING
        )  # fmt: skip
        self.report(RefusedError(found))

    # ---- buffers and statements

    def emit(self, statement: ast.Stmt) -> None:
        self.nodes += 1
        self.block.append(statement)

    def local(self, name: str, dtype: DType | None, shape: tuple[IndexExpr, ...], span: Span) -> BufferDraft:
        """A fresh local with its `new`."""
        draft = BufferDraft(
            name=self.fresh(name), dtype=dtype, shape=shape, role=Role.LOCAL, source_name=name, span=span
        )
        self.buffers[draft.name] = draft
        self.emit(ast.New(buffer=draft.name, span=span, call_spans=self.call_spans))
        return draft

    def kept(self, name: str, value: ast.Expr, span: Span, attrs: tuple[Attr, ...] = ()) -> ast.Read:
        """A fresh scalar with the value; what is returned reads it."""
        draft = self.local(name, value.dtype, (), span)
        self.bind(draft.name, (), value, span, attrs)
        return ast.Read(buffer=draft.name, subscripts=(), dtype=value.dtype, span=span)

    def bind(
        self, buffer: str, subscripts: tuple[ast.Subscript, ...], value: ast.Expr, span: Span, attrs: tuple[Attr, ...]
    ) -> None:
        self.emit(
            ast.Bind(
                id="", buffer=buffer, subscripts=subscripts, value=value, span=span,
                attrs=self.written_attrs(subscripts, attrs), call_spans=self.call_spans,
            )
        )  # fmt: skip

    def written_attrs(self, subscripts: tuple[ast.Subscript, ...], attrs: tuple[Attr, ...]) -> tuple[Attr, ...]:
        """The attributes of a statement that writes there: the kernel's `#unique` is that of its gathered writes."""
        if unique_of(attrs) or not any(isinstance(s, ast.Gather) for s in subscripts):
            return attrs
        return attrs + unique_of(self.kernel_attrs)

    def type_of(self, buffer: str, span: Span) -> DType:
        """The element type of a buffer; E0303 where its first bind is still to come."""
        dtype = self.buffers[buffer].dtype
        if dtype is None:
            raise refuse(
                "E0303",
                f"`{self.buffers[buffer].source_name}` is read before its first bind, which gives its type",
                span,
                help="write its type: new acc: f32[16]",
            )
        return dtype

    def called(self, buffer: str) -> str:
        """The buffer as messages call it."""
        return f"`{self.buffers[buffer].source_name}`"


def too_many(found: list[Diagnostic], severity: Severity = Severity.ERROR) -> bool:
    """Whether there are more findings of a kind than are told."""
    return sum(d.severity is severity for d in found) > MAX_TOLD


def whole(draft: BufferDraft, frozen_as: str | None = None) -> ViewName:
    """The name of a whole buffer."""
    parts = tuple(Part(start=ast.IndexConst(value=0), sliced=True) for _ in draft.shape)
    return ViewName(buffer=draft.name, parts=parts, shape=draft.shape, frozen_as=frozen_as)


def _place(diagnostic: Diagnostic) -> tuple[object, int] | None:
    if diagnostic.primary is None:
        return None
    return id(diagnostic.primary.span.source), diagnostic.primary.span.start
