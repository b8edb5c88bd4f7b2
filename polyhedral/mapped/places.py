"""Places: where the digits of parallel indices run, who shares a memory, who waits for whom.

Every parallel index is a sum of **digits**, i = sum(weight * digit) (+ an offset that is constant over them), each
digit in [0, radix) at one place; on the hardware a digit is `coordinate(place) / stride % radix`, so the map is a
bijection by construction and an index beyond its extent is cut by a printed `Guard`. The coordinate of a place, as the
table `PLACES` has it for the simulator and the checks:

    grid.x grid.y grid.z   blockIdx          core     the CPU's parallel loop counter
    warp                   threadIdx.x / 32  lane     threadIdx.x % 32
    serial, vector         a `Loop` of that digit in the launch's body (vector: innermost, unrolled or vectorised)

    par M i, N j   on (32, 8) threads:   j = 32*j_block + j_lane      j_lane: lane, stride 1, radix 32
                                         i =  8*i_block + i_warp      i_block: grid.y, radix ceildiv(M, 8)
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from texpr.grammar.ast import IndexExpr
from texpr.grammar.records import dataclass
from texpr.polyhedral.target import WARPGROUP


class Place(StrEnum):
    GRID_X = "grid.x"
    GRID_Y = "grid.y"
    GRID_Z = "grid.z"
    CLUSTER = "cluster"
    WARPGROUP = "warpgroup"
    WARP = "warp"
    LANE = "lane"
    VECTOR = "vector"
    SERIAL = "serial"
    CORE = "core"


class Scope(StrEnum):
    """Between which threads: ordered from narrow to wide."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    BLOCK = "block"
    CLUSTER = "cluster"
    GRID = "grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where threads stand, as numbers or as arrays: the `axes` of their block in the grid, the `rank` of the block in
    its cluster, and which `thread` of the block they are, or of the part of it that they belong to."""

    axes: tuple[Any, Any, Any]
    rank: Callable[[], Any]
    thread: Any
    warp_size: int


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """What a place is: the coordinate there, None where a loop of the body runs over its digits, and the widest scope
    whose threads all have the same one."""

    coordinate: Callable[[Where], Any] | None
    alike: Scope


PLACES = {
    Place.GRID_X: PlaceRow(lambda at: at.axes[0], Scope.BLOCK),
    Place.GRID_Y: PlaceRow(lambda at: at.axes[1], Scope.BLOCK),
    Place.GRID_Z: PlaceRow(lambda at: at.axes[2], Scope.BLOCK),
    Place.CLUSTER: PlaceRow(lambda at: at.rank(), Scope.BLOCK),
    Place.WARPGROUP: PlaceRow(lambda at: at.thread // (WARPGROUP * at.warp_size), Scope.WARPGROUP),
    Place.WARP: PlaceRow(lambda at: at.thread // at.warp_size, Scope.WARP),
    Place.LANE: PlaceRow(lambda at: at.thread % at.warp_size, Scope.THREAD),
    Place.VECTOR: PlaceRow(None, Scope.THREAD),
    Place.SERIAL: PlaceRow(None, Scope.BLOCK),
    Place.CORE: PlaceRow(lambda at: at.axes[0], Scope.BLOCK),
}
GRID_PLACES = (Place.GRID_X, Place.GRID_Y, Place.GRID_Z)
LOOP_PLACES = tuple(place for place, row in PLACES.items() if row.coordinate is None)


class Memory(StrEnum):
    REG = "reg"
    SHARED = "shared"
    CLUSTER = "cluster"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digit:
    """One digit of the parallel index `index`. `radix` and `stride` are constants but for grid axes, core and serial,
    where they may be expressions of sizes, host indices and scalars. `name` is unique in the launch."""

    name: str
    index: str
    weight: int
    radix: IndexExpr
    stride: IndexExpr
    place: Place
