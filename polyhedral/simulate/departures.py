"""Where flights begin: what an operator that is over later takes along, and by what others learn of its end."""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.index.value import condition_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.atoms import Team as AtomTeam
from texpr.polyhedral.mapped.expand import wanted
from texpr.polyhedral.mapped.operators import Contract, Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import Clocks, Team
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.flights import GROUPS, READ, WRITTEN, Flight, Groups
from texpr.polyhedral.simulate.operands import Elements, meant, warps
from texpr.polyhedral.simulate.pipes import Pipes
from texpr.polyhedral.simulate.products import Products
from texpr.polyhedral.simulate.reductions import spread
from texpr.polyhedral.target import WARPGROUP


@dataclass(frozen=True, slots=True)
class Touch:
    """An agent's act in the memory of a block, at its time, which must be before the block ends."""

    block: int
    agent: int
    time: int
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Departures:
    """The flights of a launch. Products of a warp run one after the other, and those of a warpgroup are of all of its
    warps: each comes as often as the others, to the same tiles."""

    geometry: Geometry
    clocks: Clocks
    team: Team
    groups: Groups
    pipes: Pipes = field(init=False)
    evaluator: Evaluator = field(init=False)
    products: Products = field(init=False)
    flights: list[Flight] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)  # of all flights
    touches: list[Touch] = field(default_factory=list)
    latest: dict[int, Flight] = field(default_factory=dict)  # by warp: its last product
    fences: dict[int, int] = field(default_factory=dict)  # by agent: when it fenced its registers
    came: dict[tuple[int, int], dict[int, list[dict[str, int]]]] = field(default_factory=dict)
    named: dict[int, str] = field(default_factory=dict)  # products by their identity

    def begin(self, operator: Copy | Contract, lanes: Lanes, part: str) -> None:
        if isinstance(operator, Copy):
            self._copy(operator, lanes, part)
            return
        for warp in warps(operator, lanes, self.geometry.warp):
            self._multiply(operator, warp)

    # ---- copies: one agent for each thread ----

    def _copy(self, copy: Copy, lanes: Lanes, part: str) -> None:
        evaluator, memory = self.evaluator, self.evaluator.memory
        evaluator.at(copy.id, copy.span)
        if copy.within is not None and (copy.completion is not Completion.CP_ASYNC or copy.within.other is None):
            raise failure(
                f"{copy.id}: a copy on its way that brings some elements of a box is not simulated", copy.span
            )
        source, target = memory[copy.source.buffer], memory[copy.target.buffer]
        agent_of = {
            thread: self._agent(
                f"copy {copy.id} of", np.array([thread]), proxied=copy.completion is not Completion.CP_ASYNC
            )
            for thread in lanes.thread.tolist()
        }
        every = spread(copy.over, lanes)
        by = np.array([agent_of[t] for t in every.thread.tolist()], np.int64)
        own = int(lanes.thread[0]) // self.geometry.threads
        blocks, over = self._into_pipe(copy, lanes, part, len(every.thread)) if copy.pipe else ((own,), None)
        read, written = (self._there(copy, view, every) for view in (copy.source, copy.target))
        if copy.within is not None:  # the others are not read, and become what stands for them
            read = read & np.broadcast_to(condition_value(wanted(copy.over, copy.within), every.values), read.shape)
        reading, writing = every.only(read), every.only(written)
        taken_from = evaluator.address(
            source, evaluator.copies.read(source.buffer, reading.thread), copy.source.subscripts, reading
        )
        written_to = [
            evaluator.address(target, into, copy.target.subscripts, writing)
            for into in self._targets(copy, target.buffer, writing.thread, blocks)
        ]

        def take() -> Array:
            values = np.zeros(len(by), numerics.storage(copy.source.dtype))  # where a clipped box has no element
            if copy.within is not None and copy.within.other is not None:
                values[:] = copy.within.other.value
            # a box takes whole rows and columns of tiles, also where the kernel goes over a part of an array
            more = copy.clipped and source.buffer.memory is Memory.GLOBAL
            values[read] = evaluator.fetch(copy.source.buffer, taken_from, by[read], more=more)
            return values

        def put(values: Array) -> None:
            for place in written_to:
                evaluator.put(copy.target.buffer, place, values[written], by[written])

        flight = Flight(operator=copy, agent_of=agent_of, take=take, put=put)
        if over is not None:
            flight.over = partial(over, flight.agents())
        for agent in agent_of.values():
            if source.buffer.memory is Memory.SHARED:
                self.touches.append(Touch(own, agent, READ))
            if target.buffer.memory is Memory.SHARED:
                self.touches += [Touch(block, agent, WRITTEN) for block in blocks]
        self._depart(flight)

    def _into_pipe(
        self, copy: Copy, lanes: Lanes, part: str, elements: int
    ) -> tuple[tuple[int, ...], Callable[..., None] | None]:
        """The blocks that get the elements, and what is told there when they have come, if anything."""
        rank = None if copy.rank is None else _same(lanes.index(copy.rank), copy)
        pipe, number, blocks = self.pipes.filling(copy, lanes.thread, part, rank)
        if copy.completion is not Completion.TRANSACTION:
            return blocks, None
        size = elements * (copy.target.dtype.bits // 8)
        return blocks, lambda agents: self.pipes.bytes(pipe, number, blocks, size, agents, copy.span)

    def _there(self, copy: Copy, view: View, every: Lanes) -> Array:
        """Which elements are there: of a box that is not clipped all, or it is an error to touch them."""
        return self.evaluator.exists(view, every) if copy.clipped else np.ones(every.thread.shape, np.bool_)

    def _targets(self, copy: Copy, buffer: MappedBuffer, thread: Array, blocks: Sequence[int]) -> Sequence[Array]:
        """The copies of a buffer that the elements go to."""
        if not copy.pipe:
            return (self.evaluator.copies.written(buffer, thread),)
        slots, stages = self.pipes.slots(buffer, thread, writes=True), self.pipes.by_buffer[buffer.name].stages
        return [block * stages + slots for block in blocks]

    # ---- products: one agent for each warp ----

    def fence(self, thread: Array) -> None:
        """Products that these threads begin see what they did to their registers."""
        agents = self.team.agents(thread)
        self.fences |= dict(zip(agents.tolist(), self.clocks.known[agents, agents].tolist(), strict=True))

    def _multiply(self, node: Contract, warp: Lanes) -> None:
        evaluator, number = self.evaluator, int(warp.thread[0]) // self.geometry.warp
        self._meet_warpgroup(node, warp, number)
        own = self.products.share(node, warp)
        agents = self.team.agents(warp.thread).tolist()
        if not self.fences.keys() >= set(agents):
            raise failure(f"{node.id}: a product begins before any fence of its registers", node.span)
        for view, held in ((node.a, own.a), (node.c, own.c)):
            evaluator.check_fenced(view.buffer, held.place, self.team.agents(held.thread), self.fences)
        agent = self._agent(f"product {node.id} of the warp of", warp.thread, proxied=True)

        def by(found: Elements) -> Array:
            return np.full(len(found.place), agent)

        flight = Flight(
            operator=node,
            agent_of=dict.fromkeys(warp.thread.tolist(), agent),
            take=lambda: own.take(evaluator, by),
            put=lambda sums: own.put(evaluator, by, sums),
            after=self.latest.get(number),
        )
        self.latest[number] = flight
        self.touches.append(Touch(int(warp.thread[0]) // self.geometry.threads, agent, WRITTEN))
        self._depart(flight)

    def _meet_warpgroup(self, node: Contract, warp: Lanes, number: int) -> None:
        """The warps of a warpgroup multiply the same tiles."""
        if node.atom.team is not AtomTeam.WARPGROUP:
            return
        per_block = self.geometry.threads // self.geometry.warp
        block, inside = divmod(number, per_block)
        came = self.came.setdefault((id(node), block * per_block + inside // WARPGROUP), {})
        self.named[id(node)] = node.id
        tiles = {name: int(value.flat[0]) for name, value in meant(node, warp).items()}
        earlier = came.setdefault(number, [])
        earlier.append(tiles)
        for other in came.values():
            if len(other) >= len(earlier) and other[len(earlier) - 1] != tiles:
                raise failure(f"{node.id}: the warps of a warpgroup mean different tiles", node.span)

    def left(self) -> str | None:
        """A product to which some warps of a warpgroup came, and others never did."""
        for (node, _), came in self.came.items():
            counts = [len(meant) for meant in came.values()]
            if len(counts) < WARPGROUP or len(set(counts)) > 1:
                return f"{self.named[node]} is not reached by all warps of a warpgroup alike"
        return None

    # ---- all of them ----

    def _agent(self, what: str, threads: Array, *, proxied: bool) -> int:
        """A new agent that knows what all of these threads know; `proxied`: it sees of others only what they fenced."""
        agents = self.team.agents(threads)
        (agent,) = self.clocks.add([f"{what} {self.clocks.labels[agents[0]]}"])
        self.clocks.join(np.array([agent]), self.clocks.common(agents))
        self.agents.append(int(agent))
        if proxied:
            self.clocks.asynchronous.add(int(agent))
        return int(agent)

    def _depart(self, flight: Flight) -> None:
        completion = (
            flight.operator.atom.completion if isinstance(flight.operator, Contract) else flight.operator.completion
        )
        if completion in GROUPS:
            self.groups.add(GROUPS[completion], flight)
        self.flights.append(flight)


def _same(found: Array, copy: Copy) -> int:
    """The one number that all threads mean."""
    (least, *others) = np.unique(found).tolist()
    if others:
        raise failure(f"{copy.id}: threads that go together send to different ranks", copy.span)
    return int(least)
