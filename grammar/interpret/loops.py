"""What the fast mode asks of a loop before it runs it: may a `seq` be one more axis of the grid, as a fold or because
its iterations are independent, and which locals does its body declare."""

from collections.abc import Mapping
from dataclasses import field
from typing import assert_never

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Expr,
    Fn,
    Gather,
    If,
    IndexVar,
    Intrinsic,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import buffers_read, children, statements
from texpr.grammar.permissions import keeps_order
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, DType
from texpr.grammar.walk import walk


@dataclass(slots=True)
class Touches:
    """What a loop body does with one buffer that it does not declare.

    `apart` has the dimensions whose subscript is the loop's index alone in every access so far: if one remains, no two
    iterations touch one element.
    """

    apart: set[int]
    read: bool = False
    bound: bool = False
    operators: set[AccOp] = field(default_factory=set)
    ordered: bool = False

    def independent(self) -> bool:
        """Whether the accesses of different iterations may be interleaved."""
        if self.apart or not (self.bound or self.operators):
            return True
        return not (self.bound or self.read or self.ordered) and len(self.operators) == 1


class Effects:
    """What the body of a loop over `index` does outside its own locals."""

    def __init__(self, index: str) -> None:
        self.index = index
        self.private: set[str] = set()
        self.touches: dict[str, Touches] = {}
        self.known = True

    def touch(self, buffer: str, subscripts: tuple[Subscript, ...]) -> Touches:
        apart = {d for d, s in enumerate(subscripts) if isinstance(s, IndexVar) and s.name == self.index}
        touches = self.touches.setdefault(buffer, Touches(apart))
        touches.apart &= apart
        return touches

    def reads(self, subscripts: tuple[Subscript, ...], *values: Expr) -> None:
        for expr in (*values, *(s.value for s in subscripts if isinstance(s, Gather))):
            for read in walk(expr):
                if isinstance(read, Read) and read.buffer not in self.private:
                    self.touch(read.buffer, read.subscripts).read = True

    def collect(self, body: tuple[Stmt, ...], ordered: bool) -> None:
        """Adds the effects of a body; `ordered` is whether a loop around it keeps the order of its accumulations."""
        for stmt in body:
            match stmt:
                case New():
                    self.private.add(stmt.buffer)
                case Bind():
                    self.reads(stmt.subscripts, stmt.value)
                    if stmt.buffer not in self.private:
                        self.touch(stmt.buffer, stmt.subscripts).bound = True
                case Accumulate() | Atomic():
                    self.reads(stmt.subscripts, stmt.value)
                    if stmt.buffer not in self.private:
                        touches = self.touch(stmt.buffer, stmt.subscripts)
                        touches.operators.add(stmt.op)
                        touches.ordered |= ordered
                case Anchor():
                    self.reads((), stmt.value)
                case Par():
                    self.collect(stmt.body, ordered)
                case Seq():
                    self.collect(stmt.body, ordered or keeps_order(stmt))
                case If():
                    if isinstance(stmt.condition, Read):
                        self.reads((), stmt.condition)
                    self.collect(stmt.then, ordered)
                    self.collect(stmt.orelse, ordered)
                case Intrinsic():
                    self.collect(stmt.reference, ordered)
                case Asm():
                    self.known = False
                case _:
                    assert_never(stmt)


def narrow_sums(loop: Seq, dtypes: Mapping[str, DType]) -> list[tuple[str, DType]]:
    """The buffers of narrow floats that the iterations of such a `seq` share and accumulate into, and the one type of
    float that all that they accumulate has."""
    own, found = set(locals_of(loop.body)), dict[str, set[DType]]()
    for stmt in statements(loop.body):
        if isinstance(stmt, Accumulate) and stmt.buffer not in own and dtypes[stmt.buffer].is_float:
            found.setdefault(stmt.buffer, set()).add(stmt.value.dtype)
    sums = [(name, values.pop()) for name, values in found.items() if len(values) == 1]
    return [(name, dtype) for name, dtype in sums if dtype.is_float and dtype.bits > dtypes[name].bits]


def is_axis(loop: Seq) -> bool:
    """Whether the iterations of a `seq` may be interleaved, statement by statement.

    They may if every buffer that they share is only read, or only accumulated into with one operator (outside
    `#ordered`), or has a dimension that each iteration subscripts with its own index.
    """
    effects = Effects(loop.index)
    effects.collect(loop.body, ordered=keeps_order(loop))
    return effects.known and all(touches.independent() for touches in effects.touches.values())


def running_sums(kernel: Kernel) -> Mapping[str, tuple[Read, Expr]]:
    """The binds, by id, that carry a sum from one iteration of a `seq` to another: the element of its own buffer that
    each adds a term to, and the term. As in an accumulation other orders are right, but under `#ordered`."""
    found: dict[str, tuple[Read, Expr]] = {}
    types = {buffer.name: buffer.dtype for buffer in kernel.buffers}
    born: dict[str, int] = {}  # how many of the `seq`s around a statement are around a local, too
    pending: list[tuple[Stmt, tuple[str, ...]]] = [(stmt, ()) for stmt in reversed(kernel.body)]
    while pending:
        stmt, seqs = pending.pop()
        if isinstance(stmt, New):
            born[stmt.buffer] = len(seqs)
        elif isinstance(stmt, Bind):
            parts, around = _added(stmt, types[stmt.buffer]), set(seqs[born.get(stmt.buffer, 0) :])
            if parts and around:
                same = parts[0].subscripts == stmt.subscripts and around <= _indices(stmt.subscripts)
                found |= {} if same else {stmt.id: parts}
        elif not (isinstance(stmt, Seq) and keeps_order(stmt)):
            inner = (*seqs, stmt.index) if isinstance(stmt, Seq) else seqs
            pending += [(each, inner) for each in reversed(children(stmt))]
    return found


def _indices(subscripts: tuple[Subscript, ...]) -> set[str]:
    return {node.name for subscript in subscripts for node in walk(subscript) if isinstance(node, IndexVar)}


def _added(stmt: Bind, dtype: DType) -> tuple[Read, Expr] | None:
    """The element of its own buffer that a bind of f32 or f64 adds a term to, and the term."""
    value = stmt.value
    if not isinstance(value, Op) or value.fn not in (Fn.ADD, Fn.SUB) or value.dtype != dtype or dtype not in (F32, F64):
        return None
    sides = [value.args] if value.fn is Fn.SUB else [value.args, value.args[::-1]]
    for on, term in sides:
        if isinstance(on, Read) and on.buffer == stmt.buffer and stmt.buffer not in buffers_read(term):
            return on, term
    return None


def locals_of(body: tuple[Stmt, ...]) -> list[str]:
    """Names of the buffers that a body declares, at any depth."""
    return [stmt.buffer for stmt in statements(body) if isinstance(stmt, New)]
