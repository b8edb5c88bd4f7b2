"""Rows in pieces, in slots or registers: how many runs of 16 bytes a thread has, and how many blocks a row.

    RMSNorm of 2730 x 24576, bf16     clusters of 4 blocks of 192 threads, 4 runs each, eight on a multiprocessor
    of 2796 x 24001                   one block of 768 threads, 4 runs each, two
    LayerNorm of that                 one of 512, 6 runs each, three

A loop that writes such a row reads vectors of all rows beside it, and needs the registers that a row would take. On an
H200, of a device copy, in registers and in pieces:

    bf16   RMSNorm     12288 .96 .98   24576 .85 .99   32768 .71 .98   49152 .89 .97   24001 .87 .94   40001 .82 .92
                       51200 .77 .98   57344 .94 .98   65536 .97 .97
           LayerNorm   16384 .62 .93   24576 .89 .91   49152 .79 .86   (20480 .94 .92)
                       51200 .77 .86   53248 .77 .93   57344 .79 .92   65536 .85 .89
                       12001 .83 .86   14001 .74 .83   24001 .72 .80   32001 .75 .80   (40001 .81 .78)
                       50257 .72 .83   52001 .74 .83
    f32    RMSNorm     24001 .87 .94   32001 .88 .94   25600 .95 .98   28672 .96 .99
           LayerNorm   12001 .70 .89   16001 .81 .87   24001 .62 .87   32001 .73 .82   (10001 .91 .88)
                       26001 .87 .89   28001 .85 .90
                       22528 .96 .99   24576 .93 .98   26624 .89 .99   28672 .97 .98   32000 .96 .98

These were measured before what is read lasted in the L2, which copies to slots do not ask for. With it, in slots and in
registers of these pieces:

    f32    RMSNorm     6144 .99 1.01   7168 .99 1.01   8192 1.00 1.02  10240 .99 1.01  12288 1.00 1.02
                       16384 .99 1.02  20480 .98 1.00  24576 .99 1.01  32000 1.00 1.01
           LayerNorm   4096 1.00 1.02  (24576 .92 .91)  (32000 .96 .93)
    bf16   LayerNorm   (16384 .95 .91)  (24576 .94 .89)

Without vectors threads have room for more of a row. Only the longest that is aligned does better in pieces:

    bf16   softmax     51200 .96 .99   57344 .96 .98   65536 .96 .99
    f32                25600 .96 .99   28672 .93 .98   32768 .96 .99
"""

from collections.abc import Sequence
from math import ceil
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
FEW_WARPS = MOST_WARPS // 2  # of which each thread has 64
FEWER_WARPS = 44  # of which each has 46
LEAST_WARPS = 4  # of a block that shares a row with others
SPARE_PARTS = 16
WORD_BYTES = 4


class Pieces(NamedTuple):
    """Rows of so many bytes, in blocks whose threads have so many runs each (6.75: a fourth of them lacks the seventh),
    `ranks` of them for one row, and so many warps on a multiprocessor at most. `filled`: only rows that leave no thread
    without a run. `held`: only those of one array of words, in registers: its loads ask the L2 to let it last, copies
    to slots do not."""

    least_bytes: int
    most_bytes: int
    runs: float
    ranks: int
    warps: int = WARPS
    filled: bool = False
    held: bool = False


class InPieces(NamedTuple):
    """What the blocks of a row hold, in slots or registers, and what they are."""

    held: Held
    threads: int
    resident: int
    ranks: int
    slots: bool = True


