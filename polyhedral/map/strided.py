"""Strided reads: what short loops of neighbouring iterations read of a row, one after the other, is the row itself.

    par W w { for y < 2, x < 2: s += X[2*h + y, 2*w + x] }          2 iterations of w

    for y < 2: copy X_row[y, e] = X[2*h + y, 2*w_first + e] for e < 4  (aligned)
    for w_vector < 2
      for y < 2, x < 2: s += X_row[y, 2*w_vector + x]

Each iteration reads `stride` neighbours in the order of its innermost loop, and the next iteration those behind them.
So they are loaded before the iterations, all rows of them one after another, and are on their way together. That is so
where all iterations of a run are there, and each surely reads its part, of arrays that the body does not write; loops
are short, and bear no attributes, and no condition and no atomic update stands beside them.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from texpr.grammar.ast import Accumulate, Bind, Gather, IndexExpr, IndexVar, New, Par, Seq, Stmt, Subscript
from texpr.grammar.core import children
from texpr.grammar.index.expr import ZERO, add, combine, const, constant_value, multiply
from texpr.grammar.index.linear import linear
from texpr.grammar.index.operators import IndexOp
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.runs import Run, in_run, through
from texpr.polyhedral.map.vectors import (
    MOST,
    Along,
    Element,
    address,
    along,
    arrays_of,
    at_places,
    element_width,
    events_of,
    is_run,
)
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.walk import subscript_names

MOST_ITERATIONS = 16  # of the loops around a read, which are written out
MOST_BYTES = 256  # of a thread's registers that hold rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Strided:
    """Elements of an array that a run of `count` iterations reads in loops: `inner` is the one that has neighbours, ''
    where an iteration has one element of a row; the `outer` ones tell which row. An access has `width` of them. Where
    the index and the inner loop stand in subscripts of their own (A[i, x], x < 4 of 4: rows that lie one behind the
    other), a place in the row `divides` into both.
    """

    element: Element
    dtype: DType
    count: int
    stride: int
    inner: str
    outer: tuple[Seq, ...]
    width: int
    divides: bool
    first: Stmt

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(_count(loop) for loop in self.outer)

    @property
    def length(self) -> int:
        """The elements of a row."""
        return self.stride * self.count

    @property
    def accesses(self) -> int:
        return prod(self.rows) * self.length // self.width

    @property
    def bytes(self) -> int:
        return prod(self.rows) * self.length * self.dtype.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A body of which a thread takes runs: its `strided` reads, and all that it does as if its loops had one iteration,
    whose wide accesses are `plain`."""

    plain: Along
    strided: tuple[Strided, ...]

    @property
    def widths(self) -> Mapping[Element, int]:
        """Of each strided read the elements of an access."""
        return {one.element: one.width for one in self.strided}

    @property
    def accesses(self) -> int:
        """The strided ones of a thread."""
        return sum(one.accesses for one in self.strided)

    @property
    def bytes(self) -> int:
        """What the strided reads take of a thread's registers."""
        return sum(one.bytes for one in self.strided)


def reading_of(
    problem: Problem,
    nest: Nest,
    index: str,
    count: int,
    hardware: tuple[str, ...] = (),
    origin: Element | None = None,
) -> Reading:
    """What a thread reads that takes `count` iterations of an index of a nest, one of `hardware`, all of the nest where
    that is not said; they are counted from where the `origin` is aligned, None: from 0. Of a body with loops nothing is
    wide where a read in them that moves is not strided."""
    hardware = hardware or nest.indices
    stmts = nest.body
    loops = tuple(_loops(stmts))
    par = next(par for par in nest.pars if par.index == index)
    strided = _strided(problem, par, count, stmts, loops) if loops and origin is None else None
    if strided is None:
        return Reading(plain=along(problem, stmts, index, hardware, origin=origin), strided=())
    elsewhere = [one.element for one in strided]
    return Reading(plain=along(problem, tuple(_opened(stmts)), index, hardware, elsewhere), strided=strided)


def in_strides(
    draft: Draft,
    nest: Nest,
    run: Run,
    body: tuple[Node, ...],
    *,
    hardware: tuple[str, ...],
    digits: tuple[str, ...],
    origin: Element | None,
) -> tuple[Node, ...]:
    """The body for every iteration of a run of an index of a nest, what it moves of arrays before and after."""
    found = reading_of(draft.problem, nest, run.index, run.count, hardware, origin)
    loads: list[Node] = []
    held: dict[Element, Element] = {}
    for one in found.strided:
        layout = row_major(tuple(map(const, (*one.rows, one.length))))
        reason = f"rows of {one.element[0]} that {run.count} neighbouring iterations read"
        name = draft.local(f"{one.element[0]}_row", one.dtype, Memory.REG, layout, reason, span=one.first.span)
        loads += [Fresh(buffer=name), _load(draft, run, one, name, digits)]
        place = multiply(const(one.stride), IndexVar(name=run.vector.name))
        place = add(place, IndexVar(name=one.inner)) if one.inner else place
        held[one.element] = (name, (*(IndexVar(name=loop.index) for loop in one.outer), place))
    return (*loads, *in_run(draft, run, found.plain.vectors(run.count), through(body, held), digits))


