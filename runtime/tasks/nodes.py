"""Memories: home, which holds every tensor, and others with buffers of blocks, perhaps with a bound on their bytes.

A node other than home keeps `used` (bytes of buffers that are there) and `reserved` (bytes that tasks were promised).
All that a task needs is promised at once, so that no two tasks wait for each other's memory.

The methods of `MemoryNode` are all that the engine does with memory of a node; `device_nodes.py` has those of a GPU.
"""

from math import prod
from typing import Any

import numpy

from texpr.runtime.tasks.states import Step
from texpr.runtime.tasks.tensors import Block


class MemoryNode:
    """A memory of this machine's host, for workers on its cores. `bound` is in bytes; None: as much as there is."""

    __slots__ = ("bound", "kind", "name", "number", "peak", "reserved", "used")
    copiers: tuple[int, ...] = (1,)  # threads that make its transfers, in each lane

    def __init__(self, number: int, name: str, bound: int | None) -> None:
        self.number, self.name, self.bound = number, name, bound
        self.kind = "cpu"  # which entries of a function its workers run
        self.used = self.reserved = self.peak = 0

    def holds(self, size: int) -> bool:
        """Whether so many bytes can be there at all."""
        return self.bound is None or size <= self.bound

    def fits(self, size: int) -> bool:
        return self.bound is None or self.used + self.reserved + size <= self.bound

    # buffers of blocks; under the engine's lock

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.used += prod(shape) * int(dtype.itemsize)
        self.peak = max(self.peak, self.used)
        return self.own(shape, dtype)

    def free(self, buffer: Any, size: int) -> None:
        self.used -= size
        self.drop(buffer)

    # what its threads do

    def enter(self, *, copies: bool = False) -> None:
        """This thread works here from now on; `copies`: it is a copier."""

    def own(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory that is not counted: a task's own was promised to it."""
        return numpy.empty(shape, dtype)

    def drop(self, buffer: Any) -> None:
        """Nobody uses it any more."""

    def check(self, buffer: Any) -> None:
        """Raises what is wrong with a buffer before a task gets it."""

    def fill(self, buffer: Any, value: Any) -> None:
        buffer.fill(value)

    def copy(self, target: Any, source: Any) -> None:
        numpy.copyto(target, source)

    def readable(self, buffer: Any) -> Any:
        """The buffer as one who only reads it sees it."""
        found = buffer.view()
        found.flags.writeable = False
        return found

    def on_host(self, buffer: Any) -> Any:
        """Its values in memory of the host."""
        return buffer

    @property
    def stream(self) -> int | None:
        """The stream of this thread, on a GPU."""
        return None

    def finish(self) -> None:
        """What this thread has begun here is over."""

    def lane(self, step: Step) -> int:
        """Which of its copiers make such a transfer."""
        return 0

    def carry(self, step: Step, home: Any, buffer: Any, peer: Any) -> None:
        """Make one transfer between a block's memory at home, or a peer's buffer of it, and its buffer."""
        if step is Step.GET:
            numpy.copyto(buffer, home)
        elif step is Step.PUT:
            numpy.copyto(home, buffer)
        elif step is Step.ADD:
            numpy.add(home, buffer, out=home)
        else:
            buffer.fill(0)

    def passage(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory of the host for a block on its way between a buffer here and another rank; None where the transport
        takes the buffer itself."""
        return None

    def passed(self, passage: Any) -> None:
        """Nobody uses it any more."""

    def forget(self, block: Block) -> None:
        """The block's memory at home is given up."""

    def close(self) -> None:
        """The engine has ended."""
