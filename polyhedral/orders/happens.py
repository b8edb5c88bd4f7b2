"""The check of all synchronisation: what happens before what in a program, and whether every order is among it.

    unenforced orders, counts that do not come out, waits that never end:    faults(program, sizes)

A program is unrolled at given sizes (`trace.py`). Of each block a few threads stand for all: two of those that take
part in the same events, in one warp and in another. Every event of such a thread is two points, where it comes and
where it goes on, and between them is what it waits for. What is directly before what:

    an event and the next of its thread           an arrival, its turn of a barrier, those that wait for the turn
    a commit, or bytes, turn n full, its waits    a release, turn n free, the acquire of turn n + stages
    a copy's issue, its reads, its writes         reads or writes of a closed group, the wait for it
    publish, await                                n arrivals, the body of `Last`
    the end of a launch, `AfterLaunch`            the end of every thread of a block, the end of the block

An order is enforced iff a path leads from every instance of its source to every instance of its sink that it relates:
in the same iteration of the loops around both, or `distance` iterations later of the one that carries it; loops of two
parts with one index name count as one, and blocks that take turns as iterations of the turn's index. That slots are
reused in time, and that parity is right, follows: an order of `stages` iterations is one more path. Where a pipe is
released this is asked of all its slots, over all loops, whether an order says so or not.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import takewhile

from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import names
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Acquire, Barrier, Fence, FenceKind, Wait, WaitGroup
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.mapped.walks import every_node, goes_on_alone, launches, of_kind, operators
from texpr.polyhedral.orders.flow import decides
from texpr.polyhedral.orders.points import Points
from texpr.polyhedral.orders.rules import Rules
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.orders.small_sizes import small_sizes
from texpr.polyhedral.orders.trace import Event, Fault, likeness, unrolled
from texpr.polyhedral.program import Hazard
from texpr.polyhedral.target import WARPGROUP

ORDERING = (Barrier, Acquire, Wait, WaitGroup, Await, Last, GridBarrier, AfterLaunch)


def check_syncs(program: MappedProgram) -> None:
    """InternalError with the first fault of the program's synchronisation at any of `small_sizes`, or where the facts
    allow none of them."""
    program = shortened(program)
    tried = list(small_sizes(program))
    if not tried:
        raise InternalError(f"{program.kernel.name}: its facts hold at no small sizes, so its syncs are not checked")
    known: set[Hashable] = set()  # at sizes that differ in how many tiles a block takes the same may happen
    for sizes in tried:
        for fault in faults(program, sizes, known):
            shown = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            raise InternalError(f"{program.kernel.name}{f' with {shown}' if shown else ''}: {fault.message}")


def faults(program: MappedProgram, sizes: Mapping[str, int], known: set[Hashable] | None = None) -> tuple[Fault, ...]:
    """What is wrong with the synchronisation of the launches, taken one after the other, at these sizes; nothing where
    what happens is among what is `known` to have no fault, to which it is added."""
    every = tuple(launches(program.host))
    strays = tuple(_strays(every, program.buffers))
    if strays:
        return strays
    try:
        trace = unrolled(program, every, sizes)
    except KeyError as missing:
        return (Fault(f"{missing.args[0]} has no value where it is used"),)
    like = likeness(trace) if known is not None and not trace.faults else None
    if known is not None and like in known:
        return ()
    rules = Rules(Points(trace))
    findings = rules.apply()
    if trace.faults or findings.faults:
        return (*trace.faults, *findings.faults)
    order, circle = rules.points.graph.sorted()
    if circle:
        return (Fault(f"threads wait in a circle: {rules.points.names(circle)}"),)
    asked = [*_asked(rules.points, every), *findings.required]
    wrong = rules.points.graph.unordered([(first, then) for first, then, _ in asked], order)
    found = tuple(dict.fromkeys((*_misread(rules, every), *(asked[n][2] for n in wrong))))
    if known is not None and like is not None and not found:
        known.add(like)
    return found


Asked = tuple[int, int, Fault]
"""Two points, and what is wrong when the first is not before the second."""


def _asked(points: Points, every: Sequence[Launch]) -> Iterator[Asked]:
    """Points of all pairs of instances that orders relate, on all pairs of threads, of one warp or warpgroup where an
    order is."""
    warp = points.trace.program.target.warp_size
    widths = {Scope.WARP: warp, Scope.WARPGROUP: WARPGROUP * warp}
    for number, launch in enumerate(every):
        for order in _orders(launch, points.trace.program.buffers):
            width = widths.get(order.scope)
            fault = Fault(f"nothing orders {order.source} before {order.sink} on {order.buffer}", order.sink_span)
            for source, sinks in _pairs(points, order, number):
                then: dict[
                    tuple[int, int], int
                ] = {}  # by block and thread: its first sink, behind which the others are
                for sink in sinks:
                    for b in points.threads(sink):
                        then.setdefault((points.trace.events[sink].block, b), points.comes(sink, b))
                for a in points.threads(source):
                    first = _begin(points, order, source, sinks[0], a)  # they are one operator of one launch
                    for (_, b), comes in then.items():
                        if width is not None and a // width != b // width:
                            continue
                        if first is None:
                            yield 0, 0, Fault(f"no fence shows {order.sink} what {order.source} wrote", order.sink_span)
                        else:
                            yield first, comes, fault


def _strays(every: Sequence[Launch], buffers: Mapping[str, MappedBuffer]) -> Iterator[Fault]:
    """Orders of what is no operator of the program: no point of the graph stands for it."""
    known = {node.id for launch in every for node in operators(launch.body)}
    for launch in every:
        for order in _orders(launch, buffers):
            for name in sorted({order.source, order.sink} - known):
                yield Fault(f"{name} is ordered and is no operator", order.sink_span)


def _orders(launch: Launch, buffers: Mapping[str, MappedBuffer]) -> tuple[Order, ...]:
    """What a launch needs, and what its syncs claim to enforce; nothing where `flow.py` decides."""
    if decides(launch, buffers):
        return ()
    claimed = (order for node in every_node(launch.body) if isinstance(node, ORDERING) for order in node.orders)
    return tuple(dict.fromkeys((*launch.orders, *claimed)))


def _pairs(points: Points, order: Order, launch: int, *, exactly: bool = False) -> Iterator[tuple[int, Sequence[int]]]:
    """The number of an event, and those of all that an order of a launch relates to it, in their order; the source is
    of no launch that comes later."""
    events, every = points.trace.events, points.near(order.sink, order.scope)
    counted = order.scope is Scope.GRID and _is_counted(points.trace.launches[launch], order)
    for neighbours, sources in points.near(order.source, order.scope).items():
        sinks = [sink for sink in every.get(neighbours, ()) if events[sink].launch == launch]
        alike: dict[tuple[str, ...], dict[tuple[int, ...], list[int]]] = {}  # by the values of the loops around both
        for source in sources:
            event = events[source]
            if not sinks or event.launch > launch or order.carried_by not in (None, *event.names):
                continue
            around = tuple(takewhile(lambda name: name != order.carried_by, event.names)) if not counted else ()
            if around not in alike:
                alike[around] = _by_turns(events, sinks, around)
            same = alike[around].get(tuple(event.names[name] for name in around if name in events[sinks[0]].names), ())
            found = [
                sink
                for sink in same
                if (counted or related(order, event, events[sink], exactly=exactly))
                and _reaches(points, order, source, sink)
            ]
            if found:
                yield source, found


def _by_turns(events: Sequence[Event], sinks: Sequence[int], around: Sequence[str]) -> dict[tuple[int, ...], list[int]]:
    """The events of one operator by their turns of these loops, of those that are around it."""
    found: dict[tuple[int, ...], list[int]] = {}
    for sink in sinks:
        names = events[sink].names
        found.setdefault(tuple(names[name] for name in around if name in names), []).append(sink)
    return found


def _reaches(points: Points, order: Order, source: int, sink: int) -> bool:
    """Whether what the source writes may lie in the memory of the sink's block, where a copy to one rank writes nowhere
    else, and be what the sink reads."""
    event, then = points.trace.events[source], points.trace.events[sink]
    node = event.node
    if order.scope is Scope.GRID and event.launch == then.launch and _are_apart(order, event, then):
        return False
    if not isinstance(node, Copy) or node.rank is None or order.buffer != node.target.buffer:
        return True
    cluster = points.trace.grids[event.launch].cluster_of(event.block)
    return any(cluster[rank] == then.block for rank in event.met(node.rank))


def _is_counted(launch: Launch, order: Order) -> bool:
    """Whether the last of several blocks runs the sink: each block comes to a counter in a turn of its own, so that
    elements alone say what an order relates."""
    inside = (node for last in of_kind(launch.body, Last) for node in every_node(last.body))
    return any(getattr(node, "id", None) == order.sink for node in inside)


def _are_apart(order: Order, source: Event, sink: Event) -> bool:
    """Whether two copies of different blocks surely touch other elements: in a dimension each has one place, of all its
    threads and elements, and these differ."""
    first, then = source.node, sink.node
    if not isinstance(first, Copy) or not isinstance(then, Copy):
        return False
    own, other = (first.target, then.source) if order.hazard is Hazard.FLOW else (first.source, then.target)
    over = {name for copy in (first, then) for name, _ in copy.over}
    for one, two in zip(own.plain or (), other.plain or (), strict=False):
        if not names(one) & over and not names(two) & over:
            places = source.met(one), sink.met(two)
            if len(places[0]) == len(places[1]) == 1 and places[0] != places[1]:
                return True
    return False


def related(order: Order, source: Event, sink: Event, *, exactly: bool = False) -> bool:
    """Whether the order relates two instances: in the carrying loop, at least its distance apart, or `exactly`."""
    for name, turn in source.names.items():
        if name == order.carried_by:
            apart, least = sink.names.get(name, turn) - turn, order.distance or 1
            return apart == least if exactly else apart >= least
        if name in sink.names and sink.names[name] != turn:
            return False
    return order.carried_by is None


def _begin(points: Points, order: Order, source: int, sink: int, thread: int) -> int | None:
    """Where the source is over: its writes, its reads for an anti order, or the fence behind a write that the sink, an
    asynchronous copy of the other proxy, must see; at the end of a launch all is seen."""
    event, then = points.trace.events[source].node, points.trace.events[sink].node
    if points.trace.events[source].launch != points.trace.events[sink].launch:
        return points.over(points.trace.events[source].launch)
    if goes_on_alone(event):
        return points.reads(source, thread) if order.hazard is Hazard.ANTI else points.writes(source, thread)
    if not _of_other_proxy(points, then, order.buffer) or order.hazard is Hazard.ANTI:
        return points.goes_on(source, thread)
    own, place = points.of_thread(source, thread)
    behind = (own[n] for n in range(place + 1, len(own)))
    fence = next((n for n in behind if _is_fence(points.trace.events[n])), None)
    return None if fence is None else points.goes_on(fence, thread)


def _of_other_proxy(points: Points, node: object, buffer: str) -> bool:
    """Whether an operator touches the memory of a buffer by the asynchronous proxy."""
    if isinstance(node, Copy):
        return node.completion in (Completion.TRANSACTION, Completion.BULK)
    return goes_on_alone(node) and points.trace.program.buffers[buffer].memory is not Memory.REG


def _is_fence(event: Event) -> bool:
    return isinstance(event.node, Fence) and event.node.kind is FenceKind.ASYNC_PROXY


def _misread(rules: Rules, every: Sequence[Launch]) -> Iterator[Fault]:
    """Readers of a pipe's buffer that wait for another turn than the one that the order's source filled."""
    points = rules.points
    for number, launch in enumerate(every):
        piped = launch.pipe_of
        for order in _orders(launch, points.trace.program.buffers):
            if order.buffer not in piped or order.hazard is not Hazard.FLOW:
                continue
            for source, sinks in _pairs(points, order, number, exactly=True):
                filled = rules.rings.filled.get((order.buffer, source))
                for sink in sinks:
                    read = rules.rings.read.get((order.buffer, sink))
                    if filled != read:
                        message = f"{order.sink} reads turn {read} of the slots of {order.buffer}"
                        yield Fault(f"{message}, and {order.source} wrote turn {filled}", order.sink_span)
