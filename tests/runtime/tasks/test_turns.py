"""The lock of an engine: one thread at a time, and nobody who waits for it is given it while asleep."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from texpr.runtime.tasks import turns
from texpr.runtime.tasks.turns import First, Lock

ROUNDS, THREADS = 200, 4


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_one_thread_at_a_time_is_under_the_lock_however_it_came_there(eager_threads: None) -> None:
    lock = Lock()
    ways: list[Callable[[], Any]] = [
        lock.soon, lambda: First(lock.plain), lambda: lock.plain, lambda: threading.Condition(lock.plain),
    ]  # fmt: skip
    inside, most, count = 0, 0, 0

    def work(way: int) -> None:
        nonlocal inside, most, count
        for _ in range(ROUNDS):
            with ways[way]():
                inside += 1
                most = max(most, inside)
                before = count
                for _ in range(20):  # long enough for others to come
                    pass
                count = before + 1
                inside -= 1

    threads = [threading.Thread(target=work, args=(k % len(ways),)) for k in range(2 * THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, count) == (1, 2 * THREADS * ROUNDS)


def test_who_finds_the_lock_taken_asks_again_and_does_not_queue_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Lock()
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            lock.plain.release()

    monkeypatch.setattr(turns.time, "sleep", sleep)
    lock.plain.acquire()
    with lock.soon():
        assert lock.plain.locked() and slept == [turns.ASK_AGAIN_S] * 3
    assert not lock.plain.locked()


def test_the_lock_is_free_again_after_an_exception() -> None:
    lock = Lock()
    with pytest.raises(KeyError), lock.soon():
        raise KeyError
    assert not lock.plain.locked()


def test_others_give_way_to_those_who_should_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Lock()
    first = First(lock.plain)
    slept: list[float] = []
    monkeypatch.setattr(turns.time, "sleep", slept.append)
    first.give_way()
    assert slept == []
    lock.plain.acquire()
    waiting = threading.Thread(target=lambda: first.__enter__())
    waiting.start()
    while not first._waiting:  # until it has come
        pass
    first.give_way()
    assert slept == [turns.GIVE_WAY_S]
    lock.plain.release()
    waiting.join()
    assert lock.plain.locked() and not first._waiting


class InterruptedHereError(Exception):
    pass


def test_no_interrupt_leaves_the_lock_taken() -> None:
    lock, main, armed, caught = Lock(), threading.main_thread().ident, [False], 0

    def handler(*unused: object) -> None:
        if armed[0]:
            armed[0] = False
            raise InterruptedHereError

    def interrupt() -> None:
        for _ in range(400):
            time.sleep(1e-4)
            signal.pthread_kill(main or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        while thread.is_alive():
            try:
                armed[0] = True
                for _ in range(1000):
                    with lock.soon():
                        pass
                armed[0] = False
            except InterruptedHereError:
                caught += 1
            assert not lock.plain.locked()
    finally:
        armed[0] = False
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert caught > 20
