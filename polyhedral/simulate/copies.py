"""Asynchronous copies: agents of their own that read, and later write, some time after they were issued.

Each copying thread has one such agent, which begins with what the thread knows. Nobody else learns of its accesses but
by the pipe or group that it belongs to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from texpr.polyhedral.mapped.operators import Completion, Copy
from texpr.polyhedral.mapped.sync import Close, GroupKind, Until, WaitGroup
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import Clocks, Snapshot
from texpr.polyhedral.simulate.evaluate import Evaluator

ISSUED, READ, WRITTEN = range(3)
GROUPS = {Completion.CP_ASYNC: GroupKind.CP_ASYNC, Completion.BULK: GroupKind.BULK}


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """A copy on its way: where each element comes from and goes to, and the agent that moves it."""

    copy: Copy
    agent_of: dict[int, int]  # by thread
    agents: Array  # by element
    source: Array
    targets: tuple[Array, ...]
    over: Callable[[], None]
    state: int = ISSUED
    values: Array = field(default_factory=lambda: np.zeros(0))
    read: dict[int, Snapshot] = field(default_factory=dict)  # by agent: what is known once its reads are over

    def step(self, evaluator: Evaluator, clocks: Clocks) -> None:
        """The reads, or the writes, of all its elements."""
        every = np.array(list(self.agent_of.values()))
        clocks.tick(every)
        evaluator.at(self.copy.id, self.copy.span)
        if self.state == ISSUED:
            self.values = evaluator.fetch(self.copy.source.buffer, self.source, self.agents)
            self.read = {int(agent): clocks.snapshot(np.array([agent])) for agent in every}
        else:
            for target in self.targets:
                evaluator.put(self.copy.target.buffer, target, self.values, self.agents)
        self.state += 1
        if self.state == WRITTEN:
            self.over()


@dataclass(slots=True)
class Groups:
    """The groups of every thread, by kind: those that are closed, oldest first, and the open one."""

    clocks: Clocks
    open: dict[tuple[GroupKind, int], list[Flight]] = field(default_factory=dict)
    closed: dict[tuple[GroupKind, int], list[list[Flight]]] = field(default_factory=dict)

    def add(self, kind: GroupKind, flight: Flight) -> None:
        for thread in flight.agent_of:
            self.open.setdefault((kind, thread), []).append(flight)

    def close(self, node: Close, thread: Array) -> None:
        for one in thread.tolist():
            self.closed.setdefault((node.kind, one), []).append(self.open.pop((node.kind, one), []))

    def wait(self, node: WaitGroup, thread: Array, agents: Array) -> tuple[Callable[[], bool], Callable[[], None]]:
        """Until when the threads wait for their groups, and what they learn of them."""
        waited = {one: self._older(node, one) for one in thread.tolist()}
        least = READ if node.until is Until.READ else WRITTEN

        def resume() -> None:
            for (one, flights), agent in zip(waited.items(), agents.tolist(), strict=True):
                for flight in flights:
                    theirs = flight.agent_of[one]
                    whole = self.clocks.snapshot(np.array([theirs]))
                    self.clocks.join(np.array([agent]), flight.read[theirs] if least == READ else whole)

        return (lambda: all(f.state >= least for flights in waited.values() for f in flights)), resume

    def _older(self, node: WaitGroup, thread: int) -> Sequence[Flight]:
        groups = self.closed.get((node.kind, thread), [])
        return [flight for group in groups[: len(groups) - node.behind] for flight in group]

    def issued(self, kind: GroupKind, thread: int) -> list[Flight]:
        """Every copy of the thread so far."""
        groups = (*self.closed.get((kind, thread), ()), self.open.get((kind, thread), []))
        return [flight for group in groups for flight in group]


def arrival(flights: Sequence[Flight], then: Callable[[], None]) -> None:
    """Calls `then` when all of these copies are over."""
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
