"""Launches of products of matrices by single warps, as a candidate says: threads bring tiles into a ring, and multiply.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }      across i, along j, tiles of 128 by 128, 64 deep

    for k_step < 2: the tiles of step k_step, in slot k_step ;  close (cp_async)
    for k_step < ceildiv(K, 64)
      wait (cp_async, all but 1) ;  barrier (block)        the tiles of this step are there, those before are read
      a, b of deep 0                                       32 bytes of k of what each warp multiplies, in registers
      if k_step > 0: c += a * b of deep 3 of the step before
      if k_step + 2 < ceildiv(K, 64): the tiles of step k_step + 2, in slot (k_step + 2) % 3
      close (cp_async)
      for deep < 3: a, b of deep + 1 ;  c += a * b of deep
    c += a * b of deep 3
    for each 16 rows, each 64 columns: d from c, rounded ;  C from d          16 bytes of a row for each lane

Several sums with the same rows have a `b` and a `c` each; those of f8 are made in portions (`ringed_sums.py`). A block
has one tile; tiles come in bands, in each column after column, so that what is read again is in the L2 cache. What
tiles have beyond the extents is zeros, and is not written. The tile of a factor whose side is contiguous lies in panels
of 128 bytes of its side, [slot, panel, k, 64].
"""

from functools import reduce

from texpr.grammar.ast import Always, Compare, CompareOp, IndexExpr, IndexOp
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, combine, const, constant_value, multiply
from texpr.polyhedral.layout.make import numbered
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import place_in
from texpr.polyhedral.map.matrix_product import MatrixFactor, product_of_any_rows
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.ringed_sums import WarpSums
from texpr.polyhedral.map.ringed_ways import Site, WayIn, WayOut
from texpr.polyhedral.map.tile_order import TileOrder
from texpr.polyhedral.map.way_back import ALIGN_BYTES, SWIZZLE_BYTES, var, view
from texpr.polyhedral.mapped.atoms import (
    PRODUCT_BYTES,
    Atom,
    SharedOperand,
    load_blocks,
    mma_blocks,
    panel_of,
    warp_tile,
)
from texpr.polyhedral.mapped.operators import Contract, Unload
from texpr.polyhedral.mapped.places import Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.sync import Barrier, Close, GroupKind, WaitGroup
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.views import View

GROUP = GroupKind.CP_ASYNC
HELD = 2  # operands of a warp: those at hand, and the next


def build_ringed(draft: Draft, region: Region, choice: Ringed) -> Launch:
    """A band of products of matrices."""
    product = product_of_any_rows(draft.problem, region, boxes=False)
    assert product is not None, "the candidate fits"
    nest, ranges = product.one.nest, region.nest[1]
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    fresh, sides = draft.names.fresh, (product.rows.index, product.columns.index)
    site = Site(
        draft=draft,
        choice=choice,
        product=product,
        corner={side: fresh(f"{side}_tile") for side in sides},
        own={side: fresh(f"{side}_warp") for side in sides},
        step=fresh(f"{product.summed}_step"),
        digits=[],
        orders=[],
    )
    tiles, placed = _placed(site)
    ring = _Ring(site)
    body = (*placed, *ring.nodes(), *WayOut(site, ring.sums.all).nodes())
    return Launch(
        name=region.name,
        grid=(tiles, ONE, ONE),
        threads=choice.threads,
        min_blocks=choice.resident,
        digits=tuple(site.digits),
        body=body,
        orders=tuple(site.orders),
        span=region.nest[0].pars[0].span,
    )


