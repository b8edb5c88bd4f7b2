"""The ways of a product by single warps: threads bring tiles of factors into a ring, warps send rows of sums back.

copy A_tile[slot, A_row + 16*round, 8*A_piece + e] = A[i_tile + A_row + 16*round, 64*step + 8*A_piece + e]
    for round < 8, e < 8, 0 <= e < min(K - (64*step + 8*A_piece), 8*(M - i)), else 0                     (cp_async)

barrier (warp) ;  d[w, x, y] = c[16*high + x, 64*wide + y], rounded ;  barrier (warp)
for round < 4: own[e] = d[w, C_row + 4*round, 8*C_piece + e] ;  C[…] = own[e]                  where it is inside
"""

from collections.abc import Sequence
from functools import reduce

from texpr.grammar.ast import Compare, CompareOp, Condition, Const, IndexExpr
from texpr.grammar.index.expr import ZERO, add, conjunction, const, minimum, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32, F64
from texpr.polyhedral.layout.make import row_major, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.finish import Finish
from texpr.polyhedral.map.lane_pairs import EIGHT, PAIR, lane_column, lane_row
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct, in_terms
from texpr.polyhedral.map.ringed_fits import back_columns, piece_elements, piece_row, result_piece
from texpr.polyhedral.map.way_back import ALIGN_BYTES, WARP_ROWS, order, var, view
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.atoms import panel_of, store_pairs, warp_sums
from texpr.polyhedral.mapped.operators import Copy, Unload
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.sync import Action, Barrier
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Within
from texpr.polyhedral.program import Hazard


@dataclass(kw_only=True, slots=True)
class Site:
    """A launch at work on a product: the names of the first row and column of a block's tile, and of those of a warp in
    it, by their side; its digits and orders so far."""

    draft: Draft
    choice: Ringed
    product: MatrixProduct
    corner: dict[str, str]
    own: dict[str, str]
    step: str
    digits: list[Digit]
    orders: list[Order]

    @property
    def span(self) -> Span:
        return self.product.one.update.span

    @property
    def id(self) -> str:
        """Of the products."""
        return self.product.one.update.id

    def fresh(self, name: str) -> str:
        return self.draft.names.fresh(name)

    def define(self, index: str, *pieces: tuple[Place, int | IndexExpr, int, int]) -> Define:
        """An index of digits of hardware: place, radix, stride, weight."""
        found = tuple(
            Digit(
                name=self.fresh(f"{index}_{place.value[:4]}"),
                index=index,
                weight=weight,
                radix=const(radix) if isinstance(radix, int) else radix,
                stride=const(stride),
                place=place,
            )
            for place, radix, stride, weight in pieces
            if not isinstance(radix, int) or radix > 1
        )
        self.digits += found
        return Define(index=index, digits=found)

    def extent(self, side: str) -> IndexExpr:
        height, width, _ = self.product.extents
        return height if side == self.product.rows.index else width

    def cut(self, extent: IndexExpr, tile: int) -> bool:
        """Whether tiles go beyond an extent."""
        return not linear(extent).is_multiple(tile, self.draft.problem.divisors)


