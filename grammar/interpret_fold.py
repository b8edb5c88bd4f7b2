"""What the fast mode asks of a loop before it runs it: may a `seq` be one more axis of the grid (it may if it only
accumulates), and which locals does its body declare."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    ConditionValue,
    Const,
    Expr,
    Gather,
    If,
    IndexValue,
    Intrinsic,
    New,
    Op,
    Par,
    Read,
    Select,
    Seq,
    Stmt,
    Subscript,
)


def child_expressions(expr: Expr) -> Iterator[Expr]:
    """The expressions directly inside one, gathers among them."""
    match expr:
        case Const() | IndexValue() | ConditionValue():
            return
        case Read():
            yield from (s.value for s in expr.subscripts if isinstance(s, Gather))
        case Op():
            yield from expr.args
        case Cast():
            yield expr.operand
        case Select():
            if isinstance(expr.condition, Const | IndexValue | ConditionValue | Read | Op | Cast | Select):
                yield expr.condition
            yield expr.then
            yield expr.other
        case _:
            assert_never(expr)


def buffers_read(expr: Expr) -> set[str]:
    """Names of the buffers that an expression reads."""
    names: set[str] = set()
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Read):
            names.add(node.buffer)
        pending.extend(child_expressions(node))
    return names


@dataclass(slots=True)
class Effects:
    """What a body does outside its own locals: the buffers it reads, and the operators it accumulates with."""

    private: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    updated: dict[str, AccOp] = field(default_factory=dict)
    foldable: bool = True

    def reads(self, subscripts: tuple[Subscript, ...], *values: Expr) -> None:
        for expr in (*values, *(s.value for s in subscripts if isinstance(s, Gather))):
            self.read |= buffers_read(expr) - self.private

    def collect(self, body: tuple[Stmt, ...], ordered: bool) -> None:
        """Adds the effects of a body; `ordered` is whether an enclosing loop inside it keeps its order."""
        for stmt in body:
            match stmt:
                case New():
                    self.private.add(stmt.buffer)
                case Bind():
                    self.reads(stmt.subscripts, stmt.value)
                    self.foldable &= stmt.buffer in self.private
                case Accumulate() | Atomic():
                    self.reads(stmt.subscripts, stmt.value)
                    if stmt.buffer not in self.private:
                        self.foldable &= not ordered and self.updated.setdefault(stmt.buffer, stmt.op) is stmt.op
                case Anchor():
                    self.reads((), stmt.value)
                case Par():
                    self.collect(stmt.body, ordered)
                case Seq():
                    self.collect(stmt.body, ordered or stmt.has("ordered"))
                case If():
                    if isinstance(stmt.condition, Read):
                        self.reads((), stmt.condition)
                    self.collect(stmt.then, ordered)
                    self.collect(stmt.orelse, ordered)
                case Intrinsic():
                    self.collect(stmt.reference, ordered)
                case Asm():
                    self.foldable = False
                case _:
                    assert_never(stmt)


def is_fold(loop: Seq) -> bool:
    """Whether the iterations of a `seq` may run in any order and together.

    They may if each writes only locals of its own, and otherwise accumulates, with one operator per buffer, into
    buffers that none of them reads.
    """
    effects = Effects()
    effects.collect(loop.body, ordered=loop.has("ordered"))
    return effects.foldable and not effects.read & set(effects.updated)


def locals_of(body: tuple[Stmt, ...]) -> list[str]:
    """Names of the buffers that a body declares, at any depth."""
    found: list[str] = []
    pending = list(body)
    while pending:
        stmt = pending.pop()
        match stmt:
            case New():
                found.append(stmt.buffer)
            case Par() | Seq():
                pending.extend(stmt.body)
            case If():
                pending.extend((*stmt.then, *stmt.orelse))
            case Intrinsic():
                pending.extend(stmt.reference)
            case _:
                pass
    return found
