"""The state of one kernel while it is checked: its buffers and sizes, the block that is being filled, the scope.

`Context` is the bottom of the reader classes: `IndexReader` (indices.py), `ValueReader` (values.py), `Inliner`
(inline.py) and `StatementReader` (statements.py) add to it what they read. One instance serves one kernel.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr, IndexExpr, Role
from texpr.grammar.check.scope import (
    Entity,
    IndexName,
    LimitError,
    Part,
    Poison,
    RefusedError,
    Scope,
    ViewName,
    refuse,
    reserved_as,
)
from texpr.grammar.diagnostics import MAX_TOLD, Diagnostic, Label, Severity, did_you_mean, error
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import F32, DType

MAX_CALLS = 64  # depth of nested calls
MAX_NODES = 100_000  # statements and operators of one kernel after inlining
MAX_HEIGHT = 256  # blocks, operators and calls over one another


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


class Context(ABC):
    """The mutable state of a check. Readers raise `RefusedError`; `statement` loops catch it and go on."""

    def __init__(self, scope: Scope, diagnostics: list[Diagnostic]) -> None:
        self.scope = scope
        self.diagnostics = diagnostics
        self.buffers: dict[str, BufferDraft] = {}
        self.sizes: dict[str, ast.Size] = {}
        self.facts: list[ast.Condition] = []
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.poisoned: set[str] = set()
        self.told: set[tuple[str, str, object]] = set()
        self.block: list[ast.Stmt] = []
        self.attrs: tuple[Attr, ...] = ()
        self.kernel_attrs: tuple[Attr, ...] = ()
        self.call_spans: tuple[Span, ...] = ()
        self.calls: list[syntax.FnDef] = []
        self.use_counts: dict[int, dict[str, int]] = {}
        self.conditional: str | None = None
        self.bands = 0
        self.nodes = 0
        self.height = 0
        self.fully_text = False
        self.fully_depth = 0

    # ---- hooks that the readers above implement

    @abstractmethod
    def use_sizes(self, index: IndexExpr) -> None:
        """Enter constants into the kernel's sizes where they are first used."""

    @abstractmethod
    def read_statement(self, statement: syntax.Stmt) -> None:
        """Check one statement and emit its core."""

    @abstractmethod
    def note_call(self, definition: syntax.FnDef) -> None:
        """Remember that a function was inlined, so that it is not read alone."""

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
            raise refuse("E0201", f"`{name}` is not known here", span, help=self.suggest(name))
        if isinstance(found.entity, Poison):
            raise RefusedError()
        if isinstance(found.entity, IndexName):
            self.use_sizes(found.entity.index)
        return found.entity

    def suggest(self, name: str) -> str | None:
        reserved = reserved_as(name)
        if reserved is not None:
            return f"`{name}` is {reserved} of the language: call it, {name}(…)"
        size = "a size is a name that stands in a shape or an extent" if name[:1].isupper() else None
        return did_you_mean(name, (known for known, _ in self.scope.visible()), size)

    def define(self, name: str, entity: Entity, span: Span) -> None:
        """Enter a name; a clash is reported and the name poisoned, so that the statement can go on."""
        try:
            self.scope.define(name, entity, span)
        except RefusedError as refused:
            self.report(refused)

    @contextmanager
    def scoped(self, scope: Scope | None = None) -> Iterator[None]:
        """A block: names that are defined in it end with it."""
        before = self.scope
        self.scope = scope if scope is not None else Scope(before)
        try:
            yield
        finally:
            self.scope = before

    @contextmanager
    def collecting(self) -> Iterator[list[ast.Stmt]]:
        """Statements emitted inside go to a list of their own."""
        before = self.block
        self.block = []
        try:
            yield self.block
        finally:
            self.block = before

    @contextmanager
    def deeper(self, span: Span) -> Iterator[None]:
        """One level of nesting and one node of the kernel; E0103 past the limits."""
        self.charge(1, span)
        self.height += 1
        if self.height > MAX_HEIGHT:
            self.height -= 1
            raise refuse("E0103", f"the kernel nests deeper than {MAX_HEIGHT} after inlining", span, help="split it")
        try:
            yield
        finally:
            self.height -= 1

    def charge(self, count: int, span: Span) -> None:
        """Count the nodes of an expression that is used in a second place; E0103 past the limit."""
        self.nodes += count
        if self.nodes > MAX_NODES:
            message = f"the kernel has more than {MAX_NODES} nodes after inlining"
            raise LimitError(error("E0103", message, span, help="split it"))

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
                found = Diagnostic(
                    code=found.code,
                    message=found.message,
                    primary=found.primary,
                    secondary=(*found.secondary, called),
                    notes=found.notes,
                    help=found.help,
                    severity=found.severity,
                    witness=found.witness,
                )
        key = (found.code, found.message, _place(found))
        if key in self.told:
            return
        self.told.add(key)
        full = too_many(self.diagnostics, found.severity)
        if not full:
            self.diagnostics.append(found)
        if found.severity is Severity.ERROR and (full or too_many(self.diagnostics)):
            raise LimitError()

    def warn(self, code: str, message: str, span: Span, label: str = "", *, help: str | None = None) -> None:
        self.report(
            RefusedError(
                Diagnostic(
                    code=code,
                    message=message,
                    primary=Label(span=span, text=label),
                    help=help,
                    severity=Severity.WARNING,
                )
            )
        )

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

    def written_attrs(self, subscripts: tuple[ast.Subscript, ...], attrs: tuple[Attr, ...]) -> tuple[Attr, ...]:
        """The attributes of a statement that writes there: the kernel's `#unique` is that of its gathered writes."""
        own = {attr.name for attr in attrs}
        if "unique" in own or not any(isinstance(s, ast.Gather) for s in subscripts):
            return attrs
        return attrs + tuple(attr for attr in self.kernel_attrs if attr.name == "unique")

    def bind(
        self, buffer: str, subscripts: tuple[ast.Subscript, ...], value: ast.Expr, span: Span, attrs: tuple[Attr, ...]
    ) -> None:
        self.emit(
            ast.Bind(
                id="", buffer=buffer, subscripts=subscripts, value=value, span=span,
                attrs=self.written_attrs(subscripts, attrs), call_spans=self.call_spans,
            )
        )  # fmt: skip

    def type_of(self, buffer: str, span: Span) -> DType:
        dtype = self.buffers[buffer].dtype
        if dtype is None:
            raise refuse(
                "E0303",
                f"`{self.buffers[buffer].source_name}` is read before its first bind, which gives its type",
                span,
                help="write its type: new acc: f32[16]",
            )
        return dtype


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
