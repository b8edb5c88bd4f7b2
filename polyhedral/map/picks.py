"""Picks: conditional updates by one iteration, of a value and of what is known of the iteration that it is of.

    seq N j { if X[i, j] > top { top = X[i, j] ; at = 2 * j } }              of equal values the first

    in a thread   if X[i, j] > top_part { top_part = X[i, j] ; at_part = j }          from -inf and -1 on
    at the end    if at_part >= 0 and top_part > top { top = top_part ; at = 2 * at_part }

What a pick leaves is a function of a pair: the greatest value that is a number, and the first iteration that has it
(`>`; of `>=` the last one; of `<` and `<=` the least value). Pairs combine in any grouping, and none is needed to start
from, so the program's own value is asked once, at the end. This is the sequential program's result to the bit:

- A NaN is greater than nothing, so it is never picked; and where `top` is one before the loop, nothing is greater.
- Of equal values, 0 and -0 among them, the pair has the one whose iteration is first (last), with its bits.
- Nothing has the iteration -1, and the type's least value: what `>` picks is more than that, what `>=` picks has an
  iteration.

Without a value it is the last iteration whose condition holds, or, where the condition asks that nothing was found yet,
the first one:

    if X[j] > t { last = j ; any = true }           at_part max= j, from -1 on
    if not found and X[j] > t { found = true }      at_part min= j, from the greatest number on, if not found

What else is bound under the condition is evaluated once, for the iteration that was picked.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from texpr.grammar.ast import AccOp, Accumulate, Bind, Const, Expr, Fn, If, IndexValue, New, Op, Read, Select, Stmt
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL
from texpr.grammar.walk import rewrite
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.walk import map_reads, value_reads

BEST, AT = "#best", "#at"  # what was picked, and the number of its iteration, as `ends` read them


class Order(Enum):
    """Which iteration is picked, of those that may be: the name of the monoid."""

    FIRST = "Least"
    LAST = "Greatest"
    FIRST_GREATEST = "FirstGreatest"
    LAST_GREATEST = "LastGreatest"
    FIRST_LEAST = "FirstLeast"
    LAST_LEAST = "LastLeast"


ORDER = {Fn.GT: Order.FIRST_GREATEST, Fn.GE: Order.LAST_GREATEST, Fn.LT: Order.FIRST_LEAST, Fn.LE: Order.LAST_LEAST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`value fn state`, the latter being what was picked before."""

    fn: Fn
    value: Expr
    state: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """`taken` happens where the value of the bind `condition` holds. A part of it, which the bind `asking` has, is
    `asked` of the state, if any: that a value is better than what was picked before, as `compared` says, or that none
    was. `iteration` numbers the iterations in their order; `ends` are the binds under the condition, of what was picked
    in the end. Where these are no statements of the program, `instead` has those that they stand for."""

    condition: Bind
    asking: Bind
    asked: Expr | None
    compared: Compared | None
    taken: If
    iteration: IndexValue
    ends: tuple[Bind, ...]
    instead: tuple[Stmt, ...] = ()

    @property
    def id(self) -> str:
        return self.condition.id

    @property
    def span(self) -> Span:
        return self.taken.span

    @property
    def order(self) -> Order:
        if self.compared is not None:
            return ORDER[self.compared.fn]
        return Order.LAST if self.asked is None else Order.FIRST

    @property
    def states(self) -> tuple[Read, ...]:
        """What the program's own update reads of the state, to be asked at the end."""
        state = self.asked if self.compared is None else self.compared.state
        return () if state is None else value_reads(state)

    @property
    def starts(self) -> tuple[Const, ...]:
        """The value, if any, and the iteration of nothing."""
        if self.compared is not None:
            kinds = self.compared.value.dtype, self.iteration.dtype
            none = MONOIDS[self.order.value].identity(kinds[0])
            return tuple(Const(value=v, dtype=t, span=self.span) for v, t in zip(none, kinds, strict=True))
        dtype = self.iteration.dtype
        none_yet = dtype.integer_range[1] if self.order is Order.FIRST else -1
        return (Const(value=none_yet, dtype=dtype, span=self.span),)

    def in_thread(self, stmt: Stmt, registers: Sequence[Read], local: str) -> tuple[Stmt, ...] | None:
        """A statement of the loop where it picks into registers, and asks the `local`; None where it is not of it."""
        if stmt is self.asking:
            return (self._asks(registers, self.asking),)
        if not self.instead:
            return (self._takes(registers, local),) if stmt is self.taken else None
        if stmt is self.instead[0]:
            condition = replace(self._asks(registers, self.condition), buffer=local)
            return New(buffer=local, span=self.span), condition, self._takes(registers, local)
        return () if any(stmt is other for other in self.instead) else None

    def merged(self, registers: Sequence[Read], other: Sequence[Read], id: str, local: str) -> tuple[Stmt, ...]:
        """What another thread picked in place of what this one did, where it is better."""
        if self.compared is None:
            (at,), (value,) = registers, other
            op, span = (AccOp.MIN if self.order is Order.FIRST else AccOp.MAX), self.span
            return (Accumulate(id=id, op=op, buffer=at.buffer, subscripts=at.subscripts, value=value, span=span),)
        (best, at), fn = registers, self.compared.fn
        strict = Fn.GT if fn in (Fn.GT, Fn.GE) else Fn.LT
        nearer = Fn.LT if fn in (Fn.GT, Fn.LT) else Fn.GT
        tied = _op(Fn.BITAND, _op(Fn.EQ, other[0], best), _op(nearer, other[1], at))
        better = _op(Fn.BITOR, _op(strict, other[0], best), tied)
        return self._where("_more", better, self._binds("_more", registers, other), local)

    def at_end(self, registers: Sequence[Read], local: str) -> tuple[Stmt, ...]:
        """The program's own update, by what was picked of all iterations."""
        at, none = registers[-1], Const(value=False, dtype=BOOL, span=self.span)
        some = _op(Fn.NE, at, self.starts[-1]) if self.order is Order.FIRST else _op(Fn.GE, at, _zero(at))
        better: Expr = some
        asked = self.asked
        if self.compared is not None:
            asked = _op(self.compared.fn, registers[0], self.compared.state)
        if asked is not None:
            better = Select(condition=some, then=asked, other=none, dtype=BOOL, span=self.span)
        picked = {BEST: registers[0], AT: at}
        ends = (
            replace(end, id=f"{end.id}_out", value=map_reads(end.value, lambda read: picked.get(read.buffer, read)))
            for end in self.ends
        )
        return self._where("_out", better, tuple(ends), local)

    def _asks(self, registers: Sequence[Read], bind: Bind) -> Bind:
        """A bind of the condition, of what the thread picked before."""
        old, mine = self.asked, self.asked
        if self.compared is not None:
            mine = _op(self.compared.fn, self.compared.value, registers[0])
        elif self.asked is not None:
            mine = _op(Fn.EQ, registers[0], self.starts[0])
        if old is None or mine is None:
            return bind
        new = mine
        return replace(bind, value=rewrite(bind.value, lambda node: new if node == old else node))

    def _takes(self, registers: Sequence[Read], local: str) -> Stmt:
        values = (*(() if self.compared is None else (self.compared.value,)), self.iteration)
        return self._under(self._binds("", registers, values), local)

    def _where(self, suffix: str, condition: Expr, then: tuple[Stmt, ...], local: str) -> tuple[Stmt, ...]:
        """The statements under a condition of data, which a local has."""
        bind = replace(self.condition, id=f"{self.id}{suffix}", buffer=local, value=condition)
        return New(buffer=local, span=self.span), bind, self._under(then, local)

    def _under(self, then: tuple[Stmt, ...], local: str) -> If:
        asks = Read(buffer=local, subscripts=(), dtype=BOOL, span=self.span)
        return replace(self.taken, condition=asks, then=then)

    def _binds(self, suffix: str, registers: Sequence[Read], values: Sequence[Expr]) -> tuple[Stmt, ...]:
        words = ("best", "at")[-len(registers) :]
        return tuple(
            Bind(id=f"{self.id}{suffix}_{word}", buffer=to.buffer, subscripts=to.subscripts, value=v, span=self.span)
            for word, to, v in zip(words, registers, values, strict=True)
        )


def _op(fn: Fn, left: Expr, right: Expr) -> Op:
    return Op(fn=fn, args=(left, right), dtype=BOOL, span=left.span)


def _zero(like: Read) -> Const:
    return Const(value=0, dtype=like.dtype, span=like.span)
