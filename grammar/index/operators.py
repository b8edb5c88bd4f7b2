"""The operators of index expressions, a row each: what it means, what is known of it, and how every language writes it.

To add one: a member of `IndexOp`, its row, and `tx::<cuda>` in `codegen/include/texpr/math.cuh`. All else asks here;
`expr`, `linear`, `interval` and C++ know more of sums, products and remainders. Standard library only: the runtime
evaluates manifests with it.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from operator import add, floordiv, mod, mul, sub
from typing import Any, Literal

from texpr.grammar.records import dataclass


class IndexOp(StrEnum):
    """`DIV`, `MOD` and `CEILDIV` floor towards minus infinity; their right operand is positive."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    CEILDIV = "ceildiv"
    MIN = "min"
    MAX = "max"


class CompareOp(StrEnum):
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """`value` is of Python integers or of i64 arrays, `isl` of piecewise affine functions (`islpy.PwAff`; None where
    the normal form leaves none of it). `divides`: the right operand is positive; a divisor of 0, which only a size
    bound to 0 can make, gives 0. `chooses` which of the operands the result is.

    Laws: `units` are the left and the right operand that give the other one, and `alone` is what equal operands give
    ("self" or a number). `rises`: the result rises with the left operand, and with the right one (1), falls with it
    (-1), or that is a divisor (0). `range` is the least and greatest result over ranges of the operands, where corners
    do not give it. `nonnegative` says whether the result is, by whether its operands are.

    Texts: it stands `between` its operands, as tightly as a sum or a product, else it is called; `regroups`: what is
    `a + (b + c)` is written `a + b + c`. `python` and `cuda` are names, where they are not the language's own; `c` is
    the body of a C function of `int64_t a, b`, and `c_name` its name. `mend` says what to write for data.
    """

    value: Callable[[Any, Any], Any]
    isl: Callable[[Any, Any], Any] | None = None
    divides: bool = False
    chooses: Literal["least", "greatest"] | None = None
    units: tuple[int | None, int | None] = (None, None)
    alone: str | int | None = None
    rises: int | None = None
    range: Callable[[Range, Range], Range] | None = None
    nonnegative: Callable[[Iterable[bool]], bool] = all
    between: Literal["sum", "product"] | None = None
    regroups: bool = False
    python: str | None = None
    cuda: str | None = None
    c_name: str = ""
    c: str = ""
    mend: str | None = None


def _least(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _numpy().minimum(a, b)


def _greatest(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _numpy().maximum(a, b)


def _numpy() -> Any:
    import numpy as np  # loaded where an array is met: the runtime evaluates integers only

    return np


def _remainders(a: Range, b: Range) -> Range:
    if b[0] < 1:
        return min(b[0], 0), max(b[1] - 1, 0)
    if a[0] < 0:
        return 0, b[1] - 1
    return a if a[1] < b[0] else (0, min(b[1] - 1, a[1]))


OPERATORS = {
    IndexOp.ADD: Operator(value=add, units=(0, 0), rises=1, between="sum", regroups=True),
    IndexOp.SUB: Operator(
        value=sub, units=(None, 0), alone=0, rises=-1, nonnegative=lambda parts: False, between="sum"
    ),
    IndexOp.MUL: Operator(value=mul, units=(1, 1), between="product", regroups=True),
    IndexOp.DIV: Operator(
        value=floordiv,
        isl=lambda a, b: a.div(b).floor(),
        divides=True,
        units=(None, 1),
        rises=0,
        between="product",
        python="//",
        cuda="floor_div",
        c_name="texpr_floordiv",
        c="{ return a / b - (a % b < 0); } /* b > 0 */",
    ),
    IndexOp.MOD: Operator(
        value=mod,
        isl=lambda a, b: a.sub(b.mul(a.div(b).floor())),
        divides=True,
        range=_remainders,
        nonnegative=lambda parts: True,
        between="product",
        cuda="floor_mod",
        c_name="texpr_mod",
        c="{ return a - texpr_floordiv(a, b) * b; }",
    ),
    IndexOp.CEILDIV: Operator(
        value=lambda a, b: -(-a // b),
        isl=lambda a, b: a.div(b).ceil(),
        divides=True,
        units=(None, 1),
        rises=0,
        cuda="ceil_div",
        c_name="texpr_ceildiv",
        c="{ return -texpr_floordiv(-a, b); }",
        mend="write (a + b - 1) / b",
    ),
    IndexOp.MIN: Operator(
        value=_least,
        isl=lambda a, b: a.min(b),
        chooses="least",
        alone="self",
        rises=1,
        c_name="texpr_min",
        c="{ return a < b ? a : b; }",
    ),
    IndexOp.MAX: Operator(
        value=_greatest,
        isl=lambda a, b: a.max(b),
        chooses="greatest",
        alone="self",
        rises=1,
        nonnegative=any,
        c_name="texpr_max",
        c="{ return a < b ? b : a; }",
    ),
}
DIVISIONS = frozenset(op for op, row in OPERATORS.items() if row.divides)
BETWEEN = {op: op.value for op, row in OPERATORS.items() if row.between}
CALLED = {op: op.value for op, row in OPERATORS.items() if not row.between}
"""How the language writes them: between operands, and as calls."""
