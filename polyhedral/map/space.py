"""The space of a problem: the first candidate, and those that differ from it in one choice of one launch.

    softmax_0: Blocks(threads=256, …)   ->   threads 32, 64, 96 … 512, 1024, each reduction in one thread, Flat, …

What does not fit (`legal`) is left out; what a candidate's memory cannot hold is found when it is built, as an author's
own would be. The author's attributes only remove candidates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.author_tiles import tile_asked, tile_turns
from texpr.polyhedral.map.bands import Nest, has_block_level
from texpr.polyhedral.map.block_sizes import band_sizes
from texpr.polyhedral.map.choose import choose, choose_blocks
from texpr.polyhedral.map.choose_columns import columns_of, lies_across
from texpr.polyhedral.map.choose_combined import choose_combined
from texpr.polyhedral.map.choose_contracted import shaped
from texpr.polyhedral.map.choose_cores import (
    HEAVY_CHUNK,
    LIGHT_CHUNK,
    MIN_CHUNK,
    can_be_rows,
    choose_cores,
    core_indices,
    tiles_of,
)
from texpr.polyhedral.map.choose_flat import choose_flat, in_runs
from texpr.polyhedral.map.choose_piped import pipings
from texpr.polyhedral.map.choose_ringed import ringings
from texpr.polyhedral.map.choose_tallied import tallied
from texpr.polyhedral.map.choose_tiles import tilings
from texpr.polyhedral.map.column_work import column_held, column_work
from texpr.polyhedral.map.contraction import contracted_nest, contractions
from texpr.polyhedral.map.digits import share
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.jammed import jams_of
from texpr.polyhedral.map.legal import check_choice
from texpr.polyhedral.map.once import repeated
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.reducible import combinable
from texpr.polyhedral.mapped.candidate import (
    Blocks,
    Candidate,
    Choice,
    Columns,
    Combined,
    Contracted,
    Deal,
    Flat,
    Parted,
    Scanned,
    Tallied,
    Tiled,
)
from texpr.polyhedral.mapped.on_cores import Cores, OnCores, Panels

ROUNDS = (1, 4, 16, 64)
PARTS = (3, 33, 132, 264, 1056)  # blocks that share a reduction
AHEAD = (1, 2, 4, 8)  # rounds that a thread loads before it adds
WIDTHS = (1, 2, 4, 8, 16)  # neighbouring iterations that a thread takes with wide accesses


def candidates(problem: Problem, *, wide: bool = True) -> Iterator[Candidate]:
    """The first candidate, then its neighbours that fit, each once, in text order of the launches."""
    first = choose(problem, wide=wide)
    yield first
    for region in problem.regions():
        for choice in neighbours(problem, region, first.launches[region.name]):
            yield replace(first, launches={**first.launches, region.name: choice})


def neighbours(problem: Problem, region: Region, first: Choice) -> Iterator[Choice]:
    """The choices of one launch that differ from a first one in one place and fit, each once."""
    seen = [first]
    for choice in _choices(problem, region, first):
        if choice not in seen and _fits(problem, region, choice):
            seen.append(choice)
            yield choice


def _fits(problem: Problem, region: Region, choice: Choice) -> bool:
    try:
        check_choice(problem, region, choice)
    except TExprError as wrong:
        if not {d.code for d in wrong.diagnostics} <= {"E0401", "E0402", "E0403"}:
            raise
        return False
    return True


def _choices(problem: Problem, region: Region, first: Choice) -> Iterator[Choice]:
    if isinstance(first, Parted):
        yield from _parted(problem, first)
    if isinstance(first, Scanned):
        yield from _scanned(problem, first)
    if region.band is None:
        return
    nest, ranges = region.nest
    if isinstance(first, OnCores):
        if isinstance(first, Panels):
            yield from _panels(first)
        own = first if isinstance(first, Cores) else choose_cores(problem, nest, ranges)
        yield own
        yield from _cores(problem, nest, own)
        return
    yield from _columns(problem, nest, ranges)
    blocks = first if isinstance(first, Blocks) else choose_blocks(problem, nest, ranges)
    if not has_block_level(problem.kernel, nest):
        yield from _flat(problem, nest, ranges)
        yield from _tiled(problem, nest, ranges)
        yield from pipings(problem, region)
        yield from ringings(problem, region)
        yield from _contracted(problem, region)
        yield from _combined(problem, nest, ranges)
        yield from _tallied(problem, region)
    yield from _blocks(problem, blocks)


def _teams(problem: Problem) -> tuple[int, ...]:
    asked = threads_asked(problem.kernel, problem.target)
    warp, most = problem.target.warp_size, problem.target.max_threads
    return tuple(warp << n for n in range((most // warp).bit_length())) if asked is None else (asked,)


def _row_teams(problem: Problem, usual: Blocks) -> tuple[int, ...]:
    """Whole warps, in steps of one up to twice as many threads as usual: what a thread has of a row need not be a power
    of two. Softmax of 32768 x 4096 in bf16 runs at .989 of a copy on an H200 with 192 threads, at .968 with 256."""
    warp, most = problem.target.warp_size, 2 * usual.threads
    teams = _teams(problem)
    between = () if len(teams) == 1 else range(warp, min(most, problem.target.max_threads) + 1, warp)
    return tuple(sorted({*teams, *between}))


def _flat(problem: Problem, nest: Nest, ranges: Ranges) -> Iterator[Flat]:
    """Each index on the lanes, alone or a warp's width of it, in runs of several lengths, with blocks of every size."""
    usual = choose_flat(problem, nest, ranges)
    sizes, tile = band_sizes(problem, nest, ranges), tile_asked(nest.pars)
    warp = problem.target.warp_size
    for threads in _teams(problem):
        for first in reversed(range(len(sizes))):
            order = (first, *(d for d in reversed(range(len(sizes))) if d != first))
            for cap, width in product((threads, warp), WIDTHS):
                caps = [cap if d == first else threads for d in range(len(sizes))]
                widths = {nest.indices[first]: width} if width > 1 else {}
                deal = tuple((nest.indices[d], n) for d, n in share(in_runs(nest, sizes, widths), order, caps, threads))
                grid = tuple(nest.indices[d] for d in order)
                lines = usual.lines if usual.lines.keys() <= widths.keys() else {}
                yield replace(
                    usual,
                    threads=threads,
                    deal=deal,
                    grid=grid,
                    widths=widths,
                    lines=lines,
                    turns=tile_turns(tile, deal, widths),
                    patch={},
                )
    for index, turns in product(usual.widths, (1, 2, 4, 8)):
        yield replace(usual, turns={index: turns} if turns > 1 else {}, patch={})
    for index, rows in product(nest.indices, (2, 4, 8)):
        yield replace(usual, patch={index: rows})


