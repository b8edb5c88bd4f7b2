"""Launches for CUDA, as a candidate says: a band over the threads of a grid, or plain statements in one thread.

A *flat* band has no parallelism inside: its dimensions are dealt to grid, warps and lanes, and each thread runs the
body alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from texpr.grammar.ast import (
    Accumulate,
    Compare,
    CompareOp,
    Condition,
    IndexExpr,
    IndexVar,
    Stmt,
)
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    ceildiv,
    conjunction,
    const,
    constant_value,
    minimum,
    multiply,
)
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import Share, ThreadDigits, grid_digits, grid_size, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lines import begins, lead_of, origins
from texpr.polyhedral.map.patches import of_patch
from texpr.polyhedral.map.placement import place_locals
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.raster import Grid, raster_grid, within_rows
from texpr.polyhedral.map.reductions import Dealt, Team, shared_out
from texpr.polyhedral.map.row_tiles import RowTile, Shares
from texpr.polyhedral.map.runs import Line, in_run, make_run
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.strided import in_strides
from texpr.polyhedral.map.tables import read_before, tables, written_out
from texpr.polyhedral.map.together import together
from texpr.polyhedral.map.turns_first import loads_first
from texpr.polyhedral.map.uses import local_uses
from texpr.polyhedral.map.vectors import Element, along
from texpr.polyhedral.map.windows import flat_patch
from texpr.polyhedral.mapped.candidate import Combined, Deal, Flat, Single
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.names import stem

UNROLLED = 8  # turns of a thread that stand one after the other


def build_single(draft: Draft, region: Region, choice: Single) -> Launch:
    """A launch of one thread for statements outside any par."""
    stmts = region.stmts
    place_in(draft, stmts, choice.memory, block_level=False, outer=(), ranges={})
    body = Body(draft, hardware=()).nodes(stmts)
    span = stmts[0].span.to(stmts[-1].span)
    return Launch(name=region.name, grid=(ONE, ONE, ONE), threads=1, digits=(), body=body, span=span)


def build_flat(draft: Draft, region: Region, choice: Flat) -> Launch:
    """A band dealt to threads and blocks, each thread with its iteration."""
    nest, ranges, extents = band_of(region)
    pieces = pieces_of(nest, choice.deal)
    band = thread_digits(nest.indices, pieces, draft.names, draft.target.warp_size, choice.taken)
    counted = origins(draft.problem, nest, choice.lines)
    patch = flat_patch(draft.problem, nest, choice)
    behind = max(patch.skew.at(row) for row in range(patch.rows)) if patch is not None else 0
    pieces_begin = {index: begins(draft.problem, origin, index) for index, origin in counted.items()}
    reached = [
        add(extent, const(pieces_begin[index][1] + behind)) if index in counted else extent
        for index, extent in zip(nest.indices, extents, strict=True)
    ]
    turns = _turns(draft, nest, band, choice)
    whole = [n * choice.turns.get(index, 1) for index, n in zip(nest.indices, band.covered, strict=True)]
    grid = band_grid(draft, nest, reached, whole, choice.grid)
    draft.digits += [*band.all, *(digit for own in turns for digit in own)]
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    leads = {index: draft.names.fresh("lead") for index in counted}
    covers = dict(zip(nest.indices, whole, strict=True))
    alone = patch is None and not counted  # else there may be blocks without iterations
    found = tables(draft.problem, nest, covers, choice.turns) if choice.turns and alone else ()
    before, nest = read_before(draft, nest, found, band.threads)
    if patch is not None:
        lead, origin = leads.get(patch.index, ""), counted.get(patch.index)
        body, names = of_patch(draft, nest, patch, band.threads, lead, origin)
        body = guarded(nest, covers | dict.fromkeys(leads, 1), ranges, names, body)
    elif choice.patch:
        return launch_of(draft, region, choice.threads, grid, _in_rows(draft, nest, choice, band, grid, ranges))
    else:
        body, names = of_thread(
            draft,
            nest,
            replace(band, covered=tuple(whole)),
            ranges,
            hardware=nest.indices,
            widths=choice.widths,
            leads=leads,
            counted=counted,
        )
    defines = {
        index: Define(
            index=names.get(index, index),
            digits=(*block, *own, *reversed(mine)),
            offset=multiply(const(-1), IndexVar(name=leads[index])) if index in leads else ZERO,
        )
        for index, block, own, mine in zip(nest.indices, grid.digits, turns, band.digits, strict=True)
    }
    apart = leads.keys() | choice.turns.keys()
    once = (define for index, define in defines.items() if index not in apart)
    rows = {index: IndexVar(name=names[index]) for index in choice.patch}
    lines = (
        lead_of(draft.problem, leads[index], origin, index, pieces_begin[index][0], rows)
        for index, origin in counted.items()
    )
    body = (*(define for index, define in defines.items() if index in apart), *body)
    for par, own in reversed(list(zip(nest.pars, turns, strict=True))):
        for digit in own:
            unroll = choice.turns[par.index] <= UNROLLED
            loop = Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=unroll, span=par.span)
            body = loads_first(draft, body, digit, loop) if unroll and counted else (loop,)
    return launch_of(draft, region, choice.threads, grid, (*once, *lines, *before, *written_out(body, found)))


def _in_rows(
    draft: Draft, nest: Nest, choice: Flat, band: ThreadDigits, grid: Grid, ranges: Ranges
) -> tuple[Node, ...]:
    """What a thread does with neighbouring iterations of an index, one after the other. Where all of them are there,
    none is asked for by itself, so that the loads of all are on their way together."""
    ((down, rows),) = choice.patch.items()
    par = next(par for par in nest.pars if par.index == down)
    covered = dict(zip(nest.indices, band.covered, strict=True))
    alone = replace(band, covered=tuple(1 for _ in nest.pars))
    body, names = of_thread(draft, nest, alone, ranges, hardware=nest.indices, widths={})
    body = together(draft, body)
    first = draft.names.fresh(f"{down}_first")

    def each(nodes: tuple[Node, ...]) -> Loop:
        name = draft.names.fresh(f"{stem(down)}_serial")
        digit = Digit(name=name, index=down, weight=1, radix=const(rows), stride=ONE, place=Place.SERIAL)
        draft.digits.append(digit)
        here = Define(index=down, digits=(digit,), offset=IndexVar(name=first))
        return Loop(
            index=name, extent=digit.radix, body=(here, *nodes), digit=digit, unroll=rows <= UNROLLED, span=par.span
        )

    nodes: tuple[Node, ...] = (each(body),)
    single = guarded(nest, {i: n if i == down else 1 for i, n in covered.items()}, ranges, names, body)
    if single is not body:
        last = add(IndexVar(name=first), const(rows - 1))
        whole = Compare(op=CompareOp.LT, left=last, right=par.extent)
        nodes = (Guard(condition=whole, body=nodes, orelse=(each(single),), padding=True, span=par.span),)
    others = replace(nest, pars=tuple(each for each in nest.pars if each is not par))
    nodes = guarded(others, covered, ranges, names, nodes)
    defines = (
        Define(index=first if index == down else index, digits=(*blocks, *reversed(mine)))
        for index, blocks, mine in zip(nest.indices, grid.digits, band.digits, strict=True)
    )
    return (*defines, *nodes)


def _turns(draft: Draft, nest: Nest, band: ThreadDigits, choice: Flat) -> list[tuple[Digit, ...]]:
    """For each index the turns in which a block's threads go over what it has of it."""
    found: list[tuple[Digit, ...]] = []
    for index, covered in zip(nest.indices, band.covered, strict=True):
        count = choice.turns.get(index, 1)
        name = draft.names.fresh(f"{stem(index)}_serial") if count > 1 else ""
        digit = Digit(name=name, index=index, weight=covered, radix=const(count), stride=ONE, place=Place.SERIAL)
        found.append((digit,) if count > 1 else ())
    return found


