"""Where a loop picks: which of its conditional binds are updates by one iteration, whatever their text.

    new better ; better = select(m[j], best < abs(X[j]), false) ; if better { best = abs(X[j]) ; at = N - 1 - j }

What is bound under the condition is the state. Nothing else in the loop binds it, and nothing reads it but one part of
the condition, if any: the comparison of a value with the state, which the binds leave as that value, term for term,

    state best     after best = abs(X[j])     abs(X[j])
    state X[at]    after at = j               X[j]

or what the binds leave false, `not found` after `found = true` and `at < 0` after `at = j`. So what is rounded when it
is kept (`best: bf16` of a value in f32) is no pick, nor is a condition with an `else`. All that is bound is a function
of the indices, of arrays, and of the value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from operator import gt, lt, ne
from typing import Any

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    Gather,
    If,
    IndexExpr,
    IndexValue,
    IndexVar,
    Kernel,
    New,
    Node,
    Op,
    Read,
    Select,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import statements, value_size
from texpr.grammar.index.expr import ONE, ZERO, add, const, is_nonnegative, multiply, names, subtract
from texpr.grammar.index.interval import ends, most
from texpr.grammar.index.linear import linear
from texpr.grammar.types import I32, I64
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.at_iteration import at_iteration, indices_of
from texpr.polyhedral.map.conditional import Conditional, conditions, of_iteration
from texpr.polyhedral.map.conversions import widens
from texpr.polyhedral.map.picks import AT, BEST, ORDER, Compared, Pick
from texpr.polyhedral.walk import map_reads, subscript_names, subscript_reads, value_reads

_TURNED = {Fn.GT: Fn.LT, Fn.GE: Fn.LE, Fn.LT: Fn.GT, Fn.LE: Fn.GE}
_NEVER: dict[Fn, Callable[[IndexExpr | None, IndexExpr | None], bool]] = {
    Fn.LT: lambda least, greatest: least is not None and is_nonnegative(least),
    Fn.LE: lambda least, greatest: least is not None and is_nonnegative(subtract(least, ONE)),
    Fn.GT: lambda least, greatest: greatest is not None and is_nonnegative(subtract(ZERO, greatest)),
    Fn.GE: lambda least, greatest: greatest is not None and is_nonnegative(subtract(const(-1), greatest)),
    Fn.EQ: lambda least, greatest: _NEVER[Fn.LE](least, greatest) or _NEVER[Fn.GE](least, greatest),
}
"""Whether a comparison with 0 never holds, of what lies between two ends."""
_ROUNDED: dict[Fn, Callable[[Any, Any], bool]] = {Fn.LT: lt, Fn.GT: gt, Fn.NE: ne}
"""Comparisons of numbers that do not come to hold where both are rounded."""
MOST_I32 = 2**31 - 1
LARGEST = 1000  # nodes of a value that is compared with others


def picks(kernel: Kernel, loops: Sequence[Seq]) -> tuple[Pick, ...]:
    """The picks of the innermost of some nested loops, over all of them."""
    indices = {loop.index for loop in loops}
    asked = [one for stmts in of_iteration(loops[-1].body) for one in conditions(stmts)]
    if not asked or any(not names(loop.extent).isdisjoint(indices) for loop in loops[1:]):
        return ()  # of a triangle iterations have no number
    finder = _Finder(kernel, loops)
    return tuple(pick for one in asked if (pick := finder.pick(one)) is not None)


def _reads(stmt: Stmt) -> tuple[Read, ...]:
    match stmt:
        case Bind() | Accumulate() | Atomic():
            return value_reads(stmt.value) + subscript_reads(stmt.subscripts)
        case Anchor(value=value):
            return value_reads(value)
        case If(condition=Read() as condition):
            return value_reads(condition)
        case _:
            return ()


class _Finder:
    def __init__(self, kernel: Kernel, loops: Sequence[Seq]) -> None:
        self.loops, inside = loops, tuple(statements(loops[-1].body))
        self.own = {s.buffer for s in inside if isinstance(s, New)}
        self.moving = {s.index for s in (*loops, *inside) if isinstance(s, Seq)}
        self.reads = [read.buffer for stmt in inside for read in _reads(stmt)]
        binds = [s for s in inside if isinstance(s, Bind | Accumulate | Atomic)]
        self.written = [s.buffer for s in binds]
        alone = [s for stmts in of_iteration(loops[-1].body) for s in stmts if isinstance(s, Bind)]
        self.meaning = {s.buffer: s for s in alone if s.buffer in self.own and self.written.count(s.buffer) == 1}
        self.simple = not any(isinstance(s, Asm) for s in inside)
        counts = [most(loop.extent, size_ranges(kernel)) for loop in loops]
        number: IndexExpr = IndexVar(name=loops[0].index)
        total: int | None = counts[0]
        for loop, count in zip(loops[1:], counts[1:], strict=True):
            number = add(multiply(number, loop.extent), IndexVar(name=loop.index))
            total = None if total is None or count is None else total * count
        dtype = I32 if total is not None and total <= MOST_I32 else I64
        self.iteration = IndexValue(index=number, dtype=dtype)
        self.ranges = {loop.index: (ZERO, subtract(loop.extent, ONE)) for loop in loops}

    def pick(self, one: Conditional) -> Pick | None:
        """A condition as a pick."""
        taken, binds = one.taken, tuple(s for s in one.taken.then if isinstance(s, Bind))
        bound = {bind.buffer for bind in binds}
        if taken.orelse or not binds or len(binds) != len(taken.then) or not self.simple:
            return None
        if any(b.buffer in self.own or not self._is_fixed(b.subscripts) for b in binds):
            return None
        reads = self._reads_of(one)
        asked = taken.condition.buffer if isinstance(taken.condition, Read) else ""
        condition = self.meaning.get(asked) if one.made is None else one.made
        if condition is None:
            return None
        asking, part = self._asked(condition, bound, reads)
        if part is not None and one.made is None and reads.count(asked) != 1:
            return None
        asks = [] if part is None else [read for read in value_reads(part) if read.buffer in bound]
        alone = all(self.written.count(read.buffer) == 1 for read in asks)
        if not alone or len(asks) != sum(reads.count(name) for name in bound):
            return None
        compared = None if part is None else self._compared(part, binds, bound)
        if part is not None and compared is None and not self._is_over(part, binds):
            return None
        found = self._ends(binds, None if compared is None else compared.value)
        if found is None:
            return None
        return Pick(
            condition=condition,
            asking=asking,
            asked=part,
            compared=compared,
            taken=taken,
            iteration=self.iteration,
            ends=found,
            instead=one.instead,
        )

    def _reads_of(self, one: Conditional) -> list[str]:
        """The buffers that the loop reads, as often as it does, with the condition in place of what it stands for."""
        reads = list(self.reads)
        for read in (read for bind in one.instead for read in _reads(bind)):
            reads.remove(read.buffer)
        if one.made is not None:
            reads += [read.buffer for bind in (one.made, *one.taken.then) for read in _reads(bind)]
        return reads

    def _compared(self, part: Expr, binds: Sequence[Bind], bound: Set[str]) -> Compared | None:
        """A part of a condition as the comparison of a value with the state, which the binds leave as that value."""
        for value, state, fn in _sides(part):
            fits = self._changes_alone(state, bound) and not any(read.buffer in bound for read in value_reads(value))
            if fits and self._meant(self._left(state, binds)) == self._meant(value):
                return Compared(fn=fn, value=value, state=state)
        return None

    def _is_over(self, part: Expr, binds: Sequence[Bind]) -> bool:
        """Whether a part of a condition does not hold once the binds were made, whichever iteration made them."""
        match self._left(part, binds):
            case Const(value=False) | Op(fn=Fn.NOT, args=(Const(value=True),)):
                return True
            case Op(fn=fn, args=(Const(value=left), Const(value=right))) if fn in _ROUNDED:
                return not _ROUNDED[fn](left, right)
            case Op(fn=fn, args=(IndexValue(index=index), other)) if fn in _NEVER:
                to = _number(other)
                least, greatest = (None, None) if to is None else ends(subtract(index, to), self.ranges)
                return _NEVER[fn](_normal(least), _normal(greatest))
            case _:
                return False

    def _is_fixed(self, subscripts: Sequence[Subscript]) -> bool:
        """Whether a place is the same one in all iterations."""
        gathered = any(isinstance(subscript, Gather) for subscript in subscripts)
        return not gathered and subscript_names(tuple(subscripts)).isdisjoint(self.moving)

    def _changes_alone(self, state: Expr, bound: Set[str]) -> bool:
        """Whether a value changes by the state alone."""
        others = {read.buffer for read in value_reads(state)} - bound
        return names(state).isdisjoint(self.moving) and others.isdisjoint(self.own | set(self.written))

    def _asked(self, bind: Bind, bound: Set[str], reads: list[str]) -> tuple[Bind, Expr | None]:
        """The part of a condition that asks the state, of parts which all have to hold, and the bind that has it."""
        for part in _parts(bind.value):
            if any(read.buffer in bound for read in value_reads(part)):
                return bind, part
            if isinstance(part, Read) and part.buffer in self.meaning and reads.count(part.buffer) == 1:
                further = self._asked(self.meaning[part.buffer], bound, reads)
                if further[1] is not None:
                    return further
        return bind, None

    def _left(self, state: Expr, binds: Sequence[Bind]) -> Expr:
        """The state as the binds under the condition leave it."""
        left = {(bind.buffer, bind.subscripts): bind.value for bind in binds}
        return rewrite(map_reads(state, lambda read: left.get((read.buffer, read.subscripts), read)), _as_index)

    def _ends(self, binds: Sequence[Bind], value: Expr | None) -> tuple[Bind, ...] | None:
        """The binds as functions of what was picked: the value itself, or what its iteration tells."""
        back = indices_of(self.loops, Read(buffer=AT, subscripts=(), dtype=self.iteration.dtype))
        found = [(bind, self._end(bind.value, value, back)) for bind in binds]
        return tuple(replace(b, value=end) for b, end in found if end is not None) if all(e for _, e in found) else None

    def _end(self, bound: Expr, value: Expr | None, back: Mapping[str, Expr]) -> Expr | None:
        """What is bound, as the value that was picked, or what its iteration tells."""
        meant = self._meant(bound)
        if value is not None:
            best, picked = Read(buffer=BEST, subscripts=(), dtype=value.dtype), self._meant(value)
            if meant == picked:
                return best
            if widens(meant.dtype, value.dtype) and Cast(operand=meant, dtype=value.dtype) == picked:
                return Cast(operand=best, dtype=bound.dtype)
        others = {read.buffer for read in value_reads(meant)}
        known = others.isdisjoint(self.own | set(self.written)) and names(meant) & self.moving <= back.keys()
        return at_iteration(meant, back) if known else None

    def _meant(self, value: Expr) -> Expr:
        """A value with what the scalars of an iteration stand for."""
        while value_size(value) <= LARGEST and (inside := map_reads(value, self._stands_for)) != value:
            value = inside
        return value

    def _stands_for(self, read: Read) -> Expr:
        return self.meaning[read.buffer].value if read.buffer in self.meaning else read


def _sides(part: Expr) -> Iterator[tuple[Expr, Expr, Fn]]:
    """A comparison as one of a value with a state, in both ways."""
    if isinstance(part, Op) and part.fn in ORDER and not part.args[0].dtype.is_bool:
        left, right = part.args
        yield left, right, part.fn
        yield right, left, _TURNED[part.fn]


def _number(value: Expr) -> IndexExpr | None:
    """A value as an index expression."""
    match value:
        case Const(value=int() as number):
            return const(number)
        case IndexValue(index=index):
            return index
        case _:
            return None


def _normal(end: IndexExpr | None) -> IndexExpr | None:
    return None if end is None else linear(end).expression()


def _parts(value: Expr) -> Iterator[Expr]:
    """The parts of a condition that all have to hold."""
    match value:
        case Select(condition=first, then=then, other=Const(value=False)):
            if not isinstance(first, Condition):
                yield from _parts(first)
            yield from _parts(then)
        case _:
            yield value


def _as_index(node: Node) -> Node:
    """A subscript that is an index expression, also where data had it."""
    return node.value.index if isinstance(node, Gather) and isinstance(node.value, IndexValue) else node
