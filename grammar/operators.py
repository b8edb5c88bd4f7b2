"""The operators on values, a row each: how the language writes it, on what, and what it is on index expressions.

To add a function of floats: a member of `Fn` and its row, its value in float64 with its error in `functions.py`, and
the function itself for each machine: in `codegen/cpu/library.py`, and `tx::<name>` in `codegen/include/texpr/math.cuh`.
"""

from enum import Enum, StrEnum

from texpr.grammar.index.operators import CALLED, CompareOp, IndexOp
from texpr.grammar.index.operators import OPERATORS as INDEX_OPERATORS
from texpr.grammar.records import dataclass


class Fn(StrEnum):
    """Operators on values. Result and operands have `Op.dtype`, except comparisons: there `Op.dtype` is bool and
    both operands have one common type."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats only
    FLOORDIV = "floordiv"  # integers only
    MOD = "mod"  # integers only
    NEG = "neg"
    ABS = "abs"
    MIN = "min"
    MAX = "max"
    FMA = "fma"
    EXP = "exp"
    EXP2 = "exp2"
    LOG = "log"
    LOG2 = "log2"
    LOG1P = "log1p"  # log(1 + x)
    EXPM1 = "expm1"  # exp(x) - 1
    XLOGY = "xlogy"  # x * log(y), and 0 where x is 0 and y is a number
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    POW = "pow"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    ERF = "erf"
    NORMCDF = "normcdf"  # (1 + erf(x / sqrt(2))) / 2
    SIN = "sin"
    COS = "cos"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    BITAND = "bitand"
    BITOR = "bitor"
    BITXOR = "bitxor"
    SHL = "shl"
    SHR = "shr"
    NOT = "not"  # bool
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


class Takes(Enum):
    """The operands that an operator is for; bool is no number."""

    NUMBERS = "numbers"
    FLOATS = "floats"
    INTEGERS = "integers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """`fn` on values of one common type, None where it is for index expressions only; `index` on index expressions
    where that is one again, else None. `mend` says what to write for other operands. `cost` is how many additions it is
    worth; `cpu` its function of floats in `codegen/cpu/library.py`, with the type's name for `{}`."""

    fn: Fn | None
    operands: int = 1
    takes: Takes = Takes.NUMBERS
    index: IndexOp | None = None
    mend: str | None = None
    cost: int = 1
    cpu: str = ""


def _float(fn: Fn, operands: int = 1, *, cost: int = 16, cpu: str | None = None) -> Operator:
    name = fn.value if cpu is None else cpu
    mend = f"write {fn.value}(f32(…))"
    return Operator(fn=fn, operands=operands, takes=Takes.FLOATS, mend=mend, cost=cost, cpu=name)


def _bits(fn: Fn) -> Operator:
    return Operator(fn=fn, operands=2, takes=Takes.INTEGERS)


SYMBOLS = {
    "+": Operator(fn=Fn.ADD, operands=2, index=IndexOp.ADD),
    "-": Operator(fn=Fn.SUB, operands=2, index=IndexOp.SUB),
    "*": Operator(fn=Fn.MUL, operands=2, index=IndexOp.MUL),
    "/": Operator(fn=Fn.DIV, operands=2, index=IndexOp.DIV, cost=4),
    "%": Operator(
        fn=Fn.MOD, operands=2, takes=Takes.INTEGERS, index=IndexOp.MOD, mend="write x - floor(x / y) * y", cost=4
    ),
}  # fmt: skip
COMPARISONS = {op.value: (op, Fn[op.name]) for op in CompareOp}
FUNCTIONS = {
    "abs": Operator(fn=Fn.ABS, cpu="fabs"),
    "min": Operator(fn=Fn.MIN, operands=2, index=IndexOp.MIN, cpu="minimum"),
    "max": Operator(fn=Fn.MAX, operands=2, index=IndexOp.MAX, cpu="maximum"),
    "fma": Operator(fn=Fn.FMA, operands=3, cpu="fma"),
    "exp": _float(Fn.EXP, cpu="exp_{}"),
    "exp2": _float(Fn.EXP2, cpu="exp2_{}"),
    "expm1": _float(Fn.EXPM1),
    "log": _float(Fn.LOG, cpu="log_{}"),
    "log2": _float(Fn.LOG2, cpu="log2_{}"),
    "log1p": _float(Fn.LOG1P),
    "xlogy": _float(Fn.XLOGY, 2, cpu="xlogy_{}"),
    "sqrt": _float(Fn.SQRT, cost=4),
    "rsqrt": _float(Fn.RSQRT, cost=4, cpu=""),
    "pow": _float(Fn.POW, 2, cpu="power"),
    "tanh": _float(Fn.TANH, cpu="tanh_{}"),
    "sigmoid": _float(Fn.SIGMOID, cpu="sigmoid_{}"),
    "erf": _float(Fn.ERF, cpu="erf_{}"),
    "normcdf": _float(Fn.NORMCDF, cpu="normcdf_{}"),
    "sin": _float(Fn.SIN),
    "cos": _float(Fn.COS),
    "floor": _float(Fn.FLOOR, cost=1),
    "ceil": _float(Fn.CEIL, cost=1),
    "round": _float(Fn.ROUND, cost=1, cpu="rint"),
    "bitand": _bits(Fn.BITAND),
    "bitor": _bits(Fn.BITOR),
    "bitxor": _bits(Fn.BITXOR),
    "shl": _bits(Fn.SHL),
    "shr": _bits(Fn.SHR),
}
FUNCTIONS |= {
    word: Operator(fn=None, operands=2, index=op, mend=INDEX_OPERATORS[op].mend)
    for op, word in CALLED.items()
    if word not in FUNCTIONS
}
BUILTINS = frozenset({*FUNCTIONS, "select", "fragment"})
OPERATORS = {row.fn: row for row in (*SYMBOLS.values(), *FUNCTIONS.values()) if row.fn}
TAKES = {fn: row.takes for fn, row in OPERATORS.items()}
