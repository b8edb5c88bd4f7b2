"""The first candidate of a launch whose reductions threads and blocks share out.

    S[0] = sum N i { X[i] * Y[i] }                 512 threads and at most 528 blocks: what a GPU runs at once
    par 8 b { S[b] = sum N i { A[b, i] } }         66 blocks for each b
    par N j { C[j] = sum M i { A[i, j] } }         lanes along j, warps and blocks along i

So many bytes are loaded ahead that the memory is kept busy, and there are as many blocks as are resident together: more
would leave more partial results, fewer would leave multiprocessors idle (`memory-bound` kernels by hand say how many).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Par, Seq
from texpr.grammar.index.expr import ONE, add, constant_value, names
from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.linear import linear
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.choose_beside import products_across, products_beside, rows_beside, whole_rows
from texpr.polyhedral.map.choose_chunks import (
    ACROSS,
    AHEAD_BYTES,
    ALONG,
    FEWEST,
    by_chunks,
    grid_of,
    moved_bytes,
    own_of,
    picks,
    read_by,
    registers_of,
    shares,
)
from texpr.polyhedral.map.crew import covered_by_block
from texpr.polyhedral.map.crew_fits import MAX_AHEAD
from texpr.polyhedral.map.digits import power_of_two, power_of_two_below, thread_digits
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.objective import cost, lane_values
from texpr.polyhedral.map.problem import Problem, Region, declared, plain_nest
from texpr.polyhedral.map.reducible import Reduction, as_reduction, combinable
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.sharing import ENOUGH, prefers_blocks
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.vectors import ACCESS_BYTES, along
from texpr.polyhedral.map.widths import any_address_width, run_width
from texpr.polyhedral.map.work import Work, shareable, work
from texpr.polyhedral.mapped.candidate import Deal, Parted
from texpr.polyhedral.names import Names
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.target import REGISTERS, Target
from texpr.polyhedral.walk import subscript_names

TWO_ROUNDS = 64
"""Bytes that two rounds may bring, where one brings enough: two of dot in bf16 run at .972, one at .964. Loads at any
address are two each, for which a thread has no registers beside those of another round."""
STRIP = 4  # elements of a block for each lane of a warp: the last block adds the parts of all, while others wait
MAX_SHIFTED = 4  # rounds of loads at any address, each of which takes the registers of two
SLACK = 0.03  # of the threads of a GPU, which fewer parts are worth
SHORT_REST = 8  # loops behind reductions are short that have one iteration for so many of theirs
LEAST = 64  # threads of a block that has several elements, at least
# Columns are few where a row has so many bytes: as many lanes lie across as leave so many strips, each for a block of
# each multiprocessor (sums of 500000 x 128 in bf16 .95 of a read, in f32 .99; .87 and .92 with two blocks and a warp).
FEW_BYTES, FEW_STRIPS = 1536, 4
MIN_ROWS = 264  # iterations that have a block each keep the multiprocessors of today's GPUs busy


def choose_parted(problem: Problem, region: Region) -> Parted | None:
    """Threads and blocks for the reductions of a band's body, or of plain statements, None where there are none to be
    shared out."""
    return _of_nest(problem, region, *plain_nest(region))


def choose_summed(problem: Problem, region: Region) -> Parted | None:
    """The same for a band of accumulations, over the indices that tell none of their elements."""
    nest, ranges = plain_nest(region)
    free = [nest.pars[d].index for d in combinable(nest)]
    found = [_of_nest(problem, region, as_reduction(nest, over), ranges) for over in reversed(free)]
    return max((one for one in found if one is not None), key=_reach, default=None)


def _reach(choice: Parted) -> tuple[int, int]:
    """Wide accesses, then blocks."""
    return max(choice.widths.values(), default=1), max(choice.blocks.values(), default=1)


def _of_nest(problem: Problem, region: Region, nest: Nest, ranges: Ranges) -> Parted | None:
    over = shareable(problem, nest.body, ranges)
    found = work(problem, nest.body, over) if over else None
    if found is None:
        return None
    sizes = [problem.representative(add(ranges[p.index][1], ONE), {}) for p in nest.pars]
    turns = min(prod(problem.loop_sizes(one.loops, ranges)[0].values()) for one in found.reductions)
    memory = memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=ranges)
    lane = _lane(problem, nest, sizes, ranges, found)
    streams = all(_streams(problem, nest, reduction) for reduction in found.reductions)
    few = prod(sizes) * ENOUGH <= problem.target.multiprocessors * problem.target.resident_threads
    if (across := products_across(problem, nest, sizes, found)) is not None:
        choice = across
    elif lane is None:
        usual = _along(problem, nest, found, turns)
        apart = prod(sizes) >= MIN_ROWS and (not few or prefers_blocks(problem, nest, sizes, ACROSS, ranges))
        chosen = products_beside(problem, nest, sizes, found, usual)
        if chosen is None and streams:
            chosen = whole_rows(problem, nest, sizes, found, usual, turns)
        if chosen is None and (not streams or apart):
            return None
        choice = chosen or rows_beside(problem, nest, sizes, found, usual, turns)
    else:
        if not (streams or (few and turns > CHAIN)) or (not few and _goes_on(problem, found, ranges, turns)):
            return None
        choice = _across(problem, nest, sizes, found, lane)
    each_has = [own_of(choice, dict(choice.deal).get(i, 1), i) for i in nest.indices]
    blocks = prod(-(-size // own) for size, own in zip(sizes, each_has, strict=True))
    # where a condition on data stands around the launch, blocks are counted outside any; whole rows are of one
    alone = region.saved or (choice.patch and choice.lines)
    each = 1 if alone else problem.target.multiprocessors * choice.resident // max(1, blocks)
    return replace(choice, blocks=blocks_of(problem, found, ranges, choice, each), memory=memory)


def _lane(problem: Problem, nest: Nest, sizes: Sequence[int], ranges: Ranges, found: Work) -> int | None:
    """The dimension of the band on the lanes, where that is better than the reductions themselves."""
    if not nest.pars:
        return None
    fixed, warp = {**dict.fromkeys(ranges, 0), **problem.sizes}, problem.target.warp_size
    order, _ = choose_lanes(problem, nest, sizes, ACROSS, ranges, without=declared(nest.body))

    def sectors(one: Reduction, index: str) -> int:
        """Those that a warp touches with its lanes on an index."""
        reads = [access for access in problem.accesses(one.body, ranges) if not access.update]
        lanes = lane_values(thread_digits((index,), ((0, warp),), Names(()), warp), (index,), warp)
        return cost(reads, lanes, fixed, warp)[0]

    across = sum(sectors(one, nest.indices[order[0]]) for one in found.reductions)
    along = sum(sectors(one, one.over.index) for one in found.reductions)
    return order[0] if across < along else None


def _goes_on(problem: Problem, found: Work, ranges: Ranges, turns: int) -> bool:
    """Whether long loops follow the reductions, which the threads of one warp would run for a whole block."""
    loops = [stmt for stmt in found.last if isinstance(stmt, Seq) and found.at(stmt) is None]
    return any(problem.representative(loop.extent, ranges) * SHORT_REST > turns for loop in loops)


def _streams(problem: Problem, nest: Nest, reduction: Reduction) -> bool:
    """Whether it reads elements that no other iteration of the band reads."""
    accesses = problem.accesses(reduction.body, {})
    return any({*nest.indices, *reduction.indices} <= subscript_names(a.subscripts) for a in accesses)


def _along(problem: Problem, nest: Nest, found: Work, turns: int) -> Parted:
    """All threads of a block along the reductions."""
    asked = threads_asked(problem.kernel, problem.target)
    threads = asked or max(problem.target.warp_size, min(ALONG, power_of_two(turns)))
    room, widths, wanted = problem.target.resident_threads // threads, dict[str, int](), TWO_ROUNDS
    for one in found.reductions:
        size = problem.representative(one.over.extent, {})
        hardware = (*nest.indices, *one.indices)
        width = run_width(problem, one.reading, one.over.index, size, hardware, width_asked((one.over,)))
        widths |= {one.over.index: width} if width > 1 else {}
        if any(wide.funnel for wide in along(problem, one.reading, one.over.index, hardware).vectors(width).wide):
            wanted = AHEAD_BYTES[ALONG]
    moved = max(moved_bytes(problem, nest, one, widths) for one in found.reductions)
    return Parted(
        threads=threads,
        grid=tuple(reversed(nest.indices)),
        shared_out=tuple(one.over.index for one in found.reductions),
        ahead=rounds_ahead(problem, nest, found, widths, max(AHEAD_BYTES[ALONG], min(2 * moved, wanted))),
        resident=blocks_asked(problem.kernel, problem.target) or max(1, room if threads == ALONG else room // 2),
        widths=widths,
    )


def _across(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, lane: int) -> Parted:
    """Lanes along a dimension of the band, warps along the reductions."""
    par, target = nest.pars[lane], problem.target
    asked, warp = threads_asked(problem.kernel, target), target.warp_size
    few = _of_few(problem, nest, sizes, found, lane)
    if few is not None:
        return few
    width, most_ahead = _neighbours(problem, nest, par, sizes[lane], found)
    if width > 1 and most_ahead == MAX_SHIFTED:
        chunked = by_chunks(problem, nest, sizes, found, lane, width)
        if chunked is not None:
            return chunked
        if sizes[lane] < width * warp:
            width, most_ahead = 1, MAX_AHEAD
    lanes = min(warp, power_of_two(-(-sizes[lane] // width)), asked or ACROSS, max(1, STRIP * warp // width))
    tiles = prod(sizes) // sizes[lane] * -(-sizes[lane] // (lanes * width))
    widths = {par.index: width} if width > 1 else {}
    deal: Deal = ((par.index, lanes),) if lanes > 1 else ()
    threads = asked or _threads(target, tiles)
    if asked is None and lanes > 1 and width > 1 and most_ahead == MAX_AHEAD and threads == ACROSS:
        threads = _shared_by_fewer(target, tiles)
    shifted = most_ahead == MAX_SHIFTED
    ahead = min(most_ahead, rounds_ahead(problem, nest, found, widths, AHEAD_BYTES[ACROSS], shared=shifted))
    resident = max(1, 2 * ALONG // threads)
    if width > 1 and shifted:
        resident = min(resident, max(1, REGISTERS // (threads * registers_of(problem, nest, found, widths, ahead))))
    elif picks(found) and width > 1:  # fewer loads, so that there is room for both (see `registers_of`)
        room = REGISTERS // (threads * resident)
        while ahead > 1 and registers_of(problem, nest, found, widths, ahead, chunks=1) > room:
            ahead //= 2
    return Parted(
        threads=threads,
        deal=deal,
        grid=grid_of(nest, lane),
        shared_out=tuple(one.over.index for one in found.reductions),
        ahead=ahead,
        resident=blocks_asked(problem.kernel, target) or resident,
        widths=widths,
    )


def _of_few(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, lane: int) -> Parted | None:
    """A block of many threads for each multiprocessor, across so few columns in whole accesses that more blocks would
    leave more parts of each than their last one adds at once."""
    par, target, size, others = nest.pars[lane], problem.target, sizes[lane], prod(sizes) // sizes[lane]
    asked = threads_asked(problem.kernel, target) or width_asked(nest.pars) or blocks_asked(problem.kernel, target)
    if asked or found.first or len(found.reductions) > 1 or any(par.index in names(p.extent) for p in nest.pars):
        return None
    (one,) = found.reductions
    read = {element for element in read_by(problem, one) if par.index in subscript_names(element[1])}
    elements = max((problem.kernel.buffer(name).dtype.size_bytes for name, _ in read), default=0)
    if not read or size * elements > FEW_BYTES:
        return None
    hardware = (*nest.indices, *one.indices)
    width = run_width(problem, one.reading, par.index, size, hardware, None, others=FEWEST)
    if width * elements != ACCESS_BYTES or not linear(par.extent).is_multiple(width, problem.divisors):
        return None
    lanes = next((n for n in shares(target) if -(-size // (n * width)) >= FEW_STRIPS), target.warp_size // FEWEST)
    blocks, ahead = others * -(-size // (lanes * width)), max(1, MAX_AHEAD // len(read))
    parts = target.multiprocessors // blocks
    turns = problem.representative(one.over.extent, {}) // (ALONG // lanes * ahead)
    if parts < 2 or turns < parts:
        return None
    return Parted(
        threads=ALONG,
        deal=((par.index, lanes),),
        grid=grid_of(nest, lane),
        shared_out=(one.over.index,),
        ahead=ahead,
        resident=1,
        widths={par.index: width},
    )


def _threads(target: Target, tiles: int) -> int:
    """The threads of a block for each of so many tiles: fewer where all of them are there at once then, and not else:
    the last blocks would leave memory idle (column sums of 257 x 100003 in bf16: .73 of what they read with 256)."""
    at_once, threads = target.multiprocessors * 2 * ALONG, ACROSS
    while at_once // threads < tiles <= at_once // LEAST and threads > LEAST:
        threads //= 2
    return threads


def _shared_by_fewer(target: Target, tiles: int) -> int:
    """The threads of a block for each of so many tiles, which blocks share: more where as many of them run then, for
    then there are fewer parts to be met, and threads that share these (column sums of 131072 x 1024 in bf16: .97 of
    what they read with 512, .93 with 256; the first maxima .94 and .87)."""

    def busy(threads: int) -> float:
        at_once = target.multiprocessors * 2 * ALONG // threads
        return tiles * max(1, at_once // tiles) / at_once

    shared = 2 * tiles <= target.multiprocessors * 2 * ALONG // ACROSS
    return ALONG if shared and busy(ALONG) >= busy(ACROSS) - SLACK else ACROSS


def _neighbours(problem: Problem, nest: Nest, par: Par, size: int, found: Work) -> tuple[int, int]:
    """How many neighbours of an index on the lanes a thread takes, and how many rounds of them it loads ahead at most:
    at the addresses where they are aligned, else at any."""
    if found.first or any(par.index in names(p.extent) for p in nest.pars):
        return 1, MAX_AHEAD
    asked = width_asked(nest.pars)
    runs = [(one.reading, par.index, size, (*nest.indices, *one.indices)) for one in found.reductions]
    width = min(run_width(problem, *run, asked) for run in runs)
    while width > 1 and not linear(par.extent).is_multiple(width, problem.divisors):
        width //= 2
    if width > 1 or asked is not None:
        return width, MAX_AHEAD
    lanes = problem.target.warp_size // FEWEST // 2  # half of the fewest
    shifted = min(any_address_width(problem, *run, lanes=lanes) for run in runs)
    return shifted, MAX_SHIFTED if shifted > 1 else MAX_AHEAD


def rounds_ahead(
    problem: Problem, nest: Nest, found: Work, widths: Mapping[str, int], wanted: int, *, shared: bool = True
) -> int:
    """Rounds that are loaded together: as many as bring so many bytes, of all arrays that move, or of those alone whose
    elements neighbours do not share (a row times 24 matrices in eight rounds of whole accesses: 1.004 of the rate in
    four in the mean; 4000 x 10000 in bf16 .92 of a read and .90)."""
    moved = [moved_bytes(problem, nest, one, widths, shared=shared) for one in found.reductions]
    return power_of_two_below(min([MAX_AHEAD, *(wanted // max(1, each) for each in moved)]))


def blocks_of(problem: Problem, found: Work, ranges: Ranges, choice: Parted, most: int) -> dict[str, int]:
    """At most so many blocks for one index of each reduction: the one that threads share, or the longest outside."""
    chosen: dict[str, int] = {}
    counts: list[int] = []
    for one in found.reductions:
        sizes, _ = problem.loop_sizes(one.loops, ranges)
        work_of = {index: min(most, -(-n // covered_by_block(one, choice, index))) for index, n in sizes.items()}
        if len(one.loops) == 1 and constant_value(one.over.extent) is None:
            work_of = {one.over.index: most}
        best = max(work_of, key=lambda index: (work_of[index], index == one.over.index))
        chosen[best] = work_of[best]
        counts.append(work_of[best])
    if min(counts, default=1) < 2:
        return {}
    return dict.fromkeys(chosen, min(counts))
