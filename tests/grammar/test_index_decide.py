"""Conditions that constants decide, though names stand in them."""

import pytest
from hypothesis import given
from index_expressions import conditions, points, truth

from texpr.grammar.ast import And, Compare, CompareOp, Not, Or, SizeVar
from texpr.grammar.index.decide import decide
from texpr.grammar.index.expr import ONE, ZERO, add, multiply

N, M = SizeVar(name="N"), SizeVar(name="M")
GROWS = Compare(op=CompareOp.GT, left=add(N, ONE), right=N)
NEVER = Compare(op=CompareOp.LT, left=multiply(N, M), right=multiply(M, N))
OPEN = Compare(op=CompareOp.EQ, left=N, right=M)


@given(conditions, points)
def test_what_is_decided_is_so_at_every_point(condition, point):
    assert decide(condition) in (None, truth(condition, point))


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        (GROWS, True),
        (NEVER, False),
        (OPEN, None),
        (Compare(op=CompareOp.NE, left=ONE, right=ZERO), True),
        (Not(part=GROWS), False),
        (Not(part=OPEN), None),
        (And(parts=(OPEN, NEVER)), False),
        (And(parts=(OPEN, GROWS)), None),
        (Or(parts=(OPEN, GROWS)), True),
        (Or(parts=(NEVER, NEVER)), False),
    ],
)
def test_constant_differences_decide(condition, known):
    assert decide(condition) is known
