"""Where the crews of one launch meet: every sync, and the copies that go on behind a thread's back."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from texpr.grammar.ast import IndexExpr, Role
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, TriggerNext, Turn
from texpr.polyhedral.mapped.operators import Completion, Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.show_sync import sync_text, word_text
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Barrier,
    Close,
    Commit,
    Fence,
    FenceKind,
    GroupKind,
    PipeKind,
    Release,
    Sync,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.simulate.barriers import Barriers
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import Clocks, Snapshot, Team
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.copies import GROUPS, READ, WRITTEN, Flight, Groups, arrival
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.pipes import Pipes, Waiting
from texpr.polyhedral.simulate.reductions import spread
from texpr.polyhedral.simulate.run import Crew, Pause
from texpr.polyhedral.simulate.words import Word, WordMemory


@dataclass(frozen=True, slots=True)
class Touch:
    """An agent's act in the memory of a block, at its time, which must be before the block ends."""

    block: int
    agent: int
    time: int
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Interleaved:
    """The syncs of a launch whose crews run interleaved, and which copy of a buffer its threads see."""

    geometry: Geometry
    clocks: Clocks
    team: Team
    barriers: Barriers
    groups: Groups
    words: WordMemory
    before: tuple[Callable[[], bool], Callable[[], Snapshot]]  # whether the launch before is over, and what it knows
    part: str = ""  # of the crew that is running
    pipes: Pipes = field(init=False)
    evaluator: Evaluator = field(init=False)
    parts_crews: bool = True
    flights: list[Flight] = field(default_factory=list)
    copying: list[int] = field(default_factory=list)  # the agents of all copies
    touches: list[Touch] = field(default_factory=list)
    triggered: set[int] = field(default_factory=set)

    def meet(self, node: Sync | Last, crew: Crew) -> Pause | None:
        thread, part = crew.lanes.thread, crew.frames[-1].team.part
        agents = self.team.agents(thread)
        self.clocks.tick(agents)
        match node:
            case Barrier():
                return _pause(node, self.barriers.meet(node, thread, part))
            case Acquire():
                return self._turn(node, thread, self.pipes.acquire(node, thread, part))
            case Commit():
                self._commit(node, thread, part)
            case Wait():
                return self._turn(node, thread, self.pipes.wait(node, thread, part))
            case Release():
                self.pipes.release(node, thread, part)
            case Close():
                self.groups.close(node, thread)
            case WaitGroup():
                return _pause(node, self.groups.wait(node, thread, agents))
            case Fence(kind=kind):
                self._fence(kind, thread)
            case TriggerNext():
                self.triggered.update(self.geometry.block(thread).tolist())
            case AfterLaunch():
                over, known = self.before
                return _pause(node, (over, lambda: self.clocks.join(agents, known())))
            case GridBarrier():
                self.barriers.expected["grid"] = (self.geometry.blocks * self.geometry.threads, sync_text(node))
                return _pause(node, self.barriers.waiting("grid", self.barriers.arrive("grid", thread), thread))
            case Turn() | Publish() | Await() | Last():
                return self._together(node, crew)
            case _:
                assert_never(node)
        return None

    def _turn(self, node: Acquire | Wait, thread: Array, waiting: Waiting | None) -> Pause | None:
        """The pause of a pipe's node, whose text says the turn that is waited for."""
        pause = _pause(node, waiting)
        if pause is None:
            return None
        counts = self.pipes.acquired if isinstance(node, Acquire) else self.pipes.waited
        return replace(pause, text=f"{pause.text}, turn {counts[node.pipe, int(thread[0])] - 1}")

    def _fence(self, kind: FenceKind, thread: Array) -> None:
        """What the threads wrote is for asynchronous copies too; the first thread of a block initialised its pipes. The
        registers of tensor cores are not simulated: nothing here is done by them."""
        agents = self.team.agents(thread)
        if kind is FenceKind.ASYNC_PROXY:
            self.clocks.fence(agents)
        elif kind is FenceKind.BARRIER_INIT:
            for one, agent in zip(thread.tolist(), agents.tolist(), strict=True):
                if one % self.geometry.threads == 0:
                    block = one // self.geometry.threads
                    self.pipes.initialised[block] = (agent, int(self.clocks.known[agent, agent]))

    def _commit(self, node: Commit, thread: Array, part: str) -> None:
        pipe, number, blocks = self.pipes.commit(node, thread, part)
        if pipe.kind is not PipeKind.CP_ASYNC:
            self.pipes.arrive(pipe, number, blocks, len(thread), self.team.agents(thread), node.span)
            return
        for one, agent in zip(thread.tolist(), self.team.agents(thread).tolist(), strict=True):
            flights = self.groups.issued(GroupKind.CP_ASYNC, one)
            agents = np.array([f.agent_of[one] for f in flights] or [agent])
            arrive = _later(self.pipes.arrive, pipe, number, blocks, 1, agents, node.span)
            arrival([f for f in flights if f.state != WRITTEN], arrive)

    def _together(self, node: Turn | Publish | Await | Last, crew: Crew) -> Pause:
        """All threads of the block, or of the part, come to the node; what happens once they are there."""
        lanes, team = crew.lanes, crew.frames[-1].team
        key = ("at", id(node), int(lanes.thread[0]) // self.geometry.threads, team.first)
        text = _text(node)
        self.barriers.expected[key] = (team.threads, text)
        turn = self.barriers.arrive(key, lanes.thread)
        gathering = self.barriers.gatherings[key, turn]
        full, learn = self.barriers.waiting(key, turn, lanes.thread)
        word = self._word(node, lanes)
        if full():
            match node:
                case Turn():
                    gathering.result = self.words.draw(word)
                case Publish():
                    self.words.publish(word, gathering.snapshot, node.span)
                case Last(n=n):
                    gathering.result = self.words.count(word, _uniform(n, lanes), gathering.snapshot)
                case Await():
                    pass

        def ready() -> bool:
            return full() and (not isinstance(node, Await) or word in self.words.published)

        def resume() -> None:
            learn()
            result = gathering.result
            match node:
                case Turn(index=index):
                    crew.frames[-1].lanes = crew.lanes.having(index, result)
                case Await():
                    self.clocks.join(self.team.agents(lanes.thread), self.words.published[word])
                case Last(body=body) if isinstance(result, Snapshot):
                    self.clocks.join(self.team.agents(lanes.thread), result)
                    crew.enter(body, crew.lanes)
                case _:
                    pass

        return Pause(text=text, span=node.span, ready=ready, resume=resume)

    def _word(self, node: Turn | Publish | Await | Last, lanes: Lanes) -> Word:
        match node:
            case Turn(counter=name):
                at: tuple[IndexExpr, ...] = ()
            case Publish(flag=name, at=at) | Await(flag=name, at=at) | Last(counter=name, at=at):
                pass
        return self.words.word(name, [_uniform(e, lanes) for e in at], node.span)

    # Copies that are over later, and where they go.

    def issue(self, copy: Copy, lanes: Lanes) -> None:
        """One agent for each thread, which knows what the thread does now."""
        self.evaluator.at(copy.id, copy.span)
        if copy.within is not None:
            raise failure(
                f"{copy.id}: a copy on its way that brings some elements of a box is not simulated", copy.span
            )
        into = self.evaluator.memory[copy.target.buffer].buffer
        if copy.own_block and len(self.pipes.destinations(into, lanes.thread, self.part)) > 1:
            raise failure(f"{copy.id}: a copy for its own block beside copies for several is not simulated", copy.span)
        threads = lanes.thread.tolist()
        agents = self.clocks.add(f"copy {copy.id} of {self.clocks.labels[a]}" for a in self.team.agents(lanes.thread))
        self.copying += agents.tolist()
        agent_of = dict(zip(threads, agents.tolist(), strict=True))
        for thread, agent in agent_of.items():
            own = self.team.agents(np.array([thread]))
            self.clocks.join(np.array([agent]), self.clocks.snapshot(own))
        if copy.completion in (Completion.TRANSACTION, Completion.BULK):
            self.clocks.asynchronous.update(agents.tolist())
        every = spread(copy.over, lanes)
        memory = self.evaluator.memory
        source, target = memory[copy.source.buffer], memory[copy.target.buffer]
        over: Callable[[], None] = _nothing
        blocks: tuple[int, ...] = (threads[0] // self.geometry.threads,)
        if copy.pipe:
            pipe, number, blocks = self.pipes.filling(copy.pipe, copy.target.buffer, lanes.thread, self.part, copy.span)
            if copy.completion is Completion.TRANSACTION:
                size = len(every.thread) * (target.buffer.dtype.bits // 8)
                over = _later(self.pipes.bytes, pipe, number, blocks, size, agents, copy.span)
        read_from = self.evaluator.address(
            source, self.read(source.buffer, every.thread), copy.source.subscripts, every
        )
        written = [
            self.evaluator.address(target, where, copy.target.subscripts, every)
            for where in self.written(target.buffer, every.thread)
        ]
        flight = Flight(
            copy=copy,
            agent_of=agent_of,
            agents=np.array([agent_of[t] for t in every.thread.tolist()], dtype=np.int64),
            source=read_from,
            targets=tuple(written),
            over=over,
        )
        for agent in agents.tolist():
            if source.buffer.memory is Memory.SHARED:
                self.touches.append(Touch(threads[0] // self.geometry.threads, agent, READ))
            if target.buffer.memory is Memory.SHARED:
                self.touches += [Touch(block, agent, WRITTEN) for block in blocks]
        if copy.completion in GROUPS:
            self.groups.add(GROUPS[copy.completion], flight)
        self.flights.append(flight)

    def acts_in(self, block: int, agents: Array, text: str) -> None:
        """Agents reach into the memory of a block, their own or another."""
        self.touches += [Touch(block, a, int(self.clocks.known[a, a]), text) for a in agents.tolist()]

    def read(self, buffer: MappedBuffer, thread: Array) -> Array:
        match buffer.memory:
            case Memory.REG if buffer.role is Role.LOCAL:
                return thread
            case Memory.SHARED if buffer.name in self.pipes.by_buffer:
                stages = self.pipes.by_buffer[buffer.name].stages
                return self.geometry.block(thread) * stages + self.pipes.slots(buffer, thread, writes=False)
            case Memory.SHARED | Memory.CLUSTER:
                return self.geometry.block(thread)
            case _:
                return np.zeros_like(thread)

    def written(self, buffer: MappedBuffer, thread: Array) -> tuple[Array, ...]:
        if buffer.memory is not Memory.SHARED or buffer.name not in self.pipes.by_buffer:
            return (self.read(buffer, thread),)
        stages = self.pipes.by_buffer[buffer.name].stages
        slots = self.pipes.slots(buffer, thread, writes=True)
        return tuple(block * stages + slots for block in self.pipes.destinations(buffer, thread, self.part))

    def of_rank(self, thread: Array, rank: Array) -> Array:
        blocks = self.geometry.of_rank(self.geometry.block(thread), rank)
        for block in np.unique(blocks).tolist():
            self.acts_in(block, self.team.agents(thread[blocks == block]), "an access to its memory")
        return blocks


def _nothing() -> None:
    pass


def _later(action: Callable[..., None], *given: object) -> Callable[[], None]:
    return lambda: action(*given)


def _pause(node: Sync, waiting: Waiting | None) -> Pause | None:
    if waiting is None:
        return None
    return Pause(text=_text(node), span=node.span, ready=waiting[0], resume=waiting[1])


def _text(node: Sync | Last) -> str:
    return f"last at {word_text(node.counter, node.at)}" if isinstance(node, Last) else sync_text(node)


def _uniform(expr: IndexExpr, lanes: Lanes) -> int:
    """The value of an expression in the threads of a block, which must be one."""
    values = lanes.index(expr)
    if (values != values[0]).any():
        raise failure("threads of one block name different words")
    return int(values[0])
