"""Sums of products that stand beside one another in a nest: of each pair one side is the same.

    par M i, N j { let u = sum K k { X[i, k] * W[j, k] }        u  over k, of sides i and j
                   let v = sum K k { X[i, k] * V[j, k] }        v  over k_1, of the same sides
                   Y[i, j] = silu(u) * v }

Each is the contraction that the nest would be without the others; none reads what the nest writes, so that they may be
made at one time.
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.ast import Leaf, Seq
from texpr.grammar.core import statements
from texpr.polyhedral.map.contraction import Contraction, contractions
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.triangle import Boxed
from texpr.polyhedral.walk import written

MOST = 4  # sums, each with as many columns as a warp or a warpgroup multiplies at least


def sums_beside(problem: Problem, nest: Boxed) -> Iterator[tuple[Contraction, ...]]:
    """The contractions of a nest in the order of its text, for each choice of two sides."""
    loops = [stmt for stmt in nest.body if isinstance(stmt, Seq)]
    if not 1 <= len(loops) <= MOST:
        return
    changed = {target[0] for s in statements(nest.body) if isinstance(s, Leaf) and (target := written(s)) is not None}
    apart = [_alone(nest, loop, loops) for loop in loops]
    for first in contractions(problem, apart[0]):
        sides = {side.index for side in first.sides}
        found = [first]
        for own in apart[1:]:
            same = (one for one in contractions(problem, own) if {side.index for side in one.sides} == sides)
            found += [one for one in (next(same, None),) if one is not None]
        read = {factor.element[0] for one in found for factor in (one.first, one.second)}
        if len(found) == len(loops) and (len(loops) == 1 or not read & changed):
            yield tuple(found)


def _alone(nest: Boxed, loop: Seq, loops: list[Seq]) -> Boxed:
    """The nest with one of its loops."""
    if len(loops) == 1:
        return nest
    return replace(nest, body=tuple(s for s in nest.body if s is loop or not any(s is other for other in loops)))
