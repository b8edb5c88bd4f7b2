"""The choice of a flat launch: threads for the iterations of a band, lanes on the index with the fewest sectors.

A thread takes runs of neighbouring iterations where accesses are wide along it, or its share of the tile that the
author asks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import names
from texpr.grammar.index.interval import Ranges
from texpr.grammar.permissions import tile_of
from texpr.polyhedral.map.author_tiles import (
    Shares,
    shares_asked,
    tile_deal,
    tile_turns,
    warp_deal,
)
from texpr.polyhedral.map.bands import (
    Nest,
)
from texpr.polyhedral.map.block_sizes import DEFAULT_THREADS, band_sizes, threads_for
from texpr.polyhedral.map.choose_patch import choose_patch, choose_rows_below, patch_shape
from texpr.polyhedral.map.choose_tables import choose_tables, is_plain
from texpr.polyhedral.map.choose_turns import choose_turns
from texpr.polyhedral.map.digits import share
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.lines import countable
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.strided import reading_of
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.map.widths import run_width, strided_width, written_width
from texpr.polyhedral.mapped.candidate import (
    Deal,
    Flat,
)

FEW_ACCESSES = (2, 3)  # of a thread, by which large blocks are filled
TURNS = 2  # of a thread that reads one by one what it writes at once: so many of its loads are on their way together


def choose_flat(problem: Problem, nest: Nest, ranges: Ranges) -> Flat:
    """Lanes on the index with the fewest sectors."""
    shares = shares_asked(nest.pars)
    tile = shares.block
    sizes = [tile.get(i, n) for i, n in zip(nest.indices, band_sizes(problem, nest, ranges), strict=True)]
    asked = threads_asked(problem.kernel, problem.target)
    threads = asked or threads_for(sizes, problem.target)
    order, caps = choose_lanes(problem, nest, sizes, threads, ranges, without=declared(nest.body))
    if shares.thread:
        widths = {index: n for index, n in shares.thread.items() if n > 1}
    else:
        near = problem.objective.by_distance and width_asked(nest.pars) is None
        widths = {} if near else choose_width(problem, nest, sizes, order[0], nest.indices)
        if not (widths or near):
            widths = _in_strides(problem, nest, sizes, order[0])
        widths = {index: n for index, n in widths.items() if tile.get(index, n) % n == 0}
    lines: dict[str, str] = {}
    turns: dict[str, int] = {}
    if not widths and not tile and problem.objective is Objective.TIME:
        widths, lines = _from_line(problem, nest, sizes, order[0])
        if not widths:
            widths, lines = _as_written(problem, nest, sizes, order[0])
            turns = {index: TURNS for index, n in widths.items() if sizes[order[0]] >= TURNS * n * DEFAULT_THREADS}
    runs = in_runs(nest, sizes, widths)
    threads = asked or _threads(problem, nest, widths, threads_for(runs, problem.target))
    rows = None if tile else choose_turns(problem, nest, order[0], widths, lines, asked)
    if rows is not None:
        threads, caps = rows.threads, tuple(rows.threads for _ in caps)
        runs[order[0]] = rows.threads
    deal = named(nest, share(runs, order, caps, threads))
    turns = {nest.indices[order[0]]: rows.turns} if rows is not None else turns
    if tile:
        own = {nest.indices[d]: runs[d] for d in order}
        deal = _tile_deal(problem, nest, shares, widths, own, threads)
        threads, turns = _shares(deal, asked, nest), tile_turns(tile, deal, widths)
    flat = Flat(
        threads=threads,
        deal=deal,
        turns=turns,
        grid=tuple(nest.indices[d] for d in order),
        widths=widths,
        lines=lines,
        memory=memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=ranges),
    )
    if tile:
        return flat
    flat = _in_patches(problem, nest, sizes, flat, asked)
    if not is_plain(problem, flat):
        return flat
    flat = replace(flat, turns=choose_tables(problem, nest, sizes, flat))
    return replace(flat, patch=choose_rows_below(problem, nest, sizes, flat))


def _in_patches(problem: Problem, nest: Nest, sizes: Sequence[int], flat: Flat, asked: int | None) -> Flat:
    """The same with several rows for each thread, where rows are read more than once: a warp or two for a row, and the
    others for those next to it."""
    patch = choose_patch(problem, nest, sizes, flat)
    if not patch:
        return flat
    along, down = (next(map(nest.indices.index, indices)) for indices in (flat.widths, patch))
    flat = replace(flat, patch=patch)
    runs = in_runs(nest, sizes, flat.taken)
    order = (along, down, *(d for d in map(nest.indices.index, flat.grid) if d not in (along, down)))
    threads, warps = (asked, 1) if asked else patch_shape(problem, nest, sizes[along], flat)
    most = threads_for(runs, problem.target)
    threads = asked or (threads if most == DEFAULT_THREADS else min(threads, most))
    caps = [warps * problem.target.warp_size if d == along else threads for d in range(len(sizes))]
    deal = named(nest, share(runs, order, caps, threads))
    return replace(flat, threads=threads, deal=deal, grid=tuple(nest.indices[d] for d in order))


def _tile_deal(
    problem: Problem, nest: Nest, shares: Shares, widths: Mapping[str, int], runs: Mapping[str, int], threads: int
) -> Deal:
    """Threads dealt to the author's tile, of which each index has so many runs, in this order. Raises E0401, E0402 for
    shares of warps and threads that cannot be."""
    attr = next(attr for par in nest.pars if (attr := tile_of(par)) is not None)
    for index, width in shares.thread.items():
        if width > 1 and run_width(problem, nest.body, index, width, nest.indices, width) != width:
            why = f"a thread has {width} iterations of {index}, along which no access is contiguous and aligned"
            help = f"write 1 of {index}, or remove the sizes of threads"
            raise fail("E0402", f"#tile is not mapped here: {why}", attr.span, "this attribute", help=help)
    if shares.warp:
        return warp_deal(shares, widths, tuple(runs), attr, problem.target)
    return tile_deal(shares.block, runs, tuple(runs), threads)


def _shares(deal: Deal, asked: int | None, nest: Nest) -> int:
    """The threads that have equal shares of the author's tile. Raises E0401 where the author asks for more."""
    threads = prod(n for _, n in deal)
    if asked is not None and threads != asked:
        attr = next(attr for par in nest.pars if (attr := tile_of(par)) is not None)
        message = f"the tile has equal shares for {threads} threads, and the author asks for {asked}"
        raise fail("E0401", message, attr.span, "this attribute", help=f"write #threads({threads}), or a larger tile")
    return threads


