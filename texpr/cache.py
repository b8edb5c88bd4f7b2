"""The cache of compiled binaries: content-addressed, verified on load, never trusted, never pickled.

An entry is `<kind>/<sha256 of the key>.bin` with a digest of its name and body in front, under a folder of this version
in the user's cache directory. Every folder that is made has mode 0700, and one that is another user's, or that others
may write, is not used: nothing is read from it, kept in it or removed. An entry is written beside and renamed; one lock
per key makes concurrent processes compile once. A damaged or foreign entry is discarded and made again. Errors are not
cached.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from texpr.grammar.endings import temporary
from texpr.settings import settings
from texpr.version import VERSION

_DIGEST_BYTES = 32
MAX_ENTRY_BYTES = 1 << 28  # a file that is longer is none of ours


def cache_folder() -> Path | None:
    """The folder of this version's entries, or None where caching is off."""
    base = settings().cache_dir
    return base / f"v{VERSION}" if base is not None else None


def folder_fault() -> str:
    """Why one of the cache's folders is not used: it could hold what another user wrote. Empty where all are."""
    folder = cache_folder()
    return next(filter(None, map(_fault, (folder.parent, folder, *_kinds(folder)))), "") if folder is not None else ""


def _kinds(folder: Path) -> list[Path]:
    try:
        return sorted(kind for kind in folder.glob("*") if kind.is_dir())
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError
        return []


def _fault(folder: Path) -> str:
    try:
        status = folder.stat()
    except OSError:
        return ""
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is not a folder"
    return f"{folder} {why}" if (why := _of_others(status)) else ""


def _of_others(status: os.stat_result) -> str:
    """How users other than this one and root may have a hand in a file or a folder; empty where they have none."""
    if status.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    return f"may be written by others (mode {status.st_mode & 0o777:04o})" if status.st_mode & 0o022 else ""


def _made(folder: Path) -> bool:
    """Whether the folder of a kind of entries is there and ours; it and those above it are made where they are missing,
    with mode 0700."""
    ours = (folder.parent.parent, folder.parent, folder)
    for place in (*reversed(ours[0].parents), *ours):
        if not place.exists():
            place.mkdir(exist_ok=True, mode=0o700)
        if place in ours and _fault(place):  # before anything is made in it
            return False
    return True


def key_of(parts: Mapping[str, Any]) -> str:
    """The full SHA-256 of the key's parts, as canonical JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _open_plain(path: str, flags: int) -> int:
    """Open without following a link and without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _read(path: Path) -> bytes | None:
    """An entry's content, or None when it is missing, damaged or another user's."""
    try:
        with open(path, "rb", opener=_open_plain) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or _of_others(status):
                return None
            if status.st_size > MAX_ENTRY_BYTES:
                return None
            content = file.read(MAX_ENTRY_BYTES)
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if _digest(path, body) == digest else None


def _digest(path: Path, body: bytes) -> bytes:
    """Of an entry's body at its place: the right body in the place of another is damage, too."""
    return hashlib.sha256(f"{path.parent.name}/{path.stem}\0".encode() + body).digest()


def _write(path: Path, body: bytes) -> None:
    """Write an entry whole or not at all; a full disk or a read-only folder only costs the caching."""
    with contextlib.suppress(OSError), temporary(path.with_name(f".new-{secrets.token_hex(8)}")) as beside:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_digest(path, body) + body)
        beside.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the key's lock; where locks are not to be had, go on without (work may be done twice, never wrongly)."""
    try:
        file = os.fdopen(_open_plain(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError:
        yield
        return
    with file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached(kind: str, parts: Mapping[str, Any], make: Callable[[], bytes]) -> bytes:
    """The cached bytes for a key, or `make()`'s, kept for the next time."""
    folder = cache_folder()
    if folder is None:
        return make()
    path = folder / kind / f"{key_of(parts)}.bin"
    try:
        usable = _made(path.parent)
    except OSError:
        usable = False
    if not usable:
        return make()
    found = _read(path)
    if found is not None:
        return found
    with _locked(path.with_suffix(".lock")):
        found = _read(path)
        if found is None:
            found = make()
            _write(path, found)
    return found


def found(kind: str, parts: Mapping[str, Any]) -> bytes | None:
    """The bytes that are kept for a key; None where there are none, or none that may be trusted."""
    folder = cache_folder()
    if folder is None or folder_fault():
        return None
    return _read(folder / kind / f"{key_of(parts)}.bin")


def change(kind: str, parts: Mapping[str, Any], make: Callable[[bytes | None], bytes]) -> bool:
    """Keep what `make` says of the bytes that were kept for a key, in their place; whether that could be kept."""
    folder = cache_folder()
    if folder is None:
        return False
    path = folder / kind / f"{key_of(parts)}.bin"
    try:
        if not _made(path.parent):
            return False
    except OSError:
        return False
    with _locked(path.with_suffix(".lock")):
        body = make(_read(path))
        _write(path, body)
        return _read(path) == body


def entries() -> list[tuple[str, int, bool]]:
    """All entries as (kind/key, bytes, whether the digest is right); what cannot be looked at is none."""
    folder = cache_folder()
    found: list[tuple[str, int, bool]] = []
    if folder is None or folder_fault():
        return found
    paths = [path for kind in _kinds(folder) for path in sorted(kind.glob("*.bin"))]
    for path in paths:
        with contextlib.suppress(OSError):  # another process may have removed it
            name = f"{path.parent.name}/{path.stem}"
            found.append((name, path.lstat().st_size, _read(path) is not None))
    return found


def clear(*, only_damaged: bool = False) -> int:
    """Remove entries; the number removed."""
    folder = cache_folder()
    removed = 0
    for name, _, right in entries():
        if folder is not None and not (only_damaged and right):
            with contextlib.suppress(OSError):  # a folder, or one that may not be written: it stays
                (folder / f"{name}.lock").unlink(missing_ok=True)
                (folder / f"{name}.bin").unlink(missing_ok=True)
                removed += 1
    return removed
