"""How soon a thread that waits for the interpreter gets it: sooner while an engine feeds GPUs.

Python lets a thread go on for 5 ms while others wait. A transfer or a task takes its threads a few turns of some
microseconds, so a GPU would have nothing to do meanwhile. The interval is the whole process's; it is as before when the
last such engine has ended.
"""

import sys
import threading

TURN_S = 2e-4

_lock = threading.Lock()
_engines = 0
_before = 0.0


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
