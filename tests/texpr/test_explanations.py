"""What `texpr explain` shows is true: each wrong program gives its code, each right one is accepted."""

import pytest

import texpr
from texpr.grammar.codes import CODES
from texpr.grammar.explanations import EXPLANATIONS

SHOWN = [code for code, entry in EXPLANATIONS.items() if entry.wrong]


def codes_of(text: str) -> set[str]:
    try:
        for kernel in texpr.parse(text):
            kernel.compile("cpu", stop_after="prove")
    except texpr.TExprError as wrong:
        return {d.code for d in wrong.diagnostics}
    return set()


def test_explanations_are_of_codes() -> None:
    assert set(EXPLANATIONS) <= set(CODES)
    assert len(SHOWN) >= 18


@pytest.mark.parametrize("code", SHOWN)
def test_the_wrong_program_gives_its_code_and_the_right_one_none(code: str) -> None:
    assert code in codes_of(EXPLANATIONS[code].wrong)
    assert not codes_of(EXPLANATIONS[code].right)
