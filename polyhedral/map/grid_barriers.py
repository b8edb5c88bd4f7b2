"""Where the blocks of a launch with several phases meet, and why.

    phase S0: T[i] = …                what T has is ordered: S0 before S1
    grid barrier met                  T is written before it is read
    phase S1: C[j] = … T[…]

A barrier stands before a phase that touches what one since the last barrier touched too, where one of them writes; in a
loop, since that of the iteration before, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.mapped.between import GridBarrier, Init, Words
from texpr.polyhedral.mapped.operators import Operator
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import acting, launches, map_nodes, node_reads
from texpr.polyhedral.program import Hazard


@dataclass(frozen=True, slots=True)
class _Act:
    """What one node of a phase touches that others may: its name in orders, what it reads and writes, and the loop of
    which an earlier iteration ran it."""

    id: str
    reads: frozenset[str]
    writes: frozenset[str]
    carried_by: str | None = None
    span: Span = NO_SPAN

    def hazards(self, then: "_Act") -> Iterator[tuple[str, Hazard]]:
        """What orders it before another one."""
        yield from ((name, Hazard.OUTPUT) for name in sorted(self.writes & then.writes))
        yield from ((name, Hazard.FLOW) for name in sorted(self.writes & then.reads - then.writes))
        yield from ((name, Hazard.ANTI) for name in sorted(self.reads & then.writes - self.writes))


def joined(
    draft: Draft, launch: Launch, run: Sequence[HostNode], phases: Mapping[str, Launch], block: Define
) -> Launch:
    """The `launch` of these phases: host loops and conditions are its own, and its blocks meet where phases need it."""
    counter = draft.names.fresh("met")
    conditions = _conditions(phases)
    placing = _Placing(draft, {n: _renamed(p, conditions[n]) for n, p in phases.items()}, conditions, counter)
    body, _ = placing.nodes(run, ())
    if placing.orders:
        draft.words.append(Words(name=counter, shape=(), init=Init.ZERO_ONCE))
    every = tuple(launches(run))
    loops = {node.index for node in _loops(run)}
    own = (order for phase in placing.phases.values() for order in phase.orders)
    return replace(
        launch,
        body=(block, *body),
        digits=(*launch.digits, *(digit for phase in phases.values() for digit in phase.digits)),
        orders=(*own, *dict.fromkeys(placing.orders)),
        arguments=tuple(dict.fromkeys(a for one in every for a in one.arguments if a not in loops)),
        span=every[0].span.to(every[-1].span),
    )


def _conditions(phases: Mapping[str, Launch]) -> dict[str, dict[str, str]]:
    """The names that the conditions on data of each phase have in all of their launch, where these are numbered."""
    found, before = dict[str, dict[str, str]](), 0
    for name, phase in phases.items():
        own = [act for act, place in acting(phase.body) if isinstance(place.node, Guard)]
        found[name] = {act: f"if@{before + number}" for number, act in enumerate(own)}
        before += len(own)
    return found


def _renamed(phase: Launch, names: Mapping[str, str]) -> Launch:
    def told(order: Order) -> Order:
        return replace(order, source=names.get(order.source, order.source), sink=names.get(order.sink, order.sink))

    def change(node: Node) -> Node:
        return replace(node, orders=tuple(map(told, node.orders))) if isinstance(node, Barrier) else node

    return replace(phase, orders=tuple(map(told, phase.orders)), body=map_nodes(phase.body, change)) if names else phase


def _loops(run: Sequence[HostNode]) -> Iterator[HostLoop[Launch]]:
    """Every loop of a host program."""
    for node in run:
        match node:
            case HostLoop(body=body):
                yield node
                yield from _loops(body)
            case HostIf(then=then, orelse=orelse):
                yield from _loops((*then, *orelse))
            case _:
                pass


class _Placing:
    """Phases in order, behind their barriers; `orders` has what the barriers enforce."""

    def __init__(
        self, draft: Draft, phases: Mapping[str, Launch], conditions: Mapping[str, Mapping[str, str]], counter: str
    ) -> None:
        self.draft, self.phases, self.conditions, self.counter = draft, phases, conditions, counter
        self.orders: list[Order] = []

    def nodes(self, run: Sequence[HostNode], open: tuple[_Act, ...]) -> tuple[tuple[Node, ...], tuple[_Act, ...]]:
        """The nodes of a launch for those of the host, where what is `open` ran since the last barrier, and what is
        open behind them."""
        found: list[Node] = []
        for node in run:
            match node:
                case Launch(name=name):
                    own = tuple(self._acts(self.phases[name]))
                    orders = tuple(order for act in open for then in own for order in self._orders(act, then))
                    if orders:
                        found.append(GridBarrier(counter=self.counter, orders=orders, span=node.span))
                        self.orders += orders
                        open = ()
                    open = (*open, *own)
                    found += self.phases[name].body
                case HostLoop(index=index, extent=extent, body=inside):
                    body, end = self._loop(index, inside, open)
                    found.append(Loop(index=index, extent=extent, body=body, span=node.span))
                    open = tuple(dict.fromkeys((*open, *end)))
                case HostIf(condition=condition, then=then, orelse=orelse):
                    first, one = self.nodes(then, open)
                    second, other = self.nodes(orelse, open)
                    found.append(
                        Guard(condition=condition, body=first, orelse=second, uniform=Scope.GRID, span=node.span)
                    )
                    open = tuple(dict.fromkeys((*one, *other)))
        return tuple(found), open

    def _loop(
        self, index: str, inside: Sequence[HostNode], open: tuple[_Act, ...]
    ) -> tuple[tuple[Node, ...], tuple[_Act, ...]]:
        """The body of a loop, whose phases come after those of the iteration before, too: what a first try leaves open
        is open at its begin."""
        _, end = self._tried(inside, open)
        again = (replace(act, carried_by=index) for act in end if act not in open)
        body, end = self.nodes(inside, tuple(dict.fromkeys((*open, *again))))
        own = (act if act in open else replace(act, carried_by=None) for act in end)
        return body, tuple(dict.fromkeys(own))

    def _tried(self, inside: Sequence[HostNode], open: tuple[_Act, ...]) -> tuple[tuple[Node, ...], tuple[_Act, ...]]:
        before = len(self.orders)
        found = self.nodes(inside, open)
        del self.orders[before:]
        return found

    def _acts(self, phase: Launch) -> Iterator[_Act]:
        """What a phase does in memory that its threads share."""
        for name, place in acting(phase.body):
            node = place.node
            reads, writes, span = frozenset[str](), frozenset[str](), NO_SPAN
            if isinstance(node, Operator):
                writes, span = frozenset(written for written, _ in node.writes), node.span
                reads = frozenset(read.buffer for read in node.reads)
            elif isinstance(node, Guard):
                reads, span = frozenset(read.buffer for read in node_reads(node)), node.span
            reads, writes = frozenset(filter(self._is_shared, reads)), frozenset(filter(self._is_shared, writes))
            if reads or writes:
                yield _Act(self.conditions[phase.name].get(name, name), reads, writes, span=span)

    def _is_shared(self, name: str) -> bool:
        return self.draft.buffers[name].memory is not Memory.REG

    def _orders(self, act: _Act, then: _Act) -> Iterator[Order]:
        """What is over of an act before another one begins."""
        for name, hazard in act.hazards(then):
            far = self.draft.buffers[name].memory is Memory.GLOBAL
            yield Order(
                source=act.id,
                sink=then.id,
                buffer=name,
                hazard=hazard,
                scope=Scope.GRID if far else Scope.BLOCK,
                carried_by=act.carried_by,
                distance=1 if act.carried_by else None,
                source_span=act.span,
                sink_span=then.span,
            )
