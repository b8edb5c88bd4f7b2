"""Index expressions and affine conditions, evaluated on integers or on broadcastable i64 arrays alike.

Division floors. A divisor of 0, which only a size bound to 0 can make, gives 0 as on values, so that no input stops
the interpreter here.
"""

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Not,
    Or,
    SizeVar,
)

Array = NDArray[Any]
Index = int | Array
Mask = bool | Array
Environment = Mapping[str, Index]


def _floor_divide(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return left // right if right else 0
    with np.errstate(all="ignore"):
        return np.asarray(np.floor_divide(left, right))


def _modulo(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return left % right if right else 0
    with np.errstate(all="ignore"):
        return np.asarray(np.remainder(left, right))


def _least(left: Index, right: Index) -> Index:
    return min(left, right) if isinstance(left, int) and isinstance(right, int) else np.minimum(left, right)


def _most(left: Index, right: Index) -> Index:
    return max(left, right) if isinstance(left, int) and isinstance(right, int) else np.maximum(left, right)


def index_value(expr: IndexExpr, environment: Environment) -> Index:
    """The value of an index expression; `environment` has every index and size. KeyError for a size it lacks."""
    match expr:
        case IndexConst():
            return expr.value
        case IndexVar() | SizeVar():
            return environment[expr.name]
        case IndexBinary():
            left, right = index_value(expr.left, environment), index_value(expr.right, environment)
            match expr.op:
                case IndexOp.ADD:
                    return left + right
                case IndexOp.SUB:
                    return left - right
                case IndexOp.MUL:
                    return left * right
                case IndexOp.DIV:
                    return _floor_divide(left, right)
                case IndexOp.MOD:
                    return _modulo(left, right)
                case IndexOp.CEILDIV:
                    return -_floor_divide(-left, right)
                case IndexOp.MIN:
                    return _least(left, right)
                case IndexOp.MAX:
                    return _most(left, right)
                case _:
                    assert_never(expr.op)
        case _:
            assert_never(expr)


def both(left: Mask, right: Mask) -> Mask:
    """Conjunction of two masks; a Python bool stays one."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return np.logical_and(left, right)


def either(left: Mask, right: Mask) -> Mask:
    """Disjunction of two masks."""
    return inverse(both(inverse(left), inverse(right)))


def inverse(mask: Mask) -> Mask:
    """Negation of a mask."""
    return not mask if isinstance(mask, bool) else np.logical_not(mask)


def as_mask(value: object) -> Mask:
    """A Python bool for anything of rank 0, an array otherwise."""
    array = np.asarray(value)
    return bool(array) if array.ndim == 0 else array


def condition_value(condition: Condition, environment: Environment) -> Mask:
    """The truth of an affine condition."""
    match condition:
        case Always():
            return condition.value
        case Not():
            return inverse(condition_value(condition.part, environment))
        case And():
            result: Mask = True
            for part in condition.parts:
                result = both(result, condition_value(part, environment))
            return result
        case Or():
            result = False
            for part in condition.parts:
                result = either(result, condition_value(part, environment))
            return result
        case Compare():
            left, right = index_value(condition.left, environment), index_value(condition.right, environment)
            match condition.op:
                case CompareOp.EQ:
                    return as_mask(left == right)
                case CompareOp.NE:
                    return as_mask(left != right)
                case CompareOp.LT:
                    return as_mask(left < right)
                case CompareOp.LE:
                    return as_mask(left <= right)
                case CompareOp.GT:
                    return as_mask(left > right)
                case CompareOp.GE:
                    return as_mask(left >= right)
                case _:
                    assert_never(condition.op)
        case _:
            assert_never(condition)
