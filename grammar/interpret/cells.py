"""What the fast interpreter computes with: values of many iterations at once, and the memory of one buffer.

`Arithmetic` and `Cells` have two implementations. Here: arrays in storage types, rounded as the program says. In
`bound`: float64 values with a bound and an undecided flag each. A value stands for all iterations ("lanes") and
broadcasts against the grid of iterations, whose newest loop is the first axis.

A local has one copy per lane of its `new`: element e of lane l lies at `e * lane_count + l` of the flat storage.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
from texpr.grammar.ast import AccOp, Attr, Fn
from texpr.grammar.index.value import Index, Mask
from texpr.grammar.types import DType

Array = NDArray[Any]
V = TypeVar("V")
Shape = tuple[int, ...]


class Cells(Protocol[V]):
    """The memory of one buffer. `place` is an element's row-major number, per lane or one for all."""

    def load(self, place: Index) -> V:
        """The values at `place`."""

    def store(self, place: Index, value: V, active: Mask, shape: Shape) -> None:
        """Writes the active lanes of the grid `shape`."""

    def store_sum(self, place: Index, value: V, on: Index, term: V, active: Mask, shape: Shape) -> None:
        """Writes values that are the sum of the element at `on` and a term."""

    def accumulate(
        self,
        op: AccOp,
        place: Index,
        value: V,
        value_dtype: DType,
        active: Mask,
        shape: Shape,
        *,
        counted: Array | None = None,
    ) -> None:
        """Updates with every active lane; several lanes may hit one element. `counted`: what products of f8 count for,
        of whose sums portions may be less exact."""

    def held_in(self, dtype: DType) -> AbstractContextManager[None]:
        """Meanwhile the elements have this type, and are rounded at the end."""

    def taint(self, place: Index, lanes: Mask, shape: Shape) -> None:
        """Makes the elements at `place` undecided where `lanes` says."""

    def taint_all(self) -> None:
        """Makes every element undecided: a write went to an unknown place."""


class Arithmetic(Protocol[V]):
    """Values of many iterations at once, with bounds of what else they may be, or without."""

    has_bounds: bool

    def begin(self, attrs: tuple[Attr, ...]) -> None:
        """Called before each leaf statement with its attributes and the kernel's."""

    def constant(self, value: int | float | bool, dtype: DType) -> V: ...

    def index(self, values: Index, dtype: DType) -> V: ...

    def truth(self, mask: Mask) -> V: ...

    def cast(self, value: V, source: DType, target: DType) -> V: ...

    def apply(self, fn: Fn, args: tuple[V, ...], operand_dtype: DType, dtype: DType) -> V: ...

    def where(self, mask: Mask, then: V, other: V) -> V:
        """`then` where the mask holds, `other` elsewhere."""

    def plain(self, value: V) -> Array:
        """The values as an array: of integers for a gather, of bool for a condition."""

    def doubt(self, value: V) -> Mask:
        """Where the value is undecided."""

    def tainted(self, value: V, lanes: Mask) -> V:
        """The value, undecided where `lanes` says."""

    def allocate(self, name: str, dtype: DType, elements: int, lanes: Shape) -> Cells[V]:
        """Fresh memory of a buffer, with undefined content."""


class LaneLayout:
    """Places of elements and lanes in flat storage; shared by both kinds of cells."""

    def __init__(self, elements: int, lanes: Shape) -> None:
        self.elements = elements
        self.lanes = lanes
        self.lane_count = math.prod(lanes)

    @cached_property
    def lane_number(self) -> Array:
        return np.arange(self.lane_count).reshape(self.lanes)

    def own(self, place: Index, shape: Shape) -> slice | None:
        """Where element `place` lies if it is one for all lanes and the grid is that of the lanes: then each lane has
        an element of its own, in order."""
        if not isinstance(place, int) or shape != self.lanes:
            return None
        return slice(place * self.lane_count, (place + 1) * self.lane_count)

    def locate(self, place: Index) -> Index:
        """The flat position of element `place` for each lane."""
        return place if not self.lanes else place * self.lane_count + self.lane_number

    def chosen(self, place: Index, active: Mask, shape: Shape) -> tuple[Array, Array | None]:
        """Flat positions of the active lanes of the grid (rank 1), and the full mask, or None for all."""
        position = np.broadcast_to(np.asarray(self.locate(place)), shape)
        if isinstance(active, bool):
            return position.reshape(-1), None
        mask = np.broadcast_to(active, shape)
        return position[mask], mask

    def reduction_axes(self, position: Array, shape: Shape) -> tuple[int, ...]:
        """Axes of the grid along which the position does not change."""
        padded = (1,) * (len(shape) - position.ndim) + position.shape
        return tuple(axis for axis, extent in enumerate(shape) if padded[axis] == 1 and extent > 1)


def spread(values: Array, mask: Array | None, shape: Shape) -> Array:
    """`values` at the chosen lanes, in the order of `LaneLayout.chosen`."""
    full = np.broadcast_to(values, shape)
    return full.reshape(-1) if mask is None else full[mask]


def undefined(dtype: DType, count: int) -> Array:
    """Content of fresh memory: NaN or the greatest integer, so that a wrong read is seen."""
    if dtype.is_float:
        return np.full(count, numerics.constant(math.nan, dtype))
    return np.full(count, numerics.identity(AccOp.MIN, dtype))


