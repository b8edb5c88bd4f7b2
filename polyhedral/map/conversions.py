"""Conversions that lose nothing: from which types a value comes back as it was.

f32(x) of x: bf16, in bf16       x
i64(i8(n)) of n: i64             stays: i8 has not all numbers
"""

from texpr.grammar.ast import Cast, Expr
from texpr.grammar.types import F8E5M2, DType


def widens(narrow: DType, wide: DType) -> bool:
    """Whether a conversion there and back gives the same value. Infinities do not come back in 8 bits: conversions to
    these stop at the greatest number."""
    fewer = narrow.kind == wide.kind and narrow.bits < wide.bits and narrow != F8E5M2
    return narrow == wide or fewer


def converted(value: Expr, dtype: DType) -> Expr:
    """A value in another type; what was widened from it goes back as it came."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Cast) and value.operand.dtype == dtype and widens(dtype, value.dtype):
        return value.operand
    return Cast(operand=value, dtype=dtype, span=value.span)
