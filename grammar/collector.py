"""Python's collector of cycles, which has little to find in a compilation, and took a tenth to a third of its time."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

YOUNG = 200_000  # values that are made before it looks at them: tens of megabytes, which few compilations come to

_lock = Lock()
_resting: list[tuple[int, int, int]] = []  # for each that is inside now: what held before the first of them


@contextmanager
def rare_collections() -> Iterator[None]:
    """Inside, cycles are looked for after `YOUNG` new values, not after some hundreds: trees and relations have none,
    and isl's values are freed by their counts. It is one setting of the process: the last of several threads to leave
    puts back what the first one found, and what somebody else sets meanwhile stays."""
    modules = len(sys.modules)
    with _lock:
        first = not _resting
        _resting.append(gc.get_threshold() if first else _resting[0])
        if first and 0 < _resting[0][0] < YOUNG:
            gc.set_threshold(YOUNG, *_resting[0][1:])
    try:
        yield
    finally:
        with _lock:
            before = _resting.pop()
            if not _resting and gc.get_threshold()[0] == YOUNG:
                if len(sys.modules) > modules and not gc.get_freeze_count():
                    # What is young is of the modules, which stay: it grows old without being looked at.
                    gc.freeze()
                    gc.unfreeze()
                gc.set_threshold(*before)
