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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, tee

from texpr.grammar.ast import Condition, IndexVar
from texpr.grammar.diagnostics import TExprError, error
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.mapped.operators import Operator
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import GRID_PLACES, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.walks import every_node, node_reads, operator_buffers
from texpr.polyhedral.orders.actors import Actor, Touch, below, collect
from texpr.polyhedral.orders.reach import (
    IN,
    OUT,
    Instances,
    across_lanes,
    across_warps,
    instances,
    least_distance,
    meetings,
    reach,
)
from texpr.polyhedral.program import Hazard, Program
from texpr.polyhedral.walk import subscript_names

STEPS = 200_000  # of one question; an order not computed within them is required
MAX_QUESTIONS = 2_500  # different questions of one launch
MAX_PAIRS = 100_000  # pairs of accesses of one launch, one for each loop that may carry an order


def launch_orders(
    launch: Launch, buffers: Mapping[str, MappedBuffer], program: Program, warp_size: int
) -> tuple[Order, ...]:
    """The orders between threads of one block, in text order of source and sink, each once."""
    if launch.threads == 1:
        return ()
    shared = _shared(launch, buffers)
    if not shared:
        return ()
    actors = collect(launch, warp_size, shared)
    by_buffer: dict[str, list[Touch]] = {}
    for touch in actors.touches:
        by_buffer.setdefault(touch.buffer, []).append(touch)
    fixed = {name: _Fixed.of(launch, program, actors.alike, touches) for name, touches in by_buffer.items()}
    finder = _Finder(launch, program, warp_size, fixed)
    found: dict[Order, Order] = {}
    pairs = 0
    for name, touches in by_buffer.items():
        entry = actors.entries.get(name, ())
        for source in touches:
            for sink in touches:
                for question in finder.pair(source, sink, entry):
                    pairs += 1
                    if pairs > MAX_PAIRS or max(len(finder.answers), len(finder.pairs)) > MAX_QUESTIONS:
                        raise _too_many(program, sink)
                    order = finder.order(*question)
                    if order is not None:
                        found[order] = _joined(found[order], order) if order in found else order
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed:
    """What is one value for all accesses to a buffer by the threads of a block: names, and the limits of digits."""

    names: tuple[str, ...]
    limits: tuple[Condition, ...]

    @staticmethod
    def of(launch: Launch, program: Program, leads: tuple[str, ...], touches: Sequence[Touch]) -> "_Fixed":
        """Without those digits of the block that no access to the buffer speaks of, nor a condition around one: all
        their values, of which there are some, are alike."""
        acting = {id(touch.actor): touch.actor for touch in touches}.values()
        spoken = set[str]().union(*(names(condition) for actor in acting for condition in actor.constraints))
        spoken = spoken.union(*(subscript_names(touch.subscripts) for touch in touches))
        block = [d for d in launch.digits if d.place in (*GRID_PLACES, Place.CLUSTER)]
        block = [d for d in block if d.name in spoken or (constant_value(d.radix) or 0) < 1]
        sizes = (size.name for size in program.kernel.sizes)
        return _Fixed(
            names=tuple(dict.fromkeys((*sizes, *(d.name for d in block), *launch.arguments, *leads))),
            limits=tuple(limit for d in block for limit in below(IndexVar(name=d.name), d.radix)),
        )


def _shared(launch: Launch, buffers: Mapping[str, MappedBuffer]) -> set[str]:
    """The buffers of more than one thread in which an order may be needed: a node writes them, and another one touches
    them, or the same one in another iteration of a loop."""
    written, touching, repeated = set[str](), Counter[str](), False
    for node in every_node(launch.body):
        match node:
            case Loop():
                repeated |= _may_carry(node)
            case Guard():
                touching.update({read.buffer for read in node_reads(node)})
            case _ if isinstance(node, Operator):
                written.update(name for name, _ in node.writes)
                touching.update(operator_buffers(node))
            case _:
                pass
    several = (buffers[name] for name in written if repeated or touching[name] > 1)
    several = (b for b in several if b.memory is not Memory.REG and b.scope is not Scope.THREAD)
    # what blocks of a cluster put there, or goes through a pipe, has orders and waits of its own
    return {b.name for b in several if b.memory is not Memory.CLUSTER and b.name not in launch.pipe_of}


def _may_carry(loop: Loop) -> bool:
    """Whether one iteration of a loop comes after another for what it holds."""
    return loop.digit is None and not loop.parallel


def _joined(one: Order, other: Order) -> Order:
    """An order that two pairs of accesses ask for."""
    return replace(
        one,
        met=(*one.met, *other.met) if one.met and other.met else (),
        computed=one.computed or other.computed,
        distance=None if one.distance is None or other.distance is None else min(one.distance, other.distance),
    )


def _too_many(program: Program, sink: Touch) -> TExprError:
    message = f"`{program.kernel.name}` has too many pairs of accesses that threads of a block order"
    help = "split the kernel, or replace unrolled statements by loops"
    return TExprError([error("E0307", message, sink.actor.span, help=help)])


