"""Which factors tensor cores multiply, and how many of their products a sum may have."""

from texpr.grammar.permissions import may_use_tf32
from texpr.grammar.types import BF16, F16, F32, I8, I32, U8, DType
from texpr.polyhedral.map.contraction import Contraction
from texpr.polyhedral.map.problem import Problem

MOST_ADDED = 1 << 13  # times that products are added to an f32 sum without a wider one
ADDED_BYTES = 32  # of each row of a factor, that are multiplied at once
MOST_COUNTED = 1 << 30
LEAST_SUMMED = MOST_ADDED * ADDED_BYTES // F32.size_bytes  # products that every sum may have


def are_multiplied(problem: Problem, one: Contraction) -> bool:
    """Whether tensor cores multiply factors of these types, and the program lets them."""
    dtype = one.first.dtype
    if dtype in (F16, BF16):
        return one.dtype == F32
    if dtype in (I8, U8):
        return one.dtype == I32
    permitted = may_use_tf32((*one.update.attrs, *problem.kernel.attrs))
    return dtype == one.dtype == F32 and permitted


def most_summed(dtype: DType) -> int:
    """How many products of factors of a type a sum may have without a wider one; of integers so many that a launch
    counts them."""
    return MOST_COUNTED if dtype.is_integer else MOST_ADDED * ADDED_BYTES // dtype.size_bytes
