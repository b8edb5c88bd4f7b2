"""Columns that are read in aligned chunks: threads, turns and strips by what an H200 takes for them.

par 4093 j { C[j] = sum 32749 i { X[i, j] } }     bf16: 64 lanes across, teams of 8, strips of 416 shared by 13 blocks
par 100003 j, of 257 rows                         32 lanes across, turns that leave few rows
first maxima of these                             96 lanes across: a block for each multiprocessor
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.by_columns import ends_columns
from texpr.polyhedral.map.crew import team_of
from texpr.polyhedral.map.crew_fits import MAX_AHEAD
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.last_turn import last_turn
from texpr.polyhedral.map.part_lines import own_columns, part_lines
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.updates import components
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.target import REGISTERS, Target
from texpr.polyhedral.walk import subscript_names

ALONG = 512  # threads of a block that share one element
ACROSS = 256  # threads of a block that has several elements
AHEAD_BYTES = {ALONG: 32, ACROSS: 128}  # that a thread loads before it adds
FEWEST = 4  # as much of a warp, at least, is what a row's columns fill
LANES = (FEWEST, 2, 1)  # of these shares of a warp, the one that reads the fewest columns of other blocks
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
# Strips that blocks share are two warps wide, of one block of 512 threads for each multiprocessor: both ends of a strip
# are in lines that neighbours read, too (of a read, beside strips of a warp for two blocks of 256 threads, 21 sums,
# products and first maxima in bf16 .959 and .957, in f32 .977 and .965).
# One block more is worth threads without a column, so many of them to the fourth power (65521 x 2003 in f32: 128 blocks
# with all threads .98, 132 with .72 of them .96; 32749 x 4093 in bf16: 130 with .81 .965, 126 with .9 .96). Else they
# are a warp wide.
STRIP_WARPS, EVEN, WORTH = 2, 0.77, 4
MOST_THREADS = 2 * ALONG  # of a multiprocessor, each with registers for eight rounds
# Where that leaves so many parts of each strip, which the last block adds, one block for each multiprocessor has all
# threads (of a read: sums of 500009 x 127 in bf16 .90, .80 in three blocks of lanes that read less; 134083 x 1001 .96).
MANY_PARTS = 44
SHARED_AHEAD = 4  # rounds of wide strips, where so narrow ones are too many to be shared
BUSY, FILLED = 0.95, 0.85  # of the blocks that run at a time, and of the elements that their threads read, at least
HALF = 0.5  # of these elements, where no fewer blocks would have the columns
BESIDE = 22  # registers that a thread has for anything but loads and parts


def shares(target: Target) -> list[int]:
    """Lanes across: a warp, and less of it."""
    return [target.warp_size // share for share in sorted(LANES)]


def picks(found: Work) -> bool:
    return any(isinstance(update, Pick) for one in found.reductions for update in one.updates)


def own_of(choice: Parted, lanes: int, index: str) -> int:
    """The iterations of an index that a block ends."""
    width = choice.taken.get(index, 1)
    return own_columns(choice, lanes, width) if index in choice.widths else lanes * width


def grid_of(nest: Nest, lane: int) -> tuple[str, ...]:
    """The indices of the grid, the one on the lanes first."""
    return tuple(nest.indices[d] for d in (lane, *(d for d in reversed(range(len(nest.indices))) if d != lane)))


def by_chunks(problem: Problem, nest: Nest, sizes: Sequence[int], found: Work, lane: int, width: int) -> Parted | None:
    """Lanes along a dimension of the band whose rows begin anywhere, in chunks that are aligned for each thread."""
    par, target = nest.pars[lane], problem.target
    threads, asked = threads_asked(problem.kernel, target) or ACROSS, blocks_asked(problem.kernel, target)

    def made(lanes: int, threads: int = threads) -> Parted | None:
        in_warps = lanes > 1 and (lanes % target.warp_size == 0 or target.warp_size % lanes == 0)
        fits = in_warps and lanes < threads and threads % lanes == 0
        name = next(iter(part_lines(problem, nest, found, par.index, threads // lanes)), None) if fits else None
        if name is None:
            return None
        choice = Parted(
            threads=threads,
            deal=((par.index, lanes),),
            grid=grid_of(nest, lane),
            shared_out=tuple(one.over.index for one in found.reductions),
            widths={par.index: width},
            lines={par.index: name},
        )
        return choice if ends_columns(choice, par.index) else None

    able = [choice for share in reversed(LANES) if (choice := made(target.warp_size // share)) is not None]
    best = min(able, key=lambda choice: _read(choice, sizes[lane]), default=None)
    if best is None:
        return None
    is_wide = sizes[lane] >= width * target.warp_size  # else only blocks that share all of a row are worth it
    (one,) = found.reductions
    team = team_of(best)
    rows = -(-problem.representative(one.over.extent, {}) // team)
    tiles = prod(sizes) // sizes[lane] * -(-sizes[lane] // own_of(best, threads // team, par.index))
    moved = sum(par.index in subscript_names(subscripts) for _, subscripts in read_by(problem, one))
    most = AHEAD_BYTES[ACROSS] // (ACCESS_BYTES * max(1, moved))
    if tiles >= target.multiprocessors and rows <= FEW_TURNS * MAX_ROUNDS // max(1, moved):
        if not is_wide or (width < PICKED and picks(found)):
            return None
        if width >= PICKED:
            turns = [ahead // max(1, moved) for ahead in SHORT_AHEAD]
            ahead = next((n for n in turns if n and last_turn(one.over.extent, team, n, n // 2) is not None), 0)
            if not ahead:
                return None
            wide = _for_each_multiprocessor(target, made, sizes, lane, width) if picks(found) and moved == 1 else None
            if wide is not None and threads_asked(problem.kernel, target) is None and asked is None:
                return wide
            room = REGISTERS // (threads * registers_of(problem, nest, found, best.widths, ahead, chunks=1))
            return replace(best, ahead=ahead, resident=asked or max(1, min(2 * ALONG // threads, room)))
        several = 2 * ALONG // SMALL
        small = made(target.warp_size, SMALL) if threads == ACROSS else None
        if small is not None and MANY * target.multiprocessors < tiles <= several * target.multiprocessors:
            return replace(small, ahead=max(1, SMALL_AHEAD // max(1, moved)), resident=asked or several)
        most = -(-rows // (FEW_TURNS if tiles <= MANY * target.multiprocessors else FEW_TURNS + 1))
    else:  # what a last turn costs, columns must be long for
        others = prod(sizes) // sizes[lane]
        shared = _shared(problem, one, made, sizes, lane, width, moved)
        if shared is not None:
            return shared
        if not is_wide or (width < PICKED and picks(found)):
            return None
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
    registers = registers_of(problem, nest, found, best.widths, ahead, chunks=1)
    resident = max(1, min(CHUNKED, REGISTERS // (threads * registers)))
    return replace(best, ahead=ahead, resident=asked or resident)


def _for_each_multiprocessor(
    target: Target, made: Callable[[int, int], Parted | None], sizes: Sequence[int], lane: int, width: int
) -> Parted | None:
    """A block for each multiprocessor, where there are hardly fewer and their threads have hardly less: it loads each
    round again as soon as it is added (first maxima of 257 x 100003 in bf16: .945 of a read; .90 with loads of a turn
    at a time, .88 with three or four blocks of 256 threads)."""
    others, blocks = prod(sizes) // sizes[lane], target.multiprocessors
    strip = width * -(-sizes[lane] * others // (blocks * width))
    lanes = target.warp_size * -(-(strip // width + 1) // target.warp_size)
    if not ALONG <= lanes * width <= target.max_threads:
        return None
    wide, tiles = made(lanes, lanes * width), others * -(-sizes[lane] // strip)
    if wide is None or not BUSY * blocks <= tiles <= blocks or strip < FILLED * own_columns(wide, lanes, width):
        return None
    return replace(wide, ahead=SHARED_AHEAD, resident=1, strip=strip, next_turn=True)


def _shared(
    problem: Problem,
    one: Reduction,
    made: Callable[[int, int], Parted | None],
    sizes: Sequence[int],
    lane: int,
    width: int,
    moved: int,
) -> Parted | None:
    """Strips of two warps, or of one, shared by as many blocks as run at a time; None where these would be too few."""
    target, size, others = problem.target, sizes[lane], prod(sizes) // sizes[lane]
    threads, asked = threads_asked(problem.kernel, target), blocks_asked(problem.kernel, target)
    forms = [(target.warp_size, threads or ACROSS)] if size >= width * target.warp_size else []
    large = threads is None and (asked or 1) * ALONG <= MOST_THREADS  # blocks have room
    few = _lanes_of_few(target, made, size, others, width) if large else 0
    wide = STRIP_WARPS * target.warp_size if large and size >= STRIP_WARPS * width * target.warp_size else 0
    for lanes, own in (*((n, ALONG) for n in (few, wide) if n), *forms):
        choice = made(lanes, own)
        if choice is None:
            continue
        several = asked or max(1, ALONG // own)
        choice = replace(choice, ahead=max(1, MAX_AHEAD // max(1, moved)), resident=several)
        parts = problem.representative(one.over.extent, {}) // (team_of(choice) * choice.ahead)
        if strip := _shared_strip(target, choice, size, others, width, parts, even=lanes == wide):
            return replace(choice, strip=strip)
    return None


def _lanes_of_few(target: Target, made: Callable[[int, int], Parted | None], size: int, others: int, width: int) -> int:
    """Lanes across columns that are so few that a block of many threads for each multiprocessor leaves parts enough:
    as many as leave two strips of them; 0 where they are more."""
    able = {n: own_columns(choice, n, width) for n in shares(target) if (choice := made(n, ALONG)) is not None}
    most = able.get(target.warp_size)
    if most is None or others * -(-size // most) * MANY_PARTS > 2 * target.multiprocessors:
        return 0
    return next((n for n, own in able.items() if size > own), min(able))


def _shared_strip(
    target: Target, choice: Parted, size: int, others: int, width: int, most_parts: int, *, even: bool
) -> int:
    """How many elements a block ends, where so many may share them, and nearly all blocks that run at a time do: as
    many as its threads read, or a little fewer where that makes more blocks, of `even` ones as many blocks as there may
    be without many idle threads; 0 where too few would run."""
    ((_, lanes),) = choice.deal
    most = own_columns(choice, lanes, width)
    least = -(-size // most)
    able: dict[int, int] = {}  # how many strips of each length, the longest first
    for tiles in range(least, int(least / (EVEN if even else FILLED)) + 1):
        strip = width * -(-size // (tiles * width))
        strips = others * -(-size // strip)
        filled = even or strip >= (HALF if tiles == least else FILLED) * most
        if filled and _keeps_busy(target, choice, strips, most_parts):
            able[strip] = strips

    def worth(strip: int) -> float:
        blocks = _parts(target, choice, able[strip], most_parts) * able[strip]
        return float(blocks**WORTH) / able[strip]

    return max(able, key=worth, default=0) if even else next(iter(able), 0)


def _parts(target: Target, choice: Parted, strips: int, most_parts: int) -> int:
    """How many blocks share each strip, so many at most, of all that run at a time."""
    return min(target.multiprocessors * choice.resident // strips, most_parts)


def _keeps_busy(target: Target, choice: Parted, strips: int, most_parts: int) -> bool:
    """Whether several blocks share each strip, so many at most, and nearly all that run at a time have some."""
    parts = _parts(target, choice, strips, most_parts)
    return parts > 1 and parts * strips >= BUSY * target.multiprocessors * choice.resident


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
    even = strip >= FILLED * most and _keeps_busy(target, choice, others * -(-size // strip), at_once)
    return strip if even or not shared else 0


def read_by(problem: Problem, one: Reduction) -> set[Element]:
    """The elements that an iteration reads."""
    return {(a.buffer, a.subscripts) for a in problem.accesses(one.body, {}) if not a.update}


def _read(choice: Parted, size: int) -> int:
    """The elements of a row that all blocks read."""
    ((index, lanes),) = choice.deal
    return -(-size // own_of(choice, lanes, index)) * lanes


def registers_of(
    problem: Problem, nest: Nest, found: Work, widths: Mapping[str, int], ahead: int, chunks: int = 2
) -> int:
    """Of a thread that has loads at any address on their way, two chunks for each, but one for what its neighbours
    share, and parts of all updates: with fewer it waits for one before it asks for the next (argmax of 4093 columns in
    bf16: .65 of what it reads), with more there are fewer blocks (vector x matrix of 4093 columns: .88 for .94). So
    it is of picks at aligned addresses: first maxima of 24 matrices run at .996 of the rate in the mean where they have
    eight rounds ahead in bf16, too (65536 x 2048: .955 of a read, .965 with four)."""
    width = max(widths.values(), default=1)
    parts = width * sum(len(components(update)) for one in found.reductions for update in one.updates)
    loaded = ahead * max(moved_bytes(problem, nest, one, widths, chunks=chunks) for one in found.reductions)
    return parts + loaded // 4 + BESIDE


def moved_bytes(
    problem: Problem, nest: Nest, one: Reduction, widths: Mapping[str, int], chunks: int = 1, *, shared: bool = True
) -> int:
    """The bytes that a round of a thread brings, so many chunks for each that it has of neighbours, with or without
    those that its neighbours share."""
    index = next((i for i in nest.indices if i in widths), one.over.index)
    width = chunks * widths.get(index, 1)
    elements = {(a.buffer, a.subscripts): a for a in problem.accesses(one.body, {}) if not a.update}
    return sum(
        access.element_bytes * (width if index in subscript_names(access.subscripts) else 1)
        for access in elements.values()
        if {index, *((one.over.index,) if shared else ())} & subscript_names(access.subscripts)
    )
