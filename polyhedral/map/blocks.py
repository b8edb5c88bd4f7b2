"""Launches of blocks: every iteration of a band has a block, and the nests inside share out its threads.

    par M/64 bi { new t: f32[64] ; par 64 a { t[a] = … } ; par 64 b { … t[63 - b] … } }
    block: bi_block on grid.x;   a = a_lane + 32*a_warp;   b = b_lane + 32*b_warp;   a barrier between

Statements between the nests run once per block, or in every thread where they write its registers.
"""

from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    If,
    IndexExpr,
    New,
    Par,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    ceildiv,
    const,
    index_names,
)
from texpr.polyhedral.map.bands import bounded_nest, is_serial_par
from texpr.polyhedral.map.digits import over_ranks, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.first_sums import bound_once
from texpr.polyhedral.map.held import held_rows, members
from texpr.polyhedral.map.launches import band_grid, band_of, launch_of, of_thread, padding_guard, pieces_of, place_in
from texpr.polyhedral.map.outside import outside
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.reducible import reduction
from texpr.polyhedral.map.reductions import OneMeeting, Team, split
from texpr.polyhedral.map.row_clusters import by_ranks, of_clusters, rank_of
from texpr.polyhedral.map.row_tiles import RowTile, load_row, make_tile
from texpr.polyhedral.map.row_vectors import tell_vectors
from texpr.polyhedral.map.row_words import row_word
from texpr.polyhedral.map.scaled_sums import ScaledPair, scaled_pairs
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.unrolled import Unrolling, unrolling
from texpr.polyhedral.map.updates import targets
from texpr.polyhedral.map.warp_each import by_warps, warp_digit
from texpr.polyhedral.mapped.candidate import Blocks
from texpr.polyhedral.mapped.operators import Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node

FEWEST_BLOCKS = 1  # of a row whose threads meet once for its greatest element and what that scales: more than so many


def build_blocks(draft: Draft, region: Region, choice: Blocks) -> Launch:
    """A band each of whose iterations has a block."""
    nest, ranges, extents = band_of(region)
    covered = {index: choice.together if index == choice.grid[0] else 1 for index in nest.indices}
    grid = band_grid(draft, nest, extents, list(covered.values()), choice.grid)
    grid = of_clusters(grid, choice.cluster)
    place_in(draft, nest.body, choice.memory, block_level=True, outer=nest.indices, ranges=ranges)
    rank = rank_of(draft, choice) if choice.cluster > 1 else None
    body = _Block(draft, nest.indices, choice, nest.body).nodes(nest.body)
    body = body if rank is None else bound_once(draft, tell_vectors(draft, body))
    warp, uniform = warp_digit(draft, choice.grid[0], choice), Scope.BLOCK
    for digit in warp:
        body, uniform = by_warps(draft, digit, bound_once(draft, body)), Scope.WARP
    condition = padding_guard(nest, covered, ranges)
    if condition is not None:
        body = (Guard(condition=condition, body=body, padding=True, uniform=uniform, span=nest.pars[0].span),)
    defines = tuple(
        Define(index=index, digits=(*blocks, *(warp if index == choice.grid[0] else ())))
        for index, blocks in zip(nest.indices, grid.digits, strict=True)
    )
    launch = launch_of(draft, region, choice.threads, grid, (*defines, *body))
    launch = replace(launch, min_blocks=choice.resident)
    return launch if rank is None else by_ranks(draft, launch, choice.cluster, rank)


