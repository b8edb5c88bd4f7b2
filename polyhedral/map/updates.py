"""Updates: what an iteration of a reduction does to what the loop leaves, and the registers in which a thread does so.

    C[i] += e                             C_part                 Sum
    if x > v { v = x ; a = 2 * j }        v_part, at_part        FirstGreatest

A register for each component of the monoid, which starts from the identity. Where parts meet they are combined, and the
end is the program's own update by what that gives.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import combinations

from texpr.grammar.ast import Accumulate, Cast, Const, Expr, Fn, If, IndexExpr, Op, Read, Seq, Stmt, Subscript
from texpr.grammar.core import buffers_read
from texpr.grammar.identities import first_of
from texpr.grammar.index.expr import constant_value
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32, DType
from texpr.polyhedral.map.picks import BEST, Pick
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Element


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A greatest value, and a sum of exp(value - greatest) over the same elements, as one update (`scaled_sums.py`)."""

    greatest: Accumulate
    total: Accumulate

    @property
    def id(self) -> str:
        return self.total.id

    @property
    def span(self) -> Span:
        return self.total.span


Update = Accumulate | Pick
Met = Update | Scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A register of an update: the word in its name and in those of the statements that it is for, where it is one of
    several, its type, and what it starts from."""

    id: str
    word: str
    start: Const

    @property
    def dtype(self) -> DType:
        return self.start.dtype


def components(update: Met, dtype: DType | None = None) -> tuple[Component, ...]:
    """The registers of an update, an accumulation's of this type, if any."""
    if isinstance(update, Pick):
        best = next((end.buffer for end in update.ends if BEST in buffers_read(end.value)), "best")
        words = (("best", best), ("at", "at"))[-len(update.starts) :]
        pairs = zip(words, update.starts, strict=True)
        return tuple(Component(id=f"{update.id}_{own}", word=word, start=start) for (own, word), start in pairs)
    if isinstance(update, Scaled):
        both = (update.greatest, update.total)
        return tuple(component for one in both for component in components(one, F32))
    own = update.value.dtype if dtype is None else dtype
    start = Const(value=first_of(update.op, own), dtype=own, span=update.span)
    return (Component(id=update.id, word=update.buffer, start=start),)


def monoid_of(update: Met) -> str:
    """The name of the monoid by which its parts combine."""
    match update:
        case Pick():
            return update.order.value
        case Scaled():
            return "ScaledSum"
        case Accumulate():
            return OF_UPDATE[update.op]


def local_of(update: Met) -> str | None:
    """The local that has the condition of an update: "" of one without, None where the program has none for it."""
    asked = update.taken.condition if isinstance(update, Pick) else None
    if isinstance(update, Pick) and update.instead:
        return None
    return asked.buffer if isinstance(asked, Read) else ""


def targets(update: Met) -> tuple[Element, ...]:
    """The elements that it writes."""
    match update:
        case Pick(ends=binds):
            return tuple((bind.buffer, bind.subscripts) for bind in binds)
        case Scaled(greatest=greatest, total=total):
            return tuple((one.buffer, one.subscripts) for one in (greatest, total))
        case Accumulate():
            return ((update.buffer, update.subscripts),)


def are_apart(updates: Sequence[Update]) -> bool:
    """Whether no element is written by two of the updates."""
    found = [element for update in updates for element in dict.fromkeys(targets(update))]
    return not any(_may_meet(one, other) for one, other in combinations(found, 2))


def _may_meet(one: Element, other: Element) -> bool:
    """Whether two accesses may be to one element, as far as numbers tell."""
    numbers = (
        [constant_value(s) if isinstance(s, IndexExpr) else None for s in element[1]] for element in (one, other)
    )
    both = zip(*numbers, strict=False)
    return one[0] == other[0] and not any(None not in (a, b) and a != b for a, b in both)


def part_bytes(updates: Sequence[Update]) -> int:
    """The bytes of one part of each."""
    return sum(component.dtype.size_bytes for update in updates for component in components(update))


def combined(update: Update, into: Sequence[Read], other: Sequence[Read], id: str, local: str) -> tuple[Stmt, ...]:
    """A part of an update with what another one has, in its place; a pick's condition is in the local."""
    if isinstance(update, Pick):
        return update.merged(into, other, id, local)
    (total,), (value,) = into, other
    at, span = total.subscripts, update.span
    return (Accumulate(id=id, op=update.op, buffer=total.buffer, subscripts=at, value=value, span=span),)


Change = Callable[[Stmt], tuple[Stmt, ...] | None]


def changed(stmts: Sequence[Stmt], change: Change) -> tuple[Stmt, ...]:
    """The statements, in loops and under conditions, too, with others in place of those for which `change` has some."""
    return tuple(new for stmt in stmts for new in _changed(stmt, change))


def _changed(stmt: Stmt, change: Change) -> tuple[Stmt, ...]:
    others = change(stmt)
    if others is not None:
        return others
    match stmt:
        case Seq(body=body):
            return (replace(stmt, body=changed(body, change)),)
        case If(then=then, orelse=orelse):
            return (replace(stmt, then=changed(then, change), orelse=changed(orelse, change)),)
        case _:
            return (stmt,)


def in_registers(
    stmt: Stmt, updates: Sequence[Update], registers: Callable[[Pick], tuple[Sequence[Read], str]]
) -> tuple[Stmt, ...] | None:
    """A statement as a thread runs it, if it is one of a pick, of which are given the registers and the local that has
    the condition."""
    for update in updates:
        if isinstance(update, Pick):
            found = update.in_thread(stmt, *registers(update))
            if found is not None:
                return found
    return None


def is_zero(value: Expr, zeros: Collection[tuple[str, tuple[Subscript, ...]]]) -> bool:
    """Whether a value is 0 where these elements are."""
    match value:
        case Read(buffer=name, subscripts=subscripts):
            return (name, subscripts) in zeros
        case Cast(operand=operand):
            return is_zero(operand, zeros)
        case Op(fn=Fn.ADD | Fn.SUB | Fn.MUL | Fn.ABS, args=args):
            return all(is_zero(arg, zeros) for arg in args)
        case _:
            return False
