"""What each sync adds to a happens-before graph, and what must come out even.

Counts are of all threads, edges of those that stand for them. What a rule takes for granted (that a pipe is initialised
where it is used, that a block has not ended where another reaches into it) is `required` of the graph.
"""

from collections.abc import Iterable
from typing import assert_never

from texpr.grammar.ast import Gather
from texpr.grammar.index.expr import names
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, TriggerNext, Turn
from texpr.polyhedral.mapped.operators import Combined, Contract, Copy, Operator, Unload
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.show_sync import sync_text
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Barrier,
    Close,
    Commit,
    Drain,
    Fence,
    FenceKind,
    Release,
    Skip,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.mapped.walks import goes_on_alone, operator_buffers, overlaps, part_warps, waits_for_queue
from texpr.polyhedral.orders.copy_rules import CopyRules
from texpr.polyhedral.orders.gates import Gates
from texpr.polyhedral.orders.points import Findings, Points
from texpr.polyhedral.orders.ring_rules import RingRules
from texpr.polyhedral.orders.slot_rules import SlotRules
from texpr.polyhedral.orders.trace import Event
from texpr.polyhedral.orders.word_rules import WordRules


class Rules:
    """The rules of every sync, applied to all events of a program."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.behind_queue = {n for n, launch in enumerate(points.trace.launches) if waits_for_queue(launch)}
        self.findings = Findings()
        self.gates = Gates(points, self.findings)
        self.slots = SlotRules(points, self.findings)
        self.rings = RingRules(points, self.findings, self.slots)
        self.copies = CopyRules(points, self.findings, self.rings)
        self.words = WordRules(points, self.findings, self.gates)

    def apply(self) -> Findings:
        """Every rule on every event: what is wrong, and what must be found in the graph."""
        trace = self.points.trace
        for launch in range(1, len(trace.launches)):
            self._begin(launch)
        for numbers in self.points.blocks.values():
            for number in numbers:
                self._event(number, trace.events[number])
        self.gates.end()
        self.rings.end()
        self.slots.end()
        self.words.end()
        return self.findings

    def _begin(self, number: int) -> None:
        """A launch begins when the one before is over, unless it waits for that itself."""
        if not overlaps(self.points.trace.launches[number]):
            for block in self.points.trace.blocks[number]:
                self.points.graph.edge(self.points.over(number - 1), self.points.begin(number, block))

    def _event(self, number: int, event: Event) -> None:
        if event.launch in self.behind_queue and isinstance(event.node, Operator):
            self._after_queue(event.node, number, event)
        match event.node:
            case Barrier() as node:
                self._barrier(node, number, event)
            case Acquire() | Drain() | Commit() | Wait() | Release() | Skip() as node:
                self.rings.event(node, number, event)
            case Copy() as node:
                self.rings.turns_of(number, event)
                self.copies.issue(node, number, event)
                if node.completion is Completion.NOW:
                    self._reaches_out(number, event)
            case Contract() as node if goes_on_alone(node):
                self.rings.turns_of(number, event)
                self.copies.multiply(node, number, event)
            case Close() as node:
                self.copies.close(node, number, event)
            case WaitGroup() as node:
                self.copies.wait(node, number, event)
            case Fence(kind=kind):
                if kind is FenceKind.BARRIER_INIT and event.who[0]:
                    self.rings.initialised[event.launch, event.block] = self.points.comes(number, 0)
            case AfterLaunch() as node:
                ended = [self.points.over(event.launch - 1)] if event.launch else []
                for before in [*ended, *([self.points.queue(event.launch)] if node.queue else [])]:
                    for thread in self.points.threads(number):
                        self.points.graph.edge(before, self.points.goes_on(number, thread))
            case TriggerNext():
                pass
            case GridBarrier() as node:
                needed = self.points.trace.grids[event.launch].blocks * len(event.who)
                self.words.declared(node.counter, node)
                self.gates.come(("grid", event.launch, node.counter), needed, sync_text(node), number, event)
            case Turn() | Publish() | Await() | Last() as node:
                self.words.event(node, number, event)
            case _ if isinstance(event.node, Operator):
                self._whole_warps(event)
                self.rings.turns_of(number, event)
                self._reaches_out(number, event)
            case _:
                assert_never(event.node)

    def _after_queue(self, node: Operator, number: int, event: Event) -> None:
        """What may be written before a call is not touched before all of that is over."""
        buffers = self.points.trace.program.buffers
        for name in sorted(operator_buffers(node)):
            if buffers[name].memory is Memory.GLOBAL:
                message = f"{node.id} touches {name} before the launch waits for what is on the queue"
                for thread in self.points.threads(number):
                    begins = self.points.comes(number, thread)
                    self.findings.require(self.points.queue(event.launch), begins, message, node.span)

    def _whole_warps(self, event: Event) -> None:
        """What the lanes of a warp do as one needs all of them."""
        node, warp = event.node, self.points.trace.program.target.warp_size
        if not isinstance(node, Unload | Contract | Combined | Copy):
            return
        if (isinstance(node, Combined) and node.lanes == 1) or (
            isinstance(node, Copy) and node.access is not Access.SHIFTED
        ):
            return
        if event.who.in_part(warp):
            self.findings.fault(f"{node.id} is not reached by all lanes of a warp", node.span)

    def _barrier(self, node: Barrier, number: int, event: Event) -> None:
        text = sync_text(node)
        if node.parts and event.part not in node.parts:
            self.findings.fault(f"part {event.part or 'none'} comes to `{text}`", node.span)
            return
        name = (node.scope, node.parts, node.name, event.launch)
        warp = self.points.trace.program.target.warp_size
        if node.scope in (Scope.WARP, Scope.WARPGROUP):
            width = warp if node.scope is Scope.WARP else 4 * warp
            for group, here in enumerate(event.who.groups(width)):
                needed = min(width, len(event.who) - group * width)
                if here.any():
                    self.gates.come((*name, event.block, group), needed, text, number, event, here, node.action)
            return
        members = self._members(node, event) if node.parts else len(event.who)
        if node.scope is Scope.CLUSTER:
            cluster = self.points.trace.grids[event.launch].cluster_of(event.block)
            marks = self._marks(number, event) if node.relaxed else None
            needed = members * len(cluster)
            self.gates.owe((*name, cluster[0]), event, text, node.action)
            self.gates.come((*name, cluster[0]), needed, text, number, event, event.who, node.action, marks=marks)
        else:
            self.gates.come((*name, event.block), members, text, number, event, event.who, node.action)

    def _marks(self, number: int, event: Event) -> list[int]:
        """What relaxed threads tell of: that their block has begun, and its pipes are initialised."""
        marks = [self.points.begin(event.launch, event.block)]
        fence = self.rings.initialised.get((event.launch, event.block))
        return [*marks, fence] if fence is not None and event.who[0] else marks

    def _members(self, node: Barrier, event: Event) -> int:
        """The threads of the parts that a barrier names."""
        warps = part_warps(self.points.trace.launches[event.launch])
        return self.points.trace.program.target.warp_size * sum(warps.get(name, 0) for name in node.parts)

    def _reaches_out(self, number: int, event: Event) -> None:
        """An operator in the memory of blocks of the cluster: they may not end before."""
        assert isinstance(event.node, Operator)
        cluster = self.points.trace.grids[event.launch].cluster_of(event.block)
        for name, subscripts in (*((r.buffer, r.subscripts) for r in event.node.reads), *event.node.writes):
            if self.points.trace.program.buffers[name].memory is not Memory.CLUSTER:
                continue
            first = subscripts[0]
            if isinstance(first, Gather) or not names(first) <= set(event.values):
                ranks: Iterable[int] = range(len(cluster))
            else:
                ranks = event.met(first)
            for rank in ranks:
                block = cluster[rank]
                for thread in self.points.threads(number):
                    begin, end = self.points.comes(number, thread), self.points.goes_on(number, thread)
                    self.findings.before_end(self.points, end, event.launch, block, event.node)
                    if block != event.block:
                        self.findings.after_begin(self.points, begin, event.launch, block, event.node)
