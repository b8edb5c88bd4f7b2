"""The way of a tile's sums back to memory: each warp rounds its rows into shared memory, from where boxes are sent.

for chunk < 4                                       64 columns each
  c[…] = what the epilogue makes of it              `finish.py`; nothing where sums are stored as they are
  wait (bulk, all but 1, read) ;  barrier (warp)    the slot is free again
  d[group, warp, chunk % 2, x, y] = c[16*warp + x, 64*chunk + y], rounded, by stmatrix
  fence ;  barrier (warp) ;  C[…] from d            by one lane, while the next chunk is rounded

Where rows and columns are exchanged, what lies side by side in C is a column of the sums of four warps:

  d[group, chunk % 2, y, 16*warp + x] = c[16*warp + x, 208*chunk + y], rounded, by stmatrix.trans
  fence ;  barrier (warpgroup) ;  C[…] from d       boxes of 64 by 208
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexOp, IndexVar, Subscript
from texpr.grammar.index.expr import ZERO, add, combine, conjunction, const, multiply, subtract
from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32
from texpr.polyhedral.layout.make import row_major, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.epilogue import Output
from texpr.polyhedral.map.finish import Finish
from texpr.polyhedral.map.lane_pairs import EIGHT, PAIR, lane_pair, lane_row
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct, in_terms
from texpr.polyhedral.map.pairs import Pairs
from texpr.polyhedral.map.row_parts import RowParts
from texpr.polyhedral.map.tile_rows import TileRows
from texpr.polyhedral.map.triangle import is_whole
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.atoms import lies_apart, store_columns, store_rows, wgmma_sums
from texpr.polyhedral.mapped.operators import Copy, Unload
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Action, Barrier, Close, Fence, FenceKind, GroupKind, Until, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.program import Hazard

GROUP_WARPS, WARP_ROWS = 4, 16  # of a warpgroup, and the rows of its products that each of them holds
SWIZZLE_BYTES = 128
PANEL = 64  # elements of factors of so many bytes, after which a swizzle repeats
ALIGN_BYTES = 1024  # of tiles under such a swizzle


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The indices of a launch."""

    rank: str
    cluster: str
    lane: str
    group: str
    warp: str
    turn: str
    k: str
    row: str
    column: str
    x: str
    y: str
    m: str
    n: str
    depth: str
    chunk: str
    block: str
    ring: str


