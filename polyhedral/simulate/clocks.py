"""The watch over launches whose threads run one after the other in any order: vector clocks.

    known[a, b] = t      what agent b did up to its time t is before what agent a does next
    fenced[a, b] = t     and b's writes up to t were fenced: asynchronous agents that a issues see them

An agent's own time advances with every statement. A sync takes a snapshot of the agents that arrive, and those that
wait join it. An access is in order iff its agent knows of every earlier access that it is in conflict with.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from texpr.grammar.diagnostics import fail
from texpr.polyhedral.simulate.cells import Array, Shadow, Violation

MAX_AGENTS = 1 << 13


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What some agents know together."""

    known: Array
    fenced: Array

    def union(self, other: "Snapshot") -> "Snapshot":
        return Snapshot(_widest(self.known, other.known), _widest(self.fenced, other.fenced))


NOTHING = Snapshot(np.zeros(0, np.int32), np.zeros(0, np.int32))


def _widest(a: Array, b: Array) -> Array:
    if len(a) < len(b):
        a, b = b, a
    result = a.copy()
    np.maximum(result[: len(b)], b, out=result[: len(b)])
    return result


@dataclass(slots=True)
class Clocks:
    """The clocks of all agents of launches that may overlap; agents are numbered as they come."""

    count: int = 0
    known: Array = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    fenced: Array = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    labels: list[str] = field(default_factory=list)
    asynchronous: set[int] = field(default_factory=set)  # agents of the asynchronous proxy

    def add(self, labels: Iterable[str]) -> Array:
        """New agents, which know nothing. E0403 for more than `MAX_AGENTS`: each has a time of every other."""
        self.labels += labels
        first, self.count = self.count, len(self.labels)
        if self.count > MAX_AGENTS:
            message = f"more than {MAX_AGENTS} threads and asynchronous copies are to run interleaved"
            raise fail("E0403", message, help="simulate smaller sizes")
        if self.count > len(self.known):
            grown = min(MAX_AGENTS, max(self.count, 2 * len(self.known)))
            for name in ("known", "fenced"):
                old = getattr(self, name)
                setattr(self, name, np.pad(old, (0, grown - len(old))))
        return np.arange(first, self.count)

    def tick(self, agents: Array) -> None:
        self.known[agents, agents] += 1

    def fence(self, agents: Array) -> None:
        """What these agents wrote is seen by asynchronous agents, once they learn of it."""
        self.fenced[agents, agents] = self.known[agents, agents]

    def snapshot(self, agents: Array) -> Snapshot:
        return Snapshot(
            self.known[agents, : self.count].max(axis=0, initial=0),
            self.fenced[agents, : self.count].max(axis=0, initial=0),
        )

    def join(self, agents: Array, snapshot: Snapshot) -> None:
        for own, theirs in ((self.known, snapshot.known), (self.fenced, snapshot.fenced)):
            own[agents, : len(theirs)] = np.maximum(own[agents, : len(theirs)], theirs)

    def names(self, first: int, second: int) -> str:
        return f"{self.labels[first]} and {self.labels[second]}"


class Stamp(NamedTuple):
    agent: int
    time: int
    statement: int


@dataclass(slots=True)
class History:
    """The shadow of one buffer: the last write of each element, and the reads and updates since."""

    clocks: Clocks
    writes: dict[int, Stamp] = field(default_factory=dict)
    reads: dict[int, dict[int, Stamp]] = field(default_factory=dict)
    updates: dict[int, dict[int, Stamp]] = field(default_factory=dict)

    def read(self, place: Array, agent: Array, statement: int) -> Violation | None:
        for at, who in zip(place.tolist(), agent.tolist(), strict=True):
            wrong = self._unordered(at, who, self._written(at), ())
            if wrong is not None:
                return wrong
            self.reads.setdefault(at, {})[who] = self._stamp(who, statement)
        return None

    def write(self, place: Array, agent: Array, statement: int) -> Violation | None:
        for at, who in zip(place.tolist(), agent.tolist(), strict=True):
            stamp = self._stamp(who, statement)
            if self.writes.get(at) == stamp:
                return Violation(place=at, agent=who, earlier=statement, earlier_agent=who)
            wrong = self._unordered(at, who, self._written(at), self.reads.pop(at, {}).values())
            if wrong is not None:
                return wrong
            self.writes[at] = stamp
            self.updates.pop(at, None)
        return None

    def atomic(self, place: Array, agent: Array, statement: int) -> Violation | None:
        for at, who in zip(place.tolist(), agent.tolist(), strict=True):
            written = (self.writes[at],) if at in self.writes else ()
            wrong = self._unordered(at, who, written, self.reads.get(at, {}).values())
            if wrong is not None:
                return wrong
            self.updates.setdefault(at, {})[who] = self._stamp(who, statement)
        return None

    def _stamp(self, agent: int, statement: int) -> Stamp:
        return Stamp(agent, int(self.clocks.known[agent, agent]), statement)

    def _written(self, at: int) -> tuple[Stamp, ...]:
        last = (self.writes[at],) if at in self.writes else ()
        return (*last, *self.updates.get(at, {}).values())

    def _unordered(self, at: int, who: int, wrote: Iterable[Stamp], read: Iterable[Stamp]) -> Violation | None:
        """The first earlier access that the agent does not know of, or a write that it misses for want of a fence."""
        for stamps, row in ((wrote, self.clocks.known), (read, self.clocks.known), (wrote, self.clocks.fenced)):
            if row is self.clocks.fenced and who not in self.clocks.asynchronous:
                break
            for agent, time, statement in stamps:
                if (
                    agent == who
                    or row[who, agent] >= time
                    or (row is self.clocks.fenced and agent in self.clocks.asynchronous)
                ):
                    continue
                missing = "nothing orders" if row is self.clocks.known else "no fence of the writer lies between"
                return Violation(place=at, agent=who, earlier=statement, earlier_agent=agent, missing=missing)
        return None


@dataclass(slots=True)
class Team:
    """The agents of one launch: thread t is agent `first + t`."""

    clocks: Clocks
    first: int

    def agents(self, thread: Array) -> Array:
        return thread + self.first

    def step(self, thread: Array) -> None:
        self.clocks.tick(self.agents(thread))

    def shadow(self, elements: int) -> Shadow:
        return History(self.clocks)

    def names(self, first: int, second: int) -> str:
        return self.clocks.names(first, second)
