"""The way of a product's factors into a pipe: what one thread of a block starts for each step of what is summed.

a from A                                          the rows of the block, each its own
b from B, to all blocks of the cluster            of the columns each block its part; of blocks abreast, of the rows

Rows that are boxes of several indices come box by box, and all that is summed at one place of a window step by step:
r = step / 6, s = step / 2 % 3, c = 64*(step % 2), so that what lies together in an image is brought together (an H200:
3 % less time than place by place of each 64 c). Where a call decides how many steps a place has, the places go first.
"""

from collections.abc import Mapping

from texpr.grammar.ast import IndexExpr, IndexOp
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, combine, const, constant_value, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct, in_terms
from texpr.polyhedral.map.side import defined
from texpr.polyhedral.map.tile_rows import TileRows
from texpr.polyhedral.map.way_back import Names, order, panel_of, row_panel, var, view
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import GROUP_ROWS
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.tree import Define, Node
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.program import Hazard


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of the loop of `k` over `steps` of what is summed. Which products, by the ids of their factors, read what
    is brought, and which read before what lay there, so many turns of the loop `apart` (0: in none)."""

    k: str
    steps: int
    read_by: Mapping[str, tuple[str, ...]]
    freed_by: Mapping[str, tuple[str, ...]]
    apart: int


class WayIn:
    """The copies of a step into the tiles `a` and `b`, of these `rows` and so many `columns`, in a cluster of so many
    `ranks`, which share the columns, or the rows where they are `abreast`, and the orders that a ring of so many
    `stages` keeps of them, from the step `begin` on; every second turn of tiles goes `back` from the last one.
    `of_tile` and `of_step` define where the rows of a tile are, and the place of a step in a window. What reads the
    rows, where they are `loaded` into registers; else products do."""

    def __init__(
        self,
        draft: Draft,
        product: MatrixProduct,
        at: Names,
        *,
        a: str,
        b: tuple[str, ...],
        rows: TileRows,
        columns: int,
        ranks: int,
        abreast: bool,
        stages: int,
        begin: IndexExpr,
        turn: Turn | None = None,
        loaded: str | None = None,
        back: bool = False,
    ) -> None:
        self.draft, self.product, self.at = draft, product, at
        self.row_ranks, self.ranks = (ranks, 1) if abreast else (1, ranks)
        itself = {factor.id: (factor.id,) for factor in product.factors[1:]}
        self.turn = turn = turn or Turn(k=at.k, steps=1, read_by=itself, freed_by=itself, apart=stages)
        self.loaded = loaded
        self.rows, self.columns, self.factors = rows, columns, (product.columns, *product.beside)
        self.span: Span = product.one.update.span
        self.orders: list[Order] = []
        self.of_step: tuple[Node, ...] = ()
        self.deep = step = add(begin, multiply(const(turn.steps), var(turn.k)))
        if back:
            last = subtract(subtract(product.steps, ONE), multiply(const(2), step))
            taken = add(step, multiply(combine(IndexOp.MOD, var(at.turn), const(2)), last))
            name = draft.names.fresh(f"{product.summed}_taken")
            self.of_step, self.deep = (Define(index=name, digits=(), offset=taken),), var(name)
        if product.window.loops:
            each = constant_value(ceildiv(product.extents[2], product.depth))
            count = const(each or product.places)
            high, low = (combine(op, step, count) for op in (IndexOp.DIV, IndexOp.MOD))
            place, self.deep = (high, low) if each else (low, high)
            self.of_step = defined(product.window, place)
        self.of_tile, own = self._own(a)
        tiles = zip(self.factors, b, strict=True)
        first = var(at.column)
        shared = (c for f, tile in tiles for c in self._parts(f, tile, first, columns, panel_of(columns), self.ranks))
        self.copies = (*own, *shared)

    def _own(self, tile: str) -> tuple[tuple[Node, ...], tuple[Copy, ...]]:
        """The factor of the rows; and what defines where they are."""
        factor, rows = self.product.rows, GROUP_ROWS * self.rows.groups
        if self.rows.boxes is not None:
            return self._boxes(factor, tile)
        return (), self._parts(factor, tile, var(self.at.row), rows, row_panel(factor), self.row_ranks)

    def _boxes(self, factor: MatrixFactor, tile: str) -> tuple[tuple[Node, ...], tuple[Copy, ...]]:
        """The rows, a box for each 64 of them."""
        names, nodes, copies = self.draft.names, list[Node](), list[Copy]()
        over, row, behind = self.rows.box(names, self.at.x, GROUP_ROWS)
        for group in range(self.rows.groups):
            defines, corner = self.rows.corner(names, var(self.at.row), const(group))
            nodes += defines
            found = {index: add(first, behind[index]) for index, first in corner.first.items()}
            place = (add(const(GROUP_ROWS * group), row), var(self.at.y))
            over_all = (*over, (self.at.y, const(self.product.depth)))
            copies.append(self._made(factor, tile, over_all, place, found, var(self.at.y), own=True))
        return tuple(nodes), tuple(copies)

    def _parts(
        self, factor: MatrixFactor, tile: str, first: IndexExpr, count: int, width: int, ranks: int
    ) -> tuple[Copy, ...]:
        """`count` of a factor's side, which so many blocks of a cluster share: each its part, for all of them. Panels
        that blocks do not share out evenly each of them brings a part of k of."""
        rank, own = var(self.at.rank) if ranks > 1 else ZERO, ranks == 1
        if factor.k_contiguous:
            each = count // ranks
            begin = multiply(const(each), rank)
            return (self._copy(factor, tile, add(first, begin), each, (), begin, own=own),)
        panels = count // width
        if panels % ranks == 0:
            mine = [add(multiply(const(panels // ranks), rank), const(p)) for p in range(panels // ranks)]
            deep, begin = self.product.depth, ZERO
        else:
            mine = [const(p) for p in range(panels)]
            deep = self.product.depth // ranks
            begin = multiply(const(deep), rank)
        return tuple(
            self._copy(factor, tile, add(first, multiply(const(width), p)), width, (p,), begin, own=own, depth=deep)
            for p in mine
        )

    def _copy(
        self,
        factor: MatrixFactor,
        tile: str,
        first: IndexExpr,
        count: int,
        panel: tuple[IndexExpr, ...],
        begin: IndexExpr = ZERO,
        *,
        own: bool,
        depth: int | None = None,
    ) -> Copy:
        """`count` of a factor's side from `first` on, at `begin` of its tile, by all of a step's k; or in a `panel`, by
        so many of these from `begin` on."""
        step = self.product.depth
        side, deep = var(self.at.x), add(begin, var(self.at.y)) if panel else var(self.at.y)
        over: Box
        place: tuple[IndexExpr, ...]
        if panel:
            over, place = ((self.at.y, const(depth or step)), (self.at.x, const(count))), (*panel, deep, side)
        else:
            over, place = ((self.at.x, const(count)), (self.at.y, const(step))), (add(begin, side), deep)
        return self._made(factor, tile, over, place, {factor.index: add(first, side)}, deep, own=own)

    def _made(
        self,
        factor: MatrixFactor,
        tile: str,
        over: Box,
        place: tuple[IndexExpr, ...],
        side: Mapping[str, IndexExpr],
        deep: IndexExpr,
        *,
        own: bool,
    ) -> Copy:
        of = {**side, factor.summed: add(multiply(const(self.product.depth), self.deep), deep)}
        id = self.draft.names.fresh(f"{self.product.one.update.id}_{factor.buffer}")
        scope = Scope.BLOCK if own else Scope.CLUSTER
        turn, at = self.turn, self.turn.k
        readers = self.factors if factor is self.product.rows else (factor,)
        read, freed = ([name for own in readers for name in by[own.id]] for by in (turn.read_by, turn.freed_by))
        if factor is self.product.rows and self.loaded is not None:
            read = freed = [self.loaded]
        self.orders += [order(id, by, tile, Hazard.FLOW, scope, self.span) for by in read]
        if turn.apart:
            self.orders += [order(by, id, tile, Hazard.ANTI, scope, self.span, at, turn.apart) for by in freed]
        return Copy(
            id=id,
            source=view(self.draft, factor.buffer, *(in_terms(s, of) for s in factor.subscripts)),
            target=view(self.draft, tile, *place),
            over=over,
            completion=Completion.TRANSACTION,
            pipe=self.at.ring,
            own_block=own,
            clipped=True,
            span=self.span,
        )
