"""Boxes of tensor maps in an array: whether parts of it are such, and how its rows lie for them."""

from texpr.grammar.ast import Gather, IndexExpr, IndexVar
from texpr.grammar.index.expr import ONE, names
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.map.epilogue import Output
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.side import Side
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.mapped.candidate import address_of

UNIT_BYTES = 16  # of the rows of a tensor map
MAX_RANK = 5  # of a tensor map


def may_cross(problem: Problem, output: Output, rows: Side) -> bool:
    """Whether boxes of an output have the rows of tiles, neighbours in it, as their columns: of 16 bits, which an
    instruction exchanges."""
    alone = len(rows.loops) == 1 and output.element[1][-1] == IndexVar(name=rows.index)
    return alone and output.dtype.bits == 16 and are_units(problem, output.element[0])


def ends_with(problem: Problem, element: Element, index: str, extent: IndexExpr) -> bool:
    """Whether an index, which is a subscript by itself, goes over all of its dimension."""
    buffer, subscripts = element
    return problem.kernel.buffer(buffer).shape[subscripts.index(IndexVar(name=index))] == extent


def is_boxed(problem: Problem, element: Element, indices: tuple[str, ...], *, boxes: bool) -> bool:
    """Whether some indices are a subscript each, one of them the last, of which neighbours lie side by side."""
    buffer, subscripts = element
    if len(subscripts) < 2 or (boxes and len(subscripts) > MAX_RANK) or any(isinstance(s, Gather) for s in subscripts):
        return False
    plain: list[IndexExpr] = [s for s in subscripts if not isinstance(s, Gather)]
    alone = [s.name for s in plain if isinstance(s, IndexVar) and s.name in indices]
    mixed = [s for s in plain if not (isinstance(s, IndexVar) and s.name in indices) and names(s) & set(indices)]
    if (
        sorted(alone) != sorted(indices)
        or mixed
        or not isinstance(plain[-1], IndexVar)
        or plain[-1].name not in indices
    ):
        return False
    return _strides(problem, buffer)[-1:] == (ONE,)


def _strides(problem: Problem, buffer: str) -> tuple[IndexExpr, ...]:
    layout = problem.layouts.get(buffer)
    return (strides(layout) or ()) if layout is not None else ()


def row_strides(problem: Problem, buffer: str) -> tuple[IndexExpr, ...]:
    """How far apart rows begin, along each dimension but the last."""
    return _strides(problem, buffer)[:-1]


def are_units(problem: Problem, buffer: str) -> bool:
    """Whether rows lie as tensor maps have them."""
    array = problem.kernel.buffer(buffer)
    unit, begins = UNIT_BYTES // array.dtype.size_bytes, problem.divisors.get(address_of(buffer).name, array.align)
    return begins % UNIT_BYTES == 0 and all(
        linear(step).is_multiple(unit, problem.divisors) for step in row_strides(problem, buffer)
    )