class _Block:
    """The nodes of statements at block level: nests over the threads, loops and conditions around them."""

    def __init__(self, draft: Draft, outer: tuple[str, ...], choice: Blocks, stmts: tuple[Stmt, ...]) -> None:
        self.draft, self.outer, self.choice = draft, outer, choice
        self.level, self.stmts = Body(draft, hardware=outer), stmts
        self.rows = held_rows(draft.problem, stmts, choice)
        self.tiles: dict[str, RowTile] = {}
        self.pairs: dict[str, ScaledPair] = {}
        self.meetings: dict[str, OneMeeting] = {}

    def nodes(self, stmts: tuple[Stmt, ...]) -> tuple[Node, ...]:
        if self.rows:
            self.pairs |= scaled_pairs(self.draft.kernel, stmts)
        return tuple(node for stmt in stmts for node in (*self._loads(stmt), *self._node(stmt)))

    def _loads(self, stmt: Stmt) -> tuple[Node, ...]:
        """Before the first loop over a row, its loads."""
        if not isinstance(stmt, Seq | Par) or stmt.index not in self.rows or stmt.index in self.tiles:
            return ()
        row, held = self.rows[stmt.index]
        width, bound = self.choice.widths.get(stmt.index, 1), self.choice.resident > 1
        wrote = any(index in self.choice.inner for index in row.indices)
        value = outside(
            self.draft.kernel, members(self.stmts, row.indices), {p.second.index for p in self.pairs.values()}
        )
        if not row.line and not any(self._may_meet_once(pair) for pair in self.pairs.values()):
            value = None  # a run is there or not
        tile = make_tile(self.draft, row, held, width, self.choice.team, bound=bound, wrote=wrote, outside=value)
        self.tiles |= dict.fromkeys(row.indices, tile)
        return load_row(self.draft, tile, row, stmt, self.choice.team, self.choice.cluster)

    def _node(self, stmt: Stmt) -> tuple[Node, ...]:
        match stmt:
            case Par() if not is_serial_par(stmt):
                return self._inner(stmt)
            case Seq() if loops := self._shared(stmt):
                if stmt.index in self.pairs and self._may_meet_once(self.pairs[stmt.index]):
                    return self._once(stmt, self.pairs[stmt.index])
                *outer, seq = loops
                loads = self._loads(seq) if outer else ()
                return split(self.draft, self._team(seq), seq, tuple(outer), loads)
            case Seq(body=body):
                return (self.level.loop(stmt, self.nodes(body)),)
            case If(condition=condition, then=then, orelse=orelse):
                return (
                    Guard(
                        condition=self.level.condition(condition),
                        body=self.nodes(then),
                        orelse=self.nodes(orelse),
                        uniform=Scope.BLOCK,
                        span=stmt.span,
                    ),
                )
            case New():
                return self.level.nodes((stmt,))
            case _:
                return Body(self.draft, hardware=self.outer, unused=self._unused(stmt)).nodes((stmt,))

    def _team(self, seq: Seq) -> Team:
        return Team(
            outer=self.outer,
            threads=self.choice.team,
            width=self.choice.widths.get(seq.index, 1),
            tile=self.tiles.get(seq.index),
            ranks=self.choice.cluster,
        )

    def _may_meet_once(self, pair: ScaledPair) -> bool:
        """Whether threads have the same elements in both loops, and each of them what is made of these. In one block
        they would scale more parts than they have elements (softmax of 32768 x 4096 in f32 ran at .75 of a copy so on
        an H200, at .99 with two meetings), and those that hold a row in registers to write it have none for a base of
        their own (softmax of 257 x 100003 in f32: .84, and .88)."""
        first, second = (self.rows.get(loop.index) for loop in (pair.first, pair.second))
        if self.choice.cluster <= FEWEST_BLOCKS or first is None or not (first[0].slots or not self.choice.inner):
            return False
        registers = all(self.draft.buffers[name].memory is Memory.REG for name, _ in targets(pair.update))
        return first is not None and second is not None and first[0] is second[0] and registers

    def _once(self, stmt: Seq, pair: ScaledPair) -> tuple[Node, ...]:
        """One of two loops of threads that meet once for both."""
        if stmt.index == pair.first.index:
            meeting = self.meetings[pair.second.index] = OneMeeting(self.draft, self._team(stmt), pair)
            return meeting.first()
        return self.meetings[stmt.index].second()

    def _shared(self, top: Seq) -> tuple[Seq, ...]:
        """The loops from this one to one whose iterations the threads share out, where nothing is done but that; empty
        where there are none."""
        loops = [top]
        while loops[-1].index not in self.choice.shared_out:
            match loops[-1].body:
                case (Seq() as inner,):
                    loops.append(inner)
                case _:
                    return ()
        box = not any(index_names(loop.extent) for loop in loops)
        together = box and reduction(self.draft.kernel, top, loops[-1].index) is not None
        return tuple(loops) if together or len(loops) == 1 else ()

    def _unused(self, stmt: Stmt) -> Unused | None:
        """Replicated where the statement writes registers that every thread keeps, else once."""
        if self.choice.team == 1:
            return None
        if isinstance(stmt, Bind | Accumulate) and self.draft.buffers[stmt.buffer].memory is Memory.REG:
            return Unused.REPLICATED
        return Unused.ONCE

    def _inner(self, par: Par) -> tuple[Node, ...]:
        """One nest over the threads of the block, with a serial digit for what they do not cover."""
        draft = self.draft
        nest, known = bounded_nest(par)
        extents = [add(known[p.index][1], ONE) for p in nest.pars]
        pieces, widths = pieces_of(nest, self.choice.inner[par.index]), self.choice.widths
        band = thread_digits(nest.indices, pieces, draft.names, draft.target.warp_size, widths)
        band = over_ranks(band, self.choice.cluster, draft.names)
        tile = self.tiles.get(par.index)
        shares = tile.shares(draft, band) if tile is not None else None
        band = shares.band if shares is not None else band
        draft.digits += band.all
        serial = [self._serial_digit(p, e, n) for p, e, n in zip(nest.pars, extents, band.covered, strict=True)]
        own_digits = tuple(digit for digit in serial if digit is not None)
        nodes, names = of_thread(
            draft,
            nest,
            band,
            known,
            hardware=self.outer + nest.indices,
            widths=widths,
            tile=tile,
            shares=shares,
            serial=own_digits,
        )
        begin, told = (shares.begin, (shares.digits,)) if shares is not None else (ZERO, band.digits)
        defines = tuple(
            Define(index=names.get(p.index, p.index), digits=(*((own,) if own else ()), *reversed(mine)), offset=begin)
            for p, own, mine in zip(nest.pars, serial, told, strict=True)
        )
        arrived = tile.arrived(par) if tile is not None else ()
        nodes = (*arrived, *(shares.threads if shares is not None else ()), *defines, *nodes)
        word = row_word(draft, nest, tile, self.outer + nest.indices) if tile is not None else None
        for p, digit in reversed(list(zip(nest.pars, serial, strict=True))):
            if digit is not None:
                draft.digits.append(digit)
                asked = Unrolling(whole=True) if tile is not None else unrolling(p, digit.radix)
                nodes = (
                    Loop(
                        index=digit.name,
                        extent=digit.radix,
                        body=nodes,
                        digit=digit,
                        unroll=asked.whole,
                        unroll_by=asked.by,
                        word=word,
                        span=p.span,
                    ),
                )
        return nodes

    def _serial_digit(self, par: Par, extent: IndexExpr, covered: int) -> Digit | None:
        tile = self.tiles.get(par.index)
        radix = ceildiv(at_least_zero(extent), covered) if tile is None else const(tile.rounds)
        if radix == ONE:
            return None
        name = self.draft.names.fresh(f"{par.index}_serial")
        return Digit(name=name, index=par.index, weight=covered, radix=radix, stride=ONE, place=Place.SERIAL)
