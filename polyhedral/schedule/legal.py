"""Whether a move may be made: no dependence of the program loses its order by it.

Each kind of move has a rule: the pairs of instances that were in order and are not afterwards. A dependence that meets
them forbids the move. Updates of one element stay in order, too, so that every sum has its additions as before. A move
that only changes where a local lies needs that no two iterations use one element.
"""

from collections.abc import Callable, Iterator
from typing import assert_never

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexBinary, IndexOp, Not, Par
from texpr.grammar.index.expr import const
from texpr.grammar.records import dataclass
from texpr.polyhedral import isl
from texpr.polyhedral.affine import Scope
from texpr.polyhedral.moves import (
    Contract,
    Distribute,
    Expand,
    Fuse,
    Interchange,
    Move,
    Parallelize,
    Precompute,
    Residues,
    Sink,
    Swap,
    View,
)
from texpr.polyhedral.program import Access, Dependence, Program, ProgramStatement
from texpr.polyhedral.prove.dependence import find_dependences
from texpr.polyhedral.prove.ordering import all_pairs, candidates, equal_outside, meetings, uses_by_buffer
from texpr.polyhedral.schedule.nests import turn_of
from texpr.polyhedral.schedule.tree import Place, index, leaves, loop_of, place_of

IN, OUT = isl.dim_type.in_, isl.dim_type.out
Lost = Callable[[ProgramStatement, ProgramStatement], Iterator[isl.Map]]
"""Of instances of two statements, the first before the second: pairs that a move would leave without that order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Violation:
    """Why a move is not legal: instances of `source` and `sink` that would no longer be in order (`relation`), or with
    `lost` statements that would not run where they ran."""

    source: Access | None = None
    sink: Access | None = None
    relation: isl.Map | None = None
    apart: bool = False  # the two need no order, but must not share an element
    lost: isl.Set | None = None
    statement: str = ""


def violation(program: Program, move: Move) -> Violation | None:
    """What a move, which fits the program, would break first; None where it is legal. E0307 past a limit."""
    match move:
        case Fuse(first=first, second=second, shift=shift):
            return _broken(program, _in(program, first) | _in(program, second), _fused(program, first, second, shift))
        case Swap(first=first, second=second):
            return _broken(program, _of(program, first) | _of(program, second), _swapped(program, first, second))
        case Distribute(loop=loop):
            return _broken(program, _in(program, loop), _distributed(program, move))
        case Interchange(outer=outer):
            return _broken(program, _in(program, outer), _turned(program, outer))
        case Parallelize(loop=loop):
            return _broken(program, _in(program, loop), _carried(program, loop))
        case Residues(loop=loop, phases=phases):
            return _broken(program, _in(program, loop), _in_phases(program, loop, phases))
        case Sink(statement=statement, loop=loop):
            among = _of(program, statement) | _in(program, loop)
            return _not_run(program, move) or _broken(program, among, _sunk(program, move))
        case Contract():
            return _shared(program, move)
        case Expand() | View() | Precompute():  # which no statement notices
            return None
        case _:
            assert_never(move)


def _of(program: Program, name: str) -> set[str]:
    """The ids of a statement, or of those in it."""
    return {leaf.id for leaf in leaves((place_of(program.kernel, name).stmt,))}


def _in(program: Program, loop: str) -> set[str]:
    """The ids in a loop."""
    return {leaf.id for leaf in leaves((loop_of(program.kernel, loop)[1],))}


def _broken(program: Program, among: set[str], lost: Lost) -> Violation | None:
    for dependence in find_dependences(program, among=among, additions=True):
        found = _meeting(program, dependence, lost)
        if found is not None:
            return Violation(source=dependence.source, sink=dependence.sink, relation=found)
    return None


def _meeting(program: Program, dependence: Dependence, lost: Lost) -> isl.Map | None:
    source, sink = (program.statement(a.statement) for a in (dependence.source, dependence.sink))
    with program.work.limited(dependence.sink.span, "this dependence", 2 * isl.columns(dependence.relation)):
        for pairs in lost(source, sink):
            found = dependence.relation.intersect(pairs)
            if not found.is_empty():
                return found
    return None


def _depth(place: Place) -> int:
    return len(place.loops)


def _fused(program: Program, first: str, second: str, shift: int) -> Lost:
    """The second's iteration j runs in iteration j + shift, which is no later one of the first."""
    place, loop = loop_of(program.kernel, first)
    ours, theirs = _in(program, first), _in(program, second)
    level = _depth(place)

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        if source.id in ours and sink.id in theirs:
            same = equal_outside(all_pairs(source, sink), level)
            yield _less(same, OUT, level, IN, level, -shift)  # j + shift < i
            if isinstance(loop, Par):
                yield _less(same, IN, level, OUT, level, shift)

    return lost


