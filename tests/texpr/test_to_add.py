"""ARCHITECTURE says what is touched to add something: a copy of the compiler where just that is touched has it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from added_machinery import (
    ATOM,
    ATOM_PROGRAM,
    MONOID,
    MONOID_PROGRAM,
    OPERATOR,
    OPERATOR_PROGRAM,
    PLACE,
    PLACE_PROGRAM,
    TARGET,
    TARGET_PROGRAM,
)
from added_words import (
    ATTRIBUTE,
    ATTRIBUTE_PROGRAM,
    EXPRESSION_OPERATOR,
    EXPRESSION_PROGRAM,
    INDEX_OPERATOR,
    INDEX_PROGRAM,
    Edits,
)

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("grammar", "polyhedral", "codegen", "runtime", "texpr")
PROGRAM = """
import texpr

made = texpr.parse("kernel k(A: f32[64], B: f32[64]) { par 64 i { B[i] = A[i] } }").only.compile("cuda:sm_90a")
assert made.source
"""


def touched(what: str) -> set[str]:
    """The files that the table names."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## To add")[2].partition("\n## ")[0]
    (row,) = re.findall(rf"^\| {what} \| (.*?) \|", table, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiler in a folder of its own, with what Python has compiled of it while it made a program."""
    folder = tmp_path_factory.mktemp("original")
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    assert run(PROGRAM, folder).returncode == 0
    return folder


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "TEXPR_CACHE_DIR": str(folder / "cache")},
        cwd=folder,
    )


def copy_with(edits: Edits, original: Path, folder: Path) -> None:
    """The compiler with edits, in a folder of its own."""
    for part in PARTS:
        shutil.copytree(original / part, folder / part, symlinks=True)
    for name, changes in edits.items():
        text = (folder / name).read_text(encoding="utf-8")
        for before, after in changes:
            assert text.count(before) == 1, f"{name} has {before!r} {text.count(before)} times"
            text = text.replace(before, after)
        (folder / name).write_text(text, encoding="utf-8")


ADDED = [
    ("an index operator", 2, INDEX_OPERATOR, INDEX_PROGRAM),
    ("an attribute", 2, ATTRIBUTE, ATTRIBUTE_PROGRAM),
    ("an expression operator, such as a function of floats", 4, EXPRESSION_OPERATOR, EXPRESSION_PROGRAM),
    ("a place", 3, PLACE, PLACE_PROGRAM),
    ("a target", 3, TARGET, TARGET_PROGRAM),
    ("a block operator", 4, OPERATOR, OPERATOR_PROGRAM),
    ("an atom, such as a vote of a warp", 3, ATOM, ATOM_PROGRAM),
    ("a monoid", 2, MONOID, MONOID_PROGRAM),
]


@pytest.mark.parametrize(("what", "most", "edits", "program"), ADDED, ids=[added[0].split(",")[0] for added in ADDED])
@pytest.mark.sampled(2)
def test_what_the_table_names_is_enough(
    what: str, most: int, edits: Edits, program: str, original: Path, tmp_path: Path
) -> None:
    assert touched(what) == set(edits) and len(edits) <= most
    copy_with(edits, original, tmp_path)
    result = run(program, tmp_path)
    assert result.returncode == 0, result.stderr
