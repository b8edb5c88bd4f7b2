"""The normal form: every expression has one, with the same value, and equal polynomials have equal ones."""

import pytest
from hypothesis import given
from index_expressions import expressions, meaning, points

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import ONE, add, const, multiply, substitute, subtract
from texpr.grammar.index.linear import difference, linear, why_not_affine
from texpr.grammar.index.value import index_value

HERE, THERE, N, M = IndexVar(name="i"), IndexVar(name="j"), SizeVar(name="N"), SizeVar(name="M")


def binary(op: IndexOp, left: IndexExpr, right: IndexExpr) -> IndexExpr:
    return IndexBinary(op=op, left=left, right=right)


@given(expressions, points)
def test_an_expression_of_the_form_has_the_value(e, point):
    assert meaning(linear(e).expression(), point) == meaning(e, point)


@given(expressions)
def test_the_form_of_a_forms_expression_is_the_form(e):
    assert linear(linear(e).expression()) == linear(e)


@given(expressions, expressions, expressions)
def test_the_laws_of_rings_hold_between_forms(a, b, c):
    f, g, h = linear(a), linear(b), linear(c)
    assert f + g == g + f and hash(f + g) == hash(g + f)
    assert f * g == g * f and hash(f * g) == hash(g * f)
    assert (f + g) * h == f * h + g * h
    assert (f + g) - g == f
    assert linear(binary(IndexOp.SUB, a, a)).value == 0


@given(expressions, points)
def test_a_coefficient_times_its_name_and_the_rest_are_the_whole(e, point):
    form = linear(e)
    for name, variable in (("i", HERE), ("N", N)):
        factor = form.coefficient(name)
        if factor is not None:
            rest = form.without(name)
            assert rest.coefficient(name) == 0
            assert linear(variable) * factor + rest == form
            assert meaning(rest.expression(), {**point, name: 7}) == meaning(rest.expression(), point)


@given(expressions, expressions, points)
def test_definitions_are_substitutions(e, inner, point):
    replaced = substitute(e, lambda leaf: inner if leaf == HERE else None)
    assert meaning(linear(e, {"i": linear(inner)}).expression(), point) == meaning(replaced, point)


@given(expressions, expressions, points)
def test_a_known_difference_is_the_difference(a, b, point):
    known = difference(a, b)
    assert known is None or known == meaning(a, point) - meaning(b, point)


@given(expressions, points)
def test_evaluation_is_the_meaning(e, point):
    assert index_value(e, point) == meaning(e, point)


@pytest.mark.parametrize(
    ("e", "reason"),
    [
        (add(multiply(const(3), HERE), N), None),
        (binary(IndexOp.DIV, add(HERE, N), const(4)), None),
        (subtract(multiply(HERE, N), multiply(N, HERE)), None),
        (binary(IndexOp.DIV, multiply(multiply(const(4), HERE), const(2)), const(8)), None),
        (multiply(HERE, N), "it multiplies an index by the free size N"),
        (multiply(M, N), "it multiplies the free sizes M and N"),
        (multiply(HERE, THERE), "it multiplies two expressions that are not constant"),
        (binary(IndexOp.MOD, HERE, N), "it divides by an expression that is not constant"),
        (
            binary(IndexOp.MIN, HERE, binary(IndexOp.DIV, THERE, const(0))),
            "it divides by 0, and a divisor is positive",
        ),
        (binary(IndexOp.MAX, multiply(M, N), HERE), "it multiplies the free sizes M and N"),
    ],
)
def test_what_is_not_affine_says_why(e, reason):
    assert why_not_affine(linear(e)) == reason


def test_long_and_deep_expressions_have_a_form():
    long: IndexExpr = HERE
    for _ in range(20_000):
        long = binary(IndexOp.ADD, long, ONE)
    assert linear(long) == linear(add(HERE, const(20_000)))
    deep: IndexExpr = HERE
    for _ in range(3_000):
        deep = binary(IndexOp.DIV, add(deep, ONE), const(2))
    (operation,) = linear(deep).operations()
    assert operation.depth == 3_000


def test_a_constant_is_the_same_form_however_it_is_written():
    assert linear(binary(IndexOp.MUL, add(HERE, ONE), const(0))) == linear(IndexConst(value=0))
    assert linear(binary(IndexOp.MOD, multiply(const(6), HERE), const(3))) == linear(IndexConst(value=0))
