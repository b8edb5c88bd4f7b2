"""Element types and literals in C++."""

import math
import struct
from fractions import Fraction

from texpr.grammar.bits import narrow_pattern
from texpr.grammar.types import BOOL, F32, F64, I32, I64, U32, DType


def storage_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    return "tx::b8" if dtype.is_bool else f"tx::{dtype.name}"


def value_type(dtype: DType) -> str:
    """The C++ type of a value that was loaded."""
    return "bool" if dtype.is_bool else f"tx::{dtype.name}"


def literal(value: int | float | bool, dtype: DType) -> str:
    """A literal of that type, with its sign; floats are rounded once, from the exact value to nearest even."""
    if dtype == BOOL:
        return "true" if value else "false"
    if dtype.is_integer:
        return _integer(int(value), dtype)
    if dtype == F64:
        return _float64(_as_float(value))
    if dtype == F32:
        return _float32(_as_float(value))
    return f"{storage_type(dtype)}{{{narrow_pattern(_as_float(value), dtype):#x}}}"


def is_nonzero(value: int | float | bool, dtype: DType) -> bool:
    """Whether a compiler sees in the literal that it is not zero: digits, none of the values with names."""
    if not dtype.is_float:
        return int(value) % (1 << dtype.bits) != 0
    number = _rounded(_as_float(value)) if dtype == F32 else _as_float(value)
    return dtype in (F32, F64) and math.isfinite(number) and number != 0


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _integer(value: int, dtype: DType) -> str:
    low, high = dtype.integer_range
    value = (value - low) % (high - low + 1) + low
    suffix = {I64: "ll", U32: "u"}.get(dtype, "")
    text = f"{value}{suffix}"
    if value == low and dtype in (I32, I64):
        text = f"({value + 1}{suffix} - 1)"
    return text if dtype in (I32, I64, U32) else f"{storage_type(dtype)}({value})"


def _special(value: float, name: str) -> str | None:
    if math.isnan(value):
        return f"tx::{name}_nan()"
    if math.isinf(value):
        return f"tx::{name}_infinity()" if value > 0 else f"-tx::{name}_infinity()"
    return None


def _float64(value: float) -> str:
    return _special(value, "f64") or repr(value)


def _rounded(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _float32(value: float) -> str:
    rounded = _rounded(value)
    special = _special(rounded, "f32")
    if special is not None:
        return special
    text = next(t for t in (f"{rounded:.{digits}g}" for digits in range(1, 10)) if _reads_as(t, rounded))
    if "." not in text and "e" not in text:
        text += ".0"
    return f"{text}f"


def _reads_as(text: str, value: float) -> bool:
    """Whether a decimal lies well inside the rounding interval of a float32 value, however it is then read."""
    exponent = max(math.frexp(value)[1], -125) if value else -125
    return abs(Fraction(text) - Fraction(value)) * 4 <= Fraction(2) ** (exponent - 24) if value else Fraction(text) == 0
