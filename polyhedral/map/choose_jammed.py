"""The choice of rows in pairs: long ragged rows of narrow elements, beside vectors that each of them reads.

    LayerNorm of 257 x 100003 in bf16      two rows in each cluster of 8 blocks of 224 threads

Where runs are counted from a line, what all rows read is at no aligned address, and is loaded in two chunks for each
run: LayerNorm of 257 x 100003 in bf16 runs at .681 of a copy on an H200 with a row in each cluster, at .89 without
these loads, and at .718 with two rows that share them; 2048 x 45001, in clusters of two blocks of 512 threads, at .831
in place of .695; 257 x 90001, whose pairs would leave a tenth of their slots empty, at .675 in place of .704.
"""

from texpr.grammar.ast import Par
from texpr.polyhedral.map.kept import Kept
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.rows_jammed import ROWS, rows_apart, to_jam
from texpr.polyhedral.mapped.candidate import Blocks, Candidate

LOOPS = 3  # over a row, of which the last has vectors of all rows beside it: a norm of means and variances
LONELY = 16  # pairs, of which one may have a single row


def worth_jamming(kept: Kept, problem: Problem, first: Candidate) -> frozenset[str]:
    """The bands, by index, whose only launch has a cluster for each row, in slots of narrow elements counted from a
    line, with three loops over it, where few rows are left alone."""
    if len(first.launches) != 1 or not all(map(_is_ragged, first.launches.values())):
        return frozenset()
    able, found = to_jam(kept), set[str]()
    for par in kept.proved.program.kernel.body:
        if isinstance(par, Par) and par.index in able:
            apart, rows = rows_apart(kept, par), problem.representative(par.extent, {})
            pairs = rows // (ROWS * apart) * apart + max(0, rows % (ROWS * apart) - apart)
            if rows - ROWS * pairs <= pairs // LONELY:
                found.add(par.index)
    return frozenset(found)


def _is_ragged(choice: object) -> bool:
    if not isinstance(choice, Blocks) or choice.cluster == 1 or not choice.widths:
        return False
    narrow = max(choice.widths.values()) > 4
    return narrow and all(row.line and row.slots and len(row.indices) >= LOOPS for row in choice.rows)


def holds_pairs(first: Candidate) -> bool:
    """Whether rows are held in slots of clusters."""
    return all(
        isinstance(one, Blocks) and one.cluster > 1 and bool(one.rows) and all(row.slots for row in one.rows)
        for one in first.launches.values()
    )