def _less(pairs: isl.Map, left: isl.dim_type, a: int, right: isl.dim_type, b: int, more: int) -> isl.Map:
    """The pairs at which `left[a] < right[b] + more`."""
    constraint = isl.Constraint.alloc_inequality(isl.LocalSpace.from_space(pairs.get_space()))
    constraint = constraint.set_coefficient_val(left, a, -1).set_coefficient_val(right, b, 1)
    return pairs.add_constraint(constraint.set_constant_val(more - 1))


def _swapped(program: Program, first: str, second: str) -> Lost:
    ours, theirs = _of(program, first), _of(program, second)
    level = _depth(place_of(program.kernel, first))

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        if source.id in ours and sink.id in theirs:
            yield equal_outside(all_pairs(source, sink), level)

    return lost


def _distributed(program: Program, move: Distribute) -> Lost:
    """All of the first part runs before any of the second."""
    place, loop = loop_of(program.kernel, move.loop)
    before: set[str] = set()
    for stmt in loop.body:
        if stmt is place_of(program.kernel, move.before).stmt:
            break
        before |= {leaf.id for leaf in leaves((stmt,))}
    level = _depth(place)

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        if source.id not in before and sink.id in before:
            yield equal_outside(all_pairs(source, sink), level)

    return lost


def _turned(program: Program, outer: str) -> Lost:
    """What the outer loop carried, at a lesser value of the inner one, or at another one of a `par`."""
    place, loop = loop_of(program.kernel, outer)
    level = _depth(place)
    parallel = isinstance(loop.body[0], Par)

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        same = equal_outside(all_pairs(source, sink), level)
        yield same.order_gt(IN, level + 1, OUT, level + 1)
        if parallel:
            yield same.order_lt(IN, level + 1, OUT, level + 1)

    return lost


def _carried(program: Program, loop: str) -> Lost:
    """Iterations of a `par` are in no order."""
    level = _depth(loop_of(program.kernel, loop)[0])

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        yield equal_outside(all_pairs(source, sink), level).order_lt(IN, level, OUT, level)

    return lost


def _in_phases(program: Program, loop: str, phases: int) -> Lost:
    """A later remainder at an earlier iteration."""
    level = _depth(loop_of(program.kernel, loop)[0])

    def left(statement: ProgramStatement, rest: int) -> isl.Set:
        remainder = IndexBinary(op=IndexOp.MOD, left=index(loop), right=const(phases))
        return _where(program, statement, Compare(op=CompareOp.EQ, left=remainder, right=const(rest)))

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        same = equal_outside(all_pairs(source, sink), level)
        for late in range(1, phases):
            there = same.intersect_domain(left(source, late))
            yield from (there.intersect_range(left(sink, early)) for early in range(late))

    return lost


def _sunk(program: Program, move: Sink) -> Lost:
    """A `par` gives no order between the iteration that has the statement and the others."""
    place, loop = loop_of(program.kernel, move.loop)
    beside = _of(program, move.statement)
    level = _depth(place)
    there = turn_of(program.kernel, move)

    def lost(source: ProgramStatement, sink: ProgramStatement) -> Iterator[isl.Map]:
        if isinstance(loop, Par) and (source.id in beside) is not (sink.id in beside):
            pairs = equal_outside(all_pairs(source, sink), level)
            if source.id in beside:
                yield pairs.intersect_range(_where(program, sink, Not(part=there)))
            else:
                yield pairs.intersect_domain(_where(program, source, Not(part=there)))

    return lost


def _not_run(program: Program, move: Sink) -> Violation | None:
    """Where the loop has no iteration, what sinks into it does not run."""
    _, loop = loop_of(program.kernel, move.loop)
    empty = Compare(op=CompareOp.LE, left=loop.extent, right=const(0))
    for name in sorted(_of(program, move.statement)):
        statement = program.statement(name)
        with program.work.limited(statement.leaf.span, "where this statement runs", isl.columns(statement.domain)):
            lost = statement.domain.intersect(_where(program, statement, empty))
            if not lost.is_empty():
                return Violation(lost=lost, statement=name)
    return None


def _where(program: Program, statement: ProgramStatement, condition: Condition) -> isl.Set:
    """The instances of a statement at which a condition on its loops and the sizes holds."""
    scope = Scope(program.facts.sizes, tuple(loop.index for loop in statement.loops), program.work)
    return scope.holds(condition).set_tuple_name(statement.id)


def _shared(program: Program, move: Contract) -> Violation | None:
    """Two iterations of the loop, or of those around it, that use one element of the local."""
    place, _ = loop_of(program.kernel, move.loop)
    level = _depth(place) + 1
    outer = len(program.buffers[move.buffer].outer)
    for first, second in candidates(uses_by_buffer(program)[move.buffer]):
        with program.work.limited(second.access.span, "the elements of each iteration", first.width + second.width):
            met = meetings(first.access, second.access)
            for depth in range(outer, level):
                for pairs in (met.order_lt(IN, depth, OUT, depth), met.order_gt(IN, depth, OUT, depth)):
                    if not pairs.is_empty():
                        return Violation(source=first.access, sink=second.access, relation=pairs, apart=True)
    return None
