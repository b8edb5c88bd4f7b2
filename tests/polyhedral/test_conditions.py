"""Sets written out as conditions of the language hold where the sets do."""

import itertools

import pytest

from texpr.grammar.ast import Always, IndexVar
from texpr.grammar.index.expr import const, multiply
from texpr.grammar.index.value import condition_value
from texpr.polyhedral import isl
from texpr.polyhedral.conditions import condition_of

SETS = (
    "[N] -> { [x, y] : 0 <= x < N and y = 3 }",
    "[N] -> { [x, y] : exists e : x = 2e + 1 and 0 <= x < N and 0 <= y }",
    "[N] -> { [x, y] : exists a, b : 0 <= a, b < N and x = 5a + 7b and y <= x }",
    "[N] -> { [x, y] : (x < N and y >= 2) or (x + y) mod 4 <= 1 }",
    "[N] -> { [x, y] : exists e : x = e - 2 * floor((e + y) / 3) and 0 <= e < N }",
    "[N] -> { [x, y] : N >= 3 }",
    "[N] -> { [x, y] : 0 = 1 }",
    "[N] -> { [x, y] }",
)


@pytest.mark.parametrize("text", SETS)
def test_a_condition_holds_in_its_set_and_nowhere_else(text: str) -> None:
    points = isl.Set(text, context=isl.Work().context)
    condition = condition_of(points, (IndexVar(name="i"), multiply(const(2), IndexVar(name="j"))))
    for size, i, j in itertools.product(range(5), range(-3, 20), range(-2, 5)):
        there = points.fix_val(isl.dim_type.param, 0, isl.Val.int_from_si(points.get_ctx(), size))
        for dim, value in ((0, i), (1, 2 * j)):
            there = there.fix_val(isl.dim_type.set, dim, isl.Val.int_from_si(points.get_ctx(), value))
        assert condition_value(condition, {"N": size, "i": i, "j": j}) == (not there.is_empty())


def test_everything_and_nothing_are_constants() -> None:
    context = isl.Work().context
    assert condition_of(isl.Set("{ [x] }", context=context), (IndexVar(name="i"),)) == Always(value=True)
    assert condition_of(isl.Set("{ [x] : 0 = 1 }", context=context), (IndexVar(name="i"),)) == Always(value=False)
