"""Launches of sums of products in tiles, as a candidate says: factors come to shared memory while others multiply.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }      along j, across i, 128 by 128, 8 by 8 each, 16 deep

    i_tile = 128*i_block ;  j_tile = 128*j_block
    each i_own < 8, j_own < 8: C_sum[i_own, j_own] = 0
    A_next, B_next from A, B                                              the factors of the first products
    A_part, B_part of the product before the first one: zeros
    for k_step < ceildiv(K, 16)
      slot k_step % 2 of A_tile, B_tile from A_next, B_next
      if k_step + 1 < ceildiv(K, 16): A_next, B_next from A, B            those of the next
      barrier (block)
      for k_deep < 8, and 0 and 1 in turn
        A_part, B_part of product 2*k_deep + turn from slot k_step % 2 of A_tile, B_tile
        each i_own < 8, j_own < 8: C_sum[i_own, j_own] += A_part[…] * B_part[…]     of the product before that one
    the last products
    what the program says around its sums (`contracted_result.py`)

So a thread has what its next product needs while it makes this one (`ahead` 2), and the text has each part once. Where
it has not (`ahead` 1) all products of a step stand in a row, between the loads of the next factors and their way into
the other slot.

Beyond the extents the tiles have zeros, whose products add nothing, or nobody stores. A long sum goes over chunks of
products; the sum of each is added to one in f64. `brought.py` has the way of the factors, `split_sums.py` that of the
sums of blocks that share the products of a tile.
"""

from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Compare,
    CompareOp,
    Expr,
    IndexExpr,
    IndexOp,
    IndexVar,
    Read,
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
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral.map.brought import Block, Brought, zero
from texpr.polyhedral.map.contracted_result import Result
from texpr.polyhedral.map.contracted_tiles import SLOTS, lanes, square
from texpr.polyhedral.map.contraction import contracted_nest, contraction
from texpr.polyhedral.map.digits import numbered, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import band_of, launch_of, place_in
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.raster import raster_grid
from texpr.polyhedral.map.split_sums import Split, met
from texpr.polyhedral.map.summed import along_steps
from texpr.polyhedral.map.triangle import meets
from texpr.polyhedral.mapped.candidate import Contracted
from texpr.polyhedral.mapped.operators import Elementwise, Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.names import stem
from texpr.polyhedral.prove.additions import CHAIN


def build_contracted(draft: Draft, region: Region, choice: Contracted) -> Launch:
    """A band of sums of products in tiles of two indices."""
    _, ranges, _ = band_of(region)
    nest = contracted_nest(region)
    one = contraction(draft.problem, nest, choice)
    assert one is not None, "the candidate fits"
    part = draft.names.fresh("part")
    indices = (*(side.index for side in one.blocked), part)
    extents = [*(side.extent for side in one.blocked), const(choice.parts)]
    order = [indices.index(index) for index in (*choice.grid, part)]
    covered = [choice.tile.get(index, 1) for index in indices]
    grid = raster_grid(draft, indices, extents, covered, order, nest.pars[0].span)
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    word = {side.index: side.word for side in one.sides}
    corner = {side: draft.names.fresh(f"{word[side]}_tile") for side in choice.tile}
    defines = (
        Define(index=corner.get(index, index), digits=blocks)
        for index, blocks in zip(indices, grid.digits, strict=True)
        if index != part or choice.parts > 1
    )
    sides = (choice.along, choice.across)
    pieces = tuple((sides.index(side), n) for side, n in lanes(choice, draft.target.warp_size))
    team = thread_digits(sides, pieces, draft.names, draft.target.warp_size, dict.fromkeys(sides, square(one)))
    draft.digits += team.all
    at = {side: draft.names.fresh(f"{word[side]}_at") for side in sides}
    places = (
        Define(index=at[side], digits=tuple(reversed(mine))) for side, mine in zip(sides, team.digits, strict=True)
    )
    digits = tuple(digit.name for digit in team.all)
    block = Block(draft=draft, one=one, choice=choice, corner=corner, at=at, digits=digits)
    split: Split | None = None
    if choice.parts > 1:
        split = Split(part=part, numbers=numbered(grid.all[:-1], draft.names, "number"))
        draft.digits += split.digits
    sums = _Sums(block, split)
    body = (*defines, *(split.numbers if split is not None else ()), *places, *sums.where_any())
    launch = launch_of(draft, region, choice.threads, grid, body)
    return replace(launch, min_blocks=choice.resident, orders=sums.orders)


