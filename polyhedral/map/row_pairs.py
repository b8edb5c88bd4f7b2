"""Two rows at once in one block: how many threads these have, and how many blocks a multiprocessor.

    LayerNorm of 22343 x 6001, bf16    256 threads, 3 runs of 16 bytes of each row, five blocks
    of 16741 x 8009                    256 threads, 4 runs of each, four

Both lie in slots, and share what is loaded of the vectors beside them. On an H200, of a device copy, LayerNorm in bf16
by rows, and in such pairs (all of some 134 million elements):

    701 .70 .79    1001 .73 .76   2001 .80 .93   3001 .94 .96   4501 .90 .96   6001 .92 .95   7001 .90 .94
    8009 .87 .93   9001 .90 .93   12001 .90 .91  14001 .86 .89  16001 .86 .89  17001 .85 .87  20001 .85 .87

Blocks must leave few threads without a run: those of 4093 elements run at .92 and .92 with 192 threads, of which a
tenth has none, and those of 18001 at .88 and .86.
"""

from collections.abc import Sequence
from typing import NamedTuple

from texpr.grammar.ast import Stmt
from texpr.polyhedral.map.held import Held, Member, held_by
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.row_pieces import InPieces, whole_warps, with_room
from texpr.polyhedral.map.row_slots import in_chunks
from texpr.polyhedral.target import Target

ALIKE = 0.02  # of the threads, for which fewer runs are worth it


class Each(NamedTuple):
    """How many runs of a row a thread has, warps of a block at most, about how many threads of a multiprocessor, and
    what part of the runs of a block a row fills at least."""

    runs: int
    most_warps: int
    at_once: int
    filled: float


MEASURED = (
    Each(3, 5, 1220, 0.8),
    Each(3, 8, 1220, 0.95),
    Each(4, 4, 1024, 0.8),
    Each(4, 16, 1024, 0.9),
    Each(5, 4, 1024, 0.82),
    Each(5, 16, 1024, 0.95),
)


class Paired(NamedTuple):
    """The threads of a block, blocks on a multiprocessor, and what part of the threads' runs a row fills."""

    threads: int
    resident: int
    filled: float


def paired(target: Target, runs: int) -> Paired | None:
    """The block of two rows of so many runs of 16 bytes; None where they fill none, or are too long."""
    found = list[Paired]()
    for each in MEASURED:
        threads = whole_warps(target, runs, each.runs)
        filled = runs / (threads * each.runs)
        if threads <= each.most_warps * target.warp_size and filled >= each.filled:
            found.append(Paired(threads, min(target.resident_blocks, round(each.at_once / threads)), filled))
    most = max((one.filled for one in found), default=0.0)
    return next((one for one in found if one.filled >= most - ALIKE), None)


def in_pairs(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], width: int, line: int
) -> InPieces | None:
    """The slots of two rows in one block; None where there are no two, they are too long, or are not brought there."""
    whole = held_by(problem, stmts, loops, width, line)
    if whole is None or not is_pair(whole) or not in_chunks(problem, whole, width, line):
        return None
    found = paired(problem.target, whole.rounds)
    held = held_by(problem, stmts, loops, found.threads * width, line) if found else None
    return with_room(problem, held, width, found.threads, 1, found.resident) if found and held else None


def is_pair(held: Held) -> bool:
    """Whether two rows of one array are held."""
    return len(held.elements) == 2 and len({name for name, _ in held.elements}) == 1
