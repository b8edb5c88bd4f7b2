"""The choice of tiles: which accesses of a band no lanes serve alike, and what is staged for them.

    par M i, N j { B[j, i] = A[i, j] }      flat: 36 sectors for 32 iterations     along i, across j: 8

For each pair of indices the lanes run along one, and what touches fewer sectors with lanes across the other is staged.
Counted are the sectors of 32 iterations, element by element.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod

from texpr.grammar.ast import IndexExpr, Leaf
from texpr.grammar.core import statements
from texpr.grammar.index.expr import names as names_of
from texpr.grammar.index.linear import linear
from texpr.grammar.index.points import Points
from texpr.grammar.permissions import raster_of
from texpr.polyhedral.map.author_tiles import tile_asked
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import power_of_two, thread_digits
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.lines import countable
from texpr.polyhedral.map.objective import SECTOR_BYTES, footprint, lane_values
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.tiles import (
    MOST_SIDE,
    SIDE,
    greatest_width,
    is_tileable,
    load_lanes,
    on_lanes,
    overlap,
    owned,
    sectors,
    shares,
    square,
    stageable,
    staged,
    tile_bytes,
    tile_fault,
)
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, Wide, address, along
from texpr.polyhedral.mapped.candidate import Flat, Tiled
from texpr.polyhedral.names import Names
from texpr.polyhedral.walk import touched, written

GAIN = 1.5  # tiles touch so many times fewer sectors
PADDING = 1.5  # times the iterations that there are
LEAST_SIDE = 16  # iterations of both indices, or neighbours are too few
USUAL_SIDE = MOST_SIDE // 2
SIDE_BYTES = 256  # of a side of a tile: memory is touched in such pieces
THREADS = 256
AT_ONCE = 1024  # threads of a multiprocessor whose accesses begin anywhere: more registers than that leaves cost more
WHOLE_AT_ONCE = 768  # threads whose accesses are whole: without a bound compilers keep fewer loads on their way
RUNS = (8, 4, 2)
PHASED_THREADS = 512
WIDE_BYTES = 4  # of elements that a shift of 16 bytes only chooses from
STRIP_TURNS, USUAL_TURNS = 9, 8  # chunks that a thread has in registers at a time
STRIP_CUT = 1.25  # times the rows that there are
STRIP_WAVES = 7  # blocks, one after the other, of each place (f32 on an H200: 5.9 .87 of a copy, 30 .96)
LEAST_TOGETHER = 2 * SECTOR_BYTES  # of a row that lanes bring at once
FEW = 3  # tiles along an index, of which two are cut
FEW_WAVES, MANY_WAVES = 16, 48  # of blocks
PHASED_BLOCKS = 6  # of a multiprocessor (4: 701 x 3001 in f32 6.9 us, not 6.2; 7.6: 40 x 257 x 259 7.8 us, 8.2)
BAND, NARROW_ROW, FAR_ROW = 4, 2048, 1 << 16  # tiles next to one another; bytes between rows
NEAR_BYTES = 32 << 20  # that blocks move before the L2 forgets what the first of them brought


def choose_tiled(problem: Problem, nest: Nest, sizes: Sequence[int], flat: Flat) -> Tiled | None:
    """The tiles that touch the fewest sectors, where these are far fewer than those of the flat band."""
    if width_asked(nest.pars) is not None:
        return None
    found = min(tilings(problem, nest, sizes, flat), key=lambda pair: pair[0], default=None)
    if found is None or found[0] > _flat_sectors(problem, nest, flat) / GAIN:
        return None
    return found[1]


def tilings(problem: Problem, nest: Nest, sizes: Sequence[int], flat: Flat) -> Iterator[tuple[int, Tiled]]:
    """Tiles of each two indices, innermost first, for which something is to be staged, and the sectors that they touch,
    in so far as a band may be in tiles."""
    if not is_tileable(problem, nest):
        return
    extents = dict(zip(nest.indices, sizes, strict=True))
    for first, across in permutations(reversed(nest.indices), 2):
        if min(extents[first], extents[across]) >= LEAST_SIDE:
            found = _pair(problem, nest, extents, flat, first, across)
            if found is not None:
                yield found


def _side(most: int, extent: int) -> int:
    """The longest side that reaches little beyond an extent, or the one that reaches the least."""
    longest = min(most, power_of_two(extent))
    sides = (longest, longest // 2)
    beyond = {n: -(-extent // n) * n / extent for n in sides}
    return next((n for n in sides if beyond[n] <= PADDING), min(sides, key=beyond.__getitem__))


def _elements(nest: Nest) -> tuple[Element, ...]:
    """The elements that an iteration touches, but those of its own locals, each once."""
    own = declared(nest.body)
    leaves = [s for s in statements(nest.body) if isinstance(s, Leaf)]
    return tuple(dict.fromkeys(e for leaf in leaves for e in touched(leaf) if e[0] not in own))


def _tells(element: Element, first: str, across: str) -> bool:
    """Whether an element differs along both indices: the tile of one that does not is one row, many times."""
    read = {name for s in element[1] if isinstance(s, IndexExpr) for name in names_of(s)}
    return {first, across} <= read


def _flat_sectors(problem: Problem, nest: Nest, flat: Flat) -> int:
    warp = problem.target.warp_size
    pieces = tuple((nest.indices.index(index), threads) for index, threads in flat.deal)
    lanes = lane_values(thread_digits(nest.indices, pieces, Names(()), warp), nest.indices, warp)
    return sum(sectors(problem, nest, element, lanes) for element in _elements(nest))


def _pair(
    problem: Problem,
    nest: Nest,
    extents: Mapping[str, int],
    flat: Flat,
    first: str,
    across: str,
) -> tuple[int, Tiled] | None:
    """The tiles of two indices and the sectors that they touch, where something is to be staged for them."""
    able = stageable(problem, nest, across)
    names = {wide.element: name for name, wide in able.items()}
    touched_so = {e: sectors(problem, nest, e, on_lanes(problem, nest, first)) for e in _elements(nest)}
    there = {e: sectors(problem, nest, e, on_lanes(problem, nest, across)) for e in names if _tells(e, first, across)}
    fewer = {e: touched for e, touched in there.items() if touched < touched_so[e]}
    if not fewer:
        return None
    choice = _tiles(problem, nest, extents, flat, first, across, {names[e]: able[names[e]] for e in fewer})
    if choice is None or tile_fault(problem, nest, choice) is not None:
        return None
    return sum((touched_so | fewer).values()), choice


def _is_narrow(wide: Wide) -> bool:
    return wide.dtype.size_bytes < WIDE_BYTES


def _tiles(
    problem: Problem,
    nest: Nest,
    extents: Mapping[str, int],
    flat: Flat,
    first: str,
    across: str,
    reads: Mapping[str, Wide],
) -> Tiled | None:
    """Tiles of whole pieces of memory on both sides, of other sides where blocks are many or few (`_other_sides`)."""
    size = max(wide.dtype.size_bytes for wide in reads.values())
    side = min(USUAL_SIDE, SIDE_BYTES // size)
    found = _of_sides(problem, nest, extents, flat, {first: side, across: side}, reads)
    if found is None or found.strips or tile_asked(nest.pars) or threads_asked(problem.kernel, problem.target):
        return found
    if found.phased:
        return _for_few_blocks(problem, nest, extents, found)
    asked = _other_sides(problem, nest, extents, found, side, size)
    if asked is None:
        return found
    sides, threads, waves = asked
    other = _of_sides(problem, nest, extents, flat, sides, reads, threads)
    fits = other is not None and other.tile == sides and not other.phased
    return other if other is not None and fits and _waves(problem, nest, extents, other) >= waves else found


def _other_sides(
    problem: Problem, nest: Nest, extents: Mapping[str, int], found: Tiled, side: int, size: int
) -> tuple[Mapping[str, int], int, int] | None:
    """Sides that tiles may have in place of their own, for how many threads, and from how many waves of blocks on.

    Wide elements: twice as long along, so that fewer rows are read by two blocks, where blocks are many (on an H200:
    131072 x 1024 turned .974 of a copy, .967 before). Narrow ones: half as long along, where most are cut and threads
    have many accesses of which each is asked what it has (257 x 100003 in bf16: .74, not .70)."""
    first, across = found.along, found.across
    own, beyond = owned(problem, nest, found)[first], overlap(problem, nest, found)
    tiles = -(-(extents[first] + beyond - 1) // own) if found.lines else MOST_SIDE
    if size == WIDE_BYTES and len(found.staged) == 1:
        return {first: 2 * side, across: side}, 2 * THREADS, MANY_WAVES
    if found.lines and found.widths[first] >= SIDE and tiles <= FEW:
        return {first: side // 2, across: side}, THREADS, 0
    return None


def _waves(problem: Problem, nest: Nest, extents: Mapping[str, int], choice: Tiled) -> int:
    """How many blocks run one after the other in each place that multiprocessors have for one."""
    own = owned(problem, nest, choice)
    blocks = prod(-(-extents[index] // own[index]) for index in nest.indices)
    return blocks // (max(choice.resident, 1) * problem.target.multiprocessors)


def _for_few_blocks(problem: Problem, nest: Nest, extents: Mapping[str, int], found: Tiled) -> Tiled:
    """Tiles in phase, half as long along where blocks are few, so that the last of them end together, or few tiles lie
    along (on an H200 257 x 307 x 331 in bf16: .815 of a copy, .79 in place of it; 509 x 521 x 503 in longer ones: .833,
    .817; 257 x 100003 in f32 .927, .855; 5003 x 5003 .951, .932; but 32749 x 4093 .911, .916, and where the place of a
    row takes a division, .874, .905)."""
    own, beyond = owned(problem, nest, found)[found.along], overlap(problem, nest, found)
    half = replace(
        found,
        tile={**found.tile, found.along: own // 2 + beyond},
        threads=found.threads // 2,
        resident=2 * found.resident,
    )
    if all(_is_narrow(one.wide) for one in staged(problem, nest, found)):
        few = _waves(problem, nest, extents, found) < FEW_WAVES
    else:
        tiles = -(-(extents[found.along] + beyond - 1) // own)
        many = _is_divided(problem, nest, found) or _waves(problem, nest, extents, found) >= MANY_WAVES
        few = tiles <= FEW or not many
    return half if few and tile_fault(problem, nest, half) is None else found


def _is_divided(problem: Problem, nest: Nest, choice: Tiled) -> bool:
    """Whether the place of a row that is read takes a division."""
    forms = (address(problem, one.element) for one in staged(problem, nest, choice))
    return any(form.coefficient(choice.along) is None for form in forms)


def _of_sides(
    problem: Problem,
    nest: Nest,
    extents: Mapping[str, int],
    flat: Flat,
    sides: Mapping[str, int],
    reads: Mapping[str, Wide],
    most_threads: int = THREADS,
) -> Tiled | None:
    """Tiles of such sides, the first one along, for as many threads as have equal shares of them."""
    first, across = sides
    wanted = tile_asked(nest.pars)
    if any(size > 1 for index, size in wanted.items() if index not in (first, across)):
        return None
    tile = {index: wanted.get(index) or _side(side, extents[index]) for index, side in sides.items()}
    held = [wide.element for wide in reads.values()]
    own = along(problem, nest.body, first, nest.indices, held)
    least = min(square(wide.dtype.size_bytes, tile[first]) for wide in reads.values())
    run = next((n for n in RUNS if n <= least and own.vectors(n).whole(n)), 1)
    counted: dict[str, str] = {}
    if run < least and not wanted:
        counted = _counted(problem, nest, first, reads, least)
    lines = counted if run == 1 else {}
    run = least if lines else run
    wide = min(tile[across], max(greatest_width(problem, read, across) for read in reads.values()))
    choice = Tiled(
        threads=problem.target.warp_size,
        along=first,
        across=across,
        tile=tile,
        staged=tuple(reads),
        grid=flat.grid,
        widths={index: n for index, n in ((first, run), (across, wide)) if n > 1},
        lines=lines,
        memory=flat.memory,
    )
    better = _in_phase(problem, nest, extents, choice, counted, least) if counted else None
    if better is not None:
        return better
    most = min(prod(units.values()) for units in shares(problem, nest, choice))
    threads = threads_asked(problem.kernel, problem.target) or min(most_threads, most)
    if threads < problem.target.warp_size:
        return None
    ragged = bool(lines) or any(one.funnel for one in staged(problem, nest, choice))
    grid = _ragged_order(problem, nest, extents, choice) if ragged else _written_order(problem, nest, choice)
    resident = AT_ONCE // threads if ragged else 0 if _is_cut(problem, nest, choice) else -(-WHOLE_AT_ONCE // threads)
    choice = replace(choice, threads=threads, grid=grid, resident=resident)
    return choice if ragged else replace(choice, band=_band(problem, nest, extents, choice))


def _band(problem: Problem, nest: Nest, extents: Mapping[str, int], choice: Tiled) -> int:
    """How many tiles across come one after the other: it pays for those of narrow rows, where rows that are written lie
    far apart, evenly (in bf16 on an H200: 131072 x 1024 .972 of a copy, .969 row after row; 262144 x 1024 .976, .970;
    131072 x 512 .983, .977; but 131072 x 2048 .979, .980, and 100096 x 1024, less evenly, .958, .967)."""
    tiles = extents[choice.across] // choice.tile[choice.across]
    found, out = staged(problem, nest, choice), _written(nest)
    usual = choice.grid == (choice.along, choice.across) and raster_of(problem.kernel) is None
    if not usual or tiles < BAND or tiles % BAND or out is None:
        return 1

    def apart(element: Element, index: str) -> int:
        """How many bytes lie between neighbours along an index; 0 where that is not known."""
        size = problem.kernel.buffer(element[0]).dtype.size_bytes
        return size * (address(problem, element).coefficient(index) or 0)

    near = all(0 < apart(one.element, choice.along) <= NARROW_ROW for one in found)
    far = apart(out, choice.across) > 0 and apart(out, choice.across) % FAR_ROW == 0
    narrow = all(_is_narrow(one.wide) for one in found)
    return BAND if near and far and narrow and _waves(problem, nest, extents, choice) >= STRIP_WAVES else 1


def _is_cut(problem: Problem, nest: Nest, choice: Tiled) -> bool:
    """Whether some tiles reach beyond what there is, so that each of their loads is asked for."""
    pars = (par for par in nest.pars if par.index in choice.tile)
    return not all(linear(par.extent).is_multiple(choice.tile[par.index], problem.divisors) for par in pars)


def _counted(problem: Problem, nest: Nest, first: str, reads: Mapping[str, Wide], least: int) -> dict[str, str]:
    """From whose sectors runs along are counted that are whole accesses so, and no others; nothing where there is no
    such array."""
    if any(least * wide.dtype.size_bytes != ACCESS_BYTES for wide in reads.values()):
        return {}
    held = [wide.element for wide in reads.values()]
    for name, origin in countable(problem, nest, first).items():
        if along(problem, nest.body, first, nest.indices, held, origin).vectors(least).whole(least):
            return {first: name}
    return {}


def _in_phase(
    problem: Problem, nest: Nest, extents: Mapping[str, int], choice: Tiled, lines: Mapping[str, str], run: int
) -> Tiled | None:
    """Tiles in phase with what is written, in place of those that shift what they read and what they write: strips of
    whole rows, or tiles of four bytes an element, or of narrow ones in rows whose place takes a division (else 32749 x
    4093 in bf16 .81 of a copy, .89 shifted; of f64 300 x 257 x 259 .855, .947); None where neither may be or takes
    less time."""
    if threads_asked(problem.kernel, problem.target):
        return None
    found = replace(
        choice, widths={choice.along: run, choice.across: run}, lines=lines, phased=True, threads=PHASED_THREADS
    )
    found = replace(found, resident=AT_ONCE // found.threads)
    strip = _strip(problem, nest, extents, found)
    if strip is not None and _is_worth(problem, nest, extents, choice, strip):
        return strip
    size = max(one.wide.dtype.size_bytes for one in staged(problem, nest, choice))
    narrow = size < WIDE_BYTES
    many = size == WIDE_BYTES and _waves(problem, nest, extents, choice) >= PHASED_BLOCKS
    if not choice.lines or not (_is_divided(problem, nest, choice) if narrow else many):
        return None
    along_ = choice.tile[choice.along] * (1 if narrow else 2)
    longer = {**choice.tile, choice.along: along_ + overlap(problem, nest, found)}
    found = replace(found, tile=longer, grid=_ragged_order(problem, nest, extents, choice))
    return found if tile_fault(problem, nest, found) is None else None


def _strip(problem: Problem, nest: Nest, extents: Mapping[str, int], found: Tiled) -> Tiled | None:
    """Strips of whole rows, where they may be, threads have all chunks of one in registers, and several blocks of a
    multiprocessor have room for them."""
    rows, chunks = extents[found.along], found.tile[found.across] // found.widths[found.across]
    threads = min(max(power_of_two(-(-rows * chunks // USUAL_TURNS)), THREADS // 2), PHASED_THREADS)
    found = replace(
        found,
        tile={**found.tile, found.along: rows},
        strips=True,
        threads=threads,
        resident=AT_ONCE // threads,
        grid=(found.across, found.along, *_others(found)),
    )
    if rows * chunks > threads * STRIP_TURNS or tile_fault(problem, nest, found) is not None:
        return None
    needed = sum(tile_bytes(problem, nest, found, one) for one in staged(problem, nest, found))
    together = load_lanes(problem, nest, found)[found.across] * ACCESS_BYTES
    return found if found.resident * needed <= problem.target.shared_bytes and together >= LEAST_TOGETHER else None


def _is_worth(problem: Problem, nest: Nest, extents: Mapping[str, int], tiles: Tiled, strip: Tiled) -> bool:
    """Whether strips take less time than tiles whose rows are counted from sectors. Wide elements take few instructions
    there: strips do where most of such a tile is cut, or their blocks are many, for each waits for all its loads."""
    if not tiles.lines or strip.widths[strip.along] * WIDE_BYTES > ACCESS_BYTES:
        return True
    rows, side = extents[tiles.along], owned(problem, nest, tiles)[tiles.along]
    cut = -(-(rows + overlap(problem, nest, tiles) - 1) // side) * side > STRIP_CUT * rows
    blocks = prod(-(-n // own) for n, own in ((extents[i], owned(problem, nest, strip)[i]) for i in nest.indices))
    return cut or blocks >= STRIP_WAVES * strip.resident * problem.target.multiprocessors


def _written(nest: Nest) -> Element | None:
    """The first element of an array that an iteration writes."""
    leaves = (written(s) for s in statements(nest.body) if isinstance(s, Leaf))
    return next((e for e in leaves if e is not None and e[0] not in declared(nest.body)), None)


def _written_order(problem: Problem, nest: Nest, choice: Tiled) -> tuple[str, ...]:
    """Blocks as what they write lies in memory: those that run together write whole pages of it."""
    fixed, element = {**dict.fromkeys(nest.indices, 0), **problem.sizes}, _written(nest)

    def apart(index: str) -> tuple[bool, int]:
        found = footprint(problem.access(*element), {index: Points((0, 1))}, fixed) if element is not None else None
        return (True, 0) if found is None or not found.distance else (False, found.distance)

    return tuple(sorted((choice.along, choice.across, *_others(choice)), key=apart))


def _ragged_order(problem: Problem, nest: Nest, extents: Mapping[str, int], choice: Tiled) -> tuple[str, ...]:
    """Tiles that share sectors of what they read run soon after one another, or the L2 has forgotten these."""
    sizes = sum(one.wide.dtype.size_bytes for one in staged(problem, nest, choice))
    between = 2 * extents[choice.along] * choice.tile[choice.across] * sizes
    pair = (choice.across, choice.along) if between > NEAR_BYTES else (choice.along, choice.across)
    return (*pair, *_others(choice))


def _others(choice: Tiled) -> Iterator[str]:
    return (index for index in choice.grid if index not in choice.tile)
