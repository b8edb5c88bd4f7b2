"""The memory and the arithmetic of float64 runs: `Cells` and `Arithmetic` over `Bounded` values.

A float cell keeps, beside its value, what the bound of a reordered accumulation needs. With terms t of bounds b, any
order and any carrying type gives a sum within

    sum(b) + expm1(sum(roundoff of the update + roundoff of the buffer)) * sum(|t|)

of the exact one (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2; the content before is a term
too). Where the tree of additions is known, its longest chain takes the place of their number (`map/chains.py`).
So a cell holds `base` = sum(b), `weight` = sum(|t|) and `steps`, the sum of roundoffs; a bind resets them. Where every
term is certain and a multiple of a power of two, `quantum`, and the weight has no more of those than the type has bits
for, every partial sum in every order is in the type, and nothing is rounded. max and min need no such care; products
are multiplied in turn, and are undecided where another order could leave the type's range.

Products of f8 may be added in portions, each addition to which loses less than `PORTION_LOSS` of what these count for:
all together as many times that as a portion may have terms. A portion that counts for no more quanta than
`PORTION_DIGITS` are for, whichever terms it is of, loses nothing.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
from texpr.grammar.ast import COMPARISONS, AccOp, Attr, Fn
from texpr.grammar.index.value import Index, Mask, as_mask, both
from texpr.grammar.interpret.bound import (
    DECIDED,
    PORTION_DIGITS,
    PORTION_LOSS,
    ZERO,
    Bounded,
    apply_float,
    compare,
    exact,
    from_integer,
    round_to,
    roundoff,
    smallest,
    to_integer,
)
from texpr.grammar.interpret.cells import LaneLayout, PlainCells, Shape, spread
from texpr.grammar.permissions import HASTENED, LARGEST_PORTION, may_approximate, may_hasten, may_use_tf32
from texpr.grammar.types import F64, DType

Array = NDArray[Any]


class BoundedCells:
    """The memory of one buffer in a float64 run."""

    def __init__(self, dtype: DType, value: Array, undecided: Array, lanes: Shape, chain: int | None = None) -> None:
        self.dtype = dtype
        self.value = value
        self.undecided = undecided
        self.integers = PlainCells(dtype, value, lanes)  # shares `value`; used where the type is no float
        self.layout = LaneLayout(value.size // max(1, math.prod(lanes)), lanes)
        count = value.size if dtype.is_float else 0
        self.base = np.zeros(count)
        self.steps = np.zeros(count)
        self.weight = np.zeros(count)
        self.chain = (
            math.inf if chain is None else chain + 1.0
        )  # roundings in a row, one to the buffer's type among them
        self.unit = 0.0  # the greatest of one rounding so far
        self.quantum = np.zeros(count)  # 0 where a term is uncertain
        self.digits = float(dtype.mantissa + 1)  # bits that the narrowest accumulation so far kept
        self.terms = np.zeros(count)  # that may be added in portions
        self.counted = np.zeros(count)  # the sum of the magnitudes that these count for
        self.peak = np.zeros(count)  # and the greatest of them
        self.grown = np.zeros(count)  # sums of log2 of the factors above and below 1
        self.shrunk = np.zeros(count)
        if dtype.is_float:
            self._reset(np.arange(count), np.zeros(count))

    @staticmethod
    def of(dtype: DType, flat: Array, lanes: Shape = (), chain: int | None = None) -> "BoundedCells":
        """Cells with exact content, given in the storage type."""
        value = np.array(numerics.cast(flat, dtype, F64)) if dtype.is_float else flat
        return BoundedCells(dtype, value, np.zeros(flat.size, dtype=np.bool_), lanes, chain)

    def bounds(self) -> Array:
        """The bound of every element; integers have 0, undecided elements infinity."""
        return self._bound_at(np.arange(self.value.size))

    def _bound_at(self, position: Array) -> Array:
        if not self.dtype.is_float:
            return np.where(self.undecided[position], np.inf, 0.0)
        weight, quantum = self.weight[position], self.quantum[position]
        exact = (weight <= quantum * 2.0**self.digits) & (quantum > smallest(self.dtype))
        rounded = np.where(exact, 0.0, weight)
        steps = self.steps[position]
        if self.unit and self.chain < math.inf:  # additions beyond the chain are made in f64
            steps = np.minimum(steps, self.chain * self.unit + steps / self.unit * (2 * roundoff(F64)))
        bound = self.base[position] + rounded * np.expm1(np.minimum(steps, 700.0)) + self._lost_in_portions(position)
        bound = np.where(np.isfinite(self.value[position]), bound, 0.0)
        return np.where(self.undecided[position], np.inf, bound)

    def _lost_in_portions(self, position: Array) -> Array:
        terms, weight = self.terms[position], self.counted[position]
        largest = np.minimum(weight, LARGEST_PORTION * self.peak[position])
        exact = largest <= self.quantum[position] * 2.0**PORTION_DIGITS
        return np.where(exact, 0.0, weight * PORTION_LOSS * np.minimum(terms, LARGEST_PORTION))

    def load(self, place: Index) -> Bounded:
        position = np.asarray(self.layout.locate(place))
        bound = self._bound_at(position) if self.dtype.is_float else ZERO
        return Bounded(np.asarray(self.value[position]), bound, np.asarray(self.undecided[position]))

    def store(self, place: Index, value: Bounded, active: Mask, shape: Shape) -> None:
        position, mask = self.layout.chosen(place, active, shape)
        self.value[position] = spread(value.value, mask, shape)
        self.undecided[position] = spread(value.undecided, mask, shape)
        if self.dtype.is_float:
            self._reset(position, spread(value.bound, mask, shape))

    def store_sum(self, place: Index, value: Bounded, on: Index, term: Bounded, active: Mask, shape: Shape) -> None:
        position, mask = self.layout.chosen(place, active, shape)
        before, _ = self.layout.chosen(on, active, shape)
        added, bound = spread(term.value, mask, shape), spread(term.bound, mask, shape)
        unit, _ = self._rounding(self.dtype)
        self.unit = max(self.unit, unit)
        base = self.base[before] + np.where(np.isfinite(bound), bound, 0.0)
        weight = self.weight[before] + np.where(np.isfinite(added), np.abs(added), 0.0)
        steps, quantum = self.steps[before] + unit, np.minimum(self.quantum[before], _quantum(added, bound))
        self.store(place, value, active, shape)
        self.base[position], self.weight[position] = base, weight
        self.steps[position], self.quantum[position] = steps, quantum

    def _reset(self, position: Array, bound: Array) -> None:
        """The elements are single values with these bounds."""
        size = np.abs(self.value[position])
        self.base[position] = np.where(np.isfinite(bound), bound, 0.0)
        self.weight[position] = np.where(np.isfinite(size), size, 0.0)
        self.steps[position] = self.terms[position] = self.counted[position] = self.peak[position] = 0.0
        self.quantum[position] = _quantum(self.value[position], bound)
        exponent = _exponent(size)
        self.grown[position], self.shrunk[position] = np.maximum(exponent, 0.0), np.maximum(-exponent, 0.0)

    def accumulate(
        self,
        op: AccOp,
        place: Index,
        value: Bounded,
        value_dtype: DType,
        active: Mask,
        shape: Shape,
        *,
        counted: Array | None = None,
    ) -> None:
        doubtful = both(active, as_mask(value.undecided))
        if np.any(doubtful):
            self.taint(place, doubtful, shape)
        if not self.dtype.is_float:
            self.integers.accumulate(op, place, value.value, value_dtype, active, shape)
            return
        with np.errstate(all="ignore"):
            if op is AccOp.ADD:
                self._add(place, value, value_dtype, active, shape, counted)
                return
            position, mask = self.layout.chosen(place, active, shape)
            terms, bounds = spread(value.value, mask, shape), spread(value.bound, mask, shape)
            bounds = np.where(np.isfinite(bounds), bounds, 0.0)
            if op is AccOp.MUL:
                self._multiply(position, terms, bounds, value_dtype)
            else:
                self._extremum(op, position, terms, bounds, value_dtype)
            if numerics.saturates(self.dtype):  # an infinity that was in the buffer saturates when it is stored again
                self.undecided[position[np.isinf(self.value[position])]] = True

    def _add(
        self, place: Index, value: Bounded, value_dtype: DType, active: Mask, shape: Shape, counted: Array | None
    ) -> None:
        position = np.asarray(self.layout.locate(place))
        axes = self.layout.reduction_axes(position, shape)
        unit, tiny = self._rounding(value_dtype)
        self.unit = max(self.unit, unit)
        finite = np.isfinite(value.value)

        def total(part: Array) -> Array:
            """The sum of a part over the active lanes that share a position."""
            full = np.broadcast_to(part if active is True else np.where(active, part, 0.0), shape)
            return np.asarray(np.add.reduce(full, axis=axes, keepdims=True)) if axes else full

        def least(part: Array) -> Array:
            full = np.broadcast_to(part if active is True else np.where(active, part, np.inf), shape)
            return np.asarray(np.minimum.reduce(full, axis=axes, keepdims=True)) if axes else full

        terms = total(value.value)
        position = np.broadcast_to(position, terms.shape).reshape(-1)
        np.add.at(self.value, position, terms.reshape(-1))
        usable = finite & np.isfinite(value.bound)
        np.add.at(self.base, position, total(np.where(usable, value.bound + tiny, 0.0)).reshape(-1))
        np.add.at(self.weight, position, total(np.where(finite, np.abs(value.value), 0.0)).reshape(-1))
        np.add.at(self.steps, position, total(np.asarray(unit)).reshape(-1))
        np.minimum.at(self.quantum, position, least(_quantum(value.value, value.bound)).reshape(-1))
        if counted is not None:
            sizes = np.where(np.isfinite(counted), counted, 0.0)
            np.add.at(self.terms, position, total(np.asarray(1.0)).reshape(-1))
            np.add.at(self.counted, position, total(sizes).reshape(-1))
            np.maximum.at(self.peak, position, -least(-sizes).reshape(-1))
        self.digits = min(self.digits, value_dtype.mantissa + 1)
        top = min(numerics.greatest(self.dtype), numerics.greatest(value_dtype))
        content, weight = self.value[position], self.weight[position]
        risky = (~np.isnan(content) & (weight + self._bound_at(position) > top)) | np.isinf(weight)
        if numerics.saturates(self.dtype):  # an infinity saturates at the first rounding, whenever that is
            risky |= (total(np.isinf(value.value).astype(np.float64)).reshape(-1) > 0) | np.isinf(content)
        self.undecided[position[risky]] = True

    def _extremum(self, op: AccOp, position: Array, terms: Array, bounds: Array, value_dtype: DType) -> None:
        touched = np.unique(position)
        self._reset(touched, self._bound_at(touched))
        if self.dtype != value_dtype:  # rounding is monotonic, so each term may be rounded before it is compared
            rounded = round_to(Bounded(terms, bounds, np.zeros(terms.size, dtype=np.bool_)), self.dtype)
            terms, bounds = rounded.value, np.where(rounded.undecided, 0.0, rounded.bound)
            self.undecided[position[rounded.undecided]] = True
        numerics.ufunc(op, F64).at(self.value, position, terms)
        np.maximum.at(self.base, position, np.where(np.isfinite(terms), bounds, 0.0))
        self._reset(touched, self.base[touched])

    def _multiply(self, position: Array, terms: Array, bounds: Array, value_dtype: DType) -> None:
        exponent = _exponent(np.abs(terms))
        np.add.at(self.grown, position, np.maximum(exponent, 0.0))
        np.add.at(self.shrunk, position, np.maximum(-exponent, 0.0))
        grown, shrunk = self.grown.copy(), self.shrunk.copy()
        for turn in _turns(position):
            at = position[turn]
            current = Bounded(self.value[at], self._bound_at(at), self.undecided[at])
            term = Bounded(terms[turn], bounds[turn], np.zeros(at.size, dtype=np.bool_))
            result = apply_float(Fn.MUL, (current, term), value_dtype)
            if self.dtype != value_dtype:
                result = round_to(result, self.dtype, certain_overflow=False)
            self.value[at], self.undecided[at] = result.value, result.undecided
            self._reset(at, result.bound)
        self.grown, self.shrunk = grown, shrunk
        room = math.log2(min(numerics.greatest(self.dtype), numerics.greatest(value_dtype))) - 2
        risky = np.maximum(grown, shrunk)[position] > room
        if numerics.saturates(self.dtype):
            risky |= np.isinf(terms)
        self.undecided[position[risky]] = True

    def _rounding(self, value_dtype: DType) -> tuple[float, float]:
        """Relative and absolute error of one update: its computation and its rounding to the buffer."""
        if self.dtype == value_dtype:
            return roundoff(value_dtype) * (2 if value_dtype == F64 else 1), 0.0
        return roundoff(value_dtype) + roundoff(self.dtype), smallest(self.dtype)

    def held_in(self, dtype: DType) -> AbstractContextManager[None]:
        """Values are wide as they are, and bounds have room for every rounding."""
        return nullcontext()

    def taint(self, place: Index, lanes: Mask, shape: Shape) -> None:
        position, _ = self.layout.chosen(place, lanes, shape)
        self.undecided[position] = True

    def taint_all(self) -> None:
        self.undecided[:] = True


def _exponent(size: Array) -> Array:
    """log2 of finite magnitudes; 0 for 0, infinities and NaN, which no order changes."""
    usable = np.isfinite(size) & (size > 0)
    return np.log2(np.where(usable, size, 1.0))


def _quantum(value: Array, bound: Array) -> Array:
    """The greatest power of two that divides a certain value, infinity for 0; 0 for what is uncertain."""
    if np.all(bound > 0):
        return ZERO
    fraction, exponent = np.frexp(np.where(np.isfinite(value), value, 0.0))
    whole = np.ldexp(fraction, 53).astype(np.int64)
    lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    return np.where(bound > 0, 0.0, np.where(whole == 0, np.inf, lowest))


def _turns(position: Array) -> list[Array]:
    """Numbers of the entries in turns that hit no element twice, in order."""
    order = np.argsort(position, kind="stable")
    ranked = position[order]
    start = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
    length = np.diff(np.append(start, ranked.size))
    rank = np.arange(ranked.size) - np.repeat(start, length)
    by_rank = np.argsort(rank, kind="stable")
    cuts = np.flatnonzero(np.diff(rank[by_rank])) + 1
    return [order[part] for part in np.split(by_rank, cuts)]


class BoundedArithmetic:
    """The `Arithmetic` of float64 runs. `begin` reads #fast and #tf32, which widen bounds."""

    has_bounds = True

    def __init__(self, chains: Mapping[str, int] | None = None) -> None:
        self.chains = chains or {}
        self.fast = self.hastens = self.tf32 = False

    def begin(self, attrs: tuple[Attr, ...]) -> None:
        self.fast, self.hastens, self.tf32 = may_approximate(attrs), may_hasten(attrs), may_use_tf32(attrs)

    def constant(self, value: int | float | bool, dtype: DType) -> Bounded:
        literal = numerics.constant(value, dtype)
        return exact(numerics.cast(literal, dtype, F64) if dtype.is_float else literal)

    def index(self, values: Index, dtype: DType) -> Bounded:
        if dtype.is_float:
            return exact(numerics.cast(numerics.from_index(values, dtype), dtype, F64))
        return exact(numerics.from_index(values, dtype))

    def truth(self, mask: Mask) -> Bounded:
        return exact(numerics.truth(mask))

    def cast(self, value: Bounded, source: DType, target: DType) -> Bounded:
        if source == target:
            return value
        if source.is_float and target.is_float:
            wider = target.mantissa >= source.mantissa and numerics.greatest(target) >= numerics.greatest(source)
            return value if wider else round_to(value, target)
        if source.is_float:
            return to_integer(value, target)
        if target.is_float:
            return from_integer(value.value, value.undecided, source, target)
        return replace(value, value=numerics.cast(value.value, source, target))

    def apply(self, fn: Fn, args: tuple[Bounded, ...], operand_dtype: DType, dtype: DType) -> Bounded:
        if dtype.is_float:
            fast = self.fast or (self.hastens and fn in HASTENED)
            return apply_float(fn, args, dtype, fast=fast, tf32=self.tf32)
        if fn in COMPARISONS and operand_dtype.is_float:
            return compare(fn, args)
        undecided: Array = DECIDED
        for arg in args:
            undecided = undecided | arg.undecided
        return Bounded(numerics.apply(fn, tuple(a.value for a in args), dtype), ZERO, undecided)

    def where(self, mask: Mask, then: Bounded, other: Bounded) -> Bounded:
        return Bounded(
            np.where(mask, then.value, other.value),
            np.where(mask, then.bound, other.bound),
            np.where(mask, then.undecided, other.undecided),
        )

    def plain(self, value: Bounded) -> Array:
        return value.value

    def doubt(self, value: Bounded) -> Mask:
        return as_mask(value.undecided)

    def tainted(self, value: Bounded, lanes: Mask) -> Bounded:
        undecided = value.undecided | lanes
        is_float = value.value.dtype == np.float64
        return Bounded(value.value, np.where(undecided, np.inf, value.bound) if is_float else ZERO, undecided)

    def allocate(self, name: str, dtype: DType, elements: int, lanes: Shape) -> BoundedCells:
        count = elements * math.prod(lanes)
        return BoundedCells.of(dtype, np.zeros(count, dtype=numerics.storage(dtype)), lanes, self.chains.get(name))
