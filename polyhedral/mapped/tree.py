"""The body of a launch, a tree: what every thread runs, in order.

    i = 256*i_block + 32*i_warp + i_lane            Define: an index has its value from digits, before what uses it
    lead = X[i, 0] behind a multiple of 128 bytes   Lead: an index has its value from an address
    if i < N                                        Guard: padding of a tile, or the author's `if`
      new t                                         Fresh: a local begins to live, undefined
      for k < K                                     Loop: in one thread
        S0: t += A[i, k] * x[k]                     an operator (`operators.py`)
      barrier (block)                               synchronisation (`sync.py`)

The leaves are operators and synchronisation; nothing else computes or waits.
"""

from dataclasses import field

from texpr.grammar.ast import Condition, IndexExpr, IndexVar, Read
from texpr.grammar.index.expr import ZERO, add, const, multiply
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.operators import Operator
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Scope
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.views import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    """`index = sum(weight * digit) + offset` over the digits named; an index with no digits and no offset is 0.

    The offset is constant over the index's own digits (an earlier index, a host index, a size), so that the index is
    still one to one; who builds one guards the index at both ends.
    """

    index: str
    digits: tuple[Digit, ...]
    offset: IndexExpr = ZERO

    @property
    def value(self) -> IndexExpr:
        """The index over the names of its digits and those of the offset."""
        total: IndexExpr = ZERO
        for digit in self.digits:
            total = add(total, multiply(const(digit.weight), IndexVar(name=digit.name)))
        return add(total, self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """`index` has from here on the elements between the last multiple of `bytes` in memory and this element of an
    array: its address mod bytes, in elements. An index with the offset -lead counts from there."""

    index: str
    of: View
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """The local buffer begins to live here, undefined (a `new`); it costs nothing, checkers poison it. Registers of
    elements below 32 bits that stay `packed` are not unpacked before the loop that reads them."""

    buffer: str
    packed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop inside one thread: over a serial or vector digit, or over a `seq` (`digit` None), or over a whole par
    index that is run serially (`digit` None, `parallel` True). `index` is the variable's name; it runs from 0 to
    extent - 1. `unroll` asks for complete unrolling, `unroll_by` for so many iterations at a time (1: for none);
    `vector` says the iterations are independent and contiguous. In the whole loop loads at any address begin where this
    `word` does in its chunk, and it is written out for each place.
    """

    index: str
    extent: IndexExpr
    body: tuple["Node", ...]
    digit: Digit | None = None
    parallel: bool = False
    unroll: bool = False
    unroll_by: int | None = None
    vector: bool = False
    word: View | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The body runs where the condition holds: the padding of a tile (`padding`), the author's `if`, or whose turn it
    is. `orelse` belongs to the last two only. A barrier may stand inside only where the condition is uniform over its
    scope, or where the other body has the same one."""

    condition: Condition | Read
    body: tuple["Node", ...]
    orelse: tuple["Node", ...] = ()
    padding: bool = False
    uniform: Scope = Scope.THREAD  # the widest scope over which the condition has one value
    once: bool = False  # only thread 0 of the block asks the condition, and all statements inside run once
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """So many warps of a block, which run a body of their own, each thread with so many `registers` (None: as many as
    at the launch's start; parts that need few give theirs to others)."""

    name: str
    warps: int
    body: tuple["Node", ...]
    registers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Concurrent parts of a block: its warps are shared out to them in order, all of them to some part. In a part,
    threads and warps are counted from its first one, and `once` is its first thread."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The last of `n` blocks to come here runs the body, after all that the others did before they came. It leaves
    the counter as it found it, at 0."""

    counter: str
    at: tuple[IndexExpr, ...]
    n: IndexExpr
    body: tuple["Node", ...]
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


Node = Define | Lead | Fresh | Loop | Guard | Parts | Last | Sync | Operator
