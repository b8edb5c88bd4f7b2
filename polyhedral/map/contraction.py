"""Contractions: sums of products of two reads, told by the indices that each read has, and not by their text.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }

    i   a side: an index of the band that one factor has and the other has not, or several of them as one; so is j
    k   summed: the loops of the reduction, flattened in the order of the program
    b   of a batch: all other indices of the band

The factors may lie in any order of their dimensions, with any strides, at any affine subscripts of their side and of
what is summed: the windows of a convolution are its sides, and what is summed, too. A factor may be 0 where a condition
does not hold, as at the edges of an image. What the program says before and after the sum (`work.py`) stays what it is.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import copysign

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    Gather,
    IndexExpr,
    Leaf,
    New,
    Not,
    Op,
    Par,
    Read,
    Select,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ZERO, at_least_zero, conjunction, constant_value, names, where_some
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, I32, DType
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.reducible import Reduction, as_reduction, combinable, nest_of_seqs
from texpr.polyhedral.map.side import Side, at_condition, joinable
from texpr.polyhedral.map.triangle import Boxed, boxed, is_inside
from texpr.polyhedral.map.vectors import Element, arrays_of, at_places
from texpr.polyhedral.map.work import Work, work
from texpr.polyhedral.mapped.candidate import Contracted
from texpr.polyhedral.walk import map_reads, subscript_names, written

SUMMED = (F32, F64, I32)  # the types of sums that a thread's registers hold many of


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """What is read of an array for a value of a `side` and of what is summed, `where` a condition holds (None:
    everywhere), else 0; `dtype` is its type in memory."""

    element: Element
    dtype: DType
    side: Side
    where: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A sum of products in a nest: each of two factors has a side of its own, both have the indices of the `reduction`.
    `first` is the factor that stands first in the `value`, whose type is that of the sum before it is kept wider."""

    nest: Boxed
    work: Work
    reduction: Reduction
    update: Accumulate
    value: Op
    first: Factor
    second: Factor

    @property
    def dtype(self) -> DType:
        """The type of the products and of their sums."""
        return self.value.dtype

    @property
    def summed(self) -> Side:
        """What is summed, as one."""
        return Side(loops=self.reduction.loops)

    @property
    def extent(self) -> IndexExpr:
        """How many products a sum has."""
        return at_least_zero(self.summed.extent)

    @property
    def some(self) -> Condition | None:
        """Where a sum has any products; None where it surely has."""
        return where_some(loop.extent for loop in self.reduction.loops)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Those of both factors."""
        return self.first.side, self.second.side

    @property
    def blocked(self) -> tuple[Side, ...]:
        """What the band counts in blocks, in its order: both sides, and each other index."""
        by_index = {side.index: side for side in self.sides}
        inside = {index for side in self.sides for index in side.indices[:-1]}
        pars = (par for par in self.nest.pars if par.index not in inside)
        return tuple(by_index.get(par.index, Side(loops=(par,))) for par in pars)

    def of(self, side: str) -> Factor:
        """The factor with a side, by its name."""
        return self.first if self.first.side.index == side else self.second


def contracted_nest(region: Region) -> Boxed:
    """The nest of a region around the sum that it may have, whose loops may be indices of its band."""
    nest, ranges = plain_nest(region)
    summed = [nest.pars[d] for d in combinable(nest)]
    return boxed(as_reduction(nest, summed[-1].index) if summed else nest, ranges)


def contractions(problem: Problem, nest: Boxed) -> Iterator[Contraction]:
    """The contraction that a nest is, for each choice of two sides: first the innermost ones, at last joined ones."""
    found = _product(problem, nest)
    if found is None:
        return
    own, reduction, update, value, reads = found
    loops: tuple[Par | Seq, ...] = (*nest.pars, *reduction.loops)
    once: dict[str, IndexExpr] = {loop.index: ZERO for loop in loops if constant_value(loop.extent) == 1}
    has = [read.names & set(nest.indices) for read in reads]
    firsts, seconds = (
        [par for par in nest.pars if par.index in has[this] - has[other]] for this, other in ((0, 1), (1, 0))
    )
    alone = [
        (Side(loops=(first,)), Side(loops=(second,))) for second in reversed(seconds) for first in reversed(firsts)
    ]
    joined = [
        pair
        for pair in product(_ends(firsts), _ends(seconds))
        if any(side.joins for side in pair) and firsts and seconds
    ]
    for sides in (*alone, *joined):
        own_index = {side.index for side in sides if not side.joins}  # a side of one value is a side
        zeros = {index: value for index, value in once.items() if index not in own_index}
        first, second = (
            Factor(
                element=(read.read.buffer, at_places(read.read.subscripts, zeros)),
                dtype=problem.kernel.buffer(read.read.buffer).dtype,
                side=side,
                where=at_condition(read.where, zeros) if read.where is not None else None,
            )
            for read, side in zip(reads, sides, strict=True)
        )
        yield Contraction(
            nest=nest, work=own, reduction=reduction, update=update, value=value, first=first, second=second
        )


def _ends(pars: list[Par]) -> tuple[Side, ...]:
    """The innermost loop alone, and joined with those around it."""
    return (*(Side(loops=(par,)) for par in pars[-1:]), *joinable(pars))


def contraction(problem: Problem, nest: Boxed, choice: Contracted) -> Contraction | None:
    """The contraction that a nest is with the sides of a choice."""
    wanted = {choice.along: choice.joined.get(choice.along, ()), choice.across: choice.joined.get(choice.across, ())}
    return next(
        (one for one in contractions(problem, nest) if {s.index: s.indices[:-1] for s in one.sides} == wanted), None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a factor is: an element `where` a condition holds, else 0."""

    read: Read
    where: Condition | None

    @property
    def names(self) -> frozenset[str]:
        return subscript_names(self.read.subscripts) | (names(self.where) if self.where is not None else frozenset())


