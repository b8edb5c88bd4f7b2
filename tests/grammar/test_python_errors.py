"""Programs of tests/errors that the Python front end refuses, each beside what it says of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from front_end import names_of

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.python.function import parse_function

ERRORS = Path(__file__).parents[1] / "errors"
PROGRAMS = sorted(ERRORS.glob("python_*.py"))


def test_there_are_programs_to_refuse() -> None:
    assert len(PROGRAMS) >= 20


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_unsupported_function_is_refused_with_its_text(program: Path, golden: Callable[[str, str], None]) -> None:
    function = names_of(program.read_text(encoding="utf-8"), program.name)["main"]
    with pytest.raises(TExprError) as failure:
        parse_function(function)
    assert all(diagnostic.primary is not None for diagnostic in failure.value.diagnostics)
    golden(f"../errors/{program.stem}.txt", f"{failure.value}\n")
