"""Launches whose reductions threads and blocks share out; the last block to be done finishes, in a fixed order.

    S[0] = sum N i { X[i] }                   512 threads, at most 528 blocks, 4 neighbours, 2 rounds ahead

    part: i_block of min(528, …) blocks       team: 0 .. 511
    every thread:   p = 0 ; for i_serial: 2 loads of 4 elements, then p += each
    every block:    p = Sum of p over lanes, then of warps        S_blocks[part] = p
    the last block: p = Sum of S_blocks[team + 512*k] for all k, over lanes and warps ; S[0] += p

Where a band's index has threads of its own, lanes run along it, and the parts of an element, in as many warps as are
left, meet in shared memory:

    par N j { C[j] = sum M i { A[i, j] } }    j on 32 lanes, 4 neighbours each; 8 warps share out i, and blocks

What the program says before and after its reductions one thread does for each element, where the parts have met
(`work.py`). A block alone needs no counter. The order of all sums is fixed, so bits do not depend on timing; one launch
is enough; the counters are zeros again when it ends.
"""

from collections.abc import Sequence
from functools import partial

from texpr.grammar.ast import (
    Accumulate,
    Compare,
    CompareOp,
    IndexExpr,
    IndexVar,
    Par,
    Seq,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    const,
    multiply,
    names,
    where_some,
)
from texpr.grammar.index.interval import most
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.by_columns import by_columns, ends_columns, ends_rows
from texpr.polyhedral.map.crew import Crew, Part, parts_of, turns_of
from texpr.polyhedral.map.digits import grid_digits, grid_size, numbered
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.last_turn import rounds
from texpr.polyhedral.map.launches import padding_guard, place_in
from texpr.polyhedral.map.long_sums import narrow
from texpr.polyhedral.map.meeting import last, together
from texpr.polyhedral.map.narrow_picks import narrow_picks
from texpr.polyhedral.map.part_lines import first_of_group, row_groups
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.work import shared_nest, work
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Node
from texpr.polyhedral.names import stem
from texpr.polyhedral.prove.additions import CHAIN


def build_parted(draft: Draft, region: Region, choice: Parted) -> Launch:
    """A band, or plain statements, whose reductions are shared out."""
    nest, ranges = shared_nest(region, choice.shared_out)
    found = work(draft.problem, nest.body, choice.shared_out)
    assert found is not None, "what is shared out has been checked"
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    return _Launch(Crew(draft, region, choice, found), region.name).build()


