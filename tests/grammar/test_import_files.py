"""Imports of what is no plain file of the program's folder: a diagnostic at the import, never a wait or a leak."""

import os
import threading
from pathlib import Path

import pytest

import texpr
from texpr.grammar import paths
from texpr.grammar.check import imports as modules

HELPER = "fn g(a: f32[n]): f32 { return a[0] }\n"
MAIN = "kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.mkdir()
    (path / "ok.tex").write_text(HELPER)
    return path


def outcome(folder: Path, *imports: str, body: str = MAIN) -> list[str]:
    """The codes of what `main.tex` with these imports says."""
    (folder / "main.tex").write_text("".join(f"import {name}\n" for name in imports) + body)
    try:
        texpr.load(folder / "main.tex").only.core()
    except texpr.TExprError as wrong:
        assert all(d.primary is not None for d in wrong.diagnostics)
        assert str(folder) not in "".join(d.message for d in wrong.diagnostics)
        return [d.code for d in wrong.diagnostics]
    return []


def test_what_is_no_plain_file_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.tex")
    (folder / "directory.tex").mkdir()
    for name, target in (("zero", "/dev/zero"), ("memory", "/proc/self/mem"), ("loop", "loop.tex")):
        (folder / f"{name}.tex").symlink_to(target)
    with (folder / "sparse.tex").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "noise.tex").write_bytes(bytes(range(256)))
    for name in ("pipe", "directory", "zero", "memory", "loop", "sparse", "noise", "none"):
        assert outcome(folder, name) == ["E0210"], name


def test_links_stay_in_the_folder(folder: Path) -> None:
    (folder.parent / "outside.tex").write_text(HELPER)
    (folder / "file.tex").symlink_to(folder.parent / "outside.tex")
    (folder / "up").symlink_to(folder.parent)
    (folder / "same").symlink_to(".")
    (folder / "alias.tex").symlink_to("ok.tex")
    assert outcome(folder, "file") == ["E0210"]
    assert outcome(folder, "up.outside") == ["E0210"]
    assert outcome(folder, "same.same.ok") == []
    assert outcome(folder, "alias") == []


def test_a_file_is_imported_twice_without_a_word(folder: Path) -> None:
    (folder / "alias.tex").symlink_to("ok.tex")
    (folder / "uses.tex").write_text("import ok\nfn h(a: f32[n]): f32 { return g(a) }\n")
    calls = "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = g(A[i:1]) + h(A[i:1]) } }\n"
    assert outcome(folder, *["ok"] * 100, "alias", "ok") == []
    assert outcome(folder, "uses", "alias", body=calls) == []
    assert outcome(folder, "alias", "uses", "ok", body=calls) == []


def test_two_functions_of_one_name_from_two_files_are_refused(folder: Path) -> None:
    (folder / "other.tex").write_text(HELPER)
    assert outcome(folder, "ok", "other") == ["E0202"]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_of_imports_ends(folder: Path, length: int) -> None:
    for n in range(length):
        (folder / f"m{n}.tex").write_text(f"import m{(n + 1) % length}\n")
    assert outcome(folder, "m0") == ["E0210"]
    (folder / "m0.tex").write_text("import main\n")
    assert outcome(folder, "m0") == ["E0210"]


def test_many_imports_end_at_a_counted_limit(folder: Path) -> None:
    for n in range(100):
        (folder / f"wide{n}.tex").write_text(f"fn wide{n}(a: f32[n]): f32 {{ return a[0] }}\n")
        (folder / f"deep{n}.tex").write_text(f"import deep{n + 1}\n")
    assert outcome(folder, *(f"wide{n}" for n in range(modules.MAX_IMPORTS))) == []
    assert set(outcome(folder, *(f"wide{n}" for n in range(100)))) == {"E0103"}
    assert outcome(folder, "deep0") == ["E0103"]


def test_a_pipe_that_takes_a_file_s_place_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    plain = (folder / "ok.tex").stat()
    monkeypatch.setattr(Path, "stat", lambda self, **options: plain)  # what the path was before
    caught: list[str] = []

    def read() -> None:
        try:
            paths.read_plain(folder / "pipe", 100)
        except texpr.TExprError as wrong:
            caught.append(wrong.diagnostics[0].code)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert caught == ["E0606"]


def test_a_file_that_is_longer_than_it_says_is_read_to_its_limit_only() -> None:
    with pytest.raises(texpr.TExprError, match="larger than 10 bytes"):
        paths.read_plain(Path("/proc/self/status"), 10)  # its length is 0


def test_a_line_of_a_mebibyte_is_shown_in_part(folder: Path) -> None:
    (folder / "long.tex").write_bytes(b"\0" * (1 << 20))
    with pytest.raises(texpr.TExprError) as caught:
        texpr.load(folder / "long.tex")
    assert len(str(caught.value)) < 20_000