def _from_line(problem: Problem, nest: Nest, sizes: Sequence[int], lane: int) -> tuple[dict[str, int], dict[str, str]]:
    """How many neighbouring iterations of the dimension on the lanes a thread takes, counted from a line of memory."""
    index = nest.indices[lane]
    if width_asked(nest.pars) is None and not any(index in names(par.extent) for par in nest.pars):
        for name, origin in countable(problem, nest, index).items():
            width = run_width(problem, nest.body, index, sizes[lane], nest.indices, None, origin=origin)
            if width > 1:
                return {index: width}, {index: name}
    return {}, {}


def _as_written(problem: Problem, nest: Nest, sizes: Sequence[int], lane: int) -> tuple[dict[str, int], dict[str, str]]:
    """How many neighbours of the dimension on the lanes a thread writes at once, and reads one by one; and the line of
    memory from which they are counted, if from one."""
    index = nest.indices[lane]
    if width_asked(nest.pars) is not None or any(index in names(par.extent) for par in nest.pars):
        return {}, {}
    origins: list[tuple[str, Element | None]] = [("", None), *countable(problem, nest, index).items()]
    found = {name: written_width(problem, nest.body, index, sizes[lane], nest.indices, at) for name, at in origins}
    name = max(found, key=found.__getitem__)
    if found[name] == 1:
        return {}, {}
    return {index: found[name]}, {index: name} if name else {}


def choose_width(
    problem: Problem, nest: Nest, sizes: Sequence[int], lane: int, hardware: tuple[str, ...]
) -> dict[str, int]:
    """How many neighbouring iterations of the dimension on the lanes a thread takes, where several."""
    asked = width_asked(nest.pars)
    first = [nest.pars[lane]] if asked is None else [nest.pars[lane], *reversed(nest.pars)]
    for par in first:
        if not any(par.index in names(other.extent) for other in nest.pars):
            size = sizes[nest.pars.index(par)]
            width = run_width(problem, nest.body, par.index, size, hardware, asked, others=prod(sizes) // size)
            if width > 1:
                return {par.index: width}
    return {}


def _threads(problem: Problem, nest: Nest, widths: Mapping[str, int], usual: int) -> int:
    """The threads of a block: twice the usual ones where these are many and each has two or three strided accesses.
    Average pooling by 2 x 2 in f32, with two, ran on an H200 at 1.036 of a copy so, at 1.034 with 256 threads, means of
    three rows at .864 and .854; pooling of pairs, with one, at .979 and 1.017, by 4 x 4 in bf16, with four, at .971 and
    .978."""
    accesses = sum(reading_of(problem, nest, index, n).accesses for index, n in widths.items())
    return 2 * usual if usual == DEFAULT_THREADS and accesses in FEW_ACCESSES else usual


def _in_strides(problem: Problem, nest: Nest, sizes: Sequence[int], lane: int) -> dict[str, int]:
    """How many neighbours of the dimension on the lanes a thread takes that reads them in short loops, where threads
    are many still; or as many as the author asks for."""
    par, asked = nest.pars[lane], width_asked(nest.pars)
    if any(par.index in names(other.extent) for other in nest.pars):
        return {}
    if asked is not None:
        return {par.index: asked} if reading_of(problem, nest, par.index, asked).strided else {}
    width = strided_width(problem, nest, par.index)
    busy = problem.target.multiprocessors * problem.target.resident_threads
    return {par.index: width} if width > 1 and prod(sizes) >= busy * width else {}


def in_runs(nest: Nest, sizes: Sequence[int], widths: Mapping[str, int]) -> list[int]:
    """The sizes of a nest's dimensions, counted in what one thread takes of each at once."""
    return [-(-size // widths.get(index, 1)) for index, size in zip(nest.indices, sizes, strict=True)]


def named(nest: Nest, pieces: Sequence[tuple[int, int]]) -> Deal:
    return tuple((nest.indices[dim], threads) for dim, threads in pieces)
