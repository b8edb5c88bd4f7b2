"""The orders that a launch needs: accesses of different threads of one block that touch one physical element.

A shared buffer has one copy for each block, whatever `seq` iteration or entry of its `new` is running; so a write in
the next iteration conflicts with a read in this one, and the order is carried by that loop.

    seq K k { par 64 a { t[a] = … } ; par 64 b { … t[63 - b] … } }
    S0 -> S1 flow in one iteration of k,  S1 -> S0 anti carried by k

Sizes, host indices and the block's digits are parameters, equal on both sides; no floor of a flat thread number
occurs. Iterations of one par are proved independent, so inside one execution of a band nothing is ordered: what two
statements of the program with equal digits touch alike, one thread touches. (`tests/polyhedral/order_oracle.py` checks
this and all else that is not asked here, by enumeration.)
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from texpr.grammar.ast import Gather
from texpr.grammar.diagnostics import TExprError, error
from texpr.grammar.index.text import isl_name, isl_text
from texpr.polyhedral import isl
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import GRID_PLACES, Memory, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.orders.actors import THREAD, WARP_SIZE, Actor, Touch, collect
from texpr.polyhedral.program import Hazard, Program

STEPS = 200_000  # of one question; an order not computed within them is required
MAX_QUESTIONS = 2_500  # different questions of one launch
MAX_PAIRS = 100_000  # pairs of accesses of one launch, one for each loop that may carry an order
MAX_PIECES = 16  # of a relation that is written out
MAX_RELATION = 4000  # characters of an order's relation; the rest is cut


def launch_orders(launch: Launch, buffers: Mapping[str, MappedBuffer], program: Program) -> tuple[Order, ...]:
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
    found: dict[Order, None] = {}
    pairs = 0
    for name, touches in by_buffer.items():
        entry = actors.entries.get(name, ())
        for source in touches:
            for sink in touches:
                for question in finder.pair(source, sink, entry):
                    pairs += 1
                    if pairs > MAX_PAIRS or len(finder.answers) > MAX_QUESTIONS:
                        raise _too_many(program, sink)
                    order = finder.order(*question)
                    if order is not None:
                        found.setdefault(order)
    return tuple(found)


def _too_many(program: Program, sink: Touch) -> TExprError:
    message = f"`{program.kernel.name}` has too many pairs of accesses that threads of a block order"
    help = "split the kernel, or replace unrolled statements by loops"
    return TExprError([error("E0307", message, sink.actor.span, help=help)])


Question = tuple[Touch, Touch, Hazard, tuple[Node, ...], Loop | None]
"""Source, sink, their hazard, their common nodes, and the loop that carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The scope of the threads whose accesses meet, and their relation as text."""

    scope: Scope
    relation: str
    computed: bool = True


class _Finder:
    def __init__(self, launch: Launch, program: Program) -> None:
        self.launch = launch
        self.program = program
        block = [d for d in launch.digits if d.place in GRID_PLACES]
        self.block = tuple(
            text
            for d in block
            if (radix := isl_text(d.radix, {})) is not None
            for text in (f"0 <= {isl_name(d.name)}", f"{isl_name(d.name)} < {radix}")
        )
        names = [s.name for s in program.kernel.sizes] + [d.name for d in block] + list(launch.arguments)
        self.names = tuple(isl_name(n) for n in dict.fromkeys(names))
        self.sides: dict[tuple[int, str], _Side] = {}
        self.answers: dict[tuple[_Side, _Side, int, int], _Answer | None] = {}
        self.other_warp = isl.Map(
            "{ thread[lane, warp] -> thread[lane', warp'] : warp != warp' }", context=program.work.context
        )

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
        one_band = bool(a.digits) and a.digits == b.digits and a.proved and b.proved
        if not one_band and a.around.path < b.around.path and not _exclusive(a, b, len(common)):
            yield source, sink, hazard, common, None
        for node in common[: a.band_depth] if one_band else common:
            if not isinstance(node, Loop) or node.digit is not None or node.parallel:
                continue
            if hazard is Hazard.FLOW and any(node is outer for outer in entry):
                continue
            yield source, sink, hazard, common, node

    def order(
        self, source: Touch, sink: Touch, hazard: Hazard, common: tuple[Node, ...], carrier: Loop | None
    ) -> Order | None:
        """The order that a question finds, or None. Questions that differ in names only are asked once."""
        loops = [node for node in common if isinstance(node, Loop)]
        carried = len(loops) if carrier is None else next(n for n, loop in enumerate(loops) if loop is carrier)
        first, second = self._side(source, ""), self._side(sink, "'")
        key = (first, second, len(loops), carried)
        if key not in self.answers:
            self.answers[key] = self._answer(first, second, len(loops), carried, sink)
        answer = self.answers[key]
        if answer is None:
            return None
        return Order(
            source=source.actor.id,
            sink=sink.actor.id,
            buffer=source.buffer,
            hazard=hazard,
            scope=answer.scope,
            carried_by=None if carrier is None else carrier.index,
            relation=answer.relation,
            computed=answer.computed,
            source_span=source.actor.span,
            sink_span=sink.actor.span,
        )

    def _answer(self, first: "_Side", second: "_Side", loops: int, carried: int, sink: Touch) -> _Answer | None:
        """Whether accesses of different threads meet; one that takes more than its steps is taken to."""
        work = self.program.work
        width = len(first.dims) + len(second.dims) + len(self.names)
        try:
            with work.limited(sink.actor.span, "the order of these accesses", width, STEPS):
                conflict = self._conflict(first, second, loops, carried)
                if conflict.is_empty():
                    return None
                crossing = not conflict.intersect(self.other_warp).is_empty()
        except TExprError:
            if work.exhausted:
                raise
            scope = Scope.BLOCK if self.launch.threads > WARP_SIZE else Scope.WARP
            return _Answer(scope=scope, relation="not computed: it took more steps than allowed", computed=False)
        pieces = conflict.n_basic_map()
        relation = str(conflict)[:MAX_RELATION] if pieces <= MAX_PIECES else f"a union of {pieces} relations"
        return _Answer(scope=Scope.BLOCK if crossing else Scope.WARP, relation=relation)

    def _side(self, touch: Touch, mark: str) -> "_Side":
        """A touch as isl text, made once: it meets many others."""
        key = (id(touch), mark)
        if key not in self.sides:
            self.sides[key] = _side(touch, mark)
        return self.sides[key]

    def _conflict(self, first: "_Side", second: "_Side", loops: int, carried: int) -> isl.Map:
        """The pairs of different threads whose accesses meet: a relation thread[lane, warp] -> thread[lane, warp]."""
        parts = [*self.block, *first.constraints, *second.constraints]
        for x, y in zip(first.element, second.element, strict=True):
            if x is not None and y is not None:
                parts.append(f"{x} = {y}")
        for number in range(min(carried + 1, loops)):
            parts.append(f"{first.dims[number]} {'<' if number == carried else '='} {second.dims[number]}")
        inner = ", ".join((*first.dims, *second.dims))
        where = " and ".join(parts)
        held = f"exists ({inner} : {where})" if inner else where
        text = (
            f"[{', '.join(self.names)}] -> {{ thread[lane, warp] -> thread[lane', warp'] : "
            f"(lane != lane' or warp != warp') and {held} }}"
        )
        relation = isl.Map(text, context=self.program.work.context)
        return self.program.facts.within(relation).coalesce()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One side of a pair as isl text; an element of None is data and may be any. Dimensions are numbered, those of
    loops first, so that sides which differ in names only are equal."""

    dims: tuple[str, ...]
    constraints: tuple[str, ...]
    element: tuple[str | None, ...]


def _side(touch: Touch, mark: str) -> _Side:
    actor = touch.actor
    names = {name: f"dim{number}{mark}" for number, name in enumerate(actor.around.dims)}
    dims = tuple(names.values())
    names |= {name: name + mark for name in THREAD}
    env = {index: _renamed(text, names) for index, text in actor.around.env.items()}
    thread = (f"lane = {actor.lane}", f"warp = {actor.warp}")
    return _Side(
        dims=dims,
        constraints=tuple(_renamed(text, names) for text in (*thread, *actor.around.constraints)),
        element=tuple(None if isinstance(s, Gather) else isl_text(s, env) for s in touch.subscripts),
    )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with other names for some of those in it."""
    return re.sub(r"[A-Za-z_][A-Za-z_0-9]*", lambda m: names.get(m[0], m[0]), text)


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
