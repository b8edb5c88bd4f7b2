"""The tree of a launch, run step by step by crews of threads.

A crew is some threads at one point of the tree, which take every step together. Where a condition or a loop divides
them, those that run the body do so while the others wait for them; but where threads of the two sides may wait for one
another, because syncs stand inside, the crew parts for good: every thread goes on as if it were alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

import numpy as np

from texpr.grammar.ast import Accumulate, Anchor, Atomic, Bind, Condition, Read
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.value import condition_value, index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.expand import expand, uncut, wanted
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import (
    Combined,
    Contract,
    Copy,
    Generic,
    Operator,
    Reduce,
    Scan,
    Unload,
    Unused,
)
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Parts
from texpr.polyhedral.mapped.walks import goes_on_alone, located, statements
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.chain import Chain, Pause
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes, Values
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.products import Products
from texpr.polyhedral.simulate.reductions import reduce, scan, spread
from texpr.polyhedral.simulate.words import WordMemory
from texpr.polyhedral.walk import written


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that a body is written for: of a block, or of one of its parts; `first` is the first one's number in
    the block."""

    first: int
    threads: int
    part: str = ""


@dataclass(slots=True, kw_only=True)
class Rounds:
    """A loop that is running: the threads that came to it, how often each runs the body, and the turn of now."""

    loop: Loop
    lanes: Lanes
    extent: Array
    turn: int = -1

    def apart(self, thread: Array) -> "Rounds":
        inside = np.isin(self.lanes.thread, thread)
        return replace(self, lanes=self.lanes.only(inside), extent=self.extent[inside])


@dataclass(slots=True, kw_only=True)
class Frame:
    """A list of nodes that a crew is in, the next one, and the loop that repeats the list."""

    body: Sequence[Node]
    lanes: Lanes
    team: Team
    at: int = 0
    rounds: Rounds | None = None

    def apart(self, thread: Array) -> "Frame":
        """The frame for these threads alone."""
        lanes = self.lanes.only(np.isin(self.lanes.thread, thread))
        return replace(self, lanes=lanes, rounds=self.rounds and self.rounds.apart(thread))


@dataclass(slots=True, eq=False)
class Crew:
    frames: list[Frame]
    pause: Pause | None = None
    ended: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # the threads, once no frame is left

    @property
    def lanes(self) -> Lanes:
        return self.frames[-1].lanes

    def enter(self, body: Sequence[Node], lanes: Lanes) -> None:
        """The crew's threads, or some of them, run the body next."""
        self.frames.append(Frame(body=body, lanes=lanes, team=self.frames[-1].team))

    def apart(self, mask: Array) -> "Crew":
        """These threads of the crew, at the same point."""
        thread = self.lanes.thread[mask]
        return Crew([frame.apart(thread) for frame in self.frames])


class Meetings(Protocol):
    """What syncs do, and the operators that go on behind a thread's back."""

    @property
    def parts_crews(self) -> bool:
        """Whether a crew whose threads may wait for one another parts."""
        ...

    @property
    def words(self) -> WordMemory:
        """The counters and flags of the call."""
        ...

    def meet(self, node: Sync | Last, crew: Crew) -> Pause | None:
        """The crew has come to the node."""
        ...

    def gather(self, node: Operator, lanes: Lanes) -> tuple[Lanes | None, Pause | None]:
        """These lanes come to what their warps do as one: those whose warps are whole, and why the others wait."""
        ...

    def issue(self, operator: Copy | Contract, lanes: Lanes) -> None:
        """These threads begin an operator that is over later."""
        ...


