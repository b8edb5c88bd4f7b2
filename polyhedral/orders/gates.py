"""Barriers in a happens-before graph: a gate for each turn, behind all that arrive and before all that wait."""

from collections.abc import Hashable, Sequence
from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.sync import Action
from texpr.polyhedral.orders.points import Findings, Points
from texpr.polyhedral.orders.threads import Counts, Mask, no_counts
from texpr.polyhedral.orders.trace import Event


@dataclass(slots=True)
class Gate:
    """How many threads must arrive, and how many did."""

    needed: int
    text: str
    span: Span
    came: int = 0


@dataclass(slots=True)
class Gates:
    """All gates by barrier and turn, how often each thread arrived, and who of a cluster owes a barrier the wait."""

    points: Points
    findings: Findings
    gates: dict[tuple[Hashable, int], Gate] = field(default_factory=dict)
    arrivals: dict[tuple[Hashable, int, int], Counts] = field(default_factory=dict)
    owed: dict[tuple[Hashable, int, int], tuple[Event, str, int]] = field(default_factory=dict)  # bits of threads

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
        at = (key, event.launch, event.block)
        counts = self.arrivals.get(at) or self.arrivals.setdefault(at, no_counts(len(event.who)))
        if arrives:
            for turn, came in counts.of(here):
                self.gates.setdefault((key, turn), Gate(needed, text, event.span)).came += came
        for thread in self.points.threads(number):
            if not here[thread]:
                continue
            turn = counts.at(thread) if arrives else counts.at(thread) - 1
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
            counts.step(here)

    def owe(self, key: Hashable, event: Event, text: str, action: Action) -> None:
        """Threads of a cluster that arrive at its barrier wait there, too, before they end."""
        at = (key, event.launch, event.block)
        first, said, bits = self.owed.get(at, (event, text, 0))
        bits = bits | event.who.bits if action is Action.ARRIVE else bits & ~event.who.bits
        self.owed[at] = (first, said, bits)

    def end(self) -> None:
        """Gates at which some never arrive, and those at which some arrive who never wait."""
        for event, text, bits in self.owed.values():
            if bits:
                said = f"{bits.bit_count()} threads of a block that `{text}` never wait there"
                self.findings.fault(said, event.span)
        for gate in self.gates.values():
            if gate.came != gate.needed:
                self.findings.fault(f"{gate.came} of {gate.needed} threads arrive at `{gate.text}`", gate.span)
