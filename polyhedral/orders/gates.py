"""Barriers in a happens-before graph: a gate for each turn, behind all that arrive and before all that wait."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.sync import Action
from texpr.polyhedral.orders.points import Findings, Points
from texpr.polyhedral.orders.trace import Event, Mask


@dataclass(slots=True)
class Gate:
    """How many threads must arrive, and how many did."""

    needed: int
    text: str
    span: Span
    came: int = 0


@dataclass(slots=True)
class Gates:
    """All gates by barrier and turn, and how often each thread arrived."""

    points: Points
    findings: Findings
    gates: dict[tuple[Hashable, int], Gate] = field(default_factory=dict)
    arrivals: dict[tuple[Hashable, int, int], NDArray[np.int64]] = field(default_factory=dict)

    def come(
        self,
        key: Hashable,
        needed: int,
        text: str,
        number: int,
        event: Event,
        who: Mask | None = None,
        action: Action = Action.BOTH,
        *,
        marks: Sequence[int] | None = None,
    ) -> None:
        """Threads of an event, all or some, come to a barrier: each arrives for the turn that it has not arrived for,
        and waits for the last that it did. Who arrives relaxed tells of these points alone (`marks`)."""
        here = event.who if who is None else who
        arrives = action is not Action.WAIT
        counts = self.arrivals.setdefault((key, event.launch, event.block), np.zeros(len(event.who), dtype=np.int64))
        if arrives:
            for turn, came in _counted(counts[here]):
                self.gates.setdefault((key, turn), Gate(needed, text, event.span)).came += came
        for thread in self.points.threads(number):
            if not here[thread]:
                continue
            turn = int(counts[thread]) if arrives else int(counts[thread]) - 1
            if turn < 0:
                self.findings.fault(f"a thread waits at `{text}` and did not arrive", event.span)
                continue
            gate = self.points.graph.point(("gate", key, turn))
            if arrives and marks is None:
                self.points.graph.edge(self.points.comes(number, thread), gate)
            elif arrives:
                self.points.graph.wait(self.points.comes(number, thread), gate)
                for mark in marks or ():
                    self.points.graph.edge(mark, gate)
            if arrives and turn:
                before = self.points.graph.point(("gate", key, turn - 1))
                message = f"a thread may arrive again at `{text}` before all have arrived"
                self.findings.require(before, self.points.comes(number, thread), message, event.span)
            if action is not Action.ARRIVE:
                self.points.graph.edge(gate, self.points.goes_on(number, thread))
        if arrives:
            counts[here] += 1

    def end(self) -> None:
        """Gates at which some never arrive."""
        for gate in self.gates.values():
            if gate.came != gate.needed:
                self.findings.fault(f"{gate.came} of {gate.needed} threads arrive at `{gate.text}`", gate.span)


def _counted(turns: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    """Each number of an array, and how often it is there."""
    if turns.size and (turns == turns[0]).all():  # nearly always, and much sooner known
        return ((int(turns[0]), turns.size),)
    values, counts = np.unique(turns, return_counts=True)
    return zip(values.tolist(), counts.tolist(), strict=True)
