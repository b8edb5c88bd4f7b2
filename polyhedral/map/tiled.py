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
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.greatest import greatest
from texpr.polyhedral.map.launches import band_grid, band_of, launch_of, padding_guard, place_in
from texpr.polyhedral.map.lines import lead_of, origins
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.phased import by_chunks, phase_of
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.runs import Line, in_run, make_run, nothing, through
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.strips import run_strip
from texpr.polyhedral.map.tile_parts import Team, TileParts, looped
from texpr.polyhedral.map.tiles import (
    Staged,
    load_units,
    overlap,
    owned,
    pitch,
    reason,
    run_units,
    staged,
    tile_begin,
    tile_layout,
)
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Vectors, along, at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Tiled
from texpr.polyhedral.mapped.operators import Copy, Element, Elementwise
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Lead, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem


def build_tiled(draft: Draft, region: Region, choice: Tiled) -> Launch:
    """A band in tiles of two indices, each thread with its iterations of one."""
    nest, ranges, extents = band_of(region)
    own, ahead = owned(draft.problem, nest, choice), overlap(draft.problem, nest, choice)
    reached = [
        add(e, const(ahead - 1)) if ahead and i in choice.lines else e
        for i, e in zip(nest.indices, extents, strict=True)
    ]
    grid = band_grid(draft, nest, reached, [own[i] for i in nest.indices], choice.grid, choice.band)
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
    phase = phase_of(tiles) if choice.phased else None
    strip = phase if choice.strips else None
    nodes = [
        *((phase,) if phase is not None else ()),
        *(node for one in found for node in tiles.load(one, phase)),
        *(tiles.run(found, ranges, phase) if strip is None else run_strip(tiles, found, strip)),
    ]
    launch = launch_of(draft, region, choice.threads, grid, (*defines, *nodes))
    return replace(launch, min_blocks=choice.resident)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Runs that begin where sectors of an `origin` do: `shift` iterations behind a thread's place in the tile, of the
    places `inside` what a block owns."""

    origin: Element
    lead: Lead
    shift: IndexExpr
    inside: Condition


class _Tiles(TileParts):
    """The tiles of one launch; `corner` has the first iteration of a block's tile, by index."""

    # ---- from memory to the tile ----

    def load(self, one: Staged, phase: Lead | None) -> tuple[Node, ...]:
        """A tile is filled."""
        array, problem = one.element[0], self.draft.problem
        layout, why = tile_layout(problem, self.nest, self.choice, one), reason(problem, self.nest, self.choice, one)
        tile = self.names[one.element] = self.buffer(one, f"{array}_tile", Memory.SHARED, layout, why)
        if phase is not None:
            filled = by_chunks(self, one, tile, IndexVar(name=phase.index), self._away_from_end(one, cut=True))
        else:
            filled = self._by_squares(one, tile)
        return (Fresh(buffer=tile), *filled)

    def _by_squares(self, one: Staged, tile: str) -> tuple[Node, ...]:
        """Squares of it are loaded, turned and put there."""
        choice, wide, names = self.choice, one.wide, self.draft.names
        array, count, id = wide.element[0], one.along * one.across, getattr(wide.first, "id", one.element[0])
        team = self.team(load_units(choice, one), {choice.along: one.along, choice.across: one.across})
        square = self.register(one, f"{array}_square", f"{count} elements of {array} as memory has them")
        turned = square if one.across == 1 else self.register(one, f"{array}_turned", "the same as the tile has them")
        row, column = names.fresh(f"{stem(choice.along)}_row"), names.fresh(f"{stem(choice.across)}_column")
        a, e = IndexVar(name=row), IndexVar(name=column)
        over = ((row, const(one.along)), (column, const(one.across)))
        stored = (over[1], over[0])
        here = {
            choice.along: add(self.place(team, choice.along), a),
            choice.across: add(self.place(team, choice.across), e),
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
        return looped(team, inside, self.nest)

    def _whole(self, one: Staged) -> Condition | None:
        """Where a tile has all its iterations, and no access to it leaves the array; None where that is not known."""
        ends: list[Condition] = []
        for index in filter(self.cut, self.choice.tile):
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
        if not (one.funnel or self.choice.phased) or self.draft.kernel.buffer(name).align < ACCESS_BYTES:
            return None
        far = self._far(one, linear(offset(layout, [s for s in subscripts if not isinstance(s, Gather)])), cut=cut)
        return None if far is None else Compare(op=CompareOp.LE, left=add(far, const(one.across)), right=extent(layout))

    def _far(self, one: Staged, address: Linear, *, cut: bool) -> IndexExpr | None:
        """The greatest address of a tile, or of the iterations in it; None where that is not known."""
        ends: dict[str, tuple[IndexExpr, IndexExpr]] = {}
        for index, tile in self.choice.tile.items():
            first = IndexVar(name=self.corner[index])
            beyond = one.across if self.choice.phased and index == self.choice.across else 0
            both = first, add(first, const(tile + beyond - 1))
            clamped = cut and self.cut(index)
            ends[index] = (
                (_clamped(both[0], self.extents[index]), _clamped(both[1], self.extents[index])) if clamped else both
            )
        return greatest(address, ends)

    def _within(self, one: Staged, team: Team, row: IndexExpr) -> Within | None:
        """Which elements of a row of a square there are, where tiles leave an extent or chunks an array."""
        choice, ends = self.choice, list[IndexExpr]()
        if self.cut(choice.across):
            ends.append(subtract(self.extents[choice.across], self.place(team, choice.across)))
        if self.cut(choice.along):
            here = add(self.place(team, choice.along), row)
            ends.append(multiply(const(one.across), subtract(self.extents[choice.along], here)))
            if choice.lines:
                ends.append(multiply(const(one.across), add(here, ONE)))
        if not ends and not one.funnel:
            return None
        end = reduce(minimum, ends) if ends else const(one.across)
        return Within(begin=ZERO, end=end, other=nothing(one.wide.dtype, one.wide.first.span), exact=True)

    # ---- the tile runs ----

    def run(
        self, found: Sequence[Staged], ranges: Mapping[str, tuple[IndexExpr, IndexExpr]], phase: Lead | None
    ) -> tuple[Node, ...]:
        """Every iteration of the tile, in runs along."""
        draft, nest, choice = self.draft, self.nest, self.choice
        count = choice.widths.get(choice.along, 1)
        team = self.team(run_units(choice), {choice.along: count})
        body = Body(draft, hardware=nest.indices, digits=team.digits).nodes(nest.body)
        rows = IndexVar(name=team.at[choice.across])
        columns: IndexExpr = IndexVar(name=team.at[choice.along])
        first, line = choice.along, self._line(team)
        if line is not None:
            columns = add(columns, line.shift)
        lie: tuple[IndexExpr, ...] = (rows, columns)
        if phase is not None:
            problem = draft.problem
            begin = add(const(tile_begin(problem, nest, choice)), IndexVar(name=phase.index))
            lie = (add(add(begin, multiply(const(pitch(problem, nest, choice)), rows)), columns),)
        if count > 1:
            origin = line.origin if line is not None else None
            held = [one.element for one in found]
            own = along(draft.problem, nest.body, choice.along, nest.indices, held, origin)
            wide = own.vectors(count).wide
            tiled = [replace(one.wide, width=count if phase is not None else min(count, one.along)) for one in found]
            moved = Vectors(wide=(*tiled, *wide), others=0)
            par = next(p for p in nest.pars if p.index == choice.along)
            counted = Line(lead=line.lead.index) if line is not None else None
            run = make_run(draft, choice.along, par.extent, count, par.span, counted)
            views = {
                one.element: View(buffer=self.names[one.element], subscripts=lie, dtype=one.wide.dtype) for one in found
            }
            body, first = (
                in_run(draft, replace(run, tiled=views, phased=phase is not None), moved, body, team.digits),
                run.first,
            )
        else:
            body = through(body, {one.element: (self.names[one.element], lie) for one in found})
        covered = owned(draft.problem, nest, choice)
        whole = (i for i in choice.tile if i in choice.lines or not self.cut(i))
        condition = padding_guard(nest, {**covered, **dict.fromkeys(whole, 1)}, ranges, {choice.along: first})
        if line is not None and phase is None:
            condition = conjunction([line.inside, *([] if condition is None else [condition])])
        if condition is not None:
            body = (Guard(condition=condition, body=body, padding=True, span=nest.pars[0].span),)
        start = add(IndexVar(name=self.corner[choice.along]), columns)
        places = (
            Define(index=choice.across, digits=(), offset=self.place(team, choice.across)),
            *((line.lead,) if line is not None else ()),
            Define(index=first, digits=(), offset=start),
        )
        return looped(team, (*team.defines, *places, *body), nest)

    def _line(self, team: Team) -> "_Counted | None":
        """Where runs begin that are counted from sectors of memory."""
        draft, choice = self.draft, self.choice
        for index, origin in origins(draft.problem, self.nest, choice.lines).items():
            lead = lead_of(draft.problem, draft.names.fresh("lead"), origin, index, SECTOR_BYTES)
            shift = subtract(const(overlap(draft.problem, self.nest, choice)), IndexVar(name=lead.index))
            last = const(owned(draft.problem, self.nest, choice)[index])
            inside = Compare(op=CompareOp.LT, left=IndexVar(name=team.at[index]), right=last)
            return _Counted(origin=origin, lead=lead, shift=shift, inside=inside)
        return None


def _clamped(place: IndexExpr, extent: IndexExpr) -> IndexExpr:
    return minimum(at_least_zero(place), subtract(extent, ONE))


def _either(condition: Condition, load: Copy, otherwise: tuple[Node, ...], span: Span) -> Guard:
    """A load where a condition holds for the whole block."""
    return Guard(condition=condition, body=(load,), orelse=otherwise, padding=True, uniform=Scope.BLOCK, span=span)
