"""Where threads stand: blocks of a grid, ranks of a cluster, and the digits of parallel indices there.

A thread's number is that of its block times the threads of a block, plus its own in the block; blocks are numbered
along x, then y, then z, and so are the ranks of a cluster.
"""

from collections.abc import Mapping

import numpy as np

from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import PLACES, Where
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.simulate.cells import Array


@dataclass(frozen=True, slots=True)
class Geometry:
    """Blocks along each axis of the grid and of a cluster, threads of a block and of a warp."""

    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    threads: int
    warp: int

    @staticmethod
    def of(launch: Launch, values: Mapping[str, int], warp: int) -> "Geometry":
        x, y, z = (max(0, int(index_value(g, values))) for g in launch.grid)
        if any(g % c for g, c in zip((x, y, z), launch.cluster, strict=True)):
            raise InternalError(f"{launch.name}: a grid of {(x, y, z)} blocks is no number of clusters")
        return Geometry((x, y, z), launch.cluster, launch.threads, warp)

    @property
    def blocks(self) -> int:
        return int(np.prod(self.grid))

    @property
    def ranks(self) -> int:
        """Blocks of a cluster."""
        return int(np.prod(self.cluster))

    def block(self, thread: Array) -> Array:
        return np.asarray(thread // self.threads)

    def axes(self, block: Array) -> tuple[Array, Array, Array]:
        x, y, _ = self.grid
        return block % x, block // x % y, block // (x * y)

    def rank(self, block: Array) -> Array:
        (bx, by, bz), (cx, cy, cz) = self.axes(block), self.cluster
        return np.asarray(bx % cx + cx * (by % cy + cy * (bz % cz)))

    def of_rank(self, block: Array, rank: Array) -> Array:
        """The block with that rank in the cluster of another block."""
        x, y, _ = self.grid
        (bx, by, bz), (cx, cy, cz) = self.axes(block), self.cluster
        first = (bx - bx % cx) + x * ((by - by % cy) + y * (bz - bz % cz))
        return np.asarray(first + rank % cx + x * (rank // cx % cy + y * (rank // (cx * cy))))

    def cluster_of(self, block: int) -> tuple[int, ...]:
        """The blocks of the cluster around a block, by rank."""
        return tuple(int(b) for b in self.of_rank(np.full(self.ranks, block), np.arange(self.ranks)))

    def digits(self, launch: Launch, thread: Array, values: Mapping[str, int], first: int = 0) -> dict[str, Array]:
        """Every hardware digit of a launch in every thread, by name; those of a part are counted from its `first`."""
        block = self.block(thread)
        where = Where(
            axes=self.axes(block),
            rank=lambda: self.rank(block),
            thread=thread % self.threads - first,
            warp_size=self.warp,
        )
        found: dict[str, Array] = {}
        for digit in launch.hardware:
            coordinate = PLACES[digit.place].coordinate
            assert coordinate is not None, "no loop runs over digits of the hardware"
            at, stride, radix = coordinate(where), index_value(digit.stride, values), index_value(digit.radix, values)
            found[digit.name] = np.asarray(at // max(stride, 1) % max(radix, 1))  # 0: no thread comes to its loop
        return found
