"""Float64 values with a first-order bound on what a conforming implementation may deviate by.

A `Bounded` holds, per iteration, the float64 value, a bound, and whether the value is undecided. An operation adds the
operands' bounds through its derivative and its own rounding: one unit roundoff of the type it is computed in for
+ - * / sqrt fma, the ulps of `FUNCTION_ERRORS` for functions (twice that in f64, where the reference errs as well). A
conversion to a narrower float leaves the value and adds that type's roundoff. So contraction to fma and any order of
accumulation stay inside. What is exact is known to be: + - * / sqrt fma of arguments without bounds, and conversions,
add nothing where the type holds their result (`_is_exact`), since each of them is rounded correctly.

Undecided is a value that hangs on a decision which the bound leaves open (within `DECISION` bounds): a comparison,
floor, ceil, round, a conversion to integer, the chosen arm of a select, an overflow. Its bound is infinite. max, min
and abs are continuous and need no such care. Infinities and NaN have bound 0 where they are certain.

    a = 1 +- 0, b = 3 +- 0, in f32:   a / b = 1/3 +- 2e-8     floor(a / b) = 0     a / b == 1/3 is undecided
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
from texpr.grammar.ast import Fn
from texpr.grammar.functions import FLOAT_FUNCTIONS, FunctionError, Rule
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, DType

Array = NDArray[Any]
DECISION = 4.0  # bounds within which a decision is open: what tests allow


FUNCTION_ERRORS = {Fn.DIV: FunctionError(0.5, 0.5, 2)} | {fn: row.error for fn, row in FLOAT_FUNCTIONS.items()}
PORTION_DIGITS = 14  # bits that tensor cores keep of a portion of a sum of products of f8
PORTION_LOSS = 2.0**-13  # of the portion's magnitudes, by each addition to it
TF32_LOSS = 2.0**-9  # both operands of a product are cut by 13 bits, each by less than 2^-10 of itself


def roundoff(dtype: DType) -> float:
    """Half the distance of 1 to the next value: the relative error of one rounding."""
    return math.ldexp(1.0, -dtype.mantissa - 1)


def smallest(dtype: DType) -> float:
    """Half the least denormal: the absolute error of one rounding near 0."""
    least = {"f64": -1074, "f32": -149, "f16": -24, "bf16": -133, "f8e4m3": -9, "f8e5m2": -16}
    return math.ldexp(1.0, max(-1074, least[dtype.name] - 1))


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values of all lanes; `bound` and `undecided` broadcast with `value`. Integers and bools have bound 0."""

    value: Array
    bound: Array
    undecided: Array


ZERO = np.zeros(())
DECIDED = np.zeros((), dtype=np.bool_)


def exact(value: Array) -> Bounded:
    """A value that every implementation has exactly."""
    return Bounded(value, ZERO, DECIDED)


def settle(value: Array, bound: Array, undecided: Array, dtype: DType, *, certain_overflow: bool = True) -> Bounded:
    """The result in a float type: overflow becomes infinity or saturates where certain, undecided where not."""
    top = numerics.greatest(dtype)
    size = np.abs(value)
    finite = np.isfinite(value)
    bound = np.where(finite, bound, 0.0)
    if numerics.saturates(dtype):
        value = np.clip(value, -top, top)
        bound = np.where(size - DECISION * bound > top, 0.0, bound)
    elif dtype != F64:
        over = finite & (size - DECISION * bound > top * (1 + roundoff(dtype)))
        near = finite & ~over & (size + DECISION * bound > top)
        if certain_overflow:
            value = np.where(over, np.copysign(np.inf, value), value)
            bound = np.where(over, 0.0, bound)
            undecided = undecided | near
        else:
            undecided = undecided | near | over
    undecided = undecided | ~np.isfinite(bound)
    return Bounded(value, np.where(undecided, np.inf, bound), undecided)


# ---- propagation -----------------------------------------------------------------------------------------------


