"""Factors of products that were better arrays of their own: values that many iterations of a band make again.

    sum K k { X[m, k] * (f32(W[k, n]) * s[k]) }      the second one is of k and n alone: all m use it

A product on tensor cores takes elements of two arrays of one type. So a factor that a type of 16 bits holds becomes one
of the other factor's type, or of a common one; any other, of the type in which it is multiplied.
"""

from collections.abc import Iterator

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    IndexExpr,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Select,
    Seq,
)
from texpr.grammar.core import statements
from texpr.grammar.exact import fits, holds
from texpr.grammar.index.expr import index_names
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F16, DType
from texpr.grammar.walk import walk
from texpr.polyhedral.moves import Precompute

NARROW = (BF16, F16)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factor:
    """A value, where it stands, and the type of the array that it is an element of (None: it is none)."""

    value: Expr
    statement: str
    part: str

    @property
    def stored(self) -> DType | None:
        return self.value.dtype if isinstance(self.value, Read) and self.value.subscripts else None

    def move(self, dtype: DType) -> Precompute:
        return Precompute(statement=self.statement, part=self.part, dtype=dtype.name)


def factors(kernel: Kernel) -> Iterator[tuple[Precompute, ...]]:
    """For each product of a sum the factors that could be arrays."""
    for stmt in kernel.body:
        if isinstance(stmt, Par):
            pars = {s.index for s in statements((stmt,)) if isinstance(s, Par)}
            for loop in statements((stmt,)):
                if isinstance(loop, Seq):
                    for update in loop.body:
                        if isinstance(update, Accumulate) and update.op is AccOp.ADD:
                            yield from _of(update, loop, pars)


def _of(update: Accumulate, loop: Seq, pars: set[str]) -> Iterator[tuple[Precompute, ...]]:
    value = update.value
    if not isinstance(value, Op) or value.fn is not Fn.MUL or len(value.args) != 2 or not value.dtype.is_float:
        return
    first, second = (
        _factor(arg, update, loop, part) for arg, part in zip(value.args, ("first", "second"), strict=True)
    )
    has = [indices_of(factor.value) for factor in (first, second)]
    if not (has[0] - has[1]) & pars or not (has[1] - has[0]) & pars:
        return
    dtype = _common(first, second, value.dtype)
    moves = tuple(f.move(dtype) for f in (first, second) if f.stored != dtype and (f.stored is None or dtype in NARROW))
    if moves:
        yield moves


def _factor(value: Expr, update: Accumulate, loop: Seq, part: str) -> _Factor:
    """A factor, or what it is bound to in the same loop."""
    found = inner(value)
    if isinstance(found, Read) and not found.subscripts:
        own = {s.buffer for s in loop.body if isinstance(s, New)}
        binds = [s for s in loop.body if isinstance(s, Bind) and s.buffer == found.buffer]
        if found.buffer in own and len(binds) == 1:
            return _Factor(value=inner(binds[0].value), statement=binds[0].id, part="value")
    return _Factor(value=found, statement=update.id, part=part)


def _common(first: _Factor, second: _Factor, computed: DType) -> DType:
    """The type that both are to have: one of 16 bits that holds both, that of an array before others."""
    wanted = [f.stored for f in (first, second) if f.stored in NARROW]
    for dtype in (*wanted, *NARROW):
        if dtype is not None and fits(first.value, dtype) and fits(second.value, dtype):
            return dtype
    return computed


def inner(value: Expr) -> Expr:
    """What a factor is where it is not 0, before it is converted to a type that holds it."""
    while True:
        match value:
            case Cast(operand=operand, dtype=dtype) if operand.dtype.is_float == dtype.is_float and holds(
                dtype, operand.dtype
            ):
                value = operand
            case Select(condition=condition, then=then, other=Const(value=0)) if isinstance(condition, Condition):
                value = then
            case Select(condition=condition, then=Const(value=0), other=other) if isinstance(condition, Condition):
                value = other
            case _:
                return value


def indices_of(value: Expr) -> frozenset[str]:
    """The indices on which a value depends."""
    return frozenset().union(*(index_names(node) for node in walk(value) if isinstance(node, IndexExpr)))
