"""The memory of a simulated launch: elements with all their copies, and what is asked of a watch over them.

Whoever touches memory is an agent: a thread, or an asynchronous copy. A `Watch` knows which agent acts, and gives each
buffer a `Shadow`, which refuses an access that nothing orders after an earlier one of another agent. There are two:
`lockstep.py` for blocks whose threads meet at barriers only, fast, and `clocks.py` for all else.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from texpr.grammar.source import Span
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A statement in messages."""

    id: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A conflict: the element's place, the two agents, the number of the earlier statement, and what is missing."""

    place: int
    agent: int
    earlier: int
    earlier_agent: int
    missing: str = "no barrier orders"


class Shadow(Protocol):
    """Who touched each element of one buffer; every access is checked against those before, and noted."""

    def read(self, place: Array, agent: Array, statement: int) -> Violation | None: ...

    def write(self, place: Array, agent: Array, statement: int) -> Violation | None: ...

    def atomic(self, place: Array, agent: Array, statement: int) -> Violation | None: ...


class Watch(Protocol):
    """Who acts: the agents of threads, and their names."""

    def agents(self, thread: Array) -> Array: ...

    def step(self, thread: Array) -> None:
        """These threads begin their next statement."""
        ...

    def shadow(self, elements: int) -> Shadow: ...

    def names(self, first: int, second: int) -> str:
        """Two agents in a message."""
        ...


@dataclass(slots=True)
class Cells:
    """The elements of one buffer, all copies one after the other, each of `extents`."""

    buffer: MappedBuffer
    extents: tuple[int, ...]
    data: Array
    defined: Array | None  # None: all are
    shadow: Shadow

    @property
    def of_copy(self) -> tuple[int, ...]:
        """The extents of one copy: the first one of a buffer in cluster memory counts ranks, each with its own."""
        return self.extents[1:] if self.buffer.memory is Memory.CLUSTER else self.extents

    @property
    def elements(self) -> int:
        """Elements of one copy."""
        return math.prod(self.of_copy)
