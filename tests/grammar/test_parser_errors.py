"""Every wrong program of tests/errors/syntax_*.tex gives the text beside it, in the words of the language."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import SourceText
from texpr.grammar.text.limits import MAX_DIAGNOSTICS
from texpr.grammar.text.parser import parse, parse_text
from texpr.grammar.text.tables import load_tables

PROGRAMS = sorted((Path(__file__).parents[1] / "errors").glob("syntax_*.tex"))


def errors_of(text: str, name: str = "main") -> TExprError:
    with pytest.raises(TExprError) as caught:
        parse(SourceText(name, text))
    return caught.value


def test_there_are_programs() -> None:
    assert len(PROGRAMS) > 30


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_gives_the_text_beside_it(path: Path, golden: Callable[[str, str], None]) -> None:
    text = path.read_bytes().decode("utf-8")
    golden(f"../errors/{path.stem}.txt", f"{errors_of(text, path.name)}\n")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_messages_never_name_a_terminal_of_the_grammar(path: Path) -> None:
    terminals = [t for t in load_tables().terminals if len(t) > 2]
    error = errors_of(path.read_bytes().decode("utf-8"))
    told = "\n".join(f"{d.message}\n{d.help}\n{d.primary.text if d.primary else ''}" for d in error.diagnostics)
    assert not re.search(rf"(?<![\w$])({'|'.join(map(re.escape, terminals))})(?!\w)", told)


def test_diagnostics_stand_in_text_order_and_are_counted() -> None:
    error = errors_of("x = = 1\n" * 100)
    starts = [d.primary.span.start for d in error.diagnostics if d.primary]
    assert len(starts) == MAX_DIAGNOSTICS
    assert starts == sorted(starts)


def test_recovery_goes_on_at_the_next_statement() -> None:
    error = errors_of("par N i {\n    A[i] = = 1\n    A[i] = 2\n    B[i] = ) 3; let = 4\n}\nC[0] = 5 5\n")
    assert [d.primary.span.line for d in error.diagnostics if d.primary] == [2, 4, 4, 6]


def test_the_inside_of_a_block_with_a_broken_header_is_still_read() -> None:
    error = errors_of("kernel f(A f32) {\n    par N {\n        x = = 1\n    }\n}\ny = = 2\n")
    assert [d.primary.span.line for d in error.diagnostics if d.primary] == [1, 2, 3, 6]


def test_one_unclosed_bracket_is_one_message() -> None:
    error = errors_of("par N i {\n    A[i = f(1)\n    B[i] = 2\n}\n")
    assert [d.code for d in error.diagnostics] == ["E0102"]


def test_a_text_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert errors_of("x = 1\n" * 200_000).diagnostics[0].code == "E0103"
    assert errors_of("-- é\n" * 200_000).diagnostics[0].code == "E0103"
    assert len(parse_text("x = 1\n" * 10_000).items) == 10_000
