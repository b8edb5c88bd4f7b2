"""Programs that the checker refuses, each beside the text of its diagnostics in `tests/errors/`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse

ERRORS = Path(__file__).parent.parent / "errors"
PROGRAMS = sorted(ERRORS.glob("check_*.tex"))


def refusal(path: Path) -> str:
    module = parse(SourceText(path.name, path.read_text(encoding="utf-8")))
    with pytest.raises(TExprError) as refused:
        check(module, folder=path.parent)
    return f"{refused.value}\n"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_is_refused_with_its_expected_text(path: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"../errors/{path.stem}.txt", refusal(path))


def test_there_are_at_least_forty_wrong_programs() -> None:
    assert len(PROGRAMS) >= 40