class _Sums:
    """The sums of a block's tile."""

    def __init__(self, block: Block, split: Split | None) -> None:
        self.split, self.orders = split, tuple[Order, ...]()
        self.block, self.one, self.choice, self.draft = block, block.one, block.choice, block.draft
        self.span, self.id = block.span, block.one.update.id
        choice, fresh = block.choice, block.draft.names.fresh
        self.shape = (choice.each[choice.across], choice.each[choice.along])
        self.sides = {side.index: side for side in block.one.sides}
        self.own = tuple(fresh(f"{self.sides[side].word}_own") for side in (choice.across, choice.along))
        self.deep, self.step, self.chunk = (
            fresh(f"{stem(along_steps(block.one, choice.depth).index)}_{word}") for word in ("deep", "step", "chunk")
        )
        self.factors = tuple(Brought(block, side) for side in self.sides)
        self.sums = self._registers("sum", block.one.dtype, "the sums of a thread")
        long = self.id in block.draft.long and block.one.dtype == F32
        self.chunked = long and (constant_value(self._each_part) or CHAIN) * choice.depth > CHAIN

    def _registers(self, word: str, dtype: DType, reason: str) -> str:
        return self.block.registers(f"{self.one.update.buffer}_{word}", dtype, self.shape, reason)

    def nodes(self) -> tuple[Node, ...]:
        """Everything that the threads of a block do."""
        defines = (define for factor in self.factors for define in factor.defines)
        fresh = (node for factor in self.factors for node in factor.fresh)
        sums, total = self._summed()
        if self.split is None:
            end = Result(self.block).stored(total)
        else:
            end, order = met(self.block, self.split, total, self.shape, Result(self.block).stored)
            self.orders = (order,)
        return (*defines, *fresh, *self._begun(), *sums, *end)

    def where_any(self) -> tuple[Node, ...]:
        """The same of the tiles of which some element is there."""
        nodes, one = self.nodes(), self.one
        if one.nest.domain is None or any(side.joins for side in one.sides):
            return nodes
        ranges = {
            side: (first := IndexVar(name=self.block.corner[side]), add(first, const(self.choice.tile[side] - 1)))
            for side in self.sides
        }
        some = meets(one.nest.domain, ranges)
        if some is None:
            return nodes
        return (Guard(condition=some, body=nodes, padding=True, uniform=Scope.BLOCK, span=self.span),)

    # ---- the products ----

    @property
    def _each_part(self) -> IndexExpr:
        """How many steps a block takes at most."""
        return ceildiv(ceildiv(self.one.extent, self.choice.depth), self.choice.parts)

    @property
    def _first(self) -> IndexExpr:
        """The number of a block's first step."""
        return multiply(self._each_part, IndexVar(name=self.split.part)) if self.split is not None else ZERO

    @property
    def _steps(self) -> IndexExpr:
        """How many steps a block takes."""
        steps = ceildiv(self.one.extent, self.choice.depth)
        if self.split is None or steps == multiply(self._each_part, const(self.choice.parts)):
            return self._each_part
        return minimum(self._each_part, subtract(steps, self._first))

    @property
    def _now(self) -> IndexExpr:
        """The number of the step at hand among those of the block."""
        step = IndexVar(name=self.step)
        return (
            add(multiply(const(CHAIN // self.choice.depth), IndexVar(name=self.chunk)), step) if self.chunked else step
        )

    def _begun(self) -> tuple[Node, ...]:
        """The factors of the first step."""
        first = self._loads(ZERO)
        if not self._by_turns:
            first = (*first, *self._stores(ZERO))
        if constant_value(self._steps) is not None:
            return first if self._steps != ZERO else ()
        some = Compare(op=CompareOp.GT, left=self._steps, right=ZERO)
        return (Guard(condition=some, body=first, uniform=Scope.BLOCK, span=self.span),)

    def _summed(self) -> tuple[tuple[Node, ...], str]:
        """All sums, and where they are then: long ones in f64, a chunk of products after the other."""
        start = self._each("zero", Bind, self.sums, zero(self.one.dtype))
        sums: tuple[Node, ...] = (Fresh(buffer=self.sums), start)
        if not self.chunked:
            return (*sums, *self._stepped(self._steps)), self.sums
        total = self._registers("total", F64, f"the sums of {CHAIN} products at a time, added up")
        most = const(CHAIN // self.choice.depth)
        steps = minimum(most, subtract(self._steps, multiply(most, IndexVar(name=self.chunk))))
        more = self._each("add", Accumulate, total, Cast(operand=self._sum(self.sums), dtype=F64))
        chunks = Loop(
            index=self.chunk,
            extent=ceildiv(self.one.extent, CHAIN)
            if self.split is None
            else ceildiv(self._steps, CHAIN // self.choice.depth),
            body=(*sums, *self._stepped(steps), more),
            unroll_by=1,
            span=self.span,
        )
        return (Fresh(buffer=total), self._each("start", Bind, total, zero(F64)), chunks), total

    def _stepped(self, steps: IndexExpr) -> tuple[Node, ...]:
        """So many steps: each brings the factors of the next one, and multiplies its own."""
        if steps == ZERO:
            return ()
        after, here = add(self._now, ONE), IndexVar(name=self.step)
        more = Compare(op=CompareOp.LT, left=after, right=self._steps)

        def where_more(*nodes: Node) -> Guard:
            return Guard(condition=more, body=nodes, uniform=Scope.BLOCK, span=self.span)

        loads = where_more(*self._loads(after))
        if self._by_turns:
            return self._turned(steps, loads)
        deep, stores = IndexVar(name=self.deep), where_more(*self._stores(_slot(add(here, ONE))))
        products = Loop(
            index=self.deep,
            extent=const(self.choice.depth),
            body=(*self._takes(_slot(here), deep), self._product("", deep)),
            unroll=True,
            span=self.span,
        )
        return (Loop(index=self.step, extent=steps, body=(loads, products, stores), unroll_by=1, span=self.span),)

    def _turned(self, steps: IndexExpr, loads: Node) -> tuple[Node, ...]:
        """The same with a few products in a loop, each while the factors of the next one come: the last one of a step
        is made in the next step, of zeros in the first one. What is emitted has each of them once."""
        deep, slot, ahead = IndexVar(name=self.deep), _slot(IndexVar(name=self.step)), self.choice.ahead
        zeros = tuple(factor.zeros(ZERO) for factor in self.factors)
        turn: list[Node] = []
        for number in range(ahead):
            next_ = add(multiply(const(ahead), deep), const(number))
            turn += self._takes(slot, next_, const((number + 1) % ahead))
            turn.append(self._product("" if number == 0 else "turn", const(number)))
        turns = const(self.choice.depth // ahead)
        products = Loop(index=self.deep, extent=turns, body=tuple(turn), unroll_by=1, span=self.span)
        body = (*self._stores(slot), loads, products)
        loop = Loop(index=self.step, extent=steps, body=body, unroll_by=1, span=self.span)
        return (*zeros, loop, self._product("last", ZERO))

    @property
    def _by_turns(self) -> bool:
        """Whether a thread has the next product's factors while it makes one."""
        return self.choice.ahead > 1

    def _loads(self, step: IndexExpr) -> tuple[Node, ...]:
        """The factors of the products of a step."""
        return tuple(factor.load(add(self._first, step)) for factor in self.factors)

    def _stores(self, slot: IndexExpr) -> tuple[Node, ...]:
        return tuple(factor.store(slot) for factor in self.factors)

    def _takes(self, slot: IndexExpr, deep: IndexExpr, turn: IndexExpr | None = None) -> tuple[Node, ...]:
        """What a thread needs for its products of a number in a step, whose turn is as the number says. The side first
        along which lanes lie: its loads take longer, as neighbours have other elements (to 10 % of a kernel's time)."""
        nodes = {f.side: f.take(slot, deep, deep if turn is None else turn) for f in self.factors}
        return nodes[self.choice.along], nodes[self.choice.across]

    def _product(self, word: str, deep: IndexExpr) -> Elementwise:
        """The products of a number in a step, each added to its sum."""
        value = self.one.value
        places = dict(zip((self.choice.across, self.choice.along), self.own, strict=True))
        args = tuple(
            Read(
                buffer=f.part,
                subscripts=(f.held(deep, IndexVar(name=places[f.side])),),
                dtype=value.dtype,
                span=self.span,
            )
            for f in self.factors
        )
        return self._each(word, Accumulate, self.sums, replace(value, args=args))

    def _sum(self, name: str) -> Read:
        """A sum of a thread."""
        dtype = self.draft.buffers[name].dtype
        return Read(buffer=name, subscripts=self._places(), dtype=dtype, span=self.span)

    def _places(self) -> tuple[IndexExpr, ...]:
        return tuple(IndexVar(name=name) for name in self.own)

    def _each(self, word: str, kind: type[Bind | Accumulate], name: str, value: Expr) -> Elementwise:
        """What a thread does to each of its sums."""
        id = self.draft.names.fresh(f"{self.id}_{word}") if word else self.id
        leaf: Bind | Accumulate = Bind(id=id, buffer=name, subscripts=self._places(), value=value, span=self.span)
        if kind is Accumulate:
            leaf = Accumulate(id=id, op=AccOp.ADD, buffer=name, subscripts=self._places(), value=value, span=self.span)
        return Elementwise(
            id=id,
            leaves=(leaf,),
            over=tuple((own, const(n)) for own, n in zip(self.own, self.shape, strict=True)),
            origin={"add": Origin.COMBINE, "last": Origin.REST}.get(word, Origin.SOURCE),
            digits=self.block.digits,
        )


def _slot(step: IndexExpr) -> IndexExpr:
    """The slot of the factors' tiles that a step reads."""
    return combine(IndexOp.MOD, step, const(SLOTS))