def of_thread(
    draft: Draft,
    nest: Nest,
    band: ThreadDigits,
    ranges: Ranges,
    *,
    hardware: tuple[str, ...],
    widths: Mapping[str, int],
    tile: RowTile | None = None,
    shares: Shares | None = None,
    serial: tuple[Digit, ...] = (),
    leads: Mapping[str, str] = MappingProxyType({}),
    counted: Mapping[str, Element] = MappingProxyType({}),
) -> tuple[tuple[Node, ...], dict[str, str]]:
    """What a thread does with its iteration of a nest, or its run of several, and under which name it has the first.
    Of the row of a `tile`, that is its part by the digit `serial`; runs that are `counted` from a line have `leads`."""
    digits = band.threads
    line = tile.line(serial) if tile is not None else None
    lines = {index: Line(lead=lead) for index, lead in leads.items()}
    runs = [
        make_run(draft, p.index, p.extent, widths[p.index], p.span, lines.get(p.index, line))
        for p in nest.pars
        if p.index in widths
    ]
    reading, held, origin = nest.body, tuple[Element, ...](), next(iter(counted.values()), None)
    if tile is not None:
        index = nest.indices[0]
        reading = tile.through(nest.body, index, serial, runs[0] if runs else None)
        held, origin = tile.elements(index), tile.origin(index)
    body = Body(draft, hardware=hardware, digits=digits).nodes(reading)
    names: dict[str, str] = {}
    for run in runs:
        names[run.index] = run.first
        if tile is None:
            body = in_strides(draft, nest, run, body, hardware=hardware, digits=digits, origin=origin)
            continue
        found = along(draft.problem, nest.body, run.index, hardware, held, origin).vectors(run.count)
        body = in_run(draft, run, found, body, digits)
        if shares is not None:
            body = (*tile.at_hand(draft, nest.pars[0], run, serial, shares), *body)
    covered = dict(zip(nest.indices, band.covered, strict=True)) | dict.fromkeys(leads, 1)
    condition = padding_guard(nest, covered, ranges, names)
    if condition is not None and (line is None or constant_value(nest.pars[0].extent) is None):
        if tile is not None:
            condition = tile.unless_whole(draft.kernel, nest.pars[0].extent, serial, condition)
        body = (Guard(condition=condition, body=body, padding=True, span=nest.pars[0].span),)
    return body, names


