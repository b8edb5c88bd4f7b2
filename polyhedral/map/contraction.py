"""Contractions: sums of products of two reads, told by the indices that each read has, and not by their text.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }

    i   a side: an index of the band that one factor has and the other has not; so is j
    k   summed: the loops of the reduction, flattened in the order of the program
    b   of a batch: all other indices of the band

The factors may lie in any order of their dimensions, with any strides, at any affine subscripts of their side and of
what is summed. What the program says before and after the sum (`work.py`) stays what it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Condition,
    Expr,
    Fn,
    Gather,
    IndexExpr,
    IndexOp,
    Leaf,
    New,
    Op,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import (
    at_least_zero,
    combine,
    names,
    product,
    where_some,
)
from texpr.grammar.types import F32, F64, I32, DType
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.reducible import Reduction, as_reduction, combinable, nest_of_seqs
from texpr.polyhedral.map.vectors import Element, arrays_of
from texpr.polyhedral.map.work import Work, work
from texpr.polyhedral.walk import map_reads, subscript_names, written

SUMMED = (F32, F64, I32)  # the types of sums that a thread's registers hold many of


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """What is read of an array for a value of a `side` and of what is summed; `dtype` is its type in memory."""

    element: Element
    dtype: DType
    side: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A sum of products in a nest: each of two factors has a side of its own, both have the indices of the `reduction`.
    `first` is the factor that stands first in the product, whose type is that of the sum before it is kept wider."""

    nest: Nest
    work: Work
    reduction: Reduction
    update: Accumulate
    first: Factor
    second: Factor

    @property
    def dtype(self) -> DType:
        """The type of the products and of their sums."""
        return narrow(self.update.value).dtype

    @property
    def extent(self) -> IndexExpr:
        """How many products a sum has."""
        return product(at_least_zero(loop.extent) for loop in self.reduction.loops)

    @property
    def some(self) -> Condition | None:
        """Where a sum has any products; None where it surely has."""
        return where_some(loop.extent for loop in self.reduction.loops)

    def of(self, side: str) -> Factor:
        """The factor with a side."""
        return self.first if self.first.side == side else self.second

    def places(self, number: IndexExpr) -> dict[str, IndexExpr]:
        """The value of each summed index at the product of a number."""
        found: dict[str, IndexExpr] = {}
        rest = number
        for depth, loop in reversed(list(enumerate(self.reduction.loops))):
            found[loop.index] = combine(IndexOp.MOD, rest, loop.extent) if depth else rest
            rest = combine(IndexOp.DIV, rest, loop.extent) if depth else rest
        return found


def contracted_nest(region: Region) -> Nest:
    """The nest of a region around the sum that it may have, whose loops may be indices of its band."""
    nest, _ = plain_nest(region)
    summed = [nest.pars[d] for d in combinable(nest)]
    return as_reduction(nest, summed[-1].index) if summed else nest


def contractions(problem: Problem, nest: Nest) -> Iterator[Contraction]:
    """The contraction that a nest is, for each choice of two sides: first the innermost ones."""
    found = _product(problem, nest)
    if found is None:
        return
    own, reduction, update, reads = found
    has = [subscript_names(read.subscripts) & set(nest.indices) for read in reads]
    for second in (i for i in reversed(nest.indices) if i in has[1] - has[0]):
        for first in (i for i in reversed(nest.indices) if i in has[0] - has[1]):
            factors = (
                Factor(
                    element=(read.buffer, read.subscripts), dtype=problem.kernel.buffer(read.buffer).dtype, side=side
                )
                for read, side in zip(reads, (first, second), strict=True)
            )
            yield Contraction(
                nest=nest, work=own, reduction=reduction, update=update, first=next(factors), second=next(factors)
            )


def contraction(problem: Problem, nest: Nest, sides: frozenset[str]) -> Contraction | None:
    """The contraction that a nest is with these two sides."""
    return next((one for one in contractions(problem, nest) if {one.first.side, one.second.side} == sides), None)


def _product(problem: Problem, nest: Nest) -> tuple[Work, Reduction, Accumulate, tuple[Read, Read]] | None:
    """The one sum of a nest over a box, and the two reads whose product it sums."""
    seqs = [stmt for stmt in nest.body if isinstance(stmt, Seq)]
    if len(seqs) != 1 or any(names(par.extent) & set(nest.indices) for par in nest.pars):
        return None
    over = list(nest_of_seqs(seqs[0]))[-1].index
    own = work(problem, nest.body, (over,))
    around = tuple(stmt for stmt in nest.body if stmt is not seqs[0])
    if own is None or own.first or any(isinstance(s, Seq) for s in statements(around)):
        return None
    (reduction,) = own.reductions
    update = _inlined(problem, reduction.body)
    if update is None or not _is_box(nest, reduction):
        return None
    value = narrow(update.value)
    if update.op is not AccOp.ADD or not isinstance(value, Op) or value.fn is not Fn.MUL or value.dtype not in SUMMED:
        return None
    reads = tuple(_read(argument) for argument in value.args)
    changed = {target[0] for s in statements(nest.body) if (target := _written(s)) is not None}
    if len(reads) != 2 or reads[0] is None or reads[1] is None or any(_is_odd(problem, r, changed) for r in reads if r):
        return None
    return own, reduction, update, (reads[0], reads[1])


def _inlined(problem: Problem, body: tuple[Stmt, ...]) -> Accumulate | None:
    """The update of a body with the values that it binds before; None where anything else is there."""
    values: dict[str, Expr] = {}

    def value_of(read: Read) -> Expr:
        return values.get(read.buffer, read)

    for stmt in body[:-1]:
        match stmt:
            case New():
                pass
            case Bind(buffer=name, value=value) if name not in values:
                values[name] = as_type(map_reads(value, value_of), problem.kernel.buffer(name).dtype)
            case _:
                return None
    last = body[-1]
    return replace(last, value=map_reads(last.value, value_of)) if isinstance(last, Accumulate) else None


def _written(stmt: Stmt) -> Element | None:
    return written(stmt) if isinstance(stmt, Leaf) else None


def _is_box(nest: Nest, reduction: Reduction) -> bool:
    """Whether every element has as many products."""
    return all(names(loop.extent).isdisjoint((*nest.indices, *reduction.indices)) for loop in reduction.loops)


def _read(value: Expr) -> Read | None:
    """The element that a factor is, which may be converted to a type that has all of its values."""
    while isinstance(value, Cast) and _is_wider(value.operand.dtype, value.dtype):
        value = value.operand
    return value if isinstance(value, Read) else None


def _is_wider(narrow_: DType, wide: DType) -> bool:
    return narrow_.is_float == wide.is_float and not narrow_.is_bool and narrow_.bits < wide.bits


def _is_odd(problem: Problem, read: Read, changed: set[str]) -> bool:
    """Whether a read is of what the launch itself writes, of a local, or at a place that data tells."""
    gathered = any(isinstance(s, Gather) for s in read.subscripts)
    return gathered or read.buffer in changed or read.buffer not in arrays_of(problem)
