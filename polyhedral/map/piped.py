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
written.
"""

from dataclasses import replace

from texpr.grammar.ast import Always, Compare, CompareOp, IndexExpr, IndexOp
from texpr.grammar.index.expr import ONE, ZERO, combine, const, constant_value
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.group_products import GroupProducts
from texpr.polyhedral.map.launches import place_in
from texpr.polyhedral.map.matrix_product import MatrixProduct, matrix_product
from texpr.polyhedral.map.piped_split import Meeting
from texpr.polyhedral.map.piped_turns import Tiles, Turns
from texpr.polyhedral.map.portions import Portions
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.streamed import Streamed
from texpr.polyhedral.map.tile_rows import tile_rows
from texpr.polyhedral.map.way_back import GROUP_WARPS, Names, WayBack, first_lane, var
from texpr.polyhedral.map.way_in import Turn, WayIn
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Digit, Place, Scope
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
from texpr.polyhedral.mapped.tree import Define, Guard, Node, Part, Parts

LOAD, MULTIPLY = "load", "multiply"
BEGUN = "begun"  # what who multiplies waits at for pipes
GROUP_NAMES = ("first", "second")  # of groups that alternate, and of what the other waits at
# of a thread that loads, and of one that multiplies, by warpgroups of these: together no more than they begin with
REGISTERS = {2: (40, 232), 3: (56, 152), 4: (56, 104)}
MANY_SUMS, MOST_REGISTERS = 192, (24, 240)  # of a thread, of two warpgroups that have more sums than so many
OTHERS = 30  # of them for indices and addresses


def build_piped(draft: Draft, region: Region, choice: Piped) -> Launch:
    """A band of products of matrices."""
    product = matrix_product(draft.problem, region, choice.across, crossed=choice.high > 1)
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
        self.groups, self.ranks, self.columns = choice.groups, choice.ranks, choice.tile[choice.along]
        self.together = choice.ranks * choice.split
        self.tiles = Tiles.of(product, choice, self.tile_rows)
        self.products = GroupProducts(draft, product, choice, self.at)
        self.loaded = self.products.loaded
        room = (self._registers()[1] or REGISTERS[2][1]) - OTHERS
        room -= self.loaded.registers if self.loaded else 0
        sums = self.products.c
        self.portions = Portions(draft, product, self.at, sums, self.columns) if product.in_portions else None
        self.meeting = Meeting(draft, choice, product, self.at, sums) if choice.split > 1 else None
        if self.meeting is not None:
            met, at = self.meeting, replace(self.at, column=self.meeting.column)
            self.back = WayBack(draft, product, choice, at, self.tile_rows, sums=met.totals, made=met.made, room=0)
        else:
            made = self.portions.made if self.portions else tuple(factor.id for factor in self.products.factors)
            room -= self.portions.registers if self.portions else 0
            self.back = WayBack(draft, product, choice, self.at, self.tile_rows, sums=sums, made=made, room=room)
        self.streamed = self._streamed() if choice.streamed else None
        self.turns = Turns(
            draft=draft, product=product, choice=choice, at=self.at, tiles=self.tiles, rows=self.tile_rows,
            back=self.back, loaded=self.loaded, streamed=self.streamed,
        )  # fmt: skip
        self.pairs = pairs = self.portions if self.portions and self.portions.in_pairs else None
        begin, steps = self.turns.steps
        self.ways_in = pairs.ways_in(steps, self._way_in, choice.stages) if pairs else (self._way_in(begin),)

    def _streamed(self) -> Streamed:
        tiles, steps, every = self.tiles.count, constant_value(self.product.steps), self.tiles.clusters
        assert tiles is not None and steps is not None, "the candidate fits"
        return Streamed(self.draft, self.choice, self.product, self.at, self.products.c, tiles, steps, every)

    def _way_in(self, begin: IndexExpr, turn: Turn | None = None) -> WayIn:
        made, choice = self.products, self.choice
        return WayIn(
            self.draft, self.product, self.at, a=made.a, b=made.b, rows=self.tile_rows, columns=self.columns,
            ranks=self.ranks, abreast=choice.abreast > 1, stages=choice.stages, begin=begin, turn=turn,
            back=self.turns.goes_back, loaded=self.loaded.id if self.loaded else None,
        )  # fmt: skip

    # ---- the launch ----

    def launch(self, name: str) -> Launch:
        at = self.at
        rank = _digit(at.rank, Place.CLUSTER, self.together)
        cluster = _digit(at.cluster, Place.GRID_X, self.tiles.clusters, self.together)
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
            grid=(self.tiles.blocks(self.together), ONE, ONE),
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
        if self.choice.blocks * self.columns * len(self.product.factors[1:]) // 2 > MANY_SUMS:
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

    def _pipe(self) -> Pipe:
        every = tuple(range(self.ranks))
        ranks = tuple(every for _ in every) if self.ranks > 1 else ()
        return Pipe(
            name=self.at.ring,
            stages=self.choice.stages,
            kind=PipeKind.TRANSACTION,
            scope=Scope.CLUSTER if self.ranks > 1 else Scope.BLOCK,
            buffers=(self.products.a, *self.products.b),
            producers=(End(part=LOAD, ranks=ranks),),
            consumers=(End(part=MULTIPLY, ranks=ranks),),
            commits=1,
            releases=self.ranks * (1 if self.choice.alternate else self.groups) * GROUP_WARPS,
            bytes=self.products.bytes,
        )

    # ---- the way in ----

    def _load(self) -> tuple[Node, ...]:
        """By one thread. Others of a cluster release its slots until the end; who arrived at a barrier waits there."""
        at, (into, *_) = self.at, self.ways_in
        step = (*into.of_step, Acquire(pipe=at.ring), *into.copies, Commit(pipe=at.ring))
        steps = self.pairs.brought(self.turns.steps[1], self.ways_in) if self.pairs else (self.turns.over_k(*step),)
        tiles = self.turns.over_tiles(*into.of_tile, *steps)
        heard = (Barrier(scope=Scope.CLUSTER, action=Action.WAIT),) if self.meeting is not None else ()
        return (_once(tiles, *((Drain(pipe=at.ring),) if self.ranks > 1 else ())), *heard)

    # ---- the products, and the way back ----

    def _multiply(self) -> tuple[Node, ...]:
        at, ring, group, made = self.at, self.at.ring, GroupKind.WGMMA, self.products
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
        products = self.turns.over_k(
            Wait(pipe=ring),
            *(self.loaded.nodes() if self.loaded else ()),
            Fence(kind=FenceKind.WGMMA),
            *(made.of_step(again, *of, self.columns) for of in zip(made.factors, made.b, made.c, strict=True)),
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
            passed = self.turns.over_k(Skip(pipe=ring))
            inside = (*self.back.ahead, products, self._met(Action.ARRIVE), *rest)
            others = (passed, self._met(Action.BOTH))
            body = (Guard(condition=own, body=inside, orelse=others, uniform=Scope.WARPGROUP),)
        defines = self.loaded.defines if self.loaded else ()
        return *defines, self.turns.over_tiles(*self.back.of_tile, *body), *self.back.settled

    def _multiply_in_portions(self, portions: Portions) -> tuple[Node, ...]:
        never = Always(value=False)

        def product(id: str, number: int, into: str, wide: int, first: IndexExpr) -> Contract:
            made = self.products
            return replace(made.of_step(never, made.factors[number], made.b[number], into, wide, first), id=id)

        steps = portions.loops(self.turns.steps[1], product)
        body = (*self.back.ahead, *portions.zeros(), *steps, *self.back.loops)
        return self.turns.over_tiles(*self.back.of_tile, *body), *self.back.settled

    def _met(self, action: Action) -> Node:
        """A group says that it has come to the last step of its turn; or the other one waits for that."""
        names = GROUP_NAMES if action is Action.ARRIVE else tuple(reversed(GROUP_NAMES))
        first, second = (Barrier(scope=Scope.BLOCK, parts=(MULTIPLY,), action=action, name=name) for name in names)
        whose = Compare(op=CompareOp.EQ, left=var(self.at.group), right=ZERO)
        return Guard(condition=whose, body=(first,), orelse=(second,), uniform=Scope.WARPGROUP)


def _digit(name: str, place: Place, radix: int, stride: int = 1) -> Digit:
    return Digit(
        name=f"{name}_{place.value[:4]}", index=name, weight=1, radix=const(radix), stride=const(stride), place=place
    )


def _once(*body: Node) -> Guard:
    return Guard(condition=Always(value=True), body=body, once=True)
