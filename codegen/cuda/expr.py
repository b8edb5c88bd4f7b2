"""Value trees in C++: one expression, or temporaries and an expression where the tree is deep.

Arithmetic on narrow floats is done in f32 and rounded back; `a * b + c` of one statement becomes one `tx::fma` unless
the statement is `#strict`, so that contraction does not depend on a compiler's flags; a `select` is `?:`, with the
loads of its arms inside them.

    Op(add, Op(mul, A[i], B[i]), 1.0)   ->   tx::fma(A.load(i), B.load(i), 1.0f)
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from texpr.codegen.cuda.index import (
    ATOM,
    CONDITIONAL,
    CONJUNCTION,
    DISJUNCTION,
    PRODUCT,
    RELATION,
    SUM,
    IndexScope,
    Term,
    term,
)
from texpr.codegen.cuda.literals import is_nonzero, literal, value_type
from texpr.grammar.ast import (
    COMPARISONS,
    Cast,
    Condition,
    ConditionValue,
    Const,
    Expr,
    Fn,
    Gather,
    IndexValue,
    Op,
    Read,
    Select,
)
from texpr.grammar.diagnostics import fail
from texpr.grammar.permissions import HASTENED
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, I32, I64, U32, DType, compute_type

MAX_DEPTH = 12  # of calls and parentheses in one expression, before a temporary is made
MAX_LAZY_DEPTH = 200  # inside the arms of a select, where no temporary can stand


@dataclass(frozen=True, slots=True)
class Value:
    """C++ text of a value. `product` has the factors of a multiplication that may still be contracted; `constant` says
    that a compiler may see a number in it, and warn of what it computes, `nonzero` that this number is not zero;
    `whole` that it is of an index or a size that no number says, or a float of that; `names` are the variables that the
    text names."""

    text: str
    level: int
    dtype: DType
    depth: int = 1
    product: tuple[str, str] | None = None
    constant: bool = False
    nonzero: bool = False
    whole: bool = False
    names: frozenset[str] = frozenset()

    def at(self, level: int) -> str:
        return self.text if self.level <= level else f"({self.text})"


_FLOAT_INFIX: dict[Fn, tuple[str, int]] = {
    Fn.ADD: ("+", SUM),
    Fn.SUB: ("-", SUM),
    Fn.MUL: ("*", PRODUCT),
    Fn.DIV: ("/", PRODUCT),
}
_COMPARE_INFIX: dict[Fn, str] = {
    Fn.EQ: "==",
    Fn.NE: "!=",
    Fn.LT: "<",
    Fn.LE: "<=",
    Fn.GT: ">",
    Fn.GE: ">=",
}
_BIT_INFIX: dict[Fn, str] = {Fn.BITAND: "&", Fn.BITOR: "|", Fn.BITXOR: "^"}
_BOOL_INFIX: dict[Fn, tuple[str, int]] = {
    Fn.BITAND: ("&&", CONJUNCTION),
    Fn.MIN: ("&&", CONJUNCTION),
    Fn.MUL: ("&&", CONJUNCTION),
    Fn.BITOR: ("||", DISJUNCTION),
    Fn.MAX: ("||", DISJUNCTION),
    Fn.ADD: ("||", DISJUNCTION),
    Fn.BITXOR: ("!=", RELATION),
}
_STRICT: dict[Fn, str] = {Fn.ADD: "strict_add", Fn.SUB: "strict_sub", Fn.MUL: "strict_mul"}
# Integer functions whose name in the headers is not that of the language, floats' are all the same.
_INTEGER_CALL: dict[Fn, str] = {
    Fn.ADD: "wrap_add",
    Fn.SUB: "wrap_sub",
    Fn.MUL: "wrap_mul",
    Fn.NEG: "wrap_neg",
    Fn.FLOORDIV: "floor_div",
    Fn.MOD: "floor_mod",
}
# Behind a call a compiler does not warn of literals: of a divisor that is zero, of unsigned numbers below zero.
_OPAQUE: dict[Fn, str] = {**_STRICT, Fn.DIV: "div"}
_OPAQUE_COMPARE = {
    Fn.LT: ("", "less", False),
    Fn.GE: ("!", "less", False),
    Fn.GT: ("", "less", True),
    Fn.LE: ("!", "less", True),
}
_INTEGER_IDENTITY = frozenset({Fn.FLOOR, Fn.CEIL, Fn.ROUND})


def apply(
    fn: Fn, args: tuple[Value, ...], dtype: DType, *, strict: bool, fast: bool = False, below: bool = False
) -> Value:
    """`fn(args)` in the type of the operation; the operator-to-text table of this target."""
    return replace(_applied(fn, args, dtype, strict=strict, fast=fast, below=below), names=_names(args))


def _names(parts: Iterable[Value | Term]) -> frozenset[str]:
    return frozenset[str]().union(*(part.names for part in parts))


def _applied(fn: Fn, args: tuple[Value, ...], dtype: DType, *, strict: bool, fast: bool, below: bool) -> Value:
    depth = 1 + max(a.depth for a in args)
    if fn in COMPARISONS:
        args = tuple(_widened(a) for a in args)
        if fn in _OPAQUE_COMPARE and args[0].dtype == U32 and any(_may_be_zero(a) for a in args):
            sign, name, swapped = _OPAQUE_COMPARE[fn]
            text = _listed(args[::-1] if swapped else args)
            return Value(f"{sign}tx::{name}({text})", ATOM, dtype, depth)
        return Value(f"{args[0].at(SUM)} {_COMPARE_INFIX[fn]} {args[1].at(SUM)}", RELATION, dtype, depth)
    if fn is Fn.NOT:
        return Value(f"!{args[0].at(ATOM)}", ATOM, dtype, depth)
    if dtype.is_bool:
        sign, level = _BOOL_INFIX[fn]
        inner = SUM if level == RELATION else RELATION
        return Value(f"{args[0].at(inner)} {sign} {args[1].at(inner)}", level, dtype, depth)
    if dtype.is_float:
        inner_type = compute_type(dtype)
        if below and not fast and fn is Fn.EXP and inner_type == F32:
            return cast(_call("tx::exp_below", cast(args[0], F32).text, F32, depth), dtype)
        value = _float(fn, tuple(cast(a, inner_type) for a in args), inner_type, depth, strict=strict, fast=fast)
        return cast(value, dtype)
    if fn in _INTEGER_IDENTITY:
        return args[0]
    if fn in _BIT_INFIX:
        text = f"{args[0].at(ATOM)} {_BIT_INFIX[fn]} {args[1].at(ATOM)}"
        if dtype.bits < 32:
            return _call(value_type(dtype), text, dtype, depth)
        return Value(text, CONJUNCTION, dtype, depth, constant=any(a.constant for a in args))
    return _call(f"tx::{_INTEGER_CALL.get(fn, fn.value)}", _listed(args), dtype, depth)


def _may_be_zero(value: Value) -> bool:
    """Whether a compiler may see a zero in the value."""
    return value.constant and not value.nonzero


def _float(fn: Fn, args: tuple[Value, ...], dtype: DType, depth: int, *, strict: bool, fast: bool) -> Value:
    if strict and fn in _STRICT:
        return _call(f"tx::{_STRICT[fn]}", _listed(args), dtype, depth)
    if fast and fn is Fn.DIV and dtype == F32 and args[1].whole:
        return _call("tx::fast_div_whole", _listed(args), dtype, depth)
    if fast and fn in HASTENED and dtype == F32:
        return _call(f"tx::fast_{fn.value}", _listed(args), dtype, depth)
    if fn in (Fn.ADD, Fn.SUB):
        left, right = args
        if left.product is not None:
            addend = right.text if fn is Fn.ADD else f"-{right.at(ATOM)}"
            return _call("tx::fma", f"{left.product[0]}, {left.product[1]}, {addend}", dtype, depth)
        if right.product is not None:
            first, second = right.product
            return _call("tx::fma", f"{first if fn is Fn.ADD else f'-({first})'}, {second}, {left.text}", dtype, depth)
    if fn in _FLOAT_INFIX:
        sign, level = _FLOAT_INFIX[fn]
        product = (args[0].text, args[1].text) if fn is Fn.MUL else None
        if all(a.constant for a in args) or (fn is Fn.DIV and _may_be_zero(args[1])):
            return Value(f"tx::{_OPAQUE[fn]}({_listed(args)})", ATOM, dtype, depth, product)
        return Value(f"{args[0].at(level)} {sign} {args[1].at(level - 1)}", level, dtype, depth, product)
    if fn is Fn.NEG:
        return Value(f"-{args[0].at(ATOM)}", PRODUCT, dtype, depth, constant=args[0].constant, nonzero=args[0].nonzero)
    return _call(f"tx::{fn.value}", _listed(args), dtype, depth)


def _call(name: str, arguments: str, dtype: DType, depth: int) -> Value:
    return Value(f"{name}({arguments})", ATOM, dtype, depth)


def _listed(args: tuple[Value, ...]) -> str:
    return ", ".join(a.text for a in args)


def _widened(value: Value) -> Value:
    """A narrow float as f32, for comparisons; others as they are."""
    return cast(value, compute_type(value.dtype)) if value.dtype.is_float else value


def cast(value: Value, dtype: DType) -> Value:
    """The value converted to another type."""
    if value.dtype == dtype:
        return value
    return replace(_call(f"tx::cast<{value_type(dtype)}>", value.text, dtype, value.depth + 1), names=value.names)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a value tree needs of the kernel: terms in scope, how an element is read (with the values of its gathered
    subscripts), whether contraction is forbidden, how a temporary is made (its name for a value), whether functions
    may be approximate, and whether its exponentials are of what is 0 at most."""

    scope: IndexScope
    read: Callable[[Read, tuple[Value, ...]], Value]
    strict: bool
    temporary: Callable[[Value], str]
    fast: bool = False
    below: bool = False


