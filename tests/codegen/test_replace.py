"""An artifact's folder is replaced as a whole, whoever else writes, reads or is killed; nothing else is replaced."""

import subprocess
import sys
from pathlib import Path

import pytest

from texpr.codegen.artifact import _place, save_artifact
from texpr.codegen.manifest import Manifest
from texpr.codegen.replace import replace_folder
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.load import read_artifact

MANIFEST = Manifest(
    name="k", target="cpu", arch="", loadable=False, parameters=(), sizes={}, facts=(), workspace_bytes=0,
    workspace=(), host=(), files={}, texpr="0",
)  # fmt: skip

# Every process here has one thread, so that it may fork.
HEAD = f"""
import os, sys
from pathlib import Path
from texpr.codegen import replace
from texpr.codegen.artifact import save_artifact
from texpr.codegen.manifest import Manifest
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.load import read_artifact
folder = Path(sys.argv[1]) / "out"
if sys.argv[2] == "two steps":
    replace._renameat2 = lambda: None
def save(version):
    files = {{"k.cu": version, "include/a.cuh": version, "include/b.cuh": version}}
    save_artifact(folder, {MANIFEST!r}, files)
def version():
    files = read_artifact(folder)[1]
    assert len(files) == 3 and len(set(files.values())) == 1, files
    return files["k.cu"]
def only():
    assert os.listdir(folder.parent) == ["out"], os.listdir(folder.parent)
"""

KILLS = """
STEPS = ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "shutil.rmtree", "os.listdir")
def die_at(event_number):
    seen = 0
    def count(event, arguments):
        nonlocal seen
        if event in STEPS:
            seen += 1
            if seen == event_number:
                os._exit(9)
    sys.addaudithook(count)
found, number, code = set(), 0, 9
while code == 9:
    number += 1
    save(b"old")
    child = os.fork()
    if child == 0:
        die_at(number)
        save(b"new")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        found.add(version().decode())
    except TExprError as wrong:
        assert sys.argv[2] == "two steps" and "interrupted build" in wrong.diagnostics[0].help
        found.add("aside")
    save(b"next")
    assert version() == b"next"
    only()
assert code == 0 and number > 10, (code, number)
print(*sorted(found))
"""

READS = """
save(b"0")
child = os.fork()
if child == 0:
    for number in range(150):
        save(b"%d" % number)
    os._exit(0)
read = set()
while os.waitpid(child, os.WNOHANG) == (0, 0):
    read.add(version())
print(len(read) > 5)
"""

WRITES = """
children = []
for number in range(4):
    children.append(os.fork())
    if children[-1] == 0:
        for _ in range(30):
            save(b"%d" % number)
        os._exit(0)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
version()
only()
print("ok")
"""


def ran(script: str, folder: Path, steps: str) -> str:
    command = [sys.executable, "-c", HEAD + script, str(folder), steps]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("steps", "states"), [("one step", "new old"), ("two steps", "aside new old")])
def test_a_writer_that_is_killed_anywhere_leaves_an_artifact_whole(steps: str, states: str, tmp_path: Path) -> None:
    assert ran(KILLS, tmp_path, steps) == states


@pytest.mark.parametrize("steps", ["one step", "two steps"])
def test_a_reader_never_sees_half_an_artifact(steps: str, tmp_path: Path) -> None:
    assert ran(READS, tmp_path, steps) == "True"


@pytest.mark.parametrize("steps", ["one step", "two steps"])
def test_writers_of_one_folder_all_succeed(steps: str, tmp_path: Path) -> None:
    assert ran(WRITES, tmp_path, steps) == "ok"


def test_a_folder_that_goes_aside_between_two_looks_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "out"
    for look in ("exists", "is_dir"):
        now = getattr(Path, look)
        monkeypatch.setattr(Path, look, lambda path, now=now: path == place or now(path))
    assert _place(place) == place


def refusal(folder: Path) -> str:
    with pytest.raises(TExprError) as caught:
        save_artifact(folder, MANIFEST, {"k.cu": b"new"})
    assert [d.code for d in caught.value.diagnostics] == ["E0606"]
    return caught.value.diagnostics[0].message


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("foreign", ["include/mine.txt", "mine", "link", "include"])
def test_a_folder_with_anything_of_the_user_s_is_left_alone(foreign: str, tmp_path: Path) -> None:
    folder = save_artifact(tmp_path / "out", MANIFEST, {"k.cu": b"old"})
    place = folder / foreign
    if foreign == "link":
        place.symlink_to(tmp_path)
    elif "." in foreign:
        place.parent.mkdir()
        place.write_text("keep")
    else:
        place.mkdir()
    before = tree(tmp_path)
    assert "is not an artifact's folder" in refusal(folder)
    assert tree(tmp_path) == before
    assert (folder / "k.cu").read_bytes() == b"old"


def test_what_comes_into_the_folder_while_it_is_replaced_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()

    def is_ours(folder: Path) -> bool:
        if folder == place:  # asked before the exchange; then the user's file comes
            (place / "mine").write_text("keep")
        return folder == place

    with pytest.raises(TExprError):
        replace_folder(place, {"new": b""}, is_ours)
    assert tree(tmp_path) == ["out", "out/mine"]


def test_links_to_the_folder_and_its_rights_are_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o750)
    (tmp_path / "out").symlink_to("real")
    for content in (b"1", b"2"):
        save_artifact(tmp_path / "out", MANIFEST, {"k.cu": content})
        assert read_artifact(tmp_path / "real")[1] == {"k.cu": content}
    assert (tmp_path / "out").is_symlink() and (tmp_path / "real").stat().st_mode & 0o777 == 0o750


def test_the_working_folder_is_not_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "out" / "inside"
    inside.mkdir(parents=True)
    for place in (inside, inside.parent):
        monkeypatch.chdir(inside)
        assert "working folder" in refusal(place)
    assert "mounted" in refusal(Path("/proc"))


@pytest.mark.parametrize("name", ["\ud800", "\0", "loop", "file/below", "x" * 300])
def test_a_place_that_cannot_be_is_a_diagnostic(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    refusal(tmp_path / name)
    assert tree(tmp_path) == ["file", "loop"]


def test_a_full_disk_leaves_the_old_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_artifact(tmp_path / "out", MANIFEST, {"k.cu": b"old"})

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TExprError) as caught:
        save_artifact(folder, MANIFEST, {"k.cu": b"new"})
    assert [d.code for d in caught.value.diagnostics] == ["E0608"]
    assert tree(tmp_path) == ["out", "out/k.cu", "out/manifest.json"]
    assert read_artifact(folder)[1] == {"k.cu": b"old"}