def _load(draft: Draft, run: Run, one: Strided, register: str, digits: tuple[str, ...]) -> Node:
    """All rows of a run, by accesses of so many elements."""
    fresh, (name, subscripts) = draft.names.fresh, one.element
    rows = [fresh(f"{loop.index}_row") for loop in one.outer]
    several, element = (fresh(f"{run.index}_{word}") for word in ("access", "element"))
    accesses = one.length // one.width
    access: IndexExpr = IndexVar(name=several) if accesses > 1 else ZERO
    place = add(multiply(const(one.width), access), IndexVar(name=element))
    first: IndexExpr = IndexVar(name=run.first)
    within: IndexExpr = place
    if one.divides and one.width == one.stride:
        first, within = add(first, access), IndexVar(name=element)
    elif one.divides:
        first = add(first, combine(IndexOp.DIV, place, const(one.stride)))
        within = combine(IndexOp.MOD, place, const(one.stride))
    begin = {run.index: first, one.inner: within} if one.inner else {run.index: add(first, place)}
    whose = {loop.index: IndexVar(name=row) for loop, row in zip(one.outer, rows, strict=True)}
    copy = Copy(
        id=fresh(f"{name}_read"),
        source=View(buffer=name, subscripts=at_places(subscripts, {**begin, **whose}), dtype=one.dtype),
        target=View(buffer=register, subscripts=(*whose.values(), place), dtype=one.dtype),
        over=(*([(several, const(accesses))] if accesses > 1 else []), (element, const(one.width))),
        access=Access.ALIGNED,
        digits=digits,
        span=one.first.span,
    )
    node: Node = copy
    for loop, row in reversed(list(zip(one.outer, rows, strict=True))):
        node = Loop(index=row, extent=loop.extent, body=(node,), unroll=True, span=one.first.span)
    return node


def _loops(stmts: Sequence[Stmt]) -> Iterator[Seq]:
    for stmt in stmts:
        if isinstance(stmt, Seq):
            yield stmt
        yield from _loops(children(stmt))


def _opened(stmts: Sequence[Stmt]) -> Iterator[Stmt]:
    """The statements with those of loops in place of these."""
    for stmt in stmts:
        yield from _opened(stmt.body) if isinstance(stmt, Seq) else (stmt,)


def _count(loop: Seq) -> int:
    return constant_value(loop.extent) or 0


def _strided(
    problem: Problem, par: Par, count: int, stmts: tuple[Stmt, ...], loops: Sequence[Seq]
) -> tuple[Strided, ...] | None:
    """The reads in loops that move with the index of a `par`; None where one is not strided, or something else stands
    in the body or the way."""
    short = prod(map(_count, loops)) <= MOST_ITERATIONS and all(_count(loop) > 0 and not loop.attrs for loop in loops)
    whole = 1 < count <= MOST and is_power_of_two(count) and linear(par.extent).is_multiple(count, problem.divisors)
    if not (short and whole):
        return None
    if not all(isinstance(stmt, New | Bind | Accumulate) for stmt in _opened(stmts)):
        return None
    own, arrays, found = declared(stmts), arrays_of(problem), dict[Element, Strided]()
    written = {event.element[0] for event in events_of(tuple(_opened(stmts))) if event is not None and event.writes}
    for around, leaf in _leaves(stmts, ()):
        for event in events_of((leaf,)):
            assert event is not None, "asked above"
            name, told = event.element[0], subscript_names(event.element[1])
            if name in own or par.index not in told or not any(loop.index in told for loop in around):
                continue
            sure = event.surely and not event.writes and name in arrays - written
            one = _one(problem, par.index, count, event.element, around, leaf) if sure else None
            if one is None or found.setdefault(event.element, one).rows != one.rows:
                return None
    fits = sum(one.bytes for one in found.values()) <= MOST_BYTES
    return tuple(found.values()) if found and fits else None


def _leaves(stmts: Sequence[Stmt], around: tuple[Seq, ...]) -> Iterator[tuple[tuple[Seq, ...], Stmt]]:
    """The statements, each with the loops around it."""
    for stmt in stmts:
        if isinstance(stmt, Seq):
            yield from _leaves(stmt.body, (*around, stmt))
        else:
            yield around, stmt


def _one(
    problem: Problem, index: str, count: int, element: Element, around: Sequence[Seq], leaf: Stmt
) -> Strided | None:
    """The read as a strided one, None where it is none."""
    name, subscripts = element
    if any(isinstance(s, Gather) for s in subscripts) or problem.layouts[name].xor is not None:
        return None
    stride = address(problem, element).coefficient(index)
    loops = [loop for loop in around if loop.index in subscript_names(subscripts)]
    inner = next((loop for loop in loops if _count(loop) > 1 and is_run(problem, element, loop.index)), None)
    if stride is None or stride != (1 if inner is None else _count(inner)):
        return None
    at_zero = [loop.index for loop in loops if _count(loop) == 1] + ([index] if inner is not None else [])
    begin = (name, at_places(subscripts, dict.fromkeys(at_zero, ZERO)))
    width = element_width(problem, begin, index if inner is None else inner.index)
    divides = inner is not None and not _are_one(subscripts, index, inner.index)
    while stride * count % width:
        width //= 2
    outer = tuple(loop for loop in loops if loop is not inner)
    if width < 2:
        return None
    return Strided(
        element=element,
        dtype=problem.kernel.buffer(name).dtype,
        count=count,
        stride=stride,
        inner=inner.index if inner is not None else "",
        outer=outer,
        width=width,
        divides=divides,
        first=leaf,
    )


def _are_one(subscripts: Sequence[Subscript], first: str, second: str) -> bool:
    """Whether two indices stand in one subscript, and in no other."""
    both = {first, second}
    return [both & subscript_names((s,)) for s in subscripts if both & subscript_names((s,))] == [both]