class WayIn:
    """A factor on its way to its tile. A thread has one piece of a row, and rows that are a `round` apart; where
    threads bring more rows at once than panels have, that of one of several panels. `readers` are the ids of what reads
    the tile."""

    def __init__(self, site: Site, factor: MatrixFactor, tile: str, readers: Sequence[str]) -> None:
        self.site, self.factor, self.tile, self.readers = site, factor, tile, readers
        self.count = piece_elements(site.draft.problem, factor)
        wide = piece_row(site.choice, factor)
        pieces, threads, warp = wide // self.count, site.choice.threads, site.draft.target.warp_size
        at_once = threads // pieces
        self.apart = at_once if factor.k_contiguous else min(at_once, site.choice.depth)
        self.beside = at_once // self.apart  # panels
        self.row, self.piece, self.first = (site.fresh(f"{factor.buffer}_{word}") for word in ("row", "piece", "panel"))
        self.round, self.panel, self.e = (site.fresh(word) for word in ("round", "panel", "element"))
        low = warp // pieces
        self.defines: tuple[Define, ...] = (
            site.define(self.piece, (Place.LANE, pieces, 1, 1)),
            site.define(self.row, (Place.LANE, low, pieces, 1), (Place.WARP, self.apart // low, 1, low)),
        )
        if self.beside > 1:
            own = site.define(self.first, (Place.WARP, self.beside, self.apart // low, 1))
            self.defines = (*self.defines, own)

    def copy(self, step: IndexExpr, slot: IndexExpr, ahead: int | None) -> Copy:
        """The copy of a step's tile, so many steps `ahead` of the products; None: before the first."""
        site, factor, depth = self.site, self.factor, self.site.choice.depth
        side, summed = factor.index, factor.summed
        row = add(var(self.row), multiply(const(self.apart), var(self.round)))
        piece = multiply(const(self.count), var(self.piece))
        begin, first = multiply(const(depth), step), var(site.corner[side])
        panel = panel_of(factor.factor.dtype)
        panels = site.choice.tile[side] // panel // self.beside
        which: IndexExpr = var(self.panel)
        if self.beside > 1:
            which = add(multiply(const(self.beside), which), var(self.first))
        if factor.k_contiguous:
            i, k = add(first, row), add(begin, piece)
            place: tuple[IndexExpr, ...] = (slot, row, add(piece, var(self.e)))
            rounds, panels = site.choice.tile[side] // self.apart, 0
        else:
            i, k = add(add(first, multiply(const(panel), which)), piece), add(begin, row)
            place = (slot, which, row, add(piece, var(self.e)))
            rounds = depth // self.apart
        moving = summed if factor.k_contiguous else side
        of = {side: i, summed: k}
        of[moving] = add(of[moving], var(self.e))
        ends: list[IndexExpr] = []
        for name, at, extent, tile in (
            (side, i, site.extent(side), site.choice.tile[side]),
            (summed, k, site.product.extents[2], depth),
        ):
            if site.cut(extent, tile):
                left = subtract(extent, at)
                ends.append(left if name == moving else multiply(const(self.count), left))
        dtype = factor.factor.dtype
        zero = Const(value=0.0, dtype=dtype)
        within = Within(begin=ZERO, end=reduce(minimum, ends), other=zero, exact=True) if ends else None
        id = site.fresh(f"{site.id}_{factor.buffer}")
        for reader in self.readers:
            after = None if ahead is None else site.step
            site.orders.append(order(id, reader, self.tile, Hazard.FLOW, Scope.BLOCK, site.span, after, ahead or 1))
            if ahead is not None:
                site.orders.append(order(reader, id, self.tile, Hazard.ANTI, Scope.BLOCK, site.span, site.step))
        return Copy(
            id=id,
            source=view(site.draft, factor.buffer, *(in_terms(s, of) for s in factor.subscripts)),
            target=view(site.draft, self.tile, *place),
            over=(
                *(((self.panel, const(panels)),) if panels else ()),
                (self.round, const(rounds)),
                (self.e, const(self.count)),
            ),
            within=within,
            completion=Completion.CP_ASYNC,
            span=site.span,
        )


class WayOut:
    """The way of the sums of each warp to memory, 16 rows and so many columns at a time: what the program says around
    them is done in registers, and rows go through shared memory, or straight to where threads store them."""

    def __init__(self, site: Site, sums: tuple[str, ...]) -> None:
        self.site, self.draft, self.product, self.choice = site, site.draft, site.product, site.choice
        self.all, self.sums = sums, sums[0]
        product, fresh = site.product, site.fresh
        self.rows, self.columns, self.span = product.rows.index, product.columns.index, product.stored.span
        self.wide = back_columns(site.choice, product)
        self.high, self.chunk, self.lane = fresh("high"), fresh("wide"), fresh("lane")
        self.held = multiply(const(WARP_ROWS), var(self.high)), multiply(const(self.wide), var(self.chunk))
        self.first = tuple(
            add(var(site.corner[side]), add(var(site.own[side]), held))
            for side, held in zip((self.rows, self.columns), self.held, strict=True)
        )
        self.ragged = tuple(site.cut(site.extent(side), self.choice.tile[side]) for side in (self.rows, self.columns))
        self.defines: list[Define] = []
        becomes = product.boxed and not product.epilogue.plain and product.one.dtype not in (F32, F64)
        self.kept = self._kept() if becomes else None

    def nodes(self) -> tuple[Node, ...]:
        product, each = self.product, self.choice.each
        finish = self._finish() if not product.boxed or not product.epilogue.plain else None
        body: tuple[Node, ...] = () if finish is None else self._by_threads(finish)
        if product.boxed:
            body = (*body, *self._in_rows(finish))
        for name, extent in (
            (self.chunk, each[self.columns] // self.wide),
            (self.high, each[self.rows] // WARP_ROWS),
        ):
            body = (Loop(index=name, extent=const(extent), body=body, unroll=True, span=self.span),)
        return (*self.defines, *body)

    def _order(self, source: str, sink: str, buffer: str, hazard: Hazard, after: str | None = None) -> None:
        self.site.orders.append(order(source, sink, buffer, hazard, Scope.WARP, self.span, after))

    # ---- in registers ----

    def _kept(self) -> str:
        """What a part of the sums becomes, in registers of its own, as it is of another type."""
        dtype = self.product.result_dtype if self.product.result_dtype.is_integer else F32
        layout = warp_sums(WARP_ROWS, self.wide)
        wanted, reason = f"{self.product.result[0]}_kept", "what a part of sums becomes"
        return self.draft.local(wanted, dtype, Memory.REG, layout, reason, span=self.span)

    def _finish(self) -> Finish:
        """The epilogue of the element of a thread whose place among its part these indices tell."""
        fresh = self.site.fresh
        self.eight, self.half, self.one = fresh("eight"), fresh("half"), fresh("one")
        self.defines.append(self.site.define(self.lane, (Place.LANE, self.draft.target.warp_size, 1, 1)))
        self.x, self.y = lane_row(self.lane, var(self.half)), lane_column(self.lane, var(self.eight), var(self.one))
        at = add(self.held[0], self.x), add(self.held[1], self.y)
        kept = self.product.main if self.product.boxed else None
        of = tuple(view(self.draft, sums, *at) for sums in self.all)
        place = view(self.draft, self.kept, self.x, self.y) if self.kept is not None else None
        return Finish(self.draft, self.product.epilogue, kept, of, {}, place)

    def _by_threads(self, finish: Finish) -> tuple[Node, ...]:
        sides = (self.product.rows, self.product.columns)
        inside = [
            Compare(op=CompareOp.LT, left=var(factor.index), right=factor.factor.side.extent)
            for factor, beyond in zip(sides, self.ragged, strict=True)
            if beyond
        ]
        row, column = (
            Define(index=factor.index, digits=(), offset=add(first, at))
            for factor, first, at in zip(sides, self.first, (self.x, self.y), strict=True)
        )
        body: tuple[Node, ...] = (column, *finish.where(conjunction(inside) if inside else None))
        body = (row, Loop(index=self.one, extent=const(PAIR), body=body, unroll=True, span=self.span))
        for index, extent in ((self.half, 2), (self.eight, self.wide // EIGHT)):
            body = (Loop(index=index, extent=const(extent), body=body, unroll=True, span=self.span),)
        return body

    # ---- through shared memory ----

    def _in_rows(self, finish: Finish | None) -> tuple[Node, ...]:
        site, draft, product, fresh, wide = self.site, self.draft, self.product, self.site.fresh, self.wide
        result, dtype = product.result[0], product.result_dtype
        count, warp_size = result_piece(draft.problem, product, wide), draft.target.warp_size
        tile = self._tile()
        reason = "elements of a row on their way back"
        own = draft.local(f"{result}_own", dtype, Memory.REG, row_major((const(count),)), reason, span=self.span)
        warp, row, piece = (fresh(name) for name in ("warp", f"{result}_row", f"{result}_piece"))
        round_, part, x, y, e = (fresh(name) for name in ("round", "part", "x", "y", "element"))
        pieces = wide // count
        across = min(pieces, warp_size)
        low = warp_size // across
        lay, take, send = (fresh(f"{site.id}_{word}") for word in ("rounded", "row", "out"))
        inside = add(var(row), multiply(const(low), var(round_)))
        begin = multiply(const(count), add(var(piece), multiply(const(across), var(part))))
        i, j = add(self.first[0], inside), add(self.first[1], begin)
        of = {self.rows: i, self.columns: add(j, var(e))}
        source = view(draft, self.sums, add(self.held[0], var(x)), add(self.held[1], var(y)))
        if self.kept is not None:
            source = view(draft, self.kept, var(x), var(y))
        unload = Unload(
            id=lay,
            source=source,
            target=view(draft, tile, var(warp), var(x), var(y)),
            over=((x, const(WARP_ROWS)), (y, const(wide))),
            atom=store_pairs(dtype),
            span=self.span,
        )
        held = view(draft, own, var(e))
        taken = Copy(
            id=take,
            source=view(draft, tile, var(warp), inside, add(begin, var(e))),
            target=held,
            over=((e, const(count)),),
            access=Access.ALIGNED,
            span=self.span,
        )
        asked, within = self._inside(i, j, count)
        sent: Node = Copy(
            id=send,
            source=held,
            target=view(draft, result, *(in_terms(s, of) for s in product.result[1])),
            over=((e, const(count)),),
            within=within,
            access=Access.ALIGNED,
            span=self.span,
        )
        if asked:
            sent = Guard(condition=conjunction(asked), body=(sent,), padding=True, span=self.span)
        rows: tuple[Node, ...] = (taken, sent)
        for name, extent in ((part, pieces // across), (round_, WARP_ROWS // low)):
            rows = (Loop(index=name, extent=const(extent), body=rows, unroll=True, span=self.span),)
        if finish is not None:
            self._order(finish.last, lay, source.buffer, Hazard.FLOW)
            for loop in (self.chunk, self.high) if self.kept is not None else ():
                self._order(lay, finish.last, source.buffer, Hazard.ANTI, loop)
            for reader, name in finish.reads:
                if name == result:
                    self._order(reader, send, name, Hazard.ANTI)
        self._order(lay, take, tile, Hazard.FLOW)
        self._order(take, lay, tile, Hazard.ANTI, self.chunk)
        self._order(take, lay, tile, Hazard.ANTI, self.high)
        self.defines += (
            site.define(warp, (Place.WARP, self.choice.warps, 1, 1)),
            site.define(piece, (Place.LANE, across, 1, 1)),
            site.define(row, (Place.LANE, low, across, 1)),
        )
        whole = Barrier(scope=Scope.WARP, action=Action.BOTH)
        return (whole, unload, whole, *rows)

    def _inside(self, i: IndexExpr, j: IndexExpr, count: int) -> tuple[list[Condition], Within | None]:
        """Where a row's piece is among the elements that there are, and which of it where that may be some."""
        height, width, _ = self.product.extents
        asked: list[Condition] = []
        if self.ragged[0]:
            asked.append(Compare(op=CompareOp.LT, left=i, right=height))
        if self.ragged[1] and not self.site.cut(width, count):
            asked.append(Compare(op=CompareOp.LT, left=j, right=width))
        elif self.ragged[1]:
            return asked, Within(begin=ZERO, end=subtract(width, j))
        return asked, None

    def _tile(self) -> str:
        """Rows of a warp's sums in shared memory, swizzled."""
        dtype = self.product.result_dtype
        shape = (self.choice.warps, WARP_ROWS, self.wide)
        layout = canonical(swizzled(shape, dtype.size_bytes, self.wide * dtype.size_bytes))
        wanted, reason = f"{self.product.result[0]}_rows", "sums on their way back"
        return self.draft.local(wanted, dtype, Memory.SHARED, layout, reason, align=ALIGN_BYTES, span=self.span)