def _tiled(problem: Problem, nest: Nest, ranges: Ranges) -> Iterator[Tiled]:
    """Tiles of each two indices for which something is to be staged, smaller ones, bands, and blocks of every size."""
    for _, usual in tilings(problem, nest, band_sizes(problem, nest, ranges), choose_flat(problem, nest, ranges)):
        yield usual
        for halved in (*((index,) for index in usual.tile), tuple(usual.tile)):
            yield replace(usual, tile={index: n // 2 if index in halved else n for index, n in usual.tile.items()})
        for threads in _teams(problem):
            yield replace(usual, threads=threads)
        for index in usual.widths:
            yield replace(usual, widths={i: n for i, n in usual.widths.items() if i != index})
        for band in (2, 4):
            yield replace(usual, band=band)


def _contracted(problem: Problem, region: Region) -> Iterator[Contracted]:
    """Tiles of every shape, deeper ones, with products ahead or shared out, fewer blocks together."""
    for one in contractions(problem, contracted_nest(region)):
        for _, usual in shaped(problem, region, one):
            yield usual
            yield replace(usual, depth=2 * usual.depth)
            yield replace(usual, ahead=3 - usual.ahead)
            yield replace(usual, parts=2)
            yield replace(usual, resident=max(1, usual.resident // 2))


def _combined(problem: Problem, nest: Nest, ranges: Ranges) -> Iterator[Combined]:
    """Each summed index over the threads, with rounds of several lengths."""
    for over in combinable(nest):
        usual = choose_combined(problem, nest, ranges, over)
        yield usual
        for threads, rounds, width in product(_teams(problem), ROUNDS, WIDTHS):
            yield replace(usual, threads=threads, rounds=rounds, widths={usual.over: width} if width > 1 else {})


def _tallied(problem: Problem, region: Region) -> Iterator[Tallied]:
    """Blocks of every size, fewer copies or one, none of some array, a few loads ahead or one, fewer blocks."""
    usual = tallied(problem, region)
    if usual is None:
        return
    yield usual
    for threads in _teams(problem):
        yield replace(usual, threads=threads, resident=0)
    for count in (8, 1):
        yield replace(usual, copies=dict.fromkeys(usual.copies, count))
    for name in usual.copies:
        yield replace(usual, copies={other: count for other, count in usual.copies.items() if other != name})
    for ahead in (1, 4):
        yield replace(usual, ahead=ahead)
    yield replace(usual, blocks={index: -(-most // 2) for index, most in usual.blocks.items()})
    yield replace(usual, widths={}, ahead=1)


def _blocks(problem: Problem, usual: Blocks) -> Iterator[Blocks]:
    """Blocks of every size, rows held in registers, slots or not, each reduction shared out or not, the lanes on each
    index of a nest."""
    for threads in _row_teams(problem, usual) if usual.rows else _teams(problem):
        inner = {index: _scaled(deal, threads) for index, deal in usual.inner.items()}
        yield replace(usual, threads=threads, inner=inner, together=1, cluster=1, resident=0)
    for together in (1, 2, 4, 8):
        yield replace(usual, threads=together * usual.team, together=together)
    for cluster in (1, 2, 4, 8):
        yield replace(usual, cluster=cluster)
    yield replace(usual, rows=tuple(replace(row, slots=not row.slots) for row in usual.rows))
    for row in usual.rows:
        yield _apart(usual, row.indices[0])
        yield from (_taken(usual, row.indices, width) for width in WIDTHS)
    for index in usual.shared_out:
        found = _taken(_apart(usual, index), (index,), 1)
        yield replace(found, shared_out=tuple(i for i in usual.shared_out if i != index))
    for index in (*usual.shared_out, *dict.fromkeys(i for deal in usual.inner.values() for i, _ in deal)):
        yield from (_taken(_apart(usual, index), (index,), width) for width in WIDTHS)
    for nest, deal in usual.inner.items():
        if len(deal) > 1:
            turned: Mapping[str, Deal] = {**usual.inner, nest: (*deal[1:], deal[0])}
            yield replace(usual, inner=turned)


def _apart(usual: Blocks, index: str) -> Blocks:
    """The same without the row that an index goes over."""
    return replace(usual, rows=tuple(row for row in usual.rows if index not in row.indices))


def _taken(usual: Blocks, indices: tuple[str, ...], width: int) -> Blocks:
    """The same with so many neighbours of these indices at once."""
    widths = {i: n for i, n in usual.widths.items() if i not in indices}
    return replace(usual, widths={**widths, **dict.fromkeys(indices, width)} if width > 1 else widths)


def _parted(problem: Problem, first: Parted) -> Iterator[Parted]:
    """Blocks of every size and number, or none that share; fewer and more loads on their way."""
    for threads in _teams(problem):
        yield replace(first, threads=threads, resident=0)
    for count in PARTS:
        yield replace(first, blocks=dict.fromkeys(first.blocks, count))
    yield replace(first, blocks={})
    for ahead in AHEAD:
        yield replace(first, ahead=ahead, resident=0)
    yield replace(first, lines={}, ahead=1)
    yield replace(first, widths={}, lines={})


def _scanned(problem: Problem, first: Scanned) -> Iterator[Scanned]:
    """Blocks of every size, that share scans or do not; fewer and more iterations at once; a ring or none."""
    for threads in _teams(problem):
        yield replace(first, threads=threads, resident=0)
    yield replace(first, look_back=not first.look_back, next_tile=False)
    yield replace(first, look_back=False, next_tile=not first.next_tile)
    if first.ring:
        yield replace(first, ring=first.ring + 1)
        yield replace(first, ring=0, strip=0)
    for ahead in AHEAD:
        yield replace(first, ahead=ahead, resident=0)
    yield replace(first, widths={}, lines={})


def _columns(problem: Problem, nest: Nest, ranges: Ranges) -> Iterator[Columns]:
    """Columns with blocks of every size, larger and smaller teams, fewer and more neighbours."""
    found = column_work(problem, nest)
    held = column_held(problem, nest, found, 1) if found is not None else None
    across = lies_across(problem, nest, held) if held is not None else None
    if found is None or across is None:
        return
    usual = columns_of(problem, nest, ranges, found, across)
    for threads, width in product(_teams(problem), WIDTHS):
        widths = {across: width} if width > 1 else {}
        for teams in (1, 4, 8, 16, 64):
            yield replace(usual, threads=threads, lanes=max(1, threads // teams), widths=widths)


def _scaled(deal: Deal, threads: int) -> Deal:
    """The deal for so many threads: its slowest piece has those that the others leave."""
    pieces, left = list[tuple[str, int]](), threads
    for number, (index, radix) in enumerate(deal):
        mine = left if number == len(deal) - 1 else min(radix, left)
        pieces.append((index, mine))
        left //= mine
    return tuple(piece for piece in pieces if piece[1] > 1)


def _cores(problem: Problem, nest: Nest, first: Cores) -> Iterator[Cores]:
    """Fewer core indices, each index or none innermost, chunks of several lengths, other loops taken together."""
    allowed = core_indices(problem, nest)
    for vector in (*reversed(nest.indices), None):
        every = tuple(i for i in allowed if i != vector) or allowed
        for cores in (every, every[:1]):
            chunk = LIGHT_CHUNK if cores == (vector,) else None
            plain = replace(
                first, cores=cores, vector=vector, chunk=chunk, jam={}, tile={}, local_rows=False, once=False
            )
            yield plain
            if vector is not None and can_be_rows(problem, nest, first.memory):
                yield replace(plain, local_rows=True)
            if vector is None and repeated(nest.body):
                yield replace(plain, once=True)
            for jam in jams_of(problem, nest, cores, vector) if vector is not None else ():
                yield from (replace(plain, jam=some) for some in (jam, _halved(jam)))
            for tile in tiles_of(problem, nest, cores, vector) if vector is not None else ():
                yield from (replace(plain, tile=some) for some in (tile, _halved(tile)))
    if first.chunk is not None:
        yield from (replace(first, chunk=chunk) for chunk in (MIN_CHUNK, HEAVY_CHUNK, LIGHT_CHUNK))


def _panels(usual: Panels) -> Iterator[Panels]:
    """Tiles of half and twice the size, and panels of half and twice the depth."""
    for side, by in product(usual.tile, (1, 4)):
        tile = -(-usual.tile[side] * by // (2 * usual.each[side])) * usual.each[side]
        yield replace(usual, tile={**usual.tile, side: tile})
    yield replace(usual, depth=2 * usual.depth)
    yield replace(usual, depth=max(1, usual.depth // 2))


def _halved(jam: Mapping[str, int]) -> dict[str, int]:
    return {index: max(1, count // 2) for index, count in jam.items()}
