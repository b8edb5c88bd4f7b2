"""What the threads of every block do, in order, at given sizes: the launches of a program unrolled.

    part load: for k < 2 { acquire a; S0; commit a }    0 acquire a  1 S0 (k = 0)  2 commit a  3 acquire a  4 S0 (k = 1)
    part sum:  for k < 2 { wait a; S1 }                 6 wait a     7 S1 (k = 0)  8 wait a    9 S1 (k = 1)

Program order of a thread is the order of the events that it takes part in; events of different parts have no order by
their numbers. Nothing is computed: a condition on data may hold or not, so both sides are events, and syncs inside are
refused; addresses are multiples of all that is asked for. Blocks take their turns in order, and of those that count at
a `Last` the one that comes last in the list.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

from texpr.grammar.ast import Gather, IndexExpr, Read
from texpr.grammar.index.expr import names
from texpr.grammar.index.points import Points
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.between import Await, GridBarrier, Publish, Turn
from texpr.polyhedral.mapped.operators import Copy, Operator, Unused
from texpr.polyhedral.mapped.places import PLACES, Memory, Scope, Where
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Parts
from texpr.polyhedral.mapped.walks import every_node
from texpr.polyhedral.orders.counted import Count, only_counts, skeleton, standing
from texpr.polyhedral.orders.flow import decides
from texpr.polyhedral.orders.threads import Mask, Value, Values, at, over, span

AMONG_BLOCKS = (Turn, Publish, Await, GridBarrier, Last)  # at which blocks of one launch tell one another something


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with the syncs of a program, in words."""

    message: str
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """A node that some threads of a block come to. `names` has the loop indices and turns around it, `values` all that
    expressions there may use, one value for each thread or one for all. Of a `Last`, `round` counts how often all
    blocks came before, and `runs` says whether this block runs the body."""

    node: Sync | Last | Operator
    launch: int
    block: int
    part: str
    team: Mask
    who: Mask
    names: Mapping[str, int]
    values: Mapping[str, Any]
    known: Values
    round: int = 0
    runs: bool = False

    @property
    def threads(self) -> int:
        """How many take part."""
        return self.who.count

    @property
    def span(self) -> Span:
        return self.node.span

    def value(self, expr: IndexExpr) -> Sequence[int]:
        """The expression in the threads that take part."""
        return at(self.known.of(expr, self.values), self.who)

    def met(self, expr: IndexExpr) -> list[int]:
        """The values of the expression in the threads that take part, each once, the least first."""
        value = self.known.of(expr, self.values)
        return [value] if isinstance(value, int) and self.who.any() else sorted({*at(value, self.who)})


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks along each axis, of the grid and of a cluster."""

    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    def cluster_of(self, block: int) -> tuple[int, ...]:
        """The blocks of a block's cluster, by rank."""
        (gx, gy, _), (cx, cy, cz) = self.grid, self.cluster
        x, y, z = (p - p % c for p, c in zip(self.place(block), self.cluster, strict=True))
        return tuple(x + a + gx * (y + b + gy * (z + c)) for c in range(cz) for b in range(cy) for a in range(cx))

    def place(self, block: int) -> tuple[int, int, int]:
        gx, gy, _ = self.grid
        return block % gx, block // gx % gy, block // (gx * gy)


