"""The choice of turns: how often a thread comes to the row that it gathers, once it knows where that lies.

    par M i, N j { Y[i, j] = E[R[i], j] }      N = 4096, bf16: 128 threads have half a row, 2 accesses of 16 bytes each

Where an access waits for an index from data, a thread that makes one access waits as long for the index as for it. So
each thread makes several, which are on their way together; blocks are small, so that many rows are, too, and have
little of what lies beyond the end of a row. Of kernels by hand those of 4 KB, two accesses for each thread, were best.
"""

from collections.abc import Mapping

from texpr.grammar.ast import Gather, Leaf, Subscript
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.lines import begins, origins
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.walk import touched

TURNS = (2, 3, 4)  # accesses of a thread
LEAST_BYTES, BEST_BYTES = 2048, 4096  # of a row that a block brings
ANYWHERE_BYTES = 3072  # where rows begin anywhere: fewer blocks have an end (4093 of f32: .957, with 4608 .949)
MOST_THREADS = 256
BEYOND = 1.1  # times the accesses of the blocks that have the fewest beyond the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """So many `threads` of a block, each of which comes `turns` times to an index."""

    threads: int
    turns: int

    @property
    def accesses(self) -> int:
        """Those of a block."""
        return self.threads * self.turns


def choose_turns(
    problem: Problem, nest: Nest, lane: int, widths: Mapping[str, int], lines: Mapping[str, str], asked: int | None
) -> Turns | None:
    """How blocks take rows that they gather along the dimension on the lanes, None where they gather none, or short
    ones, or the author says how many threads there are."""
    par, warp = nest.pars[lane], problem.target.warp_size
    extent = constant_value(par.extent)
    if asked is not None or extent is None or par.index not in widths or not _gathers_rows(nest, par.index):
        return None
    found = origins(problem, nest, lines)
    reached = extent + (begins(problem, found[par.index], par.index)[1] if par.index in found else 0)
    runs = -(-reached // widths[par.index])
    if runs < LEAST_BYTES // ACCESS_BYTES:
        return None
    able = [Turns(threads=n, turns=turns) for turns in TURNS for n in range(warp, MOST_THREADS + 1, warp)]
    able = [one for one in able if ACCESS_BYTES * one.accesses >= LEAST_BYTES]
    covered = {one: -(-runs // one.accesses) * one.accesses for one in able}
    fits = [one for one in able if covered[one] <= BEYOND * min(covered.values())]
    best = ANYWHERE_BYTES if found else BEST_BYTES
    return min(fits, key=lambda one: abs(ACCESS_BYTES * one.accesses - best))


def _gathers_rows(nest: Nest, index: str) -> bool:
    """Whether data tells which row is accessed along an index."""
    leaves = (stmt for stmt in statements(nest.body) if isinstance(stmt, Leaf))
    return any(_is_row(subscripts, index) for leaf in leaves for _, subscripts in touched(leaf))


def _is_row(subscripts: tuple[Subscript, ...], index: str) -> bool:
    gathered = [s for s in subscripts if isinstance(s, Gather)]
    along = any(index in names(s) for s in subscripts if not isinstance(s, Gather))
    return bool(gathered) and along and not any(index in names(s) for s in gathered)