class Runner:
    """Runs the tree of one launch."""

    def __init__(
        self,
        mapped: MappedProgram,
        launch: Launch,
        values: Mapping[str, int],
        geometry: Geometry,
        evaluator: Evaluator,
        meetings: Meetings,
    ) -> None:
        self.launch = launch
        self.values = values
        self.geometry = geometry
        self.evaluator = evaluator
        self.meetings = meetings
        self.products = Products(evaluator, geometry.warp)
        self.chain = Chain(evaluator, meetings.words)
        self.kept = {n for n, b in mapped.buffers.items() if b.scope is Scope.THREAD}
        self.meets = {
            id(outer)
            for place in located(launch.body)
            if isinstance(place.node, Sync | Last)
            for outer in (*place.around, place.node)
        }

    def crew(self, thread: Array) -> Crew:
        """These threads at the beginning of the launch."""
        lanes = Lanes(thread, Values(self.values, **self.geometry.digits(self.launch, thread, self.values)))
        return Crew([Frame(body=self.launch.body, lanes=lanes, team=Team(0, self.launch.threads))])

    def finish(self, crew: Crew) -> None:
        """All steps of a crew that nobody else has to wait for."""
        while crew.frames:
            self.step(crew)

    def step(self, crew: Crew) -> tuple[Crew, ...]:
        """One node; the crews that parted from this one there."""
        frame = crew.frames[-1]
        if frame.at == len(frame.body):
            return self._next_turn(crew, frame)
        node = frame.body[frame.at]
        frame.at += 1
        match node:
            case Define(index=index):
                frame.lanes = frame.lanes.having(index, index_value(node.value, frame.lanes.values))
            case Lead(index=index, of=of, bytes=bytes):
                frame.lanes = frame.lanes.having(index, self.evaluator.lead(of, bytes, frame.lanes))
            case Loop():
                return self._loop(crew, frame, node)
            case Guard():
                return self._guard(crew, frame, node)
            case Parts():
                return tuple(self._parts(crew, frame, node))
            case Generic():
                self.statement(node, self._acting(frame, node))
            case Copy() if node.completion is not Completion.NOW:
                lanes = self._acting(frame, node)
                if len(lanes.thread):
                    self.meetings.issue(node, lanes)
            case Contract() | Unload() | Reduce() | Scan() | Copy(access=Access.SHIFTED):
                lanes = self._acting(frame, node)
                if len(lanes.thread):
                    self._together(crew, node, lanes)
            case LookBack():
                crew.pause = self.chain.look_back(node, frame.lanes)
            case _ if isinstance(node, Operator):
                lanes = self._acting(frame, node)
                if isinstance(node, Copy) and node.access not in (Access.EACH, Access.APART):
                    self._check_wide(node, lanes)
                self._at_once((expand(node),), lanes)
            case Fresh(buffer=buffer):
                if not self.meetings.parts_crews or buffer in self.kept:
                    self.evaluator.poison(buffer, frame.lanes)
            case _:
                if len(frame.lanes.thread):
                    crew.pause = self.meetings.meet(node, crew)
        return ()

    def _together(self, crew: Crew, node: Contract | Unload | Reduce | Scan | Copy, lanes: Lanes) -> None:
        """What the lanes of a warp do as one, by the last of them to come."""
        found: Lanes | None = lanes
        if not isinstance(node, Combined) or node.lanes > 1:
            found, crew.pause = self.meetings.gather(node, lanes)
        if found is None:
            return
        if isinstance(node, Copy):
            self._check_wide(node, found)
            self._at_once((expand(node),), found)
            return
        if isinstance(node, Contract) and goes_on_alone(node):
            self.meetings.issue(node, found)
            return
        self._begins(node, found)
        if isinstance(node, Reduce):
            reduce(node, found, self.evaluator)
        elif isinstance(node, Scan):
            scan(node, found, self.evaluator)
        else:
            self.products.at_once(node, found)

    def _loop(self, crew: Crew, frame: Frame, loop: Loop) -> tuple[Crew, ...]:
        extent = frame.lanes.index(loop.extent)
        if loop.vector and not any(
            w is not None and w[0] in self.kept for w in (written(s.leaf) for s in statements(loop.body))
        ):
            crew.enter(loop.body, frame.lanes.spread(loop.index, extent))
            return ()
        rounds = Rounds(loop=loop, lanes=frame.lanes, extent=extent)
        crew.frames.append(Frame(body=(), lanes=frame.lanes, team=frame.team, rounds=rounds))
        return self._next_turn(crew, crew.frames[-1])

    def _next_turn(self, crew: Crew, frame: Frame) -> tuple[Crew, ...]:
        """The end of a list: of a loop's body, which may be run again, or of another."""
        rounds = frame.rounds
        inside = None if rounds is None else rounds.extent > rounds.turn + 1
        if rounds is None or inside is None or not inside.any():
            crew.frames.pop()
            return ()
        left: tuple[Crew, ...] = ()
        if self._parts_at(rounds.loop, inside):
            ended = rounds.lanes.thread[~inside]
            gone = Crew([f.apart(ended) for f in crew.frames[:-1]])
            going = rounds.lanes.thread[inside]
            crew.frames = [f.apart(going) for f in crew.frames]
            rounds, inside, left = rounds.apart(going), inside[inside], (gone,)
        rounds.turn += 1
        lanes = rounds.lanes.only(inside).having(rounds.loop.index, rounds.turn)
        crew.frames[-1] = Frame(body=rounds.loop.body, lanes=lanes, team=frame.team, rounds=rounds)
        return left

    def _parts_at(self, node: Node, mask: Array) -> bool:
        """Whether threads that go two ways at a node part for good."""
        return self.meetings.parts_crews and id(node) in self.meets and bool(mask.any()) and not mask.all()

    def _guard(self, crew: Crew, frame: Frame, guard: Guard) -> tuple[Crew, ...]:
        lanes = self._first(frame) if guard.once else frame.lanes
        if not len(lanes.thread):
            return ()
        chosen = self._holds(guard.condition, lanes, guard)
        if guard.once and len(lanes.thread) < len(frame.lanes.thread):
            mask = frame.lanes.thread == lanes.thread[0]
            if self._parts_at(guard, mask):
                others, own = crew.apart(~mask), crew.apart(mask)
                crew.frames = own.frames
                crew.enter(guard.body if chosen.all() else guard.orelse, crew.lanes)
                return (others,)
        if self._parts_at(guard, chosen):
            others, own = crew.apart(~chosen), crew.apart(chosen)
            crew.frames = own.frames
            crew.enter(guard.body, crew.lanes)
            others.enter(guard.orelse, others.lanes)
            return (others,)
        for inside, mask in ((guard.orelse, ~chosen), (guard.body, chosen)):
            if inside and mask.any():
                crew.enter(inside, lanes.only(mask))
        return ()

    def _parts(self, crew: Crew, frame: Frame, node: Parts) -> Iterator[Crew]:
        """A crew for each part that its threads belong to; digits of threads are counted from the part's first."""
        inside = frame.lanes.thread % self.launch.threads - frame.team.first
        first, found = 0, []
        for part in node.parts:
            threads = part.warps * self.geometry.warp
            mask = (inside >= first) & (inside < first + threads)
            if mask.any():
                own = crew.apart(mask)
                team = Team(frame.team.first + first, threads, part.name)
                digits = self.geometry.digits(self.launch, own.lanes.thread, self.values, team.first)
                lanes = replace(own.lanes, values=Values(own.lanes.values, **digits))
                own.frames.append(Frame(body=part.body, lanes=lanes, team=team))
                found.append(own)
            first += threads
        crew.frames = found[0].frames
        yield from found[1:]

    def _acting(self, frame: Frame, operator: Operator) -> Lanes:
        return self._first(frame) if operator.unused is Unused.ONCE else frame.lanes

    def _first(self, frame: Frame) -> Lanes:
        """The first thread of the block, or of the part."""
        return frame.lanes.only(frame.lanes.thread % self.launch.threads == frame.team.first)

    def _holds(self, condition: Condition | Read, lanes: Lanes, node: Guard | Copy) -> Array:
        if isinstance(condition, Read):
            self.evaluator.at("the condition", node.span)
            self.evaluator.watch.step(lanes.thread)
            return np.asarray(self.evaluator.value(condition, lanes)).astype(np.bool_)
        return np.broadcast_to(np.asarray(condition_value(condition, lanes.values)), lanes.thread.shape)

    def _at_once(self, body: Sequence[Node], lanes: Lanes) -> None:
        """The expansion of an operator, all values of its indices together."""
        for node in body:
            match node:
                case Loop(index=index, extent=extent, body=inside):
                    self._at_once(inside, lanes.spread(index, lanes.index(extent)))
                case Guard(condition=condition, body=inside, orelse=orelse):
                    chosen = self._holds(condition, lanes, node)
                    self._at_once(inside, lanes.only(chosen))
                    self._at_once(orelse, lanes.only(~chosen))
                case Generic():
                    self.statement(node, lanes)
                case _:
                    raise InternalError(f"an operator means a {type(node).__name__}")

    def _check_wide(self, copy: Copy, lanes: Lanes) -> None:
        """Whether the wanted elements are neighbours on both sides, from an address that is a multiple of their bytes
        where the access asks for one."""
        every = spread(copy.over, lanes)
        if copy.within is not None:
            if copy.within.part is not None and not self._holds(uncut(copy.over, copy.within), every, copy).all():
                raise failure(f"{copy.id}: an access is cut that is said to be whole", copy.span)
            every = every.only(self._holds(wanted(copy.over, copy.within), every, copy))
        if len(every.thread):
            self._begins(copy, every)
            for view in (copy.source, copy.target):
                self.evaluator.check_wide(view, copy, every, self.geometry.warp)

    def _begins(self, node: Operator, lanes: Lanes) -> None:
        self.evaluator.at(node.id, node.span)
        self.evaluator.watch.step(lanes.thread)

    def statement(self, statement: Generic, lanes: Lanes) -> None:
        """The statement by every thread, all reading before any writes."""
        if not len(lanes.thread):
            return
        leaf = statement.leaf
        self._begins(statement, lanes)
        value = np.broadcast_to(self.evaluator.value(leaf.value, lanes), lanes.thread.shape)
        match leaf:
            case Bind():
                self.evaluator.store(leaf.buffer, leaf.subscripts, value, lanes)
            case Accumulate() | Atomic():
                store = statement.store
                self.evaluator.update(leaf, value, lanes, atomic=store is not None and store.atomic)
            case Anchor():
                pass
