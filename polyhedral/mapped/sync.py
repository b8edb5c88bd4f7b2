"""Synchronisation: the nodes at which threads wait for one another, and the promises that they keep by it.

A node is run by every thread that reaches it; a `Guard` around it elects some. What happens before what is only what
program order of one thread and the rules below say; a write that is not before a read is not seen by it.

    part load (1 warp)                          part sum (2 warps)
      if lane == 0                                for k < K
        for k < K                                   wait a                  turn k of `a` is full
          acquire a                                 S1: s += a[i]
          S0: copy a[…] = A[k, …]  (a)              release a               turn k of `a` is read
          commit a
    pipe a: 3 stages, transaction, block; a; load -> sum; 1 commit of 128 bytes, 64 releases

**Barriers.** A thread's n-th arrival at a barrier belongs to its n-th turn; a turn is over when every thread of the
scope (or of the named parts in it) arrived; what those threads did before is before what a waiting one does after.

**Pipes** are rings of `stages` slots. Each thread counts: its n-th `Acquire` begins turn n, waiting until turn
n - stages was released; its n-th `Commit` says that its share of turn n is written, its n-th `Wait` lasts until turn n
is full; `Release` says that it has read its share of the turn waited for last, or of one `behind` it; `Drain` lasts
until the turns that the thread acquired are released; `Skip` passes over a turn that others of its part read and
release. Counts go on over all loops, from launch to exit; the slot of a turn is turn mod `stages`. A write to one of
the pipe's buffers goes to the slot of the turn acquired last, a read takes that of the turn waited for last.

**Groups** are a thread's own: `Close` ends the group of the asynchronous operators of one kind that the thread issued
since the last, `WaitGroup` lasts until all but the youngest `behind` of them are over; the threads of a warp issue and
wait for products (`wgmma`) as one, and those of a warp run one after the other. Other threads learn of it by another
sync only.

**Fences** are a thread's own too: what it wrote is visible to asynchronous copies and products (`async_proxy`), what it
did to the registers that its products take is over (`wgmma`, and once before the first), the pipes that it initialised
are visible to other threads (`barrier_init`, by the first thread of each block, which initialises all pipes when it
starts). All but those of registers need a sync after them to reach other threads.

Between blocks: `between.py`.

A block begins when the launch lets it, and ends when all of its threads have. What other blocks of its cluster do in
its memory must be after the one, which a barrier of the cluster tells them, and before the other.
"""

from dataclasses import field
from enum import StrEnum

from texpr.grammar.diagnostics import InternalError
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.between import BetweenBlocks
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Scope


class Action(StrEnum):
    """What a thread does at a barrier: `wait` is for the turn at which it arrived last."""

    ARRIVE = "arrive"
    WAIT = "wait"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Threads of the `scope`, of `parts` alone where any are named, wait until all of them arrived. The first order is
    one that no other sync enforces. Barriers of one scope, parts and name are one barrier, wherever they stand. Who
    arrives `relaxed`, of a cluster, says only that its block has begun and, behind the fence, that its pipes are there:
    nothing of what it did is before what others do."""

    scope: Scope
    orders: tuple[Order, ...] = ()
    parts: tuple[str, ...] = ()
    action: Action = Action.BOTH
    name: str = ""
    relaxed: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.relaxed and self.scope is not Scope.CLUSTER:
            raise InternalError(f"a barrier of the {self.scope.value} is not relaxed")

    @property
    def is_whole(self) -> bool:
        """Whether all threads of the scope arrive and wait there."""
        return not self.parts and self.action is Action.BOTH and not self.name


class PipeKind(StrEnum):
    """Who says that a slot is full: the copies of a committing thread (`cp_async`: its `Commit` arrives when they are
    over), the bytes that arrived (`transaction`), or the thread itself, having written (`arrive`)."""

    CP_ASYNC = "cp_async"
    TRANSACTION = "transaction"
    ARRIVE = "arrive"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a pipe: a part ("": the whole block) and, in a cluster, the ranks whose slots it writes or whose
    producers it tells of its reading, `ranks[own]`; its own alone where `ranks` is empty."""

    part: str = ""
    ranks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A ring of slots of `buffers` in every block. A turn is full after `commits` arrivals and, of kind `transaction`,
    `bytes` copied into the block's slot, and free after `releases` arrivals (0: other syncs say when). In a cluster a
    `Commit` of kind `arrive` tells all ranks of its end, others only their own: copies tell where they land."""

    name: str
    stages: int
    kind: PipeKind
    scope: Scope  # block or cluster
    buffers: tuple[str, ...]
    producers: tuple[End, ...]
    consumers: tuple[End, ...]
    commits: int
    releases: int
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    pipe: str
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Until every turn that the thread acquired is free: nobody reads what it filled, or will say so, any more."""

    pipe: str
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """`by_warp`: the lanes of a warp come together and are one arrival."""

    pipe: str
    by_warp: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    pipe: str
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """`behind` turns are still being read by what the thread issued: it releases turn waits - 1 - `behind`."""

    pipe: str
    behind: int = 0
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The thread neither waits for the next turn nor releases it. A turn is told from the one `stages` before it by its
    parity alone, so whoever waits again knows by another sync that that one is full."""

    pipe: str
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


class GroupKind(StrEnum):
    CP_ASYNC = "cp_async"
    WGMMA = "wgmma"
    BULK = "bulk"


class Until(StrEnum):
    READ = "read"  # the sources may be overwritten
    DONE = "done"  # and the targets are written


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    kind: GroupKind
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGroup:
    kind: GroupKind
    behind: int = 0
    until: Until = Until.DONE
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


class FenceKind(StrEnum):
    ASYNC_PROXY = "async_proxy"
    WGMMA = "wgmma"
    BARRIER_INIT = "barrier_init"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    kind: FenceKind
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


InBlock = Barrier | Acquire | Drain | Commit | Wait | Release | Skip | Close | WaitGroup | Fence
Sync = InBlock | BetweenBlocks
