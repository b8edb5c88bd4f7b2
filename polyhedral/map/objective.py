"""What a choice of lanes costs: sectors per warp request, lane strides and the seed's distance d.

Addresses are enumerated over the 32 lanes of a warp at representative sizes, other indices at 0; an access whose
subscripts are gathered has no figures. For A[i * 32 + lane] of f32: stride 1, d = 31, 4 sectors, ideal 4.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

from texpr.grammar.ast import Gather, Subscript
from texpr.grammar.index.points import Points
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.place import coordinates
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.map.digits import ThreadDigits
from texpr.polyhedral.mapped.places import Digit, Place

SECTOR_BYTES = 32


class Objective(StrEnum):
    """By what lanes are chosen: what takes the least `time`, or, the seed's rule, the least `distance` between
    neighbouring lanes, in bands of which nothing is staged or shared out; `milp` is the same by an integer program."""

    TIME = "time"
    DISTANCE = "distance"
    MILP = "milp"

    @property
    def by_distance(self) -> bool:
        return self is not Objective.TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """One warp's request: `stride` in elements between neighbouring lanes (None: not one value), `distance` the
    seed's d, 32-byte `sectors` and the `ideal` number for as many elements."""

    stride: int | None
    distance: int
    sectors: int
    ideal: int


def lane_values(bands: ThreadDigits, indices: Sequence[str], warp_size: int) -> dict[str, Points]:
    """The value of each index on the lanes of the first warp, its other digits 0."""
    return {index: digit_values(digits, warp_size) for index, digits in zip(indices, bands.digits, strict=True)}


def digit_values(digits: Sequence[Digit], warp_size: int) -> Points:
    """What the digits come to on the lanes of the first warp, those at other places 0."""
    total = Points((0,) * warp_size)
    for digit in digits:
        if digit.place is Place.LANE:
            radix, stride = int(index_value(digit.radix, {})), int(index_value(digit.stride, {}))
            total += Points(tuple([digit.weight * (lane // stride % radix) for lane in range(warp_size)]))
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedAccess:
    """An access to a buffer in global memory, of elements in their declared layout, and how often an iteration makes
    it; `update` marks the element of an accumulation, which a register may carry through a loop, `writes` that of any
    statement. A wide access moves the `width` elements from that one on."""

    buffer: str
    layout: Layout
    element_bytes: int
    subscripts: tuple[Subscript, ...]
    weight: int = 1
    update: bool = False
    writes: bool = False
    width: int = 1


class AtZero(dict[str, Any]):
    """Values of indices; an index that is not given is at 0."""

    def __missing__(self, key: str) -> int:
        return 0


def footprint(access: WeightedAccess, lanes: Mapping[str, Any], sizes: Mapping[str, int]) -> Footprint | None:
    """The request that the lanes make, or None for a gathered access."""
    values = AtZero({**sizes, **lanes})
    points: list[Any] = []
    for subscript in access.subscripts:
        if isinstance(subscript, Gather):
            return None
        points.append(index_value(subscript, values))
    place = coordinates(access.layout, points, AtZero(sizes))[Unit.ADDRESS]
    lane_count = len(next(iter(lanes.values()))) if lanes else 1
    addresses = place.at if isinstance(place, Points) else (int(place),) * lane_count
    steps = [after - before for before, after in pairwise(addresses)]
    size, apart = access.element_bytes, set(steps) or {0}
    moved = {address + more for address in addresses for more in range(access.width)}
    return Footprint(
        stride=apart.pop() if len(apart) == 1 else None,
        distance=sum(map(abs, steps)),
        sectors=len({element * size // SECTOR_BYTES for element in moved}),
        ideal=-(-len(moved) * size // SECTOR_BYTES),
    )


def cost(
    accesses: Sequence[WeightedAccess], lanes: Mapping[str, Any], sizes: Mapping[str, int], warp_size: int
) -> tuple[int, int]:
    """(weighted sectors, summed distance) of one warp: less is better. A gathered access is taken to cost a sector for
    each lane."""
    sectors = distance = 0
    for access in accesses:
        found = footprint(access, lanes, sizes)
        sectors += access.weight * (warp_size if found is None else found.sectors)
        distance += 0 if found is None else found.distance
    return sectors, distance
