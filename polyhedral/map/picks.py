"""Picks: conditional updates of a value, and of what is known of the iteration that it is of.

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

What else is bound under the condition is evaluated once, for the iteration that was picked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from texpr.grammar.ast import Bind, Const, Expr, Fn, If, IndexValue, New, Op, Read, Select, Stmt
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, DType
from texpr.grammar.walk import rewrite
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.walk import map_reads

MONOID = {Fn.GT: "FirstGreatest", Fn.GE: "LastGreatest", Fn.LT: "FirstLeast", Fn.LE: "LastLeast"}
BEST, AT = "#best", "#at"  # what was picked, and the number of its iteration, as `ends` read them


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """`taken` happens where the `compare` of the bind `asking` holds, `value fn state`, the latter being what was
    picked before. `iteration` numbers the iterations in their order, `ends` are the binds under the condition, of what
    was picked in the end."""

    asking: Bind
    compare: Op
    fn: Fn
    value: Expr
    state: Expr
    taken: If
    iteration: IndexValue
    ends: tuple[Bind, ...]

    @property
    def id(self) -> str:
        return self.asking.id

    @property
    def span(self) -> Span:
        return self.taken.span

    @property
    def dtypes(self) -> tuple[DType, DType]:
        """Of the value and of the iteration."""
        return self.value.dtype, self.iteration.dtype

    @property
    def starts(self) -> tuple[Const, ...]:
        """The value and the iteration of nothing."""
        none = MONOIDS[MONOID[self.fn]].identity(self.value.dtype)
        return tuple(Const(value=v, dtype=t, span=self.span) for v, t in zip(none, self.dtypes, strict=True))

    def in_thread(self, stmt: Stmt, registers: Sequence[Read]) -> Stmt:
        """A statement of the loop where it picks into registers; others as they are."""
        if stmt is self.asking:
            mine = replace(self.compare, fn=self.fn, args=(self.value, registers[0]))
            return replace(self.asking, value=_replaced(self.asking.value, self.compare, mine))
        if stmt is self.taken:
            return replace(self.taken, then=self._binds("", registers, (self.value, self.iteration)))
        return stmt

    def merged(self, registers: Sequence[Read], other: Sequence[Read]) -> tuple[Stmt, ...]:
        """What another thread picked in place of what this one did, where it is better."""
        best, at = registers
        strict = Fn.GT if self.fn in (Fn.GT, Fn.GE) else Fn.LT
        nearer = Fn.LT if self.fn in (Fn.GT, Fn.LT) else Fn.GT
        tied = _op(Fn.BITAND, _op(Fn.EQ, other[0], best), _op(nearer, other[1], at))
        better = _op(Fn.BITOR, _op(strict, other[0], best), tied)
        return self._where("_more", better, self._binds("_more", registers, other))

    def at_end(self, registers: Sequence[Read]) -> tuple[Stmt, ...]:
        """The program's own update, by what was picked of all iterations."""
        best, at = registers
        some = _op(Fn.GE, at, Const(value=0, dtype=at.dtype, span=self.span))
        none = Const(value=False, dtype=BOOL, span=self.span)
        better = Select(condition=some, then=_op(self.fn, best, self.state), other=none, dtype=BOOL, span=self.span)
        picked = {BEST: best, AT: at}
        ends = (
            replace(end, id=f"{end.id}_out", value=map_reads(end.value, lambda read: picked.get(read.buffer, read)))
            for end in self.ends
        )
        return self._where("_out", better, tuple(ends))

    def _where(self, suffix: str, condition: Expr, then: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements under a condition of data, in the local that the program has for its own."""
        asked = self.taken.condition
        assert isinstance(asked, Read), "a pick asks data"
        bind = replace(self.asking, id=f"{self.id}{suffix}", buffer=asked.buffer, value=condition)
        return New(buffer=asked.buffer, span=self.span), bind, replace(self.taken, then=then)

    def _binds(self, suffix: str, registers: Sequence[Read], values: Sequence[Expr]) -> tuple[Stmt, ...]:
        return tuple(
            Bind(
                id=f"{self.id}{suffix}_{word}",
                buffer=register.buffer,
                subscripts=register.subscripts,
                value=value,
                span=self.span,
            )
            for word, register, value in zip(("best", "at"), registers, values, strict=True)
        )


def _replaced(value: Expr, old: Expr, new: Expr) -> Expr:
    """The value with one of its parts replaced, wherever it stands."""
    return rewrite(value, lambda node: new if node == old else node)


def _op(fn: Fn, left: Expr, right: Expr) -> Op:
    return Op(fn=fn, args=(left, right), dtype=BOOL, span=left.span)
