"""Values and accesses of a simulated statement, for all threads that run it at once."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NoReturn, Protocol, assert_never

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Cast,
    ConditionValue,
    Const,
    Expr,
    Gather,
    IndexExpr,
    IndexValue,
    Op,
    Read,
    Select,
    Subscript,
)
from texpr.grammar.diagnostics import Label, TExprError, error
from texpr.grammar.index.value import condition_value, index_value
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.layout.place import coordinates
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.simulate.cells import Array, Cells, Line, Violation, Watch
from texpr.polyhedral.simulate.failure import failure


class Values(dict[str, Any]):
    """Indices, sizes and digits by name, in every thread or one for all."""

    def __missing__(self, name: str) -> NoReturn:
        raise failure(f"{name} has no value where it is used")


@dataclass(frozen=True, slots=True)
class Lanes:
    """The threads that run a node, by their numbers, and the values of indices, sizes and digits in each."""

    thread: Array
    values: Values

    def only(self, mask: Array) -> "Lanes":
        """The threads where the mask holds."""
        if mask.all():
            return self
        return Lanes(
            self.thread[mask], Values({n: v[mask] if isinstance(v, np.ndarray) else v for n, v in self.values.items()})
        )

    def having(self, name: str, value: Any) -> "Lanes":
        return replace(self, values=Values(self.values, **{name: value}))

    def spread(self, name: str, extent: Array) -> "Lanes":
        """Every thread once for each value of an index below its extent: independent iterations run at once."""
        count = np.maximum(extent, 0)
        first = np.repeat(np.cumsum(count) - count, count)
        values = {n: np.repeat(v, count) if isinstance(v, np.ndarray) else v for n, v in self.values.items()}
        return Lanes(np.repeat(self.thread, count), Values(values, **{name: np.arange(len(first)) - first}))

    def index(self, expr: IndexExpr) -> Array:
        """The value of an index expression in every thread."""
        return np.broadcast_to(np.asarray(index_value(expr, self.values)), self.thread.shape)


def holders(cells: Cells, lane: Array, lanes: Lanes) -> Array:
    """The threads whose lanes these are in the teams of others."""
    return np.asarray(lanes.thread - lanes.thread % cells.team + lane)


@dataclass(slots=True)
class Lines:
    """The statements that accesses belong to, numbered as they come."""

    found: list[Line] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, id: str, span: Span) -> int:
        if id not in self.numbers:
            self.numbers[id] = len(self.found)
            self.found.append(Line(id=id, span=span))
        return self.numbers[id]


class Copies(Protocol):
    """Which copy of a buffer an access means: one for each thread, block, slot of a pipe."""

    def read(self, buffer: MappedBuffer, thread: Array) -> Array: ...

    def written(self, buffer: MappedBuffer, thread: Array) -> Array: ...

    def of_rank(self, thread: Array, rank: Array) -> Array:
        """The copy of the block with that rank in the thread's cluster."""
        ...


