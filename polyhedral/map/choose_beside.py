"""The choice of rows beside one another: how many rows a thread adds, where all of them read a vector along it.

    par 257 i { Y[i] = sum 100003 j { A[i, j] * X[j] } }      4 rows in each of 256 threads

What of a vector every row reads comes from the L2, and takes as much of its rate as the row: a thread that has four
rows asks a quarter for it. On an H200 the product above runs at .77 of a read in bf16, at .72 with one row; in f32 at
.88, and at .87. With eight rows it has too few registers for the loads of others (.58), with two at .74.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.parted_fits import parted_fault
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.walk import subscript_names

ROWS = 4  # of a thread
THREADS, RESIDENT = 256, 4  # of a block, and of a multiprocessor: 64 registers for a thread
LEAST = 1 << 14  # iterations of a reduction: the L1 keeps a shorter vector, from which its blocks read it


def rows_beside(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, choice: Parted, turns: int) -> Parted:
    """The choice of a launch with all threads along its reductions, with several rows for each of them where all read
    as much of what is not theirs."""
    asked = threads_asked(problem.kernel, problem.target) or blocks_asked(problem.kernel, problem.target)
    if asked is not None or not nest.pars or sizes[-1] < ROWS or turns < LEAST:
        return choice
    if not all(_reads_for_all(problem, one, nest.indices[-1]) for one in found.reductions):
        return choice
    rows = replace(choice, threads=THREADS, ahead=1, resident=RESIDENT, patch={nest.indices[-1]: ROWS})
    return rows if parted_fault(problem, nest, rows) is None else choice


def _reads_for_all(problem: Problem, one: Reduction, row: str) -> bool:
    """Whether a reduction reads along its iterations what each row has, and what all have."""
    reads = [subscript_names(a.subscripts) for a in problem.accesses(one.body, {}) if not a.update]
    of_rows = [row in names for names in reads if one.over.index in names]
    return any(of_rows) and not all(of_rows)
