"""Which bands go over columns: their iterations are loops of one extent, and scalars around these.

    par B b, N j { t = sum C c { X[b, c, j] } ; let s = 1 / t ; par C c { Y[b, c, j] = X[b, c, j] * s } }

Each thread of a team runs the scalars for itself; what stands beside the loops and writes an array one of it runs.
"""

from collections.abc import Iterator, Sequence

from texpr.grammar.ast import Accumulate, Bind, If, New, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import names
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest, is_serial_par, nest_of
from texpr.polyhedral.map.held import Held, Member, along_row, held_by
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction, is_scalar, reduction
from texpr.polyhedral.map.vectors import Event, arrays_of, events_of
from texpr.polyhedral.walk import written


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnWork:
    """The loops over a column, in text order, and the reductions among them."""

    loops: tuple[Member, ...]
    reductions: tuple[Reduction, ...]

    def at(self, stmt: Stmt) -> Reduction | None:
        """The reduction that a statement is."""
        return next((one for one in self.reductions if one.over is stmt), None)


def body_of(loop: Member) -> tuple[Stmt, ...]:
    """What a loop over a column does in an iteration."""
    return nest_of(loop).body if isinstance(loop, Par) else loop.body


def column_work(problem: Problem, nest: Nest) -> ColumnWork | None:
    """The loops of a band over columns; None where it is none, or has anything that a team's threads cannot share."""
    loops = tuple(stmt for stmt in nest.body if isinstance(stmt, Seq | Par))
    if len(loops) < 2 or len({loop.extent for loop in loops}) > 1 or names(loops[0].extent) & set(nest.indices):
        return None
    if any(names(par.extent) & set(nest.indices) for par in nest.pars) or not all(map(_is_plain, loops)):
        return None
    found = [reduction(problem.kernel, loop, loop.index) for loop in loops if isinstance(loop, Seq)]
    own = {stmt.buffer for stmt in nest.body if isinstance(stmt, New)}
    if not all(is_scalar(problem.kernel.buffer(name)) for name in own):
        return None
    beside = [stmt for stmt in nest.body if not isinstance(stmt, Seq | Par | New)]
    if None in found or not all(_is_beside(stmt, own) for stmt in beside):
        return None
    return ColumnWork(loops=loops, reductions=tuple(one for one in found if one is not None))


def _is_plain(loop: Member) -> bool:
    """Whether the loop has one index, and no loop or attribute inside it."""
    inside = list(events_of(body_of(loop)))
    one = isinstance(loop, Seq) or (not is_serial_par(loop) and len(nest_of(loop).pars) == 1)
    return one and not loop.attrs and None not in inside and not any(event and event.atomic for event in inside)


def _is_beside(stmt: Stmt, own: set[str]) -> bool:
    """Whether a statement beside the loops is one of all threads, which write scalars of their own, or of one."""
    inside = list(statements((stmt,)))
    if not all(isinstance(s, Bind | Accumulate | If) for s in inside):
        return False
    return len({target[0] in own for s in inside if isinstance(s, Bind | Accumulate) and (target := written(s))}) == 1


def is_of_all(stmt: Stmt, own: set[str]) -> bool:
    """Whether every thread runs a statement beside the loops, for a scalar of its own."""
    return any(isinstance(s, Bind | Accumulate) and s.buffer in own for s in statements((stmt,)))


def column_held(problem: Problem, nest: Nest, found: ColumnWork, team: int) -> Held | None:
    """What a team holds of a column; None where that is nothing, or anything else is read of an array that the band
    writes: no thread waits for what another one writes."""
    held = held_by(problem, nest.body, found.loops, team)
    if held is None:
        return None
    arrays = arrays_of(problem)
    changed = {event.element[0] for event in _events(nest.body) if event.writes and event.element[0] in arrays}
    for loop in found.loops:
        own = {element for element in held.reads.get(loop.index, ()) if element in held.elements}
        for event in _events(body_of(loop)):
            other = along_row(event.element, loop.index) not in own
            if not event.writes and event.element[0] in changed and other:
                return None
    around = [stmt for stmt in nest.body if not isinstance(stmt, Seq | Par)]
    return None if any(not e.writes and e.element[0] in changed for e in _events(around)) else held


def _events(stmts: Sequence[Stmt]) -> Iterator[Event]:
    """The accesses of statements, in loops over a column, too."""
    for stmt in stmts:
        inside = body_of(stmt) if isinstance(stmt, Seq | Par) else (stmt,)
        yield from (event for event in events_of(inside) if event is not None)
