"""The cache of compiled binaries: content-addressed, verified on load, never trusted, never pickled.

An entry is `<kind>/<sha256 of the key>.bin` with a digest of its name and body in front, under a folder of this version
in the user's cache directory (mode 0700). It is written beside and renamed; one lock per key makes concurrent processes
compile once. A damaged or foreign entry is discarded and made again. Errors are not cached.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from texpr.settings import settings
from texpr.version import VERSION

_DIGEST_BYTES = 32
MAX_ENTRY_BYTES = 1 << 28  # a file that is longer is none of ours


def cache_folder() -> Path | None:
    """The folder of this version's entries, or None where caching is off."""
    base = settings().cache_dir
    return base / f"v{VERSION}" if base is not None else None


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
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.getuid(), 0):
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
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(path, body) + body)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)


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
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
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


def entries() -> list[tuple[str, int, bool]]:
    """All entries as (kind/key, bytes, whether the digest is right); what cannot be looked at is none."""
    folder = cache_folder()
    found: list[tuple[str, int, bool]] = []
    try:
        paths = sorted(folder.glob("*/*.bin")) if folder is not None and folder.is_dir() else []
    except OSError:
        return found
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
