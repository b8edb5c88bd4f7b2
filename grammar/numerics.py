"""What every operator computes, in NumPy: the Numerics section of docs/language.md as functions on arrays.

The interpreter, the mapped-program simulator and the tests share this one definition; backends are compared with it.
Arrays are in storage types (`storage`): f16 is `numpy.float16`, bf16 and f8 are the types of `ml_dtypes`, bool is one
byte. Nothing here warns or raises on data: IEEE specials, wrap-around and division by zero have defined results.

    cast([1.0e6, nan], F32, F8E4M3) = [448, nan]      cast([3.9, nan, 1e20], F32, I32) = [3, 0, 2147483647]

An operation on a float narrower than f32 is computed in f32 and rounded once to the narrow type. Functions of f32 are
evaluated in float64 and rounded once, so they are within 0.51 ulp; the allowance that backends have is in
`interpret.bound`.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from texpr.grammar.ast import COMPARISONS, AccOp, Fn
from texpr.grammar.functions import FLOAT_FUNCTIONS
from texpr.grammar.identities import SATURATED, first_of
from texpr.grammar.types import BOOL, F32, F64, I64, DType, Kind

Array = NDArray[Any]

_STORAGE: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u32": np.dtype(np.uint32),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}

_LEAST_NORMAL: dict[str, float] = {
    "f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126, "f8e4m3": 2.0**-6, "f8e5m2": 2.0**-14,
}  # fmt: skip
_GREATEST: dict[str, float] = {
    "f64": float(np.finfo(np.float64).max),
    "f32": float(np.finfo(np.float32).max),
    "f16": 65504.0,
    "bf16": float.fromhex("0x1.fep127"),
    **SATURATED,
}


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy type that arrays of `dtype` have."""
    return _STORAGE[dtype.name]


def greatest(dtype: DType) -> float:
    """The greatest finite value of a float type."""
    return _GREATEST[dtype.name]


def least_normal(dtype: DType) -> float:
    """The least normal number of a float type."""
    return _LEAST_NORMAL[dtype.name]


def saturates(dtype: DType) -> bool:
    """Whether conversion to this float type saturates instead of overflowing to infinity: the 8-bit ones do."""
    return dtype.name in SATURATED


# ---- conversion ------------------------------------------------------------------------------------------------


def _towards_odd(rounded: Array, residue: Array) -> Array:
    """`rounded` corrected to rounding-to-odd, given the sign of exact minus rounded; a second rounding is then exact.

    Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Trans. Computers 57 (2008).
    """
    bits: Array = rounded.view(np.uint32 if rounded.dtype == np.float32 else np.uint64)
    even = (bits & 1) == 0
    fix = even & (residue != 0) & np.isfinite(rounded)
    target = np.where(residue > 0, np.inf, -np.inf).astype(rounded.dtype)
    return np.where(fix, np.nextafter(rounded, target), rounded)


def _float64_to_odd_float32(values: Array) -> Array:
    single = np.asarray(values.astype(np.float32))
    return _towards_odd(single, values - single.astype(np.float64))


def _integer_to_odd_float64(values: Array) -> Array:
    """i64 to float64 rounded to odd at 2 ** 11 when large: exact enough for a second rounding to f16 or narrower."""
    wide = values.astype(np.int64)
    small = np.abs(wide.astype(np.float64)) < 2.0**52
    sticky = (wide >> 11) | ((wide & 0x7FF) != 0)
    return np.where(small, wide.astype(np.float64), sticky.astype(np.float64) * 2048.0)


def _round_float(values: Array, dtype: DType) -> Array:
    """float32 or float64 values rounded once, to nearest even, to the float type `dtype`."""
    target = storage(dtype)
    if values.dtype == target:
        return values
    if values.dtype == np.float64 and dtype.bits < 32:
        values = _float64_to_odd_float32(values)
    if saturates(dtype):
        values = np.clip(values, -greatest(dtype), greatest(dtype))
    return values.astype(target)


def _truncate(values: Array, dtype: DType) -> Array:
    """Floats to integers: towards zero, saturating, NaN to 0."""
    low, high = dtype.integer_range
    wide = np.trunc(values.astype(np.float64))
    above, below = wide >= float(high), wide <= float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(np.int64).astype(storage(dtype))
    kind = storage(dtype).type
    return np.where(above, kind(high), np.where(below, kind(low), inside))


