"""Paths and files from users: what is not a plain file is refused before it can block or never end."""

import os
import stat
from pathlib import Path

from texpr.grammar.diagnostics import fail


def as_path(value: object) -> Path:
    """The path that a text or a path object names. Raises E0606 for anything else, and for a null character."""
    if not isinstance(value, str | Path):
        raise fail("E0606", f"a path is a text or a pathlib.Path, not a {type(value).__name__[:40]}")
    if "\0" in str(value):
        raise fail("E0606", "the path cannot be used: it holds a null character")
    return Path(value)


def read_plain(path: Path, limit_bytes: int) -> bytes:
    """The content of a regular file. Raises E0606 for a pipe, device or folder, and OSError as `open` does; E0103 for
    a file over the limit, which no more is read of than that."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise fail("E0606", f"{path} is not a file")
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())  # of what was opened, whatever stands at the path by now
        if not stat.S_ISREG(status.st_mode):
            raise fail("E0606", f"{path} is not a file")
        content = file.read(limit_bytes + 1) if status.st_size <= limit_bytes else None
    if content is None or len(content) > limit_bytes:  # files of the system grow, and give their length as 0
        raise fail("E0103", f"{path} is larger than {limit_bytes} bytes")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
