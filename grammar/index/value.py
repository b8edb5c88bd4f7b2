"""Index expressions and affine conditions, evaluated on integers or on broadcastable i64 arrays alike.

Division floors. A divisor of 0, which only a size bound to 0 can make, gives 0 as on values, so that no input stops
the interpreter here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
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
from texpr.grammar.index.expr import COMPARE, apply

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = int | NDArray[Any]
    Mask = bool | NDArray[Any]
else:  # proofs evaluate integers only, so NumPy is loaded where an array is met
    Index = Mask = Any
Environment = Mapping[str, Index]


def index_value(expr: IndexExpr, environment: Environment) -> Index:
    """The value of an index expression; `environment` has every index and size. KeyError for a name it lacks."""
    match expr:
        case IndexConst():
            return expr.value
        case IndexVar() | SizeVar():
            return environment[expr.name]
        case IndexBinary():
            left, right = index_value(expr.left, environment), index_value(expr.right, environment)
            if not (isinstance(left, int) and isinstance(right, int)):
                return _array_value(expr.op, left, right)
            if right == 0 and expr.op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV):
                return 0
            return apply(expr.op, left, right)
        case _:
            assert_never(expr)


def _array_value(op: IndexOp, left: Index, right: Index) -> Index:
    import numpy as np

    match op:
        case IndexOp.ADD:
            return left + right
        case IndexOp.SUB:
            return left - right
        case IndexOp.MUL:
            return left * right
        case IndexOp.DIV:
            return _floor_divide(left, right)
        case IndexOp.MOD:
            with np.errstate(all="ignore"):
                return np.asarray(np.remainder(left, right))
        case IndexOp.CEILDIV:
            return -_floor_divide(-left, right)
        case IndexOp.MIN:
            return np.minimum(left, right)
        case IndexOp.MAX:
            return np.maximum(left, right)
        case _:
            assert_never(op)


def _floor_divide(left: Index, right: Index) -> Index:
    import numpy as np

    with np.errstate(all="ignore"):
        return np.asarray(np.floor_divide(left, right))


def both(left: Mask, right: Mask) -> Mask:
    """Conjunction of two masks; a Python bool stays one."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    import numpy as np

    return np.logical_and(left, right)


def either(left: Mask, right: Mask) -> Mask:
    """Disjunction of two masks."""
    return inverse(both(inverse(left), inverse(right)))


def inverse(mask: Mask) -> Mask:
    """Negation of a mask."""
    if isinstance(mask, bool):
        return not mask
    import numpy as np

    return np.logical_not(mask)


def as_mask(value: object) -> Mask:
    """A Python bool for anything of rank 0, an array otherwise."""
    if isinstance(value, bool):
        return value
    import numpy as np

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
            return as_mask(COMPARE[condition.op](left, right))
        case _:
            assert_never(condition)
