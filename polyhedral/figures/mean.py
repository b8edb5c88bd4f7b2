"""What the requests of a whole launch take on average: what a profiler counts.

Places are spread evenly over all that a launch has, each with the turns of its loops, so that edges have the share that
they have of the launch. A lane that wants only some elements of a wide access asks for each of them by itself, where no
other byte may be touched; those are requests of their own.
"""

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np

from texpr.grammar.records import dataclass
from texpr.polyhedral.figures.sites import Site
from texpr.polyhedral.figures.value import Mean

PLACES = 1024
ROOTS = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103)
SECTOR_BYTES = 32
ENGINE_ALIGN_BYTES = 16  # what a load from any address is made of

Array = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Draw:
    """A rule that draws a value below an extent for each of so many places."""

    places: int
    rule: Callable[[Array, int], Array]

    def below(self, extent: Any, salt: int) -> Array:
        return self.rule(np.broadcast_to(np.asarray(extent, dtype=np.int64), (self.places,)), salt)


def _spread(extents: Array, salt: int) -> Array:
    """Values that are spread evenly, and so are those of several salts together: multiples of a root, modulo one."""
    number = np.arange(len(extents), dtype=np.float64)
    share = (number + 0.5) * sqrt(ROOTS[salt % len(ROOTS)]) % 1.0
    return np.minimum((share * extents).astype(np.int64), np.maximum(extents - 1, 0))


SPREAD = Draw(PLACES, _spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Which lanes make an access at each place, the byte that each begins at, and which elements of it are wanted."""

    active: Mask
    first: Array
    wanted: tuple[Array, Array] | None

    def aligned(self, site: Site) -> Array:
        """The byte that the request of each lane begins at."""
        return self.first // ENGINE_ALIGN_BYTES * ENGINE_ALIGN_BYTES if site.funnel else self.first


def mean(site: Site, made: Made, turns: Array, warps: int) -> Mean | None:
    """The means of places with so many turns of their loops, to which so many warps come; None where none is made."""
    count, parts, ideal = (np.zeros(len(turns)) for _ in range(3))
    for active, first, size, unit in _requests(site, made):
        count += active.any(axis=1)
        touched = first[:, :, None] + unit * np.arange(size // unit)[None, None, :]
        both = np.concatenate((touched // SECTOR_BYTES, (touched + unit - 1) // SECTOR_BYTES), axis=2)
        parts += _distinct(both, active)
        ideal += -(-_distinct(touched // unit, active) * unit // SECTOR_BYTES)
    total = float(turns @ count)
    if not total:
        return None
    return Mean(
        places=len(turns),
        parts=float(turns @ parts) / total,
        ideal=float(turns @ ideal) / total,
        requests=round(warps * total / len(turns)),
    )


def _requests(site: Site, made: Made) -> Iterator[tuple[Mask, Array, int, int]]:
    """The requests of a warp at each place: which lanes make them, the byte that each begins at, how many bytes a lane
    asks for, and the bytes of its pieces that lie together in memory."""
    element = site.buffer.dtype.size_bytes
    whole = made.active
    if site.singly and made.wanted is not None:
        begin, end = made.wanted
        whole = made.active & (begin <= 0) & (end >= site.width)
        for number in range(site.width):
            own = made.active & ~whole & (begin <= number) & (number < end)
            yield own, made.first + number * element, element, element
    size = ENGINE_ALIGN_BYTES if site.funnel else site.width * element
    yield whole, made.aligned(site), size, size if site.funnel else element


def _distinct(values: Array, active: Mask) -> Array:
    """How many different values the active lanes of each place have."""
    own = np.where(active[:, :, None], values, -1).reshape(len(values), -1)
    own.sort(axis=1)
    first = (own[:, :1] >= 0).sum(axis=1)
    return np.asarray(first + ((np.diff(own, axis=1) > 0) & (own[:, 1:] >= 0)).sum(axis=1))
