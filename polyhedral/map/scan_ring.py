"""Rings of rows: what scans of columns move goes through shared memory, in whole chunks both ways.

    par 100003 j { s = 0; seq 257 i { s += X[i, j]; Y[i, j] = s } }      bf16: 384 columns a block, 16 rows a tile

    for i_tile < 3: copy X_ring[i_tile, row, 8*chunk + e] = X[16*i_tile + row, j_strip + 8*chunk - lead + e];  a group
    for i_tile < 17
      s of a thread's column: X_ring[i_tile % 3, i_round, lead + j - j_strip] is X, and then Y, of it
      wait for the next tile's group; barrier
      copy Y[…] = X_ring[…]       from one sector of memory to another: the next block has what is left of its columns
      copy X_ring[i_tile % 3, …] = X[…]      of the tile that comes three later, by the threads that took this one
    lead = (3 * row) % 8: how far behind a chunk of memory a row's columns begin

Rows lie so many elements apart that where each begins in its chunk and sector is known where text is unrolled, as
tiles have a multiple of these. What was read and what is written in its place lie alike, so one ring holds both. A
column has one thread, or some that share it; the copies share the block's threads out by chunks. One barrier a tile
tells all threads both that a tile is computed and that the next one is there.

On an H200 running sums down 257 x 100003 ran at .716 of a copy in bf16 where threads moved single elements, whose
pieces of 64 bytes leave sectors of memory to two warps, and at .856 in f32; through a ring at .847 and .873, with two
blocks of 416 threads a multiprocessor (three of 288: .853; by hand at .755 where pieces end with chunks of 16 bytes and
not with sectors, at .729 where some multiprocessors have a block more). 2053 x 65521 in bf16: .862, .364 without;
4099 x 32003: .841 with two threads for each column, .660 with one, .397 without; in f32 .829, .447. The texts that were
timed left out copies of chunks that nobody wants by a predicate, where these now bring none of their bytes.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexOp, IndexVar, New, Par, Read
from texpr.grammar.index.expr import (
    ZERO,
    add,
    combine,
    conjunction,
    const,
    constant_value,
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.crew import team_of
from texpr.polyhedral.map.digits import power_of_two, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.runs import nothing, through
from texpr.polyhedral.map.scan import Scan
from texpr.polyhedral.map.scan_shifted import Strip, shifted_along
from texpr.polyhedral.map.scan_work import Scans, is_wanted
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Wide, address, arrays_of, at_places, events_of
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.candidate import Scanned
from texpr.polyhedral.mapped.operators import Copy, Generic
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Close, GroupKind, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.mapped.walks import every_node, of_kind
from texpr.polyhedral.names import stem
from texpr.polyhedral.walk import read_accesses, written

GROUP = GroupKind.CP_ASYNC
LEAST_STAGES = 2
WIDEST = 4  # bytes of an element that goes through a ring
ROWS = 16  # of a tile that a thread has: those after which rows begin alike in sectors of narrow elements
MOST, MOST_BLOCKS = 544, 4  # threads in a row, and blocks of them for each multiprocessor
BUSY = 512  # threads of a multiprocessor: where it has fewer, several share a column, and have 64 bytes of it each
LEAST_RING, ON_THEIR_WAY = 3, 40 << 10  # stages, and bytes of a multiprocessor's blocks while one tile is computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ringing:
    """What a scan moves through a ring: one element that it `loads` and one that it `stores`, of one type and alike in
    chunks of so many elements and in sectors. The first column of row r lies `begin + apart * r` elements behind one,
    where r counts from a tile's first row."""

    loads: Wide
    stores: Wide
    begin: int
    apart: int

    @property
    def chunk(self) -> int:
        return self.loads.whole

    @property
    def sector(self) -> int:
        return SECTOR_BYTES // self.loads.dtype.size_bytes

    def lead(self, row: IndexExpr) -> IndexExpr:
        """How many elements lie between where a chunk of memory begins and a row's first column."""
        return _remainder(self.begin, self.apart, row, self.chunk)

    def skip(self, row: IndexExpr) -> IndexExpr:
        """How many of its columns lie before the first sector that begins with one."""
        return _remainder(-self.begin, -self.apart, row, self.sector)


