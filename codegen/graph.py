"""The kernel graph: what is computed on this machine, launch by launch (after Mirage's muGraph).

Semantics: a `KernelGraph` runs its host body in order. A `Launch` runs its `BlockGraph` once for every block of the
grid, all blocks independent; its `block_dim` threads run the body tree in lock-free order except at `Barrier`s.
A `Generic` operator evaluates one leaf statement for the indices that enclosing `Define`s and `Loop`s give; its loads
stand in its value tree and are evaluated where the tree says (a select's arm only when chosen).

    BlockGraph vadd  grid (ceildiv(N, 256), 1, 1)  block 256
      define i = 256*i_block + 32*i_warp + i_lane
      guard i < N
        generic S0: C[i] = A[i] + B[i]        loads A[i], B[i]  store C[i]
"""

from dataclasses import dataclass, field
from enum import StrEnum

from texpr.grammar.ast import AccOp, Condition, IndexExpr, Leaf, Read, Role, Subscript
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Scope
from texpr.polyhedral.mapped.sync import Barrier


@dataclass(frozen=True, slots=True, kw_only=True)
class DTensor:
    """A tensor in device memory: an array or scalar argument, or a workspace. `strides` in elements."""

    name: str
    dtype: DType
    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    role: Role
    align: int = 16
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTensor:
    """A tensor of one block (shared) or one thread (reg). `strides` are None while the layout is free."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    memory: Memory
    align: int = 16
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


class LoadMode(StrEnum):
    PLAIN = "plain"
    GATHER = "gather"  # some subscript is data


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A read of one element by the value tree of an operator."""

    tensor: str
    subscripts: tuple[Subscript, ...]
    mode: LoadMode
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


class StoreMode(StrEnum):
    BIND = "bind"
    UPDATE = "update"  # read, combine, write by one thread
    ATOMIC = "atomic"  # indivisible


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The write of one element: `op` combines it with what is there, except in a bind."""

    tensor: str
    subscripts: tuple[Subscript, ...]
    mode: StoreMode
    op: AccOp | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """One leaf statement. `store` is None for an anchor. `once`: only thread 0 of the block runs it."""

    id: str
    leaf: Leaf
    loads: tuple[Load, ...]
    store: Store | None
    origin: Origin = Origin.SOURCE
    once: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)
    call_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    """`index = sum(weight * digit)`, digits by name."""

    index: str
    terms: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """`index` from 0 to extent - 1 in one thread."""

    index: str
    extent: IndexExpr
    body: tuple["BlockNode", ...]
    unroll: bool = False
    vector: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    condition: Condition | Read
    body: tuple["BlockNode", ...]
    orelse: tuple["BlockNode", ...] = ()
    uniform: Scope = Scope.THREAD
    once: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A block tensor begins to live, undefined."""

    tensor: str


BlockNode = Define | Loop | Guard | Generic | Fresh | Barrier


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGraph:
    """The work of one block. `digits` are those of hardware places; `arguments` the host indices that it reads."""

    name: str
    grid_dim: tuple[IndexExpr, IndexExpr, IndexExpr]
    cluster_dim: tuple[int, int, int]
    block_dim: int
    digits: tuple[Digit, ...]
    tensors: tuple[BlockTensor, ...]
    body: tuple[BlockNode, ...]
    orders: tuple[Order, ...] = ()
    arguments: tuple[str, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    graph: BlockGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoop:
    index: str
    extent: IndexExpr
    body: tuple["KernelNode", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIf:
    condition: Condition
    then: tuple["KernelNode", ...]
    orelse: tuple["KernelNode", ...] = ()


KernelNode = Launch | HostLoop | HostIf


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGraph:
    """`tensors` in the order of the C ABI: parameters as declared, then workspaces; `sizes` are the free ones."""

    name: str
    source_name: str
    tensors: tuple[DTensor, ...]
    sizes: tuple[str, ...]
    facts: tuple[Condition, ...]
    body: tuple[KernelNode, ...]

    def launches(self) -> tuple[BlockGraph, ...]:
        """Every block graph, in text order."""
        found: list[BlockGraph] = []
        stack: list[KernelNode] = list(reversed(self.body))
        while stack:
            match stack.pop():
                case Launch(graph=graph):
                    found.append(graph)
                case HostLoop(body=body):
                    stack.extend(reversed(body))
                case HostIf(then=then, orelse=orelse):
                    stack.extend(reversed(then + orelse))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlan:
    """Byte offsets of the shared tensors of one launch, and their sum."""

    offsets: dict[str, int]
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePlan:
    """Byte offsets of the workspace tensors (expressions of sizes, multiples of 256) and the total."""

    offsets: dict[str, IndexExpr]
    total_bytes: IndexExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGraph:
    """A kernel graph and its frozen plans, as emission takes them; dictionaries are by launch name.

    `strides` settles every block tensor's layout.
    """

    graph: KernelGraph
    strides: dict[str, dict[str, tuple[int, ...]]]
    workspace: WorkspacePlan
    shared: dict[str, SharedPlan]
