"""Where in a launch the text stands: in which part of the block, under which loops.

if (warp < 1) {                // part load
} else {                       // part sum: its first warp is 1, so its warps are warp - 1
"""

from collections.abc import Callable, Mapping
from math import prod

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.names import source_line
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Part
from texpr.polyhedral.mapped.walks import operators
from texpr.polyhedral.target import WARPGROUP

MAX_LINES = 3  # of the program that the comment of a part names


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """The part around ("": the whole block), its warps and the number of its first one; `looped` where the text may be
    run more than once, or by some threads only; `unrolled` has the indices of the loops around that are unrolled, which
    are numbers in the end. `warp_size` is the target's; `named` has the variables that hold
    coordinates of the block's threads."""

    part: str = ""
    first_warp: int = 0
    warps: int
    warp_size: int
    named: Mapping[Place, ix.Term]
    looped: bool = False
    unrolled: frozenset[str] = frozenset()

    @property
    def elected(self) -> str:
        """Whether this is the first thread."""
        return f"tx::thread() == {self.first_warp * self.warp_size}"

    def coordinate(self, place: Place, launch: Launch) -> ix.Term:
        """The coordinate of a thread of the part, or of its block, at a place. Raises E0502 for a place that this
        target does not have, or not in this part."""
        row = _COORDINATES.get(place)
        together = 1 if row is None or row.threads is None else row.threads(self.warp_size)
        first = self.first_warp * self.warp_size
        if row is None or first % together:
            raise fail("E0502", f"the place {place} is not emitted here on this target", launch.span)
        if row.threads is None:
            return self.named[place]
        last = (first + self.warps * self.warp_size - 1) // together
        own = ix.variable(self.named[place].text, first // together, last)
        return ix.add(own, ix.constant(-(first // together))) if first else own


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coordinate:
    """What a coordinate of threads is called, and its text. `threads`: so many in a row have the same one, of warps of
    so many; where it does not count up through the block, `highest` says how far it goes."""

    name: str
    text: str
    threads: Callable[[int], int] | None = None
    highest: Callable[[Launch, int], int] = lambda launch, warp_size: 0


_COORDINATES = {
    Place.LANE: _Coordinate(
        name="lane", text="tx::lane()", highest=lambda launch, warp_size: min(launch.threads, warp_size) - 1
    ),
    Place.WARP: _Coordinate(name="warp", text="tx::warp()", threads=lambda warp_size: warp_size),
    Place.WARPGROUP: _Coordinate(
        name="warpgroup", text="tx::warpgroup()", threads=lambda warp_size: WARPGROUP * warp_size
    ),
    Place.CLUSTER: _Coordinate(
        name="rank", text="tx::cluster_rank()", highest=lambda launch, warp_size: prod(launch.cluster) - 1
    ),
}


def coordinates(launch: Launch, warp_size: int) -> dict[Place, tuple[str, ix.Term]]:
    """What the coordinates of a launch's threads are called, and their values."""
    found: dict[Place, tuple[str, ix.Term]] = {}
    used = {digit.place for digit in launch.hardware}
    for place, row in _COORDINATES.items():
        if place in used:
            together = None if row.threads is None else row.threads(warp_size)
            high = row.highest(launch, warp_size) if together is None else (launch.threads - 1) // together
            found[place] = (row.name, ix.variable(row.text, 0, high))
    return found


def served_lines(part: Part) -> str:
    """`: line; line`, the lines of the program that a part serves."""
    lines = list(dict.fromkeys(source_line(o.span) for o in operators(part.body) if o.span.source.text))
    more = "; ..." if len(lines) > MAX_LINES else ""
    return f": {'; '.join(lines[:MAX_LINES])}{more}" if lines else ""
