"""The monoids that reductions and scans combine by, each with its meaning in NumPy.

A monoid is (identity, lift, combine, result): an element becomes a partial result by `lift`, partials combine in any
grouping that keeps their order, a partial without elements is `identity`, and `result` is what the sequential
statements leave in exact arithmetic, with their NaN and infinities. A partial is a tuple of its components. The initial
value of the program is combined once, in its place. `error` bounds the rounding of finite values.

    softmax's row:  m = max over k of x[k];  s = sum over k of exp(x[k] - m)      is ScaledSum, one pass over x
    its label:      if x[k] > m { m = x[k]; label = k }, for each k               is FirstGreatest

The same four functions by the same names are in C++ in `codegen/include/texpr/monoid.cuh`, and
`tests/atoms/test_monoids.py` compares both with the sequential statements. On a CPU no lanes combine: one core runs the
statements.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import add, gt, lt, mul
from typing import TYPE_CHECKING, Any

from texpr.grammar.ast import AccOp
from texpr.grammar.identities import first_of
from texpr.grammar.records import dataclass
from texpr.grammar.types import ELEMENT_TYPES, DType

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
else:
    from texpr.grammar.numpy_later import np

    Array = Any
Partial = tuple[Array, ...]

EXP_ULP = 4  # of the exponential functions of all our targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Monoid:
    """`components` names what a partial holds; `index` of an element is read by `lift` where `indexed`, else ignored.

    `error(values, unit, depth)` bounds the distance of each component of the result from its value in exact arithmetic,
    for finite `values` (over axis 0, as float64), the type's unit roundoff, and at most `depth` combinations between an
    element and the result."""

    name: str
    components: tuple[str, ...]
    integers: bool
    indexed: bool
    identity: Callable[[DType], tuple[float, ...]]
    lift: Callable[[Array, Array], Partial]
    combine: Callable[[Partial, Partial], Partial]
    result: Callable[[Partial], Partial]
    error: Callable[[Array, float, int], tuple[Array, ...]]


def _same(partial: Partial) -> Partial:
    return partial


def _scalar(
    name: str,
    identity: Callable[[DType], float],
    combine: Callable[[Array, Array], Array],
    error: Callable[[Array, float, int], Array],
) -> Monoid:
    return Monoid(
        name=name,
        components=("value",),
        integers=True,
        indexed=False,
        identity=lambda dtype: (identity(dtype),),
        lift=lambda x, index: (x,),
        combine=lambda a, b: (combine(a[0], b[0]),),
        result=_same,
        error=lambda x, unit, depth: (error(x, unit, depth),),
    )


_lowest, _highest = (partial(first_of, op) for op in (AccOp.MAX, AccOp.MIN))


def _number(name: str, start: Callable[[DType], float], choose: Callable[[Array, Array], Array]) -> Monoid:
    """The greatest or least of those that are numbers, or the value to start from: what comparisons alone would leave,
    which hold for no NaN. 0 and -0 are alike."""
    plain = _scalar(name, start, choose, _exact)
    return replace(plain, lift=lambda x, index: (choose(x, np.full_like(x, start(_like(x)))),))


def _like(x: Array) -> DType:
    """The type of an array's values, which NumPy has itself."""
    return ELEMENT_TYPES[f"{x.dtype.kind}{8 * x.dtype.itemsize}"]


def _exact(x: Array, unit: float, depth: int) -> Array:
    return np.zeros(x.shape[1:])


def _sum_error(x: Array, unit: float, depth: int) -> Array:
    return np.asarray(depth * unit * np.abs(x).sum(axis=0))


def _product_error(x: Array, unit: float, depth: int) -> Array:
    return np.asarray(depth * unit * np.abs(x).prod(axis=0))


# ---- the greatest value and the sum of exp(value - greatest) ----


def _scale(before: Array, after: Array) -> Array:
    """exp(before - after), and 1 where they are equal: infinities are only counted."""
    return np.asarray(np.where(before == after, before.dtype.type(1), np.exp(before - after)))


def _scaled_sum(a: Partial, b: Partial) -> Partial:
    greatest = np.maximum(a[0], b[0])
    return greatest, a[1] * _scale(a[0], greatest) + b[1] * _scale(b[0], greatest)


def _scaled_sum_result(a: Partial) -> Partial:
    """An infinite greatest value of at least one element makes the sequential sum NaN: it holds exp(inf - inf)."""
    return a[0], np.where(a[1] == 0, a[1], a[1] + (a[0] - a[0]))


