"""The mapped program: which thread of which block runs what, where every buffer lies, what must be ordered.

Every parallel index is a sum of **digits**, i = sum(weight * digit) (+ nothing else), each digit in [0, radix) at one
place; on the hardware a digit is `coordinate(place) / stride % radix`, so the map is a bijection by construction and
an index beyond its extent is cut by a printed `Guard`. The coordinate of a place:

    grid.x grid.y grid.z   blockIdx          core     the CPU's parallel loop counter
    warp                   threadIdx.x / 32  lane     threadIdx.x % 32
    serial, vector         a `Loop` of that digit in the launch's body (vector: innermost, unrolled or vectorised)

    par M i, N j   on (32, 8) threads:   j = 32*j_block + j_lane      j_lane: lane, stride 1, radix 32
                                         i =  8*i_block + i_warp      i_block: grid.y, radix ceildiv(M, 8)

A launch's body is a tree. `Define` gives an index its value from digits and stands before what uses it. A statement
outside an inner `par` runs *once* per block (thread 0, and an order to its readers) or *replicated* (every thread into
its own registers).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from texpr.grammar.ast import Condition, IndexExpr, Kernel, Leaf, Read, Role
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.program import Hazard, ProvedProgram, StatementKind
from texpr.polyhedral.target import Target


class Place(StrEnum):
    GRID_X = "grid.x"
    GRID_Y = "grid.y"
    GRID_Z = "grid.z"
    CLUSTER = "cluster"
    WARPGROUP = "warpgroup"
    WARP = "warp"
    LANE = "lane"
    VECTOR = "vector"
    SERIAL = "serial"
    CORE = "core"


GRID_PLACES = (Place.GRID_X, Place.GRID_Y, Place.GRID_Z)


class Scope(StrEnum):
    """Between which threads: ordered from narrow to wide."""

    THREAD = "thread"
    WARP = "warp"
    BLOCK = "block"
    CLUSTER = "cluster"
    GRID = "grid"


class Memory(StrEnum):
    REG = "reg"
    SHARED = "shared"
    CLUSTER = "cluster"
    GLOBAL = "global"


class Origin(StrEnum):
    """Why a statement is there: the author's, or made by the mapping."""

    SOURCE = "source"
    COPY_IN = "copy_in"
    COPY_OUT = "copy_out"
    INIT = "init"
    COMBINE = "combine"


