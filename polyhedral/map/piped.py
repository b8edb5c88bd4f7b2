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

Where warpgroups alternate, each of two makes every second tile, of all its rows, and the other sends back its own
meanwhile. A ring tells phases by their parity, so who passes over turns waits until the other has come to their last:

      for turn
        if turn % 2 == group: for k { … } ;  arrive at barrier ;  the rest
        else: for k { skip ring } ;  barrier

A turn is a tile: blocks stay, and take every so many. Tiles come in bands of some clusters, in each of them column
after column, so that what is read again is in the L2 cache. What boxes have beyond their arrays is zeros, and is not
written. The tile of a factor whose side is contiguous lies in panels of 64 of its side, [panel, k, 64].
"""

from dataclasses import replace
from functools import reduce

from texpr.grammar.ast import (
    Always,
    Compare,
    CompareOp,
    Condition,
    IndexExpr,
    IndexOp,
    IndexVar,
)
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
from texpr.polyhedral.layout.make import swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import place_in
from texpr.polyhedral.map.loaded_rows import LoadedRows, are_loaded
from texpr.polyhedral.map.matrix_product import MatrixFactor, MatrixProduct, matrix_product
from texpr.polyhedral.map.piped_split import Meeting
from texpr.polyhedral.map.portions import Portions
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.streamed import Streamed
from texpr.polyhedral.map.tile_order import TileOrder
from texpr.polyhedral.map.tile_rows import tile_rows
from texpr.polyhedral.map.triangle import meets
from texpr.polyhedral.map.way_back import (
    ALIGN_BYTES,
    GROUP_WARPS,
    PANEL,
    Names,
    WayBack,
    first_lane,
    panel_of,
    row_panel,
    var,
    view,
)
from texpr.polyhedral.map.way_in import Turn, WayIn
from texpr.polyhedral.mapped.atoms import Atom, SharedOperand, wgmma, wgmma_sums
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Action,
    Barrier,
    Close,
    Commit,
    Drain,
    End,
    Fence,
    FenceKind,
    GroupKind,
    Pipe,
    PipeKind,
    Release,
    Skip,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node, Part, Parts

LOAD, MULTIPLY = "load", "multiply"
BEGUN = "begun"  # what who multiplies waits at for pipes
GROUP_NAMES = ("first", "second")  # of groups that alternate, and of what the other waits at
# of a thread that loads, and of one that multiplies, by warpgroups of these: together no more than they begin with
REGISTERS = {2: (40, 232), 3: (56, 152), 4: (56, 104)}
MANY_SUMS, MOST_REGISTERS = 192, (24, 240)  # of a thread, of two warpgroups that have more sums than so many
LONG = 30  # steps of a sum, from which on it is one after the other
TOGETHER = 8  # of them, of the one tile of a warpgroup
OTHERS = 30  # of them for indices and addresses


def build_piped(draft: Draft, region: Region, choice: Piped) -> Launch:
    """A band of products of matrices."""
    product = matrix_product(draft.problem, region, choice.across)
    assert product is not None, "the candidate fits"
    nest, ranges = product.one.nest, region.nest[1]
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    made = _Piped(draft, region, choice, product)
    launch = made.launch(region.name)
    draft.behind += made.back.parts.behind(region.name)
    if choice.rest is not None:
        name = draft.names.fresh(f"{region.name}_rest")
        draft.behind.append(_Piped(draft, region, choice.rest, product).launch(name))
        draft.rests[name] = region.name
    return launch


class _Piped:
    """One launch."""

    def __init__(self, draft: Draft, region: Region, choice: Piped, product: MatrixProduct) -> None:
        self.draft, self.region, self.choice, self.product = draft, region, choice, product
        fresh = draft.names.fresh
        self.tile_rows = tile_rows(product, choice)
        self.at = Names(
            rank=fresh("rank"), cluster=fresh("cluster"), lane=fresh("lane"), group=fresh("group"), warp=fresh("warp"),
            turn=fresh("turn"), k=fresh(f"{product.summed}_step"), row=fresh(self.tile_rows.word),
            column=fresh(f"{product.columns.index}_tile"), x=fresh("x"), y=fresh("y"), m=fresh("m"), n=fresh("n"),
            depth=fresh("depth"), chunk=fresh("chunk"), block=fresh("block"), ring=fresh("ring"),
        )  # fmt: skip
        self.rows, self.columns = choice.tile[choice.across], choice.tile[choice.along]
        self.groups, self.ranks, self.blocks = choice.groups, choice.ranks, choice.blocks
        self.together = choice.ranks * choice.split
        self.down = self.tile_rows.down(choice)  # clusters of tiles from top to bottom
        self.across = ceildiv(product.columns.factor.side.extent, self.columns * choice.abreast)
        self.tiles = reduce(multiply, (par.extent for par in product.others), multiply(self.down, self.across))
        self.clusters = choice.persistent // self.together
        self.span, self.id = product.one.update.span, product.one.update.id
        self.factors = product.factors[1:]
        self.a = self._tile(product.rows, self.rows)
        self.b = tuple(self._tile(factor, self.columns) for factor in self.factors)
        self.c = tuple(self._sums() for _ in self.factors)
        room = (self._registers()[1] or REGISTERS[2][1]) - OTHERS
        self.loaded = LoadedRows(draft, product, choice, self.at, self.a) if are_loaded(product) else None
        room -= self.loaded.registers if self.loaded else 0
        self.portions = Portions(draft, product, self.at, self.c, self.columns) if product.in_portions else None
        self.meeting = Meeting(draft, choice, product, self.at, self.c) if choice.split > 1 else None
        if self.meeting is not None:
            met, at = self.meeting, replace(self.at, column=self.meeting.column)
            self.back = WayBack(draft, product, choice, at, self.tile_rows, sums=met.totals, made=met.made, room=0)
        else:
            made = self.portions.made if self.portions else tuple(factor.id for factor in self.factors)
            room -= self.portions.registers if self.portions else 0
            self.back = WayBack(draft, product, choice, self.at, self.tile_rows, sums=self.c, made=made, room=room)
        self.streamed = self._streamed() if choice.streamed else None
        self.pairs = pairs = self.portions if self.portions and self.portions.in_pairs else None
        begin, steps = self._steps()
        self.ways_in = pairs.ways_in(steps, self._way_in, choice.stages) if pairs else (self._way_in(begin),)

    def _streamed(self) -> Streamed:
        tiles, steps = constant_value(self.tiles), constant_value(self.product.steps)
        assert tiles is not None and steps is not None, "the candidate fits"
        return Streamed(self.draft, self.choice, self.product, self.at, self.c, tiles, steps, self.clusters)

    def _way_in(self, begin: IndexExpr, turn: Turn | None = None) -> WayIn:
        return WayIn(
            self.draft, self.product, self.at, a=self.a, b=self.b, rows=self.tile_rows, columns=self.columns,
            ranks=self.ranks, abreast=self.choice.abreast > 1, stages=self.choice.stages, begin=begin, turn=turn,
            back=self._goes_back(),
            loaded=self.loaded.id if self.loaded else None,
        )  # fmt: skip

    # ---- buffers ----

    def _atom(self, columns: MatrixFactor, wide: int) -> Atom:
        a, b = (
            SharedOperand(swizzle_bytes=self._swizzle_bytes(factor, side), k_contiguous=factor.k_contiguous)
            for factor, side in ((self.product.rows, self.rows), (columns, self.columns))
        )
        return wgmma(self.product.dtype, wide, b, None if self.loaded else a, other=columns.factor.dtype)

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
            align=ALIGN_BYTES, span=self.span,
        )  # fmt: skip

    def _sums(self) -> str:
        layout = wgmma_sums(GROUP_ROWS * self.blocks, self.columns)
        wanted, dtype, reason = f"{self.product.result[0]}_sums", self.product.one.dtype, "the sums of a warpgroup"
        return self.draft.local(wanted, dtype, Memory.REG, layout, reason, span=self.span)

    # ---- the launch ----

    def launch(self, name: str) -> Launch:
        at = self.at
        rank = _digit(at.rank, Place.CLUSTER, self.together)
        cluster = _digit(at.cluster, Place.GRID_X, self.clusters, self.together)
        group, warp = _digit(at.group, Place.WARPGROUP, self.groups), _digit(at.warp, Place.WARP, GROUP_WARPS)
        lane = _digit(at.lane, Place.LANE, self.draft.target.warp_size)
        load, multiply_ = self._load(), self._multiply()
        if self.streamed is not None:
            self.streamed.read_by(self.back.rounded)
        few, many = self._registers()
        digits = tuple(d for d in (cluster, rank, group, warp, lane) if self.together > 1 or d is not rank)
        body: tuple[Node, ...] = (
            *((Define(index=at.rank, digits=(rank,)),) if self.together > 1 else ()),
            Define(index=at.cluster, digits=(cluster,)),
            *(self.streamed.of_block() if self.streamed else ()),
            Define(index=at.lane, digits=(lane,)),
            _once(Fence(kind=FenceKind.BARRIER_INIT)),
            *self._begun(),
            Parts(
                parts=(
                    Part(name=LOAD, warps=GROUP_WARPS, body=(*self._begun_in(Action.ARRIVE), *load), registers=few),
                    Part(
                        name=MULTIPLY,
                        warps=GROUP_WARPS * self.groups,
                        body=(
                            *self._begun_in(Action.BOTH),
                            Define(index=at.group, digits=(group,)),
                            Define(index=at.warp, digits=(warp,)),
                            *multiply_,
                        ),
                        registers=many,
                    ),
                )
            ),
        )
        ways = (self.back, *self.ways_in, self.meeting, self.portions, self.loaded, self.streamed)
        return Launch(
            name=name,
            grid=(self._blocks(), ONE, ONE),
            cluster=(self.together, 1, 1),
            threads=self.choice.threads,
            min_blocks=1,  # or the assembler may not know with how many registers parts begin (C7508)
            digits=digits,
            body=body,
            pipes=(self._pipe(), *((self.meeting.pipe,) if self.meeting is not None else ())),
            orders=tuple(order for way in ways if way is not None for order in way.orders),
            span=self.region.nest[0].pars[0].span,
        )

    def _registers(self) -> tuple[int | None, int | None]:
        """Those of a thread that loads, and of one that multiplies; None: as many as there are for all."""
        if self.blocks * self.columns * len(self.factors) // 2 > MANY_SUMS:
            return MOST_REGISTERS
        return REGISTERS.get(self.groups, (None, None))

    def _begun(self) -> tuple[Node, ...]:
        """All pipes are there: those of the cluster, or of the block; of others a block hears before it sends."""
        others = Barrier(scope=Scope.CLUSTER, relaxed=True)
        if self.meeting is not None:
            return (replace(others, action=Action.ARRIVE),)
        return (others,) if self.ranks > 1 else (Barrier(scope=Scope.BLOCK),)

    def _begun_in(self, action: Action) -> tuple[Node, ...]:
        """Where blocks share what is summed, memory often takes longest: the thread that made their pipes loads at
        once, and who multiplies waits for it (16 x 4096 x 4096 with cold caches on an H200 .07 us less; 1024³ .06
        more)."""
        if self.meeting is None:
            return ()
        return (Barrier(scope=Scope.BLOCK, parts=(LOAD, MULTIPLY), action=action, name=BEGUN),)

    def _blocks(self) -> IndexExpr:
        """Those of the choice; where a call decides the sizes, no more than have a tile."""
        chosen = const(self.together * self.clusters)
        if constant_value(self.tiles) is not None:
            return chosen
        return minimum(chosen, multiply(const(self.together), self.tiles))

    def _pipe(self) -> Pipe:
        every = tuple(range(self.ranks))
        ranks = tuple(every for _ in every) if self.ranks > 1 else ()
        size = self.product.dtype.size_bytes
        return Pipe(
            name=self.at.ring,
            stages=self.choice.stages,
            kind=PipeKind.TRANSACTION,
            scope=Scope.CLUSTER if self.ranks > 1 else Scope.BLOCK,
            buffers=(self.a, *self.b),
            producers=(End(part=LOAD, ranks=ranks),),
            consumers=(End(part=MULTIPLY, ranks=ranks),),
            commits=1,
            releases=self.ranks * (1 if self.choice.alternate else self.groups) * GROUP_WARPS,
            bytes=(self.rows + len(self.b) * self.columns) * self.product.depth * size,
        )

    # ---- the tiles of a block ----

    def _place(self) -> tuple[Node, ...]:
        at, choice = self.at, self.choice
        turn = add(multiply(const(self.clusters), IndexVar(name=at.turn)), IndexVar(name=at.cluster))
        order = TileOrder(
            down=self.down,
            across=self.across,
            ranks=self.ranks,
            band=choice.band,
            others=self.product.others,
            begin=choice.begin,
            abreast=choice.abreast > 1,
            winding=self._is_known(),
            turned=self._turned(),
        )
        rank = var(at.rank) if self.ranks > 1 else ZERO
        of_turn: tuple[Node, ...] = ()
        if self.streamed is not None:
            turn, of_turn = self.streamed.tile, self.streamed.of_turn()
        places = order.nodes(self.draft.names, turn, rank, (at.row, self.tile_rows.unit), (at.column, self.columns))
        return *of_turn, *places

    def _is_known(self) -> bool:
        """Whether the sizes say how many tiles there are, and blocks pass over none."""
        return self.product.domain is None and constant_value(self.tiles) is not None

    def _turned(self) -> bool:
        """Whether bands are of columns: of the side with fewer clusters, which a band has most of."""
        down, across = (constant_value(side) or 0 for side in (self.down, self.across))
        return self._is_known() and across < down

    def _goes_back(self) -> bool:
        """Whether every second turn sums from the end on: what was brought last is in the L2 cache yet, of rows or
        columns that the next tile has, too. 4096³ in bf16 on an H200 takes 175.3 us, 177.0 always from the start."""
        shared = self.choice.split > 1 or self.choice.streamed
        plain = not (self.product.window.loops or self.product.in_portions or self.loaded or shared)
        several = self._is_known() and (constant_value(self.tiles) or 0) > self.clusters
        return plain and several and (constant_value(self.product.steps) or 0) > 1

    def _over_tiles(self, *body: Node) -> Loop:
        turns = combine(IndexOp.CEILDIV, subtract(self.tiles, var(self.at.cluster)), const(self.clusters))
        turns = self.streamed.turns if self.streamed else turns
        domain, at = self.product.domain, self.at
        if domain is not None:  # the blocks of a cluster do the same
            first = subtract(var(at.row), multiply(const(self.rows), var(at.rank))) if self.ranks > 1 else var(at.row)
            some = meets(domain, self.back.ranges(first, self.rows * self.ranks, self.columns))
            assert some is not None, "the ends of a tile tell it"
            scope = Scope.CLUSTER if self.ranks > 1 else Scope.BLOCK
            body = (Guard(condition=some, body=body, uniform=scope, span=self.span),)
        return Loop(index=at.turn, extent=turns, body=(*self._place(), *body), span=self.span)

    def _over_k(self, *body: Node) -> Loop:
        # Where one warpgroup has one tile, the turns of its ring are known in eight steps together, and no other covers
        # what is around products: 1024³ in bf16 on an H200 4.95 us, 5.45 as a compiler likes, 5.85 one after the other.
        # Of two, 2048³ takes 1 % less, for three times as long in a compiler.
        steps = self._steps()[1]
        known, tiles = constant_value(steps), constant_value(self.tiles)
        by = 1 if known is None or known >= LONG else None
        if self.groups == 1 and tiles is not None and tiles <= self.clusters:
            by = TOGETHER
        if self.loaded is not None and self.loaded.turns > 1:
            by = self.loaded.turns
        return Loop(index=self.at.k, extent=steps, body=body, unroll_by=by, span=self.span)

    def _steps(self) -> tuple[IndexExpr, IndexExpr]:
        """The first step of a block, and how many it has."""
        if self.streamed is not None:
            return self.streamed.piece
        steps, parts, rank = self.product.steps, self.choice.split, var(self.at.rank)
        if parts == 1:
            return ZERO, steps
        begin, end = (combine(IndexOp.DIV, multiply(steps, r), const(parts)) for r in (rank, add(rank, ONE)))
        whole = linear(steps).is_multiple(parts, {})
        return begin, combine(IndexOp.DIV, steps, const(parts)) if whole else subtract(end, begin)

    # ---- the way in ----

    def _load(self) -> tuple[Node, ...]:
        """By one thread. Others of a cluster release its slots until the end; who arrived at a barrier waits there."""
        at, (into, *_) = self.at, self.ways_in
        step = (*into.of_step, Acquire(pipe=at.ring), *into.copies, Commit(pipe=at.ring))
        steps = self.pairs.brought(self._steps()[1], self.ways_in) if self.pairs else (self._over_k(*step),)
        tiles = self._over_tiles(*into.of_tile, *steps)
        heard = (Barrier(scope=Scope.CLUSTER, action=Action.WAIT),) if self.meeting is not None else ()
        return (_once(tiles, *((Drain(pipe=at.ring),) if self.ranks > 1 else ())), *heard)

    # ---- the products, and the way back ----

    def _multiply(self) -> tuple[Node, ...]:
        at, ring, group = self.at, self.at.ring, GroupKind.WGMMA
        if self.portions is not None:
            return self._multiply_in_portions(self.portions)
        again = Compare(op=CompareOp.GT, left=var(at.k), right=ZERO)
        alone = self.loaded is not None and self.loaded.turns == 1  # each step's products by themselves
        over = (WaitGroup(kind=group), first_lane(at.lane, Release(pipe=ring)))
        before = first_lane(at.lane, Release(pipe=ring, behind=1))
        behind = (
            WaitGroup(kind=group, behind=1),
            Guard(condition=again, body=(before,), uniform=Scope.BLOCK),
        )
        products = self._over_k(
            Wait(pipe=ring),
            *(self.loaded.nodes() if self.loaded else ()),
            Fence(kind=FenceKind.WGMMA),
            *(self._product(again, *of, self.columns) for of in zip(self.factors, self.b, self.c, strict=True)),
            Close(kind=group),
            *(self.loaded.read if self.loaded else ()),
            *(over if alone else behind),
        )
        rest: tuple[Node, ...] = (
            *(() if alone else over),
            *(self.meeting.nodes() if self.meeting is not None else ()),
            *(self.streamed.nodes(self.back.loops) if self.streamed else self.back.loops),
        )
        body: tuple[Node, ...] = (*self.back.ahead, products, *rest)
        if self.choice.alternate:
            own = Compare(op=CompareOp.EQ, left=combine(IndexOp.MOD, var(at.turn), const(2)), right=var(at.group))
            passed = self._over_k(Skip(pipe=ring))
            inside = (*self.back.ahead, products, self._met(Action.ARRIVE), *rest)
            others = (passed, self._met(Action.BOTH))
            body = (Guard(condition=own, body=inside, orelse=others, uniform=Scope.WARPGROUP),)
        defines = self.loaded.defines if self.loaded else ()
        return *defines, self._over_tiles(*self.back.of_tile, *body), *self.back.settled

    def _multiply_in_portions(self, portions: Portions) -> tuple[Node, ...]:
        never = Always(value=False)

        def product(id: str, number: int, into: str, wide: int, first: IndexExpr) -> Contract:
            made = self._product(never, self.factors[number], self.b[number], into, wide, first)
            return replace(made, id=id)

        steps = portions.loops(self._steps()[1], product)
        body = (*self.back.ahead, *portions.zeros(), *steps, *self.back.loops)
        return self._over_tiles(*self.back.of_tile, *body), *self.back.settled

    def _met(self, action: Action) -> Node:
        """A group says that it has come to the last step of its turn; or the other one waits for that."""
        names = GROUP_NAMES if action is Action.ARRIVE else tuple(reversed(GROUP_NAMES))
        first, second = (Barrier(scope=Scope.BLOCK, parts=(MULTIPLY,), action=action, name=name) for name in names)
        whose = Compare(op=CompareOp.EQ, left=var(self.at.group), right=ZERO)
        return Guard(condition=whose, body=(first,), orelse=(second,), uniform=Scope.WARPGROUP)

    def _product(
        self, again: Condition, columns: MatrixFactor, tile: str, sums: str, wide: int, begin: IndexExpr = ZERO
    ) -> Contract:
        """So many columns of a tile, from one on."""
        at = self.at
        m, n, depth, group = (var(name) for name in (at.m, at.n, at.depth, at.group))
        rows, step = const(GROUP_ROWS * self.blocks), const(self.product.depth)
        first = ZERO if self.choice.alternate else multiply(rows, group)
        a: tuple[IndexExpr, ...] = (add(first, m), depth)
        b: tuple[IndexExpr, ...] = (add(begin, n), depth)
        if not self.product.rows.k_contiguous:
            panel = ZERO if self.choice.alternate else multiply(const(self.blocks), group)
            a = (panel, depth, m)
            if self.blocks > 1:
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
            span=self.span,
        )


def _digit(name: str, place: Place, radix: int, stride: int = 1) -> Digit:
    return Digit(
        name=f"{name}_{place.value[:4]}", index=name, weight=1, radix=const(radix), stride=const(stride), place=place
    )


def _once(*body: Node) -> Guard:
    return Guard(condition=Always(value=True), body=body, once=True)
