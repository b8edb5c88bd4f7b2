"""Every dialect's text of an expression or a condition has the value that the tree has."""

import pytest
from hypothesis import example, given
from index_expressions import conditions, expressions, meaning, points, truth

from texpr.codegen.manifest import check_condition, check_expr, evaluate, holds
from texpr.grammar.ast import And, Compare, IndexBinary, IndexOp, IndexVar, Not, Or, SizeVar
from texpr.grammar.index.expr import add, const, multiply
from texpr.grammar.index.linear import linear
from texpr.grammar.index.text import ATOM, JSON, in_words, python, text

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


SPLIT = multiply(
    IndexVar(name="i"), multiply(IndexBinary(op=IndexOp.DIV, left=SizeVar(name="N"), right=const(4)), const(3))
)


@given(expressions, points)
@example(SPLIT, {"i": 2, "N": 6})
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