class WayBack:
    """What the warps that multiply do with their `sums` at the end of a tile, and the orders that it keeps. A group has
    so many `blocks` of 64 rows: its own of the tile, or all where groups alternate. The statements `made` leave sums,
    each those of its own thread where they are no products. `of_tile` defines where a group's rows are, `ahead` is what
    is read of columns before their products, where a thread has `room` in registers for sums and for that. `settled` is
    how a warp waits until its `slots` are free."""

    def __init__(
        self,
        draft: Draft,
        product: MatrixProduct,
        choice: Piped,
        at: Names,
        rows: TileRows,
        *,
        sums: tuple[str, ...],
        made: tuple[str, ...],
        room: int,
    ) -> None:
        self.draft, self.product, self.at, self.rows, self.all, self.sums = draft, product, at, rows, sums, sums[0]
        self.made, self.blocks, self.slots = made, choice.blocks, choice.slots
        self.crossed = product.boxed and product.is_exchanged
        self.together = Scope.WARPGROUP if self.crossed else Scope.WARP  # who fills a box
        columns = choice.tile[choice.along] // choice.split
        self.span, result = product.stored.span, product.result_dtype
        self.panel = row_bytes(product, columns) // result.size_bytes if product.boxed else math.gcd(columns, PANEL)
        above = var(at.block) if self.blocks > 1 else ZERO
        # the first row of a warp in its sums
        self.held = add(multiply(const(GROUP_ROWS), above), multiply(const(WARP_ROWS), var(at.warp)))
        piece = above if choice.alternate else add(multiply(const(self.blocks), var(at.group)), above)
        defined, self.corner = rows.corner(draft.names, var(at.row), piece)
        self.of_tile = defined if self.blocks == 1 else ()
        self.column = multiply(const(self.panel), var(at.chunk))
        self.orders: list[Order] = []
        domain = product.domain
        self.beyond = [*rows.beyond(choice.cluster, draft.problem.divisors), *([domain] if domain is not None else [])]
        width, known = product.columns.factor.side.extent, draft.problem.divisors
        self.ragged = not linear(width).is_multiple(choice.tile[choice.along] * choice.abreast, known)
        becomes = product.boxed and domain is None and not product.epilogue.plain
        self.kept = self._kept() if becomes and product.one.dtype != F32 else None
        self.parts = RowParts(draft, product, choice)
        held = self.blocks * columns * len(sums) + (self.panel if self.kept is not None else 0)
        self.pairs = Pairs(draft, product, columns, room - held // 2)
        self.ahead = self._ahead(columns)
        by_threads, boxes = tuple[Node, ...](), tuple[Node, ...]()
        if domain is not None or not product.boxed or not product.epilogue.plain:
            finish = self._finish(product.main if product.boxed and domain is None else None)
            by_threads = self._by_threads(finish)
        self.settled: tuple[Node, ...] = ()
        again = False
        self.rounded = ""
        if product.boxed:
            self.settled = (self._first(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),)
            again = self.blocks * columns > self.slots * self.panel
            boxes = self._in_boxes(choice.groups, finish if by_threads and domain is None else None, again=again)

        each = again and self.slots == 1  # where a chunk waits for the one before it
        once = self.blocks == 1 or self.slots == 1  # else blocks of rows do

        def over(*body: Node) -> Loop:
            chunks = Loop(index=at.chunk, extent=const(columns // self.panel), body=body, unroll=True, span=span)
            if self.blocks == 1:
                return chunks
            inside = (*defined, *(() if once else self.settled), chunks)
            return Loop(index=at.block, extent=const(self.blocks), body=inside, unroll=True, span=span)

        span = self.span
        # slots are free before the first chunk: those of the tile before are, long over
        front = (*(self.settled if once and not each else ()), *self.parts.begun())
        self.loops: tuple[Node, ...] = (*front, over(*by_threads, *boxes), *self._rows_met(defined))
        if boxes and domain is not None:  # threads store what there is of tiles that it cuts
            whole = is_whole(domain, self.ranges(var(at.row), choice.tile[choice.across], columns))
            assert whole is not None, "the ends of a tile tell it"
            cut = (over(*by_threads),)
            inside = (over(*boxes),)
            self.loops = (*front, Guard(condition=whole, body=inside, orelse=cut, uniform=Scope.BLOCK, span=span))

    def ranges(self, row: IndexExpr, rows: int, columns: int) -> Ranges:
        """The ends of both indices in a tile, or several below one another, from a row on."""
        own, column = self.product, var(self.at.column)
        return {
            own.rows.index: (row, add(row, const(rows - 1))),
            own.columns.index: (column, add(column, const(columns - 1))),
        }

    def _order(
        self, source: str, sink: str, buffer: str, hazard: Hazard, after: str | None = None, by: int = 1,
        scope: Scope = Scope.WARP,
    ) -> None:  # fmt: skip
        self.orders.append(order(source, sink, buffer, hazard, scope, self.span, after, by))

    # ---- in registers ----

    def _kept(self) -> str:
        """What a chunk of the sums becomes, in registers of its own, as it is of another type."""
        dtype = self.product.result_dtype if self.product.result_dtype.is_integer else F32
        layout, reason = wgmma_sums(GROUP_ROWS, self.panel), "what a chunk of sums becomes"
        return self.draft.local(f"{self.product.result[0]}_kept", dtype, Memory.REG, layout, reason, span=self.span)

    def _place(self) -> View:
        """Where an element of a thread is there."""
        assert self.kept is not None, "sums of another type"
        row = add(multiply(const(WARP_ROWS), var(self.at.warp)), self.x)
        return view(self.draft, self.kept, row, subtract(add(self.y, var(self.one)), self.column))

    def _finish(self, kept: Output | None) -> Finish:
        """The epilogue of the element of a thread whose place in its part of a chunk these indices tell."""
        at, fresh = self.at, self.draft.names.fresh
        self.eight, self.half, self.one = fresh("eight"), fresh("half"), fresh("one")
        self.x = lane_row(at.lane, var(self.half))
        self.y = add(add(self.column, multiply(const(EIGHT), var(self.eight))), lane_pair(at.lane))
        row, one = add(self.held, self.x), var(self.one)
        of = tuple(view(self.draft, sums, row, add(self.y, one)) for sums in self.all)
        eighth = add(multiply(const(self.panel // EIGHT), var(at.chunk)), var(self.eight))
        near = {element: self.pairs.view(element, eighth, one) for element in self.pairs.elements}
        place = self._place() if self.kept is not None else None
        parts = self.parts.places(var(at.block) if self.blocks > 1 else ZERO, var(self.half))
        found = Finish(self.draft, self.product.epilogue, kept, of, near, place, parts)
        products = [factor.id for factor in self.product.factors]
        for source, sink, sums in zip(self.made, found.first, self.all, strict=True):
            if source in products:
                self._order(source, sink, sums, Hazard.FLOW)
        return found

    def _ahead(self, columns: int) -> tuple[Node, ...]:
        if not self.pairs.ahead:
            return ()
        eighth = self.draft.names.fresh("eighth")
        first = add(add(var(self.at.column), multiply(const(EIGHT), var(eighth))), lane_pair(self.at.lane))
        body = self._where(self._inside((), first), self.pairs.before(eighth, first))
        loads = Loop(index=eighth, extent=const(columns // EIGHT), body=body, unroll=True, span=self.span)
        return *(Fresh(buffer=name) for name in self.pairs.ahead.values()), loads

    def _rows_met(self, defined: tuple[Node, ...]) -> tuple[Node, ...]:
        """The parts of the rows of a tile, left in memory."""
        lane = self.at.lane

        def row(half: IndexExpr) -> tuple[Node, ...]:
            own = self.rows.at(self.corner, var(self.at.warp), WARP_ROWS, lane_row(lane, half))
            return tuple(Define(index=index, digits=(), offset=value) for index, value in own.items())

        block = var(self.at.block) if self.blocks > 1 else ZERO
        met = self.parts.met(block, lane, var(self.at.column), row, self.beyond)
        if self.blocks == 1 or not met:
            return met
        return (
            Loop(index=self.at.block, extent=const(self.blocks), body=(*defined, *met), unroll=True, span=self.span),
        )

    def _inside(self, rows: Sequence[Condition], column: IndexExpr) -> Condition | None:
        """Where there are such rows of tiles, and a column of the result; None where all are."""
        extent = self.product.columns.factor.side.extent
        columns = (Compare(op=CompareOp.LT, left=column, right=extent),) if self.ragged else ()
        return conjunction([*rows, *columns]) if rows or columns else None

    def _where(
        self, condition: Condition | None, body: tuple[Node, ...], orelse: tuple[Node, ...] = ()
    ) -> tuple[Node, ...]:
        if condition is None or not body:
            return body
        return (Guard(condition=condition, body=body, orelse=orelse, padding=True, span=self.span),)

    def _by_threads(self, finish: Finish) -> tuple[Node, ...]:
        own = self.rows.at(self.corner, var(self.at.warp), WARP_ROWS, self.x)
        rows = tuple(Define(index=index, digits=(), offset=value) for index, value in own.items())
        index, first = self.product.columns.index, add(var(self.at.column), self.y)
        column = Define(index=index, digits=(), offset=add(first, var(self.one)))
        body: tuple[Node, ...]
        before: tuple[Node, ...] = ()
        if self.pairs.elements:
            pair = self.draft.names.fresh("pair")
            ones = Loop(index=self.one, extent=const(PAIR), body=(column, *finish.body), unroll=True, span=self.span)
            none = finish.nothing
            nothing = (replace(ones, body=none),) if none else ()
            body = self._where(self._inside(self.beyond, var(pair)), (*self.pairs.of_row(var(pair)), ones), nothing)
            shared = self._where(self._inside((), var(pair)), self.pairs.of_columns(var(pair)))
            before = (Define(index=pair, digits=(), offset=first), *shared)
        else:
            body = (column, *finish.where(self._inside(self.beyond, var(index))))
            body = (Loop(index=self.one, extent=const(PAIR), body=body, unroll=True, span=self.span),)
        halves = Loop(index=self.half, extent=const(2), body=(*rows, *body), unroll=True, span=self.span)
        eights = const(self.panel // EIGHT)
        return (Loop(index=self.eight, extent=eights, body=(*before, halves), unroll=True, span=self.span),)

    # ---- through shared memory ----

    def _in_boxes(self, groups: int, finish: Finish | None, *, again: bool) -> tuple[Node, ...]:
        """`again`: slots are used again in a tile."""
        draft, product, at, id, fresh = (
            self.draft,
            self.product,
            self.at,
            self.product.one.update.id,
            self.draft.names.fresh,
        )
        self.rounded = lay = fresh(f"{id}_rounded")
        send = fresh(f"{id}_out")
        rows = self._rows(groups)
        x, y = var(at.x), var(at.y)
        warps, piece, count = ((var(at.warp),), var(at.warp), WARP_ROWS) if not self.crossed else ((), ZERO, GROUP_ROWS)
        slot = (var(at.group), *warps, combine(IndexOp.MOD, var(at.chunk), const(self.slots)))
        box, row, behind = self.rows.box(draft.names, at.x, count)
        first = self.rows.first_of(self.corner, piece, count)
        of = {index: add(place, behind[index]) for index, place in first.items()}
        of[product.columns.index] = add(add(var(at.column), self.column), y)
        buffer, subscripts = product.result
        high, wide = (at.x, const(WARP_ROWS)), (at.y, const(self.panel))
        of_warp = add(multiply(const(WARP_ROWS), var(at.warp)), x)
        over, boxes = ((wide, high), (wide, *box)) if self.crossed else ((high, wide), (*box, wide))
        to, place = ((y, of_warp), (y, row)) if self.crossed else ((x, y), (row, y))
        source, at_row, at_column = self.sums, add(self.held, x), add(self.column, y)
        if self.kept is not None:
            source, at_row, at_column = self.kept, of_warp, y
        unload = Unload(
            id=lay,
            source=view(draft, source, at_row, at_column),
            target=view(draft, rows, *slot, *to),
            over=over,
            atom=(store_columns if self.crossed else store_rows)(product.result_dtype),
            span=self.span,
        )
        out = Copy(
            id=send,
            source=view(draft, rows, *slot, *place),
            target=view(draft, buffer, *(in_terms(s, of) for s in subscripts)),
            over=boxes,
            completion=Completion.BULK,
            clipped=True,
            span=self.span,
        )
        if finish is not None:
            self._order(finish.last, lay, source, Hazard.FLOW)
            for loop in (at.block, at.chunk, at.turn) if self.kept is not None else ():
                if loop != at.block or self.blocks > 1:
                    self._order(lay, finish.last, source, Hazard.ANTI, loop)
            for reader, name in finish.reads:
                if name == buffer:
                    self._order(reader, send, name, Hazard.ANTI, scope=self.together)
        if self.kept is None:
            self._order(self.made[0], lay, self.sums, Hazard.FLOW)
        self._order(lay, send, rows, Hazard.FLOW, scope=self.together)
        self._order(send, lay, rows, Hazard.ANTI, at.chunk, self.slots, scope=self.together)
        for loop in (at.block, at.turn) if self.blocks > 1 else (at.turn,):
            self._order(send, lay, rows, Hazard.ANTI, loop, scope=self.together)
        together = Barrier(scope=self.together, action=Action.BOTH)
        free = self._first(WaitGroup(kind=GroupKind.BULK, behind=self.slots - 1, until=Until.READ))
        return (
            *((free,) if again else ()),
            together,
            unload,
            Fence(kind=FenceKind.ASYNC_PROXY),
            together,
            self._first(out, Close(kind=GroupKind.BULK)),
        )

    def _first(self, *body: Node) -> Guard:
        """The first lane of those who fill a box together: of a warp, or of the first one."""
        warps = (var(self.at.warp),) if self.crossed else ()
        firsts = [Compare(op=CompareOp.EQ, left=index, right=ZERO) for index in (*warps, var(self.at.lane))]
        return Guard(condition=conjunction(firsts), body=body)

    def _rows(self, groups: int) -> str:
        dtype = self.product.result_dtype
        of_warp = (groups, GROUP_WARPS, self.slots, WARP_ROWS, self.panel)
        shape = (groups, self.slots, self.panel, GROUP_ROWS) if self.crossed else of_warp
        row = shape[-1] * dtype.size_bytes
        layout = row_major(shape) if lies_apart(row) else canonical(swizzled(shape, dtype.size_bytes, row))
        wanted, reason = f"{self.product.result[0]}_rows", "sums on their way back"
        return self.draft.local(wanted, dtype, Memory.SHARED, layout, reason, align=ALIGN_BYTES, span=self.span)


def panel_of(columns: int) -> int:
    """The columns of the panels in which so many lie, of 16 bits and each under a swizzle."""
    return next(panel for panel in (PANEL, PANEL // 2, PANEL // 4) if columns % panel == 0)


def row_panel(factor: MatrixFactor) -> int:
    """The rows of a panel of a factor that lies along them: 128 bytes."""
    return SWIZZLE_BYTES // factor.factor.dtype.size_bytes


def row_bytes(product: MatrixProduct, columns: int) -> int:
    """The bytes of a row of a box of the result: those of its swizzle, or all that a tile has, under none. Of tiles of
    256 x 208 of 8192³ on an H200 boxes of all columns take 1360 us, halves 1370: they meet fewer lines of the L2 cache.
    """
    bytes_ = columns * product.result_dtype.size_bytes
    swizzle = math.gcd(bytes_, SWIZZLE_BYTES)
    whole = swizzle < SWIZZLE_BYTES // 2 and lies_apart(bytes_) and product.result_dtype.bits == 16
    return bytes_ if whole else swizzle


def view(draft: Draft, buffer: str, *subscripts: Subscript) -> View:
    return View(buffer=buffer, subscripts=subscripts, dtype=draft.buffers[buffer].dtype)


def order(
    source: str, sink: str, buffer: str, hazard: Hazard, scope: Scope, span: Span, after: str | None = None, by: int = 1
) -> Order:
    """`source` is over before `sink` begins, in the same turn, or `by` turns `after` in a loop."""
    return Order(
        source=source, sink=sink, buffer=buffer, hazard=hazard, scope=scope, carried_by=after,
        distance=by if after else None, source_span=span, sink_span=span,
    )  # fmt: skip


def first_lane(lane: str, *body: Node) -> Guard:
    return Guard(condition=Compare(op=CompareOp.EQ, left=var(lane), right=ZERO), body=body)


def var(name: str) -> IndexVar:
    return IndexVar(name=name)
