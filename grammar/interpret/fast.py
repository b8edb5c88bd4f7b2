"""The fast mode: every statement over all iterations of its enclosing `par`s at once.

A `par` adds an axis to the grid of iterations, a `seq` is a Python loop, ragged extents and conditions are masks. For
a legal program the iterations of a `par` are independent, so running its body statement by statement over all of them
is one of the orders that the language allows. A `seq` is an axis too where its iterations may be interleaved: where it
only accumulates, outside `#ordered`, or each iteration has elements of its own (`loops`). An axis that would
make the grid larger than `grid_limit` is run in pieces.

    par M i { seq K k { C[i] += A[i, k] } }     one update: grid (K, M), reduced over its first axis

An accumulation into a buffer narrower than its compute type is carried in the compute type over one such piece and
rounded once, otherwise rounded at every step; both are allowed, and the result is the same on every run.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Generic, NoReturn, TypeVar, assert_never

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    ConditionValue,
    Const,
    Expr,
    Gather,
    If,
    IndexValue,
    Intrinsic,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Select,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.value import (
    Index,
    Mask,
    as_mask,
    both,
    condition_value,
    either,
    index_value,
    inverse,
)
from texpr.grammar.interpret.cells import Arithmetic, Array, Cells, Shape
from texpr.grammar.interpret.errors import Reports, Site, asm_error
from texpr.grammar.interpret.loops import is_axis, locals_of, narrow_sums, running_sums
from texpr.grammar.narrow import implied_attributes
from texpr.grammar.permissions import portion_factors
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span

V = TypeVar("V")
GRID_LIMIT = 1 << 21  # iterations in flight
ELEMENT_LIMIT = 1 << 31  # of one local over all iterations in flight


@dataclass(frozen=True, slots=True)
class Lanes:
    """The iterations in flight: index values that broadcast to `shape` (newest loop first), which of them are active,
    and which of those hang on an undecided condition."""

    environment: Mapping[str, Index]
    shape: Shape = ()
    active: Mask = True
    doubt: Mask = False


class FastInterpreter(Generic[V]):
    """Runs a kernel's body over `memory`, which has the cells of every parameter and gets those of the locals.

    Of the loops that `chosen` names by index only those iterations run; what they write is true in `marks`, by buffer.
    `advance` is told how many instances each step ran.
    """

    def __init__(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int],
        arithmetic: Arithmetic[V],
        memory: dict[str, Cells[V]],
        grid_limit: int = GRID_LIMIT,
        chosen: Mapping[str, Array] | None = None,
        marks: Mapping[str, Array] | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> None:
        self.kernel = kernel
        self.sizes = dict(sizes)
        self.arithmetic = arithmetic
        self.memory = memory
        self.grid_limit = grid_limit
        self.dtypes = {b.name: b.dtype for b in kernel.buffers}
        self.shapes = {b.name: tuple(int(index_value(n, sizes)) for n in b.shape) for b in kernel.buffers}
        bounds = arithmetic.has_bounds
        self.implied = implied_attributes(kernel) if bounds else {}
        self.running = running_sums(kernel) if bounds else {}
        self.buffers = {b.name: b for b in kernel.buffers}
        self.chosen = chosen or {}
        self.marks = marks or {}
        self.advance = advance
        self.sampled = 0  # loops around that run chosen iterations only
        self.axes: dict[int, bool] = {}
        self.weights: dict[int, int] = {}
        self.leaf: Bind | Accumulate | Atomic | Anchor | If | None = None

    def run(self) -> None:
        """Runs the kernel. Raises E0302 or E0604 for a subscript out of bounds, E0403 for a local too large, E0502 for
        `asm`."""
        self.block(self.kernel.body, Lanes(dict(self.sizes)))

    # ---- statements ---------------------------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...], lanes: Lanes) -> None:
        for stmt in body:
            self.statement(stmt, lanes)

    def statement(self, stmt: Stmt, lanes: Lanes) -> None:
        match stmt:
            case Par():
                self.axis(stmt, lanes)
            case Seq():
                if self.is_axis(stmt):
                    self.axis(stmt, lanes)
                else:
                    self.turns(stmt, lanes)
            case If():
                self.leaf = stmt
                self.branch(stmt, lanes)
            case New():
                elements = self.elements(stmt.buffer)
                if elements * math.prod(lanes.shape) > ELEMENT_LIMIT:
                    name = self.buffers[stmt.buffer].source_name or stmt.buffer
                    raise fail("E0403", f"{name} has {elements} elements, more than the interpreter holds", stmt.span)
                self.memory[stmt.buffer] = self.arithmetic.allocate(
                    stmt.buffer, self.dtypes[stmt.buffer], elements, lanes.shape
                )
            case Bind() | Accumulate() | Atomic():
                self.update(stmt, lanes)
            case Anchor():
                self.leaf = stmt
                self.arithmetic.begin(stmt.attrs + self.implied.get(stmt.id, ()) + self.kernel.attrs)
                self.value(stmt.value, lanes)
            case Intrinsic():
                self.block(stmt.reference, lanes)
            case Asm():
                raise TExprError([asm_error(stmt.span)])
            case _:
                assert_never(stmt)

    def axis(self, loop: Par | Seq, lanes: Lanes) -> None:
        """Runs all iterations of a loop at once, in pieces of at most `grid_limit` lanes."""
        extent = index_value(loop.extent, lanes.environment)
        chosen = self.chosen.get(loop.index)
        self.sampled += chosen is not None
        last = greatest_of(extent) if chosen is None else len(chosen)
        piece = max(1, self.grid_limit // (math.prod(lanes.shape) * self.weight(loop)))
        with ExitStack() as held:
            if last > piece and isinstance(loop, Seq):  # pieces of a sum are rounded once
                for name, dtype in narrow_sums(loop, self.dtypes):
                    held.enter_context(self.memory[name].held_in(dtype))
            self.pieces(loop, lanes, extent, chosen, last, piece)
        self.sampled -= chosen is not None

    def pieces(self, loop: Par | Seq, lanes: Lanes, extent: Index, chosen: Array | None, last: int, piece: int) -> None:
        for start in range(0, last, piece):
            count = min(piece, last - start)
            if count == 1:
                index: Index = start if chosen is None else int(chosen[start])
                shape = lanes.shape
            else:
                shape = (count, *lanes.shape)
                index = np.arange(start, start + count) if chosen is None else chosen[start : start + count]
                index = index.reshape((count,) + (1,) * len(lanes.shape))
            self.iterations(loop, index, extent, replace(lanes, shape=shape))

    def elements(self, buffer: str) -> int:
        return math.prod(max(0, extent) for extent in self.shapes[buffer])

    def weight(self, loop: Par | Seq) -> int:
        """Elements that one iteration needs at a time for its locals, at least 1."""
        if id(loop) not in self.weights:
            self.weights[id(loop)] = max(1, sum(self.elements(name) for name in locals_of(loop.body)) // 4)
        return self.weights[id(loop)]

    def is_axis(self, loop: Seq) -> bool:
        if id(loop) not in self.axes:
            self.axes[id(loop)] = is_axis(loop)
        return self.axes[id(loop)]

    def turns(self, loop: Seq, lanes: Lanes) -> None:
        extent = index_value(loop.extent, lanes.environment)
        for turn in range(greatest_of(extent)):
            self.iterations(loop, turn, extent, lanes)

    def iterations(self, loop: Par | Seq, index: Index, extent: Index, lanes: Lanes) -> None:
        active = lanes.active if isinstance(extent, int) else both(lanes.active, as_mask(index < extent))
        if np.any(active):
            inner = replace(lanes, environment={**lanes.environment, loop.index: index}, active=active)
            self.block(loop.body, inner)

    def branch(self, stmt: If, lanes: Lanes) -> None:
        if isinstance(stmt.condition, Read):
            value = self.value(stmt.condition, lanes)
            holds, doubt = as_mask(self.arithmetic.plain(value)), self.arithmetic.doubt(value)
        else:
            holds, doubt = condition_value(stmt.condition, lanes.environment), False
        if np.any(doubt):
            doubt = either(doubt, lanes.doubt)
        else:
            doubt = lanes.doubt
        for body, chosen in ((stmt.then, holds), (stmt.orelse, inverse(holds))):
            active = both(lanes.active, either(chosen, doubt))
            if body and np.any(active):
                self.block(body, replace(lanes, active=active, doubt=doubt))

    def update(self, stmt: Bind | Accumulate | Atomic, lanes: Lanes) -> None:
        self.leaf = stmt
        self.arithmetic.begin(stmt.attrs + self.implied.get(stmt.id, ()) + self.kernel.attrs)
        value = self.value(stmt.value, lanes)
        place, unknown = self.place(stmt.buffer, stmt.subscripts, lanes, stmt.span)
        cells = self.memory[stmt.buffer]
        if self.advance is not None:
            self.advance(math.prod(lanes.shape))
        if self.sampled and stmt.buffer in self.marks:
            self.mark(self.marks[stmt.buffer], place, lanes)
        if np.any(both(unknown, lanes.active)):
            cells.taint_all()
        doubt = either(lanes.doubt, unknown)
        active = both(lanes.active, inverse(doubt))
        if np.any(active):
            match stmt:
                case Bind():
                    if stmt.id in self.running:
                        before, term = self.running[stmt.id]
                        on, _ = self.place(stmt.buffer, before.subscripts, lanes, stmt.span)
                        cells.store_sum(place, value, on, self.value(term, lanes), active, lanes.shape)
                    else:
                        cells.store(place, value, active, lanes.shape)
                case Accumulate() | Atomic():
                    counted = self.counted(stmt, lanes)
                    cells.accumulate(stmt.op, place, value, stmt.value.dtype, active, lanes.shape, counted=counted)
        doubtful = both(lanes.active, doubt)
        if np.any(doubtful) and not (isinstance(place, int) and place < 0):
            cells.taint(place, doubtful, lanes.shape)

    def counted(self, stmt: Accumulate | Atomic, lanes: Lanes) -> Array | None:
        """The magnitudes by which tensor cores align products of f8: of factors that are at least the least normal
        number, where no factor is 0. None of other terms, and of runs without bounds."""
        factors = portion_factors(stmt) if self.arithmetic.has_bounds else ()
        if not factors:
            return None
        (a, least_a), (b, least_b) = (
            (np.abs(self.arithmetic.plain(self.value(factor, lanes))), numerics.least_normal(dtype))
            for factor, dtype in factors
        )
        return np.where((a > 0) & (b > 0), np.maximum(a, least_a) * np.maximum(b, least_b), 0.0)

    def mark(self, marks: Array, place: Index, lanes: Lanes) -> None:
        """The elements that the active lanes write are marked."""
        if lanes.active is True:
            marks[np.asarray(place)] = True
        else:
            marks[np.broadcast_to(np.asarray(place), lanes.shape)[np.broadcast_to(lanes.active, lanes.shape)]] = True

    # ---- values -------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, lanes: Lanes) -> V:
        arithmetic = self.arithmetic
        casts: list[Cast] = []
        while isinstance(expr, Cast):
            casts.append(expr)
            expr = expr.operand
        match expr:
            case Const():
                result = arithmetic.constant(expr.value, expr.dtype)
            case IndexValue():
                result = arithmetic.index(index_value(expr.index, lanes.environment), expr.dtype)
            case ConditionValue():
                result = arithmetic.truth(condition_value(expr.condition, lanes.environment))
            case Read():
                place, unknown = self.place(expr.buffer, expr.subscripts, lanes, expr.span)
                if isinstance(place, int) and place < 0:
                    result = arithmetic.constant(0, expr.dtype)
                else:
                    loaded = self.memory[expr.buffer].load(place)
                    result = arithmetic.tainted(loaded, unknown) if np.any(unknown) else loaded
            case Op():
                args: list[V] = []
                for arg in expr.args:  # one frame of Python for each operator
                    args.append(self.value(arg, lanes))
                result = arithmetic.apply(expr.fn, tuple(args), expr.args[0].dtype, expr.dtype)
            case Select():
                result = self.select(expr, lanes)
            case _:
                assert_never(expr)
        for cast in reversed(casts):
            result = arithmetic.cast(result, cast.operand.dtype, cast.dtype)
        return result

    def select(self, expr: Select, lanes: Lanes) -> V:
        """Each arm is evaluated where the condition chooses it, so that the other arm's accesses need not be legal."""
        doubt: Mask = False
        if isinstance(expr.condition, Expr):
            condition = self.value(expr.condition, lanes)
            holds, doubt = as_mask(self.arithmetic.plain(condition)), self.arithmetic.doubt(condition)
        else:
            holds = condition_value(expr.condition, lanes.environment)
        chosen, refused = both(lanes.active, holds), both(lanes.active, inverse(holds))
        if not np.any(refused):
            result = self.value(expr.then, replace(lanes, active=chosen))
        elif not np.any(chosen):
            result = self.value(expr.other, replace(lanes, active=refused))
        else:
            then = self.value(expr.then, replace(lanes, active=chosen))
            result = self.arithmetic.where(holds, then, self.value(expr.other, replace(lanes, active=refused)))
        return self.arithmetic.tainted(result, doubt) if np.any(doubt) else result

    def place(self, buffer: str, subscripts: tuple[Subscript, ...], lanes: Lanes, span: Span) -> tuple[Index, Mask]:
        """The row-major number of the element, and where it is unknown because a gather is undecided.

        Inactive and doubtful lanes that leave the buffer get element 0; -1 stands for any element of an empty buffer.
        """
        extents = self.shapes[buffer]
        index: list[Index] = []
        unknown: Mask = False
        for subscript in subscripts:
            if isinstance(subscript, Gather):
                value = self.value(subscript.value, lanes)
                gathered = np.asarray(self.arithmetic.plain(value)).astype(np.int64)
                index.append(int(gathered) if gathered.ndim == 0 else gathered)
                doubt = self.arithmetic.doubt(value)
                unknown = either(unknown, doubt) if np.any(doubt) else unknown
            else:
                index.append(index_value(subscript, lanes.environment))
        checked = both(lanes.active, inverse(either(unknown, lanes.doubt)))
        place: Index = 0
        for dimension, (position, extent) in enumerate(zip(index, extents, strict=True)):
            if least_of(position) < 0 or greatest_of(position) >= extent:
                outside = as_mask((position < 0) | (position >= extent)) if not isinstance(position, int) else True
                if np.any(both(outside, checked)):
                    self.out_of_bounds(buffer, subscripts, index, dimension, both(outside, checked), lanes, span)
                if extent <= 0:
                    return -1, unknown
                position = 0 if isinstance(position, int) else np.where(outside, 0, position)
            place = place * extent + position
        return place, unknown

    def out_of_bounds(
        self,
        buffer: str,
        subscripts: tuple[Subscript, ...],
        index: list[Index],
        dimension: int,
        outside: Mask,
        lanes: Lanes,
        span: Span,
    ) -> NoReturn:
        """Raises the error with the least iteration, outermost loop first."""
        by_loop = np.broadcast_to(np.asarray(outside), lanes.shape).transpose()
        where = tuple(int(n) for n in np.unravel_index(int(np.argmax(by_loop)), by_loop.shape))[::-1]

        def at(value: Index) -> int:
            return value if isinstance(value, int) else int(np.broadcast_to(value, lanes.shape)[where])

        iteration = {name: at(value) for name, value in lanes.environment.items() if name not in self.sizes}
        element = tuple(at(value) for value in index)
        gathered = isinstance(subscripts[dimension], Gather)
        statement = "" if self.leaf is None or isinstance(self.leaf, If) else self.leaf.id
        site = Site(statement, span if span.source.text or self.leaf is None else self.leaf.span, iteration)
        reports = Reports.of(self.kernel, self.sizes)
        raise TExprError(
            [reports.outside(site, self.buffers[buffer], self.shapes[buffer], element, dimension, gathered)]
        )


def least_of(value: Index) -> int:
    return value if isinstance(value, int) else int(np.min(value, initial=np.iinfo(np.int64).max))


def greatest_of(value: Index | Array) -> int:
    return value if isinstance(value, int) else int(np.max(value, initial=np.iinfo(np.int64).min))
