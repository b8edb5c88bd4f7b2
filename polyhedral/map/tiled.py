"""Launches in tiles, as a candidate says: what is staged is brought to shared memory, then the tile runs.

    par M i, N j { B[j, i] = A[i, j] }      along i, across j, tiles of 64 by 64

    i_tile = 64*i_block ;  j_tile = 64*j_block
    j_at = 4*j_lane ;  i_at = 8*i_warp + 4*i_lane                  lanes across
    copy A_square[4*a + e] = A[i_tile + i_at + a, j_tile + j_at + e] for a < 4, e < 4  (now, aligned)
    each e < 4, a < 4: A_turned[4*e + a] = A_square[4*a + e]
    copy A_tile[j_at + e, i_at + a] = A_turned[4*e + a] for e < 4, a < 4  (now, aligned)
    barrier (block)
    for j_serial < 4                                               lanes along
      j = j_tile + j_at_1 ;  i_first = i_tile + i_at_1
      …                                                            a run of i, which reads A_tile

Beyond the extents the tile has zeros, which nothing reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from texpr.grammar.ast import Bind, Compare, CompareOp, Condition, Gather, IndexExpr, IndexVar
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    conjunction,
    const,
    constant_value,
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.greatest import greatest
from texpr.polyhedral.map.launches import UNROLLED, band_grid, band_of, launch_of, padding_guard, place_in
from texpr.polyhedral.map.lines import lead_of, origins
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.runs import Line, in_run, make_run, nothing, through
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.tiles import (
    TILE_ALIGN_BYTES,
    Staged,
    dealt,
    load_units,
    overlap,
    owned,
    reason,
    run_units,
    staged,
    tile_layout,
)
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Vectors, along, at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Tiled
from texpr.polyhedral.mapped.operators import Copy, Element, Elementwise
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Lead, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem


def build_tiled(draft: Draft, region: Region, choice: Tiled) -> Launch:
    """A band in tiles of two indices, each thread with its iterations of one."""
    nest, ranges, extents = band_of(region)
    own, ahead = owned(draft.problem, nest, choice), overlap(draft.problem, nest, choice)
    reached = [add(e, const(ahead - 1)) if i in choice.lines else e for i, e in zip(nest.indices, extents, strict=True)]
    grid = band_grid(draft, nest, reached, [own[i] for i in nest.indices], choice.grid)
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    corner = {index: draft.names.fresh(f"{stem(index)}_tile") for index in choice.tile}
    defines = tuple(
        Define(
            index=corner.get(index, index),
            digits=blocks,
            offset=const(-ahead) if index in choice.lines else ZERO,
        )
        for index, blocks in zip(nest.indices, grid.digits, strict=True)
    )
    tiles = _Tiles(draft, nest, choice, corner)
    found = staged(draft.problem, nest, choice)
    nodes = [node for one in found for node in tiles.load(one)]
    launch = launch_of(draft, region, choice.threads, grid, (*defines, *nodes, *tiles.run(found, ranges)))
    return replace(launch, min_blocks=choice.resident)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Team:
    """A block's threads on one tile: `at` has the names of their places in it, defined by `defines` inside `loops`."""

    at: Mapping[str, str]
    defines: tuple[Define, ...]
    loops: tuple[Digit, ...]
    digits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Runs that begin where sectors of an `origin` do: `shift` iterations behind a thread's place in the tile, of the
    places `inside` what a block owns."""

    origin: Element
    lead: Lead
    shift: IndexExpr
    inside: Condition


class _Tiles:
    """The tiles of one launch; `corner` has the first iteration of a block's tile, by index."""

    def __init__(self, draft: Draft, nest: Nest, choice: Tiled, corner: Mapping[str, str]) -> None:
        self.draft, self.nest, self.choice, self.corner = draft, nest, choice, corner
        self.extents = {par.index: par.extent for par in nest.pars}
        self.names: dict[Element, str] = {}

    # ---- from memory to the tile ----

    def load(self, one: Staged) -> tuple[Node, ...]:
        """A tile is filled: squares of it are loaded, turned and put there."""
        choice, wide, names = self.choice, one.wide, self.draft.names
        array, count, id = wide.element[0], one.along * one.across, getattr(wide.first, "id", one.element[0])
        team = self._team(load_units(choice, one), {choice.along: one.along, choice.across: one.across})
        tile = self.names[one.element] = self._buffer(
            one,
            f"{array}_tile",
            Memory.SHARED,
            tile_layout(choice, one),
            reason(self.draft.problem, self.nest, choice, one),
        )
        square = self._register(one, f"{array}_square", f"{count} elements of {array} as memory has them")
        turned = square if one.across == 1 else self._register(one, f"{array}_turned", "the same as the tile has them")
        row, column = names.fresh(f"{stem(choice.along)}_row"), names.fresh(f"{stem(choice.across)}_column")
        a, e = IndexVar(name=row), IndexVar(name=column)
        over = ((row, const(one.along)), (column, const(one.across)))
        stored = (over[1], over[0])
        here = {
            choice.along: add(self._place(team, choice.along), a),
            choice.across: add(self._place(team, choice.across), e),
        }
        as_loaded = View(buffer=square, subscripts=(add(multiply(const(one.across), a), e),), dtype=wide.dtype)
        as_stored = View(buffer=turned, subscripts=(add(multiply(const(one.along), e), a),), dtype=wide.dtype)
        within = (add(IndexVar(name=team.at[choice.across]), e), add(IndexVar(name=team.at[choice.along]), a))
        digits, span = team.digits, wide.first.span
        load = Copy(
            id=names.fresh(f"{id}_load"),
            source=View(buffer=array, subscripts=at_places(wide.element[1], here), dtype=wide.dtype),
            target=as_loaded,
            over=over,
            access=Access.FUNNEL if one.funnel else Access.ALIGNED,
            digits=digits,
            span=span,
        )
        part = replace(load, id=names.fresh(f"{id}_load_part"), within=self._within(one, team, a))
        turn = Elementwise(
            id=(turn_id := names.fresh(f"{id}_turn")),
            leaves=(
                Bind(id=turn_id, buffer=turned, subscripts=as_stored.subscripts, value=as_loaded.read(span), span=span),
            ),
            over=stored,
            digits=digits,
        )
        store = Copy(
            id=names.fresh(f"{id}_stage"),
            source=as_stored,
            target=View(buffer=tile, subscripts=within, dtype=wide.dtype),
            over=stored,
            access=Access.ALIGNED,
            digits=digits,
            span=span,
        )
        fresh = (Fresh(buffer=square), *((Fresh(buffer=turned),) if turned != square else ()))
        whole, apart = self._whole(one), self._away_from_end(one, cut=True)
        loads: tuple[Node, ...] = (part,) if part.within else (load,)
        if part.within and whole is not None and apart is not None:
            within_array = replace(part, id=names.fresh(f"{id}_load_cut"), within=replace(part.within, exact=False))
            at_end = replace(part, access=Access.EACH)
            loads = (_either(apart, within_array, (at_end,), span),)
        if part.within and whole is not None:
            loads = (_either(whole, load, loads, span),)
        inside = (*team.defines, *fresh, *loads, *((turn,) if turned != square else ()), store)
        return (Fresh(buffer=tile), *_looped(team, inside, self.nest))

    def _whole(self, one: Staged) -> Condition | None:
        """Where a tile has all its iterations, and no access to it leaves the array; None where that is not known."""
        ends: list[Condition] = []
        for index in filter(self._cut, self.choice.tile):
            corner = IndexVar(name=self.corner[index])
            end = add(corner, const(self.choice.tile[index]))
            ends += [Compare(op=CompareOp.LE, left=ZERO, right=corner)] if index in self.choice.lines else []
            ends.append(Compare(op=CompareOp.LE, left=end, right=self.extents[index]))
        if one.funnel:
            away = self._away_from_end(one)
            if away is None:
                return None
            ends.append(away)
        return conjunction(ends)

    def _away_from_end(self, one: Staged, *, cut: bool = False) -> Condition | None:
        """Where no chunk of an access at any address leaves its array, of a tile or of the iterations in it (`cut`);
        None where that is not known, or not asked."""
        name, subscripts = one.element
        layout = self.draft.problem.layouts[name]
        if not one.funnel or self.draft.kernel.buffer(name).align < ACCESS_BYTES:
            return None
        far = self._far(linear(offset(layout, [s for s in subscripts if not isinstance(s, Gather)])), cut=cut)
        return None if far is None else Compare(op=CompareOp.LE, left=add(far, const(one.across)), right=extent(layout))

    def _far(self, address: Linear, *, cut: bool) -> IndexExpr | None:
        """The greatest address of a tile, or of the iterations in it; None where that is not known."""
        ends: dict[str, tuple[IndexExpr, IndexExpr]] = {}
        for index, tile in self.choice.tile.items():
            first = IndexVar(name=self.corner[index])
            both = first, add(first, const(tile - 1))
            clamped = cut and self._cut(index)
            ends[index] = (
                (_clamped(both[0], self.extents[index]), _clamped(both[1], self.extents[index])) if clamped else both
            )
        return greatest(address, ends)

    def _within(self, one: Staged, team: _Team, row: IndexExpr) -> Within | None:
        """Which elements of a row of a square there are, where tiles leave an extent or chunks an array."""
        choice, ends = self.choice, list[IndexExpr]()
        if self._cut(choice.across):
            ends.append(subtract(self.extents[choice.across], self._place(team, choice.across)))
        if self._cut(choice.along):
            here = add(self._place(team, choice.along), row)
            ends.append(multiply(const(one.across), subtract(self.extents[choice.along], here)))
            if choice.lines:
                ends.append(multiply(const(one.across), add(here, ONE)))
        if not ends and not one.funnel:
            return None
        end = reduce(minimum, ends) if ends else const(one.across)
        return Within(begin=ZERO, end=end, other=nothing(one.wide.dtype, one.wide.first.span), exact=True)

    # ---- the tile runs ----

    def run(self, found: Sequence[Staged], ranges: Mapping[str, tuple[IndexExpr, IndexExpr]]) -> tuple[Node, ...]:
        """Every iteration of the tile, in runs along."""
        draft, nest, choice = self.draft, self.nest, self.choice
        count = choice.widths.get(choice.along, 1)
        team = self._team(run_units(choice), {choice.along: count})
        body = Body(draft, hardware=nest.indices, digits=team.digits).nodes(nest.body)
        rows = IndexVar(name=team.at[choice.across])
        columns: IndexExpr = IndexVar(name=team.at[choice.along])
        first, line = choice.along, self._line(team)
        if line is not None:
            columns = add(columns, line.shift)
        if count > 1:
            origin = line.origin if line is not None else None
            held = [one.element for one in found]
            own = along(draft.problem, nest.body, choice.along, nest.indices, held, origin)
            wide = own.vectors(count).wide
            tiled = [replace(one.wide, width=min(count, one.along)) for one in found]
            moved = Vectors(wide=(*tiled, *wide), others=0)
            par = next(p for p in nest.pars if p.index == choice.along)
            counted = Line(lead=line.lead.index) if line is not None else None
            run = make_run(draft, choice.along, par.extent, count, par.span, counted)
            views = {
                one.element: View(buffer=self.names[one.element], subscripts=(rows, columns), dtype=one.wide.dtype)
                for one in found
            }
            body, first = in_run(draft, replace(run, tiled=views), moved, body, team.digits), run.first
        else:
            body = through(body, {one.element: (self.names[one.element], (rows, columns)) for one in found})
        covered = {index: choice.tile.get(index, 1) for index in nest.indices}
        whole = (i for i in choice.tile if i in choice.lines or not self._cut(i))
        condition = padding_guard(nest, {**covered, **dict.fromkeys(whole, 1)}, ranges, {choice.along: first})
        if line is not None:
            condition = conjunction([line.inside, *([] if condition is None else [condition])])
        if condition is not None:
            body = (Guard(condition=condition, body=body, padding=True, span=nest.pars[0].span),)
        start = add(IndexVar(name=self.corner[choice.along]), columns)
        places = (
            Define(index=choice.across, digits=(), offset=self._place(team, choice.across)),
            *((line.lead,) if line is not None else ()),
            Define(index=first, digits=(), offset=start),
        )
        return _looped(team, (*team.defines, *places, *body), nest)

    def _line(self, team: _Team) -> "_Counted | None":
        """Where runs begin that are counted from sectors of memory."""
        draft, choice = self.draft, self.choice
        for index, origin in origins(draft.problem, self.nest, choice.lines).items():
            lead = lead_of(draft.problem, draft.names.fresh("lead"), origin, index, SECTOR_BYTES)
            shift = subtract(const(overlap(draft.problem, self.nest, choice)), IndexVar(name=lead.index))
            last = const(owned(draft.problem, self.nest, choice)[index])
            inside = Compare(op=CompareOp.LT, left=IndexVar(name=team.at[index]), right=last)
            return _Counted(origin=origin, lead=lead, shift=shift, inside=inside)
        return None

    # ---- parts ----

    def _team(self, units: Mapping[str, int], each: Mapping[str, int]) -> _Team:
        """The threads dealt to shares of a tile, of so many iterations `each`, and loops for what they do not cover."""
        draft, nest, choice = self.draft, self.nest, self.choice
        pieces = dealt(nest, units, choice.threads)
        band = thread_digits(nest.indices, pieces, draft.names, draft.target.warp_size, each)
        draft.digits += band.all
        at = {index: draft.names.fresh(f"{stem(index)}_at") for index in units}
        loops: list[Digit] = []
        defines: list[Define] = []
        for index in units:
            number = nest.indices.index(index)
            covered, mine = band.covered[number], band.digits[number]
            if covered < choice.tile[index]:
                turns = const(choice.tile[index] // covered)
                name = draft.names.fresh(f"{stem(index)}_serial")
                loops.append(Digit(name=name, index=index, weight=covered, radix=turns, stride=ONE, place=Place.SERIAL))
                mine = (*mine, loops[-1])
            defines.append(Define(index=at[index], digits=tuple(reversed(mine))))
        draft.digits += loops
        return _Team(at=at, defines=tuple(defines), loops=tuple(loops), digits=tuple(d.name for d in band.all))

    def _place(self, team: _Team, index: str) -> IndexExpr:
        """The iteration at which a thread's share of a tile begins."""
        return add(IndexVar(name=self.corner[index]), IndexVar(name=team.at[index]))

    def _cut(self, index: str) -> bool:
        """Whether tiles reach beyond an extent."""
        if index in self.choice.lines:
            return True
        return not linear(self.extents[index]).is_multiple(self.choice.tile[index], self.draft.problem.divisors)

    def _register(self, one: Staged, name: str, reason: str) -> str:
        return self._buffer(one, name, Memory.REG, row_major((const(one.along * one.across),)), reason)

    def _buffer(self, one: Staged, name: str, memory: Memory, layout: Layout, reason: str) -> str:
        align = TILE_ALIGN_BYTES if memory is Memory.SHARED else ACCESS_BYTES
        return self.draft.local(name, one.wide.dtype, memory, layout, reason, align=align, span=one.wide.first.span)


def _looped(team: _Team, nodes: tuple[Node, ...], nest: Nest) -> tuple[Node, ...]:
    span = nest.pars[0].span
    for digit in reversed(team.loops):
        turns = constant_value(digit.radix) or UNROLLED + 1
        nodes = (
            Loop(index=digit.name, extent=digit.radix, body=nodes, digit=digit, unroll=turns <= UNROLLED, span=span),
        )
    return nodes


def _clamped(place: IndexExpr, extent: IndexExpr) -> IndexExpr:
    return minimum(at_least_zero(place), subtract(extent, ONE))


def _either(condition: Condition, load: Copy, otherwise: tuple[Node, ...], span: Span) -> Guard:
    """A load where a condition holds for the whole block."""
    return Guard(condition=condition, body=(load,), orelse=otherwise, padding=True, uniform=Scope.BLOCK, span=span)
