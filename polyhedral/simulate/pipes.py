"""Rings of slots: which turn each thread is at, when a turn is full, and when it is free again.

A turn is full when `commits` arrivals and all bytes came, free when `releases` arrivals came; whoever waits for it then
knows what those that arrived knew. An arrival too many, out of turn, or by who has no business there is an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Acquire, Commit, Drain, End, Pipe, PipeKind, Release, Skip, Wait
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import NOTHING, Clocks, Snapshot, Team
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.failure import failure

Waiting = tuple[Callable[[], bool], Callable[[], None]]


@dataclass(slots=True)
class Turn:
    """One turn of a pipe in one block."""

    commits: int = 0
    bytes: int = 0
    full: Snapshot = NOTHING
    releases: int = 0
    free: Snapshot = NOTHING


@dataclass(slots=True)
class Pipes:
    """All pipes of a launch; counts are by pipe and thread, turns by pipe, block and number."""

    launch: Launch
    geometry: Geometry
    clocks: Clocks
    team: Team
    remote: Callable[[int, Array, str], None]  # agents act in a block that may not be theirs
    turns: dict[tuple[str, int, int], Turn] = field(default_factory=dict)
    acquired: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    waited: dict[tuple[str, int], int] = field(default_factory=dict)
    released: set[tuple[str, int, int]] = field(default_factory=set)
    initialised: dict[int, int] = field(default_factory=dict)  # by block, the mark of it
    came: dict[tuple[str, int, int], int] = field(default_factory=dict)  # lanes of a warp to the commit of a turn
    by_name: dict[str, Pipe] = field(init=False)
    by_buffer: dict[str, Pipe] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {p.name: p for p in self.launch.pipes}
        self.by_buffer = {b: p for p in self.launch.pipes for b in p.buffers}

    def turn(self, pipe: Pipe, block: int, number: int) -> Turn:
        return self.turns.setdefault((pipe.name, block, number), Turn())

    def is_full(self, pipe: Pipe, block: int, number: int) -> bool:
        turn = self.turn(pipe, block, number)
        return turn.commits == pipe.commits and (pipe.kind is not PipeKind.TRANSACTION or turn.bytes == pipe.bytes)

    def acquire(self, node: Acquire, thread: Array, part: str) -> Waiting | None:
        pipe, block = self._ready(node, thread, part)
        number = self._count(self.acquired, pipe, thread)
        before = number - pipe.stages
        if before < 0 or not pipe.releases:
            return None
        turn = self.turn(pipe, block, before)
        return (lambda: turn.releases >= pipe.releases), (lambda: self._join(thread, turn.free))

    def drain(self, node: Drain, thread: Array, part: str) -> Waiting:
        pipe, block = self._ready(node, thread, part)
        count = self.acquired.get((pipe.name, int(thread[0])), 0)
        turns = [self.turn(pipe, block, number) for number in range(max(0, count - pipe.stages), count)]

        def learn() -> None:
            for turn in turns:
                self._join(thread, turn.free)

        return (lambda: all(turn.releases >= pipe.releases for turn in turns)), learn

    def commit(self, node: Commit, thread: Array, part: str) -> tuple[Pipe, int, tuple[int, ...]]:
        """The threads say that their share is written; the pipe, the turn and the blocks to `arrive` in."""
        pipe, block = self._ready(node, thread, part)
        number = self._count(self.committed, pipe, thread)
        if number >= self.acquired.get((pipe.name, int(thread[0])), 0):
            raise failure(f"turn {number} of {pipe.name} is committed and was not acquired", node.span)
        ranks = self._ranks(pipe, pipe.producers, part, block) if pipe.kind is PipeKind.ARRIVE else (block,)
        return pipe, number, ranks

    def whole_warps(self, pipe: Pipe, number: int, thread: Array, span: Span) -> int:
        """How many warps have come to a commit with all their lanes, these the last ones."""
        if pipe.kind is not PipeKind.TRANSACTION:
            raise failure(f"{pipe.name} is committed by warps, and its bytes do not say what is written", span)
        whole = 0
        for warp, lanes in zip(*np.unique(thread // self.geometry.warp, return_counts=True), strict=True):
            key = (pipe.name, int(warp), number)
            self.came[key] = self.came.get(key, 0) + int(lanes)
            whole += self.came[key] == self.geometry.warp
        return whole

    def arrive(self, pipe: Pipe, number: int, blocks: Sequence[int], count: int, agents: Array, span: Span) -> None:
        """So many commits of a turn; what these agents know goes with them."""
        for block in blocks:
            if number >= pipe.stages and not self.is_full(pipe, block, number - pipe.stages):
                raise failure(f"turn {number} of {pipe.name} is committed before turn {number - pipe.stages}", span)
            turn = self.turn(pipe, block, number)
            turn.commits += count
            turn.full = turn.full.union(self.clocks.snapshot(agents))
            self.remote(block, agents, f"a commit of {pipe.name}")
            if turn.commits > pipe.commits:
                raise failure(f"turn {number} of {pipe.name} is committed more than {pipe.commits} times", span)

    def bytes(self, pipe: Pipe, number: int, blocks: Sequence[int], count: int, agents: Array, span: Span) -> None:
        """Copies of a turn are over and brought so many bytes to each block."""
        for block in blocks:
            turn = self.turn(pipe, block, number)
            turn.bytes += count
            turn.full = turn.full.union(self.clocks.snapshot(agents))
            if turn.bytes > pipe.bytes:
                raise failure(f"turn {number} of {pipe.name} gets more than {pipe.bytes} bytes", span)

    def wait(self, node: Wait, thread: Array, part: str) -> Waiting:
        pipe, block = self._ready(node, thread, part)
        number = self._count(self.waited, pipe, thread)
        if number >= pipe.stages and not self.is_full(pipe, block, number - pipe.stages):
            before = f"before turn {number - pipe.stages} is full"
            raise failure(f"turn {number} of {pipe.name} is waited for {before}: their parity is one", node.span)
        return (
            lambda: self.is_full(pipe, block, number),
            lambda: self._join(thread, self.turn(pipe, block, number).full),
        )

    def release(self, node: Release, thread: Array, part: str) -> None:
        pipe, block = self._ready(node, thread, part)
        number = self.waited.get((pipe.name, int(thread[0])), 0) - 1 - node.behind
        if number < 0:
            raise failure(f"{pipe.name} is released before a turn was waited for", node.span)
        for one in thread.tolist():
            if (pipe.name, one, number) in self.released:
                raise failure(f"turn {number} of {pipe.name} is released twice by thread {one}", node.span)
            self.released.add((pipe.name, one, number))
        agents = self.team.agents(thread)
        for target in self._ranks(pipe, pipe.consumers, part, block):
            self._known(target, thread, pipe, node.span)
            turn = self.turn(pipe, target, number)
            turn.releases += len(thread)
            turn.free = turn.free.union(self.clocks.snapshot(agents))
            self.remote(target, agents, f"a release of {pipe.name}")
            if turn.releases > pipe.releases:
                raise failure(f"turn {number} of {pipe.name} is released more than {pipe.releases} times", node.span)

    def skip(self, node: Skip, thread: Array, part: str) -> None:
        pipe, _ = self._ready(node, thread, part)
        self._count(self.waited, pipe, thread)

    def filling(self, copy: Copy, thread: Array, part: str, rank: int | None) -> tuple[Pipe, int, tuple[int, ...]]:
        """Of a copy into a pipe, to one `rank` or to all that it reaches: its turn, and the blocks that it goes to."""
        pipe, first, name = self.by_name[copy.pipe], int(thread[0]), copy.pipe
        if copy.target.buffer not in pipe.buffers:
            raise failure(f"{copy.target.buffer} is no buffer of {name}", copy.span)
        number = self.acquired.get((name, first), 0) - 1
        if number < self.committed.get((name, first), 0):
            raise failure(f"a copy goes into {name} and no turn of it is acquired and not committed yet", copy.span)
        own = first // self.geometry.threads
        blocks = (own,) if not copy.to_ranks else self._ranks(pipe, pipe.producers, part, own)
        if rank is not None:
            blocks = tuple(block for block in blocks if self.geometry.cluster_of(block).index(block) == rank)
            if not blocks:
                raise failure(f"a copy into {name} goes to rank {rank}, which the pipe does not reach", copy.span)
        for block in blocks:
            self._known(block, thread, pipe, copy.span)
        return pipe, number, blocks

    def slots(self, buffer: MappedBuffer, thread: Array, *, writes: bool) -> Array:
        """The slot of a buffer of a pipe that each thread means."""
        pipe = self.by_buffer[buffer.name]
        counts = self.acquired if writes else self.waited
        every, which = np.unique(thread, return_inverse=True)
        turns = np.array([counts.get((pipe.name, t), 0) - 1 for t in every.tolist()], dtype=np.int64)
        if (turns < 0).any():
            what = "written before a turn is acquired" if writes else "read before a turn is waited for"
            raise failure(f"{buffer.name} is {what}")
        return np.asarray((turns % pipe.stages)[which])

    def left(self) -> str | None:
        """A turn that was begun and never was full, or never was committed."""
        for (name, thread), count in self.acquired.items():
            if self.committed.get((name, thread), 0) != count:
                return f"thread {thread} acquired {count} turns of {name} and did not commit the last"
        for (name, block, number), turn in self.turns.items():
            if (turn.commits or turn.bytes) and not self.is_full(self.by_name[name], block, number):
                return f"turn {number} of {name} is not full when the launch ends"
        return None

    def _ready(
        self, node: Acquire | Drain | Commit | Wait | Release | Skip, thread: Array, part: str
    ) -> tuple[Pipe, int]:
        pipe, block = self.by_name[node.pipe], int(thread[0]) // self.geometry.threads
        producing = isinstance(node, Acquire | Drain | Commit)
        if not any(end.part in ("", part) for end in (pipe.producers if producing else pipe.consumers)):
            side = "producer" if producing else "consumer"
            raise failure(f"part {part or 'none'} is no {side} of {pipe.name}", node.span)
        self._known(block, thread, pipe, node.span)
        return pipe, block

    def _known(self, block: int, thread: Array, pipe: Pipe, span: Span) -> None:
        """Every thread must know that the block's pipes are initialised."""
        mark = self.initialised.get(block, -1)
        if mark < 0 or not self.clocks.known[self.team.agents(thread), mark].all():
            raise failure(f"{pipe.name} is used by threads that nothing orders after its initialisation", span)

    def _count(self, counts: dict[tuple[str, int], int], pipe: Pipe, thread: Array) -> int:
        number = counts.get((pipe.name, int(thread[0])), 0)
        for one in thread.tolist():
            counts[pipe.name, one] = number + 1
        return number

    def _ranks(self, pipe: Pipe, ends: Sequence[End], part: str, block: int) -> tuple[int, ...]:
        end = next(e for e in ends if e.part in ("", part))
        if not end.ranks:
            return (block,)
        cluster = self.geometry.cluster_of(block)
        return tuple(cluster[rank] for rank in end.ranks[cluster.index(block)])

    def _join(self, thread: Array, snapshot: Snapshot) -> None:
        self.clocks.join(self.team.agents(thread), snapshot)
