"""Tiles in phase: rows come in the chunks of memory that hold them, and lie as the rows that are written do.

    par M i, N j { B[j, i] = A[i, j] }      along i, across j, runs counted from sectors of B[j, i]; M = 5 mod 8, bf16

    phase = B[j_tile, i_tile] behind a multiple of 16 bytes
    for i_serial < 9
      i_at = 16*i_serial + …  ;  lead = A[i_tile + i_at, j_tile] behind a multiple of 16 bytes
      copy A_rows[8*i_serial + e] = A[i_tile + i_at, j_tile + j_at - lead + e] for e < 8  (now, aligned)
    …                                                      and the chunk that is left of each row, where lead > 0
    for i_serial_1 < 9
      j_place = 1104 + phase + 157*(j_at - lead) + i_at
      copy A_tile[j_place + 157*e] = A_rows[8*i_serial_1 + e] for e < 8  (now, apart)

The tile has rows that lie 157 elements apart: in chunks of 16 bytes they lie as those of B do, which are M apart. So
nothing is shifted on either side, and no squares are turned: elements go to the tile one by one, where lanes whose
chunks are neighbours meet other banks. Of a row's chunks the first may begin before the tile and the last end behind
it, so the tile has rows more that nobody reads.
"""

from functools import reduce
from math import prod

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexVar, Or
from texpr.grammar.index.expr import ONE, ZERO, add, conjunction, const, constant_value, minimum, multiply, subtract
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.lines import LINE_BYTES, lead_of, origins
from texpr.polyhedral.map.runs import nothing
from texpr.polyhedral.map.tile_parts import Team, TileParts, looped
from texpr.polyhedral.map.tiles import Staged, load_lanes, load_units, pitch, tile_begin
from texpr.polyhedral.map.vectors import ACCESS_BYTES, at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Lead, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem


def phase_of(tiles: TileParts) -> Lead:
    """Where in its chunk the first element of a block's tile lies that is written."""
    (origin,) = origins(tiles.draft.problem, tiles.nest, tiles.choice.lines).values()
    name = tiles.draft.names.fresh("phase")
    corner = {index: IndexVar(name=at) for index, at in tiles.corner.items()}
    bytes = LINE_BYTES if tiles.choice.strips else ACCESS_BYTES
    return lead_of(tiles.draft.problem, name, origin, tiles.choice.along, bytes, corner)


def by_chunks(tiles: TileParts, one: Staged, tile: str, phase: IndexExpr, apart: Condition | None) -> tuple[Node, ...]:
    """A tile is filled: chunks of its rows are loaded, then their elements are put there. `apart`: where no chunk
    leaves the array."""
    parts = [_Chunks(tiles, one, rest=rest) for rest in (False, True)]
    loads: tuple[Node, ...] = tuple(n for part in parts for n in part.load(cut=True, inside=apart is not None))
    if apart is not None:
        each = tuple(n for part in parts for n in part.load(cut=True, access=Access.EACH))
        loads = (_either(apart, loads, each),)
    whole = _either(_whole(tiles, one), tuple(n for part in parts for n in part.load()), loads)
    return (
        *(Fresh(buffer=part.registers) for part in parts),
        whole,
        *(n for part in parts for n in part.store(tile, phase)),
    )


def _whole(tiles: TileParts, one: Staged) -> Condition:
    """Where a tile has all its iterations, and no chunk begins before a row or ends behind it."""
    choice, ends = tiles.choice, list[Condition]()
    sides = ((choice.across, one.across), *(((choice.along, 0),) if not choice.strips else ()))
    for index, beyond in sides:
        corner = IndexVar(name=tiles.corner[index])
        end = add(corner, const(choice.tile[index] + beyond))
        ends.append(Compare(op=CompareOp.LE, left=const(beyond), right=corner))
        ends.append(Compare(op=CompareOp.LE, left=end, right=tiles.extents[index]))
    return conjunction(ends)


def _either(condition: Condition, body: tuple[Node, ...], orelse: tuple[Node, ...]) -> Guard:
    """Loads where a condition holds for the whole block."""
    return Guard(condition=condition, body=body, orelse=orelse, padding=True, uniform=Scope.BLOCK)


