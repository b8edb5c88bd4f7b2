"""Conditional binds: what an iteration binds where a condition of data holds, and keeps as it is where it does not.

if c { at = j ; top = x }
at = select(c, j, at) ; top = select(c, x, top)         neighbours under one condition, which `at` is no part of
any = any or c                                          if c { any = true }
all = all and c                                         if not c { all = false }
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from texpr.grammar.ast import Bind, Cast, Condition, Const, Expr, Fn, If, Op, Read, Select, Stmt
from texpr.grammar.records import dataclass
from texpr.grammar.types import BOOL
from texpr.polyhedral.map.conversions import converted
from texpr.polyhedral.walk import value_reads

ASKED = "#asked"  # the local of a condition that is not in the program


def of_iteration(stmts: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The lists of statements that an iteration runs at most once."""
    yield stmts
    for stmt in stmts:
        if isinstance(stmt, If):
            yield from of_iteration(stmt.then)
            yield from of_iteration(stmt.orelse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional:
    """A condition and what happens where it holds, in the program or `instead` of some of its statements."""

    taken: If
    made: Bind | None = None
    instead: tuple[Bind, ...] = ()


def conditions(stmts: Sequence[Stmt]) -> Iterator[Conditional]:
    """The conditions among statements, neighbouring binds under one condition together."""
    run: list[tuple[Bind, Expr, Expr]] = []
    for stmt in (*stmts, None):
        update = _as_update(stmt) if isinstance(stmt, Bind) else None
        if run and (update is None or update[0] != run[0][1] or _asks(run[-1][0], update[0])):
            yield _made(run)
            run = []
        if isinstance(stmt, Bind) and update is not None:
            run.append((stmt, *update))
        elif isinstance(stmt, If):
            yield Conditional(taken=stmt)


def _asks(bind: Bind, condition: Expr) -> bool:
    return any(read.buffer == bind.buffer for read in value_reads(condition))


def _made(run: Sequence[tuple[Bind, Expr, Expr]]) -> Conditional:
    """Binds that keep what they bind but under one condition, as that condition with binds in it."""
    first, condition, _ = run[0]
    made = Bind(id=f"{first.id}_asked", buffer=ASKED, subscripts=(), value=condition, span=first.span)
    then = tuple(replace(bind, value=value) for bind, _, value in run)
    asked = Read(buffer=ASKED, subscripts=(), dtype=BOOL, span=first.span)
    return Conditional(
        taken=If(condition=asked, then=then, span=first.span), made=made, instead=tuple(r[0] for r in run)
    )


def _as_update(bind: Bind) -> tuple[Expr, Expr] | None:
    """The condition under which a bind changes its element, and to what; None where it may do so always."""
    old, value = Read(buffer=bind.buffer, subscripts=bind.subscripts, dtype=bind.value.dtype), bind.value
    if isinstance(value, Cast) and isinstance(value.operand, Select):  # arms in a wider type
        wide, dtype = value.operand, value.dtype
        arms = (converted(wide.then, dtype), converted(wide.other, dtype))
        value = Select(condition=wide.condition, then=arms[0], other=arms[1], dtype=dtype, span=wide.span)
    match value:
        case Select(condition=first, then=Const(value=True) as found, other=other) if first == old:
            return other, found
        case Select(condition=first, then=then, other=Const(value=False) as found) if first == old:
            return Op(fn=Fn.NOT, args=(then,), dtype=BOOL, span=then.span), found
        case Select(condition=condition, then=then, other=other) if other == old:
            return None if isinstance(condition, Condition) else (condition, then)
        case _:
            return None
