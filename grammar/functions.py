"""Functions of floats, a row each: the value in float64, what implementations may err by, and how a bound passes.

`numerics` evaluates them for every float type; `interpret.bound` compares what a machine computes with them.

    exp:  value np.exp, error 2 ulps of f32, and an argument that is b off moves the result r by |r| * (e^b - 1)
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texpr.grammar.operators import Fn
from texpr.grammar.records import dataclass

Array = NDArray[Any]
Rule = Callable[[Array, tuple[Array, ...], tuple[Array, ...]], Array]
"""The bound of a result from itself, the arguments, and their bounds."""


@dataclass(frozen=True, slots=True)
class FunctionError:
    """What a function may err by, relative in ulps of the result for f32 and f64; under `#fast` in f32 also
    `fast_ulps`, an absolute part, and parts of both that grow with the first argument's magnitude."""

    f32_ulps: float
    f64_ulps: float
    fast_ulps: float
    fast_absolute: float = 0.0
    fast_per_argument: float = 0.0
    fast_absolute_per_argument: float = 0.0


@dataclass(frozen=True, slots=True)
class FloatFunction:
    value: Callable[..., Array]
    error: FunctionError
    passes: Rule


# ---- values ----------------------------------------------------------------------------------------------------

_erf = np.frompyfunc(math.erf, 1, 1)


def _erf64(x: Array) -> Array:
    return np.asarray(_erf(x), dtype=np.float64)


_erfc = np.frompyfunc(math.erfc, 1, 1)
_ROOT_HALF, _ROOT_HALF_REST = math.sqrt(0.5), -4.833646656726457e-17


def _normcdf64(x: Array) -> Array:
    """erfc(y) / 2 of y = -x / sqrt(2), and what the rounding of y, which matters where y is large, makes of it."""
    near = np.where(np.abs(x) < 64.0, x, np.copysign(64.0, x))  # beyond, 0 or 1
    y = -near * _ROOT_HALF
    high = near * 134217729.0 - (near * 134217729.0 - near)  # near and the root in two halves, whose products are exact
    root = _ROOT_HALF * 134217729.0 - (_ROOT_HALF * 134217729.0 - _ROOT_HALF)
    low, rest = near - high, _ROOT_HALF - root
    missed = -(((high * root + y) + high * rest + low * root) + low * rest) - near * _ROOT_HALF_REST
    found = np.asarray(_erfc(y), dtype=np.float64) - 2.0 / math.sqrt(math.pi) * np.exp(-y * y) * missed
    return np.asarray(np.where(np.isnan(x), x, 0.5 * found))


def _sigmoid64(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x >= 0, 1.0, small) / (1.0 + small))


def _power64(x: Array, y: Array) -> Array:
    """pow; NumPy takes the root where the exponent is the scalar 0.5, which differs for -0 and minus infinity."""
    result = np.power(x, y)
    return np.where((y == 0.5) & ((x == 0) | np.isneginf(x)), np.abs(x), result)


def _xlogy64(x: Array, y: Array) -> Array:
    """x * log(y), and 0 where x is 0 and y is a number."""
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y))


# ---- how bounds pass -----------------------------------------------------------------------------------------------


