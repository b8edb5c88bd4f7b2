"""Where the crews of one launch meet: every sync, and the copies that go on behind a thread's back."""

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from typing import assert_never

import numpy as np

from texpr.grammar.ast import IndexExpr, Role
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, TriggerNext, Turn
from texpr.polyhedral.mapped.operators import Contract, Copy, Operator
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.show_sync import sync_text, word_text
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Barrier,
    Close,
    Commit,
    Drain,
    Fence,
    FenceKind,
    GroupKind,
    PipeKind,
    Release,
    Skip,
    Sync,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.simulate.barriers import Barriers
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.chain import Pause
from texpr.polyhedral.simulate.clocks import Clocks, Snapshot, Team
from texpr.polyhedral.simulate.convergence import Convergence
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.departures import Departures, Touch
from texpr.polyhedral.simulate.evaluate import Lanes
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.flights import WRITTEN, Groups, arrival
from texpr.polyhedral.simulate.pipes import Pipes, Waiting
from texpr.polyhedral.simulate.run import Crew
from texpr.polyhedral.simulate.words import Word, WordMemory


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
    departures: Departures
    convergence: Convergence
    parts_crews: bool = True
    triggered: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)  # by block, the mark of it

    def meet(self, node: Sync | Last, crew: Crew) -> Pause | None:
        thread, part = crew.lanes.thread, crew.frames[-1].team.part
        agents = self.team.agents(thread)
        self.clocks.tick(agents)
        match node:
            case Barrier():
                return _pause(node, self.barriers.meet(node, thread, part))
            case Acquire():
                return self._turn(node, thread, self.pipes.acquire(node, thread, part))
            case Drain():
                return _pause(node, self.pipes.drain(node, thread, part))
            case Commit():
                self._commit(node, thread, part)
            case Wait():
                return self._turn(node, thread, self.pipes.wait(node, thread, part))
            case Release():
                self.pipes.release(node, thread, part)
            case Skip():
                self.pipes.skip(node, thread, part)
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
            case GridBarrier(counter=counter):
                self.words.word(counter, (), node.span)
                self.barriers.expected[counter] = (self.geometry.blocks * self.geometry.threads, sync_text(node))
                return _pause(node, self.barriers.waiting(counter, self.barriers.arrive(counter, thread), thread))
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
        """What the threads wrote is for asynchronous agents too, what they did to registers for products; the first
        thread of a block initialised its pipes."""
        agents = self.team.agents(thread)
        if kind is FenceKind.ASYNC_PROXY:
            self.clocks.fence(agents)
        elif kind is FenceKind.WGMMA:
            self.departures.fence(thread)
        elif kind is FenceKind.BARRIER_INIT:
            for one, agent in zip(thread.tolist(), agents.tolist(), strict=True):
                if one % self.geometry.threads == 0:
                    block = one // self.geometry.threads
                    what = f"the pipes of block {block}"
                    self.pipes.initialised[block] = self.clocks.mark(what, np.array([agent]))

    def _commit(self, node: Commit, thread: Array, part: str) -> None:
        pipe, number, blocks = self.pipes.commit(node, thread, part)
        if node.by_warp:
            warps = self.pipes.whole_warps(pipe, number, thread, node.span)
            self.pipes.arrive(pipe, number, blocks, warps, self.team.agents(thread), node.span)
            return
        if pipe.kind is not PipeKind.CP_ASYNC:
            self.pipes.arrive(pipe, number, blocks, len(thread), self.team.agents(thread), node.span)
            return
        for one, agent in zip(thread.tolist(), self.team.agents(thread).tolist(), strict=True):
            flights = self.groups.issued(GroupKind.CP_ASYNC, one)
            agents = np.array([f.agent_of[one] for f in flights] or [agent])
            arrive = partial(self.pipes.arrive, pipe, number, blocks, 1, agents, node.span)
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

    def gather(self, node: Operator, lanes: Lanes) -> tuple[Lanes | None, Pause | None]:
        whole, until = self.convergence.come(id(node), lanes)
        if until is None:
            return whole, None
        text = f"{node.id} by the other lanes of the warp"
        return whole, Pause(text=text, span=node.span, ready=until, resume=lambda: None)

    def issue(self, operator: Copy | Contract, lanes: Lanes) -> None:
        self.departures.begin(operator, lanes, self.part)

    def acts_in(self, block: int, agents: Array, text: str) -> None:
        """Agents reach into the memory of a block, their own or another, which has begun as far as they know."""
        mark = self.begun.get(block, -1)
        if mark < 0 or not self.clocks.known[agents, mark].all():
            raise failure(f"{text} by {self.clocks.labels[agents[0]]}: nothing says that block {block} has begun")
        self.departures.touches += [Touch(block, a, int(self.clocks.known[a, a]), text) for a in agents.tolist()]

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

    def written(self, buffer: MappedBuffer, thread: Array) -> Array:
        if buffer.memory is not Memory.SHARED or buffer.name not in self.pipes.by_buffer:
            return self.read(buffer, thread)
        stages = self.pipes.by_buffer[buffer.name].stages
        return self.geometry.block(thread) * stages + self.pipes.slots(buffer, thread, writes=True)

    def of_rank(self, thread: Array, rank: Array) -> Array:
        blocks = self.geometry.of_rank(self.geometry.block(thread), rank)
        for block in np.unique(blocks).tolist():
            self.acts_in(block, self.team.agents(thread[blocks == block]), "an access to its memory")
        return blocks


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
