"""Scalars as bits: how a value that is passed by value, or written as a literal, lies in memory."""

import math
import struct
from fractions import Fraction

from texpr.grammar.types import DType, Kind


def narrow_pattern(value: float, dtype: DType) -> int:
    """The bit pattern of a float64 rounded to f16, bf16 or f8 (nearest even; f8 saturates, NaN stays NaN).

    Raises ValueError for any other type.
    """
    if not dtype.is_float or dtype.bits > 16:
        raise ValueError(f"{dtype.name} is no narrow float")
    fraction, exponent_bits = dtype.mantissa, dtype.bits - 1 - dtype.mantissa
    finite_only = dtype.name == "f8e4m3"
    sign = (1 << (dtype.bits - 1)) if math.copysign(1.0, value) < 0 else 0
    infinity = ((1 << exponent_bits) - 1) << fraction
    greatest = infinity + 6 if finite_only else infinity - 1
    if math.isnan(value):
        return sign | (greatest + 1 if finite_only else infinity | 1 << (fraction - 1))
    overflow = greatest if dtype.bits == 8 else infinity
    if math.isinf(value):
        return sign | overflow
    bias = (1 << (exponent_bits - 1)) - 1
    exact = abs(Fraction(value))
    if exact == 0:
        return sign
    exponent = max(math.frexp(abs(value))[1] - 1, 1 - bias)
    steps = round(exact * Fraction(2) ** (fraction - exponent))  # Fraction's round is to nearest even
    pattern = steps + ((exponent + bias - 1) << fraction)
    return sign | (pattern if pattern <= greatest else overflow)


_WIDE = {"f64": struct.Struct("<d").pack, "f32": struct.Struct("<f").pack}


def scalar_bytes(value: int | float | bool, dtype: DType) -> bytes:
    """The bytes of a scalar argument as it is passed by value: integers wrap, floats round to nearest even."""
    pack = _WIDE.get(dtype.name)
    if pack is not None:
        try:
            return pack(value)
        except OverflowError:
            return pack(math.copysign(math.inf, value))
    match dtype.kind:
        case Kind.BOOL:
            return bytes([1 if value else 0])
        case Kind.SIGNED | Kind.UNSIGNED:
            return (int(value) & ((1 << dtype.bits) - 1)).to_bytes(dtype.size_bytes, "little")
        case Kind.FLOAT:
            return narrow_pattern(float(value), dtype).to_bytes(dtype.size_bytes, "little")
