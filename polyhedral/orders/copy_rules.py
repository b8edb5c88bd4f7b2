"""Asynchronous copies and products in a happens-before graph: issued, read, written, and what waits for them."""

from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.operators import Contract, Copy, Operator
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.sync import Close, Fence, FenceKind, GroupKind, Until, WaitGroup
from texpr.polyhedral.orders.points import Findings, Points
from texpr.polyhedral.orders.ring_rules import RingRules
from texpr.polyhedral.orders.trace import Event
from texpr.polyhedral.target import WARPGROUP

GROUPS = {Completion.CP_ASYNC: GroupKind.CP_ASYNC, Completion.BULK: GroupKind.BULK}


@dataclass(slots=True)
class CopyRules:
    """The copies of each thread by kind of group: the last list is of the group that is open."""

    points: Points
    findings: Findings
    rings: RingRules
    groups: dict[tuple[int, int, int, GroupKind], list[list[int]]] = field(default_factory=dict)
    latest: dict[tuple[int, int, int], int] = field(default_factory=dict)  # by thread: its last product
    over: dict[tuple[int, int, int, GroupKind, Until], int] = field(default_factory=dict)  # groups waited for so far

    def issue(self, node: Copy, number: int, event: Event) -> None:
        """A copy that is over later: its group, its pipe, and the blocks that may not end before it is over."""
        if node.completion is Completion.NOW:
            return
        blocks = self.rings.copy(node, number, event) if node.pipe else (event.block,)
        buffers = self.points.trace.program.buffers
        for thread in self.points.threads(number):
            if node.completion in GROUPS:
                self._of(event, thread, GROUPS[node.completion])[-1].append(number)
            if buffers[node.source.buffer].memory is Memory.SHARED:
                self.findings.before_end(
                    self.points, self.points.reads(number, thread), event.launch, event.block, node
                )
            if buffers[node.target.buffer].memory is Memory.SHARED:
                for block in blocks:
                    point = self.points.writes(number, thread)
                    self.findings.before_end(self.points, point, event.launch, block, node)

    def multiply(self, node: Contract, number: int, event: Event) -> None:
        """A product that reads tiles, and leaves its sums, some time later: after the product before, in the group of
        its warp, and before the block ends."""
        if event.who.in_part(WARPGROUP * self.points.trace.program.target.warp_size):
            self.findings.fault(f"{node.id} is not reached by all threads of a warpgroup", node.span)
        for thread in self.points.threads(number):
            self._of(event, thread, GroupKind.WGMMA)[-1].append(number)
            before = self.latest.get((event.launch, event.block, thread))
            if before is not None:
                self.points.graph.edge(self.points.writes(before, thread), self.points.reads(number, thread))
            self.latest[event.launch, event.block, thread] = number
            self.findings.before_end(self.points, self.points.writes(number, thread), event.launch, event.block, node)
            self._fenced(node, number, thread)

    def _fenced(self, node: Contract, number: int, thread: int) -> None:
        """The thread fenced its registers after it touched those that the product reads or writes."""
        buffers = self.points.trace.program.buffers
        held = {v.buffer for v in (node.a, node.b, node.c) if buffers[v.buffer].memory is Memory.REG}
        own, place = self.points.of_thread(number, thread)
        for earlier in (own[n] for n in range(place - 1, -1, -1)):
            other = self.points.trace.events[earlier].node
            if isinstance(other, Fence) and other.kind is FenceKind.WGMMA:
                return
            if not isinstance(other, Operator) or isinstance(other, Contract):
                continue
            touched = held & ({r.buffer for r in other.reads} | {name for name, _ in other.writes})
            if touched:
                where = f"between {other.id} and {node.id}, which multiplies with {', '.join(sorted(touched))}"
                self.findings.fault(f"no fence of registers lies {where}", node.span)
                return
        self.findings.fault(f"no fence of registers lies before {node.id}", node.span)

    def close(self, node: Close, number: int, event: Event) -> None:
        for thread in self.points.threads(number):
            self._of(event, thread, node.kind).append([])

    def wait(self, node: WaitGroup, number: int, event: Event) -> None:
        """What is over when threads go on: what an earlier wait of a thread was for is, as it comes after that."""
        over = self.points.reads if node.until is Until.READ else self.points.writes
        for thread in self.points.threads(number):
            groups, key = self._of(event, thread, node.kind), (event.launch, event.block, thread, node.kind, node.until)
            before, closed = self.over.get(key, 0), max(0, len(groups) - 1 - node.behind)
            for group in groups[before:closed]:
                for issued in group:
                    for other in self._together(node.kind, issued, thread):
                        self.points.graph.edge(over(issued, other), self.points.goes_on(number, thread))
            self.over[key] = max(before, closed)

    def _together(self, kind: GroupKind, issued: int, thread: int) -> list[int]:
        """Whose share of what was issued a thread waits for: its own, or of products that of its whole warp."""
        if kind is not GroupKind.WGMMA:
            return [thread]
        warp = self.points.trace.program.target.warp_size
        return [other for other in self.points.threads(issued) if other // warp == thread // warp]

    def _of(self, event: Event, thread: int, kind: GroupKind) -> list[list[int]]:
        return self.groups.setdefault((event.launch, event.block, thread, kind), [[]])
