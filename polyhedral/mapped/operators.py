"""Operators: the leaves of a mapped tree, which compute.

    S1: C[i, j] += A[i, k] * B[k, j]      reads A[i, k], B[k, j] in evaluation order; updates C[i, j] with +

A `Generic` evaluates one leaf statement of the core tree for the indices that the nodes around it define; a read is
evaluated where the value says (a select's arm only when it is chosen). Outside an inner `par` it runs *once* per block
(thread 0, and an order to its readers) or *replicated* (every thread into its own registers).

    S2: copy a[i] = A[k, i] for i < 64  (transaction, ring)

A `Copy` binds every element of a box: it means the `Generic`s of its expansion (`expand.py`), at once or until its
completion is waited for.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from texpr.grammar.ast import AccOp, Anchor, Atomic, Bind, IndexExpr, Leaf, Read, Subscript
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.walk import read_accesses


class Origin(StrEnum):
    """Why an operator is there: the author's, or made by the mapping."""

    SOURCE = "source"
    COPY_IN = "copy_in"
    COPY_OUT = "copy_out"
    INIT = "init"
    COMBINE = "combine"


class Unused(StrEnum):
    """What an operator does with a thread place that none of its digits uses."""

    ONCE = "once"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The write of one element. `op` combines the value with what is there, None binds it; `atomic`: indivisibly."""

    buffer: str
    subscripts: tuple[Subscript, ...]
    op: AccOp | None
    atomic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """A leaf statement at its place in the tree.

    `leaf` is the core statement with its index expressions over indices that enclosing nodes define. `digits` names
    the thread digits that it uses; `unused` says what happens at each other thread place (None when all are used or
    the block has one thread). `atomic` asks for an indivisible update: iterations of different threads accumulate
    into one element.
    """

    id: str
    leaf: Leaf
    origin: Origin = Origin.SOURCE
    digits: tuple[str, ...] = ()
    unused: Unused | None = None
    atomic: bool = False

    @property
    def span(self) -> Span:
        return self.leaf.span

    @property
    def once(self) -> bool:
        """Whether only thread 0 of the block runs it."""
        return self.unused is Unused.ONCE

    @property
    def reads(self) -> tuple[Read, ...]:
        """Every read in evaluation order, those of gathered subscripts before the access that they index."""
        return read_accesses(self.leaf)

    @property
    def store(self) -> Store | None:
        """What it writes, None for an anchor. An author's `atomic` is indivisible whoever else updates the element."""
        match self.leaf:
            case Anchor():
                return None
            case Bind(buffer=buffer, subscripts=subscripts):
                return Store(buffer=buffer, subscripts=subscripts, op=None, atomic=False)
            case leaf:
                atomic = self.atomic or isinstance(leaf, Atomic)
                return Store(buffer=leaf.buffer, subscripts=leaf.subscripts, op=leaf.op, atomic=atomic)


class Completion(StrEnum):
    """When an instruction is over: with its node, or when a `Wait` of its pipe or a `WaitGroup` of its thread says."""

    NOW = "now"
    CP_ASYNC = "cp_async"  # the committing thread's pipe of that kind, or group
    TRANSACTION = "transaction"  # the pipe, by the bytes that arrive in the block
    BULK = "bulk"  # the thread's group, from shared memory
    WGMMA = "wgmma"  # the warpgroup's group of products


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An element of a buffer for each value of a copy's indices."""

    buffer: str
    subscripts: tuple[Subscript, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """`target = source` for each value of the indices `over`, below their extents, all by one thread."""

    id: str
    source: View
    target: View
    over: tuple[tuple[str, IndexExpr], ...]
    completion: Completion = Completion.NOW
    pipe: str = ""
    unused: Unused | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def each(self) -> "Generic":
        """What the copy does for one value of its indices."""
        return Generic(id=self.id, leaf=self.leaf, origin=Origin.COPY_IN, unused=self.unused)

    @property
    def leaf(self) -> Bind:
        """The statement of each."""
        read = Read(
            buffer=self.source.buffer, subscripts=self.source.subscripts, dtype=self.source.dtype, span=self.span
        )
        target = self.target
        return Bind(id=self.id, buffer=target.buffer, subscripts=target.subscripts, value=read, span=self.span)


Operator = Generic | Copy