def _scaled_sum_error(x: Array, unit: float, depth: int) -> tuple[Array, ...]:
    below = x.max(axis=0) - x  # the rescalings of an element telescope to exp(-below)
    relative = depth * (2 * EXP_ULP + 2) * unit + below * unit
    return _exact(x, unit, depth), np.asarray((np.exp(-below) * relative).sum(axis=0))


# ---- the greatest or least value, and the first or the last place that has it ----


def _pick(name: str, *, first: bool, least: bool) -> Monoid:
    """What `if x > v { v = x; i = index }` leaves, of the first; `>=` of the last; `<` and `<=` of the least. Nothing
    is the value to start from, at -1, and an element becomes what it leaves beside nothing: a NaN is never picked, and
    the value to start from only by `>=` and `<=`."""
    better, start = (lt, _highest) if least else (gt, _lowest)

    def combine(a: Partial, b: Partial) -> Partial:
        nearer = a[1] <= b[1] if first else a[1] >= b[1]
        kept = better(a[0], b[0]) | ((a[0] == b[0]) & nearer)
        return np.where(kept, a[0], b[0]), np.where(kept, a[1], b[1])

    def lift(x: Array, index: Array) -> Partial:
        at = np.asarray(index)
        return combine((x, at), (np.full_like(x, start(_like(x))), np.full_like(at, -1)))

    return Monoid(
        name=name,
        components=("value", "index"),
        integers=True,
        indexed=True,
        identity=lambda dtype: (start(dtype), -1),
        lift=lift,
        combine=combine,
        result=_same,
        error=lambda x, unit, depth: (_exact(x, unit, depth), _exact(x, unit, depth)),
    )


# ---- how many values, their mean, the sum of the squares of their distances from it ----


def _moments(a: Partial, b: Partial) -> Partial:
    """Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979)."""
    count = a[0] + b[0]
    share = b[0] / np.where(count == 0, count.dtype.type(1), count)
    apart = b[1] - a[1]
    mean = np.where(apart - apart == 0, a[1] + apart * share, a[1] * (1 - share) + b[1] * share)
    squares = a[2] + b[2] + apart * apart * (a[0] * share)
    both = tuple(zip(a, b, (count, mean, squares), strict=True))
    return tuple(np.where(b[0] == 0, x, np.where(a[0] == 0, y, z)) for x, y, z in both)


def _moments_error(x: Array, unit: float, depth: int) -> tuple[Array, ...]:
    count, mean = len(x), x.mean(axis=0)
    squares = ((x - mean) ** 2).sum(axis=0)
    of_mean = 6 * depth * unit * np.abs(x).max(axis=0)
    weights = count * depth / 2
    of_squares = 4 * of_mean * np.sqrt(weights * squares) + 4 * of_mean**2 * weights + (depth + 6) * unit * squares
    return _exact(x, unit, depth), np.asarray(of_mean), np.asarray(of_squares)


_CATALOGUE: Sequence[Monoid] = (
    _scalar("Sum", lambda dtype: -0.0 if dtype.is_float else 0, add, _sum_error),  # -0 + x is x, also for x = -0
    _scalar("Product", lambda dtype: 1, mul, _product_error),
    _scalar("Greatest", _lowest, lambda a, b: np.maximum(a, b), _exact),
    _scalar("Least", _highest, lambda a, b: np.minimum(a, b), _exact),
    _number("GreatestNumber", _lowest, lambda a, b: np.fmax(a, b)),
    _number("LeastNumber", _highest, lambda a, b: np.fmin(a, b)),
    Monoid(
        name="ScaledSum",
        components=("greatest", "sum"),
        integers=False,
        indexed=False,
        identity=lambda dtype: (-np.inf, 0.0),
        lift=lambda x, index: (x, np.ones_like(x)),
        combine=_scaled_sum,
        result=_scaled_sum_result,
        error=_scaled_sum_error,
    ),
    _pick("FirstGreatest", first=True, least=False),
    _pick("LastGreatest", first=False, least=False),
    _pick("FirstLeast", first=True, least=True),
    _pick("LastLeast", first=False, least=True),
    Monoid(
        name="Moments",
        components=("count", "mean", "squares"),
        integers=False,
        indexed=False,
        identity=lambda dtype: (0.0, 0.0, 0.0),
        lift=lambda x, index: (np.ones_like(x), x, x - x),  # an infinite distance is no number
        combine=_moments,
        result=_same,
        error=_moments_error,
    ),
)

MONOIDS: dict[str, Monoid] = {monoid.name: monoid for monoid in _CATALOGUE}
OF_UPDATE = {AccOp.ADD: "Sum", AccOp.MUL: "Product", AccOp.MAX: "Greatest", AccOp.MIN: "Least"}