@dataclass(slots=True, kw_only=True)
class Trace:
    """The events of all launches, how their grids look, and which `blocks` of each are unrolled."""

    program: MappedProgram
    launches: tuple[Launch, ...]
    sizes: Mapping[str, int]
    grids: list[Grid] = field(default_factory=list)
    blocks: list[Sequence[int]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    counts: dict[tuple[int, str, tuple[int, ...]], int] = field(default_factory=dict)  # of `Last`, by launch
    rounds: dict[tuple[int, str, tuple[int, ...]], int] = field(default_factory=dict)
    known: list[Values] = field(default_factory=list)  # by launch
    digits: dict[tuple[int, int], dict[str, Points]] = field(default_factory=dict)  # by launch and first thread
    asked: dict[int, tuple[tuple[IndexExpr, frozenset[str]], ...]] = field(default_factory=dict)  # by a node's identity
    happened: dict[int, tuple[Event, Hashable]] = field(default_factory=dict)  # by an event's identity


def unrolled(program: MappedProgram, launches: Sequence[Launch], sizes: Mapping[str, int]) -> Trace:
    """The events of the launches at these sizes, one launch after the other."""
    trace = Trace(program=program, launches=tuple(launches), sizes=sizes)
    for number, launch in enumerate(launches):
        x, y, z = (max(0, int(index_value(g, sizes))) for g in launch.grid)
        grid = Grid((x, y, z), launch.cluster)
        trace.grids.append(grid)
        trace.known.append(Values(launch.threads))
        counts = _counts(trace, number) if only_counts(launch) else ()
        blocks = standing(counts, grid.cluster_of) if counts else _standing_for_all(launch, grid)
        trace.blocks.append(blocks)
        left = {key: count for key, count in trace.counts.items() if key[0] == number}
        for block in blocks:
            _Block(trace, number, block).unroll()
        trace.counts.update(left)  # of all blocks
        if len(blocks) < grid.blocks and len(launches) == 1:
            _leave_alike(trace, blocks)
    return trace


def _counts(trace: Trace, number: int) -> tuple[Count, ...]:
    """Who counts where, of all blocks of a launch; what is left is in the trace's counts."""
    whole = Trace(program=trace.program, launches=trace.launches, sizes=trace.sizes, grids=trace.grids)
    whole.known, bare = trace.known, skeleton(trace.launches[number])
    whole.launches = tuple(bare if n == number else one for n, one in enumerate(trace.launches))
    for block in range(trace.grids[number].blocks):
        _Block(whole, number, block).unroll()
    trace.counts.update(whole.counts)
    nodes = ((e.node, e) for e in whole.events)
    return tuple(
        ((node.counter, tuple(int(event.value(at)[0]) for at in node.at)), int(event.value(node.n)[0]), event.block)
        for node, event in nodes
        if isinstance(node, Last)
    )


def _leave_alike(trace: Trace, blocks: Sequence[int]) -> None:
    """Leave out the clusters in which the same happens as in one before, where no order is of blocks of several: what
    is wrong in one of them is wrong in the other."""
    (launch,), (grid,) = trace.launches, trace.grids
    orders = (*launch.orders, *(order for node in every_node(launch.body) for order in getattr(node, "orders", ())))
    if any(order.scope is Scope.GRID for order in orders):
        return
    happens: dict[int, list[Hashable]] = {block: [] for block in blocks}
    for event in trace.events:
        happens[event.block].append(_happening(trace, event))
    clusters = dict.fromkeys(grid.cluster_of(block) for block in blocks)
    kinds = {tuple(tuple(happens[block]) for block in cluster): cluster for cluster in reversed(clusters)}
    kept = {block for cluster in kinds.values() for block in cluster}
    trace.blocks[0] = [block for block in blocks if block in kept]
    trace.events[:] = [event for event in trace.events if event.block in kept]


def likeness(trace: Trace) -> Hashable | None:
    """All that the rules ask of a trace but the numbers of its blocks: where that of another one of the same program is
    equal, what is wrong in one is wrong in the other. None where blocks of a launch tell one another something, which
    is by their numbers."""
    if any(isinstance(node, AMONG_BLOCKS) for launch in trace.launches for node in every_node(launch.body)):
        return None
    places = [{block: place for place, block in enumerate(blocks)} for blocks in trace.blocks]
    clusters = tuple(
        tuple(tuple(own.get(other) for other in grid.cluster_of(block)) for block in own)
        for own, grid in zip(places, trace.grids, strict=True)
    )
    happens = ((e.launch, places[e.launch][e.block], _happening(trace, e)) for e in trace.events)
    return clusters, tuple(happens)


def _happening(trace: Trace, event: Event) -> Hashable:
    """All of an event that a rule asks of, but its block's number: of its values those of a rank, or of a box."""
    found = trace.happened.get(id(event))
    if found is None:
        found = trace.happened[id(event)] = (event, _what_happens(trace, event))
    return found[1]


def _what_happens(trace: Trace, event: Event) -> Hashable:
    node = event.node
    if id(node) not in trace.asked:
        trace.asked[id(node)] = tuple(_asked_of(node, trace.program.buffers))
    exprs = (expr for expr, used in trace.asked[id(node)] if used <= event.values.keys())
    values = tuple(
        value if isinstance(value := event.known.of(expr, event.values), int) else tuple(at(value, event.who))
        for expr in exprs
    )
    return id(node), event.part, event.team.bits, event.who.bits, tuple(event.names.items()), values


def _asked_of(
    node: Sync | Last | Operator, buffers: Mapping[str, MappedBuffer]
) -> Iterator[tuple[IndexExpr, frozenset[str]]]:
    """The expressions of which a rule asks the values, with the names in them."""
    asked: list[IndexExpr | Gather] = []
    if isinstance(node, Operator):
        elements = (*((read.buffer, read.subscripts) for read in node.reads), *node.writes)
        asked += (at[0] for name, at in elements if buffers[name].memory is Memory.CLUSTER)
    if isinstance(node, Copy):
        asked += (extent for _, extent in node.over)
        asked += () if node.rank is None else (node.rank,)
    yield from ((expr, frozenset(names(expr))) for expr in asked if not isinstance(expr, Gather))


def _standing_for_all(launch: Launch, grid: Grid) -> Sequence[int]:
    """The blocks that are unrolled: where no block tells one of another cluster anything, those of the first two
    clusters and of the last one, between which all others differ in the index of their iteration alone."""
    across, (x, y, z) = any(isinstance(node, AMONG_BLOCKS) for node in every_node(launch.body)), grid.cluster
    own = x * y * z
    if across or y * z > 1 or grid.grid[0] % x or grid.blocks <= 3 * own:
        return range(grid.blocks)
    return (*range(2 * own), *range(grid.blocks - own, grid.blocks))


@dataclass(slots=True)
class _Block:
    """One block while it is unrolled: events are added to the trace."""

    trace: Trace
    launch: int
    block: int

    def unroll(self) -> None:
        launch = self.trace.launches[self.launch]
        everyone = span(0, launch.threads, launch.threads)
        here = _Here(team=everyone, part="", who=everyone, values=self._digits(launch, everyone), names={})
        self._nodes(launch.body, here)

    def _digits(self, launch: Launch, team: Mask) -> dict[str, Any]:
        """Sizes and hardware digits; threads are counted from the first of the team."""
        grid, key = self.trace.grids[self.launch], (self.launch, team.first)
        of_threads = self.trace.digits.get(key, {})
        where = Where(
            axes=grid.place(self.block),
            rank=lambda: grid.cluster_of(self.block).index(self.block),
            thread=None if of_threads else Points(tuple(range(-team.first, launch.threads - team.first))),
            warp_size=self.trace.program.target.warp_size,
        )
        found: dict[str, Any] = {**self.trace.sizes, **of_threads}
        for digit in launch.digits:
            coordinate = PLACES[digit.place].coordinate
            if coordinate is not None and digit.name not in of_threads:
                stride, radix = (index_value(e, self.trace.sizes) for e in (digit.stride, digit.radix))
                found[digit.name] = coordinate(where) // stride % radix
        self.trace.digits[key] = {name: value for name, value in found.items() if isinstance(value, Points)}
        return found

    def _nodes(self, body: Sequence[Node], here: "_Here") -> None:
        for node in body:
            if not here.who.any():
                return
            match node:
                case Define(index=index, digits=digits, offset=offset):
                    total = sum((d.weight * here.values[d.name] for d in digits), self._value(offset, here))
                    here = here.having(index, total)
                case Fresh():
                    pass
                case Loop():
                    self._loop(node, here)
                case Guard():
                    self._guard(node, here)
                case Parts():
                    self._parts(node, here)
                case Lead(index=index):
                    here = here.having(index, 0)
                case _ if isinstance(node, Operator):
                    once = node.unused is Unused.ONCE
                    self._event(node, here.of(here.first()) if once else here)
                case Turn(index=index):
                    self._event(node, here)
                    here = replace(here.having(index, self.block), names={**here.names, index: self.block})
                case Last():
                    self._last(node, here)
                case _:
                    self._event(node, here)

    def _event(self, node: Sync | Last | Operator, here: "_Here") -> None:
        if here.on_data and isinstance(node, Sync | Last):
            if not decides(self.trace.launches[self.launch], self.trace.program.buffers):
                self.trace.faults.append(Fault("a sync under a condition on data is not checked", node.span))
            return
        self.trace.events.append(
            Event(
                node=node,
                launch=self.launch,
                block=self.block,
                part=here.part,
                team=here.team,
                who=here.who,
                names=here.names,
                values=here.values,
                known=self.trace.known[self.launch],
            )
        )

    def _loop(self, loop: Loop, here: "_Here") -> None:
        extent = self._value(loop.extent, here)
        for turn in range(extent if isinstance(extent, int) else max(at(extent, here.who), default=0)):
            who = here.who if isinstance(extent, int) else over(extent, turn, here.who)  # mostly one for all threads
            values, names = {**here.values, loop.index: turn}, {**here.names, loop.index: turn}
            self._nodes(loop.body, _Here(here.team, here.part, who, names, values, here.on_data))

    def _guard(self, guard: Guard, here: "_Here") -> None:
        who = here.first() if guard.once else here.who
        if isinstance(guard.condition, Read):
            for body in (guard.body, guard.orelse):
                self._nodes(body, replace(here, who=who, on_data=True))
            return
        holds = self.trace.known[self.launch].holds(guard.condition, here.values)
        if isinstance(holds, bool):
            self._nodes(guard.body if holds else guard.orelse, here.of(who))
            return
        self._nodes(guard.body, here.of(who & holds))
        self._nodes(guard.orelse, here.of(who.without(holds)))

    def _parts(self, node: Parts, here: "_Here") -> None:
        launch = self.trace.launches[self.launch]
        first = here.team.first
        for part in node.parts:
            threads = part.warps * self.trace.program.target.warp_size
            team = span(first, threads, launch.threads)
            values = {**here.values, **self._digits(launch, team)}
            self._nodes(part.body, replace(here, team=team, part=part.name, who=here.who & team, values=values))
            first += threads

    def _value(self, expr: IndexExpr, here: "_Here") -> Value:
        return self.trace.known[self.launch].of(expr, here.values)

    def _last(self, node: Last, here: "_Here") -> None:
        self._event(node, here)
        event = self.trace.events[-1]
        key = (self.launch, node.counter, tuple(int(event.value(e)[0]) for e in node.at))
        self.trace.counts[key] = self.trace.counts.get(key, 0) + 1
        rounds = self.trace.rounds.get(key, 0)
        runs = bool(self.trace.counts[key] == event.value(node.n)[0])
        self.trace.events[-1] = replace(event, round=rounds, runs=runs)
        if runs:
            self.trace.counts[key], self.trace.rounds[key] = 0, rounds + 1
            self._nodes(node.body, here)


@dataclass(frozen=True, slots=True)
class _Here:
    """What is around a list of nodes."""

    team: Mask
    part: str
    who: Mask
    names: Mapping[str, int]
    values: Mapping[str, Any]
    on_data: bool = False

    def having(self, name: str, value: Any) -> "_Here":
        values = {**self.values, name: value}
        return _Here(self.team, self.part, self.who, self.names, values, self.on_data)

    def first(self) -> Mask:
        """The first thread of the team, if it is here."""
        return self.team.alone() & self.who

    def of(self, who: Mask) -> "_Here":
        """The same, for some of the threads."""
        return _Here(self.team, self.part, who, self.names, self.values, self.on_data)


def by_block(trace: Trace) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """The numbers of the events of each block of each launch."""
    found = {(launch, block): list[int]() for launch, blocks in enumerate(trace.blocks) for block in blocks}
    for number, event in enumerate(trace.events):
        found[event.launch, event.block].append(number)
    yield from found.items()
