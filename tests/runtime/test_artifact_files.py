"""The files of an artifact are data from outside: each has one name, all together a bounded length, and none is waited
for."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from texpr.codegen.artifact import save_artifact
from texpr.codegen.manifest import Manifest
from texpr.grammar.diagnostics import TExprError
from texpr.runtime import load
from texpr.runtime.load import read_artifact

MANIFEST = Manifest(
    name="k", target="cpu", arch="", loadable=False, parameters=(), sizes={}, facts=(), workspace_bytes=0,
    workspace=(), host=(), files={}, texpr="0",
)  # fmt: skip


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return save_artifact(tmp_path / "out", MANIFEST, {"k.cu": b"text", "include/a.cuh": b"more"})


def listing(folder: Path, files: dict[Any, str]) -> None:
    """The artifact's manifest, with another list of files."""
    place = folder / "manifest.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "files": files}))


def refusal(folder: Path) -> str:
    with pytest.raises(TExprError) as caught:
        read_artifact(folder)
    assert [d.code for d in caught.value.diagnostics] == ["E0505"]
    return caught.value.diagnostics[0].message


DIGEST = hashlib.sha256(b"text").hexdigest()


@pytest.mark.parametrize(
    "name", ["./k.cu", "k.cu/", "include//a.cuh", "include/./a.cuh", "\ud800", "k\n.cu", "\u202ek.cu", "é.cu", "a\\b"]
)
def test_a_file_has_one_name(artifact: Path, name: str) -> None:
    listing(artifact, {"k.cu": DIGEST, name: DIGEST})
    assert "unusual" in refusal(artifact)


def test_a_list_of_files_has_an_end(artifact: Path) -> None:
    listing(artifact, {f"k{number}.cu": DIGEST for number in range(1001)})
    assert "more than 1000 files" in refusal(artifact)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_one_file_under_many_names_counts_each_time(
    artifact: Path, link: Callable[[Path, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        link(artifact / "k.cu", artifact / f"k{number}.cu")
    names = ["k.cu", *(f"k{number}.cu" for number in range(10))]
    listing(artifact, dict.fromkeys(names, DIGEST))
    assert len(read_artifact(artifact)[1]) == 11
    monkeypatch.setattr(load, "MAX_ARTIFACT_BYTES", 43)
    assert "larger than 43 bytes together" in refusal(artifact)


def test_a_giant_is_not_read(artifact: Path) -> None:
    with (artifact / "k.cu").open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert "larger" in refusal(artifact)


def spoil_by_loop(place: Path) -> None:
    place.symlink_to(place.name)


def spoil_by_link_to_outside(place: Path) -> None:
    place.symlink_to("/etc/hostname")


def spoil_by_pipe(place: Path) -> None:
    os.mkfifo(place)


def spoil_by_folder(place: Path) -> None:
    place.mkdir()


def spoil_by_dangling_link(place: Path) -> None:
    place.symlink_to("nowhere")


SPOILS = [spoil_by_loop, spoil_by_link_to_outside, spoil_by_pipe, spoil_by_folder, spoil_by_dangling_link]


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("name", ["k.cu", "include/a.cuh", "manifest.json"])
def test_what_is_no_file_is_refused_and_not_waited_for(
    artifact: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    (artifact / name).unlink()
    spoil(artifact / name)
    with pytest.raises(TExprError):
        read_artifact(artifact)


def test_a_folder_that_is_a_loop_of_links_is_refused(artifact: Path) -> None:
    (artifact / "include" / "a.cuh").unlink()
    (artifact / "include").rmdir()
    (artifact / "include").symlink_to("include")
    assert "include/a.cuh cannot be read" in refusal(artifact)
