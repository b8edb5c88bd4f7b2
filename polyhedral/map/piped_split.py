"""Blocks of a cluster that share the products of a tile: each ends a part of its columns, with what the others send.

    128 x 4096 x 4096, tiles of 128 by 64, 2 blocks        rank 0: k of 0 .. 2047, columns 0 .. 31 of the tile
                                                           rank 1: k of 2048 .. 4095, columns 32 .. 63

acquire met
for to < 2, but for rank: for eight < 4: parts[rank, eight, thread, …] of rank `to` = c[x, 32*to + 8*eight + …]
commit met ;  wait met
for eight < 4: c_own[x, 8*eight + …] = 0 + parts[0, eight, thread, …] + parts[1, eight, thread, …]      or c itself

So sums are added in the order of k, whoever adds them, and have the same bits in every run. A cluster has one tile:
nothing is sent to a place that is still read.
"""

from dataclasses import field, replace

from texpr.grammar.ast import AccOp, Accumulate, Bind, Compare, CompareOp, Const, IndexExpr, Read
from texpr.grammar.index.expr import add, const, multiply
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lane_pairs import EIGHT, lane_column, lane_row
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.way_back import GROUP_WARPS, WARP_ROWS, Names, order, var, view
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.atoms import wgmma_sums
from texpr.polyhedral.mapped.operators import Copy, Generic, Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import GROUP_ROWS, Piped
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Acquire, Action, Barrier, Commit, End, Pipe, PipeKind, Wait
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.program import Hazard

OWN = 4  # sums of a thread in eight columns
OWN_BYTES = OWN * F32.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Indices:
    """Names of loops over what a thread has of a tile, and its `place` in what a part sent."""

    half: str
    one: str
    part: str
    e: str
    place: tuple[IndexExpr, ...]