class _Chunks:
    """The chunks of one read: as many of each row as the tile is long, or the one that is left at its end (`rest`)."""

    def __init__(self, tiles: TileParts, one: Staged, *, rest: bool) -> None:
        self.tiles, self.one, self.rest = tiles, one, rest
        self.array, self.id = one.element[0], getattr(one.wide.first, "id", one.element[0])
        self.span = one.wide.first.span
        self.column = tiles.draft.names.fresh(f"{stem(tiles.choice.across)}_column")
        turns = prod(constant_value(digit.radix) or 1 for digit in self._team().loops)
        layout, reason = row_major((const(one.across * turns),)), f"chunks of {self.array} as memory has them"
        name = f"{self.array}_{'rest' if rest else 'rows'}"
        self.registers = tiles.buffer(one, name, Memory.REG, layout, reason)

    def load(self, *, cut: bool = False, inside: bool = False, access: Access = Access.ALIGNED) -> tuple[Node, ...]:
        """The chunks are loaded, of those elements that there are where tiles are `cut`."""
        tiles, one, choice, team = self.tiles, self.one, self.tiles.choice, self._team()
        lead = self._lead(team)
        row, begin = tiles.place(team, choice.along), add(IndexVar(name=tiles.corner[choice.across]), self._at(team))
        first = subtract(begin, IndexVar(name=lead.index))
        there = {choice.along: row, choice.across: add(first, IndexVar(name=self.column))}
        within = None
        if cut:
            ends: tuple[IndexExpr, ...] = (subtract(tiles.extents[choice.across], first),)
            if not choice.strips:
                left = subtract(tiles.extents[choice.along], row)
                ends = (*ends, multiply(const(one.across), left), multiply(const(one.across), add(row, ONE)))
            other = nothing(one.wide.dtype, self.span)
            within = Within(
                begin=subtract(ZERO, first), end=reduce(minimum, ends), other=other, unseen=True, inside=inside
            )
        copy = Copy(
            id=tiles.draft.names.fresh(f"{self.id}_load"),
            source=View(buffer=self.array, subscripts=at_places(one.element[1], there), dtype=one.wide.dtype),
            target=self._held(team),
            over=((self.column, const(one.across)),),
            within=within,
            access=access,
            digits=team.digits,
            span=self.span,
        )
        return self._turns(team, lead, copy)

    def store(self, tile: str, phase: IndexExpr) -> tuple[Node, ...]:
        """What the registers have is put into the tile, each element in its row."""
        tiles, one, choice, team = self.tiles, self.one, self.tiles.choice, self._team()
        lead = self._lead(team)
        problem, nest, names = tiles.draft.problem, tiles.nest, tiles.draft.names
        apart = const(pitch(problem, nest, choice))
        row = add(add(const(tile_begin(problem, nest, choice)), phase), IndexVar(name=team.at[choice.along]))
        first = add(row, multiply(apart, subtract(self._at(team), IndexVar(name=lead.index))))
        begin = Define(index=names.fresh(f"{stem(choice.across)}_place"), digits=(), offset=first)
        place = add(IndexVar(name=begin.index), multiply(apart, IndexVar(name=self.column)))
        put = Copy(
            id=names.fresh(f"{self.id}_stage"),
            source=self._held(team),
            target=View(buffer=tile, subscripts=(place,), dtype=one.wide.dtype),
            over=((self.column, const(one.across)),),
            access=Access.APART,
            digits=team.digits,
            span=self.span,
        )
        return self._turns(team, lead, begin, put)

    def _team(self) -> Team:
        tiles, one = self.tiles, self.one
        if self.rest:
            return tiles.team({tiles.choice.along: tiles.choice.tile[tiles.choice.along]}, {})
        lanes = load_lanes(tiles.draft.problem, tiles.nest, tiles.choice)
        return tiles.team(load_units(tiles.choice, one), {tiles.choice.across: one.across}, lanes)

    def _lead(self, team: Team) -> Lead:
        """How far behind a chunk a row of the tile begins."""
        tiles, one, choice = self.tiles, self.one, self.tiles.choice
        corner = IndexVar(name=tiles.corner[choice.across])
        begin = {choice.along: tiles.place(team, choice.along), choice.across: corner}
        of = View(buffer=self.array, subscripts=at_places(one.element[1], begin), dtype=one.wide.dtype)
        return Lead(index=tiles.draft.names.fresh("lead"), of=of, bytes=ACCESS_BYTES)

    def _at(self, team: Team) -> IndexExpr:
        """Where in its row a chunk lies, counted from the first one."""
        across = self.tiles.choice.across
        return const(self.tiles.choice.tile[across]) if self.rest else IndexVar(name=team.at[across])

    def _held(self, team: Team) -> View:
        """The registers of a turn's chunk."""
        turn: IndexExpr = ZERO
        for digit in team.loops:
            turn = add(multiply(digit.radix, turn), IndexVar(name=digit.name))
        at = add(multiply(const(self.one.across), turn), IndexVar(name=self.column))
        return View(buffer=self.registers, subscripts=(at,), dtype=self.one.wide.dtype)

    def _turns(self, team: Team, lead: Lead, *nodes: Node) -> tuple[Node, ...]:
        """The nodes in every turn, for the rows that the tile has; for the rest where there is one."""
        choice = self.tiles.choice
        rows, body = choice.tile[choice.along], nodes
        if self.rest:
            some = Compare(op=CompareOp.LT, left=ZERO, right=IndexVar(name=lead.index))
            body = (Guard(condition=some, body=body, padding=True, span=self.span),)
        body = (lead, *body)
        loops = {digit.index: digit for digit in team.loops}
        long, high = loops.get(choice.across), loops.get(choice.along)
        columns = long.weight if long else choice.tile[choice.across]
        threads = choice.threads if self.rest else choice.threads * self.one.across // columns
        turns = constant_value(high.radix) or 1 if high else 1
        if turns * threads > rows:
            inside: Condition = Compare(op=CompareOp.LT, left=IndexVar(name=team.at[choice.along]), right=const(rows))
            if high:  # only of the last turn anything is asked
                early = Compare(op=CompareOp.LT, left=IndexVar(name=high.name), right=const(turns - 1))
                inside = Or(parts=(early, inside))
            body = (Guard(condition=inside, body=body, padding=True, span=self.span),)
        return looped(team, (*team.defines, *body), self.tiles.nest, unrolled=True)
