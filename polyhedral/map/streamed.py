"""Blocks that share the steps of all tiles evenly, whichever tiles these are of (stream-K).

    640 x 5120 x 5120 in tiles of 128 x 256: 100 tiles of 80 steps, 132 blocks

    block c has the steps 8000*c / 132 .. 8000*(c + 1) / 132 - 1 of all: 60 or 61, of one tile or of two
    for turn < ceildiv(end, 80) - begin / 80
      tile = begin / 80 + turn ;  first = max(begin - 80*tile, 0) ;  steps = min(end - 80*tile, 80) - first
      for k < steps: c += a * b of step first + k
      if sharers > 1: C_parts[c + tile, eight, thread, …] = c[x, 8*eight + …]
      the last of the sharers of a tile:
        if sharers > 1: c = 0 ;  for part < sharers: c += C_parts[low + part + tile, eight, thread, …]
        the way back

Pieces follow one another in the line of all steps: that of block c in a tile is number c + tile, and the first block
that has one is `low`. A tile is cut at the same steps in every run, and its parts are added in the order of k,
whichever block comes last, so that bits do not depend on timing; no block waits for another.

Source: Osama, Merrill, Cecka, Garland, Owens: Stream-K, PPoPP 2023; there the block with the first steps waits.
"""

from collections.abc import Mapping
from dataclasses import field

from texpr.grammar.ast import AccOp, Accumulate, Bind, Compare, CompareOp, Const, IndexExpr, IndexOp, Leaf, Read
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, combine, const, minimum, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lane_pairs import EIGHT, PAIR, lane_column, lane_row
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.meeting import by_the_last, left_in_memory
from texpr.polyhedral.map.piped_split import OWN, OWN_BYTES
from texpr.polyhedral.map.way_back import GROUP_WARPS, WARP_ROWS, Names, order, var, view
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.operators import Copy, Generic, Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.program import Hazard