class Unused(StrEnum):
    """What a statement does with a thread place that none of its digits uses."""

    ONCE = "once"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digit:
    """One digit of the parallel index `index`. `radix` and `stride` are constants but for grid axes, core and serial,
    where they may be expressions of sizes, host indices and scalars. `name` is unique in the launch."""

    name: str
    index: str
    weight: int
    radix: IndexExpr
    stride: IndexExpr
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    """`index = sum(weight * digit)` over the digits named; an index with no digits is 0 (extent 1)."""

    index: str
    digits: tuple[Digit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop inside one thread: over a serial or vector digit, or over a `seq` (`digit` None), or over a whole par
    index that is run serially (`digit` None, `parallel` True). `index` is the variable's name; it runs from 0 to
    extent - 1. `unroll` asks for complete unrolling; `vector` says the iterations are independent and contiguous."""

    index: str
    extent: IndexExpr
    body: tuple["Node", ...]
    digit: Digit | None = None
    parallel: bool = False
    unroll: bool = False
    vector: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The body runs where the condition holds: the padding of a tile (`padding`), or the author's `if`. `orelse`
    belongs to the author's `if` only. A barrier may stand inside only where the condition is uniform over its scope."""

    condition: Condition | Read
    body: tuple["Node", ...]
    orelse: tuple["Node", ...] = ()
    padding: bool = False
    uniform: Scope = Scope.THREAD  # the widest scope over which the condition has one value
    once: bool = False  # only thread 0 of the block asks the condition, and all statements inside run once
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedStatement:
    """A leaf at its place in the tree.

    `leaf` is the core statement with its index expressions over indices that enclosing nodes define. `digits` names
    the thread digits that it uses; `unused` says what happens at each other thread place (empty when all are used or
    the block has one thread). `atomic` asks for an indivisible update: iterations of different threads accumulate
    into one element.
    """

    id: str
    leaf: Leaf
    origin: Origin = Origin.SOURCE
    kind: StatementKind = StatementKind.GENERIC
    digits: tuple[str, ...] = ()
    unused: Unused | None = None
    atomic: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """The local buffer begins to live here, undefined (a `new`); it costs nothing, checkers poison it."""

    buffer: str


Node = Define | Loop | Guard | MappedStatement | Fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A layout that is settled: strides in elements, padding included."""

    strides: tuple[IndexExpr, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """A layout that the plan stage chooses."""


Layout = Free | Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedBuffer:
    """A buffer at its memory. `scope` says who shares one copy: a thread (reg), a block (shared), the grid (global).

    `expanded` names loop indices by which a local in global memory was expanded, one copy per iteration: they are the
    leading subscripts of every access to it and the leading entries of `shape`. `reason` is a sentence for `texpr map`.
    """

    name: str
    dtype: DType
    shape: tuple[IndexExpr, ...]
    memory: Memory
    scope: Scope
    layout: Layout
    role: Role
    expanded: tuple[str, ...] = ()
    align: int = 16
    reason: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Instances of `source` must be over before instances of `sink` begin, between threads of one `scope`.

    `carried_by` is the loop of the launch that separates them (None: the same iteration of all common loops).
    `relation` is isl text from (block…, thread, source instance) to (block…, thread, sink instance), for people.
    `buffer` and `hazard` are the reason that a barrier prints. An order that took too many steps to compute is not
    `computed`, and required all the same.
    """

    source: str
    sink: str
    buffer: str
    hazard: Hazard
    scope: Scope
    carried_by: str | None
    relation: str = field(default="", compare=False)
    computed: bool = field(default=True, compare=False)
    source_span: Span = field(default=NO_SPAN, compare=False, repr=False)
    sink_span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierPosition:
    """A synchronisation of `scope` (warp or block) in a launch's body, and the orders that it enforces.

    `path` alternates child numbers and branches from the body's root: (2,) is before child 2 of the body (after the
    last one where 2 is the length), (2, 0, 1) before child 1 of the body of child 2; branch 1 is a guard's `orelse`.
    """

    path: tuple[int, ...]
    scope: Scope
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedLaunch:
    """One kernel launch. `grid` is in blocks, `threads` in threads of one block (1 on a CPU, where `grid[0]` counts
    core iterations). `arguments` names what the body uses: host indices, in order of nesting. `digits` has every
    digit of the launch, places of hardware first."""

    name: str
    grid: tuple[IndexExpr, IndexExpr, IndexExpr]
    cluster: tuple[int, int, int] = (1, 1, 1)
    threads: int
    digits: tuple[Digit, ...]
    body: tuple[Node, ...]
    orders: tuple[Order, ...] = ()
    arguments: tuple[str, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoop:
    """A loop of launches: a `seq` whose dependences cross blocks. `index` is an argument of its launches."""

    index: str
    extent: IndexExpr
    body: tuple["HostNode", ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIf:
    """An `if` on sizes and host indices around launches."""

    condition: Condition
    then: tuple["HostNode", ...]
    orelse: tuple["HostNode", ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


HostNode = MappedLaunch | HostLoop | HostIf


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessReport:
    """What `texpr map` says of one access: lane stride in elements (None: not affine in the lanes), d as the seed
    defines it, 32-byte sectors per warp request and the ideal."""

    statement: str
    buffer: str
    mode: str
    relation: str
    lane_stride: int | None = None
    distance: int | None = None
    sectors: int | None = None
    ideal_sectors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The decisions in words and figures. `representative` has the values at which free sizes were judged."""

    accesses: tuple[AccessReport, ...] = ()
    representative: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedProgram:
    """A kernel mapped to a target; `buffers` has every buffer that a launch touches, parameters included."""

    kernel: Kernel
    proved: ProvedProgram = field(compare=False, repr=False)
    target: Target
    host: tuple[HostNode, ...]
    buffers: Mapping[str, MappedBuffer]
    certificates: tuple[str, ...] = ()
    report: Report = field(default_factory=Report)
