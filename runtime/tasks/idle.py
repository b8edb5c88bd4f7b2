"""Buffers at a node that no task counts on, longest unused first, from which room is made.

What is only a copy goes at once; what must be written back first takes time. The two are kept apart, so that who looks
for room passes over none that it does not take:

    clean   a: 1, d: 4        take(dirty=True)     a, b, c, d
    dirty   b: 2, c: 3        take(dirty=False)    a, d

Each is a heap by the time of the last use. What is in one and belongs to neither, or to the other, is found when it
comes up.
"""

from heapq import heapify, heappop, heappush

from texpr.runtime.tasks.residency import READY, Residency

Entry = tuple[int, Residency]
SLACK = 64  # entries that are out of date before a heap is made anew


class Idle:
    __slots__ = ("_clean", "_dirty", "_node", "_time", "_times")

    def __init__(self, node: int) -> None:
        self._node, self._time = node, 0
        self._times: dict[Residency, int] = {}  # when each was last used
        self._clean: list[Entry] = []
        self._dirty: list[Entry] = []

    def _is_dirty(self, residency: Residency) -> bool:
        return residency.state[self._node] > READY

    def _push(self, time: int, residency: Residency) -> None:
        heappush(self._dirty if self._is_dirty(residency) else self._clean, (time, residency))

    def add(self, residency: Residency) -> None:
        """It was used last of all."""
        self._time += 1
        self._times[residency] = self._time
        if len(self._clean) + len(self._dirty) > 4 * len(self._times) + SLACK:
            self._renew()
        self._push(self._time, residency)

    def _renew(self) -> None:
        entries = [(time, residency) for residency, time in self._times.items()]
        self._clean = [entry for entry in entries if not self._is_dirty(entry[1])]
        self._dirty = [entry for entry in entries if self._is_dirty(entry[1])]
        heapify(self._clean)
        heapify(self._dirty)

    def discard(self, residency: Residency) -> None:
        self._times.pop(residency, None)

    def cleaned(self, residency: Residency) -> None:
        """It need not be written back any more."""
        time = self._times.get(residency)
        if time is not None:
            heappush(self._clean, (time, residency))

    def _head(self, heap: list[Entry]) -> int | None:
        """The time of the first of a heap that belongs there."""
        while heap:
            time, residency = heap[0]
            belongs = self._times.get(residency) == time
            if belongs and self._is_dirty(residency) is (heap is self._dirty):
                return time
            heappop(heap)
            if belongs:
                self._push(time, residency)
        return None

    def take(self, *, dirty: bool) -> Entry | None:
        """The time and the residency of the longest unused, which is none of them any more; without `dirty`, of those
        that are clean. None where there is none."""
        self._head(self._clean)  # what is dirty by now comes to the others first, and then what is clean by now
        first = self._head(self._dirty) if dirty else None
        clean = self._head(self._clean)
        if first is None and clean is None:
            return None
        found = heappop(self._dirty if clean is None or (first is not None and first < clean) else self._clean)
        del self._times[found[1]]
        return found

    def put_back(self, taken: list[Entry]) -> None:
        """What was taken, and stays."""
        for time, residency in taken:
            self._times[residency] = time
            self._push(time, residency)
