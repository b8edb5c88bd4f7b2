"""The choice of turns for tables: how many rows a thread takes one after the other, with what all of them read alike.

    par N n, G g, 56 h, 56 w { Y[n, g, h, w] = sum 3 r, 3 s { X[n, g, h + r, w + s] * F[g, r, s] } }

    32 lanes of w, 8 warps of h, 7 turns: 9 loads of F for 7 results of a thread, not 63

A depthwise convolution of 5 by 5 has as many loads of its window as of the image: by hand, with these in registers,
it took three quarters of the time (32 x 384 images of 28 x 28 on an H200: 67 us, and 90).
"""

from collections.abc import Sequence
from math import prod

from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.tables import tables
from texpr.polyhedral.mapped.candidate import Flat

TURNS = (4, 5, 6, 7, 8)  # of a thread, the first of those that leave the fewest iterations empty


def is_plain(problem: Problem, flat: Flat) -> bool:
    """Whether threads of a launch have one iteration each, and their time counts."""
    return not (flat.turns or flat.widths or flat.patch) and problem.objective is Objective.TIME


def choose_tables(problem: Problem, nest: Nest, sizes: Sequence[int], flat: Flat) -> dict[str, int]:
    """The turns of the index next to that on the lanes; none where its iterations read no table, or are too few."""
    if len(flat.grid) < 2:
        return {}
    down = flat.grid[1]
    at = nest.indices.index(down)
    covered = {index: prod(n for name, n in flat.deal if name == index) for index in nest.indices}
    extent = constant_value(nest.pars[at].extent)
    busy = problem.target.multiprocessors * problem.target.resident_threads
    if extent is None or prod(sizes) < busy * max(TURNS) or not tables(problem, nest, covered, {down}):
        return {}

    def empty(turns: int) -> int:
        return -extent % (turns * covered[down])

    return {down: min(TURNS, key=empty)}
