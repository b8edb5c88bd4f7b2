"""Memories: home, which holds every tensor, and others with buffers of blocks, perhaps with a bound on their bytes.

A node other than home keeps `used` (bytes of buffers that are there) and `reserved` (bytes that tasks were promised).
All that a task needs is promised at once, so that no two tasks wait for each other's memory.
"""

from math import prod
from typing import Any

import numpy

from texpr.runtime.tasks.states import Step


class MemoryNode:
    """A memory of this machine's host, for workers on its cores. `bound` is in bytes; None: as much as there is."""

    __slots__ = ("bound", "kind", "name", "number", "peak", "reserved", "used")

    def __init__(self, number: int, name: str, bound: int | None) -> None:
        self.number, self.name, self.bound = number, name, bound
        self.kind = "cpu"  # which entries of a function its workers run
        self.used = self.reserved = self.peak = 0

    def holds(self, size: int) -> bool:
        """Whether so many bytes can be there at all."""
        return self.bound is None or size <= self.bound

    def fits(self, size: int) -> bool:
        return self.bound is None or self.used + self.reserved + size <= self.bound

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.used += prod(shape) * int(dtype.itemsize)
        self.peak = max(self.peak, self.used)
        return numpy.empty(shape, dtype)

    def free(self, size: int) -> None:
        self.used -= size


def carry_out(step: Step, home: Any, buffer: Any) -> None:
    """Make one transfer between a block's memory at home and its buffer."""
    if step is Step.GET:
        numpy.copyto(buffer, home)
    elif step is Step.PUT:
        numpy.copyto(home, buffer)
    elif step is Step.ADD:
        numpy.add(home, buffer, out=home)
    else:
        buffer.fill(0)
