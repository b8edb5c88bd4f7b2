"""The choice of turns: how often a thread comes to the row that it gathers, once it knows where that lies.

    par M i, N j { Y[i, j] = E[R[i], j] }      N = 4096, bf16: 128 threads have a row, 4 accesses of 16 bytes each

Where an access waits for an index from data, a thread that makes one access waits as long for the index as for it. So a
block takes one row, and each of its threads several accesses, which are on their way together (of kernels by hand those
with 4 to 6 were best, one was the worst).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from texpr.grammar.ast import Gather, Leaf, Subscript
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.lines import LINE_BYTES, ahead, origins
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.walk import touched

BEST = (4, 5, 6)  # accesses of a thread, the first of equal ones
MOST_THREADS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """So many `threads` of a block, each of which comes `turns` times to an index."""

    threads: int
    turns: int


def choose_turns(
    problem: Problem, nest: Nest, lane: int, widths: Mapping[str, int], lines: Mapping[str, str], asked: int | None
) -> Turns | None:
    """How a block takes a row that it gathers along the dimension on the lanes, None where it gathers none, or a short
    one, or the author says how many threads there are."""
    par, warp = nest.pars[lane], problem.target.warp_size
    extent = constant_value(par.extent)
    if asked is not None or extent is None or par.index not in widths or not _gathers_rows(nest, par.index):
        return None
    found = origins(problem, nest, lines)
    reached = extent + (ahead(problem, found[par.index], LINE_BYTES) if par.index in found else 0)
    runs = -(-reached // widths[par.index])
    if runs < BEST[0] * warp:
        return None
    fits = [Turns(threads=-(-runs // (turns * warp)) * warp, turns=turns) for turns in BEST]
    fits = [one for one in fits if one.threads <= MOST_THREADS]
    return min(fits, key=lambda one: one.threads * one.turns, default=Turns(threads=MOST_THREADS, turns=BEST[0]))


def _gathers_rows(nest: Nest, index: str) -> bool:
    """Whether data tells which row is accessed along an index."""
    leaves = (stmt for stmt in statements(nest.body) if isinstance(stmt, Leaf))
    return any(_is_row(subscripts, index) for leaf in leaves for _, subscripts in touched(leaf))


def _is_row(subscripts: tuple[Subscript, ...], index: str) -> bool:
    gathered = [s for s in subscripts if isinstance(s, Gather)]
    along = any(index in names(s) for s in subscripts if not isinstance(s, Gather))
    return bool(gathered) and along and not any(index in names(s) for s in gathered)
