"""The memory of a simulated launch: elements with all their copies, and what is asked of a watch over them.

Whoever touches memory is an agent: a thread, or an asynchronous copy. A `Watch` knows which agent acts, and gives each
buffer a `Shadow`, which refuses an access that nothing orders after an earlier one of another agent. There are two:
`lockstep.py` for blocks whose threads meet at barriers only, fast, and `clocks.py` for all else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
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


@dataclass(slots=True, kw_only=True)
class Cells:
    """The memory that one buffer lies in, alone or with others, and where its elements lie there.

    An element is at the sum of its subscripts times `strides`, from where its copy begins: copies are `step` apart,
    and `stages` slots of a pipe in each `stage_step`, all counted in elements. Memory that buffers of several types
    share is watched in smaller units than their elements, `grain` of them in one of this buffer.
    """

    buffer: MappedBuffer
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    step: int
    offset: int = 0
    stages: int = 1
    stage_step: int = 0
    data: Array
    defined: Array | None  # None: all are
    shadow: Shadow
    grain: int = 1
    base_bytes: int = 0  # the address of the first element of the memory, as far as anybody asks

    @staticmethod
    def alone(buffer: MappedBuffer, extents: tuple[int, ...], copies: int, watch: Watch) -> "Cells":
        """Undefined elements of one buffer, copy after copy, row-major and dense."""
        inner = extents[buffer.memory is Memory.CLUSTER :]
        elements = copies * math.prod(inner)
        return Cells(
            buffer=buffer,
            extents=extents,
            strides=dense(extents),
            step=math.prod(inner),
            data=np.zeros(elements, dtype=numerics.storage(buffer.dtype)),
            defined=np.zeros(elements, dtype=np.bool_),
            shadow=watch.shadow(elements),
        )

    def begin(self, copy: Array) -> Array:
        """Where a copy begins, by its number: those of a pipe's slots follow one another."""
        if self.stages == 1:
            return np.asarray(copy * self.step + self.offset)
        return np.asarray(copy // self.stages * self.step + copy % self.stages * self.stage_step + self.offset)

    def units(self, place: Array) -> Array:
        """The units of memory that these elements take."""
        if self.grain == 1:
            return place
        return np.asarray((place[:, None] * self.grain + np.arange(self.grain)).reshape(-1))

    def inside(self) -> Array:
        """Where the elements of one copy lie, from its beginning."""
        found = np.zeros(1, dtype=np.int64)
        for extent, stride in list(zip(self.extents, self.strides, strict=True))[
            self.buffer.memory is Memory.CLUSTER :
        ]:
            found = (found[:, None] + np.arange(extent) * stride).reshape(-1)
        return found

    @property
    def of_copy(self) -> tuple[int, ...]:
        """The extents of one copy: the first one of a buffer in cluster memory counts ranks, each with its own."""
        return self.extents[1:] if self.buffer.memory is Memory.CLUSTER else self.extents

    def element(self, unit: int) -> str:
        """The element that takes a unit of memory, by its subscripts in the copy."""
        place = unit // self.grain - self.offset
        inside = place % self.step if self.step else 0
        if self.stages > 1:
            inside %= self.stage_step
        found = np.flatnonzero(self.inside() == inside)
        if not len(found):
            return f"byte {unit % (self.step * self.grain)} (of another buffer)"
        return str(tuple(int(n) for n in np.unravel_index(int(found[0]), self.of_copy or (1,))))


def dense(extents: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(math.prod(extents[n + 1 :]) for n in range(len(extents)))