KIB = 1 << 10
FIVE_EACH = Pieces(100 * KIB, 108 * KIB, 5, 4, filled=True)
WITHOUT_VECTORS = (
    FIVE_EACH,
    Pieces(108 * KIB, 132 * KIB, 8, 8, FEW_WARPS, filled=True),
    Pieces(108 * KIB, 132 * KIB, 8, 4, FEW_WARPS, filled=True),
)
MEASURED: dict[tuple[bool | None, bool, bool], tuple[Pieces, ...]] = {
    (None, False, True): WITHOUT_VECTORS,
    (None, False, False): WITHOUT_VECTORS,
    (True, False, False): (
        Pieces(16 * KIB, 17 * KIB, 3, 1, FEWER_WARPS, held=True),
        Pieces(16 * KIB, 17 * KIB, 3, 1, FEWER_WARPS),
        Pieces(87 * KIB, 127 * KIB, 8, 2, MOST_WARPS, filled=True),
        Pieces(97 * KIB, 127 * KIB, 6.75, 4, MOST_WARPS),
    ),
    (False, False, True): (
        Pieces(24 * KIB, 100 * KIB, 4, 4),
        Pieces(100 * KIB, 108 * KIB, 5, 4),
        Pieces(108 * KIB, 132 * KIB, 8, 4, FEW_WARPS),
    ),
    (False, False, False): (
        FIVE_EACH,
        Pieces(108 * KIB, 120 * KIB, 8, 4, FEW_WARPS, filled=True),
        Pieces(24 * KIB, 36 * KIB, 3, 1, held=True),
        Pieces(36 * KIB, 132 * KIB, 4, 4, held=True),
        Pieces(24 * KIB, 132 * KIB, 4, 4),
    ),
    (True, False, True): (
        Pieces(30 * KIB, 40 * KIB, 4, 2, MOST_WARPS),
        Pieces(44 * KIB, 56 * KIB, 4, 2, MOST_WARPS),
        Pieces(90 * KIB, 100 * KIB, 4, 4, MOST_WARPS),
        Pieces(100 * KIB, 132 * KIB, 8, 4, FEW_WARPS),
    ),
    (False, True, True): (Pieces(27 * KIB, 52 * KIB, 4, 1), Pieces(52 * KIB, 100 * KIB, 6, 4)),
    (False, True, False): (Pieces(60 * KIB, 132 * KIB, 8, 4),),
    (True, True, True): (
        Pieces(23 * KIB, 53 * KIB, 6, 1),
        Pieces(53 * KIB, 70 * KIB, 8, 2),
        Pieces(96 * KIB, 104 * KIB, 9, 2),
    ),
    (True, True, False): (
        Pieces(34 * KIB, 100 * KIB, 6, 2),
        Pieces(100 * KIB, 116 * KIB, 7, 4),
        Pieces(116 * KIB, 132 * KIB, 6, 4),
    ),
}
"""By whether three loops go over a row beside vectors (None: there are none), its runs are counted from a line, and its
elements are narrow."""


def in_pieces(
    problem: Problem,
    stmts: tuple[Stmt, ...],
    loops: Sequence[Member],
    width: int,
    line: int,
    most_ranks: int,
    *,
    beside: bool,
) -> InPieces | None:
    """The pieces of a row, `beside` vectors or not; None where others do better, or a call decides its length."""
    target = problem.target
    whole = held_by(problem, stmts, loops, width, line) if constant_value(loops[0].extent) is not None else None
    if whole is None or not in_chunks(problem, whole, width, line):
        return None
    row_bytes = whole.rounds * ACCESS_BYTES
    kind = (len(loops) >= NORM_LOOPS if beside else None, bool(line), width * 4 > ACCESS_BYTES)
    known = (p for p in MEASURED.get(kind, ()) if p.least_bytes <= row_bytes < p.most_bytes)
    known = (p for p in known if not p.held or (len(whole.elements) == 1 and width * WORD_BYTES == ACCESS_BYTES))
    pieces = next((p for p in known if not p.filled or _fills(target, whole.rounds, p, most_ranks)), None)
    if pieces is None:
        return None
    ranks = min(pieces.ranks, target.max_cluster, most_ranks)
    while ranks > 1 and not _suits(target, whole.rounds, pieces.runs, ranks, line):
        ranks //= 2
    threads = whole_warps(target, whole.rounds, pieces.runs * ranks)
    held = held_by(problem, stmts, loops, threads * ranks * width, line)
    if threads > target.max_threads or held is None:
        return None
    most = pieces.warps * target.warp_size // threads
    if pieces.held:
        return InPieces(held, threads, most, ranks, slots=False) if most else None
    return with_room(problem, held, width, threads, ranks, most)


def with_room(problem: Problem, held: Held, width: int, threads: int, ranks: int, most: int) -> InPieces | None:
    """The blocks of so many threads, `ranks` of them for what is held, at most so many on a multiprocessor, and as many
    as it has room for."""
    target, taken = problem.target, slot_bytes(problem, held, width, threads)
    resident = next((r for r in range(most, 0, -1) if taken <= slot_room(target, r, threads)), 0)
    return InPieces(held, threads, resident, ranks) if resident and held.rounds <= MOST_SLOTS else None


def whole_warps(target: Target, runs: int, each: float) -> int:
    """Threads, in whole warps, that have so many runs, each so many with the same threads of other blocks."""
    return ceil(runs / (each * target.warp_size)) * target.warp_size


def _fills(target: Target, runs: int, pieces: Pieces, most_ranks: int) -> bool:
    """Whether a row leaves no thread of its blocks without a run, nor any block."""
    each = pieces.runs * pieces.ranks
    return pieces.ranks <= min(target.max_cluster, most_ranks) and whole_warps(target, runs, each) * each == runs


def _suits(target: Target, runs: int, each: float, ranks: int, line: int) -> bool:
    """Whether blocks of several warps have so many runs, and those of an aligned row, of which each is whole, no more
    places than that, unless some are to lack one (RMSNorm of 9362 x 14336 in bf16 runs at .90 with four blocks of 128
    threads, at .97 in registers)."""
    threads, whole = whole_warps(target, runs, each * ranks), int(each) == each
    spare = threads * each * ranks - runs
    return threads >= LEAST_WARPS * target.warp_size and (line > 0 or not whole or spare * SPARE_PARTS <= runs)
