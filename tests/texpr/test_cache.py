"""The cache gives right bytes or makes them again; nothing in it is trusted."""

import multiprocessing
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
