"""What must not stay behind: actions that run at the end of a block, also where a signal ends the process in it.

`texpr/entry.py` ends the process from its signal handler, so that no library's `except` and no import in progress can
hold it up; what is on the disk by then is named here.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_pending: list[Callable[[], object]] = []


@contextmanager
def at_end(action: Callable[[], object]) -> Iterator[None]:
    """Run `action` at the end of the block. It may run twice, and must not fail for what it finds done."""
    _pending.append(action)
    try:
        yield
    finally:
        action()
        _pending.remove(action)


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A name for a file or a folder that is gone at the end of the block."""
    with at_end(lambda: _remove(path)):
        yield path


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()  # a file or a link
        return
    shutil.rmtree(path, ignore_errors=True)


def end_all() -> None:
    """Run what is pending, the last first: for a process that is about to end."""
    for action in reversed(list(_pending)):
        with suppress(Exception):
            action()
