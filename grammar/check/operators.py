"""The operators of the language in one table: how each is written, on what, and what it is on index expressions."""

from dataclasses import dataclass
from enum import Enum

from texpr.grammar.ast import CompareOp, Fn, IndexOp
from texpr.grammar.index.operators import CALLED
from texpr.grammar.index.operators import OPERATORS as INDEX_OPERATORS


class Takes(Enum):
    """The operands that an operator is for; bool is no number."""

    NUMBERS = "numbers"
    FLOATS = "floats"
    INTEGERS = "integers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """`fn` on values of one common type, None where it is for index expressions only; `index` on index expressions
    where that is one again, else None. `mend` says what to write for other operands."""

    fn: Fn | None
    operands: int = 1
    takes: Takes = Takes.NUMBERS
    index: IndexOp | None = None
    mend: str | None = None


def _float(fn: Fn, operands: int = 1) -> Operator:
    return Operator(fn=fn, operands=operands, takes=Takes.FLOATS, mend=f"write {fn.value}(f32(…))")


def _bits(fn: Fn) -> Operator:
    return Operator(fn=fn, operands=2, takes=Takes.INTEGERS)


SYMBOLS = {
    "+": Operator(fn=Fn.ADD, operands=2, index=IndexOp.ADD),
    "-": Operator(fn=Fn.SUB, operands=2, index=IndexOp.SUB),
    "*": Operator(fn=Fn.MUL, operands=2, index=IndexOp.MUL),
    "/": Operator(fn=Fn.DIV, operands=2, index=IndexOp.DIV),
    "%": Operator(
        fn=Fn.MOD, operands=2, takes=Takes.INTEGERS, index=IndexOp.MOD, mend="write x - floor(x / y) * y"
    ),
}  # fmt: skip
COMPARISONS = {op.value: (op, Fn[op.name]) for op in CompareOp}
FUNCTIONS = {
    "abs": Operator(fn=Fn.ABS),
    "min": Operator(fn=Fn.MIN, operands=2, index=IndexOp.MIN),
    "max": Operator(fn=Fn.MAX, operands=2, index=IndexOp.MAX),
    "fma": Operator(fn=Fn.FMA, operands=3),
    "exp": _float(Fn.EXP),
    "exp2": _float(Fn.EXP2),
    "expm1": _float(Fn.EXPM1),
    "log": _float(Fn.LOG),
    "log2": _float(Fn.LOG2),
    "log1p": _float(Fn.LOG1P),
    "xlogy": _float(Fn.XLOGY, 2),
    "sqrt": _float(Fn.SQRT),
    "rsqrt": _float(Fn.RSQRT),
    "pow": _float(Fn.POW, 2),
    "tanh": _float(Fn.TANH),
    "sigmoid": _float(Fn.SIGMOID),
    "erf": _float(Fn.ERF),
    "sin": _float(Fn.SIN),
    "cos": _float(Fn.COS),
    "floor": _float(Fn.FLOOR),
    "ceil": _float(Fn.CEIL),
    "round": _float(Fn.ROUND),
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
TAKES = {operator.fn: operator.takes for operator in (*SYMBOLS.values(), *FUNCTIONS.values()) if operator.fn}
