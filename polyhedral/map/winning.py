"""Which run of a thread has what it picks of narrow elements, told by the greatest of each run, two elements at once.

    if X[i, j] > top { top = X[i, j] ; at = j }          X: bf16, a run of 8 elements in each of a thread's rounds

    for j_serial < 13  (unrolled)
      if 0 < j_serial and j_serial < 12
        X_run = GreatestNumber of X_now[e] for e < 8                in bf16
        if X_run > won { won = X_run ; won_from = j_first ; X_won[e] = X_now[e] for e < 8 }
      else: element by element, into top_part and at_part
    if won > -inf { of the elements of X_won the first that is greatest, at won_from + e, into top_part and at_part }

A comparison and two choices for each element took longer than memory: rows of 100003 columns ran at .93 of a read on an
H200. Of equal runs the first one wins, as of equal elements the first is asked for, so there is nothing of the kind for
picks of the last one.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Const,
    Expr,
    Fn,
    IndexExpr,
    IndexValue,
    IndexVar,
    New,
    Op,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.ast import Node as Tree
from texpr.grammar.index.expr import const, substitute
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, BOOL, F16, F32
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.held import along_row
from texpr.polyhedral.map.paired import in_whole_runs
from texpr.polyhedral.map.picks import Order, Pick
from texpr.polyhedral.map.reduction_parts import Part, place
from texpr.polyhedral.map.row_tiles import RowTile
from texpr.polyhedral.map.runs import Run
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.updates import changed
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.places import Digit, Memory
from texpr.polyhedral.mapped.tree import Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View

GREATEST = {Order.FIRST_GREATEST: (Fn.GT, "GreatestNumber"), Order.FIRST_LEAST: (Fn.LT, "LeastNumber")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The run of a thread that has what it picks: the registers of its greatest element, its first iteration and its
    elements, which are those of `held`; `body` are the statements of the loop."""

    draft: Draft
    part: Part
    pick: Pick
    tile: RowTile
    loop: Seq | Par
    body: tuple[Stmt, ...]
    held: Read
    won: str
    won_from: str
    elements: str
    outer: tuple[str, ...]
    digits: tuple[str, ...]

    @property
    def start(self) -> Const:
        return self.pick.starts[0]

    def started(self) -> tuple[Node, ...]:
        """Before all runs."""
        none = Const(value=0, dtype=self.pick.iteration.dtype, span=self.pick.span)
        registers = (self.won, self.won_from, self.elements)
        starts = ((self.won, self.start), (self.won_from, none))
        return (
            *(Fresh(buffer=name) for name in registers),
            *(self._bind_outside(n, v, Origin.INIT) for n, v in starts),
        )

    def in_run(self, run: Run, serial: tuple[Digit, ...], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes of a run, in whose place those of a whole one ask for its greatest element alone."""
        runs = self._of_run(run, serial)
        return in_whole_runs(self.draft, self.tile, self.loop.extent, serial, runs, nodes, self.pick.span)

    def _of_run(self, run: Run, serial: tuple[Digit, ...]) -> tuple[Node, ...]:
        draft, pick, fresh = self.draft, self.pick, self.draft.names.fresh
        fn, monoid = GREATEST[pick.order]
        reason = f"the {'greatest' if fn is Fn.GT else 'least'} of neighbours, chosen in their own type"
        best = draft.local(
            f"{self.held.buffer}_run", self.held.dtype, Memory.REG, row_major(()), reason, span=pick.span
        )
        each, to = fresh("each"), fresh("each")
        reduce = Reduce(
            id=fresh(f"{pick.id}_run"),
            monoid=monoid,
            values=(self._held(self.held.buffer, self.tile.place(serial, IndexVar(name=each))),),
            targets=(View(buffer=best, subscripts=(), dtype=self.held.dtype),),
            over=((each, const(self.tile.width)),),
            unused=Unused.REPLICATED,
            span=pick.span,
        )
        value = self._widened(self._scalar(best, self.held))
        asks = place(draft, "better", BOOL, ())
        better = Op(fn=fn, args=(value, self._scalar(self.won, self.start)), dtype=BOOL, span=pick.span)
        first = _at(pick.iteration.index, self.loop.index, IndexVar(name=run.first))
        elements = self._held(self.held.buffer, self.tile.place(serial, IndexVar(name=to)))
        moved = self._bind(self.elements, (IndexVar(name=to),), elements)
        taken = (
            self._bind(self.won, (), value),
            self._bind(self.won_from, (), IndexValue(index=first, dtype=pick.iteration.dtype)),
            Loop(index=to, extent=const(self.tile.width), body=(moved,), unroll=True, span=pick.span),
        )
        return (
            Fresh(buffer=best),
            reduce,
            Fresh(buffer=asks),
            self._bind(asks, (), better),
            Guard(condition=Read(buffer=asks, subscripts=(), dtype=BOOL, span=pick.span), body=taken, span=pick.span),
        )

    def searched(self) -> tuple[Node, ...]:
        """Behind all runs: the element that wins, and its iteration, among those that were picked one by one."""
        draft, pick = self.draft, self.pick
        each = draft.names.fresh("each")
        registers = tuple(
            Read(
                buffer=place(draft, f"{component.word}_won", component.dtype, ()), subscripts=(), dtype=component.dtype
            )
            for component in self.part.components
        )
        number_of = IndexValue(index=IndexVar(name=each), dtype=pick.iteration.dtype)
        numbered = replace(pick, iteration=number_of)
        found = changed(self.body, lambda stmt: numbered.in_thread(stmt, registers, self.part.local))
        one = self._nodes(tuple(rewrite(stmt, lambda node: self._won(node, IndexVar(name=each))) for stmt in found))
        from_first = Read(buffer=self.won_from, subscripts=(), dtype=pick.iteration.dtype, span=pick.span)
        number = Accumulate(
            id=draft.names.fresh(f"{pick.id}_at_won"),
            op=AccOp.ADD,
            buffer=registers[-1].buffer,
            subscripts=(),
            value=from_first,
            span=pick.span,
        )
        id, local = draft.names.fresh(f"{pick.id}_won"), place(draft, "nearer", BOOL, ())
        body: tuple[Node, ...] = (
            *(Fresh(buffer=register.buffer) for register in registers),
            *(
                self._bind_outside(r.buffer, start, Origin.INIT)
                for r, start in zip(registers, pick.starts, strict=True)
            ),
            Loop(index=each, extent=const(self.tile.width), body=one, unroll=True, span=pick.span),
            Generic(id=number.id, leaf=number, origin=Origin.COMBINE, unused=Unused.REPLICATED),
            *self._nodes(pick.merged(self.part.registers, registers, id, local)),
        )
        fn, _ = GREATEST[pick.order]
        asks = place(draft, "some", BOOL, ())
        some = Op(fn=fn, args=(self._scalar(self.won, self.start), self.start), dtype=BOOL, span=pick.span)
        return (
            Fresh(buffer=asks),
            self._bind_outside(asks, some),
            Guard(condition=Read(buffer=asks, subscripts=(), dtype=BOOL, span=pick.span), body=body, span=pick.span),
        )

    def _won(self, node: Tree, at: IndexExpr) -> Tree:
        """What a statement reads of the row, of the run that wins."""
        if isinstance(node, Read) and along_row((node.buffer, node.subscripts), self.loop.index) in self.tile.registers:
            return self._held(self.elements, at)
        return node

    def _nodes(self, stmts: tuple[Stmt, ...]) -> tuple[Node, ...]:
        return Body(self.draft, hardware=self.outer, unused=Unused.REPLICATED).nodes(stmts)

    def _held(self, buffer: str, at: IndexExpr) -> Read:
        return Read(buffer=buffer, subscripts=(at,), dtype=self.held.dtype, span=self.held.span)

    def _widened(self, value: Read) -> Expr:
        return value if value.dtype == self.start.dtype else Cast(operand=value, dtype=F32, span=self.pick.span)

    def _scalar(self, buffer: str, like: Read | Const) -> Read:
        return Read(buffer=buffer, subscripts=(), dtype=like.dtype, span=self.pick.span)

    def _bind(self, buffer: str, at: tuple[IndexExpr, ...], value: Expr) -> Generic:
        """In a run."""
        return Generic(
            id=(leaf := self._leaf(buffer, at, value)).id, leaf=leaf, origin=Origin.COMBINE, digits=self.digits
        )

    def _bind_outside(self, buffer: str, value: Expr, origin: Origin = Origin.COMBINE) -> Generic:
        """Before all runs, or behind them."""
        leaf = self._leaf(buffer, (), value)
        return Generic(id=leaf.id, leaf=leaf, origin=origin, unused=Unused.REPLICATED)

    def _leaf(self, buffer: str, at: tuple[IndexExpr, ...], value: Expr) -> Bind:
        id = self.draft.names.fresh(f"{self.pick.id}_{buffer}")
        return Bind(id=id, buffer=buffer, subscripts=at, value=value, span=self.pick.span)


def winner(
    draft: Draft,
    tile: RowTile | None,
    loop: Seq | Par,
    parts: Sequence[Part],
    outer: tuple[str, ...],
    digits: tuple[str, ...],
) -> Winner | None:
    """The run that has what a loop over a held row picks, where it does nothing else, and compares narrow elements of
    the row as they are; None where that is not so."""
    if tile is None or len(parts) != 1 or not isinstance(pick := parts[0].update, Pick):
        return None
    if pick.order not in GREATEST or pick.compared is None or pick.instead:
        return None
    value = pick.compared.value
    read = value.operand if isinstance(value, Cast) and value.dtype == F32 else value
    if not isinstance(read, Read) or read.dtype not in (F16, BF16) or not _is_alone(pick, loop.body):
        return None
    name = tile.registers.get(along_row((read.buffer, read.subscripts), loop.index))
    if name is None or linear(pick.iteration.index).coefficient(loop.index) != 1:
        return None
    pick_names = [f"{read.buffer}_{word}" for word in ("won", "won_from")]
    reason = "the run of a thread that has what it picks"
    kinds = zip(pick_names, (value.dtype, pick.iteration.dtype), strict=True)
    won, won_from = (draft.local(own, dtype, Memory.REG, row_major(()), reason, span=pick.span) for own, dtype in kinds)
    elements = draft.local(
        f"{read.buffer}_of_won", read.dtype, Memory.REG, row_major((const(tile.width),)), reason, span=pick.span
    )
    return Winner(
        draft=draft,
        part=parts[0],
        pick=pick,
        tile=tile,
        loop=loop,
        body=loop.body,
        held=replace(read, buffer=name, subscripts=()),
        won=won,
        won_from=won_from,
        elements=elements,
        outer=outer,
        digits=digits,
    )


def _is_alone(pick: Pick, body: tuple[Stmt, ...]) -> bool:
    """Whether a loop does nothing but pick."""
    own = (pick.asking, pick.condition, pick.taken)
    return all(isinstance(stmt, New) or any(stmt is one for one in own) for stmt in body)


def _at(number: IndexExpr, index: str, value: IndexExpr) -> IndexExpr:
    return substitute(number, lambda leaf: value if isinstance(leaf, IndexVar) and leaf.name == index else None)
