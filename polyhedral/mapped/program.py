"""The mapped program: which launches run on what grid, where every buffer lies, what must be ordered.

A `MappedProgram` runs its host body in order. A `Launch` runs its body once for every block of the grid, all blocks
independent; its threads run the tree (`tree.py`) in lock-free order except at synchronisation. Digits (`places.py`)
say which thread of which block runs what.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Generic, TypeVar

from texpr.grammar.ast import Condition, IndexExpr, Kernel, Role
from texpr.grammar.index.expr import ONE
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.candidate import Choices
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import LOOP_PLACES, Digit, Memory, Scope
from texpr.polyhedral.mapped.sync import Pipe
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target

ALIGN_BYTES = 16  # of buffers that need no more than their widest accesses


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedBuffer:
    """A buffer at its memory. `scope` says who shares one copy: a thread (reg), a block (shared), the grid (global);
    `layout` where the elements of a copy lie. In cluster memory the first dimension is the rank.

    `expanded` names loop indices by which a local in global memory, or one of a CPU's core, was expanded, one copy per
    iteration: they are the leading subscripts of every access to it and the leading dimensions. `reason` is a sentence
    for `texpr map`. `of` is the kernel's name of a buffer that has another one here, in one case of several.
    """

    name: str
    dtype: DType
    memory: Memory
    scope: Scope
    layout: Layout
    role: Role
    expanded: tuple[str, ...] = ()
    align: int = ALIGN_BYTES
    reason: str = ""
    of: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def shape(self) -> tuple[IndexExpr, ...]:
        return self.layout.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch. `grid` is in blocks, `threads` in threads of one block (1 on a CPU, where `grid[0]` counts
    core iterations), `cluster` says how many blocks along each axis are one cluster. `min_blocks` must
    fit on a multiprocessor together, which bounds registers (0: no bound). With `turns`, a counter, blocks along x are
    numbered as they begin. Of arrays in `lasting`, where they are larger than the L2, it gives up last what was read;
    of those in `passing` first. `arguments` names what the body uses: host indices, in order of nesting. `digits` has
    every digit of the launch, places of hardware first."""

    name: str
    grid: tuple[IndexExpr, IndexExpr, IndexExpr]
    cluster: tuple[int, int, int] = (1, 1, 1)
    threads: int
    min_blocks: int = 0
    turns: str = ""
    lasting: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    digits: tuple[Digit, ...]
    body: tuple[Node, ...]
    pipes: tuple[Pipe, ...] = ()
    orders: tuple[Order, ...] = ()
    arguments: tuple[str, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def is_one_thread(self) -> bool:
        """Whether one thread of one block does everything."""
        return self.threads == 1 and self.grid == (ONE, ONE, ONE)

    @property
    def hardware(self) -> tuple[Digit, ...]:
        """The digits that no loop of the body runs over."""
        return tuple(d for d in self.digits if d.place not in LOOP_PLACES)

    @property
    def pipe_of(self) -> dict[str, Pipe]:
        """The pipe of each buffer that has one."""
        return {buffer: pipe for pipe in self.pipes for buffer in pipe.buffers}

    @property
    def stages(self) -> dict[str, int]:
        """The slots of each buffer that has a pipe."""
        return {buffer: pipe.stages for buffer, pipe in self.pipe_of.items()}


L = TypeVar("L")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoop(Generic[L]):
    """A loop of launches: a `seq` whose dependences cross blocks. `index` is an argument of its launches."""

    index: str
    extent: IndexExpr
    body: tuple["L | HostLoop[L] | HostIf[L]", ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIf(Generic[L]):
    """An `if` on sizes and host indices around launches."""

    condition: Condition
    then: tuple["L | HostLoop[L] | HostIf[L]", ...]
    orelse: tuple["L | HostLoop[L] | HostIf[L]", ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


HostNode = Launch | HostLoop[Launch] | HostIf[Launch]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessReport:
    """What `texpr map` says of one access: how many neighbouring elements a thread moves at once, lane stride in
    elements (None: not affine in the lanes), d as the seed defines it, 32-byte sectors per warp request and the
    ideal."""

    statement: str
    buffer: str
    mode: str
    relation: str
    width: int = 1
    lane_stride: int | None = None
    distance: int | None = None
    sectors: int | None = None
    ideal_sectors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The decisions in words and figures. `representative` has the values at which free sizes were judged, `schedule`
    the moves of loops and locals that were made."""

    accesses: tuple[AccessReport, ...] = ()
    representative: Mapping[str, int] = field(default_factory=dict)
    schedule: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedProgram:
    """A kernel mapped to a target by the choices of `candidate`, one or one for each case; `buffers` has every buffer
    that a launch touches, parameters included, and `words` the counters and flags of its launches."""

    kernel: Kernel
    proved: ProvedProgram = field(compare=False, repr=False)
    target: Target
    host: tuple[HostNode, ...]
    buffers: Mapping[str, MappedBuffer]
    candidate: Choices
    words: tuple[Words, ...] = ()
    report: Report = field(default_factory=Report)
