"""The way of a tile's sums back to memory: each warp rounds its rows into shared memory, from where boxes are sent.

for chunk < 4                                       64 columns each
  c[…] = what the epilogue makes of it              `finish.py`; nothing where sums are stored as they are
  wait (bulk, all but 1, read) ;  barrier (warp)    the slot is free again
  d[group, warp, chunk % 2, x, y] = c[16*warp + x, 64*chunk + y], rounded, by stmatrix
  fence ;  barrier (warp) ;  C[…] from d            by one lane, while the next chunk is rounded
"""

from collections.abc import Callable
from dataclasses import dataclass

from texpr.grammar.ast import Compare, CompareOp, Gather, IndexExpr, IndexOp, IndexVar, Subscript
from texpr.grammar.index.expr import ZERO, add, combine, conjunction, const, multiply, substitute
from texpr.grammar.source import Span
from texpr.polyhedral.layout.make import swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.finish import Finish
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.atoms import store_rows
from texpr.polyhedral.mapped.candidate import GROUP_ROWS
from texpr.polyhedral.mapped.operators import Copy, Unload
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Action, Barrier, Close, Fence, FenceKind, GroupKind, Until, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.program import Hazard

GROUP_WARPS, WARP_ROWS = 4, 16  # of a warpgroup, and the rows of its products that each of them holds
SWIZZLE_BYTES = 128
PANEL = 64  # elements of factors of so many bytes, after which a swizzle repeats
ALIGN_BYTES = 1024  # of tiles under such a swizzle
SLOTS = 2  # of what a warp sends back


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
    ring: str