def _remainder(begin: int, apart: int, row: IndexExpr, by: int) -> IndexExpr:
    place = add(const(begin % by), multiply(const(apart % by), row))
    return combine(IndexOp.MOD, place, const(by))


def ringing(problem: Problem, nest: Nest, found: Scans, index: str) -> Ringing | None:
    """What the only scan of a launch moves along an index of the band, None where that is no ring's: it loads one array
    and stores another one whose rows begin alike, and nothing else of arrays moves with the index."""
    if len(found.scans) != 1 or index not in nest.indices:
        return None
    (one,) = found.scans
    beside = [stmt for stmt in found.stmts if found.at(stmt) is None and not isinstance(stmt, New)]
    arrays = arrays_of(problem)
    if any(e is None or (e.writes and e.element[0] in arrays) for e in events_of(tuple(beside))):
        return None
    if any(is_wanted(problem, found, carrier, ()) for carrier in one.carriers):
        return None
    moved = shifted_along(problem, nest, one, index)
    loads, stores = ([w for w in moved if w.loads is kind] for kind in (True, False))
    if len(loads) != 1 or len(stores) != 1 or loads[0].dtype != stores[0].dtype:
        return None
    places = [_place(problem, wide, index, one.index) for wide in (loads[0], stores[0])]
    if None in places or places[0] != places[1]:
        return None
    assert places[0] is not None, "as just asked"
    begin, apart = places[0]
    return Ringing(loads=loads[0], stores=stores[0], begin=begin, apart=apart)


def _place(problem: Problem, wide: Wide, index: str, over: str) -> tuple[int, int] | None:
    """Where the first element of a row lies in its sector, and how far apart rows are, both mod a sector."""
    form, sector = address(problem, wide.element), SECTOR_BYTES // wide.dtype.size_bytes
    apart = form.coefficient(over)
    rest = form.without(over).without(index)
    if apart is None or not (rest - rest.constant).is_multiple(sector, problem.divisors):
        return None
    return rest.constant % sector, apart % sector


def block_columns(form: Ringing, threads: int) -> int:
    """The columns that a block with so many threads in a row has, wherever in a chunk the row begins."""
    return threads - form.chunk + 1


def own_columns(form: Ringing, threads: int) -> int:
    """Those that it stores of each row, from one sector to another."""
    return (block_columns(form, threads) - form.sector + 1) // form.sector * form.sector


