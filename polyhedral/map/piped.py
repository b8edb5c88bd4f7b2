"""Launches of products of matrices on tensor cores, as a candidate says: a warpgroup brings tiles, others multiply.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }      across i, along j, tiles of 128 by 256, 2 in a cluster

    part load (4 warps)                           by one thread
      for turn: for k < ceildiv(K, 64)
        acquire ring ;  a from A, b from B ;  commit ring        b: each block of the cluster brings its part to all
    part multiply (8 warps)
      for turn
        for k < ceildiv(K, 64)
          wait ring ;  c = a * b, from 0 unless k > 0 ;  release the slot of the product before
        each 64 columns: d from c, rounded ;  C from d           while the next tile's factors are on their way

A turn is a tile: blocks stay, and take every so many. Tiles come in bands of some clusters, in each of them column
after column, so that what is read again is in the L2 cache. What boxes have beyond their arrays is zeros, and is not
written. The tile of a factor whose side is contiguous lies in panels of 64 of its side, [panel, k, 64].
"""

from dataclasses import dataclass
from math import prod

from texpr.grammar.ast import (
    Always,
    Compare,
    CompareOp,
    Condition,
    Gather,
    IndexExpr,
    IndexOp,
    IndexVar,
    Subscript,
)
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    combine,
    const,
    constant_value,
    minimum,
    multiply,
    substitute,
    subtract,
)
from texpr.grammar.types import F32
from texpr.polyhedral.layout.make import swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import place_in
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct, matrix_product
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.atoms import Atom, SharedOperand, store_matrices, wgmma
from texpr.polyhedral.mapped.candidate import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.operators import Contract, Copy, Unload
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Action,
    Barrier,
    Close,
    Commit,
    End,
    Fence,
    FenceKind,
    GroupKind,
    Pipe,
    PipeKind,
    Release,
    Until,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node, Part, Parts
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.program import Hazard

GROUP_WARPS, WARP_ROWS = 4, 16  # of a warpgroup, and the rows of its products that each of them holds
DEPTH = PANEL = 64  # products of a step, and elements of 128 bytes, after which a swizzle repeats
SWIZZLE_BYTES = 128
ALIGN_BYTES = 1024  # of tiles under such a swizzle
SLOTS = 2  # of what a warp sends back
LOAD_REGISTERS, MULTIPLY_REGISTERS = 40, 232  # of a thread; two parts of that have all registers of a multiprocessor


def build_piped(draft: Draft, region: Region, choice: Piped) -> Launch:
    """A band of products of matrices."""
    product = matrix_product(draft.problem, region)
    assert product is not None, "the candidate fits"
    nest, ranges = product.one.nest, region.nest[1]
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    return _Piped(draft, region, choice, product).launch()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
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