def _placed(site: Site) -> tuple[IndexExpr, tuple[Node, ...]]:
    """How many tiles there are, and what says which of them a block has, and which part of it a warp."""
    product, choice = site.product, site.choice
    rows, columns = product.rows.index, product.columns.index
    down, across = (ceildiv(site.extent(side), choice.tile[side]) for side in (rows, columns))
    tiles = reduce(multiply, (par.extent for par in product.others), multiply(down, across))
    block = site.fresh("block")
    order = TileOrder(down=down, across=across, ranks=1, band=choice.band, others=product.others)
    high, wide = (choice.tile[side] // choice.each[side] for side in (rows, columns))
    corners = [(site.corner[side], choice.tile[side]) for side in (rows, columns)]
    return tiles, (
        site.define(block, (Place.GRID_X, tiles, 1, 1)),
        *order.nodes(site.draft.names, var(block), ZERO, corners[0], corners[1]),
        site.define(site.own[rows], (Place.WARP, high, 1, choice.each[rows])),
        site.define(site.own[columns], (Place.WARP, wide, high, choice.each[columns])),
    )


class _Ring:
    """The main loop."""

    def __init__(self, site: Site) -> None:
        self.site, self.draft, self.choice, self.product = site, site.draft, site.choice, site.product
        self.steps = ceildiv(site.product.extents[2], site.choice.depth)
        self.deep = PRODUCT_BYTES // site.product.dtype.size_bytes  # of what a warp multiplies at once
        self.m, self.n, self.depth = (site.fresh(name) for name in ("m", "n", "depth"))
        self.factors = site.product.factors
        rows, columns = (site.choice.each[factor.index] for factor in self.factors[:2])
        self.rows, self.columns = rows, columns
        self.tiles = tuple(map(self._tile, self.factors))
        self.held = tuple(self._held(factor, "a" if n == 0 else "b") for n, factor in enumerate(self.factors))
        self.sums = WarpSums(site)

    def _atom(self, columns: MatrixFactor) -> Atom:
        """The products with a factor of the columns."""
        return mma_blocks(self.product.dtype, self.rows, self.columns, columns.factor.dtype)

    def _form(self, factor: MatrixFactor) -> SharedOperand:
        return SharedOperand(swizzle_bytes=self._row_bytes(factor), k_contiguous=factor.k_contiguous)

    def _held(self, factor: MatrixFactor, role: str) -> str:
        layout = numbered(self._atom(factor).operands[role].layout, HELD, Unit.REGISTER)
        reason = "operands of these products and the next"
        return self.draft.local(
            f"{factor.buffer}_held", factor.factor.dtype, Memory.REG, layout, reason, span=self.site.span
        )

    def _row_bytes(self, factor: MatrixFactor) -> int:
        """Of a tile: rows of all k of a step, or panels."""
        return self.choice.depth * factor.factor.dtype.size_bytes if factor.k_contiguous else SWIZZLE_BYTES

    def _tile(self, factor: MatrixFactor) -> str:
        side, depth, stages = self.choice.tile[factor.index], self.choice.depth, self.choice.stages
        panel = panel_of(factor.factor.dtype)
        shape = (stages, side, depth) if factor.k_contiguous else (stages, side // panel, depth, panel)
        layout = canonical(warp_tile(shape, factor.factor.dtype))
        return self.draft.local(
            f"{factor.buffer}_tile", factor.factor.dtype, Memory.SHARED, layout, "tiles that warps multiply",
            align=ALIGN_BYTES, span=self.site.span,
        )  # fmt: skip

    def nodes(self) -> tuple[Node, ...]:
        """The ring is filled, and goes on with every step."""
        ahead, span, step, close = self.choice.stages - 1, self.site.span, var(self.site.step), Close(kind=GROUP)
        loads = tuple(self._load(factor, ZERO) for factor in self.factors)
        deep = var(self.site.fresh("deep"))
        more = tuple(self._load(factor, add(deep, ONE)) for factor in self.factors)
        ways = [
            WayIn(self.site, factor, tile, [load.id for load in readers])
            for factor, tile, *readers in zip(self.factors, self.tiles, loads, more, strict=True)
        ]
        first = tuple(way.copy(step, self._slot(step), None) for way in ways)
        later = add(step, const(ahead))
        next_ = tuple(way.copy(later, self._slot(later), ahead) for way in ways)
        deeps = self.choice.depth // self.deep
        last = Compare(op=CompareOp.GT, left=step, right=ZERO)
        each_step: tuple[Node, ...] = (
            WaitGroup(kind=GROUP, behind=ahead - 1),
            Barrier(scope=Scope.BLOCK),
            *loads,
            Guard(condition=last, body=self._last(deeps), uniform=Scope.BLOCK, span=span),
            *self.sums.begun_step(),
            self._where(later, next_),
            close,
            Loop(
                index=deep.name, extent=const(deeps - 1), body=(*more, *self._contracts(deep)), unroll=True, span=span
            ),
        )
        filled = first if ahead <= (constant_value(self.steps) or 0) else (self._where(step, first),)
        return (
            *(define for way in ways for define in way.defines),
            *self.sums.begun(),
            Loop(index=self.site.step, extent=const(ahead), body=(*filled, close), unroll=True, span=span),
            Loop(index=self.site.step, extent=self.steps, body=each_step, span=span),
            *self._last(deeps),
            WaitGroup(kind=GROUP),
        )

    def _last(self, deeps: int) -> tuple[Node, ...]:
        """The last products of a step."""
        return *self._contracts(const(deeps - 1)), *self.sums.ended_step()

    def _where(self, step: IndexExpr, copies: tuple[Node, ...]) -> Guard:
        """The copies for a step, where there is such a step."""
        there = Compare(op=CompareOp.LT, left=step, right=self.steps)
        return Guard(condition=there, body=copies, uniform=Scope.BLOCK, span=self.site.span)

    def _slot(self, step: IndexExpr) -> IndexExpr:
        return combine(IndexOp.MOD, step, const(self.choice.stages))

    def _load(self, factor: MatrixFactor, deep: IndexExpr) -> Unload:
        """32 bytes of k of a step's operands of a warp, into the registers for even or odd ones."""
        site, number = self.site, next(n for n, one in enumerate(self.factors) if one is factor)
        side = self.choice.each[factor.index]
        name, role = (self.m, "a") if number == 0 else (self.n, "b")
        over = ((name, const(side)), (self.depth, const(self.deep)))
        return Unload(
            id=site.fresh(f"{site.id}_{factor.buffer}_held"),
            source=view(self.draft, self.tiles[number], *self._operand(factor, name, deep)),
            target=self._part(number, deep),
            over=over if factor.k_contiguous else (over[1], over[0]),
            atom=load_blocks(factor.factor.dtype, side, self._form(factor), role),
            span=site.span,
        )

    def _part(self, number: int, deep: IndexExpr) -> View:
        """The registers of an operand."""
        at = (var(self.m), var(self.depth)) if number == 0 else (var(self.depth), var(self.n))
        return view(self.draft, self.held[number], combine(IndexOp.MOD, deep, const(HELD)), *at)

    def _contracts(self, deep: IndexExpr) -> tuple[Contract, ...]:
        """32 bytes of k of every product."""
        return tuple(
            Contract(
                id=self.site.fresh(factor.id),
                c=view(self.draft, sums, var(self.m), var(self.n)),
                a=self._part(0, deep),
                b=self._part(number, deep),
                over=((self.m, const(self.rows)), (self.n, const(self.columns)), (self.depth, const(self.deep))),
                atom=self._atom(factor),
                accumulate=Always(value=True),
                span=self.site.span,
            )
            for number, (factor, sums) in enumerate(zip(self.factors[1:], self.sums.made, strict=True), 1)
        )

    def _operand(self, factor: MatrixFactor, name: str, deep: IndexExpr) -> tuple[IndexExpr, ...]:
        """Where the element of a warp's row or column is in a tile."""
        slot, own = self._slot(var(self.site.step)), add(var(self.site.own[factor.index]), var(name))
        k = add(multiply(const(self.deep), deep), var(self.depth))
        if factor.k_contiguous:
            return slot, own, k
        panel = const(panel_of(factor.factor.dtype))
        return slot, combine(IndexOp.DIV, own, panel), k, combine(IndexOp.MOD, own, panel)
