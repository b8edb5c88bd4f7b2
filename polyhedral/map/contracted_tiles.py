"""The geometry of a contraction in tiles: who computes what of a block's tile, and who brings what of the factors.

    128 x 128 of C, 8 x 8 for each of 256 threads, 8 products deep

    C[i, j]    a thread has squares of 4 x 4, 64 apart: lanes 8 along j and 4 along i, so that a warp reads 128 and 64
               neighbouring bytes of the factors' tiles
    B[k, j]    runs along j: 4 neighbours of j go to a row of the tile as they are
    A[i, k]    runs along k: 4 neighbours of k go to 4 rows of the tile, by 4 lanes beside one another and 8 below, for
               which the rows lie so far apart that the lanes of a warp meet in few banks

A tile of a factor has a row for each product, and its side along the row.
"""

from collections.abc import Mapping
from math import inf

from texpr.grammar.ast import Leaf, Stmt
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import strided
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.contraction import Contraction, Factor
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.summed import along_steps, stride
from texpr.polyhedral.map.tiles import BANKS_BYTES
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, element_width, is_run
from texpr.polyhedral.mapped.candidate import Contracted
from texpr.polyhedral.walk import written

SLOTS = 2  # of each factor's tile: one is read while the next one is brought
ROW_BYTES = 64  # of a row, by lanes beside one another, where a factor is turned
BESIDE = 64  # threads along a side, of which each asks where its rows are in a window: 2 times 8 rows, not 16
LANES_ALONG = 8  # of a warp along the runs of the result: 128 bytes

Pieces = tuple[tuple[str, int], ...]
"""Threads dealt to indices, fastest first."""


def square(one: Contraction) -> int:
    """The neighbours along both sides that a thread reads and computes at once."""
    return max(1, ACCESS_BYTES // one.dtype.size_bytes)


def team(choice: Contracted) -> dict[str, int]:
    """The threads along each side of a tile."""
    return {side: choice.tile[side] // choice.each[side] for side in choice.tile}


def lanes(choice: Contracted, warp: int) -> Pieces:
    """The threads of a block dealt to the sides of its tile, along the runs first."""
    own = team(choice)
    along = min(LANES_ALONG, own[choice.along], warp)
    across = min(own[choice.across], warp // along)
    return (
        (choice.along, along),
        (choice.across, across),
        (choice.along, own[choice.along] // along),
        (choice.across, own[choice.across] // across),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bringing:
    """How threads bring a tile of a factor: `width` neighbours at a time along its side, or along what is summed
    (`turned`): then a few bytes of each row. `threads` are those along the side and along what is summed."""

    factor: Factor
    turned: bool
    width: int
    threads: Mapping[str, int]

    def each(self, way: str) -> int:
        """The neighbours that one access has along a way."""
        return self.width if (way == DEEP) == self.turned else 1

    @property
    def pieces(self) -> Pieces:
        """The threads dealt to both ways, along the accesses first."""
        side = self.factor.side.index
        ways = (DEEP, side) if self.turned else (side, DEEP)
        return tuple((way, self.threads[way]) for way in ways)

    def covered(self, way: str) -> int:
        """How far threads reach along a way at once."""
        return self.each(way) * self.threads[way]


DEEP = "@deep"
"""The way of what is summed."""


def is_turned(problem: Problem, one: Contraction, side: str, depth: int) -> bool:
    """Whether neighbours of the factor with a side are neighbours of what is summed, or nearer there than others."""
    element, summed = one.of(side).element, along_steps(one, depth)
    if is_run(problem, element, side) or is_run(problem, element, summed.index) or summed.loops == one.reduction.loops:
        return not is_run(problem, element, side) and is_run(problem, element, summed.index)
    beside, below = stride(problem, element, side), stride(problem, element, summed.index)
    return beside is not None and below is not None and 0 < abs(below) < abs(beside)


def bringing(problem: Problem, one: Contraction, choice: Contracted, side: str) -> Bringing:
    """How the tile of the factor with a side is brought."""
    factor, turned = one.of(side), is_turned(problem, one, side, choice.depth)
    most = max(1, ACCESS_BYTES // max(factor.dtype.size_bytes, one.dtype.size_bytes))
    summed = along_steps(one, choice.depth)
    width, run = 1, summed if turned else factor.side
    if factor.where is None and is_run(problem, factor.element, run.index):
        reach = choice.depth if turned else choice.tile[side]
        share = max(1, choice.tile[side] * choice.depth // choice.threads)
        width = run.whole(min(most, reach, share, element_width(problem, factor.element, run.index)))
    first, second = (DEEP, side) if turned else (side, DEEP)
    extents = {side: choice.tile[side], DEEP: choice.depth}
    beside = ROW_BYTES // (width * one.dtype.size_bytes)
    fast = min(choice.threads, extents[first] // width)
    fast = min(fast, max(1, beside, choice.threads // extents[second])) if turned else fast
    if width == 1 and not turned and summed.joins:
        fast = min(fast, BESIDE)
    slow = min(choice.threads // fast, extents[second])
    return Bringing(factor=factor, turned=turned, width=width, threads={first: fast, second: slow})


def factor_layout(one: Contraction, choice: Contracted, own: Bringing) -> Layout:
    """Where the tile of a factor lies: a slot, a row for each product, its side along the row."""
    row = row_elements(one, choice, own)
    return strided((SLOTS, choice.depth, choice.tile[own.factor.side.index]), (choice.depth * row, row, 1))


def row_elements(one: Contraction, choice: Contracted, own: Bringing) -> int:
    """How far apart the rows of a factor's tile lie: so that the rows of what a warp turns share out the banks."""
    side, size = choice.tile[own.factor.side.index], one.dtype.size_bytes
    if not own.turned:
        return side
    return side + max(square(one), BANKS_BYTES // (own.threads[DEEP] * own.width * size))


def tile_bytes(problem: Problem, one: Contraction, choice: Contracted) -> int:
    """Shared memory of both factors' tiles."""
    rows = (row_elements(one, choice, bringing(problem, one, choice, side)) for side in choice.tile)
    return SLOTS * choice.depth * sum(rows) * one.dtype.size_bytes


def nearest(problem: Problem, one: Contraction) -> str:
    """The side whose neighbours lie nearest one another in what the program writes."""
    sides = (one.second.side.index, one.first.side.index)
    elements = [written_ for stmt in one.work.last if (written_ := _element(stmt)) is not None]
    elements.append((one.update.buffer, one.update.subscripts))
    known = [e for e in elements if e[0] in problem.layouts and e[1]]

    def apart(side: str) -> float:
        found = [abs(step) for e in known if (step := stride(problem, e, side))]
        return min(found, default=inf)

    return min(sides, key=apart)


def _element(stmt: Stmt) -> Element | None:
    return written(stmt) if isinstance(stmt, Leaf) else None
