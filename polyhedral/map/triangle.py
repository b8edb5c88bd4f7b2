"""Triangles: bands of which an index tells the extent of another one, as boxes with a condition.

    par M i, i + 1 j      M i, M j where j < i + 1;   tiles of which no element is there do nothing

What a factor reads is read for every element of the box that one of its tiles has, so it lies in its array there too.
"""

from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, Condition, Gather, IndexExpr, IndexVar, Par, Read, Seq
from texpr.grammar.index.expr import ONE, ZERO, add, conjunction, names, subtract
from texpr.grammar.index.interval import Ranges, bounds, ends, greatest, index_range
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.slack import slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxed(Nest):
    """A nest whose extents none of its indices moves, of which the elements of the `domain` are there: None, all."""

    domain: Condition | None = None


def boxed(nest: Nest, ranges: Ranges) -> Boxed:
    """The box around a nest."""
    moved = [par for par in nest.pars if names(par.extent) & set(nest.indices)]
    parts = [Compare(op=CompareOp.LT, left=IndexVar(name=par.index), right=par.extent) for par in moved]
    pars = tuple(replace(par, extent=add(ranges[par.index][1], ONE)) if par in moved else par for par in nest.pars)
    return Boxed(pars=pars, body=nest.body, domain=conjunction(parts) if parts else None)


def meets(domain: Condition, ranges: Ranges) -> Condition | None:
    """Whether some elements of these ranges are in a domain; None where that is not told by their ends."""
    most = greatest(slack(domain), ranges)
    return None if most is None else Compare(op=CompareOp.GT, left=most, right=ZERO)


def is_whole(domain: Condition, ranges: Ranges) -> Condition | None:
    """Whether all elements of these ranges are in a domain; None where that is not told by their ends."""
    least, _ = ends(slack(domain), ranges)
    return None if least is None else Compare(op=CompareOp.GT, left=least, right=ZERO)


def is_inside(problem: Problem, read: Read, nest: Nest, reduction: Reduction) -> bool:
    """Whether an element lies in its array for all values of the indices of a box and of what is summed."""
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    loops: tuple[Par | Seq, ...] = (*nest.pars, *reduction.loops)
    for loop in loops:
        found = index_range(loop.extent, {})
        if found is None:
            return False
        ranges[loop.index] = found
    return all(
        not isinstance(at, Gather)
        and (ends := bounds(at, ranges)) is not None
        and linear(ends[0]).is_nonnegative()
        and linear(subtract(subtract(extent, ONE), ends[1])).is_nonnegative()
        for at, extent in zip(read.subscripts, problem.kernel.buffer(read.buffer).shape, strict=True)
    )
