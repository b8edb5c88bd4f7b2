"""Operators: the leaves of a mapped tree, which compute.

    S1: C[i, j] += A[i, k] * B[k, j]      reads A[i, k], B[k, j] in evaluation order; updates C[i, j] with +

A `Generic` evaluates one leaf statement of the core tree for the indices that the nodes around it define; a read is
evaluated where the value says (a select's arm only when it is chosen). Outside an inner `par` it runs *once* per block
(thread 0, and an order to its readers) or *replicated* (every thread into its own registers).

    S2: copy a[i] = A[k, i] for i < 64  (transaction, ring)

A `Copy` binds every element of a box: it means the `Generic`s of its expansion (`expand.py`), at once or until its
completion is waited for. Where its `access` is wide, neighbouring elements move in one instruction:

    S3: copy v[8*q + e] = X[i, c + e] for e < 8, -c <= e < N - c, else -inf  (now, aligned)

An `Elementwise` runs leaves for every element of a box, a `Reduce` combines these, then those of neighbouring lanes, by
a monoid of `monoids.py`, and a `Scan` those up to each; partial results of warps meet in memory, behind a barrier:

    S4: each e < 48: p[e] = exp(v[e] - m[0])
    S5: m[0], s[0] = ScaledSum of partial m[0], s[0] over 32 lanes
    S6: q[e] = Sum up to p[e] for e < 48 over 32 lanes

A `Contract` is a product of tiles by a team of threads, an `Unload` brings what they hold to or from shared memory:

    S7: contract c[m, n] += a[m, k] * b[n, k] for m < 64, n < 256, k < 64  (wgmma.m64n256k16 bf16)
    S8: unload d[x, y] = c[x, y] for x < 16, y < 64  (stmatrix.x4 bf16)
"""

from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Anchor,
    Atomic,
    Bind,
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    IndexExpr,
    Leaf,
    Op,
    Read,
    Subscript,
)
from texpr.grammar.index.expr import names
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.access import Access, Cache, Completion
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.views import Box, View, Within
from texpr.polyhedral.walk import leaf_names, read_accesses, subscript_names, subscript_reads, value_reads, written

if TYPE_CHECKING:
    from texpr.polyhedral.mapped.atoms import Atom

Element = tuple[str, tuple[Subscript, ...]]
"""A buffer and the subscripts of one of its elements."""