def _logarithm(scale: float) -> Rule:
    def rule(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
        moved = np.where(v[0] > b[0], scale * b[0] / (v[0] - b[0]), np.inf)
        return np.asarray(np.where(b[0] == 0, 0.0, moved))

    return rule


def _root(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    low = np.sqrt(np.maximum(v[0] - b[0], 0.0))
    return np.where(b[0] == 0, 0.0, np.where(v[0] >= b[0], b[0] / (np.abs(r) + low), np.inf))


def _inverse_root(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    moved = np.where(v[0] > b[0], np.abs(r) * b[0] / (v[0] - b[0]), np.inf)
    return np.asarray(np.where(b[0] == 0, 0.0, moved))


def _exponential(function: Callable[[Array], Array], scale: float) -> Rule:
    def rule(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
        rise = scale * b[0]
        return np.asarray(np.where(rise > 1, function(v[0] + b[0]) - r, np.abs(r) * np.expm1(np.minimum(rise, 1.0))))

    return rule


def _power(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    relative = np.abs(v[1]) * b[0] / (v[0] - b[0]) + np.abs(np.log(np.abs(v[0]))) * b[1]
    moved = np.where(v[0] > b[0], np.abs(r) * np.expm1(relative), np.inf)
    return np.asarray(np.where(b[0] + b[1] == 0, 0.0, moved))


def _exponential_less_one(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    grown = np.where(b[0] > 1, np.expm1(v[0] + b[0]) - r, (np.abs(r + 1.0)) * np.expm1(np.minimum(b[0], 1.0)))
    return np.asarray(np.where(b[0] == 0, 0.0, grown))


def _logarithm_of_one_more(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    room = (1.0 + v[0]) - b[0]
    return np.asarray(np.where(b[0] == 0, 0.0, np.where(room > 0, b[0] / room, np.inf)))


def _product_with_logarithm(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    of_x = np.where(b[0] == 0, 0.0, np.abs(np.log(v[1])) * b[0])
    moved = np.where(v[1] > b[1], b[1] / (v[1] - b[1]), np.inf)
    of_y = np.where((b[1] == 0) | (np.abs(v[0]) + b[0] == 0), 0.0, (np.abs(v[0]) + b[0]) * moved)
    return np.asarray(of_x + of_y)


def _wave(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    return np.minimum(b[0], 2.0)


def _logistic(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    return np.asarray(np.fmin(0.25 * b[0], np.abs(r) * np.expm1(b[0])))


def _normal(r: Array, v: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    """The density is at most 0.4, and at most (|x| + 1) times the distribution."""
    grown = np.expm1(np.minimum((np.abs(v[0]) + b[0] + 1.0) * b[0], 700.0))
    return np.asarray(np.where(b[0] == 0, 0.0, np.fmin(np.fmin(0.4 * b[0], 1.0), np.abs(r) * grown)))


FLOAT_FUNCTIONS = {
    Fn.SQRT: FloatFunction(np.sqrt, FunctionError(0.5, 0.5, 3), _root),
    Fn.RSQRT: FloatFunction(lambda x: 1.0 / np.sqrt(x), FunctionError(2, 1, 3), _inverse_root),
    Fn.EXP: FloatFunction(np.exp, FunctionError(2, 1, 3, 2.0**-126, 1.2), _exponential(np.exp, 1.0)),
    Fn.EXP2: FloatFunction(np.exp2, FunctionError(2, 1, 3, 2.0**-126), _exponential(np.exp2, math.log(2))),
    Fn.LOG: FloatFunction(np.log, FunctionError(1, 1, 3, 2.0**-21), _logarithm(1.0)),
    Fn.LOG2: FloatFunction(np.log2, FunctionError(1, 1, 3, 2.0**-21), _logarithm(1 / math.log(2))),
    Fn.EXPM1: FloatFunction(np.expm1, FunctionError(2, 2, 3), _exponential_less_one),
    Fn.LOG1P: FloatFunction(np.log1p, FunctionError(2, 2, 3), _logarithm_of_one_more),
    Fn.XLOGY: FloatFunction(_xlogy64, FunctionError(2, 2, 4, 0.0, 0.0, 2.0**-22), _product_with_logarithm),
    Fn.POW: FloatFunction(_power64, FunctionError(8, 2, 16, 0.0, 4), _power),
    Fn.TANH: FloatFunction(np.tanh, FunctionError(3, 2, 2.0**13), lambda r, v, b: b[0]),
    Fn.SIGMOID: FloatFunction(_sigmoid64, FunctionError(5, 3, 8, 2.0**-126, 1.2), _logistic),
    Fn.ERF: FloatFunction(_erf64, FunctionError(2, 2, 16), lambda r, v, b: 1.13 * b[0]),
    Fn.NORMCDF: FloatFunction(_normcdf64, FunctionError(12, 8, 256, 2.0**-23), _normal),
    Fn.SIN: FloatFunction(np.sin, FunctionError(2, 2, 4, 2.0**-20, 0.0, 2.0**-24), _wave),
    Fn.COS: FloatFunction(np.cos, FunctionError(2, 2, 4, 2.0**-20, 0.0, 2.0**-24), _wave),
}
