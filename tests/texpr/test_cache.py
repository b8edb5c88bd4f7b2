"""The cache gives right bytes or makes them again; nothing in it is trusted."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from texpr import cache
from texpr.settings import settings


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXPR_CACHE_DIR", str(tmp_path))
    settings.cache_clear()


def entry() -> Path:
    folder = cache.cache_folder()
    assert folder is not None
    return next(folder.glob("*/*.bin"))


def test_the_second_call_reads_what_the_first_made() -> None:
    made = []
    for _ in range(2):
        assert cache.cached("t", {"a": 1}, lambda: made.append(1) or b"body") == b"body"
    assert len(made) == 1
    assert cache.cached("t", {"a": 2}, lambda: b"other") == b"other"


@pytest.mark.parametrize("position", [0, 31, 32, 40])
def test_a_flipped_bit_is_found_and_mended(position: int) -> None:
    cache.cached("t", {}, lambda: b"0123456789")
    content = bytearray(entry().read_bytes())
    content[position] ^= 1
    entry().write_bytes(bytes(content))
    assert [right for _, _, right in cache.entries()] == [False]
    assert cache.cached("t", {}, lambda: b"again") == b"again"
    assert [right for _, _, right in cache.entries()] == [True]


def test_a_torn_entry_is_made_again() -> None:
    cache.cached("t", {}, lambda: b"0123456789")
    entry().write_bytes(entry().read_bytes()[:20])
    assert cache.cached("t", {}, lambda: b"again") == b"again"


def test_errors_are_not_cached() -> None:
    def broken() -> bytes:
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError):
        cache.cached("t", {}, broken)
    assert cache.cached("t", {}, lambda: b"right") == b"right"


def test_an_unwritable_folder_only_costs_the_caching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TEXPR_CACHE_DIR", str(tmp_path / "file"))
    settings.cache_clear()
    assert cache.cached("t", {}, lambda: b"body") == b"body"


def test_caching_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXPR_CACHE_DIR", "off")
    settings.cache_clear()
    assert cache.cached("t", {}, lambda: b"body") == b"body"
    assert cache.entries() == []


def test_clear_removes_entries() -> None:
    cache.cached("t", {"a": 1}, lambda: b"1")
    cache.cached("t", {"a": 2}, lambda: b"2")
    entry().write_bytes(b"damaged")
    assert cache.clear(only_damaged=True) == 1
    assert cache.clear() == 1
    assert cache.entries() == []


def _make(log: str) -> bytes:
    def make() -> bytes:
        with Path(log).open("a") as file:
            file.write("made\n")
        return b"body" * 1000

    return cache.cached("t", {"shared": 1}, make)


def test_concurrent_processes_compile_once(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert set(pool.map(_make, [log] * 8)) == {b"body" * 1000}
    assert Path(log).read_text() == "made\n"


KEY = {"a": 1}


def spoil_by_folder(path: Path) -> None:
    path.mkdir()


def spoil_by_pipe(path: Path) -> None:
    os.mkfifo(path)


def spoil_by_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def spoil_by_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def spoil_by_emptiness(path: Path) -> None:
    path.write_bytes(b"")


def spoil_by_length(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


SPOILS = [
    spoil_by_folder, spoil_by_pipe, spoil_by_device, spoil_by_dangling_link, spoil_by_emptiness, spoil_by_length,
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("suffix", [".bin", ".lock"])
def test_what_is_no_entry_is_not_read_and_not_waited_for(spoil: Callable[[Path], None], suffix: str) -> None:
    cache.cached("t", KEY, lambda: b"body")
    path = entry().with_suffix(suffix)
    path.unlink()
    spoil(path)
    assert [right for _, _, right in cache.entries()] == [suffix == ".lock"]
    assert cache.cached("t", KEY, lambda: b"body") == b"body"
    path.with_suffix(".bin").is_file() and path.with_suffix(".bin").unlink()
    assert cache.cached("t", KEY, lambda: b"again") == b"again"
    assert cache.clear(only_damaged=True) == 0
    assert cache.clear() == (0 if path.is_dir() else 1)


@pytest.mark.parametrize("spoil", SPOILS)
def test_damaged_entries_are_cleared(spoil: Callable[[Path], None]) -> None:
    cache.cached("t", KEY, lambda: b"body")
    path = entry()
    path.unlink()
    spoil(path)
    assert cache.clear(only_damaged=True) == (0 if path.is_dir() else 1)


def test_a_right_entry_in_the_place_of_another_is_found() -> None:
    cache.cached("t", KEY, lambda: b"body")
    first = entry()
    cache.cached("t", {"a": 2}, lambda: b"other")
    (second,) = (path for path in first.parent.glob("*.bin") if path != first)
    second.write_bytes(first.read_bytes())
    assert cache.cached("t", {"a": 2}, lambda: b"other") == b"other"


@pytest.mark.parametrize("place", ["file", "file/below", "x" * 300, "loop", "/dev/zero", "/proc/none", "a\nb"])
def test_a_folder_that_cannot_be_one_only_costs_the_caching(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("TEXPR_CACHE_DIR", str(tmp_path / place))
    settings.cache_clear()
    for _ in range(2):
        assert cache.cached("t", KEY, lambda: b"body") == b"body"
        assert len(cache.entries()) == cache.clear()


def test_every_folder_that_is_made_is_the_user_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXPR_CACHE_DIR", str(tmp_path / "home" / "texpr"))
    settings.cache_clear()
    before = os.umask(0)
    try:
        cache.cached("t", KEY, lambda: b"body")
    finally:
        os.umask(before)
    places = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in places if path.is_dir()} == {0o700}
    assert entry().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("level", [0, 1, 2], ids=["base", "version", "kind"])
@pytest.mark.parametrize("rights", [0o770, 0o707, "foreign"])
def test_a_folder_that_others_may_write_is_not_used(
    level: int, rights: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.cached("t", KEY, lambda: b"planted")
    folder = (tmp_path, entry().parent.parent, entry().parent)[level]
    if isinstance(rights, int):
        folder.chmod(rights)
    elif os.geteuid() == 0:
        os.chown(folder, 4321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
    before = sorted(tmp_path.rglob("*"))
    for key in (KEY, {"a": 2}):
        assert cache.cached("t", key, lambda: b"made") == b"made"
    assert (cache.entries(), cache.clear()) == ([], 0)
    assert str(folder) in cache.folder_fault()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_entry_that_others_may_write_is_made_again(mode: int) -> None:
    cache.cached("t", KEY, lambda: b"planted")
    entry().chmod(mode)
    assert cache.cached("t", KEY, lambda: b"made") == b"made"


def test_commands_say_that_the_cache_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from texpr.cache_commands import cache_clear, cache_list
    from texpr.inspect import doctor_report

    tmp_path.chmod(0o777)
    cache_list(as_json=False)
    cache_clear(damaged=False)
    why = f"not used: {tmp_path} may be written by others (mode 0777)"
    assert capsys.readouterr().err.count(why) == 2
    assert doctor_report()["cache"] == why
