"""The choice of rows: which loops inside a block go over one row that its threads hold, and how many threads these are.

    softmax of 4096 columns   f32: 256 threads, 4 runs of 16 bytes each   bf16: 128 threads, 4 runs each

Measured on an H200, relative to a device copy: rows of 4096 in bf16 run at .97 to .98 with 2 to 8 runs of 16 bytes in
each thread, at .81 with one, at .97 with 16, and about as much is lost where many threads have nothing. So there are as
many threads as leave few of them idle, each with about `RUNS` runs; a row that one warp holds needs no barrier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from texpr.grammar.ast import Seq, Stmt
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest, block_statements, inner_nests
from texpr.polyhedral.map.held import HELD_BYTES, Member, held_by, held_bytes, siblings
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.sharing import reductions
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.mapped.candidate import Row

RUNS = 4  # of 16 bytes for a thread, so that several loads are on their way
MOST_RUNS = 8
IDLE_PARTS = 16  # shares of idle threads that differ by less than one part in so many are alike


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    """Loops over a row, the neighbours that a thread takes at once, and the threads that hold it."""

    loops: tuple[Member, ...]
    width: int
    threads: int

    @property
    def row(self) -> Row:
        return Row(indices=tuple(loop.index for loop in self.loops))


def choose_rows(
    problem: Problem, nest: Nest, ranges: Ranges, widths: Mapping[str, int], asked: int | None
) -> tuple[ChosenRow, ...]:
    """The rows of a block; `asked` are the threads that the author wants."""
    nests = [inner.pars[0].index for inner in inner_nests(nest.body) if len(inner.pars) == 1]
    shared = [seq.index for seq in reductions(problem, block_statements(nest.body), ranges)]
    found: list[ChosenRow] = []
    for loops in siblings(nest.body, nests + shared):
        if len(loops) > 1 or (loops and isinstance(loops[0], Seq)):
            width = min(widths.get(loop.index, 1) for loop in loops)
            row = _row(problem, nest.body, loops, width, ranges, asked)
            found += [row] if row is not None else []
    return tuple(found)


def _row(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], width: int, ranges: Ranges, asked: int | None
) -> ChosenRow | None:
    """The loops that hold something, with threads for them."""
    warp, found = problem.target.warp_size, list[tuple[tuple[int, int, int], ChosenRow]]()
    runs = -(-problem.representative(loops[0].extent, ranges) // width)
    for threads in (asked,) if asked is not None else range(warp, problem.target.max_threads + 1, warp):
        held = held_by(problem, stmts, loops, threads * width)
        if held is None or held_bytes(problem, held, width) > HELD_BYTES:
            continue
        loops = tuple(loop for loop in loops if held.reads[loop.index])
        size = max(width * problem.kernel.buffer(name).dtype.size_bytes for name, _ in held.elements)
        rounds, scale = held.rounds, max(1, min(4, ACCESS_BYTES // size))
        idle = (threads * rounds - runs) * IDLE_PARTS // (threads * rounds)
        many = 0 if rounds <= MOST_RUNS * scale else rounds
        price = (many, 0 if threads == warp and not many else 1 + idle, abs(rounds - RUNS * scale))
        found.append((price, ChosenRow(loops=tuple(loops), width=width, threads=threads)))
    return min(found, key=lambda one: one[0])[1] if found else None