class _Piped:
    """One launch."""

    def __init__(self, draft: Draft, region: Region, choice: Piped, product: MatrixProduct) -> None:
        self.draft, self.region, self.choice, self.product = draft, region, choice, product
        fresh = draft.names.fresh
        self.at = _Names(
            rank=fresh("rank"), cluster=fresh("cluster"), lane=fresh("lane"), group=fresh("group"), warp=fresh("warp"),
            turn=fresh("turn"), k=fresh(f"{product.summed}_step"), row=fresh(f"{product.rows.index}_tile"),
            column=fresh(f"{product.columns.index}_tile"), x=fresh("x"), y=fresh("y"), m=fresh("m"), n=fresh("n"),
            depth=fresh("depth"), chunk=fresh("chunk"), ring=fresh("ring"),
        )  # fmt: skip
        self.rows, self.columns = choice.tile[choice.across], choice.tile[choice.along]
        self.groups, self.ranks = self.rows // GROUP_ROWS, choice.cluster
        height, width, length = product.sizes
        self.down = -(-height // (self.rows * self.ranks))  # clusters of tiles from top to bottom
        self.across = -(-width // self.columns)
        self.steps = -(-length // DEPTH)
        self.tiles = self.down * self.across * prod(constant_value(par.extent) or 1 for par in product.others)
        self.clusters = choice.persistent // self.ranks
        self.span, self.id = product.one.update.span, product.one.update.id
        self.atom = self._atom()
        self.a, self.b = self._tile(product.rows, self.rows), self._tile(product.columns, self.columns)
        self.c = self._local(f"{product.result[0]}_sums", Memory.REG)
        self.d = self._local(f"{product.result[0]}_rows", Memory.SHARED)
        self.orders: list[Order] = []

    # ---- buffers ----

    def _atom(self) -> Atom:
        a, b = (SharedOperand(k_contiguous=f.k_contiguous) for f in (self.product.rows, self.product.columns))
        return wgmma(self.product.dtype, self.columns, b, a)

    def _tile(self, factor: MatrixFactor, side: int) -> str:
        shape = (side, DEPTH) if factor.k_contiguous else (side // PANEL, DEPTH, PANEL)
        layout = canonical(swizzled(shape, factor.factor.dtype.size_bytes, SWIZZLE_BYTES))
        return self.draft.local(
            f"{factor.buffer}_tile", factor.factor.dtype, Memory.SHARED, layout, "tiles that tensor cores read",
            align=ALIGN_BYTES, span=self.span,
        )  # fmt: skip

    def _local(self, wanted: str, memory: Memory) -> str:
        if memory is Memory.REG:
            layout, dtype, reason = self.atom.operands["c"].layout, F32, "the sums of a warpgroup"
            return self.draft.local(wanted, dtype, memory, layout, reason, span=self.span)
        shape = (self.groups, GROUP_WARPS, SLOTS, WARP_ROWS, PANEL)
        dtype = self.product.dtype
        layout = canonical(swizzled(shape, dtype.size_bytes, SWIZZLE_BYTES))
        reason = "sums on their way back"
        return self.draft.local(wanted, dtype, memory, layout, reason, align=ALIGN_BYTES, span=self.span)

    def _view(self, buffer: str, *subscripts: Subscript) -> View:
        return View(buffer=buffer, subscripts=subscripts, dtype=self.draft.buffers[buffer].dtype)

    # ---- the launch ----

    def launch(self) -> Launch:
        at = self.at
        rank = _digit(at.rank, Place.CLUSTER, self.ranks)
        cluster = _digit(at.cluster, Place.GRID_X, self.clusters, self.ranks)
        group, warp = _digit(at.group, Place.WARPGROUP, self.groups), _digit(at.warp, Place.WARP, GROUP_WARPS)
        lane = _digit(at.lane, Place.LANE, self.draft.target.warp_size)
        load, multiply_ = self._load(), self._multiply()
        digits = tuple(d for d in (cluster, rank, group, warp, lane) if self.ranks > 1 or d is not rank)
        whole = Barrier(scope=Scope.CLUSTER if self.ranks > 1 else Scope.BLOCK)
        body: tuple[Node, ...] = (
            *((Define(index=at.rank, digits=(rank,)),) if self.ranks > 1 else ()),
            Define(index=at.cluster, digits=(cluster,)),
            Define(index=at.lane, digits=(lane,)),
            _once(Fence(kind=FenceKind.BARRIER_INIT)),
            whole,
            Parts(
                parts=(
                    Part(name="load", warps=GROUP_WARPS, body=(load,), registers=LOAD_REGISTERS),
                    Part(
                        name="multiply",
                        warps=GROUP_WARPS * self.groups,
                        body=(
                            Define(index=at.group, digits=(group,)),
                            Define(index=at.warp, digits=(warp,)),
                            *multiply_,
                        ),
                        registers=MULTIPLY_REGISTERS,
                    ),
                )
            ),
            *((whole,) if self.ranks > 1 else ()),  # no block of a cluster ends while others send to it
        )
        return Launch(
            name=self.region.name,
            grid=(const(self.ranks * self.clusters), ONE, ONE),
            cluster=(self.ranks, 1, 1),
            threads=self.choice.threads,
            digits=digits,
            body=body,
            pipes=(self._pipe(),),
            orders=tuple(self.orders),
            span=self.region.nest[0].pars[0].span,
        )

    def _pipe(self) -> Pipe:
        every = tuple(range(self.ranks))
        ranks = tuple(every for _ in every) if self.ranks > 1 else ()
        size = self.product.dtype.size_bytes
        return Pipe(
            name=self.at.ring,
            stages=self.choice.stages,
            kind=PipeKind.TRANSACTION,
            scope=Scope.CLUSTER if self.ranks > 1 else Scope.BLOCK,
            buffers=(self.a, self.b),
            producers=(End(part="load", ranks=ranks),),
            consumers=(End(part="multiply", ranks=ranks),),
            commits=1,
            releases=self.ranks * self.groups * GROUP_WARPS,
            bytes=(self.rows + self.columns) * DEPTH * size,
        )

    # ---- the tiles of a block ----

    def _over_tiles(self, *body: Node) -> Loop:
        turns = combine(IndexOp.CEILDIV, subtract(const(self.tiles), _var(self.at.cluster)), const(self.clusters))
        return Loop(index=self.at.turn, extent=turns, body=(*self._place(), *body), span=self.span)

    def _over_k(self, *body: Node) -> Loop:
        return Loop(index=self.at.k, extent=const(self.steps), body=body, span=self.span)

    def _place(self) -> tuple[Node, ...]:
        """The tile of a turn: of which product it is, and there bands of some clusters of rows, in each of them column
        after column."""
        fresh, found = self.draft.names.fresh, list[Node]()

        def let(name: str, value: IndexExpr) -> IndexExpr:
            found.append(Define(index=name, digits=(), offset=value))
            return _var(name)

        number = let(fresh("tile"), add(multiply(const(self.clusters), _var(self.at.turn)), _var(self.at.cluster)))
        each = self.down * self.across
        left = combine(IndexOp.DIV, number, const(each))
        for place, par in reversed(list(enumerate(self.product.others))):
            extent = par.extent
            let(par.index, combine(IndexOp.MOD, left, extent) if place else left)
            left = combine(IndexOp.DIV, left, extent)
        if self.product.others:
            number = combine(IndexOp.MOD, number, const(each))
        per = min(self.choice.band, self.down) * self.across
        if self.down <= self.choice.band:
            height: IndexExpr = const(self.down)
            first: IndexExpr = ZERO
            inside = number
        else:
            band = let(fresh("band"), combine(IndexOp.DIV, number, const(per)))
            inside = combine(IndexOp.MOD, number, const(per))
            first = multiply(const(self.choice.band), band)
            height = minimum(subtract(const(self.down), first), const(self.choice.band))
            if self.down % self.choice.band == 0:
                height = const(self.choice.band)
            else:
                height = let(fresh("height"), height)
        row = add(first, combine(IndexOp.MOD, inside, height))
        tall = add(multiply(const(self.ranks), row), _var(self.at.rank)) if self.ranks > 1 else row
        let(self.at.row, multiply(const(self.rows), tall))
        let(self.at.column, multiply(const(self.columns), combine(IndexOp.DIV, inside, height)))
        return tuple(found)

    # ---- the way in ----

    def _load(self) -> Node:
        at = self.at
        copies = (*self._own(), *self._shared())
        return _once(self._over_tiles(self._over_k(Acquire(pipe=at.ring), *copies, Commit(pipe=at.ring))))

    def _own(self) -> tuple[Copy, ...]:
        """The factor of the rows: each block its own."""
        first = _var(self.at.row)
        if self.product.rows.k_contiguous:
            return (self._copy(self.product.rows, self.a, first, self.rows, (), own=True),)
        panels = range(self.rows // PANEL)
        return tuple(
            self._copy(self.product.rows, self.a, add(first, const(PANEL * p)), PANEL, (const(p),), own=True)
            for p in panels
        )

    def _shared(self) -> tuple[Copy, ...]:
        """The factor of the columns: of a cluster each block its part, for all of them."""
        first, rank, own = _var(self.at.column), _var(self.at.rank), self.ranks == 1
        factor, each = self.product.columns, self.columns // self.ranks
        if factor.k_contiguous:
            begin = multiply(const(each), rank) if not own else ZERO
            return (self._copy(factor, self.b, add(first, begin), each, (), begin, own=own),)
        panels = each // PANEL
        found: list[Copy] = []
        for p in range(panels):
            panel = add(multiply(const(panels), rank), const(p)) if not own else const(p)
            found.append(
                self._copy(factor, self.b, add(first, multiply(const(PANEL), panel)), PANEL, (panel,), own=own)
            )
        return tuple(found)

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
    ) -> Copy:
        """`count` of a factor's side from `first` on, at `begin` of its tile or in a `panel`, by all of a step's k."""
        side, deep = _var(self.at.x), _var(self.at.y)
        if panel:
            over, place = ((self.at.y, const(DEPTH)), (self.at.x, const(count))), (*panel, deep, side)
        else:
            over, place = ((self.at.x, const(count)), (self.at.y, const(DEPTH))), (add(begin, side), deep)
        of = {
            factor.index: add(first, side),
            self.product.summed: add(multiply(const(DEPTH), _var(self.at.k)), deep),
        }
        id = self.draft.names.fresh(f"{self.id}_{factor.buffer}")
        scope = Scope.BLOCK if own else Scope.CLUSTER
        self._order(id, self.id, tile, Hazard.FLOW, scope)
        self._order(self.id, id, tile, Hazard.ANTI, scope, self.at.k, self.choice.stages)
        return Copy(
            id=id,
            source=self._view(factor.buffer, *(_in_terms(s, of) for s in factor.subscripts)),
            target=self._view(tile, *place),
            over=over,
            completion=Completion.TRANSACTION,
            pipe=self.at.ring,
            own_block=own,
            clipped=True,
            span=self.span,
        )

    def _order(
        self, source: str, sink: str, buffer: str, hazard: Hazard, scope: Scope, after: str | None = None, by: int = 1
    ) -> None:
        self.orders.append(
            Order(
                source=source, sink=sink, buffer=buffer, hazard=hazard, scope=scope, carried_by=after,
                distance=by if after else None, source_span=self.span, sink_span=self.span,
            )
        )  # fmt: skip

    # ---- the products, and the way back ----

    def _multiply(self) -> tuple[Node, ...]:
        at = self.at
        again = Compare(op=CompareOp.GT, left=_var(at.k), right=ZERO)
        group = GroupKind.WGMMA
        return (
            self._over_tiles(
                self._over_k(
                    Wait(pipe=at.ring),
                    Fence(kind=FenceKind.WGMMA),
                    self._product(again),
                    Close(kind=group),
                    WaitGroup(kind=group, behind=1),
                    Guard(
                        condition=again, body=(self._first_lane(Release(pipe=at.ring, behind=1)),), uniform=Scope.BLOCK
                    ),
                ),
                WaitGroup(kind=group),
                self._first_lane(Release(pipe=at.ring)),
                self._first_lane(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),  # of the tile before: long over
                self._store(),
            ),
            self._first_lane(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),
        )

    def _first_lane(self, *body: Node) -> Guard:
        return Guard(condition=Compare(op=CompareOp.EQ, left=_var(self.at.lane), right=ZERO), body=body)

    def _product(self, again: Condition) -> Contract:
        at = self.at
        m, n, depth, group = (_var(name) for name in (at.m, at.n, at.depth, at.group))
        a: tuple[IndexExpr, ...] = (add(multiply(const(GROUP_ROWS), group), m), depth)
        b: tuple[IndexExpr, ...] = (n, depth)
        if not self.product.rows.k_contiguous:
            a = (group, depth, m)
        if not self.product.columns.k_contiguous:
            b = (ZERO, depth, n)
        if not self.product.columns.k_contiguous and self.columns > PANEL:
            b = (combine(IndexOp.DIV, n, const(PANEL)), depth, combine(IndexOp.MOD, n, const(PANEL)))
        return Contract(
            id=self.id,
            c=self._view(self.c, m, n),
            a=self._view(self.a, *a),
            b=self._view(self.b, *b),
            over=((at.m, const(GROUP_ROWS)), (at.n, const(self.columns)), (at.depth, const(DEPTH))),
            atom=self.atom,
            accumulate=again,
            span=self.span,
        )

    def _store(self) -> Loop:
        """A warp's rows go back, 64 columns at a time."""
        at, fresh, stored = self.at, self.draft.names.fresh, self.product.stored.span
        lay, send = fresh(f"{self.id}_rounded"), fresh(f"{self.id}_out")
        x, y, chunk = _var(at.x), _var(at.y), multiply(const(PANEL), _var(at.chunk))
        slot = (_var(at.group), _var(at.warp), combine(IndexOp.MOD, _var(at.chunk), const(SLOTS)))
        row = add(multiply(const(GROUP_ROWS), _var(at.group)), multiply(const(WARP_ROWS), _var(at.warp)))
        of = {
            self.product.rows.index: add(add(_var(at.row), row), x),
            self.product.columns.index: add(add(_var(at.column), chunk), y),
        }
        buffer, subscripts = self.product.result
        over = ((at.x, const(WARP_ROWS)), (at.y, const(PANEL)))
        dtype = self.product.dtype
        unload = Unload(
            id=lay,
            source=self._view(self.c, add(multiply(const(WARP_ROWS), _var(at.warp)), x), add(chunk, y)),
            target=self._view(self.d, *slot, x, y),
            over=over,
            atom=store_matrices(dtype, 4),
            span=stored,
        )
        out = Copy(
            id=send,
            source=self._view(self.d, *slot, x, y),
            target=self._view(buffer, *(_in_terms(s, of) for s in subscripts)),
            over=over,
            completion=Completion.BULK,
            clipped=True,
            span=stored,
        )
        self._order(self.id, lay, self.c, Hazard.FLOW, Scope.WARP)
        self._order(lay, send, self.d, Hazard.FLOW, Scope.WARP)
        self._order(send, lay, self.d, Hazard.ANTI, Scope.WARP, at.chunk, SLOTS)
        self._order(send, lay, self.d, Hazard.ANTI, Scope.WARP, at.turn)
        together = Barrier(scope=Scope.WARP, action=Action.BOTH)
        free = self._first_lane(WaitGroup(kind=GroupKind.BULK, behind=SLOTS - 1, until=Until.READ))
        body: tuple[Node, ...] = (
            *((free,) if self.columns > SLOTS * PANEL else ()),
            together,
            unload,
            Fence(kind=FenceKind.ASYNC_PROXY),
            together,
            self._first_lane(out, Close(kind=GroupKind.BULK)),
        )
        return Loop(index=at.chunk, extent=const(self.columns // PANEL), body=body, unroll=True, span=stored)


def _digit(name: str, place: Place, radix: int, stride: int = 1) -> Digit:
    return Digit(
        name=f"{name}_{place.value[:4]}", index=name, weight=1, radix=const(radix), stride=const(stride), place=place
    )


def _var(name: str) -> IndexVar:
    return IndexVar(name=name)


def _once(*body: Node) -> Guard:
    return Guard(condition=Always(value=True), body=body, once=True)


def _in_terms(subscript: Subscript, of: dict[str, IndexExpr]) -> Subscript:
    """A subscript with what stands for some indices."""
    assert not isinstance(subscript, Gather), "a box"
    return substitute(subscript, lambda leaf: of.get(leaf.name))
