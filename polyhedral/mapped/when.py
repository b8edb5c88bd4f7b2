"""Conditions of a mapping as text: the language's own words, with two functions that only a call can answer.

    M % 128 == 0 and stride(A, 0) % 8 == 0 and address(A) % 16 == 0

`in_words` writes a condition so; here it is read. A name is a size: which names a kernel has is asked where a mapping
meets its kernel.
"""

from collections.abc import Sequence

from texpr.grammar import syntax
from texpr.grammar.ast import Always, And, Compare, Condition, IndexConst, IndexExpr, IndexOp, Not, Or, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import combine
from texpr.grammar.index.operators import BETWEEN, CALLED, DIVISIONS, CompareOp
from texpr.grammar.text.parser import parse_text
from texpr.polyhedral.mapped.candidate import address_of, stride_of

MAX_CHARACTERS = 2000
_OPERATORS = {word: op for op, word in (*BETWEEN.items(), *CALLED.items())}
_COMPARISONS = {op.value: op for op in CompareOp}


def read_condition(text: str) -> Condition | None:
    """The condition that a text is; None for any other text."""
    if len(text) > MAX_CHARACTERS or any(mark in text for mark in ("\n", "\r", "--", ";")):
        return None
    try:
        items = parse_text(f"kernel _k() where {text} {{}}\n").items
    except TExprError:
        return None
    match items:
        case (syntax.KernelDef(where=(condition,), attrs=(), body=syntax.Block(body=())),):
            found = _read(condition)
            return found if isinstance(found, Condition) else None
        case _:
            return None


def _read(root: syntax.Expr) -> Condition | IndexExpr | None:
    """The condition or the index expression; parts before wholes, on a stack of their own."""
    done: list[Condition | IndexExpr | None] = []
    work: list[tuple[syntax.Expr, int | None]] = [(root, None)]  # with how many parts are done
    while work:
        node, count = work.pop()
        parts = _parts(node)
        if count is None and parts:
            work += ((node, len(parts)), *((part, None) for part in reversed(parts)))
            continue
        values = [done.pop() for _ in parts][::-1]
        known = [value for value in values if value is not None]
        done.append(_value(node, known) if len(known) == len(values) else None)
    return done.pop()


def _parts(node: syntax.Expr) -> tuple[syntax.Expr, ...]:
    match node:
        case syntax.Binary(left=left, right=right):
            return left, right
        case syntax.Unary(operand=operand):
            return (operand,)
        case syntax.Call(name=name, args=(left, right)) if name in _OPERATORS:
            return () if isinstance(left, syntax.Slice) or isinstance(right, syntax.Slice) else (left, right)
        case _:
            return ()


def _value(node: syntax.Expr, parts: Sequence[Condition | IndexExpr]) -> Condition | IndexExpr | None:
    conditions = [part for part in parts if isinstance(part, Condition)]
    numbers = [part for part in parts if isinstance(part, IndexExpr)]
    match node:
        case syntax.IntLit(value=value):
            return IndexConst(value=value)
        case syntax.BoolLit(value=truth):
            return Always(value=truth)
        case syntax.Name(name=name):
            return SizeVar(name=name)
        case syntax.Call(name="address", args=(syntax.Name(name=name),)):
            return address_of(name)
        case syntax.Call(name="stride", args=(syntax.Name(name=name), syntax.IntLit(value=dim))):
            return stride_of(name, dim)
        case syntax.Unary(op="not") if conditions:
            return Not(part=conditions[0])
        case syntax.Unary(op="-") if numbers:
            return combine(IndexOp.SUB, IndexConst(value=0), numbers[0])
        case syntax.Binary(op="and" | "or" as word) if len(conditions) == 2:
            kind = And if word == "and" else Or
            return kind(parts=tuple(p for c in conditions for p in (c.parts if isinstance(c, kind) else (c,))))
        case syntax.Binary(op=word) if word in _COMPARISONS and len(numbers) == 2:
            return Compare(op=_COMPARISONS[word], left=numbers[0], right=numbers[1])
        case syntax.Binary(op=word) | syntax.Call(name=word) if len(numbers) == 2:
            return _operation(word, *numbers)
        case _:
            return None


def _operation(word: str, left: IndexExpr, right: IndexExpr) -> IndexExpr | None:
    """A divisor is a number from 1 on: of a size, nobody knows that it is not 0."""
    op = _OPERATORS.get(word)
    divides = op in DIVISIONS
    if op is None or (divides and not (isinstance(right, IndexConst) and right.value > 0)):
        return None
    return combine(op, left, right)