class Evaluator:
    """Evaluates values and makes accesses, watching each of them."""

    def __init__(self, memory: Mapping[str, Cells], watch: Watch, copies: Copies, lines: Lines) -> None:
        self.memory = memory
        self.watch = watch
        self.copies = copies
        self.lines = lines
        self.statement = 0

    def at(self, id: str, span: Span) -> None:
        """What is evaluated next belongs to this statement."""
        self.statement = self.lines.number(id, span)

    # ---- values -------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, lanes: Lanes) -> Array:
        """The value in every thread, or one for all."""
        match expr:
            case Const(value=value, dtype=dtype):
                return numerics.constant(value, dtype)
            case IndexValue(index=index, dtype=dtype):
                return numerics.from_index(lanes.index(index), dtype)
            case ConditionValue(condition=condition):
                return numerics.truth(condition_value(condition, lanes.values))
            case Read(buffer=buffer, subscripts=subscripts):
                return self.load(buffer, subscripts, lanes)
            case Op(fn=fn, args=args, dtype=dtype):
                return numerics.apply(fn, tuple(self.value(a, lanes) for a in args), dtype)
            case Cast(operand=operand, dtype=dtype):
                return numerics.cast(self.value(operand, lanes), operand.dtype, dtype)
            case Select():
                return self._select(expr, lanes)
            case _:
                assert_never(expr)

    def _select(self, expr: Select, lanes: Lanes) -> Array:
        """Each arm for the threads that choose it."""
        if isinstance(expr.condition, Expr):
            chosen = self.value(expr.condition, lanes)
        else:
            chosen = np.asarray(condition_value(expr.condition, lanes.values))
        mask = np.broadcast_to(chosen, lanes.thread.shape).astype(np.bool_)
        result = np.zeros(lanes.thread.shape, dtype=numerics.storage(expr.dtype))
        for arm, where in ((expr.then, mask), (expr.other, ~mask)):
            if where.any():
                result[where] = self.value(arm, lanes.only(where))
        return result

    # ---- accesses -----------------------------------------------------------------------------------------------

    def load(self, buffer: str, subscripts: tuple[Subscript, ...], lanes: Lanes) -> Array:
        cells = self.memory[buffer]
        place = self.address(cells, self.copies.read(cells.buffer, lanes.thread), subscripts, lanes)
        return self.fetch(buffer, place, self.watch.agents(lanes.thread))

    def fetch(self, buffer: str, place: Array, agents: Array, *, more: bool = False) -> Array:
        """The elements at these addresses, read by these agents. They may be `more` than anything uses: those that
        nothing wrote are NaN."""
        cells = self.memory[buffer]
        if cells.watched:
            self._refuse(cells, cells.shadow.read(cells.units(place), self._each(cells, agents), self.statement))
        if more and cells.defined is not None and cells.grain == 1 and cells.buffer.dtype.is_float:
            return np.where(cells.defined[place], cells.data[place], np.array(np.nan, cells.data.dtype))
        self._check_defined(cells, place)
        return np.asarray(cells.data[place])

    def check_fenced(self, buffer: str, place: Array, agents: Array, fences: Mapping[int, int]) -> None:
        """Whether the threads that hold these elements touched none of them since they fenced their registers."""
        cells = self.memory[buffer]
        if cells.team:
            wrong = cells.shadow.touched_since(place, agents, fences)
            self._refuse(cells, wrong)

    def _check_defined(self, cells: Cells, place: Array) -> None:
        if cells.defined is None:
            return
        units = cells.units(place)
        if not cells.defined[units].all():
            at = int(units[~cells.defined[units]][0])
            self._fail(f"element {cells.element(at)} of {cells.buffer.name} is read before anything wrote it")

    def _each(self, cells: Cells, agents: Array) -> Array:
        """The agents of every unit of memory of their elements."""
        return agents if cells.grain == 1 else np.repeat(agents, cells.grain)

    def store(self, buffer: str, subscripts: tuple[Subscript, ...], value: Array, lanes: Lanes) -> None:
        cells = self.memory[buffer]
        place = self.address(cells, self.copies.written(cells.buffer, lanes.thread), subscripts, lanes)
        self.put(buffer, place, value, self.watch.agents(lanes.thread))

    def put(self, buffer: str, place: Array, value: Array, agents: Array) -> None:
        """These agents write to these addresses."""
        cells = self.memory[buffer]
        if cells.watched:
            self._refuse(cells, cells.shadow.write(cells.units(place), self._each(cells, agents), self.statement))
        cells.data[place] = value
        if cells.defined is not None:
            cells.defined[cells.units(place)] = True

    def update(self, leaf: Accumulate | Atomic, value: Array, lanes: Lanes, *, atomic: bool) -> None:
        """One update of an element by every thread; only an atomic one may meet another."""
        cells = self.memory[leaf.buffer]
        place = self.address(cells, self.copies.written(cells.buffer, lanes.thread), leaf.subscripts, lanes)
        if cells.watched:
            access = cells.shadow.atomic if atomic else cells.shadow.write
            agents = self._each(cells, self.watch.agents(lanes.thread))
            self._refuse(cells, access(cells.units(place), agents, self.statement))
        self._check_defined(cells, place)
        dtype, carried = cells.buffer.dtype, leaf.value.dtype
        if dtype == carried:
            with np.errstate(all="ignore"):
                numerics.ufunc(leaf.op, dtype).at(cells.data, place, value)
            return
        waiting = np.arange(len(place))
        while len(waiting):
            _, first = np.unique(place[waiting], return_index=True)
            now = waiting[first]
            current = cells.data[place[now]]
            cells.data[place[now]] = numerics.accumulate(leaf.op, current, dtype, value[now], carried)
            waiting = np.delete(waiting, first)

    def address(self, cells: Cells, copy: Array, subscripts: tuple[Subscript, ...], lanes: Lanes) -> Array:
        """Where the element lies in the cells, in the copy of its rank where it has one; E0604 for one that the buffer
        does not have, or that another thread holds."""
        found = self._coordinates(cells, subscripts, lanes)
        if Unit.RANK in found:
            copy = self.copies.of_rank(lanes.thread, found[Unit.RANK])
        if cells.team:
            holder = holders(cells, found[Unit.LANE], lanes)
            if (holder != lanes.thread).any():
                at = int(np.argmax(holder != lanes.thread))
                self._fail(f"thread {lanes.thread[at]} touches what thread {holder[at]} holds of {cells.buffer.name}")
        return np.asarray(cells.begin(copy) + found[cells.unit])

    def holder(self, buffer: str, subscripts: tuple[Subscript, ...], lanes: Lanes) -> Array:
        """The thread of its team that holds the element in its registers."""
        cells = self.memory[buffer]
        return holders(cells, self._coordinates(cells, subscripts, lanes)[Unit.LANE], lanes)

    def _coordinates(self, cells: Cells, subscripts: tuple[Subscript, ...], lanes: Lanes) -> dict[Unit, Array]:
        points: list[Array] = []
        for number, (index, extent) in enumerate(zip(self._points(subscripts, lanes), cells.extents, strict=True)):
            outside = (index < 0) | (index >= extent)
            if outside.any():
                at = int(index[outside][0])
                name = cells.buffer.name
                self._fail(f"subscript {number} of {name} is {at}, and the extent is {extent}")
            points.append(index)
        return coordinates(cells.layout, points)

    def _points(self, subscripts: tuple[Subscript, ...], lanes: Lanes) -> Iterator[Array]:
        """The values of subscripts."""
        for subscript in subscripts:
            if isinstance(subscript, Gather):
                yield np.broadcast_to(self.value(subscript.value, lanes), lanes.thread.shape).astype(np.int64)
            else:
                yield lanes.index(subscript)

    def exists(self, view: View, lanes: Lanes) -> Array:
        """Whether the buffer has the element."""
        mask = np.ones(lanes.thread.shape, np.bool_)
        for index, extent in zip(self._points(view.subscripts, lanes), self.memory[view.buffer].extents, strict=True):
            mask &= (index >= 0) & (index < extent)
        return mask

    def lead(self, of: View, bytes_: int, lanes: Lanes) -> Array:
        """How many elements lie between the last multiple of `bytes_` and the element. It need not be one that the
        array has: a row of none begins somewhere."""
        cells = self.memory[of.buffer]
        points: list[Array] = []
        for subscript in of.subscripts:
            if isinstance(subscript, Gather):
                raise failure(f"the address of {of.buffer} at a subscript from data is not simulated")
            points.append(lanes.index(subscript))
        copy = self.copies.read(cells.buffer, lanes.thread)
        place = cells.begin(copy) + coordinates(cells.layout, points)[Unit.ADDRESS]
        size = cells.data.itemsize
        return np.asarray((place * size + cells.base_bytes) % bytes_ // size)

    def check_wide(self, view: View, copy: Copy, lanes: Lanes, warp: int) -> None:
        """Whether the elements of a wide access follow one another, and begin where it asks for: behind those of the
        lane before, or at a multiple of their bytes."""
        cells = self.memory[view.buffer]
        index, extent = copy.over[-1]
        own = self.copies.read(cells.buffer, lanes.thread)
        place = self.address(cells, own, view.subscripts, lanes)
        if cells.layout.xor is not None and copy.access is Access.FUNNEL:  # it finds each of its chunks by itself
            begin = cells.begin(own)
            place = begin + cells.layout.xor.apply(place - begin)
        first, count = place - lanes.values[index], lanes.index(extent)
        outer = (lanes.thread, *(lanes.values[name] for name, _ in copy.over[:-1]))
        together = np.logical_and.reduce([np.diff(o) == 0 for o in outer])
        if (np.diff(first)[together] != 0).any():
            self._fail(f"the elements of {view.buffer} are no neighbours")
        if copy.access is Access.ALIGNED and cells.buffer.memory is not Memory.REG:
            size = cells.data.itemsize
            if ((first * size + cells.base_bytes) % (count * size) != 0).any():
                self._fail(f"the elements of {view.buffer} begin at no multiple of their bytes")
        if copy.access is Access.SHIFTED and cells.buffer.memory is not Memory.REG:
            whole = np.stack([lanes.thread // warp, *outer[1:], first - count * (lanes.thread % warp)])
            if len(np.unique(whole, axis=1).T) != len(np.unique(whole[:-1], axis=1).T):
                self._fail(f"the elements of {view.buffer} are not side by side in the lanes of a warp")

    def poison(self, buffer: str, lanes: Lanes) -> None:
        """The copies that the threads see become undefined; of those for the iterations of a loop inside, all."""
        cells = self.memory[buffer]
        inside = cells.inside()
        if cells.defined is None or not inside.size:
            return
        expanded = cells.buffer.expanded
        if not lanes.values.keys() >= set(expanded):
            expanded = ()
        rows = inside.reshape(math.prod(inside.shape[: len(expanded)]), -1)
        chosen = np.zeros_like(lanes.thread)
        for name, extent in zip(expanded, cells.extents, strict=False):
            chosen = chosen * extent + lanes.values[name]
        copies = cells.begin(self.copies.read(cells.buffer, lanes.thread))
        begin, row = np.divmod(np.unique(copies * len(rows) + chosen), len(rows))
        cells.defined[cells.units((begin[:, None] + rows[row]).reshape(-1))] = False

    # ---- errors -------------------------------------------------------------------------------------------------

    def _refuse(self, cells: Cells, violation: Violation | None) -> None:
        if violation is None:
            return
        earlier = self.lines.found[violation.earlier]
        now = self.lines.found[self.statement]
        raise TExprError(
            [
                error(
                    "E0604",
                    f"{self.watch.names(violation.earlier_agent, violation.agent)} touch element "
                    f"{cells.element(violation.place)} of {cells.buffer.name} and {violation.missing} "
                    f"{earlier.id} (line {earlier.span.line}) and {now.id} (line {now.span.line})",
                    now.span if now.span is not NO_SPAN else None,
                    "the later access",
                    secondary=(Label(span=earlier.span, text="the earlier one"),),
                )
            ]
        )

    def _fail(self, message: str) -> NoReturn:
        line = self.lines.found[self.statement]
        raise TExprError([error("E0604", f"{message} by {line.id} (line {line.span.line})", line.span, "here")])
