"""What a transport does. One thread of each rank, the courier, calls it; nobody else does while the courier lives.

Memory that other ranks reach lies in regions, which all ranks make and give up together; a `Spot` is a place in one.
Three operations work on spots of any rank, the own one among them. They do not block, and are over in two steps:

    test(handle)   True once the operation is over *here*: what was got has come, what was put or added may be changed
    flush(rank)    waits until all that was put and added at a rank has arrived *there*

Between two flushes, what was put and added arrives in any order: only additions to the same bytes may follow one
another without a flush. Additions are atomic for each element, beside other additions only. `tell` sends a message,
which `heard` gives at the other rank; messages from one rank to another keep their order, and nothing else does.

So who tells another rank that a block has a new value does three things in this order, here rank 0 for rank 1:

    handle = transport.nb_put(Spot(region, 1, 4096), values)
    while not transport.test(handle): ...
    transport.flush(1)
    transport.tell(1, b"the block is there")

Without the flush rank 1 may read what was there before: the fake transport makes that likely, MPI rare.
"""

from enum import Enum
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy

Array = Any  # numpy.ndarray of any type and shape
Handle = Any


class Spot(NamedTuple):
    """Where memory is: the region, the rank that has it, and the first byte."""

    region: int
    rank: int
    offset: int


class Kind(Enum):
    GET = "get"
    PUT = "put"
    ADD = "add"


# The element types that MPI adds, by NumPy's names and by MPI's: no halves or smaller floats, and bools have no sum.
SUMMED = {f"{sign}int{bits}": f"{sign.upper()}INT{bits}_T" for sign in ("", "u") for bits in (8, 16, 32, 64)}
SUMMED |= {"float32": "FLOAT", "float64": "DOUBLE"}


@cache  # a type's name takes NumPy longer than all else of a submission
def is_summed(dtype: Any) -> bool:
    return numpy.dtype(dtype).name in SUMMED


class Transport(Protocol):
    """Arrays are contiguous NumPy arrays. A name in `meant for all ranks` says that every rank calls it, in one order,
    and that it may wait until all of them have."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def silence_s(self) -> float:
        """After so many seconds a rank that says nothing is taken for lost."""

    def expose(self, region: int, size_bytes: int) -> Array:
        """A region with so many bytes at this rank, as zeros (of type u8). Meant for all ranks."""

    def reach(self, region: int, rank: int) -> Array | None:
        """A rank's part of a region, where this one can work in it as in its own: who is told of what another rank did
        there finds it done. None where what the ranks have is apart; that is so for all ranks and regions alike."""

    def conceal(self, region: int) -> None:
        """Give up a region. Meant for all ranks."""

    def barrier(self) -> None:
        """Wait for all ranks. Meant for all ranks."""

    def nb_get(self, spot: Spot, into: Array) -> Handle: ...
    def nb_put(self, spot: Spot, values: Array) -> Handle: ...
    def nb_accumulate(self, spot: Spot, values: Array) -> Handle: ...
    def test(self, handle: Handle) -> bool: ...
    def flush(self, rank: int) -> None: ...

    def fetch_add(self, amount: int) -> int:
        """Add to the counter that all ranks share, and give what it was: at once, and atomically."""

    def adds(self, dtype: Any) -> bool:
        """Whether `nb_accumulate` knows this element type."""

    def tell(self, rank: int, message: bytes) -> None: ...
    def heard(self) -> tuple[int, bytes] | None:
        """A message, and who sent it; None where there is none."""

    def abandon(self) -> None:
        """A rank is lost: this one ends without waiting for it."""
