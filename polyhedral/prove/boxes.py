"""The box that a kernel touches of each array parameter, as index expressions of sizes: what task permissions need.

Per dimension [low, high) is the hull of all accesses. Where the exact bound has several pieces (a minimum of sizes,
say), or takes too many steps to find, the whole extent stands instead: a box may be larger than the footprint, never
smaller.
"""

from collections.abc import Iterable

from texpr.grammar.ast import IndexConst, IndexExpr, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.linear import Linear, Monomial
from texpr.polyhedral import isl
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, Program

Box = tuple[tuple[IndexExpr, IndexExpr], ...]


def boxes(program: Program) -> dict[str, Box]:
    """The box of every array parameter that has one dimension per subscript; untouched parameters have empty boxes."""
    found: dict[str, Box] = {}
    for name, described in program.buffers.items():
        if described.outer or described.buffer.flat:
            continue
        whole = tuple((IndexConst(value=0), extent) for extent in described.buffer.shape)
        reached = [a for s in program.statements for a in s.accesses if a.buffer == name]
        question = ("touched", frozenset(id(access) for access in reached))
        if question in program.work.given_up:
            found[name] = whole
            continue
        try:
            width = columns(described.elements)
            with program.work.limited(described.buffer.span, "what is touched of this array", width):
                found[name] = _box(program, name)
        except TExprError:
            program.work.given_up.add(question)
            found[name] = whole
    return found


def _box(program: Program, name: str) -> Box:
    """The box of one parameter."""
    shape = program.buffers[name].buffer.shape
    touched = elements_of(program, [a for s in program.statements for a in s.accesses if a.buffer == name])
    if touched is None or touched.is_empty():
        return tuple((IndexConst(value=0), IndexConst(value=0)) for _ in shape)
    whole = tuple((IndexConst(value=0), extent) for extent in shape)
    if touched.dim(isl.dim_type.set) == len(shape):
        return tuple(side(touched, k) or whole[k] for k in range(len(shape)))
    return whole


def elements_of(program: Program, accesses: Iterable[Access]) -> isl.Set | None:
    """What some accesses to one buffer touch, None where there are none."""
    touched: isl.Set | None = None
    for access in accesses:
        part = access.relation.range()
        touched = part if touched is None else touched.union(part)
    return None if touched is None else program.facts.around(touched).coalesce()


def side(hull: isl.Set, dim: int) -> tuple[IndexExpr, IndexExpr] | None:
    """Where a set begins and ends in a dimension, as [low, high); None where that is not one expression."""
    try:
        low, high = _affine(hull.dim_min(dim)), _affine(hull.dim_max(dim))
    except isl.Error:
        return None
    if low is None or high is None:
        return None
    return low.expression(), (high + 1).expression()


def _affine(bound: isl.PwAff) -> Linear | None:
    """A bound of one affine piece without divisions in normal form; None for any other."""
    pieces = bound.coalesce().get_pieces()
    if len(pieces) != 1:
        return None
    affine = pieces[0][1]
    if affine.dim(isl.dim_type.div) or not affine.get_denominator_val().is_one():
        return None
    terms: dict[Monomial, int] = {(): affine.get_constant_val().to_python()}
    for position in range(affine.dim(isl.dim_type.param)):
        name = SizeVar(name=str(affine.get_dim_name(isl.dim_type.param, position)))
        terms[(name,)] = affine.get_coefficient_val(isl.dim_type.param, position).to_python()
    return Linear({key: value for key, value in terms.items() if value})
