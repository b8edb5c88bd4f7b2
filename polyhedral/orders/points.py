"""The points of a happens-before graph: events of the threads that stand for all others."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.operators import Operator
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.show_sync import sync_text
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.mapped.walks import goes_on_alone
from texpr.polyhedral.orders.graph import Graph
from texpr.polyhedral.orders.threads import span
from texpr.polyhedral.orders.trace import Event, Fault, Trace, by_block


@dataclass(slots=True)
class Findings:
    """Faults, and what must hold in the graph: a point before another, or else a fault."""

    faults: list[Fault] = field(default_factory=list)
    required: list[tuple[int, int, Fault]] = field(default_factory=list)

    def fault(self, message: str, span: Span = NO_SPAN) -> None:
        self.faults.append(Fault(message, span))

    def require(self, first: int, then: int, message: str, span: Span) -> None:
        self.required.append((first, then, Fault(message, span)))

    def after_begin(self, points: "Points", point: int, launch: int, block: int, node: Sync | Last | Operator) -> None:
        """Nobody reaches into the memory of a block before it has begun."""
        what = node.id if isinstance(node, Operator) else sync_text(node) if isinstance(node, Sync) else "a node"
        message = f"block {block} may not have begun when {what} reaches into its memory"
        self.require(points.begin(launch, block), point, message, node.span)

    def before_end(self, points: "Points", point: int, launch: int, block: int, node: Sync | Last | Operator) -> None:
        """What happens in the memory of a block is over before the block ends."""
        what = node.id if isinstance(node, Operator) else sync_text(node) if isinstance(node, Sync) else "a node"
        message = f"block {block} may end before {what} is over in its memory"
        self.require(point, points.end(launch, block), message, node.span)


@dataclass(slots=True)
class Points:
    """Two points for each event and standing thread, and two more of an asynchronous copy: `places` has the number of
    the first, and they are neighbours."""

    trace: Trace
    graph: Graph = field(default_factory=Graph)
    by_id: dict[str, list[int]] = field(default_factory=dict)
    standing: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    blocks: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    taking_part: list[list[int]] = field(default_factory=list)  # the standing threads of each event
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    in_turn: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)  # the events of a standing thread
    known: dict[tuple[str, Scope], dict[tuple[int, int] | None, list[int]]] = field(default_factory=dict)  # by `near`

    def __post_init__(self) -> None:
        for key, numbers in by_block(self.trace):
            self.blocks[key] = numbers
            self.standing[key] = self._standing(key[0], [self.trace.events[n] for n in numbers])
            for thread in self.standing[key]:
                self._chain(key, thread)
        for number, event in enumerate(self.trace.events):
            self.taking_part.append([t for t in self.standing[event.launch, event.block] if event.who[t]])
            if isinstance(event.node, Operator):
                self.by_id.setdefault(event.node.id, []).append(number)

    def _standing(self, launch: int, events: Sequence[Event]) -> tuple[int, ...]:
        """Threads that stand for all: the first, and of those that take part in the same events one, another of its
        warp, and one of another warp; and the first of the warps of all of these, which may act for its warp."""
        threads = self.trace.launches[launch].threads
        warp = self.trace.program.target.warp_size
        alike = [span(0, threads, threads)]
        for who in dict.fromkeys(event.who for event in events):
            alike = [part for group in alike for part in (group & who, group.without(who)) if part.any()]
        found = {0}
        for group in alike:
            own = span(group.first // warp * warp, warp, threads)
            among = (group.alone(), (group & own).without(group.alone()), group.without(own))
            found.update(some.first for some in among if some.any())
        return tuple(sorted(found | {thread // warp * warp for thread in found}))

    def _chain(self, key: tuple[int, int], thread: int) -> None:
        last = self.begin(*key)
        events = self.trace.events
        own = self.in_turn[*key, thread] = [n for n in self.blocks[key] if events[n].who[thread]]
        for number in own:
            alone = goes_on_alone(events[number].node)
            comes = self.places[number, thread] = self.graph.fresh(4 if alone else 2)
            self.graph.edge(last, comes)
            last = comes + 1
            self.graph.edge(comes, last)
            if alone:
                self.graph.edge(last, comes + 2)
                self.graph.edge(comes + 2, comes + 3)
        self.graph.edge(last, self.end(*key))

    def near(self, name: str, scope: Scope) -> dict[tuple[int, int] | None, list[int]]:
        """The events of an operator by what those have in common that are as close as a scope says: nothing in a grid,
        the launch and the first block of a cluster, else the launch and the block."""
        known = self.known.get((name, scope))
        if known is not None:
            return known
        found = self.known[name, scope] = {}
        for number in self.by_id.get(name, ()):
            event = self.trace.events[number]
            block = event.block
            if scope is Scope.CLUSTER:
                block = self.trace.grids[event.launch].cluster_of(block)[0]
            found.setdefault(None if scope is Scope.GRID else (event.launch, block), []).append(number)
        return found

    def threads(self, number: int) -> list[int]:
        """The standing threads that take part in an event."""
        return self.taking_part[number]

    def of_thread(self, number: int, thread: int) -> tuple[list[int], int]:
        """The events of a standing thread of the block that an event is of, and the place of the event among them."""
        event = self.trace.events[number]
        own = self.in_turn[event.launch, event.block, thread]
        return own, bisect_left(own, number)

    def begin(self, launch: int, block: int) -> int:
        return self.graph.point(("begin", launch, block))

    def end(self, launch: int, block: int) -> int:
        """Where all threads of a block have ended."""
        return self.graph.point(("end", launch, block))

    def over(self, launch: int) -> int:
        """Where all blocks of a launch have ended."""
        known = ("over", launch) in self.graph.numbers
        point = self.graph.point(("over", launch))
        if not known:
            for block in self.trace.blocks[launch]:
                self.graph.edge(self.end(launch, block), point)
        return point

    def queue(self, launch: int) -> int:
        """Where all that was before a launch is over, also what is not of the program."""
        return self.graph.point(("queue", launch))

    def comes(self, number: int, thread: int) -> int:
        return self.places[number, thread]

    def goes_on(self, number: int, thread: int) -> int:
        return self.places[number, thread] + 1

    def reads(self, number: int, thread: int) -> int:
        """Where what goes on alone has read."""
        return self.places[number, thread] + 2

    def writes(self, number: int, thread: int) -> int:
        return self.places[number, thread] + 3

    def names(self, points: Iterable[int]) -> str:
        """The syncs among these points, in words."""
        events = {comes + n: number for (number, _), comes in self.places.items() for n in range(2)}
        texts: dict[str, None] = {}
        for number in (events[point] for point in points if point in events):
            node = self.trace.events[number].node
            if isinstance(node, Sync):
                texts.setdefault(sync_text(node))
        return ", ".join(texts)
