"""The cases that the compiler chooses: rows whose length a call decides are held in registers where they are short.

    softmax of X: f32[M, N]     N == 1: a thread has a row of its own, which is no loop (1.7 us for 2.4 on an H200)
                                N <= 8: a thread has a row of its own
                                N <= 32: a warp has one, and a lane an element of it
                                N % 4 == 0 and N <= 256, 512, 1024; N <= 512: a warp holds a row, and waits for no other
                                N % 4 == 0 and N <= 2048, N <= 1536, N <= 2048, and so on to 32768: a block of more
                                and more threads, in ragged rows of which the greater part is known to be there
                                (softmax of 4093 columns in bf16 ran at .95 of the kernel of that size, and runs at .99)
                                otherwise: each loop reads the row again

A thread that has one run of a row waits longer than one with two (`choose_rows`), and one with as many as it can hold
has few others beside it: the threads of a case are those for its longest row, which have half as many runs of one of
half the length. Rows whose runs are whole have cases of their own: what asks of each element whether it is one of the
row takes longer than memory does (softmax in bf16 ran at .52 to .78 of the kernel of each size, and runs at 1.00). What
is known in a case is a fact for what is chosen in it. Where rows are short they are taken to be many: of a few it
matters less how long they take. There are no cases where rows of several lengths wait for registers. Long ragged rows
have a block that is alone on its multiprocessor, and run at .55 to .95 of the kernel of their length: clusters, which
those have, are for lengths that are known.
"""

from collections.abc import Collection, Iterator, Mapping

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexOp, SizeVar
from texpr.grammar.index.expr import ONE, ZERO, combine, conjunction, const
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.held import unheld
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.sharing import FEW
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.mapped.candidate import Blocks, Candidate

WHOLE_BYTES, WARP_BYTES = (1 << 10, 2 << 10, 4 << 10), 2 << 10  # of a row that a warp holds, in whole runs, and in any
BLOCK_BYTES = (8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10)  # of one that a block holds, in either
ROWS = 1 << 18  # of few elements


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCase:
    """The calls of which a condition holds, the sizes that its choices are judged at, and the parameters whose rows are
    `laid`."""

    when: Condition
    sizes: dict[str, int]
    laid: frozenset[str] = frozenset()


def row_cases(problem: Problem, candidate: Candidate, hinted: Collection[str]) -> Iterator[CallCase]:
    """Limits of the length of rows, the least first, below which they may be held; none where no row is open. Sizes
    that are `hinted` are what the author says."""
    sizes = dict.fromkeys(_open_rows(problem, candidate)) if problem.target.is_cuda else {}
    extents = {extent for extent, _ in sizes}
    if len(extents) != 1 or not isinstance(extent := extents.pop(), SizeVar):
        return
    bytes_ = max(size for _, size in sizes)
    many = {size.name: ROWS for size in problem.kernel.sizes if size.name not in (extent.name, *hinted)}
    yield CallCase(when=Compare(op=CompareOp.EQ, left=extent, right=ONE), sizes={**many, extent.name: 1})
    if any(isinstance(choice, Blocks) and choice.inner for choice in candidate.launches.values()):
        yield _up_to(extent, FEW, many)
    yield _up_to(extent, problem.target.warp_size, many)
    run = ACCESS_BYTES // min(size for _, size in sizes)
    yield from (_up_to(extent, most // bytes_, many, aligned=run) for most in WHOLE_BYTES)
    yield _up_to(extent, WARP_BYTES // bytes_, many)
    for most in BLOCK_BYTES:
        yield _up_to(extent, most // bytes_, {}, aligned=run)
        yield from (_up_to(extent, bound // bytes_, {}) for bound in (most * 3 // 4, most))


def _up_to(extent: SizeVar, most: int, others: Mapping[str, int], aligned: int = 1) -> CallCase:
    parts = [Compare(op=CompareOp.LE, left=extent, right=const(most))]
    if aligned > 1:
        parts.append(Compare(op=CompareOp.EQ, left=combine(IndexOp.MOD, extent, const(aligned)), right=ZERO))
    return CallCase(when=conjunction(parts), sizes={**others, extent.name: most})


def _open_rows(problem: Problem, candidate: Candidate) -> Iterator[tuple[IndexExpr, int]]:
    """The extents of rows that sizes leave open, each with the bytes of an element."""
    for region in problem.regions():
        choice = candidate.launches[region.name]
        if isinstance(choice, Blocks):
            for loops, elements, known in unheld(problem, region.nest[0].body, choice):
                if not known:
                    yield loops[0].extent, max(problem.kernel.buffer(name).dtype.size_bytes for name, _ in elements)
