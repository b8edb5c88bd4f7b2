"""Every dialect's text of an expression or a condition has the value that the tree has."""

import pytest
from hypothesis import given
from index_expressions import conditions, expressions, meaning, points, truth

from texpr.codegen.manifest import check_condition, check_expr, evaluate, holds
from texpr.grammar.ast import And, Compare, CompareOp, IndexBinary, IndexConst, IndexOp, IndexVar, Not, Or, SizeVar
from texpr.grammar.index.expr import add, combine, const, leaves, multiply
from texpr.grammar.index.linear import linear
from texpr.grammar.index.text import ATOM, JSON, in_words, isl_text, python, text
from texpr.polyhedral import isl

FUNCTIONS = {"min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}


def divides_by_zero(tree, point):
    """Whether a size of 0 divides: there Python stops, where the language says 0."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, IndexBinary):
            if node.op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV) and meaning(node.right, point) == 0:
                return True
            stack += (node.left, node.right)
        elif isinstance(node, Compare):
            stack += (node.left, node.right)
        elif isinstance(node, And | Or):
            stack += node.parts
        elif isinstance(node, Not):
            stack.append(node.part)
    return False


@given(expressions, points)
def test_python_means_the_expression(e, point):
    written = text(e, python(lambda leaf: f"_{leaf.name}"))
    if not divides_by_zero(e, point):
        values = {f"_{name}": value for name, value in point.items()}
        assert eval(written.text, FUNCTIONS | values) == meaning(e, point)
        assert eval(f"2 * {text(e, python(lambda leaf: f'_{leaf.name}')).at(ATOM)}", FUNCTIONS | values) == 2 * meaning(
            e, point
        )


@given(conditions, points)
def test_python_means_the_condition(c, point):
    if not divides_by_zero(c, point):
        assert eval(text(c, python(lambda leaf: leaf.name)).text, FUNCTIONS | point) == truth(c, point)


@given(expressions, points)
def test_the_language_means_the_expression(e, point):
    if not divides_by_zero(e, point):
        assert eval(in_words(e).replace("/", "//"), FUNCTIONS | point) == meaning(e, point)


@given(conditions, points)
def test_the_language_means_the_condition(c, point):
    if not divides_by_zero(c, point):
        words = {"true": True, "false": False}
        assert eval(in_words(c).replace("/", "//"), FUNCTIONS | point | words) == truth(c, point)


@given(expressions, points)
def test_the_manifest_means_the_expression(e, point):
    if not divides_by_zero(e, point):
        assert evaluate(check_expr(text(e, JSON)), point) == meaning(e, point)


@given(conditions, points)
def test_the_manifest_means_the_condition(c, point):
    if not divides_by_zero(c, point):
        assert holds(check_condition(text(c, JSON)), point) == truth(c, point)


WORK = isl.Work()


@given(expressions, points)
def test_isl_means_the_expression_that_it_takes(e, point):
    written = isl_text(e, {})
    if written is not None:
        values = {leaf.name: point[leaf.name] for leaf in leaves(e) if not isinstance(leaf, IndexConst)}
        given = " and ".join(["0 = 0", *(f"{name} = {value}" for name, value in values.items())])
        found = isl.Set(f"[{', '.join(values)}] -> {{ [v] : v = 2 * {written} and {given} }}", context=WORK.context)
        assert isl.least_point(found)[-1] == 2 * meaning(e, point)


@given(conditions, points)
def test_isl_means_the_condition_that_it_takes(c, point):
    written = isl_text(c, {})
    if written is not None:
        given = " and ".join(f"{name} = {value}" for name, value in point.items())
        found = isl.Set(f"[{', '.join(point)}] -> {{ : ({written}) and {given} }}", context=WORK.context)
        assert found.is_empty() != truth(c, point)


def test_isl_takes_what_is_affine():
    i, n = IndexVar(name="i"), SizeVar(name="N")
    assert isl_text(combine(IndexOp.CEILDIV, add(multiply(const(2), i), n), const(4)), {"i": "(8*a + b)"}) == (
        "floor((2*(8*a + b) + N + 3)/4)"
    )
    assert isl_text(multiply(i, n), {}) is None
    assert isl_text(Compare(op=CompareOp.LT, left=i, right=IndexVar(name="mod")), {}) == "i < mod_"


@pytest.mark.parametrize(
    ("e", "words"),
    [
        (add(IndexVar(name="i"), const(-3)), "i - 3"),
        (multiply(const(-3), IndexVar(name="i")), "(-3) * i"),
        (linear(multiply(add(IndexVar(name="i"), const(1)), SizeVar(name="N"))).expression(), "N * i + N"),
    ],
)
def test_numbers_below_zero_read_well(e, words):
    assert in_words(e) == words
