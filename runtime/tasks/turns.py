"""How soon a thread that waits for the interpreter, or for an engine's lock, gets it: sooner where it feeds a memory.

Python lets a thread go on for 5 ms while others wait. A transfer or a task takes its threads a few turns of some
microseconds, so a GPU would have nothing to do meanwhile. The interval is the whole process's; it is as before when the
last engine with GPUs has ended.

Nor is a lock of Python fair, whether it is let or not. Who submits one task after another would take it again before
those who wait for it are awake: to those who should not wait, others give way (`First`). And all others must not wait
for it in the operating system (`Lock`). That gives a lock to one who waits before this one has the interpreter; the
thread that has it then comes to a lock that is taken, and waits in the system, too; and so two threads that have much
to do go on, each of them asleep once a task, which costs more than all that a task needs.
"""

import sys
import threading
import time

TURN_S = 2e-4
GIVE_WAY_S = 5e-5
ASK_AGAIN_S = 5e-5

_lock = threading.Lock()
_engines = 0
_before = 0.0


class Lock:
    """A lock which is asked for again where it is taken: `with lock.soon():`. `plain` is the same one for whoever waits
    in the system. It is taken and let by Python's own lock alone, so that Ctrl-C leaves none that is taken: it comes
    between any two steps of a method, and not within those of `with`."""

    __slots__ = ("_locked", "plain")

    def __init__(self) -> None:
        self.plain = threading.Lock()
        self._locked = self.plain.locked

    def soon(self) -> threading.Lock:
        """The lock, when nobody has it."""
        locked = self._locked
        while locked():
            time.sleep(ASK_AGAIN_S)
        return self.plain


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
