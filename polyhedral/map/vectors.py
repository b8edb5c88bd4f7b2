"""Vectors: which accesses are wide where a thread takes several neighbouring iterations of an index.

    par M i, N j { Y[i, j] = a * X[i, j] }     N % 4 == 0, 4 iterations of j: X and Y by 16 bytes
    par N j { B[j] = A[j + 1] }                A[j + 1] begins at no multiple of 16 bytes: A from two chunks of them

An access is wide where its elements lie one after another along the index, from a multiple of their bytes on for every
multiple of the width, and where it is surely made, once, whatever the data are: so what it reads can be read before the
iterations, and what it writes can be written after them. What the iterations of a `par` read no other iteration writes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Expr,
    Gather,
    If,
    IndexExpr,
    IndexVar,
    New,
    Node,
    Read,
    Role,
    Select,
    SizeVar,
    Stmt,
    Subscript,
    operands,
)
from texpr.grammar.index.expr import ZERO, names, substitute
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.layout.vector import vector_width
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.distinct import are_distinct
from texpr.polyhedral.map.problem import Problem, declared, workspaces
from texpr.polyhedral.map.quotients import moves_seldom
from texpr.polyhedral.walk import subscript_names, subscript_reads, value_reads

Element = tuple[str, tuple[Subscript, ...]]
ACCESS_BYTES = 16  # the widest access of a thread
MOST = 16  # iterations of an index that a thread takes at once
RUN_BYTES = 64  # what the elements of one array may take of a thread's registers


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide:
    """Elements of an array that lie along the index, moved `width` at a time: `loads` before the iterations, `stores`
    after them. `first` is the statement that touches them first. `near`: they are neighbours, and are only read, so
    that they may be wide at any address: `funnel`, as 16 bytes of two aligned chunks. `shifted`: lanes of a warp have
    them side by side, at any address, and shift them between one another."""

    element: Element
    dtype: DType
    width: int
    loads: bool
    stores: bool
    first: Stmt
    near: bool = False
    funnel: bool = False
    shifted: bool = False

    @property
    def whole(self) -> int:
        """The elements of the widest access."""
        return ACCESS_BYTES // self.dtype.size_bytes

    def of(self, count: int) -> "Wide":
        """The access of a thread that takes so many iterations."""
        if self.near and self.width < self.whole <= count:
            return replace(self, width=self.whole, funnel=True)
        return replace(self, width=min(self.width, count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The wide accesses of a body, how many others go to other elements from iteration to iteration, and how many reads
    do so seldom."""

    wide: tuple[Wide, ...]
    others: int
    seldom: int = 0

    def whole(self, count: int) -> bool:
        """Whether all accesses that move with the index are wide, as wide as they get, and one moves all elements."""
        full = all(w.width == min(count, w.whole) for w in self.wide)
        return full and not self.others and any(w.width == count and not w.funnel for w in self.wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """The accesses of a body along an index: those that are wide have the greatest width that they may have."""

    most: Vectors

    @property
    def greatest(self) -> int:
        """The greatest width of an access."""
        return max((wide.width for wide in self.most.wide), default=1)

    def vectors(self, count: int) -> Vectors:
        """Those of a thread that takes `count` iterations."""
        wide = [one.of(count) for one in self.most.wide if _has_room(one, count)]
        wide = [one for one in wide if one.width > 1]
        others = self.most.others + len(self.most.wide) - len(wide)
        return Vectors(wide=tuple(wide), others=others, seldom=self.most.seldom)


def _has_room(wide: Wide, count: int) -> bool:
    return count <= MOST and count * wide.dtype.size_bytes <= RUN_BYTES


def along(
    problem: Problem,
    stmts: Sequence[Stmt],
    index: str,
    hardware: tuple[str, ...],
    elsewhere: Collection[Element] = (),
    origin: Element | None = None,
) -> Along:
    """The accesses of statements that a thread runs for iterations of an index of `hardware`, but for the reads of
    elements that it has from `elsewhere`; none is wide of statements with loops. Iterations are counted from where the
    `origin` is aligned, None: from 0. What chooses asks, what checks and what builds: it is looked for once."""
    events, own = tuple(events_of(stmts)), declared(tuple(stmts))
    accesses = tuple(None if event is None else event.told for event in events)
    question = ("along", index, frozenset(hardware), accesses, own, frozenset(elsewhere), origin)
    return problem.once(question, lambda: _along(problem, events, own, index, hardware, elsewhere, origin))


def _along(
    problem: Problem,
    events: Sequence["Event | None"],
    own: frozenset[str],
    index: str,
    hardware: tuple[str, ...],
    elsewhere: Collection[Element],
    origin: Element | None,
) -> Along:
    if None in events:
        return Along(most=Vectors(wide=(), others=1))
    found = [event for event in events if event is not None and (event.writes or event.element not in elsewhere)]
    return Along(most=_Finder(problem, index, hardware, own, origin).find(found))


def sure_reads(problem: Problem, stmts: Sequence[Stmt], index: str, hardware: tuple[str, ...]) -> tuple[Wide, ...]:
    """The elements of arrays that an iteration surely reads, whatever the data are, and no iteration writes: each with
    the greatest width that an access along the index may have. None of statements with loops."""
    events = list(events_of(stmts, surely=True))
    if None in events:
        return ()
    finder = _Finder(problem, index, hardware, declared(tuple(stmts)))
    written = {event.element[0] for event in events if event is not None and event.writes}
    found: dict[Element, Wide] = {}
    for event in filter(None, events):
        name, subscripts = event.element
        plain = not any(isinstance(subscript, Gather) for subscript in subscripts)
        if event.surely and plain and name in finder.arrays and name not in written:
            width = finder.width(event.element, written)
            wide = Wide(
                element=event.element, dtype=event.dtype, width=width, loads=True, stores=False, first=event.stmt
            )
            found.setdefault(event.element, wide)
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An access of one iteration. `surely`: no condition decides whether it is made; `binds`: what was there before
    does not matter."""

    element: Element
    dtype: DType
    stmt: Stmt
    writes: bool = False
    binds: bool = False
    atomic: bool = False
    surely: bool

    @property
    def told(self) -> tuple[Element, DType, str, bool, bool, bool, bool]:
        """All that decides of it; of its statement the name."""
        name = getattr(self.stmt, "id", "")
        return self.element, self.dtype, name, self.writes, self.binds, self.atomic, self.surely


def events_of(stmts: Sequence[Stmt], *, surely: bool = True) -> Iterator[Event | None]:
    """The accesses in the order of an iteration; None for a statement with which nothing is wide."""
    for stmt in stmts:
        match stmt:
            case New():
                pass
            case Bind() | Accumulate() | Atomic():
                yield from _reads(stmt.value, stmt, surely=surely)
                for read in subscript_reads(stmt.subscripts):
                    yield Event(element=(read.buffer, read.subscripts), dtype=read.dtype, stmt=stmt, surely=surely)
                yield Event(
                    element=(stmt.buffer, stmt.subscripts),
                    dtype=stmt.value.dtype,
                    stmt=stmt,
                    writes=True,
                    binds=isinstance(stmt, Bind),
                    atomic=isinstance(stmt, Atomic),
                    surely=surely,
                )
            case If(condition=condition, then=then, orelse=orelse):
                if isinstance(condition, Read):
                    yield from _reads(condition, stmt, surely=surely)
                yield from events_of(then, surely=False)
                yield from events_of(orelse, surely=False)
            case _:
                yield None


def _reads(value: Expr, stmt: Stmt, *, surely: bool) -> Iterator[Event]:
    """The reads of a value; the arms of a `select` are not surely evaluated."""
    work: list[tuple[Node, bool]] = [(value, surely)]
    found: list[Event] = []
    while work:
        node, sure = work.pop()
        if isinstance(node, Read):
            found.append(Event(element=(node.buffer, node.subscripts), dtype=node.dtype, stmt=stmt, surely=sure))
        for part in operands(node):
            if not isinstance(part, IndexExpr):
                work.append((part, sure and not (isinstance(node, Select) and part is not node.condition)))
    yield from reversed(found)


def _is_bound_once(touches: Sequence[Event]) -> bool:
    """Whether an iteration binds an element, surely, and touches it nowhere else."""
    return len(touches) == 1 and touches[0].writes and touches[0].binds and touches[0].surely


@dataclass(slots=True)
class _Finder:
    problem: Problem
    index: str
    hardware: tuple[str, ...]
    own: frozenset[str]  # locals of one iteration
    origin: Element | None = None
    arrays: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.arrays = arrays_of(self.problem)

    def find(self, events: Sequence[Event]) -> Vectors:
        written = {event.element[0] for event in events if event.writes}
        found: dict[Element, list[Event]] = {}
        for event in events:
            found.setdefault(event.element, []).append(event)
        again = {touches[0].element[0] for touches in found.values() if not _is_bound_once(touches)}
        bound, wide = written - again, list[Wide]()
        others = seldom = 0
        for element, touches in found.items():
            if element[0] not in written and moves_seldom(element[1], self.index):
                seldom += 1
            elif self._moves(element):
                alone = element[0] not in written or all(
                    are_distinct(element[1], other[1], self.index, bound=element[0] in bound)
                    for other in found
                    if other[0] == element[0] and other != element
                )
                run = self._wide(element, touches, written) if alone else None
                wide += [run] if run is not None else []
                others += run is None
        return Vectors(wide=tuple(wide), others=others, seldom=seldom)

    def _moves(self, element: Element) -> bool:
        """Whether another iteration may touch another element."""
        name, subscripts = element
        inner = (read for read in subscript_reads(subscripts))
        return name not in self.own and (
            self.index in subscript_names(subscripts) or any(read.buffer in self.own for read in inner)
        )

    def _wide(self, element: Element, touches: Sequence[Event], written: set[str]) -> Wide | None:
        """The wide access; of an array that an iteration writes, the element is the only one that it touches."""
        name = element[0]
        width = self.width(element, written) if name in self.arrays else 1
        writes = [t for t in touches if t.writes]
        near = name in self.arrays - written and self._is_near(element, written)
        sure = any(t.surely for t in (writes or touches)) and (not writes or touches[0].surely)
        if not sure or (width == 1 and not near):
            return None
        if any(t.atomic or (not t.binds and self._met(t.stmt)) for t in writes):
            return None
        first = touches[0]
        dtype = self.problem.kernel.buffer(name).dtype
        return Wide(
            element=element,
            dtype=dtype,
            width=width,
            loads=not (first.binds and first.surely),
            stores=bool(writes),
            first=first.stmt,
            near=near,
        )

    def _is_near(self, element: Element, written: set[str]) -> bool:
        """Whether the elements at neighbouring iterations are neighbours, wherever they begin."""
        gathered = [s for s in element[1] if isinstance(s, Gather)]
        reads = (read.buffer for s in gathered for read in value_reads(s.value))
        known = not any(self.index in names(s) for s in gathered) and not any(r in self.own | written for r in reads)
        return known and is_run(self.problem, element, self.index)

    def _met(self, stmt: Stmt) -> bool:
        """Whether other threads update the element, too."""
        assert isinstance(stmt, Accumulate), "a bind has no rival"
        return shared_updates(self.problem.proved.program, stmt.id, self.hardware)

    def width(self, element: Element, written: set[str]) -> int:
        """How many elements, from any multiple of so many iterations on, are one aligned access at most."""
        for subscript in element[1]:
            if isinstance(subscript, Gather) and any(
                read.buffer in self.own | written for read in value_reads(subscript.value)
            ):
                return 1
        return element_width(self.problem, element, self.index, self.origin)


def element_width(problem: Problem, element: Element, index: str, origin: Element | None = None) -> int:
    """How many elements, from any multiple of so many values of the index on, are one aligned access at most. They are
    counted from where the `origin` is aligned."""
    name, subscripts = element
    if any(isinstance(s, Gather) and index in names(s) for s in subscripts):
        return 1
    layout, most = problem.layouts[name], _most(problem, name)
    if origin is None:
        return vector_width(layout, plain_subscripts(subscripts), index, most, problem.divisors)
    own, first = (
        linear(offset(problem.layouts[n], plain_subscripts(at(s, index, ZERO)))) for n, s in (element, origin)
    )
    if not is_run(problem, element, index):
        return 1
    apart, width = own - first, min(most, _most(problem, origin[0]))
    while not apart.is_multiple(width, problem.divisors):
        width //= 2
    return width


def printed(buffer: str, subscripts: tuple[Subscript, ...]) -> str:
    """An element as the mapping prints it."""
    return f"{buffer}[{', '.join(in_words(s) for s in subscripts if isinstance(s, IndexExpr))}]"


def is_run(problem: Problem, element: Element, index: str) -> bool:
    """Whether the elements at neighbouring values of an index are neighbours."""
    return problem.layouts[element[0]].xor is None and address(problem, element).coefficient(index) == 1


def address(problem: Problem, element: Element) -> Linear:
    """Where an element lies in its array, without an XOR, worked out once: every shape of a tile asks for it."""
    layout = problem.layouts[element[0]]
    found: Linear = problem.once(
        ("address", element), lambda: linear(offset(replace(layout, xor=None), plain_subscripts(element[1])))
    )
    return found


def _most(problem: Problem, name: str) -> int:
    """The elements of the widest access to an array where it begins."""
    buffer = problem.kernel.buffer(name)
    return min(ACCESS_BYTES, buffer.align) // buffer.dtype.size_bytes


def plain_subscripts(subscripts: tuple[Subscript, ...]) -> list[IndexExpr]:
    """The subscripts, with a name for each that is read from data."""
    return [IndexVar(name=f"#{n}") if isinstance(s, Gather) else s for n, s in enumerate(subscripts)]


def at(subscripts: tuple[Subscript, ...], index: str, value: IndexExpr) -> tuple[Subscript, ...]:
    """The subscripts at a value of an index; what is read from data stays."""
    return at_places(subscripts, {index: value})


def at_places(subscripts: Sequence[Subscript], places: Mapping[str, IndexExpr]) -> tuple[Subscript, ...]:
    """The subscripts at other values of some indices."""

    def put(name: IndexVar | SizeVar) -> IndexExpr | None:
        return places.get(name.name)

    return tuple(s if isinstance(s, Gather) else substitute(s, put) for s in subscripts)


def arrays_of(problem: Problem) -> frozenset[str]:
    """What lies in global memory as the kernel declares it: arrays of parameters and workspaces."""
    shared = {b.name for b in problem.kernel.params if b.role is not Role.SCALAR}
    return frozenset(shared | {b.name for b in workspaces(problem.kernel)})
