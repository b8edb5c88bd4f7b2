"""Conditions that hold, or do not, whatever the sizes and indices are: N + 1 > N, or 8 % 4 == 0."""

from texpr.grammar.ast import Always, And, Compare, Condition, Not, Or
from texpr.grammar.index.expr import COMPARE
from texpr.grammar.index.linear import difference
from texpr.grammar.walk import fold


def decide(condition: Condition) -> bool | None:
    """Whether a condition is true wherever it stands; None where that differs, or is not seen."""

    def truth(node: Condition, parts: list[bool | None]) -> bool | None:
        match node:
            case Always(value=value):
                return value
            case Compare(op=op, left=left, right=right):
                apart = difference(left, right)
                return None if apart is None else bool(COMPARE[op](apart, 0))
            case Not():
                return None if parts[0] is None else not parts[0]
            case And() | Or():
                absorbing = isinstance(node, Or)
                if absorbing in parts:
                    return absorbing
                return None if None in parts else not absorbing

    return fold(condition, truth, into=lambda node: not isinstance(node, Compare))
