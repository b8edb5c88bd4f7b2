"""The cases that the compiler chooses: rows whose length a call decides are held in registers where they are short.

    softmax of X: f32[M, N]     N <= 1024: 64 threads hold a row;  N <= 8192: 416;  otherwise each loop reads it again

A case's condition is a fact for what is chosen in it. There are none where rows of several lengths wait for registers.
"""

from collections.abc import Iterator

from texpr.grammar.ast import Compare, CompareOp, IndexExpr, SizeVar
from texpr.grammar.index.expr import const
from texpr.polyhedral.map.held import unheld
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.candidate import Blocks, Candidate

CASE_BYTES = (4 << 10, 32 << 10)  # of an element's row, at most: a few warps hold it, a large block does


def row_cases(problem: Problem, candidate: Candidate) -> tuple[Compare, ...]:
    """Limits of the length of rows, the least first, below which they may be held; none where no row is open."""
    if not problem.target.is_cuda:
        return ()
    sizes = dict.fromkeys(_open_rows(problem, candidate))
    extents = {extent for extent, _ in sizes}
    if len(extents) != 1 or not isinstance(extent := extents.pop(), SizeVar):
        return ()
    bytes_ = max(size for _, size in sizes)
    limits = (const(most // bytes_) for most in CASE_BYTES)
    return tuple(Compare(op=CompareOp.LE, left=extent, right=limit) for limit in limits)


def _open_rows(problem: Problem, candidate: Candidate) -> Iterator[tuple[IndexExpr, int]]:
    """The extents of rows that sizes leave open, each with the bytes of an element."""
    for region in problem.regions():
        choice = candidate.launches[region.name]
        if isinstance(choice, Blocks):
            for loops, elements, known in unheld(problem, region.nest[0].body, choice):
                if not known:
                    yield loops[0].extent, max(problem.kernel.buffer(name).dtype.size_bytes for name, _ in elements)