Question = tuple[Touch, Touch, Hazard, tuple[Node, ...], Loop | None]
"""Source, sink, their hazard, their common nodes, and the loop that carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The scope of the threads whose accesses meet, these, and the least distance along the carrying loop."""

    scope: Scope
    met: isl.Map | None = None
    distance: int | None = None


class _Finder:
    def __init__(self, launch: Launch, program: Program, warp_size: int, fixed: Mapping[str, _Fixed]) -> None:
        self.launch, self.warp_size = launch, warp_size
        self.program = program
        self.fixed = fixed  # by buffer
        self.instances: dict[
            tuple[int, tuple[str, ...]], Instances
        ] = {}  # by the identity of actors, and what is fixed
        self.reaches: dict[int, isl.Map | None] = {}  # by the identity of touches
        self.alike: dict[int, list[isl.Map]] = {}  # by hash: of maps that differ in names only, the first
        self.pairs: dict[tuple[int, int], isl.Map | None] = {}  # by the identity of reaches
        self.answers: dict[tuple[int, int, int], _Answer | None] = {}  # by the identity of pairs

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
            if not isinstance(node, Loop) or not _may_carry(node):
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
        pairs = self._together(source, sink)
        key = (id(pairs), len(loops), carried)
        if key not in self.answers:
            self.answers[key] = self._answer(pairs, len(loops), carried, sink.actor.span)
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
            met=() if answer.met is None else (answer.met,),
            distance=answer.distance,
            computed=answer.met is not None,
            source_span=source.actor.span,
            sink_span=sink.actor.span,
        )

    def _answer(self, pairs: isl.Map | None, loops: int, carried: int, span: Span) -> _Answer | None:
        """Whether accesses of different threads meet; where that takes more than their steps, they are taken to."""
        far = 1 if carried < loops else None
        answer = _Answer(scope=Scope.BLOCK if self.launch.threads > self.warp_size else Scope.WARP, distance=far)
        if pairs is None:
            return answer
        width = pairs.dim(IN) + pairs.dim(OUT) + pairs.dim(isl.dim_type.param)
        with self._within_steps(span, width):
            met = self.program.facts.within(meetings(pairs, loops, carried))
            warps, same_warps = tee(across_warps(met))
            scope = Scope.WARP if all(part.is_empty() for part in warps) else Scope.BLOCK
            if scope is Scope.WARP and all(part.is_empty() for part in across_lanes(met)):
                return None
            answer = _Answer(scope=scope, met=met, distance=far)
        if answer.met is not None and far is not None:
            with self._within_steps(span, width):
                answer = replace(answer, distance=least_distance(chain(same_warps, across_lanes(met)), met, carried))
        return answer

    def _together(self, source: Touch, sink: Touch) -> isl.Map | None:
        """The instances of two accesses at one element, found once for every loop that may carry an order, and for all
        accesses that differ in names only; None where that takes more than their steps."""
        first, second = self._reach(source), self._reach(sink)
        if first is None or second is None:
            return None
        key = (id(first), id(second))
        if key not in self.pairs:
            found: isl.Map | None = None
            width = first.dim(IN) + second.dim(IN) + first.dim(isl.dim_type.param)
            with self._within_steps(sink.actor.span, width):
                found = self._first_alike(first.apply_range(second.reverse()))
            self.pairs[key] = found
        return self.pairs[key]

    def _first_alike(self, made: isl.Map) -> isl.Map:
        """The first of the maps that differ from this one in names only, which may be itself."""
        known = self.alike.setdefault(hash(made), [])
        for one in known:
            if one.plain_is_equal(made):
                return one
        known.append(made)
        return made

    @contextmanager
    def _within_steps(self, span: Span, width: int) -> Iterator[None]:
        """What takes more steps than a question may is left undone."""
        try:
            with self.program.work.limited(span, "the order of these accesses", width, STEPS):
                yield
        except TExprError:
            if self.program.work.exhausted:
                raise

    def _reach(self, touch: Touch) -> isl.Map | None:
        """What an access reaches, made once, for it meets many others; None where that takes more steps."""
        if id(touch) not in self.reaches:
            found: isl.Map | None = None
            fixed = self.fixed[touch.buffer]
            with self._within_steps(touch.actor.span, len(touch.actor.dims) + len(fixed.names)):
                found = self._first_alike(reach(touch, self._instances(touch.actor, fixed)))
            self.reaches[id(touch)] = found
        return self.reaches[id(touch)]

    def _instances(self, actor: Actor, fixed: _Fixed) -> Instances:
        """The instances of an actor, made once for all that it touches."""
        key = (id(actor), fixed.names)
        if key not in self.instances:
            self.instances[key] = instances(actor, fixed.names, fixed.limits, self.program.work)
        return self.instances[key]


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
