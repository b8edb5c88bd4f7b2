"""Tokens of texts, as every Python reads them."""

import re

import pytest

from texpr.grammar.text.lexer import _SCAN


def kinds(text: str) -> list[tuple[str | None, str]]:
    return [(found.lastgroup, found.group()) for found in _SCAN.finditer(text)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("3..N", [("number", "3"), ("sign", ".."), ("word", "N")]),
        ("1.5..2", [("number", "1.5"), ("sign", ".."), ("number", "2")]),
        ("1.5e-3", [("number", "1.5e-3")]),
        ("1e5.3", [("number", "1e5"), ("foreign", ".3")]),
        ("0x1F", [("number", "0x1F")]),
        ("0x1g", [("malformed", "0x1g")]),
        ("1.5x", [("malformed", "1.5x")]),
        ("12e", [("malformed", "12e")]),
        ("1e+", [("malformed", "1e"), ("sign", "+")]),
        (r'"a\"b"', [("string", r'"a\"b"')]),
        ('"a\\"', [("foreign", '"a\\"')]),
    ],
)
def test_a_number_ends_where_it_stops_to_be_one(text: str, want: list[tuple[str, str]]) -> None:
    assert kinds(text) == want


def test_no_group_is_possessive_for_older_pythons_go_on_from_a_wrong_place_behind_one() -> None:
    assert not re.search(r"\)[*+?]\+", _SCAN.pattern)
