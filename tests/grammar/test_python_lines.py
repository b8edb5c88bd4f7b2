"""A Python function is read from the text that it was compiled from, or not at all."""

import importlib
import linecache
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import texpr
import texpr.language as tx
from texpr.grammar.python.function import parse_function

HEAD = "import texpr\nfrom texpr.language import f32, inout, par\n"
FN = "@texpr.fn\ndef scaled(x: f32) -> f32:\n    return x * 2.0\n"
PLAIN = "def f(A: inout(f32['N'])):\n    for i in par('N'):\n        A[i] = A[i] * 2.0\n"
KERNEL = PLAIN.replace("A[i] * 2.0", "scaled(A[i])")

Written = Callable[..., ModuleType]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """Writes a module of the given text, and imports it, anew if it was before."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # its time stamps are too coarse for a test

    def write(text: str, name: str = "changing") -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)

    yield write
    for name in ("changing", "calling"):
        sys.modules.pop(name, None)


def edit(module: ModuleType, old: str, new: str) -> None:
    assert module.__file__ is not None
    file = Path(module.__file__)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def refused(function: object) -> str:
    with pytest.raises(texpr.TExprError) as caught:
        texpr.kernel(function)
    assert [d.code for d in caught.value.diagnostics] == ["E0106"]
    return caught.value.diagnostics[0].message


def test_a_fn_whose_file_changed_means_what_was_imported(imported: Written) -> None:
    module = imported(HEAD + FN)
    edit(module, "* 2.0", "* 3.0")
    caller = imported(f"{HEAD}from changing import scaled\n@texpr.kernel\n{KERNEL}", "calling")
    assert "x * 2.0" in str(caller.f)
    assert "3.0" not in str(caller.f)


@pytest.mark.parametrize(
    ("old", "new"), [("2.0", "3.0"), ("A[i] =", "A[i] +="), ("def f", "\ndef f"), (PLAIN, ""), ("* 2.0", "* (")]
)
def test_a_function_whose_file_changed_before_it_was_read_is_refused(imported: Written, old: str, new: str) -> None:
    module = imported(HEAD + PLAIN)
    edit(module, old, new)
    assert "is not the one that was imported" in refused(module.f) or not new


@pytest.mark.parametrize("head", ["from __future__ import annotations\n", ""])
def test_an_annotation_that_is_kept_as_a_text_is_the_one_of_the_file(imported: Written, head: str) -> None:
    text = PLAIN if head else PLAIN.replace("inout(f32['N'])", "\"inout(f32['N'])\"")
    module = imported(head + HEAD + text)
    assert "inout A: f32[N]" in str(texpr.kernel(module.f))
    edit(module, "f32['N']", "f16['N']")
    linecache.clearcache()
    refused(module.f)


def test_an_evaluated_annotation_is_the_one_that_was_imported(imported: Written) -> None:
    module = imported(HEAD + PLAIN)
    edit(module, "f32['N']", "f16['N']")
    assert "inout A: f32[N]" in str(texpr.kernel(module.f))


def test_a_file_that_was_imported_again_is_read_again(imported: Written) -> None:
    first = texpr.kernel(imported(HEAD + PLAIN).f)
    second = texpr.kernel(imported(HEAD + PLAIN.replace("2.0", "3.0")).f)
    assert ("2.0" in str(first), "3.0" in str(second)) == (True, True)


def test_a_change_elsewhere_in_the_lines_below_does_no_harm(imported: Written) -> None:
    module = imported(HEAD + PLAIN)
    edit(module, PLAIN, f"{PLAIN}\nx = '\\d'\n")
    assert "2.0" in str(texpr.kernel(module.f))


@pytest.mark.parametrize("place", ["pipe", "folder", "/dev/zero", "/dev/stdin"])
def test_a_source_that_is_no_file_is_not_read(place: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    name = str(tmp_path / place)
    program = f"""
import resource, texpr, texpr.language
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
names = dict(vars(texpr.language))
exec(compile({PLAIN!r}, {name!r}, "exec"), names)
try:
    texpr.kernel(names["f"])
except texpr.TExprError as refusal:
    print(refusal)
"""
    reading, writing = os.pipe()
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdin=reading, capture_output=True, text=True, check=False, timeout=60)
    os.close(reading)
    os.close(writing)
    assert "error[E0106]" in done.stdout and "is not a file" in done.stdout, done.stderr


def test_a_source_of_any_length_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    names = dict(vars(tx))
    exec(compile(PLAIN, str(file), "exec"), names)
    with pytest.raises(texpr.TExprError) as caught:
        parse_function(names["f"])
    assert [d.code for d in caught.value.diagnostics] == ["E0103"]
