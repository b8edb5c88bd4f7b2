"""Which factors tensor cores multiply, and how many of their products a sum may have."""

from texpr.grammar.ast import Leaf
from texpr.grammar.core import statements
from texpr.grammar.permissions import may_be_in_portions, may_contract, may_use_tf32
from texpr.grammar.types import BF16, F16, F32, F64, I8, I32, U8, DType
from texpr.polyhedral.map.contraction import Contraction
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.atoms import F8, may_multiply, warps_multiply

MOST_ADDED = 1 << 13  # times that products are added to an f32 sum without a wider one
ADDED_BYTES = 32  # of each row of a factor, that are multiplied at once
MOST_COUNTED = 1 << 30
PORTION_ROOM = 192  # registers of a thread for sums and two portions: one for two columns
PORTION_SUMS = 64  # of a thread, for twice as many columns: there are registers for them beside all its sums
LEAST_SUMMED = MOST_ADDED * ADDED_BYTES // F32.size_bytes  # products that every sum may have


def are_multiplied(problem: Problem, one: Contraction, *, by_warps: bool) -> bool:
    """Whether tensor cores multiply factors of these types, `by_warps` alone, and the program lets them."""
    dtype = one.first.dtype
    if not may_multiply(dtype, one.second.dtype) or (by_warps and not warps_multiply(dtype, problem.target)):
        return False
    if dtype in (F16, BF16):
        return one.dtype == F32
    if dtype in F8:  # as the program itself says: elements that come by a local are values of f32
        said = (s for s in statements(problem.kernel.body) if isinstance(s, Leaf) and s.id == one.update.id)
        return one.dtype == F32 and all(map(may_be_in_portions, said))
    if dtype in (I8, U8):
        return one.dtype == I32
    if dtype == F64:  # each product is rounded with the sum that takes it
        return by_warps and one.dtype == F64 and may_contract(one.update) and may_contract(problem.kernel)
    permitted = may_use_tf32((*one.update.attrs, *problem.kernel.attrs))
    return dtype == one.dtype == F32 and permitted


def most_summed(dtype: DType) -> int:
    """How many products of factors of a type a sum may have without a wider one; of integers so many that a launch
    counts them, and of f64, which loses no more of a sum than any other way."""
    return MOST_COUNTED if dtype.is_integer or dtype == F64 else MOST_ADDED * ADDED_BYTES // dtype.size_bytes


def paired_columns(columns: int, sums: int) -> int:
    """The columns of each of two portions beside so many sums of so many columns: as many as there is room for."""
    room = PORTION_ROOM - columns * sums // 2
    return next(columns // n for n in range(1, columns + 1) if columns % (8 * n) == 0 and columns // n <= room)


def portion_columns(columns: int) -> int:
    """The columns of a portion by itself."""
    pieces = next(n for n in range(1, columns + 1) if columns % n == 0 and columns // n <= 2 * PORTION_SUMS)
    return columns // pieces
