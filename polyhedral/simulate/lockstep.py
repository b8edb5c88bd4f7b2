"""The watch over a launch whose threads all take each step together, as far as barriers go.

Two accesses of one element by different threads, one of them writing, are ordered iff both threads are in one block and
a barrier of the block, or of their common warp, lies between, or the later one is of the last block to be counted and
the earlier one before the count. The shadow keeps for each element and kind of access (write, read, atomic) the least
and greatest thread, how far their blocks are apart, and the latest barrier counts; what a barrier has settled is
forgotten.

Blocks 1, 4 and 10 are kept as 1, 4, ..., 10: those that touch an element need not be neighbours, and a block between
that was not counted with them is one that nothing orders.
"""

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from texpr.grammar.ast import Role
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.operators import Contract, Copy, Operator
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Barrier, Sync
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.simulate.cells import Array, Shadow, Violation
from texpr.polyhedral.simulate.chain import Pause
from texpr.polyhedral.simulate.clocks import NOTHING
from texpr.polyhedral.simulate.evaluate import Lanes
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.run import Crew
from texpr.polyhedral.simulate.words import Word, WordMemory

NOBODY = np.iinfo(np.int64).max


@dataclass(slots=True)
class Lockstep:
    """Threads of a launch: `threads` of a block, `warp` of a warp, and how many barriers each one has passed.

    `groups` says with which others a block was counted, `last` of which it was the last one, `came` after how many
    barriers it came, and `before` the same of those of each group, at least; it has room for more groups than there
    are."""

    threads: int
    warp: int
    block_barriers: Array
    warp_barriers: Array
    groups: Array
    last: Array
    came: Array
    before: Array
    counts: int = 0

    @staticmethod
    def of(blocks: int, threads: int, warp: int) -> "Lockstep":
        zeros = np.zeros(blocks * threads, dtype=np.int64)
        none = np.full(blocks, -1)
        return Lockstep(threads, warp, zeros, zeros.copy(), none, none.copy(), none.copy(), before=np.full(1, NOBODY))

    def group(self) -> int:
        """The number of a new group, none of whose blocks has been counted."""
        if self.counts == len(self.before):
            self.before = np.append(self.before, np.full_like(self.before, NOBODY))
        self.counts += 1
        return self.counts - 1

    def count(self, block: int, group: int) -> None:
        """A block is counted with those of a group."""
        self.came[block] = self.block_barriers[block * self.threads]
        self.before[group] = min(self.before[group], self.came[block])
        self.groups[block] = group

    def counted(self, first: Array, final: Array, apart: Array, barriers: Array, here: Array) -> Array:
        """Whether what blocks `first`, `first + apart`, ..., `final` did after so many barriers is before what `here`
        does: it was the last to be counted of a group that all of them belong to."""
        group = self.last[here]
        found = (group >= 0) & (barriers <= np.where(first == final, self.came[first], self.before[group]))
        found &= (self.groups[first] == group) & (self.groups[final] == group)
        between = np.flatnonzero(found & (final - first > apart))
        if len(between):
            rows, row = np.unique(np.stack([first, final, apart, group])[:, between], axis=1, return_inverse=True)
            alike = [(self.groups[a:b:step] == g).all() for a, b, step, g in rows.T.tolist()]
            found[between] = np.array(alike)[row.reshape(-1)]
        return np.asarray(found)

    def blocks(self, thread: Array) -> Array:
        return np.asarray(thread // self.threads)

    def warps(self, thread: Array) -> Array:
        """A number that tells apart the warps of the whole launch."""
        per_block = -(-self.threads // self.warp)
        return np.asarray(thread // self.threads * per_block + thread % self.threads // self.warp)

    def agents(self, thread: Array) -> Array:
        return thread

    def step(self, thread: Array) -> None:
        """Time is told by barriers alone."""

    def shadow(self, elements: int, *, held: bool = False) -> Shadow:
        return Records(elements, self)

    def names(self, first: int, second: int) -> str:
        return f"threads {first} and {second}"

    def barrier(self, scope: Scope, thread: Array) -> bool:
        """These threads pass a barrier; False where some of a scope are not among them."""
        together = self.warps if scope is Scope.WARP else self.blocks
        width = min(self.threads, self.warp) if scope is Scope.WARP else self.threads
        _, counts = np.unique(together(thread), return_counts=True)
        counter = self.warp_barriers if scope is Scope.WARP else self.block_barriers
        counter[thread] += 1
        return bool((counts == width).all())


@dataclass(slots=True)
class Record:
    """Who made one kind of access to each element: least and greatest thread, latest barrier counts, statement.

    `apart` divides what lies between the numbers of any two of their blocks; 0 where all are of one block."""

    least: Array
    most: Array
    apart: Array
    block_barriers: Array
    warp_barriers: Array
    statement: Array

    @staticmethod
    def of(elements: int) -> "Record":
        return Record(
            least=np.full(elements, NOBODY),
            most=np.full(elements, -1),
            apart=np.zeros(elements, dtype=np.int64),
            block_barriers=np.full(elements, -1),
            warp_barriers=np.full(elements, -1),
            statement=np.full(elements, -1),
        )

    def settled(self, place: Array, thread: Array, clock: Lockstep) -> Array:
        """Whether a barrier lies between what is recorded and an access by `thread` now."""
        least, most = self.least[place], self.most[place]
        here = clock.blocks(thread)
        one_block = (clock.blocks(least) == here) & (clock.blocks(most) == here)
        mine = clock.warps(thread)
        one_warp = (clock.warps(least) == mine) & (clock.warps(most) == mine)
        earlier = (self.block_barriers[place] < clock.block_barriers[thread]) | (
            one_warp & (self.warp_barriers[place] < clock.warp_barriers[thread])
        )
        ordered = one_block & earlier
        if clock.counts:
            first, final = (np.minimum(clock.blocks(end), len(clock.last) - 1) for end in (least, most))
            ordered |= clock.counted(first, final, self.apart[place], self.block_barriers[place], here)
        return np.asarray(ordered)

    def conflicts(self, place: Array, thread: Array, clock: Lockstep) -> Array:
        """Whether another thread's recorded access is not ordered before one by `thread` now."""
        others = (self.most[place] >= 0) & ~((self.least[place] == thread) & (self.most[place] == thread))
        return np.asarray(others & ~self.settled(place, thread, clock))

    def note(self, place: Array, thread: Array, clock: Lockstep, statement: int) -> None:
        """Records accesses, several threads may touch one element."""
        old = place[(self.most[place] >= 0) & self.settled(place, thread, clock)]
        self.least[old], self.most[old], self.apart[old] = NOBODY, -1, 0
        self.block_barriers[old] = self.warp_barriers[old] = -1
        known, first_known = self.most[place] >= 0, clock.blocks(self.least[place])
        np.minimum.at(self.least, place, thread)
        np.maximum.at(self.most, place, thread)
        np.maximum.at(self.block_barriers, place, clock.block_barriers[thread])
        np.maximum.at(self.warp_barriers, place, clock.warp_barriers[thread])
        self.statement[place] = statement
        first = clock.blocks(self.least[place])
        for block in (np.where(known, first_known, first), clock.blocks(thread)):
            others = np.flatnonzero(block != first)
            np.gcd.at(self.apart, place[others], block[others] - first[others])


@dataclass(slots=True)
class Records:
    """The shadow of one buffer, a record for each kind of access that it has seen."""

    elements: int
    clock: Lockstep
    by_kind: dict[str, Record] = field(default_factory=dict)

    def read(self, place: Array, agent: Array, statement: int) -> Violation | None:
        return self._access("read", ("write", "atomic"), place, agent, statement)

    def write(self, place: Array, agent: Array, statement: int) -> Violation | None:
        """A plain write: no two threads may make it to one element in one step either."""
        order = np.argsort(place, kind="stable")
        twice = np.flatnonzero(np.diff(place[order]) == 0)
        if len(twice):
            first, second = order[twice[0]], order[twice[0] + 1]
            return Violation(
                place=int(place[second]),
                agent=int(agent[second]),
                earlier=statement,
                earlier_agent=int(agent[first]),
            )
        return self._access("write", ("write", "read", "atomic"), place, agent, statement)

    def atomic(self, place: Array, agent: Array, statement: int) -> Violation | None:
        return self._access("atomic", ("write", "read"), place, agent, statement)

    def touched_since(self, place: Array, agent: Array, times: Mapping[int, int]) -> Violation | None:
        raise InternalError("products that are over later do not run in lockstep")

    def _record(self, kind: str) -> Record:
        if kind not in self.by_kind:
            self.by_kind[kind] = Record.of(self.elements)
        return self.by_kind[kind]

    def _access(
        self, kind: str, against: tuple[str, ...], place: Array, thread: Array, statement: int
    ) -> Violation | None:
        for other in against:
            if other not in self.by_kind:
                continue
            record = self.by_kind[other]
            wrong = np.flatnonzero(record.conflicts(place, thread, self.clock))
            if len(wrong):
                at = int(place[wrong[0]])
                mine = int(thread[wrong[0]])
                theirs = int(record.least[at]) if record.least[at] != mine else int(record.most[at])
                return Violation(place=at, agent=mine, earlier=int(record.statement[at]), earlier_agent=theirs)
        self._record(kind).note(place, thread, self.clock, statement)
        return None


@dataclass(frozen=True, slots=True)
class LockstepSyncs:
    """Barriers of whole blocks and warps: all of their threads are in the crew, or some never come."""

    launch: Launch
    clock: Lockstep
    words: WordMemory
    groups: dict[Word, int] = field(default_factory=dict)
    parts_crews: bool = False

    def meet(self, node: Sync | Last, crew: Crew) -> Pause | None:
        if isinstance(node, Last):
            self._count(node, crew)
            return None
        if not isinstance(node, Barrier):
            raise InternalError(f"{self.launch.name}: {type(node).__name__} does not run in lockstep")
        if not self.clock.barrier(node.scope, crew.lanes.thread):
            between = "".join(f" between {o.source} and {o.sink}" for o in node.orders[:1])
            message = f"{self.launch.name}: not all threads of a {node.scope.value} reach the barrier{between}"
            raise failure(message, self.launch.span)
        return None

    def _count(self, node: Last, crew: Crew) -> None:
        """All blocks of the crew are counted, and those that are the last of theirs go on in the body."""
        lanes, clock = crew.lanes, self.clock
        firsts = np.flatnonzero(lanes.thread % clock.threads == 0)
        at = [np.broadcast_to(lanes.index(e), lanes.thread.shape) for e in (*node.at, node.n)]
        last: list[int] = []
        for first in firsts.tolist():
            block = int(lanes.thread[first]) // clock.threads
            *where, n = (int(value[first]) for value in at)
            word = self.words.word(node.counter, where, node.span)
            if word not in self.groups:
                self.groups[word] = clock.group()
            group = self.groups[word]
            clock.count(block, group)
            if self.words.count(word, n, NOTHING) is not None:
                del self.groups[word]
                clock.last[block] = group
                last.append(block)
        if not clock.barrier(Scope.BLOCK, lanes.thread):
            raise failure(f"{self.launch.name}: not all threads of a block come to be counted", node.span)
        if last:
            crew.enter(node.body, lanes.only(np.isin(clock.blocks(lanes.thread), last)))

    def gather(self, node: Operator, lanes: Lanes) -> tuple[Lanes | None, Pause | None]:
        return lanes, None

    def issue(self, operator: Copy | Contract, lanes: Lanes) -> None:
        raise InternalError(f"{self.launch.name}: {operator.id} does not run in lockstep")

    def read(self, buffer: MappedBuffer, thread: Array) -> Array:
        match buffer.memory:
            case Memory.REG if buffer.role is Role.LOCAL:
                return thread
            case Memory.SHARED | Memory.CLUSTER:
                return self.clock.blocks(thread)
            case _:
                return np.zeros_like(thread)

    def written(self, buffer: MappedBuffer, thread: Array) -> Array:
        return self.read(buffer, thread)

    def of_rank(self, thread: Array, rank: Array) -> Array:
        return self.clock.blocks(thread)  # memory of a cluster, which is one block
