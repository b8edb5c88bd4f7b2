"""Sums of products of f8 on tensor cores, in portions: an instruction keeps 14 bits of what it adds to.

    c[x, y] = 0
    for k < ceildiv(K, 128) / 8
      wait ring ;  p = a * b of the first columns ;  close
      q = a * b of those behind ;  close
      wait (wgmma, all but 1) ;  c[x, y] += p[x, y]                         while q is made
      wait ring ;  p = a * b of the first columns ;  close
      wait (wgmma, all but 1) ;  release the slot before ;  c[x, 96 + y] += q[x, y]          while p is made
      …
      wait (wgmma) ;  release ring ;  c[x, 96 + y] += q[x, y]               while the other warpgroup multiplies
    for k < ceildiv(K, 128) % 8                         each by itself

Two portions have as many columns as there are registers for beside the sums. No products are on their way from one
turn of a loop to the next: the assembler would run all of them one after another (C7514). Where the steps are places of
a window, there is one portion:

    for k
      wait ring
      for piece < 2
        p = a * b of 128 columns from 128 * piece on ;  close ;  wait (wgmma)
        if piece == 1: release ring
        c[x, 128 * piece + y] += p[x, y]

A step has as many products as a portion may have (`LARGEST_PORTION`), so each begins from 0, and is added in f32.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from texpr.grammar.ast import AccOp, Accumulate, Bind, Compare, CompareOp, Const, IndexExpr, IndexOp, Leaf, Read
from texpr.grammar.index.expr import ZERO, add, combine, const, constant_value, multiply, subtract
from texpr.grammar.permissions import LARGEST_PORTION
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lane_pairs import EIGHT, PAIR, lane_column, lane_row
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.multiplied import paired_columns, portion_columns
from texpr.polyhedral.map.way_back import WARP_ROWS, Names, first_lane, order, var
from texpr.polyhedral.map.way_in import Turn, WayIn
from texpr.polyhedral.mapped.atoms import wgmma_sums
from texpr.polyhedral.mapped.operators import Contract, Generic, Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import GROUP_ROWS
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Acquire, Close, Commit, Fence, FenceKind, GroupKind, Release, Wait, WaitGroup
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.program import Hazard

Product = Callable[[str, int, str, int, IndexExpr], Contract]
"""By its id, the product of a sum, by its number, that leaves so many columns of a tile in a buffer, from one on."""
Place = tuple[IndexExpr, ...]
MOST_STEPS, MOST_PIECES = 8, 16  # of a turn


@dataclass(slots=True)
class Portions:
    """The `sums` of a warpgroup, of so many `columns` each, made of portions. `made` are the ids of what adds them."""

    draft: Draft
    product: MatrixProduct
    at: Names
    sums: tuple[str, ...]
    columns: int
    made: tuple[str, ...] = field(init=False)
    starts: tuple[Mapping[str, tuple[str, ...]], ...] = field(init=False)
    k_rest: str = field(init=False)
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.product.depth <= LARGEST_PORTION, "a step is a portion"
        self.made = self._ids()
        ids, count = [factor.id for factor in self.product.factors[1:]], self.columns // self.width
        self.starts = tuple(
            {id: tuple(self.draft.names.fresh(id) for _ in range(count)) for id in ids}
            for _ in range(self.together + 1)
        )
        self.k_rest = self.draft.names.fresh(f"{self.at.k}_rest")

    @property
    def span(self) -> Span:
        return self.product.one.update.span

    @property
    def together(self) -> int:
        """The steps of a turn: as many as leave the fewest over, where it is known how many there are."""
        most = max(1, min(MOST_STEPS, MOST_PIECES // (len(self.sums) * self.columns // self.width)))
        steps = constant_value(self.product.steps) or most
        return min(range(min(most, steps), min(most - most // 2, steps) - 1, -1), key=lambda n: steps % n)

    @property
    def in_pairs(self) -> bool:
        """Whether there are two portions: steps are no places of a window."""
        return not self.product.window.loops

    @property
    def width(self) -> int:
        """The columns of a portion."""
        return paired_columns(self.columns, len(self.sums)) if self.in_pairs else portion_columns(self.columns)

    @property
    def registers(self) -> int:
        """Those of a thread for portions."""
        return self.width if self.in_pairs else self.width // 2

    def zeros(self) -> tuple[Node, ...]:
        """What the sums begin with."""
        zero, piece = Const(value=0.0, dtype=F32), self.draft.names.fresh("piece")
        each = list[Node]()
        for made, sums in zip(self.made, self.sums, strict=True):
            id = self.draft.names.fresh(f"{made}_zero")

            def leaf(place: Place, _: Place, id: str = id, sums: str = sums) -> Leaf:
                return Bind(id=id, buffer=sums, subscripts=place, value=zero, span=self.span)

            each.append(self._each(id, leaf, Origin.INIT, multiply(const(self.width), var(piece))))
        return (self._loop(piece, self.columns // self.width, *each),)

    def loops(self, steps: IndexExpr, product: Product) -> tuple[Node, ...]:
        """All steps of a tile: their products, and what adds them."""
        return self._pairs(steps, product) if self.in_pairs else self._pieces(steps, product)

    # ---- several steps in a turn, with two portions ----

    def ways_in(self, steps: IndexExpr, way: Callable[[IndexExpr, Turn], WayIn], stages: int) -> tuple[WayIn, ...]:
        """Those of each step of a turn, and of the rest of all steps."""
        found, n = list[WayIn](), self.together
        for number in range(n):
            before = (number - stages) % n  # which of a turn had the slot
            apart = (before - number + stages) // n
            read, freed = self.starts[number], self.starts[before]
            found.append(way(const(number), Turn(k=self.at.k, steps=n, read_by=read, freed_by=freed, apart=apart)))
        rest = self._rest(steps)
        if rest != ZERO:
            alone = self.starts[n]
            turn = Turn(k=self.k_rest, steps=1, read_by=alone, freed_by=alone, apart=stages if stages < n else 0)
            found.append(way(subtract(steps, rest), turn))
        return tuple(found)

    def brought(self, steps: IndexExpr, ways: Sequence[WayIn]) -> tuple[Node, ...]:
        """What one thread brings of all steps."""
        ring = self.at.ring
        all_ = [(Acquire(pipe=ring), *way.of_step, *way.copies, Commit(pipe=ring)) for way in ways]
        of_turn = tuple(node for nodes in all_[: self.together] for node in nodes)
        return self._by_turns(steps, of_turn, *all_[self.together :])

    def _pairs(self, steps: IndexExpr, product: Product) -> tuple[Node, ...]:
        held = self._portion("even"), self._portion("odd")
        turn = self._turn(range(self.together), held, product)
        if self._rest(steps) == ZERO:
            return self._by_turns(steps, turn)
        return self._by_turns(steps, turn, self._turn(range(self.together, self.together + 1), held, product))

    def _turn(self, steps: range, held: tuple[str, str], product: Product) -> tuple[Node, ...]:
        """The products of some steps, a piece of columns of a sum at a time, into one portion and the other; what one
        has is added while the other is made."""
        each = range(self.columns // self.width)
        pieces = [(step, number, piece) for step in steps for number in range(len(self.sums)) for piece in each]
        nodes = list[Node]()
        for n, (step, number, piece) in enumerate(pieces):
            into, factor = held[n % 2], self.product.factors[1 + number]
            made = self.starts[step][factor.id][piece]
            ring = (Wait(pipe=self.at.ring),) if (number, piece) == (0, 0) else ()
            into_sums = product(made, number, into, self.width, const(self.width * piece))
            nodes += [*ring, Fence(kind=FenceKind.WGMMA), into_sums, Close(kind=GroupKind.WGMMA)]
            for last in ([n - 1] if n else []) + ([n] if n == len(pieces) - 1 else []):
                nodes += self._finished(pieces, last, held[last % 2], behind=n - last)
        return tuple(nodes)

    def _finished(
        self, pieces: Sequence[tuple[int, int, int]], n: int, portion: str, *, behind: int
    ) -> tuple[Node, ...]:
        """A piece is added when its products are over, of which so many groups are behind. The slot of a step is free
        when those of its last piece are."""
        step, number, piece = pieces[n]
        over = n + 1 == len(pieces) or pieces[n + 1][0] != step
        last = (self.together - 1, number, self.columns // self.width - 1)
        id = self.made[number] if pieces[n] == last else self.draft.names.fresh(self.made[number])
        start = self.starts[step][self.product.factors[1 + number].id][piece]
        self.orders.append(order(start, id, portion, Hazard.FLOW, Scope.WARP, self.span))
        return (
            WaitGroup(kind=GroupKind.WGMMA, behind=behind),
            *((self._released(behind),) if over else ()),
            self._adds(id, self.sums[number], portion, const(self.width * piece)),
        )

    def _by_turns(self, steps: IndexExpr, turn: tuple[Node, ...], alone: tuple[Node, ...] = ()) -> tuple[Node, ...]:
        turns, rest = combine(IndexOp.DIV, steps, const(self.together)), self._rest(steps)
        all_ = ((self.at.k, turns, turn), (self.k_rest, rest, alone))
        return tuple(
            Loop(index=index, extent=extent, body=body, unroll_by=1, span=self.span)
            for index, extent, body in all_
            if body and extent != ZERO
        )

    def _rest(self, steps: IndexExpr) -> IndexExpr:
        """How many steps are in no turn."""
        return combine(IndexOp.MOD, steps, const(self.together))

    # ---- some columns at a time ----

    def _pieces(self, steps: IndexExpr, product: Product) -> tuple[Node, ...]:
        """The slot of a step is free when the products of its last columns are over."""
        portion, pieces = self._portion("portion"), self.columns // self.width
        body: tuple[Node, ...] = (Wait(pipe=self.at.ring),)
        last = len(self.sums) - 1
        for number, (id, sums) in enumerate(zip(self.made, self.sums, strict=True)):
            piece = self.draft.names.fresh("piece")
            first = multiply(const(self.width), var(piece))
            over = Compare(op=CompareOp.EQ, left=var(piece), right=const(pieces - 1))
            free = Guard(condition=over, body=(self._released(0),), uniform=Scope.BLOCK, span=self.span)
            made = self.product.factors[1 + number].id
            self.orders.append(order(made, id, portion, Hazard.FLOW, Scope.WARP, self.span))
            nodes = (
                Fence(kind=FenceKind.WGMMA),
                product(made, number, portion, self.width, first),
                Close(kind=GroupKind.WGMMA),
                WaitGroup(kind=GroupKind.WGMMA),
                *((free,) if number == last else ()),
                self._adds(id, sums, portion, first),
            )
            body += (self._loop(piece, pieces, *nodes),)
        return (Loop(index=self.at.k, extent=steps, body=body, span=self.span),)

    # ---- of both ----

    def _ids(self) -> tuple[str, ...]:
        return tuple(self.draft.names.fresh(f"{factor.id}_added") for factor in self.product.factors[1:])

    def _portion(self, word: str) -> str:
        """Registers for a portion."""
        layout, reason = wgmma_sums(GROUP_ROWS, self.width), "a portion of the sums of a warpgroup"
        return self.draft.local(f"{self.product.result[0]}_{word}", F32, Memory.REG, layout, reason, span=self.span)

    def _released(self, behind: int) -> Node:
        return first_lane(self.at.lane, Release(pipe=self.at.ring, behind=behind))

    def _adds(self, id: str, sums: str, portion: str, first: IndexExpr) -> Node:
        """A portion is added to columns of its sums, from one on."""

        def leaf(place: Place, own: Place) -> Leaf:
            value = Read(buffer=portion, subscripts=own, dtype=F32, span=self.span)
            return Accumulate(id=id, buffer=sums, subscripts=place, op=AccOp.ADD, value=value, span=self.span)

        return self._each(id, leaf, Origin.COMBINE, first)

    def _each(self, id: str, leaf: Callable[[Place, Place], Leaf], origin: Origin, first: IndexExpr) -> Node:
        """A leaf for each element of a portion that a thread holds, given its place among the sums and there."""
        eight, half, one = (self.draft.names.fresh(word) for word in ("eight", "half", "one"))
        x = add(multiply(const(WARP_ROWS), var(self.at.warp)), lane_row(self.at.lane, var(half)))
        y = lane_column(self.at.lane, var(eight), var(one))
        node: Node = Generic(id=id, leaf=leaf((x, add(first, y)), (x, y)), origin=origin)
        for index, extent in ((one, PAIR), (half, 2), (eight, self.width // EIGHT)):
            node = self._loop(index, extent, node)
        return node

    def _loop(self, index: str, extent: int, *body: Node) -> Loop:
        return Loop(index=index, extent=const(extent), body=body, unroll=True, span=self.span)
