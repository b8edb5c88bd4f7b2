"""The orders that a launch needs: accesses of different threads of one block that touch one physical element.

A shared buffer has one copy for each block, whatever `seq` iteration or entry of its `new` is running; so a write in
the next iteration conflicts with a read in this one, and the order is carried by that loop.

    seq K k { par 64 a { t[a] = … } ; par 64 b { … t[63 - b] … } }
    S0 -> S1 flow in one iteration of k,  S1 -> S0 anti carried by k

Sizes, host indices and the block's digits are parameters, equal on both sides; no floor of a flat thread number
occurs. Iterations of one par are proved independent, so inside one execution of a band nothing is ordered.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from texpr.grammar.ast import Gather
from texpr.grammar.diagnostics import TExprError, error
from texpr.polyhedral.actors import THREAD, WARP_SIZE, Actor, Touch, collect
from texpr.polyhedral.isl_text import expr_text, identifier, marked
from texpr.polyhedral.mapping import (
    GRID_PLACES,
    Guard,
    Loop,
    MappedBuffer,
    MappedLaunch,
    Memory,
    Node,
    Order,
    Scope,
)
from texpr.polyhedral.program import Hazard, Program

MAX_OPERATIONS = 2_000_000  # isl operations for one pair of accesses
MAX_TOTAL = 6_000_000  # isl operations for all pairs of a launch, shared equally; an order not computed is required
MIN_OPERATIONS = 5_000
MAX_PAIRS = 2_500  # pairs of accesses of one launch, one for each loop that may carry an order
MAX_RELATION = 4000  # characters of an order's relation; the rest is cut


def launch_orders(launch: MappedLaunch, buffers: Mapping[str, MappedBuffer], program: Program) -> tuple[Order, ...]:
    """The orders between threads of one block, in text order of source and sink, each once."""
    if launch.threads == 1:
        return ()
    actors = collect(launch)
    by_buffer: dict[str, list[Touch]] = {}
    for touch in actors.touches:
        placed = buffers[touch.buffer]
        if placed.memory is not Memory.REG and placed.scope is not Scope.THREAD:
            by_buffer.setdefault(touch.buffer, []).append(touch)
    finder = _Finder(launch, program)
    asked: list[Question] = []
    for name, touches in by_buffer.items():
        entry = actors.entries.get(name, ())
        for source in touches:
            for sink in touches:
                asked += finder.pair(source, sink, entry)
                if len(asked) > MAX_PAIRS:
                    message = f"`{program.kernel.name}` has too many pairs of accesses that threads of a block order"
                    help = "split the kernel, or replace unrolled statements by loops"
                    raise TExprError([error("E0307", message, sink.actor.span, help=help)])
    operations = max(MIN_OPERATIONS, min(MAX_OPERATIONS, MAX_TOTAL // max(len(asked), 1)))
    found: dict[Order, None] = {}
    for question in asked:
        for order in finder.order(*question, operations):
            found.setdefault(order)
    return tuple(found)


Question = tuple[Touch, Touch, Hazard, tuple[Node, ...], Loop | None]
"""Source, sink, their hazard, their common nodes, and the loop that carries it."""


class _Finder:
    def __init__(self, launch: MappedLaunch, program: Program) -> None:
        self.launch = launch
        self.program = program
        block = [d for d in launch.digits if d.place in GRID_PLACES]
        self.block = tuple(
            text
            for d in block
            if (radix := expr_text(d.radix, {})) is not None
            for text in (f"0 <= {identifier(d.name)}", f"{identifier(d.name)} < {radix}")
        )
        names = [s.name for s in program.kernel.sizes] + [d.name for d in block] + list(launch.arguments)
        self.parameters = ", ".join(identifier(n) for n in dict.fromkeys(names))
        self.sides: dict[tuple[int, str], _Side] = {}

    def pair(self, source: Touch, sink: Touch, entry: tuple[Node, ...]) -> "Iterator[Question]":
        """The orders to look for from one access to another: in one iteration of all common loops, and carried by each.

        `entry` are the nodes around the buffer's `Fresh`: a loop around it carries no flow, for a new entry is
        undefined, and undefined reads are refused.
        """
        if not (source.writes or sink.writes) or (source.atomic and sink.atomic and source.op == sink.op):
            return
        hazard = Hazard.ANTI if not source.writes else Hazard.OUTPUT if sink.writes else Hazard.FLOW
        a, b = source.actor, sink.actor
        common = _common(a, b)
        one_band = bool(a.digits) and a.digits == b.digits
        if not one_band and a.around.path < b.around.path and not _exclusive(a, b, len(common)):
            yield source, sink, hazard, common, None
        for node in common[: a.band_depth] if one_band else common:
            if not isinstance(node, Loop) or node.digit is not None or node.parallel:
                continue
            if hazard is Hazard.FLOW and any(node is outer for outer in entry):
                continue
            yield source, sink, hazard, common, node

    def order(
        self,
        source: Touch,
        sink: Touch,
        hazard: Hazard,
        common: tuple[Node, ...],
        carrier: Loop | None,
        operations: int,
    ) -> Iterator[Order]:
        """The order that a question finds, or none; one that takes more operations is required."""
        context = self.program.context.get_ctx()
        context.reset_operations()
        context.set_max_operations(operations)
        try:
            conflict = self._conflict(source, sink, common, carrier)
            if conflict.is_empty():
                return
            other_warp = isl.Map("{ thread[lane, warp] -> thread[lane', warp'] : warp != warp' }", context=context)
            crossing = not conflict.intersect(other_warp).is_empty()
            relation = str(conflict)[:MAX_RELATION]
        except isl.Error:
            crossing, relation = self.launch.threads > WARP_SIZE, "not computed: it took more steps than allowed"
        finally:
            context.set_max_operations(0)
            context.reset_operations()
        yield Order(
            source=source.actor.id,
            sink=sink.actor.id,
            buffer=source.buffer,
            hazard=hazard,
            scope=Scope.BLOCK if crossing else Scope.WARP,
            carried_by=None if carrier is None else carrier.index,
            relation=relation,
            source_span=source.actor.span,
            sink_span=sink.actor.span,
        )

    def _side(self, touch: Touch, mark: str) -> "_Side":
        """A touch as isl text, made once: it meets many others."""
        key = (id(touch), mark)
        if key not in self.sides:
            self.sides[key] = _side(touch, mark)
        return self.sides[key]

    def _conflict(self, source: Touch, sink: Touch, common: tuple[Node, ...], carrier: Loop | None) -> isl.Map:
        """The pairs of different threads whose accesses meet: a relation thread[lane, warp] -> thread[lane, warp]."""
        first, second = self._side(source, ""), self._side(sink, "'")
        parts = [*self.block, *first.constraints, *second.constraints]
        for x, y in zip(first.element, second.element, strict=True):
            if x is not None and y is not None:
                parts.append(f"{x} = {y}")
        for node in common:
            if isinstance(node, Loop):
                name = identifier(node.index)
                parts.append(f"{name} < {name}'" if node is carrier else f"{name} = {name}'")
                if node is carrier:
                    break
        inner = ", ".join((*first.dims, *second.dims))
        where = " and ".join(parts)
        held = f"exists ({inner} : {where})" if inner else where
        text = (
            f"[{self.parameters}] -> {{ thread[lane, warp] -> thread[lane', warp'] : "
            f"(lane != lane' or warp != warp') and {held} }}"
        )
        relation = isl.Map(text, context=self.program.context.get_ctx())
        return relation.intersect_params(self.program.context).coalesce()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One side of a pair as isl text; an element of None is data and may be any."""

    dims: tuple[str, ...]
    constraints: tuple[str, ...]
    element: tuple[str | None, ...]


def _side(touch: Touch, mark: str) -> _Side:
    actor = touch.actor
    names = {*actor.around.dims, *THREAD}
    env = {index: marked(text, names, mark) for index, text in actor.around.env.items()}
    thread = (f"lane = {actor.lane}", f"warp = {actor.warp}")
    return _Side(
        dims=tuple(dim + mark for dim in actor.around.dims),
        constraints=tuple(marked(text, names, mark) for text in (*thread, *actor.around.constraints)),
        element=tuple(None if isinstance(s, Gather) else expr_text(s, env) for s in touch.subscripts),
    )


def _common(a: Actor, b: Actor) -> tuple[Node, ...]:
    """The nodes around both."""
    shared: list[Node] = []
    for x, y in zip(a.around.nodes, b.around.nodes, strict=False):
        if x is not y:
            break
        shared.append(x)
    return tuple(shared)


def _exclusive(a: Actor, b: Actor, depth: int) -> bool:
    """Whether the two stand in different branches of one condition."""
    if depth == 0 or not isinstance(a.around.nodes[depth - 1], Guard):
        return False
    return a.around.path[2 * depth - 1] != b.around.path[2 * depth - 1]
