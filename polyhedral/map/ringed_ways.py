"""The ways of a product by single warps: threads bring tiles of factors into a ring, warps send rows of sums back.

copy A_tile[slot, A_row + 16*round, 8*A_piece + e] = A[i_tile + A_row + 16*round, 64*step + 8*A_piece + e]
    for round < 8, e < 8, 0 <= e < min(K - (64*step + 8*A_piece), 8*(M - i)), else 0                     (cp_async)

barrier (warp) ;  d[w, x, y] = c[16*high + x, 64*wide + y], rounded ;  barrier (warp)
for round < 4: own[e] = d[w, C_row + 4*round, 8*C_piece + e] ;  C[…] = own[e]                  where it is inside
"""

from dataclasses import dataclass
from functools import reduce

from texpr.grammar.ast import Compare, CompareOp, Condition, Const, IndexExpr
from texpr.grammar.index.expr import ZERO, add, conjunction, const, minimum, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.source import Span
from texpr.polyhedral.layout.make import row_major, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct
from texpr.polyhedral.map.ringed_fits import back_columns, piece_elements, result_piece
from texpr.polyhedral.map.way_back import ALIGN_BYTES, PANEL, WARP_ROWS, finish_rows, in_terms, order, var, view
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.atoms import store_pairs
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
    """A factor on its way to its tile. A thread has one piece of a row, and rows that are a `round` apart."""

    def __init__(self, site: Site, factor: MatrixFactor, tile: str) -> None:
        self.site, self.factor, self.tile = site, factor, tile
        self.count = piece_elements(site.draft.problem, factor)
        wide = site.choice.depth if factor.k_contiguous else PANEL
        pieces, threads, warp = wide // self.count, site.choice.threads, site.draft.target.warp_size
        self.apart = threads // pieces
        self.row, self.piece = (site.fresh(f"{factor.buffer}_{word}") for word in ("row", "piece"))
        self.round, self.panel, self.e = (site.fresh(word) for word in ("round", "panel", "element"))
        low = warp // pieces
        self.defines = (
            site.define(self.piece, (Place.LANE, pieces, 1, 1)),
            site.define(self.row, (Place.LANE, low, pieces, 1), (Place.WARP, threads // warp, 1, low)),
        )

    def copy(self, step: IndexExpr, slot: IndexExpr, ahead: int | None) -> Copy:
        """The copy of a step's tile, so many steps `ahead` of the products; None: before the first."""
        site, factor, depth = self.site, self.factor, self.site.choice.depth
        side, summed = factor.index, site.product.summed
        row = add(var(self.row), multiply(const(self.apart), var(self.round)))
        piece = multiply(const(self.count), var(self.piece))
        begin, first = multiply(const(depth), step), var(site.corner[side])
        panels = site.choice.tile[side] // PANEL
        if factor.k_contiguous:
            i, k = add(first, row), add(begin, piece)
            place: tuple[IndexExpr, ...] = (slot, row, add(piece, var(self.e)))
            rounds, panels = site.choice.tile[side] // self.apart, 0
        else:
            i, k = add(add(first, multiply(const(PANEL), var(self.panel))), piece), add(begin, row)
            place = (slot, var(self.panel), row, add(piece, var(self.e)))
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
        flow = order(
            id, site.id, self.tile, Hazard.FLOW, Scope.BLOCK, site.span, site.step if ahead else None, ahead or 1
        )
        site.orders.append(flow)
        if ahead is not None:
            site.orders.append(order(site.id, id, self.tile, Hazard.ANTI, Scope.BLOCK, site.span, site.step))
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


def way_back(site: Site, sums: str) -> tuple[Node, ...]:
    """The nodes that round the sums of each warp and bring them to memory."""
    draft, product, choice, fresh = site.draft, site.product, site.choice, site.fresh
    rows, columns, stored = product.rows.index, product.columns.index, product.stored.span
    wide = back_columns(choice, product.result_dtype)
    count, warp_size = result_piece(draft.problem, product, wide), draft.target.warp_size
    tile = _rows(site, wide)
    own = draft.local(
        f"{product.result[0]}_own", product.result_dtype, Memory.REG, row_major((const(count),)),
        "elements of a row on their way back", span=stored,
    )  # fmt: skip
    warp, row, piece = (fresh(name) for name in ("warp", f"{product.result[0]}_row", f"{product.result[0]}_piece"))
    high, chunk, round_, part, x, y, e = (fresh(n) for n in ("high", "wide", "round", "part", "x", "y", "element"))
    pieces = wide // count
    across = min(pieces, warp_size)
    low = warp_size // across
    lay, take, send = (fresh(f"{site.id}_{word}") for word in ("rounded", "row", "out"))
    first = add(var(site.corner[rows]), add(var(site.own[rows]), multiply(const(WARP_ROWS), var(high))))
    left = add(var(site.corner[columns]), add(var(site.own[columns]), multiply(const(wide), var(chunk))))
    inside = add(var(row), multiply(const(low), var(round_)))
    begin = multiply(const(count), add(var(piece), multiply(const(across), var(part))))
    i, j = add(first, inside), add(left, begin)
    of = {rows: i, columns: add(j, var(e))}
    whole = Barrier(scope=Scope.WARP, action=Action.BOTH)
    unload = Unload(
        id=lay,
        source=view(
            draft,
            sums,
            add(multiply(const(WARP_ROWS), var(high)), var(x)),
            add(multiply(const(wide), var(chunk)), var(y)),
        ),
        target=view(draft, tile, var(warp), var(x), var(y)),
        over=((x, const(WARP_ROWS)), (y, const(wide))),
        atom=store_pairs(product.result_dtype),
        span=stored,
    )
    held = view(draft, own, var(e))
    taken = Copy(
        id=take,
        source=view(draft, tile, var(warp), inside, add(begin, var(e))),
        target=held,
        over=((e, const(count)),),
        access=Access.ALIGNED,
        span=stored,
    )
    height, width, _ = product.extents
    ragged = site.cut(height, choice.tile[rows]), site.cut(width, choice.tile[columns])
    asked: list[Condition] = []
    within = None
    if ragged[0]:
        asked.append(Compare(op=CompareOp.LT, left=i, right=height))
    if ragged[1] and not site.cut(width, count):
        asked.append(Compare(op=CompareOp.LT, left=j, right=width))
    elif ragged[1]:
        within = Within(begin=ZERO, end=subtract(width, j))
    sent: Node = Copy(
        id=send,
        source=held,
        target=view(draft, product.result[0], *(in_terms(s, of) for s in product.result[1])),
        over=((e, const(count)),),
        within=within,
        access=Access.ALIGNED,
        span=stored,
    )
    if asked:
        sent = Guard(condition=conjunction(asked), body=(sent,), padding=True, span=stored)
    lane = fresh("lane")
    held_at = multiply(const(WARP_ROWS), var(high)), multiply(const(wide), var(chunk))
    finish, finished = finish_rows(draft, product, lane, sums, held_at, (first, left), wide, ragged)
    body: tuple[Node, ...] = (taken, sent)
    for name, extent in (
        (part, pieces // across),
        (round_, WARP_ROWS // low),
    ):
        body = (Loop(index=name, extent=const(extent), body=body, unroll=True, span=stored),)
    body = (*finish, whole, unload, whole, *body)
    for name, extent in ((chunk, choice.each[columns] // wide), (high, choice.each[rows] // WARP_ROWS)):
        body = (Loop(index=name, extent=const(extent), body=body, unroll=True, span=stored),)
    site.orders += (
        *(o for o in finished(site.id, lay, send) if o.source != site.id),  # each lane has its own sums
        order(lay, take, tile, Hazard.FLOW, Scope.WARP, stored),
        order(take, lay, tile, Hazard.ANTI, Scope.WARP, stored, chunk),
        order(take, lay, tile, Hazard.ANTI, Scope.WARP, stored, high),
    )
    return (
        *((site.define(lane, (Place.LANE, warp_size, 1, 1)),) if finish else ()),
        site.define(warp, (Place.WARP, choice.warps, 1, 1)),
        site.define(piece, (Place.LANE, across, 1, 1)),
        site.define(row, (Place.LANE, low, across, 1)),
        *body,
    )


def _rows(site: Site, wide: int) -> str:
    """Rows of a warp's sums in shared memory, swizzled."""
    dtype, span = site.product.result_dtype, site.product.stored.span
    layout = canonical(swizzled((site.choice.warps, WARP_ROWS, wide), dtype.size_bytes, wide * dtype.size_bytes))
    wanted, reason = f"{site.product.result[0]}_rows", "sums on their way back"
    return site.draft.local(wanted, dtype, Memory.SHARED, layout, reason, align=ALIGN_BYTES, span=span)
