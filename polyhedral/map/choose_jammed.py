"""The choice of rows in pairs: ragged rows of narrow elements, beside vectors that each of them reads.

    LayerNorm of 22343 x 6001 in bf16      two rows in each block of 256 threads
    of 257 x 100003                        two in each cluster of 8 blocks of 224 threads

Where runs are counted from a line, what all rows read is at no aligned address, and is loaded in two chunks for each
run: LayerNorm of 257 x 100003 in bf16 runs at .681 of a copy on an H200 with a row in each cluster, at .89 without
these loads, and at .718 with two rows that share them; 2048 x 45001, in clusters of two blocks of 512 threads, at .831
in place of .695; 257 x 90001, whose pairs would leave a tenth of their slots empty, at .675 in place of .704. What
pairs of shorter rows gain `row_pairs.py` says.
"""

from texpr.grammar.ast import Par
from texpr.polyhedral.map.bands import nest_of
from texpr.polyhedral.map.held import held_by, members
from texpr.polyhedral.map.kept import Kept
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.row_pairs import paired
from texpr.polyhedral.map.row_pieces import NORM_LOOPS
from texpr.polyhedral.map.rows_jammed import ROWS, rows_apart, to_jam
from texpr.polyhedral.mapped.candidate import Blocks, Candidate

LONELY = 16  # pairs, of which one may have a single row
TURNS = 2  # of the blocks that run at a time, which pairs leave at least


def worth_jamming(kept: Kept, problem: Problem, first: Candidate) -> frozenset[str]:
    """The bands, by index, whose only launch has narrow elements of each row counted from a line, with three loops over
    it, in slots of a cluster or in a block that two rows fill, where few rows are left alone."""
    choices = tuple(first.launches.values())
    choice = choices[0] if len(choices) == 1 else None  # an empty kernel has none
    if not isinstance(choice, Blocks) or not is_ragged(choice):
        return frozenset()
    able, found = to_jam(kept), set[str]()
    for par in kept.proved.program.kernel.body:
        if isinstance(par, Par) and par.index in able:
            apart, rows = rows_apart(kept, par), problem.representative(par.extent, {})
            pairs = rows // (ROWS * apart) * apart + max(0, rows % (ROWS * apart) - apart)
            fit = choice.cluster > 1 or _is_filled(problem, par, choice, pairs)
            if fit and rows - ROWS * pairs <= pairs // LONELY:
                found.add(par.index)
    return frozenset(found)


def is_ragged(choice: Blocks) -> bool:
    """Whether rows of narrow elements are counted from a line, each with as many loops over it as a norm has."""
    narrow = max(choice.widths.values(), default=1) > 4
    slots = choice.cluster == 1 or all(row.slots for row in choice.rows)
    return narrow and slots and all(row.line and len(row.indices) >= NORM_LOOPS for row in choice.rows)


def _is_filled(problem: Problem, par: Par, choice: Blocks, pairs: int) -> bool:
    """Whether two rows leave few threads of a block without a run, and there are enough of them."""
    if len(choice.rows) != 1:
        return False
    (row,), target = choice.rows, problem.target
    stmts, width = nest_of(par).body, choice.widths.get(row.indices[0], 1)
    whole = held_by(problem, stmts, members(stmts, row.indices), width, row.line)
    found = paired(target, whole.rounds) if whole is not None and target.shared_bytes > 0 else None
    return found is not None and pairs >= TURNS * target.multiprocessors * found.resident


def holds_pairs(first: Candidate) -> bool:
    """Whether rows are held in slots."""
    return all(
        isinstance(one, Blocks) and bool(one.rows) and all(row.slots for row in one.rows)
        for one in first.launches.values()
    )
