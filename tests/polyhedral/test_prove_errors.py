"""Programs that the proofs refuse, each beside the text of its diagnostics in `tests/errors/`.

A first line `-- sizes: N = 8, M = 4` binds sizes; the others are free.
"""

import re
from pathlib import Path

import pytest

from texpr.grammar.bind import bind_sizes
from texpr.grammar.check import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.parser import parse
from texpr.grammar.source import SourceText
from texpr.polyhedral.model import build_program
from texpr.polyhedral.prove import prove

ERRORS = Path(__file__).parent.parent / "errors"
PROGRAMS = sorted(ERRORS.glob("prove_*.tex"))


def refusal(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    first = text.splitlines()[0]
    sizes = {n: int(v) for n, v in re.findall(r"(\w+) = (\d+)", first)} if first.startswith("-- sizes:") else {}
    (kernel,) = check(parse(SourceText(path.name, text)), folder=path.parent)
    bound = bind_sizes(kernel, sizes)
    with pytest.raises(TExprError) as refused:
        prove(build_program(bound))
    return f"{refused.value}\n"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_is_refused_with_its_least_witness(path: Path, request: pytest.FixtureRequest) -> None:
    text, expected = refusal(path), path.with_suffix(".txt")
    if request.config.getoption("--update-golden"):
        expected.write_text(text, encoding="utf-8")
    assert expected.exists(), f"no {expected.name}: did you forget --update-golden?"
    assert text == expected.read_text(encoding="utf-8")


def test_every_code_of_the_proofs_has_a_program() -> None:
    refused = "".join(path.with_suffix(".txt").read_text(encoding="utf-8") for path in PROGRAMS)
    assert set(re.findall(r"error\[(E03\d\d)\]", refused)) == {f"E030{n}" for n in range(1, 9)}
