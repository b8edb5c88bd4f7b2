"""The exact mode: one iteration after the other, those of a `par` in seeded random order, every access watched.

It finds what the proofs refuse: races (E0301), subscripts out of bounds (E0302, gathered E0604), reads of undefined
elements (E0303), `out` buffers not wholly written (E0304), writes to `in` (E0305). It runs illegal programs until the
first of these, or under `collect` to the end: a read out of bounds then gives 0, such a write is dropped, and one
diagnostic per kind and pair of statements is kept.
"""

import math
from collections.abc import Mapping
from typing import assert_never

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    Condition,
    ConditionValue,
    Const,
    Expr,
    Gather,
    If,
    IndexValue,
    IndexVar,
    Intrinsic,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Role,
    Select,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import Diagnostic, TExprError, fail
from texpr.grammar.index.value import condition_value, index_value
from texpr.grammar.interpret.cells import Array, undefined
from texpr.grammar.interpret.errors import Reports, Site, asm_error
from texpr.grammar.interpret.shadow import READ, WRITE, Instance, Kind, Running, touch
from texpr.grammar.permissions import promises_unique
from texpr.grammar.source import NO_SPAN, Span

Iteration = Mapping[str, int]
ELEMENT_LIMIT = 1 << 31  # of one local


class ExactInterpreter:
    """Runs a kernel on `flat`, the row-major contents of its parameters, which it changes."""

    def __init__(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int],
        flat: Mapping[str, Array],
        *,
        seed: int = 0,
        collect: bool = False,
    ) -> None:
        self.kernel = kernel
        self.sizes = dict(sizes)
        self.reports = Reports.of(kernel, sizes)
        self.random = np.random.default_rng(seed)
        self.collect = collect
        self.violations: list[Diagnostic] = []
        self.reported: set[tuple[object, ...]] = set()
        self.running: list[Running] = []
        self.instances = 0
        self.order: dict[int, int] = {}
        self.constants: dict[int, Array] = {}
        for statement in statements(kernel.body):
            self.order[id(statement)] = len(self.order)
        self.buffers = {b.name: b for b in kernel.buffers}
        self.shapes = {b.name: tuple(int(index_value(n, self.sizes)) for n in b.shape) for b in kernel.buffers}
        self.live: dict[str, Instance] = {}
        for buffer in kernel.params:
            self.live[buffer.name] = self.instance(buffer.name, flat[buffer.name], buffer.direction != "out")
        self.leaf: Bind | Accumulate | Atomic | Anchor | If | None = None

    def run(self) -> None:
        """Runs the kernel; raises the first violation unless they are collected."""
        outputs = [i for i in self.live.values() if i.buffer.direction == "out" and i.buffer.role is Role.PARAM]
        self.block(self.kernel.body, {})
        for instance in outputs:
            missing = np.flatnonzero(~instance.defined)
            if missing.size:
                self.violate(self.reports.unwritten(instance.buffer, instance.element(int(missing[0]))))

    def violate(self, diagnostic: Diagnostic) -> None:
        """Raises, or keeps the first diagnostic per code, buffer, `par` and statements."""
        if not self.collect:
            raise TExprError([diagnostic])
        witness = diagnostic.witness
        statements = {str(witness.get(name)) for name in ("statement", "first_statement", "second_statement")}
        spans = {(label.span.start, label.span.end) for label in (diagnostic.primary, *diagnostic.secondary) if label}
        key = (diagnostic.code, witness.get("buffer"), witness.get("par"), frozenset(statements), frozenset(spans))
        if key not in self.reported:
            self.reported.add(key)
            self.violations.append(diagnostic)

    def instance(self, name: str, flat: Array, defined: bool) -> Instance:
        self.instances += 1
        shape = self.shapes[name]
        count = math.prod(max(0, n) for n in shape)
        return Instance(
            buffer=self.buffers[name],
            shape=shape,
            flat=flat,
            defined=np.full(count, defined),
            depth=len(self.running),
            number=self.instances,
        )

    # ---- statements ---------------------------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...], iteration: Iteration) -> None:
        for stmt in body:
            self.statement(stmt, iteration)

    def statement(self, stmt: Stmt, iteration: Iteration) -> None:
        match stmt:
            case Par():
                extent = self.index(stmt.extent, iteration)
                frame = Running(stmt)
                self.running.append(frame)
                for turn in self.random.permutation(max(0, extent)):
                    frame.turn = int(turn)
                    self.block(stmt.body, {**iteration, stmt.index: int(turn)})
                self.running.pop()
            case Seq():
                for turn in range(self.index(stmt.extent, iteration)):
                    self.block(stmt.body, {**iteration, stmt.index: turn})
            case If():
                self.leaf = stmt
                self.block(stmt.then if self.holds(stmt.condition, iteration) else stmt.orelse, iteration)
            case New():
                count = math.prod(max(0, n) for n in self.shapes[stmt.buffer])
                if count > ELEMENT_LIMIT:
                    name = self.buffers[stmt.buffer].source_name or stmt.buffer
                    raise fail("E0403", f"{name} has {count} elements, more than the interpreter holds", stmt.span)
                fresh = undefined(self.buffers[stmt.buffer].dtype, count)
                self.live[stmt.buffer] = self.instance(stmt.buffer, fresh, defined=False)
            case Bind() | Accumulate() | Atomic():
                self.leaf = stmt
                self.update(stmt, iteration)
            case Anchor():
                self.leaf = stmt
                self.value(stmt.value, iteration)
            case Intrinsic():
                self.block(stmt.reference, iteration)
            case Asm():
                raise TExprError([asm_error(stmt.span)])
            case _:
                assert_never(stmt)

    def update(self, stmt: Bind | Accumulate | Atomic, iteration: Iteration) -> None:
        value = self.value(stmt.value, iteration)
        instance = self.live[stmt.buffer]
        place = self.place(instance, stmt.subscripts, iteration)
        if place is None:
            return
        if instance.buffer.direction == "in" or instance.buffer.role is Role.SCALAR:
            self.violate(self.reports.written(self.site(iteration), instance.buffer, instance.element(place)))
        match stmt:
            case Bind():
                self.touch(instance, place, WRITE, iteration)
                instance.flat[place] = value
            case Accumulate() | Atomic():
                kind = Kind("accumulate into" if isinstance(stmt, Accumulate) else "update", stmt.op)
                self.touch(instance, place, kind, iteration)
                self.require_defined(instance, place, iteration)
                dtype = instance.buffer.dtype
                instance.flat[place] = numerics.accumulate(
                    stmt.op, np.asarray(instance.flat[place]), dtype, value, stmt.value.dtype
                )
        instance.defined[place] = True

    # ---- values -------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, iteration: Iteration) -> Array:
        casts: list[Cast] = []
        while isinstance(expr, Cast | Select):
            if isinstance(expr, Cast):
                casts.append(expr)
                expr = expr.operand
            else:
                expr = expr.then if self.holds(expr.condition, iteration) else expr.other
        match expr:
            case Const():
                if id(expr) not in self.constants:
                    self.constants[id(expr)] = numerics.constant(expr.value, expr.dtype)
                result = self.constants[id(expr)]
            case IndexValue():
                result = numerics.from_index(self.index(expr.index, iteration), expr.dtype)
            case ConditionValue():
                result = numerics.truth(self.holds(expr.condition, iteration))
            case Read():
                result = self.read(expr, iteration)
            case Op():
                args: list[Array] = []
                for arg in expr.args:  # one frame of Python for each operator
                    args.append(self.value(arg, iteration))
                result = numerics.apply(expr.fn, tuple(args), expr.dtype)
            case _:
                assert_never(expr)
        for cast in reversed(casts):
            result = numerics.cast(result, cast.operand.dtype, cast.dtype)
        return result

    def holds(self, condition: object, iteration: Iteration) -> bool:
        """The truth of an affine condition or of a bool value."""
        if isinstance(condition, Condition):
            return bool(condition_value(condition, {**self.sizes, **iteration}))
        if isinstance(condition, Expr):
            return bool(self.value(condition, iteration))
        raise TypeError(f"{condition!r} is no condition")

    def read(self, expr: Read, iteration: Iteration) -> Array:
        instance = self.live[expr.buffer]
        place = self.place(instance, expr.subscripts, iteration, expr.span)
        if place is None:
            return numerics.constant(0, expr.dtype)
        self.touch(instance, place, READ, iteration, expr.span)
        self.require_defined(instance, place, iteration, expr.span)
        return np.array(instance.flat[place])

    def index(self, expr: Subscript, iteration: Iteration) -> int:
        if isinstance(expr, Gather):
            return int(self.value(expr.value, iteration))
        if isinstance(expr, IndexVar):
            return iteration[expr.name]
        return int(index_value(expr, {**self.sizes, **iteration} if self.sizes else iteration))

    # ---- watching -----------------------------------------------------------------------------------------------

    def site(self, iteration: Iteration, span: Span = NO_SPAN) -> Site:
        """The statement at hand; `span` is a part of it to mark."""
        if self.leaf is None:
            return Site("", self.kernel.span, iteration)
        name = "" if isinstance(self.leaf, If) else self.leaf.id
        return Site(name, span if span.source.text else self.leaf.span, iteration)

    def place(
        self, instance: Instance, subscripts: tuple[Subscript, ...], iteration: Iteration, span: Span = NO_SPAN
    ) -> int | None:
        """The row-major number of the element, or None after a reported subscript out of bounds."""
        element = tuple(self.index(subscript, iteration) for subscript in subscripts)
        place = 0
        for dimension, (position, extent) in enumerate(zip(element, instance.shape, strict=True)):
            if not 0 <= position < extent:
                gathered = isinstance(subscripts[dimension], Gather)
                site = self.site(iteration, span)
                self.violate(self.reports.outside(site, instance.buffer, instance.shape, element, dimension, gathered))
                return None
            place = place * extent + position
        return place

    def require_defined(self, instance: Instance, place: int, iteration: Iteration, span: Span = NO_SPAN) -> None:
        if not instance.defined[place]:
            site = self.site(iteration, span)
            self.violate(self.reports.undefined(site, instance.buffer, instance.element(place)))

    def touch(self, instance: Instance, place: int, kind: Kind, iteration: Iteration, span: Span = NO_SPAN) -> None:
        if self.leaf is None or len(self.running) <= instance.depth:
            return
        order, unique = self.order[id(self.leaf)], promises_unique(self.leaf)
        site = self.site(iteration, span)
        found = touch(self.running, self.reports, instance, place, kind, site, order, unique)
        if found is not None:
            self.violate(found)