class WayBack:
    """What the warps that multiply do with their `sums` at the end of a tile, and the orders that it keeps."""

    def __init__(
        self,
        draft: Draft,
        product: MatrixProduct,
        at: Names,
        *,
        sums: str,
        groups: int,
        columns: int,
        ragged: tuple[bool, ...],
    ) -> None:
        id, fresh, stored = product.one.update.id, draft.names.fresh, product.stored.span
        lay, send = fresh(f"{id}_rounded"), fresh(f"{id}_out")
        rows, panel = _rows(draft, product, groups), SWIZZLE_BYTES // product.result_dtype.size_bytes
        x, y, chunk = var(at.x), var(at.y), multiply(const(panel), var(at.chunk))
        slot = (var(at.group), var(at.warp), combine(IndexOp.MOD, var(at.chunk), const(SLOTS)))
        row = add(multiply(const(GROUP_ROWS), var(at.group)), multiply(const(WARP_ROWS), var(at.warp)))
        of = {
            product.rows.index: add(add(var(at.row), row), x),
            product.columns.index: add(add(var(at.column), chunk), y),
        }
        buffer, subscripts = product.result
        over = ((at.x, const(WARP_ROWS)), (at.y, const(panel)))
        dtype = product.result_dtype
        unload = Unload(
            id=lay,
            source=view(draft, sums, add(multiply(const(WARP_ROWS), var(at.warp)), x), add(chunk, y)),
            target=view(draft, rows, *slot, x, y),
            over=over,
            atom=store_rows(dtype),
            span=stored,
        )
        out = Copy(
            id=send,
            source=view(draft, rows, *slot, x, y),
            target=view(draft, buffer, *(in_terms(s, of) for s in subscripts)),
            over=over,
            completion=Completion.BULK,
            clipped=True,
            span=stored,
        )
        finish, finished = _finish(draft, product, at, sums, (row, chunk), panel, ragged)
        self.orders = (
            *finished(id, lay, send),
            order(id, lay, sums, Hazard.FLOW, Scope.WARP, stored),
            order(lay, send, rows, Hazard.FLOW, Scope.WARP, stored),
            order(send, lay, rows, Hazard.ANTI, Scope.WARP, stored, at.chunk, SLOTS),
            order(send, lay, rows, Hazard.ANTI, Scope.WARP, stored, at.turn),
        )
        together = Barrier(scope=Scope.WARP, action=Action.BOTH)
        free = first_lane(at.lane, WaitGroup(kind=GroupKind.BULK, behind=SLOTS - 1, until=Until.READ))
        body: tuple[Node, ...] = (
            *finish,
            *((free,) if columns > SLOTS * panel else ()),
            together,
            unload,
            Fence(kind=FenceKind.ASYNC_PROXY),
            together,
            first_lane(at.lane, out, Close(kind=GroupKind.BULK)),
        )
        self.loop = Loop(index=at.chunk, extent=const(columns // panel), body=body, unroll=True, span=stored)


def _finish(
    draft: Draft,
    product: MatrixProduct,
    at: Names,
    sums: str,
    first: tuple[IndexExpr, IndexExpr],
    panel: int,
    ragged: tuple[bool, ...],
) -> tuple[tuple[Node, ...], Callable[[str, str, str], tuple[Order, ...]]]:
    """What the epilogue makes of a chunk's sums, each in the thread that holds it, and the orders with the product, the
    way to shared memory and that to memory. `ragged`: tiles go beyond the rows, the columns."""
    if product.epilogue.plain:
        return (), lambda id, lay, send: ()
    fresh, (rows, columns) = draft.names.fresh, (product.rows, product.columns)
    block, half, one = fresh("eight"), fresh("half"), fresh("one")
    x = add(multiply(const(8), var(half)), combine(IndexOp.DIV, var(at.lane), const(4)))
    pair = multiply(const(2), combine(IndexOp.MOD, var(at.lane), const(4)))
    y = add(add(first[1], multiply(const(8), var(block))), add(pair, var(one)))
    of = view(draft, sums, add(multiply(const(WARP_ROWS), var(at.warp)), x), y)
    finish = Finish(draft, product.epilogue, product.main, of)
    inside = [
        Compare(op=CompareOp.LT, left=var(factor.index), right=factor.factor.side.extent)
        for factor, beyond in zip((rows, columns), ragged, strict=True)
        if beyond
    ]
    span = product.stored.span
    column = Define(index=columns.index, digits=(), offset=add(var(at.column), y))
    body: tuple[Node, ...] = (column, *finish.where(conjunction(inside) if inside else None))
    body = (Loop(index=one, extent=const(2), body=body, unroll=True, span=span),)
    body = (Define(index=rows.index, digits=(), offset=add(add(var(at.row), first[0]), x)), *body)
    for index, extent in ((half, 2), (block, panel // 8)):
        body = (Loop(index=index, extent=const(extent), body=body, unroll=True, span=span),)

    def orders(id: str, lay: str, send: str) -> tuple[Order, ...]:
        kept = (order(reader, send, name, Hazard.ANTI, Scope.WARP, span) for reader, name in finish.reads)
        flow, back = (id, finish.first), (finish.last, lay)
        return (*(order(*pair, sums, Hazard.FLOW, Scope.WARP, span) for pair in (flow, back)), *kept)

    return body, orders


def _rows(draft: Draft, product: MatrixProduct, groups: int) -> str:
    dtype, span = product.result_dtype, product.stored.span
    shape = (groups, GROUP_WARPS, SLOTS, WARP_ROWS, SWIZZLE_BYTES // dtype.size_bytes)
    layout = canonical(swizzled(shape, dtype.size_bytes, SWIZZLE_BYTES))
    wanted, reason = f"{product.result[0]}_rows", "sums on their way back"
    return draft.local(wanted, dtype, Memory.SHARED, layout, reason, align=ALIGN_BYTES, span=span)


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


def in_terms(subscript: Subscript, of: dict[str, IndexExpr]) -> Subscript:
    """A subscript with what stands for some indices."""
    assert not isinstance(subscript, Gather), "a box"
    return substitute(subscript, lambda leaf: of.get(leaf.name))
