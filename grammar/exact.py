"""Values that a narrower type holds: what is converted to it and back is what it was.

f32(W[k, n]) of i8             bf16 holds it: 8 bits of an integer are no more than its fraction
max(f32(X[m, k]), 0) of f16    f16 holds it: one of two values that it holds
f32(X[m, k]) * s[k]            only f32 does
"""

from math import frexp, isinf, isnan

from texpr.grammar.ast import Cast, Const, Expr, Fn, Op, Select
from texpr.grammar.types import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U32, DType, Kind

HELD: dict[DType, frozenset[DType]] = {
    BOOL: frozenset({BOOL, F16, BF16, F32, F64, I8, I16, I32, I64, U8, U32, F8E4M3, F8E5M2}),
    I8: frozenset({I8, I16, I32, I64, F16, BF16, F32, F64}),
    U8: frozenset({U8, U32, I16, I32, I64, F16, BF16, F32, F64}),
    I16: frozenset({I16, I32, I64, F32, F64}),
    I32: frozenset({I32, I64, F64}),
    U32: frozenset({U32, I64, F64}),
    I64: frozenset({I64}),
    F8E4M3: frozenset({F8E4M3, F16, BF16, F32, F64}),
    F8E5M2: frozenset({F8E5M2, F16, BF16, F32, F64}),
    F16: frozenset({F16, F32, F64}),
    BF16: frozenset({BF16, F32, F64}),
    F32: frozenset({F32, F64}),
    F64: frozenset({F64}),
}
"""The types that hold all values of a type."""
CHOOSING = frozenset({Fn.MAX, Fn.MIN})


def holds(wide: DType, narrow: DType) -> bool:
    """Whether a type has all values of another."""
    return wide in HELD[narrow]


def fits(value: Expr, dtype: DType) -> bool:
    """Whether a type holds whatever a value may be. Only what is certain by the form of the value: a result of
    arithmetic does not fit, even where it would."""
    if value.dtype != dtype and F8E5M2 in (value.dtype, dtype):
        return False  # conversions to it saturate, on the way there or back, and it has infinities
    work = [value]
    while work:
        one = work.pop()
        if holds(dtype, one.dtype):
            continue
        match one:
            case Cast(operand=operand, dtype=own) if holds(own, operand.dtype):
                work.append(operand)
            case Const(value=number) if _has(dtype, number):
                pass
            case Op(fn=fn, args=args) if fn in CHOOSING:
                work += args
            case Op(fn=Fn.NEG | Fn.ABS, args=args) if dtype.is_float and one.dtype.kind is not Kind.UNSIGNED:
                work += args
            case Select(then=then, other=other):
                work += (then, other)
            case _:
                return False
    return True


SAFE_EXPONENTS = range(-13, 15)
"""Of powers of two that are normal numbers of every float type of 16 bits or more."""


def _has(dtype: DType, number: int | float | bool) -> bool:
    """Whether a constant is surely a value of a type, in which 16 bits have room."""
    if dtype.is_integer:
        low, high = dtype.integer_range
        return isinstance(number, int) and low <= number <= high
    if not dtype.is_float or dtype.bits < 16 or isnan(number):
        return False
    if number == 0 or isinf(number):
        return True
    fraction, exponent = frexp(number)
    return exponent in SAFE_EXPONENTS and (fraction * 2 ** (dtype.mantissa + 1)).is_integer()
