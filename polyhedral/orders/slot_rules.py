"""The slots of pipes in a happens-before graph: who reads them is done before they are filled again."""

from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.operators import Operator
from texpr.polyhedral.mapped.sync import Pipe
from texpr.polyhedral.mapped.walks import goes_on_alone
from texpr.polyhedral.orders.points import Findings, Points

Slots = tuple[int, str, int]
"""Launch, buffer of a pipe, and block."""


@dataclass(slots=True)
class SlotRules:
    """The events that read and write each buffer in each turn of its pipe: what a release is for, over all loops."""

    points: Points
    findings: Findings
    readers: dict[tuple[Slots, int], list[int]] = field(default_factory=dict)
    writers: dict[tuple[Slots, int], list[int]] = field(default_factory=dict)
    stages: dict[Slots, int] = field(default_factory=dict)

    def reads(self, pipe: Pipe, slots: Slots, turn: int, number: int) -> None:
        if pipe.releases:  # or other syncs say when, of each element
            self.stages[slots] = pipe.stages
            self.readers.setdefault((slots, turn), []).append(number)

    def writes(self, slots: Slots, turn: int, number: int) -> None:
        self.writers.setdefault((slots, turn), []).append(number)

    def end(self) -> None:
        """A turn is read before the one that takes its slot is written."""
        for (slots, turn), readers in self.readers.items():
            for writer in self.writers.get((slots, turn + self.stages[slots]), ()):
                for reader in readers:
                    self._before(reader, writer, slots[1])

    def _before(self, reader: int, writer: int, buffer: str) -> None:
        first, then = self.points.trace.events[reader].node, self.points.trace.events[writer].node
        assert isinstance(first, Operator) and isinstance(then, Operator)
        over = self.points.reads if goes_on_alone(first) else self.points.goes_on
        message = f"nothing orders {first.id} before {then.id} in the same slot of {buffer}"
        for thread in self.points.threads(reader):
            for other in self.points.threads(writer):
                self.findings.require(over(reader, thread), self.points.comes(writer, other), message, then.span)
