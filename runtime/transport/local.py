"""The transport of a program that runs alone: one rank, whose operations are over when they are called."""

from collections import deque
from typing import Any

import numpy

from texpr.runtime.transport.interface import Array, Handle, Spot, is_summed


class Local:
    rank, size, silence_s = 0, 1, 60.0

    def __init__(self) -> None:
        self._regions: dict[int, Array] = {}
        self._messages: deque[bytes] = deque()
        self._counter = 0

    def expose(self, region: int, size_bytes: int) -> Array:
        memory = self._regions[region] = numpy.zeros(size_bytes, numpy.uint8)
        return memory

    def reach(self, region: int, rank: int) -> Array | None:
        return self._regions[region]

    def conceal(self, region: int) -> None:
        del self._regions[region]

    def barrier(self) -> None:
        pass

    def nb_get(self, spot: Spot, into: Array) -> Handle:
        numpy.copyto(into, at(self._regions, spot, into))

    def nb_put(self, spot: Spot, values: Array) -> Handle:
        numpy.copyto(at(self._regions, spot, values), values)

    def nb_accumulate(self, spot: Spot, values: Array) -> Handle:
        home = at(self._regions, spot, values)
        numpy.add(home, values, out=home)

    def test(self, handle: Handle) -> bool:
        return True

    def flush(self, rank: int) -> None:
        pass

    def fetch_add(self, amount: int) -> int:
        before, self._counter = self._counter, self._counter + amount
        return before

    def adds(self, dtype: Any) -> bool:
        return is_summed(dtype)

    def tell(self, rank: int, message: bytes) -> None:
        self._messages.append(message)

    def heard(self) -> tuple[int, bytes] | None:
        return (0, self._messages.popleft()) if self._messages else None

    def abandon(self) -> None:
        pass


def at(regions: dict[int, Array], spot: Spot, like: Array) -> Array:
    """The memory at a spot, as an array like another one."""
    memory = regions[spot.region][spot.offset : spot.offset + like.nbytes]
    return memory.view(like.dtype).reshape(like.shape)
