"""Damaged texts give a module or a TExprError, and nothing else."""

import random
from pathlib import Path

import pytest

from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.grammar.source import SourceText
from texpr.grammar.syntax import Module
from texpr.grammar.text.lexer import tokenise
from texpr.grammar.text.limits import MAX_DIAGNOSTICS
from texpr.grammar.text.parser import parse_text
from texpr.grammar.text.printer import print_module
from texpr.grammar.words import KEYWORDS

HERE = Path(__file__).parent
CORPUS = [
    *(HERE / "language_forms.txt").read_text(encoding="utf-8").split("====\n"),
    *(path.read_bytes().decode("utf-8") for path in sorted((HERE.parent / "errors").glob("syntax_[!dl]*.tex"))),
]
PIECES = [
    *KEYWORDS,
    *"()[]{}|,:;#.=+-*/%<>\"'\\\n\t \r\0é",
    *("--", "..", "==", "max=", "&&", "//", "/*", "*/", "\u202e", "\ufeff", "\ud800", "0x", "1e9", "9" * 30, "1.5"),
    *("(" * 50, "{" * 50, "[(" * 70, ")" * 9, "- " * 140, "not " * 140, "x + " * 140, "\n\n\n", "else if x { }" * 70),
]


def damaged(seed: int) -> str:
    """A text of the corpus with one to six changes of characters or tokens."""
    rng = random.Random(seed)
    text = rng.choice(CORPUS)
    for _ in range(rng.randint(1, 6)):
        if rng.random() < 0.5:
            parts = [t.text for t in tokenise(SourceText("t", text)).tokens]
            joint = rng.choice([" ", " ", ""])
        else:
            parts, joint = list(text), ""
        if not parts:
            return text
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(6):
            case 0:
                del parts[at : at + rng.randint(1, 4)]
            case 1:
                parts.insert(at, rng.choice(PIECES))
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at] = rng.choice(PIECES)
            case 4:
                parts[at:at] = parts[other : other + rng.randint(1, 20)]
            case _:
                del parts[min(at, other) : max(at, other)]
        text = joint.join(parts)
    return text


def outcome(text: str) -> Module | tuple[Diagnostic, ...]:
    try:
        return parse_text(text)
    except TExprError as error:
        assert 1 <= len(error.diagnostics) <= MAX_DIAGNOSTICS
        assert str(error)
        assert {d.code for d in error.diagnostics} <= {"E0101", "E0102", "E0103", "E0104"}
        assert all(d.primary and 0 <= d.primary.span.start <= len(text) for d in error.diagnostics)
        return error.diagnostics


@pytest.mark.parametrize("batch", range(8))
def test_a_damaged_text_gives_a_module_or_an_error(batch: int) -> None:
    good = 0
    for seed in range(batch * 500, batch * 500 + 500):
        text = damaged(seed)
        result = outcome(text)
        if isinstance(result, Module):
            good += 1
            assert parse_text(print_module(result)) == result, text
    assert 0 < good < 500


def test_random_bytes_give_a_module_or_an_error() -> None:
    rng = random.Random(7)
    for _ in range(500):
        outcome(rng.randbytes(rng.randint(0, 60)).decode("latin-1"))


def test_random_words_give_a_module_or_an_error() -> None:
    rng = random.Random(8)
    for _ in range(500):
        outcome(" ".join(rng.choice([*PIECES[:-9], "x", "N", "f32"]) for _ in range(rng.randint(1, 30))))


@pytest.mark.parametrize("text", CORPUS[:3])
def test_every_beginning_of_a_text_gives_a_module_or_an_error(text: str) -> None:
    for end in range(len(text)):
        outcome(text[:end])
