"""Index expressions and affine conditions, evaluated on integers or on broadcastable i64 arrays alike; expressions on
`Points`, too.

Division floors. A divisor of 0, which only a size bound to 0 can make, gives 0 as on values, so that no input stops
the interpreter here.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from texpr.grammar.ast import CompareOp, Condition, IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import COMPARE
from texpr.grammar.index.operators import OPERATORS
from texpr.grammar.index.points import Points, each
from texpr.grammar.index.text import text
from texpr.grammar.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = int | NDArray[Any]
    Mask = bool | NDArray[Any]
else:  # proofs evaluate integers only, so NumPy is loaded where an array is met
    Index = Mask = Any
Environment = Mapping[str, Index]


TRUE: Mask = True
FALSE: Mask = False


def index_value(expr: IndexExpr, environment: Environment) -> Index:
    """The value of an index expression; `environment` has every index and size. KeyError for a name it lacks."""
    values: list[Index] = []
    work: list[IndexExpr | IndexOp] = [expr]
    while work:  # not by `text`: this is where the exact interpreter spends its time
        node = work.pop()
        match node:
            case IndexVar() | SizeVar():
                values.append(environment[node.name])
            case IndexConst():
                values.append(node.value)
            case IndexBinary():
                work += (node.op, node.right, node.left)
            case _:
                right = values.pop()
                values.append(on_operands(node, values.pop(), right))
    return values.pop()


def on_operands(op: IndexOp, left: Any, right: Any) -> Any:
    """The value of an operator, on what an `Index` may be, or on `Points`."""
    row = OPERATORS[op]
    if isinstance(left, int) and isinstance(right, int):
        value: int = 0 if row.divides and right == 0 else row.value(left, right)
        return value
    if isinstance(left, Points) or isinstance(right, Points):
        return each(lambda a, b: 0 if row.divides and b == 0 else row.value(a, b), left, right)
    if not row.divides:
        result: Index = row.value(left, right)
        return result
    import numpy as np

    with np.errstate(all="ignore"):
        return np.asarray(row.value(left, right))


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
    value: Mask = text(condition, Values(environment))
    return value


@dataclass(frozen=True, slots=True)
class Values:
    """Values as a dialect: of expressions, and of conditions."""

    environment: Environment

    def constant(self, value: int) -> Any:
        return value

    def name(self, leaf: IndexVar | SizeVar) -> Any:
        return self.environment[leaf.name]

    def binary(self, op: IndexOp, left: Any, right: Any) -> Any:
        return on_operands(op, left, right)

    def compare(self, op: CompareOp, left: Any, right: Any) -> Any:
        return as_mask(COMPARE[op](left, right))

    def every(self, parts: Sequence[Any]) -> Any:
        return reduce(both, parts, TRUE)

    def some(self, parts: Sequence[Any]) -> Any:
        return reduce(either, parts, FALSE)

    def negation(self, part: Any) -> Any:
        return inverse(part)

    def always(self, value: bool) -> Any:
        return value