def _product(problem: Problem, nest: Boxed) -> tuple[Work, Reduction, Accumulate, Op, tuple[_Given, _Given]] | None:
    """The one sum of a nest over a box, and the two reads whose product it sums."""
    seqs = [stmt for stmt in nest.body if isinstance(stmt, Seq)]
    if len(seqs) != 1:
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
    value = narrow(update.value) if update.id in problem.long else update.value  # or the author has it so
    if update.op is not AccOp.ADD or not isinstance(value, Op) or value.fn is not Fn.MUL or value.dtype not in SUMMED:
        return None
    reads = tuple(_given(argument) for argument in value.args)
    changed = {target[0] for s in statements(nest.body) if (target := _written(s)) is not None}
    if (
        len(reads) != 2
        or reads[0] is None
        or reads[1] is None
        or any(_is_odd(problem, r.read, changed) for r in reads if r)
    ):
        return None
    if nest.domain is not None and not all(
        r.where is None and is_inside(problem, r.read, nest, reduction) for r in reads if r
    ):
        return None
    return own, reduction, update, value, (reads[0], reads[1])


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


def _given(value: Expr) -> _Given | None:
    """The element that a factor is, which may be converted to a type that has all of its values, and where."""
    conditions: list[Condition] = []
    while True:
        match value:
            case Cast(operand=operand) if _is_wider(operand.dtype, value.dtype):
                value = operand
            case Select(condition=condition, then=then, other=other) if isinstance(condition, Condition) and (
                _is_zero(then) or _is_zero(other)
            ):
                conditions.append(Not(part=condition) if _is_zero(then) else condition)
                value = other if _is_zero(then) else then
            case Read():
                return _Given(read=value, where=conjunction(conditions) if conditions else None)
            case _:
                return None


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0 and copysign(1, value.value) > 0


def _is_wider(narrow_: DType, wide: DType) -> bool:
    return narrow_.is_float == wide.is_float and not narrow_.is_bool and narrow_.bits < wide.bits


def _is_odd(problem: Problem, read: Read, changed: set[str]) -> bool:
    """Whether a read is of what the launch itself writes, of a local, or at a place that data tells."""
    gathered = any(isinstance(s, Gather) for s in read.subscripts)
    return gathered or read.buffer in changed or read.buffer not in arrays_of(problem)
