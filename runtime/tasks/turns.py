"""How soon a thread that waits for the interpreter, or for an engine's lock, gets it: sooner where it feeds a memory.

Python lets a thread go on for 5 ms while others wait. A transfer or a task takes its threads a few turns of some
microseconds, so a GPU would have nothing to do meanwhile. The interval is the whole process's; it is as before when the
last engine with GPUs has ended. Nor is a lock fair: who submits one task after another would take it again before
those who wait for it are awake.
"""

import sys
import threading
import time

TURN_S = 2e-4
GIVE_WAY_S = 5e-5

_lock = threading.Lock()
_engines = 0
_before = 0.0


class First:
    """A lock for those who should not wait for it: others give way to them."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: list[None] = []

    def __enter__(self) -> None:
        self._waiting.append(None)
        self._lock.acquire()
        self._waiting.pop()

    def __exit__(self, *unused: object) -> None:
        self._lock.release()

    def give_way(self) -> None:
        if self._waiting:
            time.sleep(GIVE_WAY_S)


def begin_short_turns() -> None:
    global _engines, _before
    with _lock:
        if not _engines:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, TURN_S))
        _engines += 1


def end_short_turns() -> None:
    global _engines
    with _lock:
        _engines -= 1
        if not _engines:
            sys.setswitchinterval(_before)
