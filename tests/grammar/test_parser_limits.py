"""Long and deep texts are read or refused in a number of steps that is linear in the text."""

import sys

import pytest

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.text import parser
from texpr.grammar.text.limits import MAX_BLOCK_DEPTH, MAX_BRACKET_DEPTH, MAX_EXPRESSION_HEIGHT
from texpr.grammar.text.parser import parse_text
from texpr.grammar.text.printer import print_module

MANY = 30_000
DEEP = {
    "round": "x = " + "(" * MANY + "1" + ")" * MANY,
    "open round": "(" * MANY,
    "square": "x" + "[x" * MANY,
    "braces": "{" * MANY,
    "loops": "par N i {" * MANY,
    "sums": "x = " + "sum N i {" * MANY,
    "plus": "x = " + "+".join("a" * MANY),
    "minus": "x = " + "- " * MANY + "1",
    "not": "x = " + "not " * MANY + "1",
    "else if": "if a { }" + " else if a { }" * MANY,
    "calls": "x = " + "f(" * MANY + "1" + ")" * MANY,
    "crossed": "([{" * MANY,
    "closing": ")]}" * MANY,
    "digits": "x = " + "1" * MANY,
    "hexadecimal": "x = 0x" + "f" * MANY,
    "decimals": "x = 1." + "1" * MANY,
    "points": "x = " + "1." * MANY,
    "quotes": 'asm("' + '\\"' * MANY,
    "open comments": "/*" * MANY,
    "errors": "x = = 1\n" * MANY,
    "unclosed": "x = A[1\n" * MANY,
    "headers": "par N\n" * MANY,
    "names": "a " * MANY,
    "signs": "$" * MANY,
    "controls": "\0" * MANY,
}
FLAT = {
    "statements": "x = 1\n",
    "one line": "x = 1;",
    "comments": "x = 1 -- c\n",
    "blocks": "par N i { A[i] = sum K k { B[k] } }\n",
    "kernels": "kernel f(A: f32[N]) where N > 1 { A[0] = 1 }\n",
    "empty": "\n;\n",
    "odd comments": "x = ( -- c\n1)\n",
    "errors": "x = = 1\n",
    "unclosed": "par N i { A[i = 1 }\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_deep_text_is_refused_with_a_diagnostic(name: str) -> None:
    with pytest.raises(TExprError) as caught:
        parse_text(DEEP[name])
    assert 1 <= len(caught.value.diagnostics) <= 20
    assert len(str(caught.value)) < 20_000


def _steps(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Shifts and reductions while parsing; the parser does nothing else in a number that grows with the text."""
    count = 0

    def counted(name: str) -> None:
        inner = getattr(parser._Parser, name)

        def step(self: object, *args: object) -> object:
            nonlocal count
            count += 1
            return inner(self, *args)

        monkeypatch.setattr(parser._Parser, name, step)

    with monkeypatch.context():
        counted("_shift")
        counted("_reduce")
        try:
            parse_text(text)
        except TExprError as error:
            assert error.diagnostics
    monkeypatch.undo()
    return count


@pytest.mark.parametrize("name", FLAT)
def test_steps_grow_with_the_length_of_a_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once = _steps(FLAT[name] * 100, monkeypatch)
    assert _steps(FLAT[name] * 1000, monkeypatch) <= 10 * once + 10


def test_the_limits_are_reached_and_not_passed() -> None:
    def accepted(text: str) -> bool:
        try:
            parse_text(text)
        except TExprError as error:
            assert {d.code for d in error.diagnostics} == {"E0103"}
            return False
        return True

    brackets, blocks, height = MAX_BRACKET_DEPTH, MAX_BLOCK_DEPTH, MAX_EXPRESSION_HEIGHT
    for depth in (brackets, brackets + 1):
        assert accepted("x = " + "(" * depth + "1" + ")" * depth) == (depth <= brackets)
    for depth in (blocks, blocks + 1):
        assert accepted("par N i {" * depth + "}" * depth) == (depth <= blocks)
        assert accepted("if a {}" + " else if a {}" * (depth - 1)) == (depth <= blocks)
    for depth in (height, height + 1):
        assert accepted("x = " + "+".join("a" * (depth + 1))) == (depth <= height)
        assert accepted("x = " + "- " * depth + "a") == (depth <= height)
    for value in (2**64 - 1, 2**64):
        assert accepted(f"x = {value}") == (value < 2**64)
        assert accepted(f"x = {value:#x}") == (value < 2**64)
    assert accepted("x = " + "0" * 1000 + "1")


def test_a_very_long_line_is_printed_unbroken() -> None:
    text = f"x = f({', '.join('a' * 100_000)})\n"
    assert print_module(parse_text(text)) == text


def test_the_deepest_tree_is_within_the_default_recursion_limit() -> None:
    height = "f(a, -" * (MAX_EXPRESSION_HEIGHT // 2) + "a" + ")" * (MAX_EXPRESSION_HEIGHT // 2)
    depth = MAX_BLOCK_DEPTH
    text = "par N i {\n" * depth + f"x = {height}\n" + "}\n" * depth
    limit = sys.getrecursionlimit()
    assert limit <= 1000
    module = parse_text(text)
    assert parse_text(print_module(module)) == module
    assert hash(module) == hash(parse_text(text))
    assert "Par" in repr(module)
