"""What goes on behind a thread's back: agents that read, and later write, some time after they were issued.

An agent begins with what its threads know. Nobody else learns of its accesses but by the pipe or group that it belongs
to. Each thread that copies has one; a product has one for the threads of each warp, and those of a warp run one after
the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.operators import Contract, Copy
from texpr.polyhedral.mapped.sync import Close, GroupKind, Until, WaitGroup
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import Clocks, Snapshot
from texpr.polyhedral.simulate.evaluate import Evaluator

ISSUED, READ, WRITTEN = range(3)
GROUPS = {
    Completion.CP_ASYNC: GroupKind.CP_ASYNC,
    Completion.BULK: GroupKind.BULK,
    Completion.WGMMA: GroupKind.WGMMA,
}


def nothing() -> None:
    """What a flight that nobody counts does when it is over."""


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """An operator on its way: what it `take`s is later `put`, and then it is `over`."""

    operator: Copy | Contract
    agent_of: dict[int, int]  # by thread
    take: Callable[[], Any]
    put: Callable[[Any], None]
    over: Callable[[], None] = nothing
    after: "Flight | None" = None  # begins when this one is over, and knows of it
    state: int = ISSUED
    taken: Any = None
    read: dict[int, Snapshot] = field(default_factory=dict)  # by agent: what is known once its reads are over

    def able(self) -> bool:
        return self.after is None or self.after.state == WRITTEN

    def step(self, evaluator: Evaluator, clocks: Clocks) -> None:
        """The reads, or the writes, of all its elements."""
        every = self.agents()
        if self.after is not None:
            clocks.join(every, clocks.snapshot(self.after.agents()))
            self.after = None
        clocks.tick(every)
        evaluator.at(self.operator.id, self.operator.span)
        if self.state == ISSUED:
            self.taken = self.take()
            self.read = {int(agent): clocks.snapshot(np.array([agent])) for agent in every}
        else:
            self.put(self.taken)
        self.state += 1
        if self.state == WRITTEN:
            self.over()

    def agents(self) -> Array:
        return np.unique(np.array(list(self.agent_of.values()), np.int64))


@dataclass(slots=True)
class Groups:
    """The groups of every thread, by kind: those that are closed, oldest first, and the open one."""

    clocks: Clocks
    open: dict[tuple[GroupKind, int], list[Flight]] = field(default_factory=dict)
    closed: dict[tuple[GroupKind, int], list[list[Flight]]] = field(default_factory=dict)
    over: dict[tuple[GroupKind, int], int] = field(default_factory=dict)  # how many the thread waited for

    def add(self, kind: GroupKind, flight: Flight) -> None:
        for thread in flight.agent_of:
            self.open.setdefault((kind, thread), []).append(flight)

    def close(self, node: Close, thread: Array) -> None:
        for one in thread.tolist():
            self.closed.setdefault((node.kind, one), []).append(self.open.pop((node.kind, one), []))

    def wait(self, node: WaitGroup, thread: Array, agents: Array) -> tuple[Callable[[], bool], Callable[[], None]]:
        """Until when the threads wait for their groups, and what they learn of them."""
        waiting: dict[tuple[Flight, int], list[int]] = {}  # by flight and its agent, the agents that wait for it
        for one, agent in zip(thread.tolist(), agents.tolist(), strict=True):
            for flight in self._older(node, one):
                waiting.setdefault((flight, flight.agent_of[one]), []).append(agent)
        least = READ if node.until is Until.READ else WRITTEN

        def resume() -> None:
            for (flight, theirs), own in waiting.items():
                whole = self.clocks.snapshot(np.array([theirs]))
                self.clocks.join(np.array(own), flight.read[theirs] if least == READ else whole)

        return (lambda: all(flight.state >= least for flight, _ in waiting)), resume

    def _older(self, node: WaitGroup, thread: int) -> Sequence[Flight]:
        """What the thread waits for, and did not know to be over already."""
        key = (node.kind, thread)
        groups, before = self.closed.get(key, []), self.over.get(key, 0)
        end = max(before, len(groups) - node.behind)
        if node.until is Until.DONE:
            self.over[key] = end
        return [flight for group in groups[before:end] for flight in group]

    def issued(self, kind: GroupKind, thread: int) -> list[Flight]:
        """Everything of the thread so far."""
        groups = (*self.closed.get((kind, thread), ()), self.open.get((kind, thread), []))
        return [flight for group in groups for flight in group]


def arrival(flights: Sequence[Flight], then: Callable[[], None]) -> None:
    """Calls `then` when all of these are over."""
    left = len(flights)
    if not left:
        then()

    def after(before: Callable[[], None]) -> Callable[[], None]:
        def over() -> None:
            nonlocal left
            before()
            left -= 1
            if not left:
                then()

        return over

    for flight in flights:
        flight.over = after(flight.over)
