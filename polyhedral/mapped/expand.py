"""What an operator means: the `Generic`s of every thread, in loops over what one thread does alone.

S2: copy a[i] = A[k, i] for i < 64      for i < 64 { S2: a[i] = A[k, i] }
S3: each e < 48: p[e] = exp(v[e])       for e < 48 { S3: p[e] = exp(v[e]) }

What a `Reduce` means its monoid says (`monoids.py`): lanes see one another's values, as no statement does.
"""

from collections.abc import Sequence
from typing import assert_never

from texpr.grammar.ast import And, Compare, CompareOp, Condition, IndexVar
from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral.mapped.operators import (
    Box,
    Contract,
    Copy,
    Elementwise,
    Generic,
    Operator,
    Reduce,
    Unload,
    Within,
)
from texpr.polyhedral.mapped.tree import Guard, Loop, Node


def expand(operator: Operator) -> Node:
    """The operator as loops around `Generic`s; when its effect is seen is not told by them."""
    match operator:
        case Generic() | Reduce():
            return operator
        case Copy():
            return _loops(operator.over, (_wanted_only(operator),), operator)
        case Elementwise():
            return _loops(operator.over, operator.each, operator)
        case Contract() | Unload():
            raise InternalError(f"{operator.id} is what many threads do together, and no loop of one of them")
        case _:
            assert_never(operator)


def _wanted_only(copy: Copy) -> Node:
    if copy.within is None:
        return copy.each
    other = copy.otherwise
    return Guard(condition=wanted(copy.over, copy.within), body=(copy.each,), orelse=(other,) if other else ())


def wanted(over: Box, within: Within) -> Condition:
    """Which values of a copy's last index are wanted."""
    last = IndexVar(name=over[-1][0])
    lower = Compare(op=CompareOp.LE, left=within.begin, right=last)
    return And(parts=(lower, Compare(op=CompareOp.LT, left=last, right=within.end)))


def _loops(over: Box, inside: Sequence[Node], operator: Operator) -> Node:
    """The nodes for every value of the indices; a single node of no index stands alone."""
    body = tuple(inside)
    for index, extent in reversed(over):
        body = (Loop(index=index, extent=extent, body=body, parallel=True, span=operator.span),)
    if len(body) > 1:
        raise InternalError(f"{operator.id}: several statements, over no index")
    return body[0]
