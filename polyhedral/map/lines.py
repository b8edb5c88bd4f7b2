"""Lines: runs of a band that are counted from where an access of it is aligned, whatever the addresses of its rows.

    par 1..M-1 i, 1..N-1 j { Y[i, j] = X[i - 1, j] }     runs of j from where a line of memory begins before Y[i, 1]

    lead = Y[i + 1, 1] behind a multiple of 128 bytes ;  j_first = 128*j_warp + 4*j_lane - lead

Only the first and the last run of a row are cut, and what lies as that access does is aligned with it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.vectors import (
    ACCESS_BYTES,
    Element,
    arrays_of,
    at,
    at_places,
    events_of,
    is_run,
    plain_subscripts,
    printed,
)
from texpr.polyhedral.mapped.tree import Lead
from texpr.polyhedral.mapped.views import View

LINE_BYTES = 128  # bytes of memory that are fetched together


def countable(problem: Problem, nest: Nest, index: str) -> dict[str, Element]:
    """The elements of arrays that an iteration writes, neighbours along an index, by how the mapping prints them."""
    arrays = arrays_of(problem) - declared(nest.body)
    found = {e.element: None for e in events_of(nest.body) if e is not None and e.writes and e.element[0] in arrays}
    plain = (e for e in found if all(isinstance(s, IndexExpr) for s in e[1]))
    return {printed(*element): element for element in plain if is_run(problem, element, index)}


def origins(problem: Problem, nest: Nest, lines: Mapping[str, str]) -> dict[str, Element]:
    """The elements from whose lines the runs of indices are counted. KeyError for what is none."""
    return {index: countable(problem, nest, index)[name] for index, name in lines.items()}


def begins(problem: Problem, origin: Element, index: str) -> tuple[int, int]:
    """Of how many bytes the pieces of memory are from which the runs of a band are counted, and how many elements at
    most lie between where one begins and the first iteration: lines; but where all rows lie alike in lines, chunks, for
    then a number says where in its chunk each row begins, and no block is there for what might lie before it (the
    stencil of 131072 x 1024 has four blocks along a row, and not five)."""
    name, subscripts = origin
    buffer, layout = problem.kernel.buffer(name), problem.layouts[name]
    if buffer.align >= ACCESS_BYTES and layout.xor is None:
        first = linear(offset(layout, plain_subscripts(at(subscripts, index, ZERO))))
        if (first - first.constant).is_multiple(LINE_BYTES // buffer.dtype.size_bytes, problem.divisors):
            return ACCESS_BYTES, first.constant % (ACCESS_BYTES // buffer.dtype.size_bytes)
    return LINE_BYTES, ahead(problem, origin, LINE_BYTES)


def ahead(problem: Problem, origin: Element, bytes: int) -> int:
    """How many elements at most lie between where a line begins and the first iteration."""
    return bytes // problem.kernel.buffer(origin[0]).dtype.size_bytes - 1


def lead_of(
    problem: Problem,
    name: str,
    origin: Element,
    index: str,
    bytes: int,
    row: Mapping[str, IndexExpr] = MappingProxyType({}),
) -> Lead:
    """The node that says how many there are, of the row at hand, or at other values of some indices."""
    buffer, subscripts = origin
    first = View(
        buffer=buffer, subscripts=at_places(subscripts, {**row, index: ZERO}), dtype=problem.kernel.buffer(buffer).dtype
    )
    return Lead(index=name, of=first, bytes=bytes)
