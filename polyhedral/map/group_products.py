"""The products of a step that a warpgroup makes: how the tiles of both factors lie in shared memory, so that boxes fill
them and one instruction reads them, and which part of them each warpgroup multiplies.

    contract C_sums[m, n] += from A_tile[128*group + m, depth], B_tile[n, depth] for m < 128, n < 208, depth < 64

The tile of a factor whose side is contiguous lies in panels of 64 of its side, [panel, k, 64].
"""

from texpr.grammar.ast import Condition, IndexExpr, IndexOp
from texpr.grammar.index.expr import ZERO, add, combine, const, multiply
from texpr.polyhedral.layout.make import swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.loaded_rows import LoadedRows, are_loaded
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct
from texpr.polyhedral.map.way_back import ALIGN_BYTES, PANEL, Names, panel_of, row_panel, var, view
from texpr.polyhedral.mapped.atoms import Atom, SharedOperand, wgmma, wgmma_sums
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.places import Memory


class GroupProducts:
    """The tiles of the rows (`a`) and of each factor of columns (`b`), the sums of each (`c`), and the rows in
    registers, where they come so."""

    def __init__(self, draft: Draft, product: MatrixProduct, choice: Piped, at: Names) -> None:
        self.draft, self.product, self.choice, self.at = draft, product, choice, at
        self.rows, self.columns = choice.tile[choice.across], choice.tile[choice.along]
        self.factors = product.factors[1:]
        self.a = self._tile(product.rows, self.rows)
        self.b = tuple(self._tile(factor, self.columns) for factor in self.factors)
        self.c = tuple(self._sums() for _ in self.factors)
        self.loaded = LoadedRows(draft, product, choice, at, self.a) if are_loaded(product) else None

    @property
    def bytes(self) -> int:
        """Of the tiles of a step."""
        rows = self.rows + len(self.b) * self.columns
        return rows * self.product.depth * self.product.dtype.size_bytes

    def _panel(self, factor: MatrixFactor, side: int) -> int:
        return panel_of(side) if factor.factor.dtype.bits == 16 else row_panel(factor)

    def _swizzle_bytes(self, factor: MatrixFactor, side: int) -> int:
        """Of a factor's tile: its rows have all of a step's k, or a panel of its side."""
        own = self.product.depth if factor.k_contiguous else self._panel(factor, side)
        return own * factor.factor.dtype.size_bytes

    def _tile(self, factor: MatrixFactor, side: int) -> str:
        panel, depth = self._panel(factor, side), self.product.depth
        shape = (side, depth) if factor.k_contiguous else (side // panel, depth, panel)
        layout = canonical(swizzled(shape, factor.factor.dtype.size_bytes, self._swizzle_bytes(factor, side)))
        return self.draft.local(
            f"{factor.buffer}_tile", factor.factor.dtype, Memory.SHARED, layout, "tiles that tensor cores read",
            align=ALIGN_BYTES, span=self.product.one.update.span,
        )  # fmt: skip

    def _sums(self) -> str:
        layout = wgmma_sums(GROUP_ROWS * self.choice.blocks, self.columns)
        wanted, dtype, reason = f"{self.product.result[0]}_sums", self.product.one.dtype, "the sums of a warpgroup"
        return self.draft.local(wanted, dtype, Memory.REG, layout, reason, span=self.product.one.update.span)

    def of_step(
        self, again: Condition, columns: MatrixFactor, tile: str, sums: str, wide: int, begin: IndexExpr = ZERO
    ) -> Contract:
        """The product of the rows and `wide` columns of a `tile`, from `begin` on: `again`, with the sums so far."""
        at = self.at
        m, n, depth, group = (var(name) for name in (at.m, at.n, at.depth, at.group))
        rows, step = const(GROUP_ROWS * self.choice.blocks), const(self.product.depth)
        first = ZERO if self.choice.alternate else multiply(rows, group)
        a: tuple[IndexExpr, ...] = (add(first, m), depth)
        b: tuple[IndexExpr, ...] = (add(begin, n), depth)
        if not self.product.rows.k_contiguous:
            panel = ZERO if self.choice.alternate else multiply(const(self.choice.blocks), group)
            a = (panel, depth, m)
            if self.choice.blocks > 1:
                own, inside = (combine(op, m, const(PANEL)) for op in (IndexOp.DIV, IndexOp.MOD))
                a = (add(panel, own), depth, inside)
        if not columns.k_contiguous:
            b = (ZERO, depth, n)
        width = const(panel_of(self.columns))
        if not columns.k_contiguous and self.columns > panel_of(self.columns):
            b = (combine(IndexOp.DIV, n, width), depth, combine(IndexOp.MOD, n, width))
        return Contract(
            id=columns.id,
            c=view(self.draft, sums, m, n),
            a=self.loaded.view() if self.loaded else view(self.draft, self.a, *a),
            b=view(self.draft, tile, *b),
            over=((at.m, rows), (at.n, const(wide)), (at.depth, step)),
            atom=self._atom(columns, wide),
            accumulate=again,
            span=self.product.one.update.span,
        )

    def _atom(self, columns: MatrixFactor, wide: int) -> Atom:
        a, b = (
            SharedOperand(swizzle_bytes=self._swizzle_bytes(factor, side), k_contiguous=factor.k_contiguous)
            for factor, side in ((self.product.rows, self.rows), (columns, self.columns))
        )
        return wgmma(self.product.dtype, wide, b, None if self.loaded else a, other=columns.factor.dtype)