@dataclass(slots=True)
class Streamed:
    """The pieces of `clusters` of blocks, which share `tiles` of so many `steps`, and how their `sums` come to the one
    that ends a tile: `puts` and `added` are the ids of what leaves, and of what adds, the parts of each sum."""

    draft: Draft
    choice: Piped
    product: MatrixProduct
    at: Names
    sums: tuple[str, ...]
    tiles: int
    steps: int
    clusters: int
    index: Mapping[str, str] = field(init=False)
    added: tuple[str, ...] = field(init=False)
    puts: list[str] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        fresh = self.draft.names.fresh
        words = ("begin", "end", "tile", "first", "steps", "low", "sharers")
        self.index = {word: fresh(word) for word in words}
        self.added = tuple(fresh(f"{factor.id}_added") for factor in self.product.factors[1:])

    @property
    def span(self) -> Span:
        return self.product.one.update.span

    def _var(self, word: str) -> IndexExpr:
        return var(self.index[word])

    def _let(self, word: str, value: IndexExpr) -> Define:
        return Define(index=self.index[word], digits=(), offset=value)

    # ---- pieces ----

    def of_block(self) -> tuple[Node, ...]:
        """The first step of a block's piece of all, and the one behind it."""
        own, every = var(self.at.cluster), const(self.tiles * self.steps)
        begin, end = (combine(IndexOp.DIV, multiply(every, c), const(self.clusters)) for c in (own, add(own, ONE)))
        return self._let("begin", begin), self._let("end", end)

    @property
    def turns(self) -> IndexExpr:
        """The tiles that a block has a piece of."""
        first = combine(IndexOp.DIV, self._var("begin"), const(self.steps))
        return subtract(ceildiv(self._var("end"), self.steps), first)

    def of_turn(self) -> tuple[Node, ...]:
        """The tile of a turn, and the block's piece of it."""
        begin, end, tile, steps = self._var("begin"), self._var("end"), self._var("tile"), const(self.steps)
        before = multiply(steps, tile)
        first = combine(IndexOp.MAX, subtract(begin, before), ZERO)
        last = minimum(subtract(end, before), steps)
        return (
            self._let("tile", add(combine(IndexOp.DIV, begin, steps), var(self.at.turn))),
            self._let("first", first),
            self._let("steps", subtract(last, self._var("first"))),
        )

    @property
    def tile(self) -> IndexExpr:
        """The number of a turn's tile."""
        return self._var("tile")

    @property
    def piece(self) -> tuple[IndexExpr, IndexExpr]:
        """The first step of a turn in its tile, and how many there are."""
        return self._var("first"), self._var("steps")

    def _has(self, step: IndexExpr) -> IndexExpr:
        """The block that has a step of all: the greatest c with every * c / clusters <= step."""
        every, clusters = const(self.tiles * self.steps), const(self.clusters)
        return combine(IndexOp.DIV, subtract(multiply(clusters, add(step, ONE)), ONE), every)

    # ---- sums ----

    def nodes(self, end: tuple[Node, ...]) -> tuple[Node, ...]:
        """What comes behind the products of a turn, and at the `end` of a tile."""
        first = multiply(const(self.steps), self.tile)
        behind = add(first, const(self.steps - 1))
        numbers = range(len(self.sums))
        spaces, fours = [self._space() for _ in numbers], [self._four() for _ in numbers]
        several = Compare(op=CompareOp.GT, left=self._var("sharers"), right=ONE)
        puts, gets = (
            Guard(condition=several, body=body, uniform=Scope.BLOCK, span=self.span)
            for body in (
                tuple(self._put(number, spaces[number], fours[number]) for number in numbers),
                tuple(n for number in numbers for n in self._got(number, spaces[number], fours[number])),
            )
        )
        ranks = self.choice.cluster > 1
        own = (self.tile, *((var(self.at.rank),) if ranks else ()))
        every = (const(self.tiles), *((const(self.choice.cluster),) if ranks else ()))
        between = tuple(o for o in self.orders if o.scope is Scope.GRID)
        last = by_the_last(self.draft, own, every, self._var("sharers"), (gets, *end), between, self.span)
        sharers = subtract(add(self._has(behind), ONE), self._var("low"))
        return self._let("low", self._has(first)), self._let("sharers", sharers), puts, last

    def read_by(self, rounded: str) -> None:
        """What all lanes of a warp round together is after the adds of each."""
        if rounded:
            self.orders.append(order(self.added[0], rounded, self.sums[0], Hazard.FLOW, Scope.WARP, self.span))

    @property
    def columns(self) -> int:
        return self.choice.tile[self.choice.along]

    @property
    def threads(self) -> int:
        """Those that have sums."""
        return self.choice.threads - GROUP_WARPS * self.draft.target.warp_size

    def _space(self) -> str:
        pieces, ranks = const(self.tiles + self.clusters - 1), const(self.choice.cluster)
        shape = (pieces, ranks, const(self.columns // EIGHT), const(self.threads), const(OWN))
        return self._local("parts", Memory.GLOBAL, shape, "sums of tiles that blocks share; the last one adds them")

    def _four(self) -> str:
        return self._local("four", Memory.REG, (const(OWN),), "four of them")

    def _local(self, word: str, memory: Memory, shape: tuple[IndexExpr, ...], why: str) -> str:
        return self.draft.local(
            f"{self.product.result[0]}_{word}", F32, memory, row_major(shape), why, align=OWN_BYTES, span=self.span
        )

    def _put(self, number: int, space: str, four: str) -> Node:
        """A thread's sums, four of two rows and two columns together, to its block's piece."""
        fresh, factor = self.draft.names.fresh, self.product.factors[1 + number].id
        index = _Indices.new(self.draft)
        hold, put = fresh(f"{factor}_held"), fresh(f"{factor}_part")
        value = Read(buffer=self.sums[number], subscripts=self._place(index), dtype=F32, span=self.span)
        held = Bind(id=hold, buffer=four, subscripts=(index.own,), value=value, span=self.span)
        self.orders.append(order(factor, hold, self.sums[number], Hazard.FLOW, Scope.WARP, self.span))
        self.puts.append(put)
        copy = self._copy(
            put, self._of(four, index), self._there(space, add(var(self.at.cluster), self.tile), index), index
        )
        return self._eights(index, self._each(index, held), copy)

    def _got(self, number: int, space: str, four: str) -> tuple[Node, ...]:
        """The parts of all blocks, added in their order."""
        fresh, factor = self.draft.names.fresh, self.product.factors[1 + number].id
        sums, take, zero, part = self.sums[number], fresh(f"{factor}_parts"), fresh(f"{factor}_zero"), fresh("part")
        self.orders.append(left_in_memory(self.puts[number], take, space, self.span))
        index = _Indices.new(self.draft)
        none = Bind(
            id=zero, buffer=sums, subscripts=self._place(index), value=Const(value=0.0, dtype=F32), span=self.span
        )
        self.orders.append(order(factor, zero, sums, Hazard.OUTPUT, Scope.WARP, self.span))
        begin = self._eights(index, self._each(index, none, Origin.INIT))
        index = _Indices.new(self.draft)
        piece = add(add(self._var("low"), var(part)), self.tile)
        copy = self._copy(take, self._there(space, piece, index), self._of(four, index), index, Cache.BYPASS)
        value = Read(buffer=four, subscripts=(index.own,), dtype=F32, span=self.span)
        more = Accumulate(
            id=self.added[number], buffer=sums, subscripts=self._place(index), op=AccOp.ADD, value=value, span=self.span
        )
        body = self._eights(index, copy, self._each(index, more))
        return begin, Loop(index=part, extent=self._var("sharers"), body=(body,), unroll_by=1, span=self.span)

    def _place(self, index: "_Indices") -> tuple[IndexExpr, IndexExpr]:
        """The row and the column of one of a thread's sums, in those of its warpgroup."""
        row = add(multiply(const(WARP_ROWS), var(self.at.warp)), lane_row(self.at.lane, var(index.half)))
        return row, lane_column(self.at.lane, var(index.eight), var(index.one))

    def _there(self, space: str, piece: IndexExpr, index: "_Indices") -> View:
        """Those of a thread in eight columns, in a piece."""
        warp = add(multiply(const(GROUP_WARPS), var(self.at.group)), var(self.at.warp))
        thread = add(multiply(const(self.draft.target.warp_size), warp), var(self.at.lane))
        rank = var(self.at.rank) if self.choice.cluster > 1 else ZERO
        return view(self.draft, space, piece, rank, var(index.eight), thread, var(index.e))

    def _of(self, four: str, index: "_Indices") -> View:
        return view(self.draft, four, var(index.e))

    def _copy(self, id: str, source: View, target: View, index: "_Indices", cache: Cache = Cache.PLAIN) -> Copy:
        over = ((index.e, const(OWN)),)
        return Copy(id=id, source=source, target=target, over=over, access=Access.ALIGNED, cache=cache, span=self.span)

    def _each(self, index: "_Indices", leaf: Leaf, origin: Origin = Origin.COMBINE) -> Node:
        """A statement for each of a thread's sums in eight columns."""
        one = self._loop(index.one, PAIR, Generic(id=leaf.id, leaf=leaf, origin=origin))
        return self._loop(index.half, 2, one)

    def _eights(self, index: "_Indices", *body: Node) -> Node:
        return self._loop(index.eight, self.columns // EIGHT, *body)

    def _loop(self, index: str, extent: int, *body: Node) -> Loop:
        return Loop(index=index, extent=const(extent), body=body, unroll=True, span=self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Indices:
    """Names of loops over what a thread has of a tile: eight columns, a row and a column of four; `e` is one of four
    in memory."""

    eight: str
    half: str
    one: str
    e: str

    @classmethod
    def new(cls, draft: Draft) -> "_Indices":
        eight, half, one, e = (draft.names.fresh(word) for word in ("eight", "half", "one", "element"))
        return cls(eight=eight, half=half, one=one, e=e)

    @property
    def own(self) -> IndexExpr:
        """Which of the four."""
        return add(multiply(const(PAIR), var(self.half)), var(self.one))
