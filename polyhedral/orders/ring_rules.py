"""Pipes in a happens-before graph: which turn each thread is at, and what makes a turn full or free."""

from collections.abc import Sequence
from dataclasses import field
from math import prod

from texpr.grammar.ast import IndexExpr
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.operators import Copy, Operator
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.sync import Acquire, Commit, Drain, End, Pipe, PipeKind, Release, Skip, Wait
from texpr.polyhedral.mapped.walks import goes_on_alone
from texpr.polyhedral.orders.points import Findings, Points
from texpr.polyhedral.orders.slot_rules import SlotRules
from texpr.polyhedral.orders.threads import Counts, no_counts
from texpr.polyhedral.orders.trace import Event

Ring = tuple[int, str, int]
"""Launch, pipe and block."""


@dataclass(slots=True)
class RingRules:
    """How often the threads of each block acquired, committed, waited and released, and what arrived for each turn."""

    points: Points
    findings: Findings
    slots: SlotRules
    initialised: dict[tuple[int, int], int] = field(default_factory=dict)
    counts: dict[tuple[str, int, str, int], Counts] = field(default_factory=dict)
    commits: dict[tuple[Ring, int], int] = field(default_factory=dict)
    bytes: dict[tuple[Ring, int], int] = field(default_factory=dict)
    releases: dict[tuple[Ring, int], int] = field(default_factory=dict)
    waited: set[tuple[Ring, int]] = field(default_factory=set)
    freed: set[tuple[Ring, int]] = field(default_factory=set)  # turns whose release somebody waits for
    skipped: set[tuple[int, str]] = field(default_factory=set)  # pipes of which threads pass over turns
    uses: list[tuple[int, int, Event, str]] = field(default_factory=list)  # block, point: must know of initialisation
    copied: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)  # cp.async copies of each thread
    filled: dict[tuple[str, int], int] = field(default_factory=dict)  # buffer and event -> turn that it writes
    read: dict[tuple[str, int], int] = field(default_factory=dict)
    touched: dict[tuple[int, int], list[tuple[Pipe, str, bool, bool]]] = field(default_factory=dict)  # by launch, node

    def event(self, node: Acquire | Drain | Commit | Wait | Release | Skip, number: int, event: Event) -> None:
        pipe = self._pipe(event, node.pipe)
        ends = pipe.producers if isinstance(node, Acquire | Drain | Commit) else pipe.consumers
        end = next((e for e in ends if e.part in ("", event.part)), None)
        if end is None:
            side = "producer" if isinstance(node, Acquire | Drain | Commit) else "consumer"
            self.findings.fault(f"part {event.part or 'none'} is no {side} of {pipe.name}", node.span)
            return
        if end.ranks and pipe.scope is not Scope.CLUSTER:
            self.findings.fault(f"{pipe.name} reaches other blocks, and its scope is the {pipe.scope.value}", node.span)
        tells = isinstance(node, Release) or (isinstance(node, Commit) and pipe.kind is PipeKind.ARRIVE)
        reached = self._ranks(end, event) if tells else (event.block,)
        self._uses(number, event, pipe, reached)
        match node:
            case Acquire():
                self._acquire(pipe, number, event)
            case Drain():
                last = self._last("acquire", pipe, event)
                for turn in range(max(0, last - pipe.stages + 1), last + 1):
                    self._is_free(pipe, turn, number, event)
            case Commit():
                self._commit(pipe, end, number, event, node)
            case Wait():
                self._wait(pipe, number, event)
            case Release():
                self._release(node, pipe, end, number, event)
            case Skip():
                self.skipped.add((event.launch, pipe.name))
                self._next("wait", pipe, event)
                self._count("release", pipe, event).step(event.who)

    def _acquire(self, pipe: Pipe, number: int, event: Event) -> None:
        before = self._next("acquire", pipe, event) - pipe.stages
        if before >= 0 and pipe.releases:
            self._is_free(pipe, before, number, event)

    def _is_free(self, pipe: Pipe, turn: int, number: int, event: Event) -> None:
        """The event waits until a turn is free."""
        ring = (event.launch, pipe.name, event.block)
        self.freed.add((ring, turn))
        for thread in self.points.threads(number):
            self.points.graph.edge(self._free(ring, turn), self.points.goes_on(number, thread))

    def _commit(self, pipe: Pipe, end: End, number: int, event: Event, node: Commit) -> None:
        turn, arrivals = self._next("commit", pipe, event), event.threads
        if node.by_warp:
            warp = self.points.trace.program.target.warp_size
            arrivals = event.who.reached(warp)
            if event.who.in_part(warp) or pipe.kind is not PipeKind.TRANSACTION:
                self.findings.fault(f"a commit of {pipe.name} by warps is not of whole warps", event.span)
        if turn >= self._last("acquire", pipe, event) + 1:
            self.findings.fault(f"turn {turn} of {pipe.name} is committed and was not acquired", event.span)
        for block in self._ranks(end, event) if pipe.kind is PipeKind.ARRIVE else (event.block,):
            ring = (event.launch, pipe.name, block)
            self.commits[ring, turn] = self.commits.get((ring, turn), 0) + arrivals
            for thread in self.points.threads(number):
                copies = self.copied.get((event.launch, event.block, thread), [])
                arriving = (
                    [self.points.writes(copy, thread) for copy in copies] if pipe.kind is PipeKind.CP_ASYNC else []
                )
                for point in arriving or [self.points.comes(number, thread)]:
                    self.points.graph.edge(point, self._full(ring, turn))
                if block != event.block:
                    self.findings.before_end(
                        self.points, self.points.goes_on(number, thread), event.launch, block, event.node
                    )
                if turn >= pipe.stages:
                    message = f"turn {turn} of {pipe.name} may be committed before turn {turn - pipe.stages} is full"
                    before = self._full(ring, turn - pipe.stages)
                    self.findings.require(before, self.points.comes(number, thread), message, event.span)

    def _wait(self, pipe: Pipe, number: int, event: Event) -> None:
        turn = self._next("wait", pipe, event)
        ring = (event.launch, pipe.name, event.block)
        self.waited.add((ring, turn))
        for thread in self.points.threads(number):
            self.points.graph.edge(self._full(ring, turn), self.points.goes_on(number, thread))
            if turn >= pipe.stages and (event.launch, pipe.name) in self.skipped:
                message = f"turn {turn} of {pipe.name} may be waited for before turn {turn - pipe.stages} is full"
                before = self._full(ring, turn - pipe.stages)
                self.findings.require(before, self.points.comes(number, thread), message, event.span)

    def _release(self, node: Release, pipe: Pipe, end: End, number: int, event: Event) -> None:
        turn = self._last("wait", pipe, event) - node.behind
        if turn != self._next("release", pipe, event):
            self.findings.fault(f"a release of {pipe.name} is of turn {turn}, out of order", node.span)
        for block in self._ranks(end, event):
            ring = (event.launch, pipe.name, block)
            self.releases[ring, turn] = self.releases.get((ring, turn), 0) + event.threads
            for thread in self.points.threads(number):
                self.points.graph.edge(self.points.comes(number, thread), self._free(ring, turn))
                if block != event.block:
                    self.findings.before_end(
                        self.points, self.points.comes(number, thread), event.launch, block, event.node
                    )

    def copy(self, node: Copy, number: int, event: Event) -> Sequence[int]:
        """A copy into a pipe: the blocks that it goes to, where its bytes make a turn full."""
        pipe = self._pipe(event, node.pipe)
        end = next((e for e in pipe.producers if e.part in ("", event.part)), None)
        turn = self._last("acquire", pipe, event)
        if end is None or turn == self._last("commit", pipe, event) or node.target.buffer not in pipe.buffers:
            self.findings.fault(f"{node.id} copies into {pipe.name} outside of a turn that its part fills", node.span)
            return (event.block,)
        blocks = self._ranks(end, event) if node.to_ranks else (event.block,)
        if node.rank is not None:
            blocks = self._one_of(blocks, node.rank, event)
        self._uses(number, event, pipe, blocks)
        for block in blocks:
            self.slots.writes((event.launch, node.target.buffer, block), turn, number)
        if node.completion is Completion.CP_ASYNC:
            for thread in self.points.threads(number):
                self.copied.setdefault((event.launch, event.block, thread), []).append(number)
        if node.completion is Completion.TRANSACTION:
            size = self.points.trace.program.buffers[node.target.buffer].dtype.bits // 8
            extents = [event.value(e) for _, e in node.over]
            elements = sum(map(prod, zip(*extents, strict=True))) if extents else event.threads
            for block in blocks:
                ring = (event.launch, pipe.name, block)
                self.bytes[ring, turn] = self.bytes.get((ring, turn), 0) + elements * size
                for thread in self.points.threads(number):
                    self.points.graph.edge(self.points.writes(number, thread), self._full(ring, turn))
        return blocks

    def turns_of(self, number: int, event: Event) -> None:
        """Which turns of pipes an operator fills and reads."""
        node = event.node
        assert isinstance(node, Operator)
        key = (event.launch, id(node))
        if key not in self.touched:
            self.touched[key] = self._touched(node, event.launch)
        for pipe, buffer, reads, writes in self.touched[key]:
            if reads:
                turn = self.read[buffer, number] = self._last("wait", pipe, event)
                self.slots.reads(pipe, (event.launch, buffer, event.block), turn, number)
            if writes:
                turn = self.filled[buffer, number] = self._last("acquire", pipe, event)
                if not goes_on_alone(node):
                    self.slots.writes((event.launch, buffer, event.block), turn, number)
                if self.filled[buffer, number] == self._last("commit", pipe, event):
                    self.findings.fault(f"{node.id} writes to {pipe.name} outside of a turn", event.span)
            if self.read.get((buffer, number), 0) < 0:
                self.findings.fault(f"{node.id} reads {buffer} before a turn is waited for", event.span)

    def _touched(self, node: Operator, launch: int) -> list[tuple[Pipe, str, bool, bool]]:
        """The buffers of pipes that an operator touches, and whether it reads and writes them."""
        reads, writes = {read.buffer for read in node.reads}, {name for name, _ in node.writes}
        return [
            (pipe, buffer, buffer in reads, buffer in writes)
            for pipe in self.points.trace.launches[launch].pipes
            for buffer in pipe.buffers
            if buffer in reads | writes
        ]

    def end(self) -> None:
        """What does not come out: turns that are never full, or never free, and some too often."""
        for (what, launch, name, block), counts in self.counts.items():
            if what == "acquire":
                committed = self.counts.get(("commit", launch, name, block))
                if counts.by_number != committed.by_number if committed else {*counts.by_number} != {0}:
                    self.findings.fault(f"turns of {name} are acquired and not committed")
        for ring, turn in sorted({*self.commits, *self.bytes, *self.waited}):
            pipe = self._named(ring)
            commits, size = self.commits.get((ring, turn), 0), self.bytes.get((ring, turn), 0)
            if commits != pipe.commits:
                self.findings.fault(f"turn {turn} of {pipe.name} has {commits} commits of {pipe.commits}")
            elif pipe.kind is PipeKind.TRANSACTION and size != pipe.bytes:
                self.findings.fault(f"turn {turn} of {pipe.name} gets {size} bytes of {pipe.bytes}")
        for ring, turn in sorted({*self.releases, *self.freed}):
            pipe, count = self._named(ring), self.releases.get((ring, turn), 0)
            if count != pipe.releases:
                self.findings.fault(f"turn {turn} of {pipe.name} has {count} releases of {pipe.releases}")
        for block, point, event, name in self.uses:
            initialised = self.initialised.get((event.launch, block))
            if initialised is None:
                self.findings.fault(f"nobody initialises {name}", event.span)
            else:
                message = f"{name} is used by threads that nothing orders after its initialisation"
                self.findings.require(initialised, point, message, event.span)

    def _uses(self, number: int, event: Event, pipe: Pipe, blocks: Sequence[int]) -> None:
        for thread in self.points.threads(number):
            self.uses += [(block, self.points.comes(number, thread), event, pipe.name) for block in blocks]

    def _next(self, what: str, pipe: Pipe, event: Event) -> int:
        """The number of this event of the threads, which must all be at the same."""
        counts = self._count(what, pipe, event)
        found = counts.of(event.who)
        if len(found) != 1:
            self.findings.fault(f"threads come to one {what} of {pipe.name} at different turns", event.span)
        counts.step(event.who)
        return found[0][0]

    def _count(self, what: str, pipe: Pipe, event: Event) -> Counts:
        """How often each thread of the event's block came to such an event."""
        key = (what, event.launch, pipe.name, event.block)
        return self.counts.get(key) or self.counts.setdefault(key, no_counts(len(event.who)))

    def _last(self, what: str, pipe: Pipe, event: Event) -> int:
        """The number of the last such event of the threads, -1 before the first."""
        counts = self.counts.get((what, event.launch, pipe.name, event.block))
        return -1 if counts is None else counts.of(event.who)[0][0] - 1

    def _pipe(self, event: Event, name: str) -> Pipe:
        return next(p for p in self.points.trace.launches[event.launch].pipes if p.name == name)

    def _named(self, ring: Ring) -> Pipe:
        return next(p for p in self.points.trace.launches[ring[0]].pipes if p.name == ring[1])

    def _ranks(self, end: End, event: Event) -> tuple[int, ...]:
        """The blocks that an end reaches from this one."""
        cluster = self.points.trace.grids[event.launch].cluster_of(event.block)
        return tuple(cluster[r] for r in end.ranks[cluster.index(event.block)]) if end.ranks else (event.block,)

    def _one_of(self, blocks: Sequence[int], rank: IndexExpr, event: Event) -> tuple[int, ...]:
        """Those of the blocks that an end reaches that have the rank which the threads mean."""
        cluster = self.points.trace.grids[event.launch].cluster_of(event.block)
        meant = event.met(rank)
        found = tuple(block for block in blocks if cluster.index(block) in meant)
        if len(meant) != 1 or len(found) != 1:
            self.findings.fault("a copy to one rank goes to none, or to several, that its pipe reaches", event.span)
        return found

    def _full(self, ring: Ring, turn: int) -> int:
        return self.points.graph.point(("full", ring, turn))

    def _free(self, ring: Ring, turn: int) -> int:
        return self.points.graph.point(("free", ring, turn))
