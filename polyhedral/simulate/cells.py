"""The memory of a simulated launch: elements with all their copies, and what is asked of a watch over them.

Whoever touches memory is an agent: a thread, or an asynchronous copy. A `Watch` knows which agent acts, and gives each
buffer a `Shadow`, which refuses an access that nothing orders after an earlier one of another agent. There are two:
`lockstep.py` for blocks whose threads meet at barriers only, fast, and `clocks.py` for all else.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.normal import bound
from texpr.polyhedral.layout.place import every_place
from texpr.polyhedral.layout.value import Layout, Unit
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

    def touched_since(self, place: Array, agent: Array, times: Mapping[int, int]) -> Violation | None:
        """The first of these elements that its agent touched after its time."""
        ...


class Watch(Protocol):
    """Who acts: the agents of threads, and their names."""

    def agents(self, thread: Array) -> Array: ...

    def step(self, thread: Array) -> None:
        """These threads begin their next statement."""
        ...

    def shadow(self, elements: int, *, held: bool = False) -> Shadow:
        """Of memory, or of registers that threads hold together (`held`)."""
        ...

    def names(self, first: int, second: int) -> str:
        """Two agents in a message."""
        ...


@dataclass(slots=True, kw_only=True)
class Cells:
    """The memory that one buffer lies in, alone or with others, and where its elements lie there.

    An element is where `layout`, which is of numbers, puts it, from where its copy begins: copies are `step` apart, and
    `stages` slots of a pipe in each `stage_step`, all counted in elements. Memory that buffers of several types share
    is watched in smaller units than their elements, `grain` of them in one of this buffer.
    """

    buffer: MappedBuffer
    layout: Layout
    step: int
    offset: int = 0
    stages: int = 1
    stage_step: int = 0
    data: Array
    defined: Array | None  # None: all are
    shadow: Shadow
    grain: int = 1
    base_bytes: int = 0  # the address of the first element of the memory, as far as anybody asks
    team: int = 0  # threads that hold the elements together, each of them some, in its registers
    extents: tuple[int, ...] = field(init=False)
    found: Array | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.extents = tuple(max(0, int(index_value(extent, {}))) for extent in self.layout.shape)

    @staticmethod
    def alone(buffer: MappedBuffer, values: Mapping[str, int], copies: int, watch: Watch, *, team: int = 0) -> "Cells":
        """Undefined elements of one buffer, copy after copy."""
        layout = bound(buffer.layout, values)
        room = int(index_value(extent(layout, Unit.REGISTER if team else Unit.ADDRESS), {}))
        elements = copies * room
        return Cells(
            buffer=buffer,
            layout=layout,
            step=room,
            data=np.zeros(elements, dtype=numerics.storage(buffer.dtype)),
            defined=np.zeros(elements, dtype=np.bool_),
            shadow=watch.shadow(elements, held=bool(team)),
            team=team,
        )

    @property
    def unit(self) -> Unit:
        """What counts the elements of a copy."""
        return Unit.REGISTER if self.team else Unit.ADDRESS

    @property
    def watched(self) -> bool:
        """Whether others than the thread that has a copy may touch it."""
        return self.buffer.memory is not Memory.REG or self.team > 0

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
        """Where the elements of one copy lie, from its beginning, by their subscripts; each rank has its own copy."""
        if self.found is None:
            found = every_place(self.layout)[self.unit]
            self.found = found[0] if Unit.RANK in self.layout.units else found
        return self.found

    def element(self, unit: int) -> str:
        """The element that takes a unit of memory, by its subscripts in the copy."""
        place = unit // self.grain - self.offset
        inside = place % self.step if self.step else 0
        if self.stages > 1:
            inside %= self.stage_step
        here = np.atleast_1d(self.inside()) == inside
        if self.team:
            here &= every_place(self.layout)[Unit.LANE] == place // self.step % self.team
        found = np.argwhere(here)
        if not len(found):
            return f"byte {unit % (self.step * self.grain)} (of another buffer)"
        return str(tuple(found[0].tolist()))
