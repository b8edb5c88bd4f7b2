"""What `texpr explain` shows is true: each wrong program gives its code, each right one is accepted."""

import warnings
from pathlib import Path

import pytest

import texpr
from texpr.grammar.codes import CODES
from texpr.grammar.explanations import EXPLANATIONS

SHOWN = [(code, *pair) for code, entry in EXPLANATIONS.items() for pair in entry.pairs]
WITHOUT_PROGRAMS = {
    "E0103", "E0211", "E0213", "E0307",  # limits, sizes from outside, asm
    "E0404",  # mappings from outside
    "E0501", "E0503", "E0504", "E0505", "E0506",  # machines and artifacts
    "E0601", "E0602", "E0603", "E0604", "E0605", "E0606", "E0607", "E0608", "E0609",  # calls and files
    "E0701", "E0702", "E0703", "E0704", "E0705", "E0706", "E0707", "E0708", "E0709", "E0710", "E0711", "E0712", "E0713",
    "E0714", "E0715", "E0716", "E0717", "E0721", "E0722", "E0723", "E0724", "E0725", "E0726", "E0727", "W0701",  # tasks
}  # fmt: skip


def codes_of(text: str, folder: Path) -> set[str]:
    """The codes of what a program is refused for, by all stages for both families, and of what it is warned of."""
    try:
        if text.startswith("import ") and "@texpr.kernel" in text:
            path = folder / "shown.py"
            path.write_text(text, encoding="utf-8")
            module = texpr.load(path)
        else:
            module = texpr.parse(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error", texpr.TExprWarning)
            for kernel in module:
                for target in ("cpu", "cuda:sm_90a"):
                    kernel.compile(target)
    except texpr.TExprError as wrong:
        return {d.code for d in wrong.diagnostics}
    except texpr.TExprWarning as warning:
        return {warning.diagnostic.code}
    return set()


def test_codes_about_programs_are_explained_with_programs() -> None:
    assert set(EXPLANATIONS) <= set(CODES)
    assert set(CODES) - {code for code, *_ in SHOWN} == WITHOUT_PROGRAMS


@pytest.mark.parametrize(("code", "wrong", "right"), SHOWN, ids=[code for code, *_ in SHOWN])
def test_the_wrong_program_gives_its_code_and_the_right_one_none(
    code: str, wrong: str, right: str, tmp_path: Path
) -> None:
    assert code in codes_of(wrong, tmp_path)
    assert codes_of(right, tmp_path) == set()
