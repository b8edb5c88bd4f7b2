"""The watch over launches whose threads run one after the other in any order: vector clocks.

    known[a, b] = t      what agent b did up to its time t is before what agent a does next
    fenced[a, b] = t     and b's writes up to t were fenced: asynchronous agents that a issues see them

An agent's own time advances with every statement. A sync takes a snapshot of the agents that arrive, and those that
wait join it. An access is in order iff its agent knows of every earlier access that it is in conflict with.
"""

from collections.abc import Iterable
from dataclasses import field

import numpy as np

from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass
from texpr.polyhedral.simulate.cells import Array, Shadow
from texpr.polyhedral.simulate.history import History

MAX_AGENTS = 1 << 13  # half a gigabyte of times
NEVER = np.iinfo(np.int32).max  # no agent gets so old


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
    """The clocks of all agents of launches that may overlap, `most` of them; agents are numbered as they come."""

    most: int = MAX_AGENTS
    count: int = 0
    known: Array = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    fenced: Array = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    labels: list[str] = field(default_factory=list)
    asynchronous: set[int] = field(default_factory=set)  # agents of the asynchronous proxy
    marks: list[int] = field(default_factory=list)  # agents that do nothing: that something happened

    def add(self, labels: Iterable[str]) -> Array:
        """New agents, which know nothing. E0403 for more than `most`: each has a time of every other."""
        self.labels += labels
        first, self.count = self.count, len(self.labels)
        if self.count > self.most:
            message = f"more than {self.most} threads and asynchronous copies are to run interleaved"
            raise fail("E0403", message, help="simulate smaller sizes")
        if self.count > len(self.known):
            grown = min(self.most, max(self.count, 2 * len(self.known)))
            for name in ("known", "fenced"):
                old, new = getattr(self, name), np.zeros((grown, grown), np.int32)
                new[: len(old), : len(old)] = old  # what is beyond takes no memory until it is written
                setattr(self, name, new)
        return np.arange(first, self.count)

    def mark(self, label: str, by: Array) -> int:
        """Something has happened, by these agents: who knows of the mark knows that."""
        (agent,) = self.add([label])
        self.marks.append(int(agent))
        self.known[agent, agent] = self.known[by, agent] = 1
        return int(agent)

    def marked(self, agents: Array) -> Snapshot:
        """What these agents know to have happened, and nothing of what anybody did."""
        whole = self.snapshot(agents)
        known = np.zeros_like(whole.known)
        known[self.marks] = whole.known[self.marks]
        return Snapshot(known, np.zeros_like(known))

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

    def common(self, agents: Array) -> Snapshot:
        """What each of these agents knows, and what each did itself."""
        known, fenced = (row[agents, : self.count].min(axis=0, initial=NEVER) for row in (self.known, self.fenced))
        known[agents], fenced[agents] = self.known[agents, agents], self.fenced[agents, agents]
        return Snapshot(known, fenced)

    def join(self, agents: Array, snapshot: Snapshot) -> None:
        for own, theirs in ((self.known, snapshot.known), (self.fenced, snapshot.fenced)):
            own[agents, : len(theirs)] = np.maximum(own[agents, : len(theirs)], theirs)

    def names(self, first: int, second: int) -> str:
        return f"{self.labels[first]} and {self.labels[second]}"


@dataclass(slots=True)
class Team:
    """The agents of one launch: thread t is agent `first + t`."""

    clocks: Clocks
    first: int

    def agents(self, thread: Array) -> Array:
        return thread + self.first

    def step(self, thread: Array) -> None:
        self.clocks.tick(self.agents(thread))

    def shadow(self, elements: int, *, held: bool = False) -> Shadow:
        return History(self.clocks, elements, proxies=not held)

    def names(self, first: int, second: int) -> str:
        return self.clocks.names(first, second)
