# ruff: noqa: F401 -- emitted text imports all names of this module
"""Every name that emitted CPU code imports: instructions, conversions, and the few functions written out in Python.

Integer functions follow the language: wrap on overflow, floor division that gives 0 for a divisor 0, shifts that
shift everything out. Importing this module imports Numba.
"""

import math
from typing import Any

import numpy as np
from numba import boolean, float32, float64, int8, int16, int32, int64, njit, prange, uint8, uint16, uint32, void
from numba import types as _types

from texpr.codegen.cpu import half
from texpr.codegen.cpu.elementary import erf_f32, exp2_f32, exp_f32, log2_f32, log_f32, normcdf_f32, tanh_f32
from texpr.codegen.cpu.intrinsics import (
    add_c,
    add_r,
    add_rc,
    ceil,
    cos,
    exchange,
    exp,
    exp2,
    fabs,
    floor,
    fma,
    inline,
    keep,
    log,
    log2,
    maximum,
    minimum,
    mul_c,
    mul_r,
    opaque,
    peek,
    pointers,
    power,
    restrict,
    rint,
    sin,
    sqrt,
    stacks,
    sub_c,
    to_i8,
    to_i16,
    to_i32,
    to_i64,
    to_u8,
    to_u32,
)
from texpr.codegen.cpu.multiply import at, hold, multiply
from texpr.codegen.cpu.names import INDEX_FUNCTIONS
from texpr.codegen.cpu.running import running_add, running_max, running_min, running_mul

types: Any = _types
log1p, expm1 = math.log1p, math.expm1
exp_f64, exp2_f64, log_f64, log2_f64, erf_f64, tanh_f64 = exp, exp2, log, log2, math.erf, math.tanh
inf, nan = math.inf, math.nan


def _make_sigmoid(kind: Any, exp: Any) -> Any:
    one = kind(1.0)

    def sigmoid(x: Any) -> Any:
        small = exp(-fabs(x))  # never overflows
        return (one if x >= 0 else small) / (one + small)

    return inline(sigmoid)


sigmoid_f32, sigmoid_f64 = _make_sigmoid(np.float32, exp_f32), _make_sigmoid(np.float64, exp_f64)


_ROOT_HALF, _ROOT_HALF_REST = math.sqrt(0.5), -4.833646656726457e-17
_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)


def _normcdf_f64(x: Any) -> Any:
    if fabs(x) > 64.0:
        return 1.0 if x > 0.0 else 0.0
    y = x * -_ROOT_HALF
    missed = fma(x, -_ROOT_HALF, -y) - x * _ROOT_HALF_REST  # by the rounding of y, which matters where y is large
    return 0.5 * (math.erfc(y) - _TWO_OVER_ROOT_PI * exp(-y * y) * missed)


normcdf_f64 = inline(_normcdf_f64)


def _make_xlogy(kind: Any, log: Any) -> Any:
    zero = kind(0.0)

    def xlogy(x: Any, y: Any) -> Any:
        return zero if x == zero and not math.isnan(y) else x * log(y)

    return inline(xlogy)


xlogy_f32, xlogy_f64 = _make_xlogy(np.float32, log_f32), _make_xlogy(np.float64, log_f64)


def _floordiv(a: Any, b: Any) -> Any:
    if b == 0:
        return np.int64(0)
    if b == -1:  # the machine traps on least // -1
        return np.int64(0) - a
    return np.int64(a // b)


def _mod(a: Any, b: Any) -> Any:
    if b == 0 or b == -1:
        return np.int64(0)
    return np.int64(a % b)


def _absolute(a: Any) -> Any:
    wide = np.int64(a)
    return wide if wide >= 0 else np.int64(0) - wide


def _shl(a: Any, count: Any, bits: Any) -> Any:
    return np.int64(a) << np.int64(count) if 0 <= count < bits else np.int64(0)


def _shr(a: Any, count: Any, bits: Any) -> Any:
    wide = np.int64(a)
    if 0 <= count < bits:
        return wide >> np.int64(count)
    return np.int64(-1) if wide < 0 else np.int64(0)


floordiv, mod, absolute = inline(_floordiv), inline(_mod), inline(_absolute)
globals().update({name: inline(value) for name, value in INDEX_FUNCTIONS.items()})
shl, shr = inline(_shl), inline(_shr)

pointer_f64, pointer_f32, pointer_f16, pointer_bf16 = (pointers[t] for t in ("f64", "f32", "f16", "bf16"))
pointer_f8e4m3, pointer_f8e5m2 = pointers["f8e4m3"], pointers["f8e5m2"]
pointer_i64, pointer_i32, pointer_i16, pointer_i8 = (pointers[t] for t in ("i64", "i32", "i16", "i8"))
pointer_u32, pointer_u8, pointer_bool = pointers["u32"], pointers["u8"], pointers["bool"]
stack_f64, stack_f32, stack_f16, stack_bf16 = (stacks[t] for t in ("f64", "f32", "f16", "bf16"))
stack_f8e4m3, stack_f8e5m2 = stacks["f8e4m3"], stacks["f8e5m2"]
stack_i64, stack_i32, stack_i16, stack_i8 = (stacks[t] for t in ("i64", "i32", "i16", "i8"))
stack_u32, stack_u8, stack_bool = stacks["u32"], stacks["u8"], stacks["bool"]

decode_f16, decode_bf16 = half.decode["f16"], half.decode["bf16"]
decode_f8e4m3, decode_f8e5m2 = half.decode["f8e4m3"], half.decode["f8e5m2"]
encode_f16, encode_bf16 = half.encode["f16"], half.encode["bf16"]
encode_f8e4m3, encode_f8e5m2 = half.encode["f8e4m3"], half.encode["f8e5m2"]
odd_f32, odd_f32_of_i64 = half.odd_f32, half.odd_f32_of_i64


@njit
def zeros(count: Any) -> Any:
    """Integers that are 0, made by one thread: in a parallel function `np.zeros` would be one more parallel loop."""
    return np.zeros(count, np.int64)


finding_type: Any = types.UniTuple(int64, 3)


@inline
def finding(number: Any, value: Any, extent: Any) -> Any:
    """What checked functions return: the number of the check that failed, or 0, and the two figures that it tells."""
    return np.int64(number), np.int64(value), np.int64(extent)


def pointer(element: Any) -> Any:
    """The type of a pointer to elements, for signatures."""
    return types.CPointer(element)
