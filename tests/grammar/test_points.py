"""Integers at a few points are what they are at each point alone."""

from operator import add, floordiv, mod, mul, sub, xor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_expressions import expressions, meaning, points

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.points import Points
from texpr.grammar.index.value import index_value


@given(expressions, st.lists(points, min_size=2, max_size=4))
def test_an_expression_has_its_value_at_every_point(expr: IndexExpr, where: list[dict[str, int]]) -> None:
    found = index_value(expr, {name: Points(tuple(point[name] for point in where)) for name in where[0]})
    values = found.at if isinstance(found, Points) else (found,) * len(where)
    assert values == tuple(meaning(expr, point) for point in where)


@pytest.mark.parametrize("function", [add, sub, mul, floordiv, mod, xor])
def test_an_integer_is_the_same_at_all_points(function) -> None:
    three = Points((2**70, -5, 7))
    assert function(three, 3).at == tuple(function(value, 3) for value in three)
    assert function(three, Points((3, 3, 3))) == function(three, 3)
    assert (3 + three, 3 * three) == (three + 3, three * 3)
    assert ((three >> 1) & 6).at == tuple((value >> 1) & 6 for value in three)