def build_combined(draft: Draft, region: Region, choice: Combined) -> Launch:
    """A band of accumulations: blocks take rounds of the reduced dimension and make one atomic update each."""
    nest, ranges, extents = band_of(region)
    dim = nest.indices.index(choice.over)
    width = choice.widths.get(choice.over, 1)
    together = choice.threads * width
    covered = [together * choice.rounds if d == dim else 1 for d in range(len(nest.pars))]
    updates = [s for s in nest.body if isinstance(s, Accumulate)]
    strides = [_stride(draft, i, e, c, choice) for i, e, c in zip(nest.indices, extents, covered, strict=True)]
    reached = {i: s.weight if s else c for i, s, c in zip(nest.indices, strides, covered, strict=True)}
    inside = padding_guard(nest, reached, ranges)
    bounded = [minimum(e, const(s.weight)) if s else e for e, s in zip(extents, strides, strict=True)]
    order = [nest.indices.index(index) for index in choice.grid]
    blocks = grid_digits(nest.indices, bounded, covered, order, draft.names, draft.target, nest.pars[0].span)
    grid = Grid(digits=tuple((block,) if block else () for block in blocks))
    places = [tuple(d for d in (block, stride) if d) for block, stride in zip(blocks, strides, strict=True)]
    defines = {d: Define(index=nest.indices[d], digits=places[d]) for d in range(len(places)) if d != dim}
    around = tuple((define, stride) for d, define in defines.items() if (stride := strides[d]) is not None)
    team = Team(outer=nest.indices, threads=choice.threads, width=width)
    dealt = Dealt(count=const(choice.rounds), inside=inside, places=places[dim], around=around, stride=strides[dim])
    body = shared_out(draft, team, nest.pars[dim], tuple(updates), updates, dealt)
    outer = (define for d, define in defines.items() if strides[d] is None)
    return launch_of(draft, region, choice.threads, grid, (*outer, *body))


