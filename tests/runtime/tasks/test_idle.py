"""Buffers that nobody counts on: which one goes first, with and without those that must be written back."""

import random

from texpr.runtime.tasks.idle import SLACK, Idle
from texpr.runtime.tasks.residency import Residency
from texpr.runtime.tasks.states import State

AT = 1


def residency(name: str, state: State) -> Residency:
    made = Residency(name, 2)
    made.state[AT] = state
    return made


def names(idle: Idle, *, dirty: bool) -> list[str]:
    """All that it gives, which goes back."""
    taken = []
    while (found := idle.take(dirty=dirty)) is not None:
        taken.append(found)
    idle.put_back(taken)
    return [of.key for _, of in taken]


def test_the_longest_unused_goes_first_and_what_is_dirty_only_where_it_may() -> None:
    idle = Idle(AT)
    for name, state in (("a", State.READY), ("b", State.DIRTY), ("c", State.PARTIAL), ("d", State.UNINITIALISED)):
        idle.add(residency(name, state))
    for _ in range(2):
        assert names(idle, dirty=True) == ["a", "b", "c", "d"] and names(idle, dirty=False) == ["a", "d"]


def test_what_is_clean_or_dirty_by_now_is_taken_as_that() -> None:
    idle = Idle(AT)
    a, b, c = (residency(name, state) for name, state in (("a", State.READY), ("b", State.DIRTY), ("c", State.READY)))
    for each in (a, b, c):
        idle.add(each)
    b.state[AT] = State.READY
    idle.cleaned(
        b,
    )
    idle.cleaned(c)  # it was clean
    assert names(idle, dirty=False) == ["a", "b", "c"]
    a.state[AT] = State.DIRTY  # a writer that gave up left it as it was
    assert names(idle, dirty=False) == ["b", "c"] and names(idle, dirty=True) == ["a", "b", "c"]
    a.state[AT] = State.READY  # and nobody said so
    assert names(idle, dirty=True) == ["a", "b", "c"]
    idle.discard(a)
    idle.discard(b)
    assert names(idle, dirty=True) == ["c"]


def test_as_one_list_in_order_of_use_does_whatever_is_taken_and_used() -> None:
    for seed in range(20):
        rng, idle, plain = random.Random(seed), Idle(AT), list[Residency]()
        blocks = [residency(str(k), rng.choice((State.READY, State.DIRTY))) for k in range(8)]
        for _ in range(400):
            block, dirty = rng.choice(blocks), rng.random() < 0.5
            before, block.state[AT] = block.state[AT], rng.choice((State.READY, State.DIRTY))
            if block.state[AT] is State.READY is not before:
                idle.cleaned(block)
            if block in plain:
                plain.remove(block)
                idle.discard(block)
            if rng.random() < 0.6:
                plain.append(block)
                idle.add(block)
            wanted = next((each for each in plain if dirty or each.state[AT] is State.READY), None)
            taken = idle.take(dirty=dirty)
            assert (taken and taken[1]) is wanted
            if taken is not None and rng.random() < 0.5:
                idle.put_back([taken])
            elif taken is not None:
                plain.remove(taken[1])
        assert len(idle._clean) + len(idle._dirty) <= 5 * len(blocks) + SLACK