def cast(values: Array, source: DType, target: DType) -> Array:
    """`values` of type `source` converted to `target`: the core tree's `Cast`."""
    values = np.asarray(values)
    if source == target:
        return values
    with np.errstate(all="ignore"):
        if target.is_bool:
            wide = values.astype(np.float64) if source.is_float and source.bits < 32 else values
            return np.asarray(wide != 0)
        if source.is_float:
            if source.bits < 32:
                values = values.astype(np.float32)
            return _truncate(values, target) if target.is_integer else _round_float(values, target)
        if target.is_integer:
            return values.astype(storage(target))
        if target.bits >= 32 or source.is_bool:
            return values.astype(storage(target))
        return _round_float(_integer_to_odd_float64(values), target)


def constant(value: int | float | bool, dtype: DType) -> Array:
    """A literal as a rank-0 array: floats rounded once to `dtype`, integers wrapped to it."""
    if dtype.is_bool:
        return np.asarray(bool(value))
    if dtype.is_float:
        try:
            wide = np.asarray(float(value))
        except OverflowError:
            wide = np.asarray(math.inf if value > 0 else -math.inf)
        return cast(wide, F64, dtype)
    bits = int(value) & ((1 << dtype.bits) - 1)
    high = dtype.integer_range[1]
    return np.asarray(bits - (1 << dtype.bits) if bits > high else bits, dtype=storage(dtype))


# ---- floats -----------------------------------------------------------------------------------------------------


def _exact_fma(a: float, b: float, c: float) -> float:
    """a * b + c rounded once, in rational arithmetic; specials and exact zeros as IEEE gives them."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c if not math.isfinite(a) or not math.isfinite(b) else c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


_fma64 = np.frompyfunc(_exact_fma, 3, 1)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    """f32 fma: the product is exact in float64, the sum is rounded to odd there and then once to f32."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = np.asarray(product + addend)
    shadow = total - product
    residue = (product - (total - shadow)) + (addend - shadow)
    return _towards_odd(total, residue).astype(np.float32)


_FLOAT: dict[Fn, Callable[..., Array]] = {
    Fn.ADD: np.add,
    Fn.SUB: np.subtract,
    Fn.MUL: np.multiply,
    Fn.DIV: np.true_divide,
    Fn.NEG: np.negative,
    Fn.ABS: np.abs,
    Fn.MIN: np.minimum,
    Fn.MAX: np.maximum,
    Fn.FLOOR: np.floor,
    Fn.CEIL: np.ceil,
    Fn.ROUND: np.rint,
}


def _apply_float(fn: Fn, args: tuple[Array, ...], dtype: DType) -> Array:
    if dtype.bits < 32:
        single = tuple(a.astype(np.float32) for a in args)
        return _round_float(np.asarray(_apply_float(fn, single, F32)), dtype)
    if fn in _FLOAT:
        return np.asarray(_FLOAT[fn](*args))
    if fn is Fn.FMA:
        return _fma32(*args) if dtype == F32 else np.asarray(_fma64(*args), dtype=np.float64)
    wide = tuple(a.astype(np.float64) for a in args)
    return np.asarray(FLOAT_FUNCTIONS[fn].value(*wide)).astype(storage(dtype))


# ---- integers and bools ----------------------------------------------------------------------------------------


def _shift(fn: Fn, values: Array, counts: Array, dtype: DType) -> Array:
    """Counts outside 0..bits-1 shift everything out; `shr` of a signed value keeps the sign."""
    inside = (counts >= 0) & (counts < dtype.bits)
    safe = np.where(inside, counts, 0).astype(counts.dtype)
    if fn is Fn.SHL:
        return np.where(inside, np.left_shift(values, safe), np.zeros_like(values))
    emptied = np.where(values < 0, -1, 0) if dtype.kind is Kind.SIGNED else np.zeros_like(values)
    return np.where(inside, np.right_shift(values, safe), emptied)


