"""The turns of blocks that stay: which tiles they take, and which steps of the sum each of them runs over.

    for turn < ceildiv(tiles - cluster, clusters): tile = clusters*turn + cluster ;  row, column = its place in bands
      for k < steps                                                of a part of them, where blocks share those of a tile

Who brings tiles and who multiplies go through the same turns.
"""

from functools import reduce

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    ceildiv,
    combine,
    const,
    constant_value,
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.loaded_rows import LoadedRows
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.streamed import Streamed
from texpr.polyhedral.map.tile_order import TileOrder
from texpr.polyhedral.map.tile_rows import TileRows
from texpr.polyhedral.map.triangle import meets
from texpr.polyhedral.map.way_back import Names, WayBack, var
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.tree import Guard, Loop, Node

LONG = 30  # steps of a sum, from which on it is one after the other
TOGETHER = 8  # of them, of the one tile of a warpgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """All tiles of a launch: so many `clusters` of blocks take `of_all`, `down` by `across` for each of the others."""

    down: IndexExpr
    across: IndexExpr
    of_all: IndexExpr
    clusters: int

    @classmethod
    def of(cls, product: MatrixProduct, choice: Piped, rows: TileRows) -> "Tiles":
        down = rows.down(choice)  # clusters of tiles from top to bottom
        columns = choice.tile[choice.along] * choice.abreast
        across = ceildiv(product.columns.factor.side.extent, columns)
        of_all = reduce(multiply, (par.extent for par in product.others), multiply(down, across))
        return cls(down=down, across=across, of_all=of_all, clusters=choice.persistent // (choice.ranks * choice.split))

    @property
    def count(self) -> int | None:
        """How many there are, where the sizes say it."""
        return constant_value(self.of_all)

    def blocks(self, together: int) -> IndexExpr:
        """Those of the choice, so many in a cluster; where a call decides the sizes, no more than have a tile."""
        chosen = const(together * self.clusters)
        return chosen if self.count is not None else minimum(chosen, multiply(const(together), self.of_all))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The turns of a launch, whose sums go `back` and whose rows may be `loaded` to registers."""

    draft: Draft
    product: MatrixProduct
    choice: Piped
    at: Names
    tiles: Tiles
    rows: TileRows
    back: WayBack
    loaded: LoadedRows | None
    streamed: Streamed | None

    @property
    def steps(self) -> tuple[IndexExpr, IndexExpr]:
        """The first step of a block, and how many it has."""
        if self.streamed is not None:
            return self.streamed.piece
        steps, parts, rank = self.product.steps, self.choice.split, var(self.at.rank)
        if parts == 1:
            return ZERO, steps
        begin, end = (combine(IndexOp.DIV, multiply(steps, r), const(parts)) for r in (rank, add(rank, ONE)))
        whole = linear(steps).is_multiple(parts, {})
        return begin, combine(IndexOp.DIV, steps, const(parts)) if whole else subtract(end, begin)

    @property
    def goes_back(self) -> bool:
        """Whether every second turn sums from the end on: what was brought last is in the L2 cache yet, of rows or
        columns that the next tile has, too. 4096³ in bf16 on an H200 takes 175.3 us, 177.0 always from the start."""
        shared = self.choice.split > 1 or self.choice.streamed
        plain = not (self.product.window.loops or self.product.in_portions or self.loaded or shared)
        several = self._is_known() and (self.tiles.count or 0) > self.tiles.clusters
        return plain and several and (constant_value(self.product.steps) or 0) > 1

    def over_tiles(self, *body: Node) -> Loop:
        """A body for each tile of a block, of a triangle for those that meet it."""
        every, at, span = self.tiles, self.at, self.product.one.update.span
        turns = combine(IndexOp.CEILDIV, subtract(every.of_all, var(at.cluster)), const(every.clusters))
        turns = self.streamed.turns if self.streamed else turns
        domain, ranks = self.product.domain, self.choice.ranks
        if domain is not None:  # the blocks of a cluster do the same
            first = subtract(var(at.row), multiply(const(self.high), var(at.rank))) if ranks > 1 else var(at.row)
            some = meets(domain, self.back.ranges(first, self.high * ranks, self.wide))
            assert some is not None, "the ends of a tile tell it"
            scope = Scope.CLUSTER if ranks > 1 else Scope.BLOCK
            body = (Guard(condition=some, body=body, uniform=scope, span=span),)
        return Loop(index=at.turn, extent=turns, body=(*self._place(), *body), span=span)

    def over_k(self, *body: Node) -> Loop:
        """A body for each step of a turn."""
        # Where one warpgroup has one tile, the turns of its ring are known in eight steps together, and no other covers
        # what is around products: 1024³ in bf16 on an H200 4.95 us, 5.45 as a compiler likes, 5.85 one after the other.
        # Of two, 2048³ takes 1 % less, for three times as long in a compiler.
        steps = self.steps[1]
        known, tiles = constant_value(steps), self.tiles.count
        by = 1 if known is None or known >= LONG else None
        if self.choice.groups == 1 and tiles is not None and tiles <= self.tiles.clusters:
            by = TOGETHER
        if self.loaded is not None and self.loaded.turns > 1:
            by = self.loaded.turns
        return Loop(index=self.at.k, extent=steps, body=body, unroll_by=by, span=self.product.one.update.span)

    def _place(self) -> tuple[Node, ...]:
        """The row and the column of a turn's tile."""
        at, choice, every = self.at, self.choice, self.tiles
        turn = add(multiply(const(every.clusters), IndexVar(name=at.turn)), IndexVar(name=at.cluster))
        order = TileOrder(
            down=every.down,
            across=every.across,
            ranks=choice.ranks,
            band=choice.band,
            others=self.product.others,
            begin=choice.begin,
            abreast=choice.abreast > 1,
            winding=self._is_known(),
            turned=self._turned(),
        )
        rank = var(at.rank) if choice.ranks > 1 else ZERO
        of_turn: tuple[Node, ...] = ()
        if self.streamed is not None:
            turn, of_turn = self.streamed.tile, self.streamed.of_turn()
        places = order.nodes(self.draft.names, turn, rank, (at.row, self.rows.unit), (at.column, self.wide))
        return *of_turn, *places

    @property
    def high(self) -> int:
        """The rows of a tile."""
        return self.choice.tile[self.choice.across]

    @property
    def wide(self) -> int:
        """Its columns."""
        return self.choice.tile[self.choice.along]

    def _is_known(self) -> bool:
        """Whether the sizes say how many tiles there are, and blocks pass over none."""
        return self.product.domain is None and self.tiles.count is not None

    def _turned(self) -> bool:
        """Whether bands are of columns: of the side with fewer clusters, which a band has most of."""
        down, across = (constant_value(side) or 0 for side in (self.tiles.down, self.tiles.across))
        return self._is_known() and across < down