class Origin(StrEnum):
    """Why an operator is there: the author's, or made by the mapping."""

    SOURCE = "source"
    COPY_IN = "copy_in"
    COPY_OUT = "copy_out"
    INIT = "init"
    COMBINE = "combine"
    REST = "rest"  # the author's last one, behind a loop that has added a product of zeros first


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

    `leaf` is the core statement with its index expressions over indices that enclosing nodes define. `digits` names the
    thread digits that it uses; `unused` says what happens at each other thread place (None when all are used or the
    block has one thread). `atomic` asks for an indivisible update: different threads accumulate into one element.
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
    def names(self) -> frozenset[str]:
        """Every index and size that it uses; of the other operators, their own indices included."""
        return leaf_names(self.leaf)

    @property
    def reads(self) -> tuple[Read, ...]:
        """Every read in evaluation order, those of gathered subscripts before the access that they index."""
        return read_accesses(self.leaf)

    @property
    def writes(self) -> tuple[Element, ...]:
        """The element that it writes, if any."""
        target = written(self.leaf)
        return () if target is None else (target,)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """`target = source` for each value of the indices `over`, below their extents, all by one thread; rounded where
    their types differ. Into one's block, or of a transaction that does not stay in one's `own_block` to all ranks that
    the pipe's end reaches, or to one `rank` of these. A `clipped` box may leave its array: elements that are not there
    are read as 0, and not written."""

    id: str
    source: View
    target: View
    over: Box
    within: Within | None = None
    access: Access = Access.EACH
    cache: Cache = Cache.PLAIN
    completion: Completion = Completion.NOW
    pipe: str = ""
    digits: tuple[str, ...] = ()
    unused: Unused | None = None
    own_block: bool = False
    rank: IndexExpr | None = None
    clipped: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def to_ranks(self) -> bool:
        """Whether it goes to all ranks that the pipe's end reaches."""
        return self.completion is Completion.TRANSACTION and not self.own_block

    @property
    def each(self) -> "Generic":
        """What the copy does for one value of its indices."""
        return self._generic(self.leaf)

    @property
    def otherwise(self) -> "Generic | None":
        """What it does for one that is not wanted."""
        if self.within is None or self.within.other is None:
            return None
        return self._generic(replace(self.leaf, value=self.within.other))

    @property
    def leaf(self) -> Bind:
        """The statement of each."""
        return _bound(self.id, self.target, self.source, self.span)

    @property
    def names(self) -> frozenset[str]:
        told = (self.rank, *((w.begin, w.end, w.part) if (w := self.within) else ()))
        subscripts = (*self.source.subscripts, *self.target.subscripts)
        return subscript_names(subscripts).union(_extents(self.over), *(names(e) for e in told if e is not None))

    @property
    def reads(self) -> tuple[Read, ...]:
        before, after = subscript_reads(self.source.subscripts), subscript_reads(self.target.subscripts)
        return (*before, self.source.read(self.span), *after)

    @property
    def writes(self) -> tuple[Element, ...]:
        return ((self.target.buffer, self.target.subscripts),)

    def _generic(self, leaf: Leaf) -> "Generic":
        return Generic(id=self.id, leaf=leaf, origin=Origin.COPY_IN, digits=self.digits, unused=self.unused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """The leaves, one after the other, for each value of the indices `over`, all by one thread. What a leaf binds or
    reads for one value no leaf binds for another; accumulations into one element combine in the order of the values."""

    id: str
    leaves: tuple[Leaf, ...]
    over: Box
    origin: Origin = Origin.SOURCE
    digits: tuple[str, ...] = ()
    unused: Unused | None = None

    @property
    def span(self) -> Span:
        return self.leaves[0].span

    @property
    def each(self) -> tuple[Generic, ...]:
        """What it does for one value of its indices."""
        return tuple(
            Generic(id=self.id, leaf=leaf, origin=self.origin, digits=self.digits, unused=self.unused)
            for leaf in self.leaves
        )

    @property
    def names(self) -> frozenset[str]:
        return _extents(self.over).union(*map(leaf_names, self.leaves))

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(read for leaf in self.leaves for read in read_accesses(leaf))

    @property
    def writes(self) -> tuple[Element, ...]:
        return tuple(target for target in map(written, self.leaves) if target is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """Values that a monoid combines, one target for each of its components: those of a box in order in each thread, and
    those of `lanes` neighbouring lanes of a warp in the order of lanes; all lanes come here together.

    `values` are a component each of what earlier reductions left: all that the mapping combines are such partials. With
    `lift`, of programs written by hand, they are an element (and its index, where the monoid reads one). `last`: the
    targets hold what the sequential statements leave and not a partial result. No initial value enters.
    """

    id: str
    monoid: str
    values: tuple[Expr, ...]
    targets: tuple[View, ...]
    over: Box = ()
    lanes: int = 1
    lift: bool = False
    last: bool = False
    digits: tuple[str, ...] = ()
    unused: Unused | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def names(self) -> frozenset[str]:
        where = (subscript_names(target.subscripts) for target in self.targets)
        return _extents(self.over).union(*map(names, self.values), *where)

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(read for value in self.values for read in value_reads(value))

    @property
    def writes(self) -> tuple[Element, ...]:
        return tuple((target.buffer, target.subscripts) for target in self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Combined):
    """The targets become all of the values combined, in every lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Combined):
    """The targets of each value of the box become the values up to and with its own combined, of an `exclusive` scan
    those before it; those of a lane follow all of the lane before. No value reads what an earlier one leaves."""

    exclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """`c += sum over k of a * b`, or `c =` it where `accumulate` does not hold, for each value of the indices `over`: a
    row of c, a column of c, and k. All threads of the atom's team come here together, and the one that holds an element
    of c computes it. The products are over when their group is."""

    id: str
    c: View
    a: View
    b: View
    over: Box
    atom: "Atom"
    accumulate: Condition
    digits: tuple[str, ...] = ()
    unused: Unused | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def leaf(self) -> Accumulate:
        """The statement for one value of the indices, where it accumulates."""
        wide = tuple(_bound(self.id, self.c, view, self.span).value for view in (self.a, self.b))
        return Accumulate(
            id=self.id,
            op=AccOp.ADD,
            buffer=self.c.buffer,
            subscripts=self.c.subscripts,
            value=Op(fn=Fn.MUL, args=wide, dtype=self.c.dtype),
            span=self.span,
        )

    @property
    def each(self) -> Generic:
        """What it does for one value of the indices."""
        return Generic(id=self.id, leaf=self.leaf, digits=self.digits, unused=self.unused)

    @property
    def start(self) -> Generic:
        """What is there before where it does not accumulate."""
        c, zero = self.c, Const(value=0.0 if self.c.dtype.is_float else 0, dtype=self.c.dtype)
        leaf = Bind(id=self.id, buffer=c.buffer, subscripts=c.subscripts, value=zero, span=self.span)
        return Generic(id=self.id, leaf=leaf, digits=self.digits, unused=self.unused)

    @property
    def names(self) -> frozenset[str]:
        return leaf_names(self.leaf) | names(self.accumulate) | _extents(self.over)

    @property
    def reads(self) -> tuple[Read, ...]:
        return read_accesses(self.leaf)

    @property
    def writes(self) -> tuple[Element, ...]:
        return ((self.c.buffer, self.c.subscripts),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """`target = source`, rounded, for each value of the indices `over`: what the threads of a warp hold in registers
    goes to shared memory or comes from it, each element by the thread that holds it, by as many atoms as it takes."""

    id: str
    source: View
    target: View
    over: Box
    atom: "Atom"
    digits: tuple[str, ...] = ()
    unused: Unused | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def leaf(self) -> Bind:
        """The statement for one value of the indices."""
        return _bound(self.id, self.target, self.source, self.span)

    @property
    def each(self) -> Generic:
        """What it does for one value of the indices."""
        return Generic(id=self.id, leaf=self.leaf, digits=self.digits, unused=self.unused)

    @property
    def names(self) -> frozenset[str]:
        return leaf_names(self.leaf) | _extents(self.over)

    @property
    def reads(self) -> tuple[Read, ...]:
        return read_accesses(self.leaf)

    @property
    def writes(self) -> tuple[Element, ...]:
        return ((self.target.buffer, self.target.subscripts),)


def _bound(id_: str, target: View, source: View, span: Span) -> Bind:
    """`target = source`, rounded where their types differ."""
    read = source.read(span)
    value = read if source.dtype == target.dtype else Cast(operand=read, dtype=target.dtype)
    return Bind(id=id_, buffer=target.buffer, subscripts=target.subscripts, value=value, span=span)


Operator = Generic | Copy | Elementwise | Reduce | Scan | LookBack | Contract | Unload


def _extents(over: Box) -> frozenset[str]:
    return frozenset[str]().union(*(names(extent) for _, extent in over))
