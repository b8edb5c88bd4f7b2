"""Paths and files from users: what is not a plain file is refused before it can block or never end."""

import errno
import glob
import os
import stat
from pathlib import Path

from texpr.grammar.diagnostics import TExprError, fail

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


def as_path(value: object) -> Path:
    """The path that a text or a path object names. Raises E0606 for anything else, and for characters that no file
    name has."""
    if not isinstance(value, str | Path):
        raise fail("E0606", f"a path is a text or a pathlib.Path, not a {type(value).__name__[:40]}")
    if "\0" in str(value):
        raise fail("E0606", "the path cannot be used: it holds a null character")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise fail("E0606", "the path cannot be used: it holds half a character") from None
    return Path(value)


def not_written(path: Path, why: OSError) -> TExprError:
    """The error for a file or a folder that could not be written: E0608 where the machine has no room for it or fails,
    E0606 where it is the wrong place."""
    return fail("E0608" if why.errno in NO_ROOM else "E0606", f"{path} cannot be written: {why.strerror or why}")


def set_aside(folder: Path) -> list[Path]:
    """Where `codegen/replace.py` keeps the old folder between two steps, on a system that cannot do both in one."""
    return sorted(folder.parent.glob(f".{glob.escape(folder.name)}-*.old"))


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
