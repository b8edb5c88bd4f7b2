"""Room for recursion over the deepest trees that the limits let through. Python has one recursion limit for all
threads, so it is put back by the last one that needed more."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

FRAMES = 20_000  # Python frames for the deepest tree: a few hundred levels of at most a dozen calls each

_lock = threading.Lock()
_before: list[int] = []  # one entry for each thread inside, the limit as the first one found it


@contextmanager
def deep_recursion() -> Iterator[None]:
    """A recursion limit of at least `FRAMES` inside."""
    with _lock:
        found = sys.getrecursionlimit()
        _before.append(_before[0] if _before else found)
        sys.setrecursionlimit(max(found, FRAMES))
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                sys.setrecursionlimit(before)
