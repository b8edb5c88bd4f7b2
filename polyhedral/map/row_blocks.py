"""Aligned rows of f32 beside vectors, in few blocks: three on a multiprocessor, whose threads have two runs of a row.

    RMSNorm of 32768 x 4096      three blocks of 512 threads: 1.00 of a copy on an H200, .98 with four of 352
    of 13107 x 5120              of 640: .98, with five of 256 .97; LayerNorm of that .99, .96

Such a thread has 32 registers or a few more: rows of two arrays, of f64, or beside more vectors spill there.
"""

from collections.abc import Sequence

from texpr.grammar.ast import Stmt
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.held import Member, held_by
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.row_pieces import WORD_BYTES, whole_warps
from texpr.polyhedral.map.vectors import ACCESS_BYTES

BLOCKS, TWO_EACH = 3, 2
RUNS = range(1024, 1281)  # of 16 bytes of a row
MOST_VECTORS = 2


def few_blocks(problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], width: int, vectors: int) -> int:
    """How many blocks a multiprocessor is to have for rows beside so many vectors, from their first element on; 0 where
    others do better, or a call decides their length."""
    target, known = problem.target, constant_value(loops[0].extent) is not None
    whole = held_by(problem, stmts, loops, width) if known and 0 < vectors <= MOST_VECTORS and len(loops) > 1 else None
    if whole is None or len(whole.elements) > 1 or whole.rounds not in RUNS:
        return 0
    size = problem.kernel.buffer(whole.elements[0][0]).dtype.size_bytes
    fits = BLOCKS * whole_warps(target, whole.rounds, TWO_EACH) <= target.resident_threads
    return BLOCKS if size == WORD_BYTES and width * size == ACCESS_BYTES and fits else 0