Operand = Op | Cast | Read | Select


def emit_value(root: Expr, around: Surroundings) -> Value:
    """The C++ value of a tree. Walks without recursion. Raises E0506 for a select that is nested too deeply."""
    done: list[Value] = []
    work: list[tuple[Expr, bool, bool]] = [(root, False, False)]  # node, its operands are done, inside a lazy arm
    while work:
        node, ready, lazy = work.pop()
        match node:
            case Const(value=value, dtype=dtype):
                seen = dtype.is_float or dtype == U32
                nonzero = seen and is_nonzero(value, dtype)
                text = literal(value, dtype)
                level = PRODUCT if text.startswith("-") else ATOM
                done.append(Value(text, level, dtype, constant=seen, nonzero=nonzero))
            case IndexValue(index=index, dtype=dtype):
                found, own = term(index, around.scope), I32
                if found.wide or dtype != I32:
                    found, own = found.as_wide(), I64
                number = cast(Value(found.text, found.level, own, names=found.names), dtype)
                done.append(replace(number, whole=found.low != found.high))
            case ConditionValue(condition=affine, dtype=dtype):
                truth = term(affine, around.scope)
                done.append(Value(truth.text, truth.level, dtype, names=truth.names))
            case _ if not ready:
                work.append((node, True, lazy))
                work.extend((child, False, lazy or in_arm) for child, in_arm in reversed(_children(node)))
            case _:
                count = len(_children(node))
                operands = tuple(done[len(done) - count :])
                del done[len(done) - count :]
                done.append(_shallow(_combine(node, operands, around), lazy, node, around))
    return done.pop()