_INTEGER: dict[Fn, Callable[..., Array]] = {
    Fn.ADD: np.add,
    Fn.SUB: np.subtract,
    Fn.MUL: np.multiply,
    Fn.FLOORDIV: np.floor_divide,
    Fn.MOD: np.remainder,
    Fn.NEG: np.negative,
    Fn.ABS: np.abs,
    Fn.MIN: np.minimum,
    Fn.MAX: np.maximum,
    Fn.FMA: lambda a, b, c: a * b + c,
    Fn.BITAND: np.bitwise_and,
    Fn.BITOR: np.bitwise_or,
    Fn.BITXOR: np.bitwise_xor,
    Fn.FLOOR: np.positive,
    Fn.CEIL: np.positive,
    Fn.ROUND: np.positive,
}

_BOOL: dict[Fn, Callable[..., Array]] = {
    Fn.NOT: np.logical_not,
    Fn.BITAND: np.logical_and,
    Fn.BITOR: np.logical_or,
    Fn.BITXOR: np.logical_xor,
    Fn.MIN: np.logical_and,
    Fn.MAX: np.logical_or,
    Fn.MUL: np.logical_and,
    Fn.ADD: np.logical_or,
}

_COMPARE: dict[Fn, Callable[..., Array]] = {
    Fn.EQ: np.equal,
    Fn.NE: np.not_equal,
    Fn.LT: np.less,
    Fn.LE: np.less_equal,
    Fn.GT: np.greater,
    Fn.GE: np.greater_equal,
}


def apply(fn: Fn, args: tuple[Array, ...], dtype: DType) -> Array:
    """`Op(fn, args, dtype)` on broadcastable arrays of the operands' storage type; the result has that of `dtype`.

    Comparisons take two arrays of one type and give bool. KeyError for a function that the type does not have, which
    the checker refuses.
    """
    args = tuple(np.asarray(a) for a in args)
    with np.errstate(all="ignore"):
        if fn in COMPARISONS:
            return np.asarray(_COMPARE[fn](*args))
        if dtype.is_float:
            return _apply_float(fn, args, dtype)
        if dtype.is_bool:
            return np.asarray(_BOOL[fn](*args))
        if fn in (Fn.SHL, Fn.SHR):
            return _shift(fn, args[0], args[1], dtype).astype(storage(dtype))
        return np.asarray(_INTEGER[fn](*args)).astype(storage(dtype))


# ---- accumulation ----------------------------------------------------------------------------------------------

ACCUMULATE_FN: dict[AccOp, Fn] = {AccOp.ADD: Fn.ADD, AccOp.MUL: Fn.MUL, AccOp.MAX: Fn.MAX, AccOp.MIN: Fn.MIN}

_UFUNC: dict[AccOp, np.ufunc] = {
    AccOp.ADD: np.add,
    AccOp.MUL: np.multiply,
    AccOp.MAX: np.maximum,
    AccOp.MIN: np.minimum,
}


def ufunc(op: AccOp, dtype: DType) -> np.ufunc:
    """The NumPy ufunc of an accumulation computed in `dtype`, for `.reduce` and `.at`."""
    if dtype.is_bool:
        return np.logical_or if op in (AccOp.ADD, AccOp.MAX) else np.logical_and
    return _UFUNC[op]


def identity(op: AccOp, dtype: DType) -> Array:
    """The value that a fold starts from, as a rank-0 array: 0, 1, and for max and min the least and greatest value."""
    return constant(first_of(op, dtype), dtype)


def accumulate(op: AccOp, current: Array, buffer_dtype: DType, value: Array, value_dtype: DType) -> Array:
    """One update: `cast(buffer, op(cast(value_dtype, current), value))`, the meaning of `Accumulate` and `Atomic`."""
    wide = cast(current, buffer_dtype, value_dtype)
    return cast(apply(ACCUMULATE_FN[op], (wide, value), value_dtype), value_dtype, buffer_dtype)


def from_index(values: Array | int, dtype: DType) -> Array:
    """Index values (i64) as values of `dtype`; a number beyond 64 bits wraps."""
    if isinstance(values, int):
        values = (values + (1 << 63)) % (1 << 64) - (1 << 63)
    return cast(np.asarray(values, dtype=np.int64), I64, dtype)


def truth(values: Array | bool) -> Array:
    """A mask as bool values."""
    return np.asarray(values, dtype=storage(BOOL))
