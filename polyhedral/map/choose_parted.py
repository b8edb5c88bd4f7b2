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
from texpr.polyhedral.map.by_columns import ends_columns
from texpr.polyhedral.map.choose_beside import products_across, products_beside, rows_beside
from texpr.polyhedral.map.crew import covered_by_block, team_of
from texpr.polyhedral.map.crew_fits import MAX_AHEAD
from texpr.polyhedral.map.digits import power_of_two, power_of_two_below, thread_digits
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.last_turn import last_turn
from texpr.polyhedral.map.objective import cost, lane_values
from texpr.polyhedral.map.part_lines import own_columns, part_lines
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.problem import Problem, Region, declared, plain_nest
from texpr.polyhedral.map.reducible import Reduction, as_reduction, combinable
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.sharing import ENOUGH, prefers_blocks
from texpr.polyhedral.map.updates import components
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, along
from texpr.polyhedral.map.widths import any_address_width, run_width
from texpr.polyhedral.map.work import Work, shareable, work
from texpr.polyhedral.mapped.candidate import Deal, Parted
from texpr.polyhedral.names import Names
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.target import REGISTERS, Target
from texpr.polyhedral.walk import subscript_names

ALONG = 512  # threads of a block that share one element
ACROSS = 256  # threads of a block that has several elements
AHEAD_BYTES = {ALONG: 32, ACROSS: 128}  # that a thread loads before it adds
TWO_ROUNDS = 64
"""Bytes that two rounds may bring, where one brings enough: two of dot in bf16 run at .972, one at .964. Loads at any
address are two each, for which a thread has no registers beside those of another round."""
STRIP = 4  # elements of a block for each lane of a warp: the last block adds the parts of all, while others wait
MAX_SHIFTED = 4  # rounds of loads at any address, each of which takes the registers of two
LANES = (4, 2, 1)  # of these shares of a warp, the one that reads the fewest columns of other blocks
FEW_TURNS, MAX_ROUNDS = 2, 17  # short columns are read in so few turns of at most so many rounds of chunks
# Many columns of whole words in small blocks that read less ahead, and of which all are there at once (column sums of
# 257 x 100003 in f32: .98 of a read, .95 in three turns of blocks of 256 threads).
SMALL, SMALL_AHEAD = ACROSS // 2, 8
# Of narrow elements in fewer rounds, behind which few are left: many blocks are worth more then, and shifted chunks
# else (sums of 257 x 100003 in bf16: .96 of a read, .80 without a last turn, .87 shifted).
SHORT_AHEAD = (4, 6, 5)
MANY = 4  # blocks for each multiprocessor, beyond which one turn more leaves room for another block
PICKED = 8  # neighbours whose picks take less than their chunks: of fewer, more blocks are worth more
CHUNKED = 3  # blocks that read chunks are as fast as four of them, and have registers for more
SHARED_AHEAD = 4  # rounds of wide strips that blocks share: f32 of 4093 columns runs at .964 so, at .955 with eight
BUSY, FILLED = 0.95, 0.85  # of the blocks that run at a time, and of the elements that their threads read, at least
SLACK = 0.03  # of the threads of a GPU, which fewer parts are worth
SHORT_REST = 8  # loops behind reductions are short that have one iteration for so many of theirs
LEAST = 64  # threads of a block that has several elements, at least
BESIDE = 22  # registers that a thread has for anything but loads and parts
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
        product = products_beside(problem, nest, sizes, found, usual)
        if product is None and (not streams or apart):
            return None
        choice = product or rows_beside(problem, nest, sizes, found, usual, turns)
    else:
        if not (streams or (few and turns > CHAIN)) or (not few and _goes_on(problem, found, ranges, turns)):
            return None
        choice = _across(problem, nest, sizes, found, lane)
    each_has = [_own(choice, dict(choice.deal).get(i, 1), i) for i in nest.indices]
    blocks = prod(-(-size // own) for size, own in zip(sizes, each_has, strict=True))
    # where a condition on data stands around the launch, blocks are counted outside any
    each = 1 if region.saved else problem.target.multiprocessors * choice.resident // max(1, blocks)
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
    moved = max(_moved(problem, nest, one, widths) for one in found.reductions)
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
    width, most_ahead = _neighbours(problem, nest, par, sizes[lane], found)
    if width > 1 and most_ahead == MAX_SHIFTED:
        chunked = _by_chunks(problem, nest, sizes, found, lane, width)
        if chunked is not None:
            return chunked
    lanes = min(warp, power_of_two(-(-sizes[lane] // width)), asked or ACROSS, max(1, STRIP * warp // width))
    tiles = prod(sizes) // sizes[lane] * -(-sizes[lane] // (lanes * width))
    widths = {par.index: width} if width > 1 else {}
    deal: Deal = ((par.index, lanes),) if lanes > 1 else ()
    threads = asked or _threads(target, tiles)
    if asked is None and lanes > 1 and width > 1 and most_ahead == MAX_AHEAD and threads == ACROSS:
        threads = _shared_by_fewer(target, tiles)
    order = (lane, *(d for d in reversed(range(len(sizes))) if d != lane))
    ahead = min(most_ahead, rounds_ahead(problem, nest, found, widths, AHEAD_BYTES[ACROSS]))
    resident = max(1, 2 * ALONG // threads)
    if width > 1 and most_ahead == MAX_SHIFTED:
        resident = min(resident, max(1, REGISTERS // (threads * _registers(problem, nest, found, widths, ahead))))
    elif _picks(found) and width > 1:  # fewer loads, so that there is room for both (see `_registers`)
        room = REGISTERS // (threads * resident)
        while ahead > 1 and _registers(problem, nest, found, widths, ahead, chunks=1) > room:
            ahead //= 2
    return Parted(
        threads=threads,
        deal=deal,
        grid=tuple(nest.indices[d] for d in order),
        shared_out=tuple(one.over.index for one in found.reductions),
        ahead=ahead,
        resident=blocks_asked(problem.kernel, target) or resident,
        widths=widths,
    )


def _picks(found: Work) -> bool:
    return any(isinstance(update, Pick) for one in found.reductions for update in one.updates)


def _own(choice: Parted, lanes: int, index: str) -> int:
    """The iterations of an index that a block ends."""
    width = choice.taken.get(index, 1)
    return own_columns(choice, lanes, width) if index in choice.widths else lanes * width


def _by_chunks(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, lane: int, width: int) -> Parted | None:
    """Lanes along a dimension of the band whose rows begin anywhere, in chunks that are aligned for each thread."""
    par, target = nest.pars[lane], problem.target
    if width < PICKED and _picks(found):
        return None
    threads, asked = threads_asked(problem.kernel, target) or ACROSS, blocks_asked(problem.kernel, target)

    def made(lanes: int, threads: int = threads) -> Parted | None:
        fits = 1 < lanes < threads and threads % lanes == 0
        name = next(iter(part_lines(problem, nest, found, par.index, threads // lanes)), None) if fits else None
        if name is None:
            return None
        order = (lane, *(d for d in reversed(range(len(sizes))) if d != lane))
        choice = Parted(
            threads=threads,
            deal=((par.index, lanes),),
            grid=tuple(nest.indices[d] for d in order),
            shared_out=tuple(one.over.index for one in found.reductions),
            widths={par.index: width},
            lines={par.index: name},
        )
        return choice if ends_columns(choice, par.index) else None

    able = [choice for share in reversed(LANES) if (choice := made(target.warp_size // share)) is not None]
    best = min(able, key=lambda choice: _read(choice, sizes[lane]), default=None)
    if best is None:
        return None
    (one,) = found.reductions
    team = team_of(best)
    rows = -(-problem.representative(one.over.extent, {}) // team)
    tiles = prod(sizes) // sizes[lane] * -(-sizes[lane] // _own(best, threads // team, par.index))
    moved = sum(par.index in subscript_names(subscripts) for _, subscripts in _read_by(problem, one))
    most = AHEAD_BYTES[ACROSS] // (ACCESS_BYTES * max(1, moved))
    if tiles >= target.multiprocessors and rows <= FEW_TURNS * MAX_ROUNDS // max(1, moved):
        if width >= PICKED:
            turns = [ahead // max(1, moved) for ahead in SHORT_AHEAD]
            ahead = next((n for n in turns if n and last_turn(one.over.extent, team, n, n // 2) is not None), 0)
            if not ahead:
                return None
            room = REGISTERS // (threads * _registers(problem, nest, found, best.widths, ahead, chunks=1))
            return replace(best, ahead=ahead, resident=asked or max(1, min(2 * ALONG // threads, room)))
        several = 2 * ALONG // SMALL
        small = made(target.warp_size, SMALL) if threads == ACROSS else None
        if small is not None and MANY * target.multiprocessors < tiles <= several * target.multiprocessors:
            return replace(small, ahead=max(1, SMALL_AHEAD // max(1, moved)), resident=asked or several)
        most = -(-rows // (FEW_TURNS if tiles <= MANY * target.multiprocessors else FEW_TURNS + 1))
    else:  # what a last turn costs, columns must be long for
        others = prod(sizes) // sizes[lane]
        for own, ahead in ((threads, MAX_AHEAD), (ALONG, SHARED_AHEAD)):
            if own != threads and threads_asked(problem.kernel, target) is not None:
                continue
            choice = made(own // width, own)
            if choice is None:
                continue
            several = asked or max(1, 2 * ALONG // own)
            choice = replace(choice, ahead=max(1, ahead // max(1, moved)), resident=several)
            strip = _even_strip(target, choice, sizes[lane], others, width, shared=own != threads)
            if strip:
                return replace(choice, strip=strip)
    ahead = max(1, most)
    registers = _registers(problem, nest, found, best.widths, ahead, chunks=1)
    resident = max(1, min(CHUNKED, REGISTERS // (threads * registers)))
    return replace(best, ahead=ahead, resident=asked or resident)


def _even_strip(target: Target, choice: Parted, size: int, others: int, width: int, *, shared: bool) -> int:
    """How many elements a block ends, so that as many blocks as run at a time come out even, or nearly, where several
    have `shared` elements, or none have; 0 where that is not so, or leaves threads idle."""
    ((_, lanes),) = choice.deal
    at_once, most = target.multiprocessors * choice.resident, own_columns(choice, lanes, width)
    tiles = -(-size // most)
    if not shared and 2 * others * tiles <= at_once:
        return 0
    if not shared:
        tiles = -(-others * tiles // at_once) * at_once // others
    strip = min(most, width * -(-size // (tiles * width)))
    blocks = others * -(-size // strip)
    parts = at_once // blocks
    even = parts > 1 and parts * blocks >= BUSY * at_once and strip >= FILLED * most
    return strip if even or not shared else 0


def _read_by(problem: Problem, one: Reduction) -> set[Element]:
    """The elements that an iteration reads."""
    return {(a.buffer, a.subscripts) for a in problem.accesses(one.body, {}) if not a.update}


def _read(choice: Parted, size: int) -> int:
    """The elements of a row that all blocks read."""
    ((index, lanes),) = choice.deal
    return -(-size // _own(choice, lanes, index)) * lanes


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


def _registers(
    problem: Problem, nest: Nest, found: Work, widths: Mapping[str, int], ahead: int, chunks: int = 2
) -> int:
    """Of a thread that has loads at any address on their way, two chunks for each, but one for what its neighbours
    share, and parts of all updates: with fewer it waits for one before it asks for the next (argmax of 4093 columns in
    bf16: .65 of what it reads), with more there are fewer blocks (vector x matrix of 4093 columns: .88 for .94). So
    it is of picks at aligned addresses: first maxima of 32768 x 4096 in bf16 run at .963 with four rounds ahead, at
    .948 with eight."""
    width = max(widths.values(), default=1)
    parts = width * sum(len(components(update)) for one in found.reductions for update in one.updates)
    loaded = ahead * max(_moved(problem, nest, one, widths, chunks=chunks) for one in found.reductions)
    return parts + loaded // 4 + BESIDE


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
    shifted = min(any_address_width(problem, *run) for run in runs)
    return shifted, MAX_SHIFTED if shifted > 1 else MAX_AHEAD


def rounds_ahead(problem: Problem, nest: Nest, found: Work, widths: Mapping[str, int], wanted: int) -> int:
    """Rounds that are loaded together: as many as bring so many bytes, of all arrays that move."""
    least = min((wanted // max(1, _moved(problem, nest, one, widths)) for one in found.reductions), default=MAX_AHEAD)
    return power_of_two_below(min(MAX_AHEAD, least))


def _moved(problem: Problem, nest: Nest, one: Reduction, widths: Mapping[str, int], chunks: int = 1) -> int:
    """The bytes that a round of a thread brings, so many chunks for each that it has of neighbours."""
    index = next((i for i in nest.indices if i in widths), one.over.index)
    width = chunks * widths.get(index, 1)
    elements = {(a.buffer, a.subscripts): a for a in problem.accesses(one.body, {}) if not a.update}
    return sum(
        access.element_bytes * (width if index in subscript_names(access.subscripts) else 1)
        for access in elements.values()
        if {index, one.over.index} & subscript_names(access.subscripts)
    )


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
