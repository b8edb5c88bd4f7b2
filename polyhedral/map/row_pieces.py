"""Rows beside vectors that lie in slots, in pieces: how many runs of 16 bytes a thread has, and how many blocks a row.

    RMSNorm of 2730 x 24576, bf16     clusters of 4 blocks of 192 threads, 4 runs each, eight on a multiprocessor
    of 2796 x 24001                   one block of 768 threads, 4 runs each, two
    LayerNorm of that                 one of 512, 6 runs each, three

A loop that writes such a row reads vectors of all rows beside it, and needs the registers that a row would take. On an
H200, of a device copy, in registers and in pieces:

    bf16   RMSNorm     12288 .96 .98   24576 .85 .99   32768 .71 .98   49152 .89 .97   24001 .87 .94   40001 .82 .92
           LayerNorm   16384 .62 .93   24576 .89 .91   49152 .79 .86   (20480 .94 .92)
                       12001 .83 .86   14001 .74 .83   24001 .72 .80   32001 .75 .80   (40001 .81 .78)
    f32    RMSNorm     6144 .96 .98    8192 .96 .99    16384 .95 .98   24001 .87 .94   32001 .88 .94
           LayerNorm   12001 .70 .89   16001 .81 .87   24001 .62 .87   32001 .73 .82   (10001 .91 .88)
"""

from collections.abc import Sequence
from typing import NamedTuple

from texpr.grammar.ast import Stmt
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.held import Held, Member, held_by
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.row_slots import MOST_SLOTS, in_chunks, slot_bytes, slot_room
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.target import Target

NORM_LOOPS = 3  # of a norm of means and variances; one of squares has a loop less
WARPS, MOST_WARPS = 48, 64  # on a multiprocessor, each thread with 40 registers, or 32
LEAST_WARPS = 4  # of a block that shares a row with others
SPARE_PARTS = 16


class Pieces(NamedTuple):
    """Rows of so many bytes, in blocks whose threads have so many runs each, `ranks` of them for one row, and so many
    warps on a multiprocessor at most."""

    least_bytes: int
    most_bytes: int
    runs: int
    ranks: int
    warps: int = WARPS


class InPieces(NamedTuple):
    """What the blocks of a row hold, and what they are."""

    held: Held
    threads: int
    resident: int
    ranks: int


KIB = 1 << 10
MEASURED: dict[tuple[bool, bool, bool], tuple[Pieces, ...]] = {
    (False, False, True): (Pieces(24 * KIB, 100 * KIB, 4, 4),),
    (False, False, False): (Pieces(24 * KIB, 132 * KIB, 4, 4),),
    (True, False, True): (
        Pieces(30 * KIB, 40 * KIB, 4, 2, MOST_WARPS),
        Pieces(44 * KIB, 56 * KIB, 4, 2, MOST_WARPS),
        Pieces(90 * KIB, 100 * KIB, 4, 4, MOST_WARPS),
    ),
    (False, True, True): (Pieces(27 * KIB, 52 * KIB, 4, 1), Pieces(52 * KIB, 100 * KIB, 6, 4)),
    (False, True, False): (Pieces(60 * KIB, 132 * KIB, 8, 4),),
    (True, True, True): (Pieces(23 * KIB, 53 * KIB, 6, 1), Pieces(53 * KIB, 70 * KIB, 8, 2)),
    (True, True, False): (Pieces(34 * KIB, 100 * KIB, 6, 2), Pieces(100 * KIB, 132 * KIB, 6, 4)),
}
"""By whether three loops go over a row, its runs are counted from a line, and its elements are narrow."""


def in_pieces(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], width: int, line: int, most_ranks: int
) -> InPieces | None:
    """The pieces of a row beside vectors; None where it does better otherwise, or a call decides its length."""
    target = problem.target
    whole = held_by(problem, stmts, loops, width, line) if constant_value(loops[0].extent) is not None else None
    if whole is None or not in_chunks(problem, whole, width, line):
        return None
    row_bytes = whole.rounds * ACCESS_BYTES
    kind = (len(loops) >= NORM_LOOPS, bool(line), width * 4 > ACCESS_BYTES)
    known = (p for p in MEASURED.get(kind, ()) if p.least_bytes <= row_bytes < p.most_bytes)
    pieces = next(known, None)
    if pieces is None:
        return None
    ranks = min(pieces.ranks, target.max_cluster, most_ranks)
    while ranks > 1 and not _suits(target, whole.rounds, pieces.runs * ranks, line):
        ranks //= 2
    threads = _threads(target, whole.rounds, pieces.runs * ranks)
    held = held_by(problem, stmts, loops, threads * ranks * width, line)
    if threads > target.max_threads or held is None or held.rounds > MOST_SLOTS:
        return None
    taken = slot_bytes(problem, held, width, threads)
    resident = next(
        (r for r in range(pieces.warps * target.warp_size // threads, 0, -1) if taken <= slot_room(target, r, threads)),
        0,
    )
    return InPieces(held, threads, resident, ranks) if resident else None


def _threads(target: Target, runs: int, each: int) -> int:
    """Whole warps that have so many runs, so many in each of their threads and of those of other blocks."""
    return -(-runs // (each * target.warp_size)) * target.warp_size


def _suits(target: Target, runs: int, each: int, line: int) -> bool:
    """Whether blocks of several warps have so many runs, and those of an aligned row, of which each is whole, no more
    places than that (RMSNorm of 9362 x 14336 in bf16 runs at .90 with four blocks of 128 threads, at .97 in registers).
    """
    threads = _threads(target, runs, each)
    return threads >= LEAST_WARPS * target.warp_size and (line > 0 or (threads * each - runs) * SPARE_PARTS <= runs)
