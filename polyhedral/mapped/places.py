"""Places: where the digits of parallel indices run, who shares a memory, who waits for whom.

Every parallel index is a sum of **digits**, i = sum(weight * digit) (+ an offset that is constant over them), each
digit in [0, radix) at one place; on the hardware a digit is `coordinate(place) / stride % radix`, so the map is a
bijection by construction and an index beyond its extent is cut by a printed `Guard`. The coordinate of a place:

    grid.x grid.y grid.z   blockIdx          core     the CPU's parallel loop counter
    warp                   threadIdx.x / 32  lane     threadIdx.x % 32
    serial, vector         a `Loop` of that digit in the launch's body (vector: innermost, unrolled or vectorised)

    par M i, N j   on (32, 8) threads:   j = 32*j_block + j_lane      j_lane: lane, stride 1, radix 32
                                         i =  8*i_block + i_warp      i_block: grid.y, radix ceildiv(M, 8)
"""

from dataclasses import dataclass
from enum import StrEnum

from texpr.grammar.ast import IndexExpr


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


GRID_PLACES = (Place.GRID_X, Place.GRID_Y, Place.GRID_Z)
LOOP_PLACES = (Place.SERIAL, Place.VECTOR)  # a loop of the body runs over the digit; all others are of the hardware


class Scope(StrEnum):
    """Between which threads: ordered from narrow to wide."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    BLOCK = "block"
    CLUSTER = "cluster"
    GRID = "grid"


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