@dataclass(slots=True)
class Meeting:
    """The `sums` of a block on their way to the `totals` of its own columns, from `column` on. `made` are the ids of
    what adds the last of them."""

    draft: Draft
    choice: Piped
    product: MatrixProduct
    at: Names
    sums: tuple[str, ...]
    column: str = field(init=False)
    totals: tuple[str, ...] = field(init=False)
    made: tuple[str, ...] = field(init=False)
    parts: tuple[str, ...] = field(init=False)
    pipe: Pipe = field(init=False)
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        fresh = self.draft.names.fresh
        self.column = fresh(f"{self.product.columns.index}_own")
        layout = wgmma_sums(GROUP_ROWS, self.columns)
        self.totals = tuple(self._local("own", Memory.REG, layout) for _ in self.sums)
        self.made = tuple(fresh(f"{self.product.one.update.id}_met") for _ in self.sums)
        shape = tuple(map(const, (self.choice.split, self.columns // EIGHT, self.threads, OWN)))
        self.parts = tuple(self._local("parts", Memory.SHARED, row_major(shape)) for _ in self.sums)
        every = tuple(range(self.choice.split))
        self.pipe = Pipe(
            name=fresh("met"),
            stages=1,
            kind=PipeKind.TRANSACTION,
            scope=Scope.CLUSTER,
            buffers=self.parts,
            producers=(End(part="multiply", ranks=tuple(every for _ in every)),),
            consumers=(End(part="multiply"),),
            commits=self.threads // self.draft.target.warp_size,
            releases=0,
            bytes=(self.choice.split - 1) * len(self.sums) * self.columns // EIGHT * self.threads * OWN_BYTES,
        )

    @property
    def span(self) -> Span:
        return self.product.one.update.span

    @property
    def columns(self) -> int:
        """Those that a block ends."""
        return self.choice.tile[self.choice.along] // self.choice.split

    @property
    def threads(self) -> int:
        """Those that have sums."""
        return self.choice.threads - GROUP_WARPS * self.draft.target.warp_size

    def nodes(self) -> tuple[Node, ...]:
        fresh = self.draft.names.fresh
        to, eight, half, one, part, e = (fresh(word) for word in ("to", "eight", "half", "one", "part", "element"))
        warp_size = self.draft.target.warp_size
        warp = add(multiply(const(GROUP_WARPS), var(self.at.group)), var(self.at.warp))
        thread = add(multiply(const(warp_size), warp), var(self.at.lane))
        x = add(multiply(const(WARP_ROWS), var(self.at.warp)), lane_row(self.at.lane, var(half)))
        y = lane_column(self.at.lane, var(eight), var(one))
        at = add(multiply(const(2), var(half)), var(one))
        there = add(multiply(const(self.columns), var(to)), y)
        index = Indices(half=half, one=one, part=part, e=e, place=(var(part), var(eight), thread))
        over: Box = ((half, const(2)), (one, const(2)))
        numbers, place = range(len(self.sums)), (var(self.at.rank), var(eight), thread, at)
        sends = tuple(self._send(number, (x, there), place, to, over) for number in numbers)
        more = self._local("more", Memory.REG, row_major((const(OWN),)))
        added = tuple(n for number in numbers for n in self._added(number, sends[number].id, more, (x, y), index))
        eights, first = const(self.columns // EIGHT), multiply(const(self.columns), var(self.at.rank))
        return (
            *(Fresh(buffer=name) for name in self.parts),
            Barrier(scope=Scope.CLUSTER, action=Action.WAIT, span=self.span),
            Acquire(pipe=self.pipe.name),
            self._loop(to, const(self.choice.split), self._of_rank(to, (), (self._loop(eight, eights, *sends),))),
            Commit(pipe=self.pipe.name, by_warp=True),
            Wait(pipe=self.pipe.name),
            self._loop(eight, eights, *added),
            Define(index=self.column, digits=(), offset=add(var(self.at.column), first)),
        )

    def _of_rank(self, part: str, own: tuple[Node, ...], others: tuple[Node, ...]) -> Guard:
        """What is done with the part of the rank itself, and with those of others."""
        itself = Compare(op=CompareOp.EQ, left=var(part), right=var(self.at.rank))
        if own:
            return Guard(condition=itself, body=own, orelse=others, uniform=Scope.BLOCK, span=self.span)
        return Guard(condition=replace(itself, op=CompareOp.NE), body=others, uniform=Scope.BLOCK, span=self.span)

    def _local(self, word: str, memory: Memory, layout: Layout) -> str:
        wanted, reason = f"{self.product.result[0]}_{word}", "sums of a tile that blocks share"
        align = OWN_BYTES if memory is Memory.SHARED else F32.size_bytes
        return self.draft.local(wanted, F32, memory, layout, reason, align=align, span=self.span)

    def _loop(self, index: str, extent: IndexExpr, *body: Node) -> Loop:
        return Loop(index=index, extent=extent, body=body, unroll=True, span=self.span)

    def _send(self, number: int, of: tuple[IndexExpr, ...], place: tuple[IndexExpr, ...], to: str, over: Box) -> Copy:
        """A thread's sums of two rows and two columns on their way to a rank."""
        factor, sums, parts = self.product.factors[1 + number], self.sums[number], self.parts[number]
        id = self.draft.names.fresh(f"{factor.id}_sent")
        self.orders.append(order(factor.id, id, sums, Hazard.FLOW, Scope.WARP, self.span))
        return Copy(
            id=id,
            source=view(self.draft, sums, *of),
            target=view(self.draft, parts, *place),
            over=over,
            completion=Completion.TRANSACTION,
            pipe=self.pipe.name,
            rank=var(to),
            span=self.span,
        )

    def _added(self, number: int, send: str, more: str, of: tuple[IndexExpr, ...], index: Indices) -> tuple[Node, ...]:
        """The same of all ranks, added in their order."""
        totals, parts, fresh = self.totals[number], self.parts[number], self.draft.names.fresh
        zero = Const(value=0.0, dtype=F32)
        own = add(multiply(const(2), var(index.half)), var(index.one))
        value = Read(buffer=more, subscripts=(own,), dtype=F32, span=self.span)
        take, begin = fresh(f"{self.made[number]}_part"), fresh(f"{self.made[number]}_zero")
        self.orders.append(order(send, take, parts, Hazard.FLOW, Scope.CLUSTER, self.span))
        taken = Copy(
            id=take,
            source=view(self.draft, parts, *index.place, var(index.e)),
            target=view(self.draft, more, var(index.e)),
            over=((index.e, const(OWN)),),
            access=Access.ALIGNED,
            span=self.span,
        )
        first = Bind(id=begin, buffer=totals, subscripts=of, value=zero, span=self.span)
        then = Accumulate(id=self.made[number], buffer=totals, subscripts=of, op=AccOp.ADD, value=value, span=self.span)
        init = Generic(id=begin, leaf=first, origin=Origin.INIT)
        added = Generic(id=self.made[number], leaf=then, origin=Origin.COMBINE)
        x, y = of
        column = add(multiply(const(self.columns), var(index.part)), y)
        kept = Read(buffer=self.sums[number], subscripts=(x, column), dtype=F32, span=self.span)
        here = replace(then, id=fresh(f"{self.made[number]}_kept"), value=kept)
        factor = self.product.factors[1 + number]
        self.orders.append(order(factor.id, here.id, self.sums[number], Hazard.FLOW, Scope.WARP, self.span))
        itself = self._four(index, Generic(id=here.id, leaf=here, origin=Origin.COMBINE))
        both = self._of_rank(index.part, (itself,), (taken, self._four(index, added)))
        return self._four(index, init), self._loop(index.part, const(self.choice.split), both)

    def _four(self, index: Indices, node: Node) -> Loop:
        return self._loop(index.half, const(2), self._loop(index.one, const(2), node))
