"""Memory of a simulated launch, with a shadow that knows who touched each element since when.

A thread has a number of its own in the launch. Two accesses of one element by different threads, one of them writing,
are ordered iff both threads are in one block and a barrier of the block, or of their common warp, lies between.
The shadow keeps for each element and kind of access (write, read, atomic) the least and greatest thread and the latest
barrier counts; what a barrier has settled is forgotten.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texpr.grammar.source import Span
from texpr.polyhedral.mapped.program import MappedBuffer

Array = NDArray[Any]
NOBODY = np.iinfo(np.int64).max


@dataclass(slots=True)
class Clock:
    """Threads of a launch: `threads` of a block, `warp` of a warp, and how many barriers each one has passed."""

    threads: int
    warp: int
    block_barriers: Array
    warp_barriers: Array

    def blocks(self, thread: Array) -> Array:
        return np.asarray(thread // self.threads)

    def warps(self, thread: Array) -> Array:
        """A number that tells apart the warps of the whole launch."""
        per_block = -(-self.threads // self.warp)
        return np.asarray(thread // self.threads * per_block + thread % self.threads // self.warp)


@dataclass(slots=True)
class Record:
    """Who made one kind of access to each element: least and greatest thread, latest barrier counts, statement."""

    least: Array
    most: Array
    block_barriers: Array
    warp_barriers: Array
    statement: Array

    @staticmethod
    def of(elements: int) -> "Record":
        return Record(
            least=np.full(elements, NOBODY),
            most=np.full(elements, -1),
            block_barriers=np.full(elements, -1),
            warp_barriers=np.full(elements, -1),
            statement=np.full(elements, -1),
        )

    def settled(self, place: Array, thread: Array, clock: Clock) -> Array:
        """Whether a barrier lies between what is recorded and an access by `thread` now."""
        least, most = self.least[place], self.most[place]
        here = clock.blocks(thread)
        one_block = (clock.blocks(least) == here) & (clock.blocks(most) == here)
        mine = clock.warps(thread)
        one_warp = (clock.warps(least) == mine) & (clock.warps(most) == mine)
        earlier = (self.block_barriers[place] < clock.block_barriers[thread]) | (
            one_warp & (self.warp_barriers[place] < clock.warp_barriers[thread])
        )
        return np.asarray(one_block & earlier)

    def conflicts(self, place: Array, thread: Array, clock: Clock) -> Array:
        """Whether another thread's recorded access is not ordered before one by `thread` now."""
        others = (self.most[place] >= 0) & ~((self.least[place] == thread) & (self.most[place] == thread))
        return np.asarray(others & ~self.settled(place, thread, clock))

    def note(self, place: Array, thread: Array, clock: Clock, statement: int) -> None:
        """Records accesses, several threads may touch one element."""
        old = place[(self.most[place] >= 0) & self.settled(place, thread, clock)]
        self.least[old], self.most[old] = NOBODY, -1
        self.block_barriers[old] = self.warp_barriers[old] = -1
        np.minimum.at(self.least, place, thread)
        np.maximum.at(self.most, place, thread)
        np.maximum.at(self.block_barriers, place, clock.block_barriers[thread])
        np.maximum.at(self.warp_barriers, place, clock.warp_barriers[thread])
        self.statement[place] = statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A conflict: the element's place, the accessing thread, and the number of the earlier statement."""

    place: int
    thread: int
    earlier: int
    earlier_thread: int


@dataclass(slots=True)
class Cells:
    """The elements of one buffer, all copies one after the other, each of `extents`."""

    buffer: MappedBuffer
    extents: tuple[int, ...]
    data: Array
    defined: Array | None  # None: all are
    shadow: dict[str, Record] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """Elements of one copy."""
        return int(np.prod(self.extents, dtype=np.int64)) if self.extents else 1

    def begin_launch(self) -> None:
        """Launches are ordered: what earlier ones did is settled."""
        self.shadow = {}

    def read(self, place: Array, thread: Array, clock: Clock, statement: int) -> Violation | None:
        return self._access("read", ("write", "atomic"), place, thread, clock, statement)

    def write(self, place: Array, thread: Array, clock: Clock, statement: int) -> Violation | None:
        """A plain write: no two threads may make it to one element in one step either."""
        order = np.argsort(place, kind="stable")
        twice = np.flatnonzero(np.diff(place[order]) == 0)
        if len(twice):
            first, second = order[twice[0]], order[twice[0] + 1]
            return Violation(
                place=int(place[second]),
                thread=int(thread[second]),
                earlier=statement,
                earlier_thread=int(thread[first]),
            )
        return self._access("write", ("write", "read", "atomic"), place, thread, clock, statement)

    def atomic(self, place: Array, thread: Array, clock: Clock, statement: int) -> Violation | None:
        return self._access("atomic", ("write", "read"), place, thread, clock, statement)

    def _record(self, kind: str) -> Record:
        if kind not in self.shadow:
            self.shadow[kind] = Record.of(len(self.data))
        return self.shadow[kind]

    def _access(
        self, kind: str, against: tuple[str, ...], place: Array, thread: Array, clock: Clock, statement: int
    ) -> Violation | None:
        for other in against:
            if other not in self.shadow:
                continue
            record = self.shadow[other]
            wrong = np.flatnonzero(record.conflicts(place, thread, clock))
            if len(wrong):
                at = int(place[wrong[0]])
                mine = int(thread[wrong[0]])
                theirs = int(record.least[at]) if record.least[at] != mine else int(record.most[at])
                return Violation(place=at, thread=mine, earlier=int(record.statement[at]), earlier_thread=theirs)
        self._record(kind).note(place, thread, clock, statement)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A statement in messages."""

    id: str
    span: Span
