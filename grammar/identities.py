"""What a fold starts from, as Python's numbers: the compiler writes them down, and loads no NumPy for that.

MAX of f32: -inf     of f8e4m3, which has no infinity: -448     of i8: -128     of bool: False
"""

import math

from texpr.grammar.ast import AccOp
from texpr.grammar.types import DType

SATURATED = {"f8e4m3": 448.0, "f8e5m2": 57344.0}  # the greatest values of types whose conversions stop there


def first_of(op: AccOp, dtype: DType) -> int | float | bool:
    """0, 1, and for max and min the least and greatest value."""
    if dtype.is_float:
        most = SATURATED.get(dtype.name, math.inf)
        return {AccOp.ADD: 0.0, AccOp.MUL: 1.0, AccOp.MAX: -most, AccOp.MIN: most}[op]
    if dtype.is_bool:
        return op in (AccOp.MUL, AccOp.MIN)
    least, greatest = dtype.integer_range
    return {AccOp.ADD: 0, AccOp.MUL: 1, AccOp.MAX: least, AccOp.MIN: greatest}[op]
