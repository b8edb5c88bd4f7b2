"""Replacing a folder all at once: readers find the old one or the new one, whole, wherever the writer is killed.

The new folder is written beside, as `.NAME-<16 hex digits>.new`, and changes places with the old one in one step
(`renameat2` on Linux). A system without that step renames twice: the old one to `….old`, then the new one; a writer
that was killed between the two left the old one aside, and whoever writes next puts it back. Writers into one parent
folder wait for one another (`flock` on the parent), so what bears such a name while one holds the lock was left by a
killed one, and is removed.
"""

import ctypes
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.endings import at_end, temporary

_RENAME_EXCHANGE, _AT_FDCWD = 2, -100


def replace_folder(place: Path, files: Mapping[str, bytes], is_ours: Callable[[Path], bool]) -> None:
    """Put a folder of `files` at `place`, where nothing is yet or what `is_ours`. Raises E0606 for anything else, and
    OSError; then nothing has changed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.parent) as alone:
        if alone:
            _mend(place)
        if os.path.lexists(place) and not is_ours(place):
            raise _foreign(place)
        with temporary(place.with_name(f".{place.name}-{secrets.token_hex(8)}.new")) as made:
            _write(made, files)
            if not place.exists():
                made.rename(place)
                return
            made.chmod(place.stat().st_mode & 0o777)
            _exchange(made, place)
            if not is_ours(made):  # something came into the old one meanwhile
                _exchange(made, place)
                raise _foreign(place)


def _foreign(place: Path) -> TExprError:
    help = "name a new folder, or one that holds an artifact and nothing else"
    return fail("E0606", f"{place} exists and is not an artifact's folder", help=help)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextmanager
def _locked(parent: Path) -> Iterator[bool]:
    """Wait for other writers into a folder; False where the system has no such lock, and each step must do."""
    try:
        handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _mend(place: Path) -> None:
    """Put right what a killed writer left: an old folder goes back to its place, everything else away."""
    left = re.compile(rf"\.{re.escape(place.name)}-[0-9a-f]{{16}}\.(new|old)")
    for path in sorted(place.parent.iterdir(), reverse=True):  # of one writer .old before .new
        if left.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            if path.suffix == ".old" and not place.exists():
                path.rename(place)
            else:
                shutil.rmtree(path, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places."""
    exchange = _renameat2()
    if exchange is not None and exchange(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)) == 0:
        return
    aside = one.with_suffix(".old")  # a file system without it, or a fault that a plain rename will name

    def restore() -> None:
        if aside.exists() and not other.exists():
            aside.rename(other)

    with at_end(restore):
        other.rename(aside)
        one.rename(other)
        aside.rename(one)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes], int] | None:
    try:
        function = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return lambda at, one, there, other: int(function(at, one, there, other, _RENAME_EXCHANGE))