def _stride(draft: Draft, index: str, extent: IndexExpr, covered: int, choice: Combined) -> Digit | None:
    """The serial digit of an index that has more iterations than its blocks reach: its weight is what they reach."""
    blocks = choice.blocks.get(index)
    if blocks is None:
        return None
    reach = covered * blocks
    return Digit(
        name=draft.names.fresh(f"{index}_stride"),
        index=index,
        weight=reach,
        radix=ceildiv(at_least_zero(extent), reach),
        stride=ONE,
        place=Place.SERIAL,
    )


# ---- what the forms share --------------------------------------------------------------------------------------------


def padding_guard(
    nest: Nest, covered: Mapping[str, int], ranges: Ranges, names: Mapping[str, str] = MappingProxyType({})
) -> Condition | None:
    """The condition that cuts what lies beyond the extents: None where the digits cover them exactly. `names` says
    under which name an index stands here."""
    parts: list[Condition] = []
    for par in nest.pars:
        boxed = add(ranges[par.index][1], ONE)
        value = constant_value(boxed)
        exact = covered[par.index] == 1 or (value is not None and value % covered[par.index] == 0)
        if boxed != par.extent or not exact:
            here = IndexVar(name=names.get(par.index, par.index))
            parts.append(Compare(op=CompareOp.LT, left=here, right=par.extent))
    return conjunction(parts) if parts else None


def guarded(
    nest: Nest, covered: Mapping[str, int], ranges: Ranges, names: Mapping[str, str], body: tuple[Node, ...]
) -> tuple[Node, ...]:
    """The body where there is such an iteration."""
    condition = padding_guard(nest, covered, ranges, names)
    return body if condition is None else (Guard(condition=condition, body=body, padding=True, span=nest.pars[0].span),)


def band_of(region: Region) -> tuple[Nest, Ranges, list[IndexExpr]]:
    """The region's band, the ranges of its indices and their extents in the box."""
    nest, ranges = region.nest
    return nest, ranges, [add(ranges[p.index][1], ONE) for p in nest.pars]


def pieces_of(nest: Nest, deal: Deal) -> tuple[Share, ...]:
    return tuple((nest.indices.index(index), threads) for index, threads in deal)


def band_grid(
    draft: Draft,
    nest: Nest,
    extents: Sequence[IndexExpr],
    covered: Sequence[int],
    order: tuple[str, ...],
    band: int = 1,
) -> Grid:
    dims = [nest.indices.index(index) for index in order]
    return raster_grid(draft, nest.indices, extents, covered, dims, nest.pars[0].span, band)


def place_in(
    draft: Draft,
    stmts: tuple[Stmt, ...],
    memory: Mapping[str, Memory],
    *,
    block_level: bool,
    outer: tuple[str, ...],
    ranges: Ranges,
) -> None:
    uses, known = local_uses(draft.kernel, stmts, block_level=block_level, outer=outer, ranges=ranges)
    draft.buffers.update(place_locals(uses, memory, known, draft.target, draft.problem.host_ranges))


def launch_of(draft: Draft, region: Region, threads: int, grid: Grid, body: tuple[Node, ...]) -> Launch:
    assert region.band is not None, "plain statements have no grid"
    span = region.band.span
    body = within_rows(draft, grid, body, span)
    return Launch(name=region.name, grid=grid_size(grid.all), threads=threads, digits=grid.all, body=body, span=span)
