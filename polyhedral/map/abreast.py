"""Accumulations on a CPU whose order is given: a few neighbouring iterations of the core index advance side by side.

    par M i { new t: f32 ; t = 0 ; seq N j #ordered { t += X[i, j] ; Y[i, j] = t } }

    core i / 4:  for i in 4: t[i] = 0
                 for j: for i in 4: { t[i] += X[i, j] ; Y[i, j] = t[i] }

An addition waits for the one before it, and for no other's of its four. Each element is summed in the order of the
program. What the fours leave of the rows runs one after the other. Where the order is free they run in pieces
(`scan_pieces.py`).
"""

from texpr.grammar.ast import Accumulate, Bind, Const, New, Seq, Stmt
from texpr.grammar.core import statements
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.scan_pieces import runs_in_pieces
from texpr.polyhedral.walk import value_reads

ABREAST = 4  # an addition takes so many of the least times between two: more gave nothing
MIN_ROWS = 64  # of fewer iterations each has a core


def abreast_of(problem: Problem, nest: Nest) -> int | None:
    """How many iterations of the only core index a core takes side by side, where no other loop can be the innermost;
    None where their loops wait for nothing, where data decides what they do, or where they are few."""
    inside = tuple(statements(nest.body))
    (par,) = nest.pars
    waiting = [s for s in inside if _waits(s) and not runs_in_pieces(problem, s)]
    if any(not isinstance(s, New | Bind | Accumulate | Seq) for s in inside) or not waiting:
        return None
    return ABREAST if problem.representative(par.extent, {}) >= MIN_ROWS else None


def _waits(stmt: Stmt) -> bool:
    """Whether each turn of a loop accumulates to an element that another of its statements reads."""
    if not isinstance(stmt, Seq):
        return False
    leaves = [s for s in statements(stmt.body) if isinstance(s, Bind | Accumulate)]
    sums = {s.buffer for s in leaves if isinstance(s, Accumulate) and not isinstance(s.value, Const)}
    return any(read.buffer in sums for s in leaves for read in value_reads(s.value))