def row_threads(form: Ringing, own: int, warp: int) -> int:
    """As many threads in a row as a block has whose `own` columns are so many sectors' at least: whole warps."""
    return -(-(own + form.sector - 1 + form.chunk - 1) // warp) * warp


def tile_rows(choice: Scanned) -> int:
    """The rows of a tile."""
    return team_of(choice) * choice.ahead


def ring_bytes(form: Ringing, choice: Scanned) -> int:
    """The shared memory of a ring."""
    row = prod(n for _, n in choice.deal) * form.loads.dtype.size_bytes
    return choice.ring * tile_rows(choice) * row


def ring_fault(problem: Problem, nest: Nest, choice: Scanned, found: Scans) -> str | None:
    """Why a scan has no ring of so many stages, None where it has one."""
    form = ringing(problem, nest, found, choice.along)
    if form is None:
        return "`ring`: a scan loads one array and stores another one, of one type, whose rows begin alike"
    row = prod(n for _, n in choice.deal)
    if choice.ring < LEAST_STAGES or choice.look_back or choice.next_tile or choice.widths:
        return f"`ring` has {LEAST_STAGES} stages or more, each thread one column, and no block another one's tile"
    if [index for index, _ in choice.deal] != [choice.along] or row % problem.target.warp_size:
        return f"`ring`: whole warps lie along {choice.along}, and along nothing else of the band"
    if choice.strip != own_columns(form, row) or choice.strip < form.sector:
        return f"`strip`: {row} threads in a row store {own_columns(form, row)} columns of it, not {choice.strip}"
    rows = constant_value(found.scans[0].loop.extent)
    if rows is not None and rows <= tile_rows(choice):
        return f"`ring`: one tile of {tile_rows(choice)} rows has all {rows}"
    if choice.ahead % form.sector:
        return f"`ahead` is a multiple of {form.sector} rows, of which each begins elsewhere in a sector"
    return None if problem.target.shared_bytes else "`ring`: it lies in shared memory"


def in_ring(problem: Problem, nest: Nest, choice: Scanned, found: Scans, columns: int) -> Scanned | None:
    """The choice with a ring, where a scan has so many columns that each multiprocessor has some: in as few blocks as
    have no more threads in a row than `MOST`, so that all multiprocessors have as many. Where these threads are few,
    several share a column. A ring has as many stages as keep the memory busy."""
    form, target = ringing(problem, nest, found, choice.along), problem.target
    asked = threads_asked(problem.kernel, target) is not None or blocks_asked(problem.kernel, target) is not None
    if form is None or asked or form.loads.dtype.size_bytes > WIDEST or len(nest.pars) > 1:
        return None
    for blocks in range(1, MOST_BLOCKS + 1):
        own = -(-columns // (blocks * target.multiprocessors * form.sector)) * form.sector
        row = row_threads(form, own, target.warp_size)
        if row <= MOST:
            break
    else:
        return None
    team = power_of_two(-(-BUSY // (blocks * row)))
    ahead = ROWS if team == 1 else ROWS * WIDEST // form.loads.dtype.size_bytes
    own_bytes = team * ahead * row * form.loads.dtype.size_bytes
    return replace(
        choice,
        threads=team * row,
        deal=((choice.along, row),),
        ahead=ahead,
        ring=max(LEAST_RING, 1 + -(-ON_THEIR_WAY // (blocks * own_bytes))),
        strip=own_columns(form, row),
        resident=0,
    )


def strip_in_ring(draft: Draft, form: Ringing, par: Par, choice: Scanned) -> Strip:
    """The strips of the blocks that have a ring each."""
    first, row = draft.names.fresh(f"{stem(par.index)}_strip"), prod(n for _, n in choice.deal)
    return Strip(draft, par, first, block_columns(form, row), choice.strip)


class Ring:
    """The ring of a launch in the making."""

    def __init__(self, draft: Draft, choice: Scanned, form: Ringing, scan: Scan, strip: Strip) -> None:
        self.draft, self.choice, self.form, self.scan, self.strip = draft, choice, form, scan, strip
        fresh, wide = draft.names.fresh, form.loads
        self.rows, self.columns = tile_rows(choice), prod(n for _, n in choice.deal)
        self.chunks = self.columns // form.chunk
        self.together = choice.threads // self.chunks  # rows that all threads copy at a time
        self.thread, self.row, self.chunk, self.again = map(fresh, ("ring_thread", "ring_row", "ring_chunk", "copied"))
        band = thread_digits((self.thread,), ((0, choice.threads),), draft.names, draft.target.warp_size)
        draft.digits += band.all
        self.digits = tuple(digit.name for digit in band.all)
        (mine,) = band.digits
        thread, chunks = IndexVar(name=self.thread), const(self.chunks)
        self.defines = (
            Define(index=self.thread, digits=tuple(reversed(mine))),
            Define(index=self.row, digits=(), offset=combine(IndexOp.DIV, thread, chunks)),
            Define(index=self.chunk, digits=(), offset=combine(IndexOp.MOD, thread, chunks)),
        )
        span, name, extents = wide.first.span, wide.element[0], (choice.ring, self.rows, self.columns)
        reason = f"rows of {name} on their way, and of {form.stores.element[0]} in their place"
        shape = row_major(tuple(map(const, extents)))
        self.buffer = draft.local(
            f"{name}_ring", wide.dtype, Memory.SHARED, shape, reason, align=ACCESS_BYTES, span=span
        )
        out = f"a chunk of {form.stores.element[0]} on its way back"
        held = row_major((const(form.chunk),))
        self.held = draft.local(f"{form.stores.element[0]}_run", wide.dtype, Memory.REG, held, out, span=span)

    @property
    def has_column(self) -> Condition:
        """Whether a thread has a column of its block."""
        end = add(IndexVar(name=self.strip.first), const(self.strip.count))
        return Compare(op=CompareOp.LT, left=IndexVar(name=self.strip.columns.index), right=end)

    def through(self, nodes: tuple[Node, ...], tile: str, row: IndexExpr, round_: IndexExpr) -> tuple[Node, ...]:
        """The nodes of an iteration on the ring in place of arrays: those of a tile's row, which is the `round_`th of a
        thread's."""
        column = subtract(IndexVar(name=self.strip.columns.index), IndexVar(name=self.strip.first))
        place = (self._slot(IndexVar(name=tile)), row, add(self.form.lead(round_), column))
        elements = (self.form.loads.element, self.form.stores.element)
        return through(nodes, dict.fromkeys(elements, (self.buffer, place)))

    def is_harmless(self, nodes: Sequence[Node]) -> bool:
        """Whether nobody sees what an iteration does on rows that there are not: all that it touches is a thread's own,
        or in the ring."""
        for leaf in (node.leaf for node in of_kind(nodes, Generic)):
            touched = {read.buffer for read in read_accesses(leaf)}
            target = written(leaf)
            touched |= {target[0]} if target is not None else set()
            if any(name != self.buffer and self.draft.buffers[name].memory is not Memory.REG for name in touched):
                return False
        asked = (
            n.condition for n in every_node(tuple(nodes)) if isinstance(n, Guard) and isinstance(n.condition, Read)
        )
        return all(read.buffer == self.buffer for read in asked)

    def filled(self, tile: str, tiles: IndexExpr) -> tuple[Node, ...]:
        """The first tiles on their way, and the first of them there; by their index, as that of all others, an order
        tells which of them an iteration reads."""
        body = (self._copied(IndexVar(name=tile), tiles), Close(kind=GROUP))
        extent, span = const(self.choice.ring), self.scan.loop.span
        loop = Loop(index=tile, extent=extent, body=body, unroll=True, span=span)
        return Fresh(buffer=self.buffer), *self.defines, loop, WaitGroup(kind=GROUP, behind=self.choice.ring - 1)

    def turned(self, tile: str, tiles: IndexExpr) -> tuple[Node, ...]:
        """Behind a tile's iterations: the next one is there, this one goes back, and another takes its place."""
        later = add(IndexVar(name=tile), const(self.choice.ring))
        wait = WaitGroup(kind=GROUP, behind=self.choice.ring - 2)
        return wait, *self._back(IndexVar(name=tile)), self._copied(later, tiles), Close(kind=GROUP)

    def over(self) -> tuple[Node, ...]:
        return (WaitGroup(kind=GROUP),)

    # ---- copies ----

    def _slot(self, tile: IndexExpr) -> IndexExpr:
        return combine(IndexOp.MOD, tile, const(self.choice.ring))

    @property
    def _own_row(self) -> IndexExpr:
        """The row of a tile that a thread copies a chunk of, one after another."""
        return add(IndexVar(name=self.row), multiply(const(self.together), IndexVar(name=self.again)))

    @property
    def _column(self) -> IndexExpr:
        """The column with which a thread's chunk begins, from where the strip does: all its rows begin alike."""
        place = multiply(const(self.form.chunk), IndexVar(name=self.chunk))
        return subtract(place, self.form.lead(IndexVar(name=self.row)))

    def _row_of(self, tile: IndexExpr) -> IndexExpr:
        """The iteration of the scan that has that row."""
        return add(multiply(const(self.rows), tile), self._own_row)

    def _each(self, nodes: tuple[Node, ...]) -> Loop:
        """The nodes for each row of a tile of which a thread copies a chunk."""
        extent = const(self.rows // self.together)
        return Loop(index=self.again, extent=extent, body=nodes, unroll=True, span=self.scan.loop.span)

    def _in_array(self, wide: Wide, tile: IndexExpr, element: IndexExpr) -> View:
        column = add(add(IndexVar(name=self.strip.first), self._column), element)
        places = {self.scan.index: self._row_of(tile), self.strip.columns.index: column}
        return View(buffer=wide.element[0], subscripts=at_places(wide.element[1], places), dtype=wide.dtype)

    def _in_ring(self, tile: IndexExpr, element: IndexExpr) -> View:
        column = add(multiply(const(self.form.chunk), IndexVar(name=self.chunk)), element)
        return View(
            buffer=self.buffer, subscripts=(self._slot(tile), self._own_row, column), dtype=self.form.loads.dtype
        )

    def _copied(self, tile: IndexExpr, tiles: IndexExpr) -> Guard:
        """The copies of a tile into its slot, where there is such a tile."""
        wide, e = self.form.loads, self.draft.names.fresh("element")
        columns = minimum(subtract(self.strip.columns.extent, IndexVar(name=self.strip.first)), const(self.strip.count))
        rows = subtract(self.scan.loop.extent, self._row_of(tile))
        copy = Copy(
            id=self.draft.names.fresh(f"{self.scan.index}_load"),
            source=self._in_array(wide, tile, IndexVar(name=e)),
            target=self._in_ring(tile, IndexVar(name=e)),
            over=((e, const(self.form.chunk)),),
            within=Within(
                begin=subtract(ZERO, self._column),
                end=subtract(minimum(columns, multiply(const(self.strip.count), rows)), self._column),
                other=nothing(wide.dtype, wide.first.span),
            ),
            access=Access.ALIGNED,
            completion=Completion.CP_ASYNC,
            digits=self.digits,
            span=wide.first.span,
        )
        there = Compare(op=CompareOp.LT, left=tile, right=tiles)
        return Guard(condition=there, body=(self._each((copy,)),), uniform=Scope.BLOCK, span=copy.span)

    def _back(self, tile: IndexExpr) -> tuple[Node, ...]:
        """The strip of each row of a tile to its array: in whole chunks, but where columns begin or end."""
        wide, e, fresh, strip = self.form.stores, self.draft.names.fresh("element"), self.draft.names.fresh, self.strip
        here, over, span = IndexVar(name=e), ((e, const(self.form.chunk)),), wide.first.span
        held = View(buffer=self.held, subscripts=(here,), dtype=wide.dtype)
        take = Copy(
            id=fresh(f"{self.scan.index}_take"),
            source=self._in_ring(tile, here),
            target=held,
            over=over,
            access=Access.ALIGNED,
            digits=self.digits,
            span=span,
        )
        store = Copy(
            id=fresh(f"{self.scan.index}_store"),
            source=held,
            target=self._in_array(wide, tile, here),
            over=over,
            access=Access.ALIGNED,
            digits=self.digits,
            span=span,
        )
        column, (begin, end) = self._column, strip.ends(self.form.skip(self._own_row))
        whole = conjunction(
            (
                Compare(op=CompareOp.LE, left=begin, right=column),
                Compare(op=CompareOp.LE, left=add(column, const(self.form.chunk)), right=end),
            )
        )
        inner = Guard(condition=whole, body=(take, store), span=span)
        first, last = strip.ends_at_edges(self.form.skip(self._own_row))
        within = Within(begin=subtract(first, column), end=subtract(last, column))
        edges = (
            replace(take, id=fresh(f"{take.id}_edge")),
            replace(store, id=fresh(f"{store.id}_edge"), within=within),
        )
        node = Guard(condition=conjunction(strip.is_inner), body=(inner,), orelse=edges, uniform=Scope.BLOCK, span=span)
        there = Compare(op=CompareOp.LT, left=self._row_of(tile), right=self.scan.loop.extent)
        return Fresh(buffer=self.held), self._each((Guard(condition=there, body=(node,), padding=True, span=span),))
