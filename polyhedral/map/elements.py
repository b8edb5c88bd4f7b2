"""Elements: loops over those of an array that some accesses touch, each once.

    par K k, N j { S[2 * j + 1, k % 4] += … }       for at < 2 * N, at_1 < 4: S[at, at_1], where at % 2 == 1 and …

The loops go over the box of the elements, [low, high) in each dimension, and a condition says which of the box are
touched, for which sizes. Exact for subscripts that are no data; where data tells, or the elements take too many steps
to write out, they are more of the array.
"""

from collections.abc import Sequence

from texpr.grammar.ast import Always, Condition, IndexExpr, IndexVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import ONE, ZERO, add, multiply, names, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral import isl
from texpr.polyhedral.affine import Scope
from texpr.polyhedral.conditions import condition_of
from texpr.polyhedral.names import Names
from texpr.polyhedral.program import Access, Program
from texpr.polyhedral.prove.boxes import elements_of, side


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Loops, an index and an extent each; where the element of an iteration stands; whether it is one of them."""

    loops: tuple[tuple[str, IndexExpr], ...]
    subscripts: tuple[IndexExpr, ...]
    condition: Condition


def touched_elements(program: Program, accesses: Sequence[Access], fresh: Names) -> Elements:
    """The elements of some accesses to one array, at least one."""
    question = ("touched", frozenset(id(access) for access in accesses))
    found = None
    if question not in program.work.given_up:
        try:
            found = _exact(program, accesses, fresh)
        except TExprError:
            if program.work.exhausted:
                raise
            program.work.given_up.add(question)
    if found is not None:
        return found
    loops = tuple((fresh.fresh("at"), extent) for extent in program.buffers[accesses[0].buffer].buffer.shape)
    subscripts = tuple(IndexVar(name=index) for index, _ in loops)
    return Elements(loops=loops, subscripts=subscripts, condition=Always(value=True))


def _exact(program: Program, accesses: Sequence[Access], fresh: Names) -> Elements | None:
    """The same where it is exact; None where no box is known, of a subscript that was split into dimensions."""
    home, facts = program.buffers[accesses[0].buffer], program.facts
    width = isl.columns(*(access.relation for access in accesses))
    with program.work.limited(accesses[0].span, f"what is touched of {home.buffer.name}", width):
        points = elements_of(program, accesses)
        assert points is not None, "there are accesses"
        box: list[tuple[IndexExpr, IndexExpr]] = []
        for dim in range(points.dim(isl.dim_type.set)):
            found = side(points, dim)
            if found is None and home.flat_strides:
                return None
            box.append(found or (ZERO, home.buffer.shape[dim]))
        indices = tuple(fresh.fresh("at") for _ in box)
        named = {*facts.names(points), *(name for ends in box for end in ends for name in names(end))}
        scope = Scope(tuple(name for name in facts.sizes if name in named), indices, program.work)
        inside = scope.universe()
        for index, (low, high) in zip(indices, box, strict=True):
            at, length = scope.index(index).sub(scope.value(low)), scope.value(high).sub(scope.value(low))
            inside = inside.intersect(scope.below(at, length))
        extents = [linear(subtract(high, low)).expression() for low, high in box]
        coordinates = [
            low if extent == ONE else add(IndexVar(name=index), low)
            for index, (low, _), extent in zip(indices, box, extents, strict=True)
        ]
        points = points.reset_tuple_id().align_params(scope.space)
        condition = condition_of(points.gist(facts.within(facts.joined(inside, points))), coordinates)
    return Elements(
        loops=tuple((index, extent) for index, extent in zip(indices, extents, strict=True) if extent != ONE),
        subscripts=_subscripts(coordinates, home.flat_strides),
        condition=condition,
    )


def _subscripts(coordinates: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """The author's subscripts of an element: their one sum where it was split."""
    if not strides:
        return tuple(coordinates)
    flat: IndexExpr = ZERO
    for stride, coordinate in zip(strides, coordinates, strict=True):
        flat = add(flat, multiply(stride, coordinate))
    return (flat,)
