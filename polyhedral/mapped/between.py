"""Synchronisation between the blocks of a launch, and between launches.

    t = turn tickets                            blocks are numbered as they begin
    S0: part[t] = …
    if t > 0
      await done[t - 1]                         the block with turn t - 1 has begun, so it will come to its publish
    S1: sum[t] = part[t] + sum[t - 1]
    publish done[t]

A node is run by all threads of a block (or of the part around it) together, and holds the barriers of the block that it
needs. Counters and flags are words: elements of a workspace of integers. `Last` stands in `tree.py`, for it has a body.
"""

from dataclasses import field
from enum import StrEnum

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import const, multiply, product
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.order import Order


class Init(StrEnum):
    """What a workspace holds when a call begins; a kernel that leaves zeros needs them `once`."""

    NONE = "none"
    ZERO_EACH_CALL = "zero each call"
    ZERO_ONCE = "zero once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A workspace of counters or flags, private to a call."""

    name: str
    shape: tuple[IndexExpr, ...]
    init: Init


def words_bytes(words: Words) -> IndexExpr:
    """The memory of so many words of 32 bits."""
    return multiply(product(words.shape), const(4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The block takes the next number, 0 first, in the order in which blocks come here: `index` has it from here on."""

    counter: str
    index: str
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """What the block did before is before what follows an `Await` of this word; a word is published once."""

    flag: str
    at: tuple[IndexExpr, ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Lasts until the word is published: by a block with a lower turn than one's own, so that it surely runs."""

    flag: str
    at: tuple[IndexExpr, ...]
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridBarrier:
    """All threads of all blocks of a `#cooperative` launch. Its counter is ready for the next one, of any call."""

    counter: str
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterLaunch:
    """A launch with this node may begin when every block of the one before has come to its `TriggerNext` or ended;
    the node lasts until that launch is over. Without it a launch begins only then. Of all that is on the `queue`, also
    before the first launch: no array is touched before the node."""

    queue: bool = False
    orders: tuple[Order, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerNext:
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


BetweenBlocks = Turn | Publish | Await | GridBarrier | AfterLaunch | TriggerNext
