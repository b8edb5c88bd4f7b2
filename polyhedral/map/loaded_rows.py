"""Rows of products of f32 that lie along their side, [k][m]: tensor cores take them along k from shared memory, so
warps load them from their tile into registers, from which a warpgroup multiplies.

    wait ring
    for deep < 4, m < 16, y < 8: held[deep, 16*warp + m, y] = a[r / 32, 8*deep + y, r % 32], r = 64*group + 16*warp + m
    fence ;  c += held * b ;  close ;  barrier (warp) ;  wait (wgmma) ;  release ring

While one warpgroup loads, the other multiplies. Of an even number of steps each second one has registers of its own, so
that a warpgroup loads while its own products run, too; the loop is unrolled by two, as registers have fixed names.
"""

from texpr.grammar.ast import IndexExpr, IndexOp
from texpr.grammar.index.expr import ZERO, add, combine, const, constant_value, multiply
from texpr.polyhedral.layout.make import numbered
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.way_back import WARP_ROWS, Names, order, row_panel, var, view
from texpr.polyhedral.mapped.atoms import PRODUCT_BYTES, SharedOperand, load_blocks, wgmma
from texpr.polyhedral.mapped.operators import Unload
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Action, Barrier
from texpr.polyhedral.mapped.tree import Define, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.program import Hazard


def are_loaded(product: MatrixProduct) -> bool:
    """Whether a product has its rows from registers."""
    return not product.rows.k_contiguous and product.dtype.bits == 32


class LoadedRows:
    """The rows of a `tile` in the registers of a warpgroup, all k of a step; `id` is what loads them."""

    def __init__(self, draft: Draft, product: MatrixProduct, choice: Piped, at: Names, tile: str) -> None:
        self.draft, self.product, self.choice, self.at, self.tile = draft, product, choice, at, tile
        self.each = PRODUCT_BYTES // product.dtype.size_bytes
        self.count = product.depth // self.each
        steps = constant_value(product.steps)
        self.turns = 2 if steps is not None and steps % 2 == 0 and choice.split == 1 else 1
        self.span = product.one.update.span
        one = wgmma(product.dtype, 8, SharedOperand()).operands["a"].layout
        self.held = draft.local(
            f"{product.rows.buffer}_held", product.dtype, Memory.REG,
            numbered(one, self.turns * self.count, Unit.REGISTER),
            "rows of these products", span=self.span,
        )  # fmt: skip
        self.id, self.first = (draft.names.fresh(f"{product.rows.buffer}_{word}") for word in ("load", "row"))
        self.orders: list[Order] = []
        for factor in product.factors[1:]:  # what a thread loads the fence shows to its products
            before = order(factor.id, self.id, self.held, Hazard.ANTI, Scope.WARP, self.span, at.k, self.turns)
            self.orders.append(before)

    @property
    def registers(self) -> int:
        """Those of a thread."""
        return self.turns * GROUP_ROWS * self.product.depth // (4 * self.draft.target.warp_size)

    @property
    def read(self) -> tuple[Node, ...]:
        """All lanes of a warp have read the tile, whose slot one of them releases."""
        return (Barrier(scope=Scope.WARP, action=Action.BOTH),)

    @property
    def defines(self) -> tuple[Define, ...]:
        """The first row of a warp in the tile."""
        group = ZERO if self.choice.alternate else multiply(const(GROUP_ROWS), var(self.at.group))
        return (Define(index=self.first, digits=(), offset=add(group, multiply(const(WARP_ROWS), var(self.at.warp)))),)

    def nodes(self) -> tuple[Node, ...]:
        """The loads of a step."""
        at, deep, panel = self.at, self.draft.names.fresh("deep"), const(row_panel(self.product.rows))
        row, y = add(var(self.first), var(at.m)), var(at.depth)
        k = add(multiply(const(self.each), var(deep)), y)
        inside = add(multiply(const(WARP_ROWS), var(at.warp)), var(at.m))
        tile = combine(IndexOp.DIV, row, panel), k, combine(IndexOp.MOD, row, panel)
        load = Unload(
            id=self.id,
            source=view(self.draft, self.tile, *tile),
            target=view(self.draft, self.held, self._slot(var(deep)), inside, y),
            over=((at.depth, const(self.each)), (at.m, const(WARP_ROWS))),
            atom=load_blocks(self.product.dtype, WARP_ROWS, SharedOperand(k_contiguous=False), "a"),
            span=self.span,
        )
        return (Loop(index=deep, extent=const(self.count), body=(load,), unroll=True, span=self.span),)

    def view(self) -> View:
        """The rows of a group, as a product takes them."""
        k, each = var(self.at.depth), const(self.each)
        at = self._slot(combine(IndexOp.DIV, k, each)), var(self.at.m), combine(IndexOp.MOD, k, each)
        return view(self.draft, self.held, *at)

    def _slot(self, deep: IndexExpr) -> IndexExpr:
        """Where 32 bytes of k of this step are."""
        if self.turns == 1:
            return deep
        return add(multiply(const(self.count), combine(IndexOp.MOD, var(self.at.k), const(self.turns))), deep)