def _children(node: Operand) -> list[tuple[Expr, bool]]:
    """The operands of a node in evaluation order, and whether each is evaluated only when chosen."""
    match node:
        case Op(args=args):
            return [(a, False) for a in args]
        case Cast(operand=operand):
            return [(operand, False)]
        case Read(subscripts=subscripts):
            return [(s.value, False) for s in subscripts if isinstance(s, Gather)]
        case Select(condition=chosen, then=then, other=other):
            arms: list[tuple[Expr, bool]] = [(then, True), (other, True)]
            if isinstance(chosen, Condition):
                return arms
            return [(chosen, False), *arms]


def _combine(node: Operand, operands: tuple[Value, ...], around: Surroundings) -> Value:
    match node:
        case Op(fn=fn, dtype=dtype):
            return apply(fn, operands, dtype, strict=around.strict, fast=around.fast, below=around.below)
        case Cast(dtype=dtype):
            return replace(cast(operands[0], dtype), whole=operands[0].whole and dtype in (F32, F64))
        case Read():
            return replace(around.read(node, operands), depth=1 + max((o.depth for o in operands), default=0))
        case Select(condition=chosen, dtype=dtype):
            if isinstance(chosen, Condition):
                question: Term | Value = term(chosen, around.scope)
            else:
                question, operands = operands[0], operands[1:]
            then, other = operands
            return Value(
                f"{question.at(RELATION)} ? {then.at(DISJUNCTION)} : {other.at(DISJUNCTION)}",
                CONDITIONAL,
                dtype,
                1 + max(then.depth, other.depth),
                constant=then.constant or other.constant,
                names=_names((question, then, other)),
            )


def _shallow(value: Value, lazy: bool, node: Operand, around: Surroundings) -> Value:
    """The value itself, or a temporary that holds it where its text has become deep."""
    if value.depth <= MAX_DEPTH:
        return value
    if not lazy:
        name = around.temporary(value)
        return Value(name, ATOM, value.dtype, names=frozenset({name}))
    if value.depth > MAX_LAZY_DEPTH:
        raise fail(
            "E0506",
            "an arm of a select is nested too deeply to be emitted",
            node.span,
            help="compute parts of it in a `let` before the select",
        )
    return value