class PlainCells:
    """Memory in the buffer's own type."""

    def __init__(self, dtype: DType, flat: Array, lanes: Shape) -> None:
        self.dtype = dtype
        self.flat = flat
        self.layout = LaneLayout(flat.size // max(1, math.prod(lanes)), lanes)

    def load(self, place: Index) -> Array:
        layout = self.layout
        if isinstance(place, int) and layout.lanes:
            start = place * layout.lane_count
            return self.flat[start : start + layout.lane_count].reshape(layout.lanes)
        return np.asarray(self.flat[layout.locate(place)])

    def store(self, place: Index, value: Array, active: Mask, shape: Shape) -> None:
        own = self.layout.own(place, shape)
        if own is not None:
            np.copyto(self.flat[own].reshape(shape), value, where=active)
            return
        position, mask = self.layout.chosen(place, active, shape)
        self.flat[position] = spread(value, mask, shape)

    def store_sum(self, place: Index, value: Array, on: Index, term: Array, active: Mask, shape: Shape) -> None:
        self.store(place, value, active, shape)

    def accumulate(
        self,
        op: AccOp,
        place: Index,
        value: Array,
        value_dtype: DType,
        active: Mask,
        shape: Shape,
        *,
        counted: Array | None = None,
    ) -> None:
        own = self.layout.own(place, shape)
        if own is not None:
            current = self.flat[own].reshape(shape)
            np.copyto(current, numerics.accumulate(op, current, self.dtype, value, value_dtype), where=active)
            return
        if self._order_matters(op, value_dtype):
            position, mask = self.layout.chosen(place, active, shape)
            self._in_turn(op, position, spread(value, mask, shape), value_dtype)
            return
        ufunc = numerics.ufunc(op, value_dtype)
        position = np.asarray(self.layout.locate(place))
        neutral = numerics.identity(op, value_dtype)
        full = np.broadcast_to(value if active is True else np.where(active, value, neutral), shape)
        updated: Array = np.broadcast_to(active, shape)
        with np.errstate(all="ignore"):
            axes = self.layout.reduction_axes(position, shape)
            if axes:
                full = np.asarray(ufunc.reduce(full, axis=axes, keepdims=True, dtype=full.dtype))
                updated = np.asarray(updated.any(axis=axes, keepdims=True))
            # An element that no active lane updates stays as it is: not even rounded again.
            position, terms = np.broadcast_to(position, full.shape)[updated], full[updated]
            if self.dtype == value_dtype:
                ufunc.at(self.flat, position, terms)
                return
            touched, group = np.unique(position, return_inverse=True)
            carried = np.array(numerics.cast(self.flat[touched], self.dtype, value_dtype))
            ufunc.at(carried, group.reshape(-1), terms)
            self.flat[touched] = numerics.cast(carried, value_dtype, self.dtype)

    @contextmanager
    def held_in(self, dtype: DType) -> Iterator[None]:
        own, narrow = self.flat, self.dtype
        before = numerics.cast(own, narrow, dtype)
        self.flat, self.dtype = np.array(before), dtype
        try:
            yield
        finally:
            changed = (self.flat != before) | (np.signbit(self.flat) != np.signbit(before))  # -0.0 may become 0.0
            own[changed] = numerics.cast(self.flat[changed], dtype, narrow)
            self.flat, self.dtype = own, narrow

    def _order_matters(self, op: AccOp, value_dtype: DType) -> bool:
        """max and min of an integer that wraps when stored: only step by step is as defined."""
        return op in (AccOp.MAX, AccOp.MIN) and self.dtype != value_dtype and self.dtype.is_integer

    def _in_turn(self, op: AccOp, position: Array, values: Array, value_dtype: DType) -> None:
        while position.size:
            _, first = np.unique(position, return_index=True)
            current = self.flat[position[first]]
            self.flat[position[first]] = numerics.accumulate(op, current, self.dtype, values[first], value_dtype)
            position, values = np.delete(position, first), np.delete(values, first)

    def taint(self, place: Index, lanes: Mask, shape: Shape) -> None:
        """Storage types have no undecided values."""

    def taint_all(self) -> None:
        """Storage types have no undecided values."""


class PlainArithmetic:
    """Values in storage types, rounded as the program says."""

    has_bounds = False

    def begin(self, attrs: tuple[Attr, ...]) -> None:
        """Attributes allow other implementations more; the reference stays precise."""

    def constant(self, value: int | float | bool, dtype: DType) -> Array:
        return numerics.constant(value, dtype)

    def index(self, values: Index, dtype: DType) -> Array:
        return numerics.from_index(values, dtype)

    def truth(self, mask: Mask) -> Array:
        return numerics.truth(mask)

    def cast(self, value: Array, source: DType, target: DType) -> Array:
        return numerics.cast(value, source, target)

    def apply(self, fn: Fn, args: tuple[Array, ...], operand_dtype: DType, dtype: DType) -> Array:
        return numerics.apply(fn, args, dtype)

    def where(self, mask: Mask, then: Array, other: Array) -> Array:
        return np.where(mask, then, other)

    def plain(self, value: Array) -> Array:
        return value

    def doubt(self, value: Array) -> Mask:
        return False

    def tainted(self, value: Array, lanes: Mask) -> Array:
        return value

    def allocate(self, name: str, dtype: DType, elements: int, lanes: Shape) -> PlainCells:
        return PlainCells(dtype, undefined(dtype, elements * math.prod(lanes)), lanes)