def _quotient(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    margin = np.abs(v[1]) - b[1]
    certain = np.where((margin > 0) | (b[1] == 0), 0.0, np.inf)
    return (
        np.where(b[0] + b[1] == 0, 0.0, (b[0] + np.abs(r) * b[1]) / np.where(b[1] == 0, np.abs(v[1]), margin)) + certain
    )


def _product(v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    return np.asarray(np.abs(v[0]) * b[1] + np.abs(v[1]) * b[0] + b[0] * b[1])


PROPAGATION: dict[Fn, Rule] = {
    Fn.ADD: lambda r, v, b: b[0] + b[1],
    Fn.SUB: lambda r, v, b: b[0] + b[1],
    Fn.MUL: lambda r, v, b: _product(v, b),
    Fn.FMA: lambda r, v, b: _product(v, b) + b[2],
    Fn.DIV: _quotient,
    Fn.NEG: lambda r, v, b: b[0],
    Fn.ABS: lambda r, v, b: b[0],
    Fn.MIN: lambda r, v, b: np.maximum(b[0], b[1]),
    Fn.MAX: lambda r, v, b: np.maximum(b[0], b[1]),
    **{fn: row.passes for fn, row in FLOAT_FUNCTIONS.items()},
}

STEPS = frozenset({Fn.FLOOR, Fn.CEIL, Fn.ROUND})
CONTINUOUS = frozenset({Fn.NEG, Fn.ABS, Fn.MIN, Fn.MAX})  # without a rounding of their own


def _own_error(fn: Fn, r: Array, v: tuple[Array, ...], dtype: DType, fast: bool, tf32: bool) -> Array:
    """The error that computing `fn` adds, result `r` from exact arguments `v`."""
    if fn in CONTINUOUS:
        return ZERO
    unit = roundoff(dtype)
    size = np.abs(r)
    if fn is Fn.FMA:
        size = size + np.abs(v[0] * v[1])
    entry = FUNCTION_ERRORS.get(fn)
    ulps: Any = 0.5 if entry is None else entry.f32_ulps if dtype == F32 else entry.f64_ulps
    absolute: Any = smallest(dtype)
    if entry is not None and fast and dtype == F32:
        ulps = entry.fast_ulps + entry.fast_per_argument * np.abs(v[0])
        absolute = absolute + entry.fast_absolute + entry.fast_absolute_per_argument * np.abs(v[0])
    if dtype == F64:
        ulps = 2 * ulps + 1
    error = np.asarray(size * (2 * unit) * ulps + absolute)
    if tf32 and fn in (Fn.MUL, Fn.FMA) and dtype == F32:
        error = error + TF32_LOSS * np.abs(v[0] * v[1])
    return error


EXACT = frozenset({Fn.ADD, Fn.SUB, Fn.MUL, Fn.FMA, Fn.DIV, Fn.SQRT})  # rounded correctly, so exact where they can be


def _certain(bounds: tuple[Array, ...]) -> Array:
    found: Array = np.ones((), dtype=np.bool_)
    for bound in bounds:
        found = found & (bound == 0)
    return found


def holds(value: Array, dtype: DType) -> Array:
    """Where a type has the value itself."""
    return np.asarray(numerics.cast(numerics.cast(value, F64, dtype), dtype, F64) == value)


def _is_exact(fn: Fn, r: Array, v: tuple[Array, ...], dtype: DType) -> Array:
    """Where `r`, computed in f64 from `v`, is the true result and `dtype` has it. Products are judged where both
    factors have the 24 bits of f32, for which f64 is exact."""
    if fn in (Fn.ADD, Fn.SUB):
        return holds(r, dtype) & _is_sum(v[0], v[1] if fn is Fn.ADD else -v[1], r)
    if fn is Fn.SQRT:
        return np.asarray(holds(r, dtype) & holds(r, F32) & (r * r == v[0]))
    if fn is Fn.DIV:
        return np.asarray(holds(r, dtype) & holds(r, F32) & holds(v[1], F32) & (r * v[1] == v[0]))
    product = v[0] * v[1]
    short = np.asarray(holds(v[0], F32) & holds(v[1], F32) & holds(product, dtype))
    return short if fn is Fn.MUL else short & holds(r, dtype) & _is_sum(product, v[2], r)


def _is_sum(a: Array, b: Array, r: Array) -> Array:
    """Where r = a + b without rounding: the error term of Knuth's two-sum is 0."""
    back = r - a
    return np.asarray((a - (r - back)) + (b - back) == 0)


def _special(fn: Fn, r: Array, v: tuple[Array, ...], b: tuple[Array, ...], bound: Array) -> Array:
    """Bounds where an argument or the result is infinite or NaN: 0, or infinite where that is not certain."""
    odd = np.zeros((), dtype=np.bool_)
    for value in v:
        odd = odd | ~np.isfinite(value)
    if fn in (Fn.MIN, Fn.MAX):
        return np.where(np.isfinite(r), bound, 0.0)
    bound = np.where(odd, 0.0, bound)
    if fn is Fn.POW or fn is Fn.XLOGY:  # nan ** 0 is 1, (-inf) ** 3 is not (-inf) ** 2.99; 0 * log(inf) is 0
        return np.where(odd & (b[0] + b[1] > 0), np.inf, bound)
    if fn in (Fn.MUL, Fn.FMA, Fn.DIV):
        for value, other in ((v[0], 1), (v[1], 0)):
            unsure = np.isinf(value) & (b[other] > 0) & (np.abs(v[other]) <= DECISION * b[other])
            bound = np.where(unsure, np.inf, bound)
    return bound


def apply_float(fn: Fn, args: tuple[Bounded, ...], dtype: DType, *, fast: bool = False, tf32: bool = False) -> Bounded:
    """A float operation computed in `dtype` (a narrow float: in f32, then rounded to it)."""
    computed = dtype if dtype.bits >= 32 else F32
    values, bounds = tuple(a.value for a in args), tuple(a.bound for a in args)
    undecided: Array = DECIDED
    for arg in args:
        undecided = undecided | arg.undecided
    with np.errstate(all="ignore"):
        result = numerics.apply(fn, values, F64)
        if fn in STEPS:
            low = numerics.apply(fn, (values[0] - DECISION * bounds[0],), F64)
            high = numerics.apply(fn, (values[0] + DECISION * bounds[0],), F64)
            undecided = undecided | ((low != high) & np.isfinite(values[0]))
            return Bounded(result, np.where(undecided, np.inf, 0.0), undecided)
        bound = PROPAGATION[fn](result, values, bounds)
        bound = _special(fn, result, values, bounds, bound)
        rounds = np.isfinite(result)
        if fn in EXACT and not (fast or tf32) and not any(np.all(b > 0) for b in bounds):
            rounds = rounds & ~(_certain(bounds) & _is_exact(fn, result, values, computed))
        bound = bound + np.where(rounds, _own_error(fn, result, values, computed, fast, tf32), 0.0)
        contracts = fn in (Fn.MUL, Fn.FMA)
        settled = settle(
            result,
            np.where(np.isnan(bound), np.inf, bound),
            undecided | ~np.isfinite(bound),
            computed,
            certain_overflow=not contracts,
        )
    return settled if computed == dtype else round_to(settled, dtype)


def round_to(x: Bounded, dtype: DType, *, certain_overflow: bool = True) -> Bounded:
    """A conversion of a float to `dtype`: the value stays, the bound grows by that rounding."""
    with np.errstate(all="ignore"):
        added = np.asarray(roundoff(dtype) * np.abs(x.value) + smallest(dtype))
        if not np.all(x.bound > 0):
            added = np.where((x.bound == 0) & holds(x.value, dtype), 0.0, added)
        value = x.value
        if numerics.saturates(dtype):
            top = numerics.greatest(dtype)
            value = np.where(np.isinf(value), np.copysign(top, value), value)
        bound = x.bound + np.where(np.isfinite(x.value), added, 0.0)
        return settle(value, bound, x.undecided, dtype, certain_overflow=certain_overflow)


def compare(fn: Fn, args: tuple[Bounded, ...]) -> Bounded:
    """A comparison: undecided where the operands are nearer than their bounds."""
    left, right = args
    with np.errstate(all="ignore"):
        slack = DECISION * (left.bound + right.bound)
        open_ = (slack > 0) & ~(np.abs(left.value - right.value) > slack)
        certain = np.isnan(left.value) | np.isnan(right.value) | np.isinf(left.value) | np.isinf(right.value)
        undecided = left.undecided | right.undecided | (open_ & ~certain)
    return Bounded(numerics.apply(fn, (left.value, right.value), F64), ZERO, undecided)


def from_integer(value: Array, undecided: Array, source: DType, dtype: DType) -> Bounded:
    """A conversion of an integer or bool to a float type: exact, or one rounding away."""
    wide = numerics.cast(value, source, F64)
    rounded = numerics.cast(numerics.cast(value, source, dtype), dtype, F64)
    bound = np.where(rounded == wide, 0.0, 2 * roundoff(dtype) * np.abs(wide))
    return settle(wide, bound, undecided, dtype)


def to_integer(x: Bounded, dtype: DType) -> Bounded:
    """A conversion of a float to an integer or bool type: undecided where the bound holds two results."""
    with np.errstate(all="ignore"):
        low = numerics.cast(x.value - DECISION * x.bound, F64, dtype)
        high = numerics.cast(x.value + DECISION * x.bound, F64, dtype)
        open_ = (low != high) & np.isfinite(x.value)
        if dtype.is_bool:
            open_ = (x.bound > 0) & (np.abs(x.value) <= DECISION * x.bound)
    return Bounded(numerics.cast(x.value, F64, dtype), ZERO, x.undecided | open_)
