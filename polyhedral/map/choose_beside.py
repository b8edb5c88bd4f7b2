"""The choice of rows beside one another: how many rows a thread adds, where all of them read a vector along it.

    par 257 i { Y[i] = sum 100003 j { A[i, j] * X[j] } }      4 rows in each of 256 threads

What of a vector every row reads comes from the L2, and takes as much of its rate as the row: a thread that has four
rows asks a quarter for it. On an H200 the product above runs at .77 of a read in bf16, at .72 with one row; in f32 at
.88, and at .87. With eight rows it has too few registers for the loads of others (.58), with two at .74.

    par 8 m, 4096 n { Y[m, n] = sum 4096 k { X[m, k] * (W[n, k] * s[n]) } }      8 rows m and 4 rows n in 128 threads

Of few rows times many a thread has sums of both, so that a weight is converted and scaled once for eight of them, and
no launch before makes an array of the scaled ones. On an H200 with cold caches, W of i8 (which a sum that only reads
takes 6.1 us for): 2 rows 8.6 us, 4 rows 10.1, 8 rows 15, where an array took 85; 16 rows, as two times 8, 25 and 87.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from texpr.grammar.ast import Gather
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import power_of_two_below
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.parted_fits import parted_fault
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.vectors import address, along
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.target import REGISTERS
from texpr.polyhedral.walk import subscript_names

ROWS = 4  # of a thread
THREADS, RESIDENT = 256, 4  # of a block, and of a multiprocessor: 64 registers for a thread
FEW_BESIDE, MANY_BESIDE = 8, 4  # rows of a thread, of a product
MOST_FEW = 16  # rows of a product that are few
TEAM_WARPS = 4  # of a block, for a product
FOR_RUNS, FOR_SUM = 64, 2  # registers of a thread, and those for each sum and its share of the runs
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


def products_beside(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, choice: Parted) -> Parted | None:
    """The choice of few rows times many, where all are read along one reduction: a thread adds several of both, and
    makes what the program says of an element once for all that it is added to. None where there is no such product, or
    too little of it to keep a GPU busy."""
    asked = threads_asked(problem.kernel, problem.target) or blocks_asked(problem.kernel, problem.target)
    if asked is not None or len(found.reductions) != 1:
        return None
    (one,) = found.reductions
    sides, over = _sides(problem, one, nest), one.over
    width = along(problem, one.reading, over.index, (*nest.indices, *one.indices)).greatest
    threads = power_of_two_below(
        min(TEAM_WARPS * problem.target.warp_size, problem.representative(over.extent, {}) // width)
    )
    if sides is None or width == 1 or threads < problem.target.warp_size:
        return None
    extents = dict(zip(nest.indices, sizes, strict=True))
    few, many = sorted(sides, key=lambda index: extents[index])
    busy = prod(sizes) >= MANY_BESIDE * extents[few] * problem.target.multiprocessors
    if not 2 <= extents[few] <= MOST_FEW or not busy:
        return None
    rows = {few: -(-extents[few] // -(-extents[few] // FEW_BESIDE)), many: MANY_BESIDE}
    made = replace(
        choice,
        threads=threads,
        widths={over.index: width},
        grid=(many, *(index for index in choice.grid if index != many)),
        ahead=1,
        resident=REGISTERS // (threads * (FOR_RUNS + FOR_SUM * prod(rows.values()))),
        patch={index: rows[index] for index in nest.indices if index in rows},
    )
    return made if parted_fault(problem, nest, made) is None else None


def _sides(problem: Problem, one: Reduction, nest: Nest) -> tuple[str, str] | None:
    """The two innermost indices of a nest of which each read along a reduction has one, as runs along it, or as what
    groups of its iterations have in common."""
    reads = [(a.buffer, a.subscripts) for a in problem.accesses(one.body, {}) if not a.update]
    moving = [read for read in reads if one.over.index in subscript_names(read[1])]
    if any(isinstance(subscript, Gather) for _, subscripts in moving for subscript in subscripts):
        return None
    steps = [address(problem, read).coefficient(one.over.index) for read in moving]
    if not {*steps} <= {1, None}:  # None: of quotients, which are alike for neighbours
        return None
    for pair in combinations(reversed(nest.indices), 2):
        has = [tuple(index in subscript_names(subscripts) for index in pair) for _, subscripts in moving]
        runs = {own for own, step in zip(has, steps, strict=True) if step == 1}
        if {*has} == runs == {(True, False), (False, True)}:
            return pair
    return None
