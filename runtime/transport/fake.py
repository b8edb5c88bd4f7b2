"""Several ranks in one process, for tests: a transport that does the worst that the rules of `interface` allow.

    left, right = fake(2, seed=7)     # one for the engine of each rank, which run in threads

What was put or added waits until somebody flushes it, and arrives then in any order; some of it arrives earlier, at any
call. What is got is read at any time before it is there. Messages from one rank to another come late, but in order.
Nothing is timed: delays count calls. So who forgets a flush reads old values, and who tells too early is believed.
Ranks that are `near` reach each other's memory; additions go by the transport all the same.
`silence` is the death of a rank: none of its messages arrives any more.
"""

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy

from texpr.runtime.transport.interface import Array, Handle, Kind, Spot, is_summed
from texpr.runtime.transport.local import at

DELAY = 3  # calls that something may be late


def fake(ranks: int, seed: int = 0, silence_s: float = 60.0, *, near: bool = False) -> list["FakeRank"]:
    """The transports of so many ranks."""
    net = _Net(ranks, random.Random(seed), near)
    return [FakeRank(net, rank, silence_s) for rank in range(ranks)]


class _Moving:
    """An operation that was begun: `left` calls of `test` until it is over here."""

    __slots__ = ("array", "done", "kind", "left", "spot")

    def __init__(self, kind: Kind, spot: Spot, array: Array, left: int) -> None:
        self.kind, self.spot, self.array, self.left = kind, spot, array, left
        self.done = False


class _Net:
    """What the ranks share."""

    def __init__(self, ranks: int, rng: random.Random, near: bool) -> None:
        self.ranks, self.rng, self.near = ranks, rng, near
        self.lock = threading.Lock()
        self.met = threading.Barrier(ranks)
        self.regions: list[dict[int, Array]] = [{} for _ in range(ranks)]
        self.channels: dict[tuple[int, int], deque[bytes]] = {}
        self.counter = 0
        self.silent: set[int] = set()

    def carry_out(self, moving: _Moving) -> None:
        home = at(self.regions[moving.spot.rank], moving.spot, moving.array)
        if moving.kind is Kind.GET:
            numpy.copyto(moving.array, home)
        elif moving.kind is Kind.PUT:
            numpy.copyto(home, moving.array)
        else:
            numpy.add(home, moving.array, out=home)
        moving.done = True


class FakeRank:
    def __init__(self, net: _Net, rank: int, silence_s: float) -> None:
        self._net, self.rank, self.size, self.silence_s = net, rank, net.ranks, silence_s
        self._unflushed: list[_Moving] = []

    def expose(self, region: int, size_bytes: int) -> Array:
        memory = self._net.regions[self.rank][region] = numpy.zeros(size_bytes, numpy.uint8)
        self._net.met.wait()
        return memory

    def reach(self, region: int, rank: int) -> Array | None:
        return self._net.regions[rank][region] if self._net.near or rank == self.rank else None

    def conceal(self, region: int) -> None:
        self._net.met.wait()
        del self._net.regions[self.rank][region]

    def barrier(self) -> None:
        self._net.met.wait()

    def nb_get(self, spot: Spot, into: Array) -> Handle:
        return self._begin(Kind.GET, spot, into)

    def nb_put(self, spot: Spot, values: Array) -> Handle:
        return self._begin(Kind.PUT, spot, values.copy())

    def nb_accumulate(self, spot: Spot, values: Array) -> Handle:
        return self._begin(Kind.ADD, spot, values.copy())

    def _begin(self, kind: Kind, spot: Spot, array: Array) -> _Moving:
        with self._net.lock:
            moving = _Moving(kind, spot, array, self._net.rng.randrange(DELAY))
            if kind is not Kind.GET:
                self._unflushed.append(moving)
            elif self._net.rng.random() < 0.3:  # what is got may be read early, and arrive late
                self._net.carry_out(moving)
        return moving

    def test(self, handle: Handle) -> bool:
        moving: _Moving = handle
        with self._net.lock:
            if self._net.rng.random() < 0.1:
                self._arrive(lambda other: self._net.rng.random() < 0.2)
            moving.left -= 1
            if moving.left > 0:
                return False
            if moving.kind is Kind.GET and not moving.done:
                self._net.carry_out(moving)
            return True

    def flush(self, rank: int) -> None:
        with self._net.lock:
            self._arrive(lambda moving: moving.spot.rank == rank)

    def _arrive(self, chosen: Callable[[_Moving], bool]) -> None:
        """Some of what is not flushed arrives, in any order."""
        arriving = [moving for moving in self._unflushed if chosen(moving)]
        self._unflushed = [moving for moving in self._unflushed if moving not in arriving]
        self._net.rng.shuffle(arriving)
        for moving in arriving:
            self._net.carry_out(moving)

    def fetch_add(self, amount: int) -> int:
        with self._net.lock:
            before, self._net.counter = self._net.counter, self._net.counter + amount
            return before

    def adds(self, dtype: Any) -> bool:
        return is_summed(dtype)

    def tell(self, rank: int, message: bytes) -> None:
        with self._net.lock:
            if self.rank not in self._net.silent:
                self._net.channels.setdefault((self.rank, rank), deque()).append(message)

    def heard(self) -> tuple[int, bytes] | None:
        with self._net.lock:
            full = [sender for sender in range(self.size) if self._net.channels.get((sender, self.rank))]
            if not full or self._net.rng.random() < 0.3:
                return None
            sender = self._net.rng.choice(full)
            return sender, self._net.channels[sender, self.rank].popleft()

    def silence(self) -> None:
        """This rank says nothing any more."""
        with self._net.lock:
            self._net.silent.add(self.rank)

    def abandon(self) -> None:
        self._net.met.abort()
