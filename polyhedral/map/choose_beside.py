"""The choice of rows beside one another: how many rows a thread adds, where all of them read a vector along it.

    par 200 i { Y[i] = sum 100003 j { A[i, j] * X[j] } }      4 rows in each of 256 threads, 10 blocks for these
    par 257 i { Y[i] = sum 100003 j { A[i, j] * X[j] } }      2 rows in each of 896 threads, whole in a block

What of a vector every row reads comes from the L2, and takes as much of its rate as the row: a thread that has four
rows asks a quarter for it. On an H200 the product of 257 rows so runs at .81 of a read in bf16, at .72 with one row; in
f32 at .89, and at .87. With eight rows it has too few registers for the loads of others (.58), with two at .74.

Where blocks of whole rows are one wave, and nearly all multiprocessors have one, none wait for others, and two rows
that are aligned alike take few loads: it runs at .94 in bf16 and at .96 in f32 (256 x 100352, aligned, .97 in both;
.91 and .93 before). There are as many threads as make whole turns of a row: by hand 1024, whose last turn is short,
run .02 below 896, 640 .05. Asked for lines of the L1, as what all rows read is, it is .02 less.

More rows that begin anywhere, and are so long that a multiprocessor has room for one block that holds one, or for a
part of it in a cluster: 2000 x 32001 ran so at .69 of a read in bf16 and at .81 in f32, 1000 x 65521 at .61 and .59;
with two blocks of whole rows on a multiprocessor they run at .92 and .95, .95 and .98, and 300 x 65521 at .89 and .94,
where four rows in blocks that meet run at .81 and .89. Shorter ones do no better so in bf16 (2000 x 28001 .90 and .88
held, 4096 x 24001 .89 and .93).

    par 8 m, 4096 n { Y[m, n] = sum 4096 k { X[m, k] * (W[n, k] * s[n]) } }      8 rows m and 4 rows n in 128 threads

Of few rows times many a thread has sums of both, so that a weight is converted and scaled once for eight of them, and
no launch before makes an array of the scaled ones. On an H200 with cold caches, W of i8 (which a sum that only reads
takes 6.1 us for): 2 rows 8.6 us, 4 rows 10.1, 8 rows 15, where an array took 85; 16 rows, as two times 8, 25 and 87.
Scaled by group one row takes 8.5 us (23 in a block for each n, which read a scale for each weight), 8 rows 15.9.

    par 8 m, 4096 n { Y[m, n] = sum 4096 k { X[m, k] * bf16(f32(W[k, n]) * s[k / 32, n]) } }      8 rows m and 4 rows n

Where weights lie across the sum, lanes are on the rows n, and a thread has 8 iterations of the sum: such weights of i8
take 7.9 us of 1 row, 9.1 of 2, 10.8 of 4, 15.6 of 8 and 23.5 of 16, where an array and tensor cores took 25 of any. In
f32, 3 rows of 4096 x 4096 run at .92 of a sum that only reads W, 8 rows at .82.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import prod

from texpr.grammar.ast import Gather
from texpr.grammar.index.expr import const, constant_value
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.crew import cut_of
from texpr.polyhedral.map.digits import power_of_two, power_of_two_below
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.part_lines import row_groups, row_lines
from texpr.polyhedral.map.parted_fits import parted_fault
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.quotients import quotients_of
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.row_runs import across_rows
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, address, along, is_run
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.target import REGISTERS
from texpr.polyhedral.walk import subscript_names

ROWS = 4  # of a thread
THREADS, RESIDENT = 256, 4  # of a block, and of a multiprocessor: 64 registers for a thread
WHOLE_ROWS, WHOLE_AHEAD = 2, 2  # rows of a thread whose block has all of them, and rounds of each that it loads ahead
LEAST_WHOLE, BUSY = 768, 0.95  # threads of such a block in one wave, and the share of multiprocessors that have one
LONG_BYTES = 56 << 10  # of a row: a multiprocessor has room for one block that holds it
MANY_RESIDENT = 2  # of such blocks, of half as many threads, on a multiprocessor, where there are more of them
FEW_BESIDE, MANY_BESIDE = 8, 4  # rows of a thread, of a product
MOST_FEW = 16  # rows of a product that are few
TEAM_WARPS, WIDE_WORDS = 4, 4  # of a block, for a product; half of them for runs of at most so many elements
FOR_RUNS, FOR_SUM = 64, 2  # registers of a thread, and those for each sum and its share of the runs
ACROSS_THREADS = 512  # of a block with rows that lie across what is added
LEAST_ACROSS, WIDEST_ACROSS = 4, 8  # neighbours that such a thread has of each of its few rows
MOST_ACROSS = 4 * WIDEST_ACROSS  # sums of such a thread, where they need not be more
SMALL_ACROSS = 8  # sums of a thread beside which a multiprocessor has room for another block
STEPS = (8, 4)  # iterations of such a sum that a thread takes at once
FOR_ELSE = 22  # registers of such a thread for anything but sums and loads
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


def whole_rows(
    problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, choice: Parted, turns: int
) -> Parted | None:
    """The same with blocks that have their rows alone, counted from the chunks in which these lie: where one wave of
    them is there at once and keeps nearly all multiprocessors busy, or there are more of rows that begin anywhere. None
    where it is neither, or no rows are alike."""
    asked = threads_asked(problem.kernel, problem.target) or blocks_asked(problem.kernel, problem.target)
    if asked is not None or not nest.pars or turns < LEAST or len(found.reductions) != 1:
        return None
    row, (one,), units = nest.indices[-1], found.reductions, problem.target.multiprocessors
    if not _reads_for_all(problem, one, row):
        return None
    for name, (origin, apart) in row_lines(problem, nest, found, row).items():
        groups = prod(sizes[:-1]) * (constant_value(row_groups(const(sizes[-1]), WHOLE_ROWS, apart)) or 0)
        element_bytes = problem.kernel.buffer(origin[0]).dtype.size_bytes
        width, long = ACCESS_BYTES // element_bytes, turns * element_bytes >= LONG_BYTES
        if BUSY * units <= groups <= units:
            resident = 1
        elif groups >= units and long and _begins_anywhere(problem, nest, one, origin):
            resident = MANY_RESIDENT
        else:
            continue
        most = problem.target.max_threads // resident
        able = range(LEAST_WHOLE // resident, most + 1, problem.target.warp_size)
        together = WHOLE_AHEAD * width
        made = replace(
            choice,
            threads=min(able, key=lambda n: (-(-(turns + width - 1) // (n * together)) * n, -n)),
            ahead=WHOLE_AHEAD,
            resident=resident,
            widths={one.over.index: width},
            lines={one.over.index: name},
            patch={row: WHOLE_ROWS},
        )
        if parted_fault(problem, nest, made) is None:
            return made
    return None


def _begins_anywhere(problem: Problem, nest: Nest, one: Reduction, element: Element) -> bool:
    """Whether runs of an element along a reduction are at no aligned addresses."""
    width = ACCESS_BYTES // problem.kernel.buffer(element[0]).dtype.size_bytes
    found = along(problem, one.reading, one.over.index, (*nest.indices, *one.indices)).vectors(width).wide
    return any(wide.element == element and wide.funnel for wide in found)


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
    warps = TEAM_WARPS if width > WIDE_WORDS else TEAM_WARPS // 2
    threads = power_of_two_below(
        min(warps * problem.target.warp_size, problem.representative(over.extent, {}) // width)
    )
    if sides is None or width == 1 or threads < problem.target.warp_size:
        return None
    extents = {"": 1, **dict(zip(nest.indices, sizes, strict=True))}
    few, many = sorted(sides, key=lambda index: extents[index])
    busy = prod(sizes) >= MANY_BESIDE * extents[few] * problem.target.multiprocessors
    if not (2 <= extents[few] <= MOST_FEW or not few) or not busy:
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


def products_across(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work) -> Parted | None:
    """The same where what the many rows read lies along them: a thread has some rows of both, and several iterations of
    the reduction, of which it reads both as they lie in memory."""
    asked = threads_asked(problem.kernel, problem.target) or blocks_asked(problem.kernel, problem.target)
    if asked is not None or len(found.reductions) != 1 or found.first:
        return None
    (one,), extents = found.reductions, dict(zip(nest.indices, sizes, strict=True))
    sides = _sides_across(problem, one, extents)
    if sides is None:
        return None
    few, many = sides
    par = nest.pars[nest.indices.index(many)]
    widest = along(problem, one.reading, many, (*nest.indices, *one.indices)).greatest
    for tiles, steps in product((1, 2), STEPS):
        rows = -(-extents.get(few, 1) // tiles)
        width = min(widest, max(LEAST_ACROSS, MOST_ACROSS // power_of_two(rows)), WIDEST_ACROSS)
        while width > 1 and cut_of(problem, par, width) is not None:
            width //= 2
        lanes = min(problem.target.warp_size // 2, ACROSS_THREADS // (power_of_two(rows) * width))
        made = Parted(
            threads=ACROSS_THREADS,
            deal=((many, lanes),),
            grid=(many, *(index for index in reversed(nest.indices) if index != many)),
            shared_out=(one.over.index,),
            resident=1 if rows * width > SMALL_ACROSS else 2,
            widths={one.over.index: steps},
            patch={index: n for index in nest.indices if (n := {few: rows, many: width}.get(index, 1)) > 1},
        )
        short = problem.representative(one.over.extent, {}) < steps * ACROSS_THREADS // lanes
        if (
            width > 1
            and not short
            and _has_room(problem, one, made, nest)
            and parted_fault(problem, nest, made) is None
        ):
            return made
    return None


def _has_room(problem: Problem, one: Reduction, made: Parted, nest: Nest) -> bool:
    """Whether a thread has registers for what it loads in a turn, beside its sums."""
    reads = {(a.buffer, a.subscripts): a.element_bytes for a in problem.accesses(one.body, {}) if not a.update}
    across = {run.wide.element: run for run in across_rows(problem, one, made, (*nest.indices, *one.indices))}
    loaded = sum(
        bytes_ * prod(n for index, n in made.patch.items() if index in names) * (turn if over in names else 1)
        for over in (one.over.index,)
        for element, bytes_ in reads.items()
        for names in (subscript_names(element[1]),)
        for turn in (across[element].turn if element in across else made.widths[over],)
    )
    return prod(made.patch.values()) + loaded // 4 + FOR_ELSE <= REGISTERS // (made.threads * made.resident)


def _sides_across(problem: Problem, one: Reduction, extents: Mapping[str, int]) -> tuple[str, str] | None:
    """Two indices, the first of few rows, of which no read has both: rows of one are read once for all of the other.
    What is read of the second along the reduction lies along it. Of one row, the first of which is none, there is
    something that is worth it: bytes, or what several iterations have in common."""
    over, reads = one.over.index, {(a.buffer, a.subscripts) for a in problem.accesses(one.body, {}) if not a.update}
    if any(isinstance(subscript, Gather) for _, subscripts in reads for subscript in subscripts):
        return None
    has = {read: subscript_names(read[1]) for read in reads}
    moving = [read for read in reads if over in has[read]]

    def lies(many: str) -> list[Element]:
        rows = [read for read in moving if many in has[read]]
        return rows if all(is_run(problem, read, many) for read in rows) else []

    for pair in combinations(reversed([*extents]), 2):
        few, many = sorted(pair, key=lambda index: extents[index])
        apart = not any({few, many} <= names for names in has.values())
        if 2 <= extents[few] <= MOST_FEW and apart and lies(many) and any(few in has[read] for read in moving):
            return few, many
    for many in reversed([*extents]):
        rows = lies(many)
        if _is_alone(rows, moving, extents) and any(
            quotients_of(r[1], over) or problem.kernel.buffer(r[0]).dtype.bits == 8 for r in rows
        ):
            return "", many
    return None


def _is_alone(rows: Sequence[Element], moving: Sequence[Element], extents: Mapping[str, int]) -> bool:
    """Whether something is read beside rows, and none of these is read for several values of another index."""
    beside = [read for read in moving if read not in rows]
    of_rows = {index for _, subscripts in rows for index in subscript_names(subscripts)}
    others = {index for _, subscripts in beside for index in subscript_names(subscripts)}
    return bool(rows) and bool(beside) and others & {*extents} <= of_rows


def _sides(problem: Problem, one: Reduction, nest: Nest) -> tuple[str, str] | None:
    """The two innermost indices of a nest of which each read along a reduction has one, as runs along it, or as what
    groups of its iterations have in common. Of one row, the first of which is none, there is such a group."""
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
    extents = dict.fromkeys(nest.indices, 1)
    for many in reversed(nest.indices):
        rows = [read for read in moving if many in subscript_names(read[1])]
        both = {read in rows for read, step in zip(moving, steps, strict=True) if step == 1} == {True, False}
        if both and _is_alone(rows, moving, extents) and any(quotients_of(r[1], one.over.index) for r in rows):
            return "", many
    return None
