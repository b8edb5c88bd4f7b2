"""Barriers between crews: who arrived for which turn, and what they know together."""

from collections.abc import Callable, Hashable
from dataclasses import field

import numpy as np

from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import Action, Barrier
from texpr.polyhedral.mapped.walks import part_warps
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import NOTHING, Clocks, Snapshot, Team
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.target import WARPGROUP


@dataclass(slots=True)
class Gathering:
    """One turn of a barrier: how many threads arrived, and what they know together."""

    arrived: int = 0
    snapshot: Snapshot = NOTHING
    result: object = None  # of what happens when all have arrived


@dataclass(slots=True)
class Barriers:
    """All barriers of a launch. A barrier is told by scope, parts and name, and by which warp, block or cluster."""

    launch: Launch
    geometry: Geometry
    clocks: Clocks
    team: Team
    gatherings: dict[tuple[Hashable, int], Gathering] = field(default_factory=dict)
    turns: dict[tuple[Hashable, int], int] = field(default_factory=dict)  # of a barrier and a thread: arrivals
    expected: dict[Hashable, tuple[int, str]] = field(default_factory=dict)
    owed: dict[Hashable, set[int]] = field(default_factory=dict)  # who of a cluster arrived and did not wait yet
    warps: dict[str, int] = field(init=False)  # of every part

    def __post_init__(self) -> None:
        self.warps = part_warps(self.launch)

    def meet(self, node: Barrier, thread: Array, part: str) -> tuple[Callable[[], bool], Callable[[], None]] | None:
        """These threads, who may be of several warps, come to a barrier; until when they wait there, and what they take
        along."""
        if node.parts and part not in node.parts:
            raise failure(f"threads of part {part or 'none'} come to a barrier of {', '.join(node.parts)}", node.span)
        block, inside = np.divmod(thread, self.geometry.threads)
        unit = block * self.geometry.threads + inside // self._unit(node.scope)
        met = [self._meet(node, thread[unit == number]) for number in np.unique(unit)]
        waits = [each for each in met if each is not None]
        if not waits:
            return None

        def resume() -> None:
            for _, then in waits:
                then()

        return (lambda: all(ready() for ready, _ in waits)), resume

    def _meet(self, node: Barrier, thread: Array) -> tuple[Callable[[], bool], Callable[[], None]] | None:
        """The same of threads who meet at one instance of the barrier."""
        key = (node.scope, node.parts, node.name, self._instance(node.scope, int(thread[0])))
        label = f"barrier{f' {node.name}' if node.name else ''} ({', '.join((node.scope.value, *node.parts))})"
        self.expected[key] = (self._width(node, int(thread[0])), label)
        if node.action is not Action.WAIT:
            self.arrive(key, thread, node)
        owing = self.owed.setdefault(key, set()) if node.scope is Scope.CLUSTER else set()
        if node.action is Action.ARRIVE:
            owing.update(thread.tolist())
            return None
        owing.difference_update(thread.tolist())
        turn = self.turns.get((key, int(thread[0])), 0) - 1
        if turn < 0:
            raise failure(f"threads wait at the {label} at which they did not arrive", node.span)
        return self.waiting(key, turn, thread)

    def arrive(self, key: Hashable, thread: Array, node: Barrier | None = None) -> int:
        """The threads' next arrival; the turn that it belongs to."""
        turn = self.turns.get((key, int(thread[0])), 0)
        if turn and not self.full(key, turn - 1):
            label = self.expected[key][1]
            raise failure(f"threads arrive again at the {label} before all have arrived", node.span if node else None)
        for number in thread.tolist():
            self.turns[key, number] = turn + 1
        gathering = self.gatherings.setdefault((key, turn), Gathering())
        gathering.arrived += len(thread)
        told = self.clocks.marked if node is not None and node.relaxed else self.clocks.snapshot
        gathering.snapshot = gathering.snapshot.union(told(self.team.agents(thread)))
        return turn

    def full(self, key: Hashable, turn: int) -> bool:
        return self.gatherings[key, turn].arrived >= self.expected[key][0]

    def waiting(self, key: Hashable, turn: int, thread: Array) -> tuple[Callable[[], bool], Callable[[], None]]:
        def resume() -> None:
            self.clocks.join(self.team.agents(thread), self.gatherings[key, turn].snapshot)

        return (lambda: self.full(key, turn)), resume

    def left(self) -> str | None:
        """A barrier at which some arrived and others never will, or of a cluster, at which who arrived never waits."""
        for (key, _), gathering in self.gatherings.items():
            count, label = self.expected[key]
            if gathering.arrived < count:
                return f"{gathering.arrived} of {count} threads arrived at the {label}, and then the launch ended"
        for key, owing in self.owed.items():
            if owing:
                return f"{len(owing)} threads arrived at the {self.expected[key][1]} and never waited there"
        return None

    def _unit(self, scope: Scope) -> int:
        """Of how many neighbouring threads a barrier is, where of less than a block: blocks have whole ones."""
        match scope:
            case Scope.WARP:
                return self.geometry.warp
            case Scope.WARPGROUP:
                return self.geometry.warp * WARPGROUP
            case _:
                return self.geometry.threads

    def _instance(self, scope: Scope, thread: int) -> tuple[int, ...]:
        block, inside = divmod(thread, self.geometry.threads)
        match scope:
            case Scope.WARP:
                return block, inside // self.geometry.warp
            case Scope.WARPGROUP:
                return block, inside // (self.geometry.warp * WARPGROUP)
            case Scope.CLUSTER:
                return (self.geometry.cluster_of(block)[0],)
            case _:
                return (block,)

    def _width(self, node: Barrier, thread: int) -> int:
        """How many threads the barrier waits for."""
        warp, inside = self.geometry.warp, thread % self.geometry.threads
        block = self.geometry.threads
        if node.parts:
            block = warp * sum(self.warps.get(name, 0) for name in node.parts)
        match node.scope:
            case Scope.WARP | Scope.WARPGROUP:
                width = warp * (WARPGROUP if node.scope is Scope.WARPGROUP else 1)
                return min(width, self.geometry.threads - inside // width * width)
            case Scope.CLUSTER:
                return block * self.geometry.ranks
            case _:
                return block
