"""The first candidate of a launch whose scans are shared out.

    par 32768 i { seq 4096 j { … } }      lanes along j: 256 threads, 4 neighbours, 4 rounds
    par 4096 i { seq 64 j { … } }         a warp for each i, 8 in a block
    par 257 i { seq 2^17 j { … } }        512 threads for each i, so that no multiprocessor is idle, and the next tile's
                                          loads on their way (4096 to 8192 of a row at a time: .71 in bf16, so .85)
    par 4096 j { seq 32768 i { … } }      lanes along j, 2 neighbours, warps along i, and a block for each 256 of i
    seq 2^27 i { … }                      a block for each 4096 of i

Lanes lie where accesses touch the fewest sectors. A thread loads so many bytes at once that the memory is kept busy.
Where scans are too few to keep a GPU busy, blocks share them.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Seq
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, add, constant_value, names
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import power_of_two, power_of_two_below, thread_digits
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.lines import LINE_BYTES
from texpr.polyhedral.map.lines import ahead as before_line
from texpr.polyhedral.map.objective import cost, lane_values
from texpr.polyhedral.map.problem import Problem, Region, declared, plain_nest
from texpr.polyhedral.map.reducible import reads_of
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.scan import Scan, is_long, scan
from texpr.polyhedral.map.scan_lines import scan_lines
from texpr.polyhedral.map.scan_ring import in_ring
from texpr.polyhedral.map.scan_shifted import shifted_along, strip_of
from texpr.polyhedral.map.scan_team import covered_by_team
from texpr.polyhedral.map.scan_work import Scans, scans
from texpr.polyhedral.map.scanned_fits import MAX_TALL, scanned_fault, takes_neighbours
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.vectors import arrays_of
from texpr.polyhedral.map.widths import run_width
from texpr.polyhedral.mapped.candidate import Deal, Scanned
from texpr.polyhedral.names import Names
from texpr.polyhedral.target import REGISTERS

THREADS = 256
TOGETHER = 64  # bytes of terms that a thread takes at once, or of what it loads for them where a scan has several tiles
TALL = 256  # bytes that a thread loads of a tile that has a block of its own: each of these costs as much as it waits
ROUNDS = 8  # of one element each, at most
NARROW_BYTES = 4  # elements below it are unpacked
LITTLE = 16  # terms of a thread, which leave it enough of the registers of a full multiprocessor
NEIGHBOURS = 2  # elements of a row that a thread takes: more of them take registers from other blocks
BLOCKS = 4  # for each multiprocessor at least, before threads take more of a tile
ALONG, ACROSS = True, False  # the scans, where lanes lie
SINGLE_TALL, SINGLE_BLOCKS = (
    MAX_TALL // 2,
    3,
)  # of tiles where a thread has one element of each row: less of them, more at once
COLUMN_ROUNDS = 16  # rows that a thread loads at once which has a scan of its own, in blocks of half the usual threads
PAIRED_TILES = 4  # of so many rows: longer columns have two threads each, where threads are idle (257 rows of 100003
# columns in bf16: .71 of a copy, .62 with one; f32 .85, .76)
FOR_TILES = 64  # registers of a thread that has the next tile's loads on their way
WIDE, WIDE_BYTES = 4, 256  # warps across, from which on a tile of ragged columns has several of them, so many bytes of
# a row: its edges share sectors with other blocks (4093 columns of f32: .77, .69 with a warp; bf16: .58, .55 with two)
SHIFTED_WARPS = 4  # of columns at least, before lanes shift what they move of ragged ones
# (4093 columns of f32: .852 in strips, .799 without them, .776 with single elements; bf16 .687, .622, .582)
MANY = 3  # such scans are enough where they are one in so many of a GPU's threads
FEW = {ALONG: 3, ACROSS: 2}  # blocks share scans where else one in so many of a GPU's threads, or fewer, had work


def choose_scanned(problem: Problem, region: Region) -> Scanned | None:
    """Threads for the scans of a band's body, or of plain statements, None where there are none to be shared out."""
    nest, ranges = plain_nest(region)
    over = [
        stmt.index for stmt in nest.body if isinstance(stmt, Seq) and is_long(problem, stmt) and scan(problem, stmt)
    ]
    found = scans(problem, nest.body, over) if over else None
    if found is None:
        return None
    sizes = [problem.representative(add(ranges[p.index][1], ONE), {}) for p in nest.pars]
    across = _across(problem, nest, sizes, ranges, found)
    if across is None:
        along = _along(problem, nest, ranges, sizes, found)
        blocks = -(-prod(sizes) // prod(n for _, n in along.deal))
        choice: Scanned | None = _over_blocks(problem, region, nest, found, along, blocks)
    else:
        choice = _with_lanes_across(problem, region, nest, ranges, sizes, found, across)
        if choice is not None and choice.look_back and not choice.widths:
            wide = _with_lanes_across(problem, region, nest, ranges, sizes, found, across, shifts=True)
            if wide is not None and wide.look_back and sizes[across] >= SHIFTED_WARPS * _columns(wide):
                wide = replace(wide, strip=strip_of(problem, nest, wide, found))
                choice = wide if _columns(wide) > _columns(choice) else choice
        elif choice is not None and not choice.widths:
            ringed = in_ring(problem, nest, choice, found, sizes[across])
            choice = ringed if ringed is not None and scanned_fault(problem, nest, ringed) is None else choice
    return choice if choice is not None and scanned_fault(problem, nest, choice) is None else None


def _across(problem: Problem, nest: Nest, sizes: Sequence[int], ranges: Ranges, found: Scans) -> int | None:
    """The dimension of the band on the lanes, where accesses touch fewer sectors than along the scans."""
    if not nest.pars:
        return None
    fixed, warp = {**dict.fromkeys(ranges, 0), **problem.sizes}, problem.target.warp_size
    order, _ = choose_lanes(problem, nest, sizes, THREADS, ranges, without=declared(nest.body))
    index = nest.indices[order[0]]
    total = {False: 0, True: 0}
    for one in found.scans:
        without = declared(nest.body).union(carrier.name for carrier in one.carriers)
        accesses = problem.accesses(one.body, ranges, without=without)
        for is_along, on_lanes in ((True, one.index), (False, index)):
            digits = thread_digits((on_lanes,), ((0, warp),), Names(()), warp)
            total[is_along] += cost(accesses, lane_values(digits, (on_lanes,), warp), fixed, warp)[0]
    return order[0] if total[False] < total[True] else None


def _along(problem: Problem, nest: Nest, ranges: Ranges, sizes: Sequence[int], found: Scans) -> Scanned:
    """All threads of a team along the scans; where these are short, several teams in a block."""
    warp, widths, lines, runs = problem.target.warp_size, dict[str, int](), dict[str, str](), 1
    least = ROUNDS
    for one in found.scans:
        size = problem.representative(one.loop.extent, ranges)
        width, line, before = _width_along(problem, nest, one, size)
        widths |= {one.index: width} if width > 1 else {}
        lines |= {one.index: line} if line else {}
        runs = max(runs, -(-(size + before) // width))
        least = min(least, max(1, TOGETHER // (width * _bytes(one))))
    ahead = min(power_of_two_below(least), max(1, power_of_two(runs // warp + 1) // 2))
    most = warp * max(1, warp // ahead)  # each thread reads what every unit has of each round
    if most * ahead < runs <= (most + most // 2) * ahead:
        most += most // 2  # in place of a second tile that has little
    elif most * ahead < runs:
        loaded = max(_loaded(problem, one) * widths.get(one.index, 1) for one in found.scans)
        ahead = max(ahead, min(ROUNDS, power_of_two_below(TOGETHER // loaded)))
        most = warp * max(1, warp // ahead)
        rows, busy = prod(sizes), problem.target.multiprocessors * problem.target.resident_threads
        if ahead > 1 and rows * most * FEW[ACROSS] < busy <= rows * 2 * most * FEW[ALONG]:
            ahead, most = ahead // 2, 2 * most  # a block for each scan keeps its multiprocessor busy
    needed = -(-runs // ahead)
    team = max(2, power_of_two(needed) if needed <= warp else min(most, warp * -(-needed // warp)))
    asked = threads_asked(problem.kernel, problem.target)
    threads = asked or (team if team > warp else max(team, min(THREADS // 2, team * power_of_two(prod(sizes)))))
    team = min(team, threads & -threads) if asked or team <= warp else team
    dealt = nest.indices[-1] if nest.pars and _is_fixed(nest.indices[-1], found) else None
    if dealt is None:
        threads = asked or max(team, warp)
    deal: Deal = ((dealt, threads // team),) if dealt is not None and threads > team else ()
    choice = _scanned(problem, nest, ranges, found, threads, found.scans[0].index, deal, ahead, widths)
    rows, busy = prod(sizes), problem.target.multiprocessors * problem.target.resident_threads
    few = runs > team * ahead and rows * team < busy  # so that nobody else has loads on their way
    choice = replace(choice, next_tile=few)
    own = choice.resident or (_resident(problem, found, choice, runs) if lines else 0)
    own = own or (_at_once(problem, rows, choice.threads) if few else 0)
    return replace(choice, lines=lines, resident=own)


def _at_once(problem: Problem, rows: int, threads: int) -> int:
    """As many blocks on a multiprocessor as there are for each, where a thread has the registers for what is on its
    way: nvcc uses them where it is told how many there are (257 rows of 100003 columns in f32 run at .87 with 61, at
    .75 with the 42 that it took else)."""
    blocks = min(-(-rows // problem.target.multiprocessors), REGISTERS // (threads * FOR_TILES))
    return blocks if blocks > 1 else 0


def _resident(problem: Problem, found: Scans, choice: Scanned, runs: int) -> int:
    """As many blocks on a multiprocessor as its threads allow, where each has a scan of narrow elements in one tile and
    little of it: the edges of ragged rows take registers that cost whole blocks (4093 columns in bf16 run at .91 with
    34 of them, at .98 with 32)."""
    one, *others = found.scans
    little = choice.ahead * choice.widths.get(one.index, 1) <= LITTLE and len(one.carriers) == 1
    whole = choice.threads * choice.ahead >= runs and not others and not choice.deal
    narrow = _loaded(problem, one) < NARROW_BYTES
    return problem.target.resident_threads // choice.threads if little and whole and narrow else 0


def _width_along(problem: Problem, nest: Nest, one: Scan, size: int) -> tuple[int, str, int]:
    """How many neighbours of a scan a thread takes; from the lines of which element, if any, they are counted, and how
    many iterations there are before the first one at most."""
    hardware, asked = (*nest.indices, one.index), width_asked((one.loop,))
    width = run_width(problem, one.body, one.index, size, hardware, asked)
    if width == 1 and asked is None:
        for name, origin in scan_lines(problem, nest, one).items():
            width = run_width(problem, one.body, one.index, size, hardware, asked, origin=origin)
            if width > 1:
                return width, name, before_line(problem, origin, LINE_BYTES)
    return width, "", 0


def _with_lanes_across(
    problem: Problem,
    region: Region,
    nest: Nest,
    ranges: Ranges,
    sizes: Sequence[int],
    found: Scans,
    across: int,
    *,
    shifts: bool = False,
) -> Scanned | None:
    """Lanes along a dimension of the band, and warps along each scan; 16 bytes for each lane, of rows that begin
    anywhere, where it `shifts` them."""
    par, target = nest.pars[across], problem.target
    if not _is_fixed(par.index, found):
        return None
    asked, width, warp = threads_asked(problem.kernel, target), 1, target.warp_size
    if takes_neighbours(nest, found, par.index):
        one = found.scans[0]
        hardware = (*nest.indices, one.index)
        wanted_width = width_asked(nest.pars)
        width = run_width(problem, one.body, par.index, sizes[across], hardware, wanted_width)
        width = width if wanted_width is not None else min(width, NEIGHBOURS)
        moved = shifted_along(problem, nest, one, par.index) if width == 1 and wanted_width is None and shifts else ()
        width = moved[0].width if moved else width
    lanes = min(warp, power_of_two(-(-sizes[across] // width)))
    longest = max(problem.representative(one.loop.extent, ranges) for one in found.scans)
    ahead = min(ROUNDS, power_of_two(longest))
    team = max(1, min((asked or THREADS) // lanes, power_of_two(-(-longest // ahead))))
    threads = asked or max(warp, lanes * team)
    lanes = min(power_of_two_below(threads // team), threads & -threads)
    team = threads // lanes
    deal: Deal = ((par.index, lanes),)
    if lanes < 2:
        return None
    widths = {par.index: width} if width > 1 else {}
    choice = _scanned(problem, nest, ranges, found, threads, par.index, deal, ahead, widths)
    others = prod(sizes) // sizes[across]
    blocks = others * -(-sizes[across] // (lanes * width))
    chained = _over_blocks(problem, region, nest, found, choice, blocks)
    if chained.look_back:
        tall = _tall(problem, found.scans[0], width, team, blocks, longest)
        if width > 1 or blocks_asked(problem.kernel, target) is not None or threads != THREADS:
            return replace(chained, ahead=tall)
        if lanes == warp and sizes[across] >= WIDE * warp:
            along = max(2 * warp, min(power_of_two_below(WIDE_BYTES // _loaded(problem, found.scans[0])), WIDE * warp))
            share, fewer = max(1, threads // along), others * -(-sizes[across] // along)
            tall = _tall(problem, found.scans[0], width, share, fewer, longest)
            own = replace(chained, deal=((par.index, along),), ahead=tall)
            if scanned_fault(problem, nest, own) is None:
                return own
        return replace(chained, ahead=min(tall, SINGLE_TALL), resident=SINGLE_BLOCKS)
    if asked is not None:
        return chained
    wanted = target.multiprocessors * target.resident_threads  # else as many warps as may share a scan
    if width == 1 and lanes == warp and MANY * prod(sizes) >= wanted:
        ahead = min(COLUMN_ROUNDS, power_of_two(longest))
        if prod(sizes) < wanted and longest > PAIRED_TILES * COLUMN_ROUNDS:
            return replace(choice, threads=2 * THREADS, deal=((par.index, THREADS),), ahead=ahead)
        return replace(choice, threads=THREADS // 2, deal=((par.index, THREADS // 2),), ahead=ahead)
    while team * 2 * lanes <= target.max_threads and blocks * team * lanes < wanted and team * ahead < longest:
        team *= 2
    return replace(choice, threads=lanes * team)


def _columns(choice: Scanned) -> int:
    """The columns of a block."""
    return prod(n for _, n in choice.deal) * prod(choice.widths.values())


def _tall(problem: Problem, one: Scan, width: int, team: int, blocks: int, longest: int) -> int:
    """The iterations that a thread takes of a tile with a block of its own: as many as bring enough bytes, but so few
    that there are several blocks for each multiprocessor, with `blocks` of them beside one another."""
    bytes_ = _loaded(problem, one) if len(one.carriers) == 1 else max(_bytes(one), _loaded(problem, one))
    ahead = min(MAX_TALL, power_of_two_below(TALL // (width * bytes_)))
    while ahead > ROUNDS and blocks * -(-longest // (team * ahead)) < BLOCKS * problem.target.multiprocessors:
        ahead //= 2
    return max(ahead, min(ROUNDS, power_of_two(longest)))


def _over_blocks(problem: Problem, region: Region, nest: Nest, found: Scans, choice: Scanned, blocks: int) -> Scanned:
    """The choice with a block for each tile, where there are several of them and few blocks else."""
    busy = problem.target.multiprocessors * problem.target.resident_threads
    extent, few = found.scans[0].loop.extent, FEW[choice.along in choice.shared_out]
    one_tile = (constant_value(extent) or 1 + covered_by_team(choice, found.scans[0].index)) <= covered_by_team(
        choice, found.scans[0].index
    )
    chained = replace(choice, look_back=True, next_tile=False)
    if one_tile or not region.is_alone or blocks * choice.threads * few >= busy:
        return choice
    return choice if scanned_fault(problem, nest, chained) is not None else chained


def _scanned(
    problem: Problem,
    nest: Nest,
    ranges: Ranges,
    found: Scans,
    threads: int,
    along: str,
    deal: Deal,
    ahead: int,
    widths: dict[str, int],
) -> Scanned:
    first = [along] if along in nest.indices else []
    return Scanned(
        threads=threads,
        grid=(*first, *(i for i in reversed(nest.indices) if i not in first)),
        shared_out=tuple(one.index for one in found.scans),
        along=along,
        deal=deal,
        ahead=ahead,
        resident=blocks_asked(problem.kernel, problem.target) or 0,
        widths=widths,
        memory=memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=ranges),
    )


def _loaded(problem: Problem, one: Scan) -> int:
    """The bytes of the elements of arrays that an iteration reads for its terms, those of its terms where it reads
    none."""
    arrays, reads = arrays_of(problem), reads_of(tuple(statements(one.terms)))
    elements = {(read.buffer, read.subscripts): read for read in reads if read.buffer in arrays}
    return sum(problem.kernel.buffer(name).dtype.size_bytes for name, _ in elements) or _bytes(one)


def _bytes(one: Scan) -> int:
    """The bytes of the terms of an iteration."""
    return sum(carrier.term.dtype.size_bytes for carrier in one.carriers)


def _is_fixed(index: str, found: Scans) -> bool:
    """Whether no scan's extent depends on an index."""
    return all(index not in names(one.loop.extent) for one in found.scans)
