"""The lock of an engine: one thread at a time, and nobody who waits for it is given it while asleep."""

import sys
import threading
from collections.abc import Iterator

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
    ways = [lock, First(lock.plain), lock.plain, threading.Condition(lock.plain)]
    inside, most, count = 0, 0, 0

    def work(way: int) -> None:
        nonlocal inside, most, count
        for _ in range(ROUNDS):
            with ways[way]:
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
    with lock:
        assert lock.plain.locked() and slept == [turns.ASK_AGAIN_S] * 3
    assert not lock.plain.locked()


def test_the_lock_is_free_again_after_an_exception() -> None:
    lock = Lock()
    with pytest.raises(KeyError), lock:
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
