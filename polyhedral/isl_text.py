"""Index expressions and conditions as isl text, over an environment that says what each index is.

    expr_text(2 * i + k, {"i": "(8*i_block + i_warp)"}) = "(2*((8*i_block + i_warp)) + k)"

None stands for what is not quasi-affine; who asks leaves that constraint out.
"""

import re
from collections.abc import Mapping
from typing import assert_never

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

_RESERVED = re.compile(
    r"(and|or|not|exists|mod|floor|ceil|floord|ceild|min|max|infty|infinity|nan|true|false|implies|rat|thread|lane|warp|dim[0-9]+)_*"
)
_COMPARE = {CompareOp.EQ: "=", CompareOp.NE: "!="}


def identifier(name: str) -> str:
    """The name as isl reads it: words of isl's language, and ours for threads and dimensions, get an
    underscore more."""
    return f"{name}_" if _RESERVED.fullmatch(name) else name


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with other names for some of those in it."""
    return re.sub(r"[A-Za-z_][A-Za-z_0-9]*", lambda m: names.get(m[0], m[0]), text)


def expr_text(expr: IndexExpr, env: Mapping[str, str]) -> str | None:
    """The expression, or None where it is not quasi-affine."""
    match expr:
        case IndexConst(value=value):
            return str(value) if value >= 0 else f"({value})"
        case IndexVar(name=name) | SizeVar(name=name):
            return env.get(name, identifier(name))
        case IndexBinary(op=op, left=left, right=right):
            a, b = expr_text(left, env), expr_text(right, env)
            return None if a is None or b is None else _binary(op, a, b)
        case _:
            assert_never(expr)


def _number(text: str) -> int | None:
    return int(text.strip("()")) if re.fullmatch(r"\(?-?[0-9]+\)?", text) else None


def _binary(op: IndexOp, a: str, b: str) -> str | None:
    divisor = _number(b)
    match op:
        case IndexOp.ADD | IndexOp.SUB:
            return f"({a} {op.value} {b})"
        case IndexOp.MUL:
            if divisor is not None:
                return f"({divisor}*({a}))"
            factor = _number(a)
            return None if factor is None else f"({factor}*({b}))"
        case IndexOp.MIN | IndexOp.MAX:
            return f"{op.value}({a}, {b})"
        case IndexOp.DIV | IndexOp.MOD | IndexOp.CEILDIV:
            if divisor is None or divisor <= 0:
                return None
            if op is IndexOp.MOD:
                return f"(({a}) mod {divisor})"
            return f"floor(({a})/{divisor})" if op is IndexOp.DIV else f"floor(({a} + {divisor - 1})/{divisor})"
        case _:
            assert_never(op)


def condition_text(condition: Condition, env: Mapping[str, str]) -> str | None:
    """The condition, or None where a part of it is not quasi-affine."""
    match condition:
        case Compare(op=op, left=left, right=right):
            a, b = expr_text(left, env), expr_text(right, env)
            return None if a is None or b is None else f"{a} {_COMPARE.get(op, op.value)} {b}"
        case And(parts=parts) | Or(parts=parts):
            shown = [condition_text(p, env) for p in parts]
            word = " and " if isinstance(condition, And) else " or "
            known = [s for s in shown if s is not None]
            return None if len(known) < len(shown) else word.join(f"({s})" for s in known)
        case Not(part=part):
            inner = condition_text(part, env)
            return None if inner is None else f"not ({inner})"
        case Always(value=value):
            return "0 = 0" if value else "0 = 1"
        case _:
            assert_never(condition)