class _Launch:
    """The launch in the making; `inside` cuts what is no iteration of its band."""

    def __init__(self, crew: Crew, name: str) -> None:
        self.crew, self.name = crew, name
        self.draft, self.choice, self.nest, self.work = crew.draft, crew.choice, crew.nest, crew.work

    def build(self) -> Launch:
        crew, choice, nest = self.crew, self.choice, self.nest
        grid = self._grid()
        body: list[Node] = []
        body.append(Define(index=crew.team_index, digits=tuple(reversed(crew.band.digits[-1]))))
        for par, block, mine in sorted(zip(nest.pars, grid, crew.band.digits, strict=False), key=self._is_along):
            digits = (*((block,) if block else ()), *reversed(mine))
            offset: IndexExpr = ZERO
            if par is crew.along and crew.origin is not None:
                body.append(crew.lead_of(crew.lead, crew.team_index))
                if crew.strip_end:
                    end = const(self.choice.strip)
                    body.append(Define(index=crew.strip_end, digits=(block,) if block else (), offset=end))
                offset = multiply(const(-1), IndexVar(name=crew.lead))
            if par is crew.along and crew.group:
                body.append(Define(index=crew.group, digits=digits))
                digits = ()
                offset = first_of_group(IndexVar(name=crew.group), choice.patch[par.index], crew.apart)
            body.append(Define(index=crew.firsts.get(par.index, par.index), digits=digits, offset=offset))
        if crew.rows_origin is not None:
            body.append(crew.lead_of_rows())
        body += self._tiles(grid)
        covered = crew.covered
        if crew.origin is not None and crew.along is not None:  # each load is told which of its elements there are
            covered[crew.along.index] = 1
        self.inside = padding_guard(nest, covered, crew.ranges, crew.firsts)
        accumulated, parts = self._accumulated()
        body += accumulated
        ending, orders = self._met(parts, grid)
        used = tuple(d for d in grid if d)
        return Launch(
            name=self.name,
            grid=grid_size(used),
            threads=choice.threads,
            min_blocks=choice.resident,
            digits=used,
            body=(*body, *ending),
            orders=orders,
            span=crew.span,
        )

    def _is_along(self, of: tuple[Par, Digit | None, tuple[Digit, ...]]) -> bool:
        """The index along comes last: where its neighbours begin depends on the others."""
        return of[0] is self.crew.along

    def _met(self, parts: Sequence[Part], grid: Sequence[Digit | None]) -> tuple[list[Node], tuple[Order, ...]]:
        """The parts combined, and what comes behind; also the orders between blocks."""
        crew, nest = self.crew, self.nest
        if ends_rows(self.choice) or ends_columns(self.choice, crew.along.index if crew.along is not None else None):
            crew.block = {i: digit for i, digit in zip(nest.indices, grid, strict=False) if digit is not None}
            return by_columns(crew, parts, self._end_of_columns)
        nodes = together(crew, parts, "")
        if crew.part_digit is None:
            return [*nodes, *self._end(crew, parts)], ()
        ending, orders = last(crew, parts, partial(self._end, crew))
        return [*nodes, *ending], orders

    def _end_of_columns(self, crew: Crew, totals: Sequence[Part]) -> list[Node]:
        """The same of a thread with one element, where there is an iteration of it."""
        inside = padding_guard(self.nest, self.crew.covered, crew.ranges)
        _, nodes = self._last(crew, totals)
        return nodes if inside is None else [Guard(condition=inside, body=tuple(nodes), padding=True, span=crew.span)]

    def _grid(self) -> tuple[Digit | None, ...]:
        """The grid digits of the band's indices, and that of the parts."""
        crew, nest, blocks = self.crew, self.nest, self.choice.blocks
        shared = [(r, i) for r in self.work.reductions for i in r.indices if i in blocks]
        counts = {parts_of(r, self.choice, i, frozenset((*nest.indices, *r.indices))) for r, i in shared}
        parts = counts.pop() if len(counts) == 1 else const(max(blocks.values(), default=1))
        extents = [*map(self._covered_extent, nest.pars), parts]
        covered = (*(crew.covered[index] for index in nest.indices), 1)
        order = [*(nest.indices.index(i) for i in self.choice.grid), len(nest.pars)]
        indices = (*(crew.group if crew.group and p is crew.along else p.index for p in nest.pars), crew.part)
        found = grid_digits(indices, extents, covered, order, self.draft.names, self.draft.target, crew.span)
        if found[-1] is not None:
            crew.part_digit, crew.parts = found[-1], found[-1].radix
        return found

    def _covered_extent(self, par: Par) -> IndexExpr:
        """How many iterations of an index, or groups of them, blocks have."""
        extent = add(self.crew.ranges[par.index][1], ONE)
        if not self.crew.group or par is not self.crew.along:
            return extent
        return row_groups(at_least_zero(extent), self.choice.patch[par.index], self.crew.apart)

    def _tiles(self, grid: Sequence[Digit | None]) -> list[Node]:
        """Which part of which elements the block takes."""
        crew = self.crew
        if crew.part_digit is None:
            return []
        tiles = numbered(grid[:-1], self.draft.names)
        self.draft.digits += [digit for tile in tiles for digit in tile.digits]
        crew.tile = tuple(IndexVar(name=tile.index) for tile in tiles)
        crew.tiles = tuple(digit.radix for tile in tiles for digit in tile.digits)
        return [Define(index=crew.part, digits=(crew.part_digit,)), *tiles]

    def _guarded(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """What is run for iterations of the band only."""
        if self.inside is None:
            return tuple(nodes)
        return (Guard(condition=self.inside, body=tuple(nodes), padding=True, span=self.crew.span),)

    # ---- what every thread adds ----

    def _accumulated(self) -> tuple[list[Node], tuple[Part, ...]]:
        nodes, inside, behind, parts = list[Node](), list[Node](), list[Node](), list[Part]()
        body = Body(self.draft, hardware=self.nest.indices, digits=self.crew.own)
        inside += body.nodes(self.work.first)
        for reduction in self.work.reductions:
            picks = narrow_picks(self.crew, reduction)
            if picks is not None:
                parts.append(picks.whole)
                nodes += picks.started()
                inside += rounds(self.crew, picks.reduction, picks.parts)
                behind += picks.widened()
                continue
            own: dict[str, Part] = {}
            narrowed = self._is_short(reduction)
            for update in reduction.updates:
                short = narrowed and self.crew.is_long(update)
                dtype = narrow(update.value).dtype if isinstance(update, Accumulate) and short else None
                part = own[update.id] = self.crew.registers(update, "part", dtype)
                nodes += self.crew.started(part, "init")
            parts += own.values()
            inside += rounds(self.crew, reduction, own)
        return [*nodes, *self._guarded(inside), *behind], tuple(parts)

    def _is_short(self, reduction: Reduction) -> bool:
        """Whether no thread adds more than a partial may get."""
        known, count = size_ranges(self.draft.kernel), 1
        for extent in (
            *turns_of(self.choice, reduction),
            *(s.extent for s in statements(reduction.body) if isinstance(s, Seq)),
        ):
            turns = most(extent, known)
            count = CHAIN + 1 if turns is None else min(count * turns, CHAIN + 1)
        return count * self.choice.ahead * self.choice.widths.get(reduction.over.index, 1) <= CHAIN

    def _end(self, crew: Crew, totals: Sequence[Part]) -> list[Node]:
        """What the program says around its reductions, by the first thread of each team."""
        element, nodes = self._last(crew, totals)
        guarded = self._guarded(crew.of_each(element, nodes))
        if crew.team == 1:
            return list(guarded)
        first = Compare(op=CompareOp.EQ, left=IndexVar(name=crew.team_index), right=ZERO)
        return [Guard(condition=first, body=guarded, span=crew.span)]

    def _last(self, crew: Crew, totals: Sequence[Part]) -> tuple[str, list[Node]]:
        """The statements behind the reductions, for the neighbour of this number."""
        along = crew.along
        by_id = {total.update.id: total for total in totals}
        body = Body(self.draft, hardware=self.nest.indices, digits=crew.own)
        element = self.draft.names.fresh(f"{stem(along.index)}_element") if along is not None else ""
        nodes: list[Node] = []
        for stmt in self.work.last:
            reduction = self.work.at(stmt)
            if reduction is None:
                nodes += body.nodes((stmt,))
                continue
            updates: list[Node] = []
            for update in reduction.updates:
                updates += crew.final(body, by_id[update.id], element)
            extents = (loop.extent for loop in reduction.loops)
            some = where_some(e for e in extents if names(e).isdisjoint(reduction.indices))
            nodes += updates if some is None else [Guard(condition=some, body=tuple(updates), span=stmt.span)]
        return element, nodes
