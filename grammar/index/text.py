"""Index expressions as text of the language."""

from typing import assert_never

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar

_RANK = {
    IndexOp.ADD: 1,
    IndexOp.SUB: 1,
    IndexOp.MUL: 2,
    IndexOp.DIV: 2,
    IndexOp.MOD: 2,
}


def write_index(expression: IndexExpr, rank: int = 0) -> str:
    """The expression in the language's own words, with the brackets that it needs."""
    match expression:
        case IndexConst(value=value):
            return f"({value})" if value < 0 and rank else str(value)
        case IndexVar(name=name) | SizeVar(name=name):
            return name
        case IndexBinary(op=op) if op in _RANK:
            own = _RANK[op]
            text = f"{write_index(expression.left, own)} {op.value} {write_index(expression.right, own + 1)}"
            return f"({text})" if own < rank else text
        case IndexBinary(op=op):
            return f"{op.value}({write_index(expression.left)}, {write_index(expression.right)})"
    assert_never(expression)
