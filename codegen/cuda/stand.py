"""Where in a launch the text stands: in which part of the block, under which loops.

if (warp < 1) {                // part load
} else {                       // part sum: its first warp is 1, so its warps are warp - 1
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.names import source_line
from texpr.grammar.diagnostics import fail
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
        """The warp, warpgroup or lane of a thread of the part, the rank of its block. Raises E0502 for a place that
        this target does not have."""
        match place:
            case Place.LANE | Place.CLUSTER:
                return self.named[place]
            case Place.WARP:
                return self._from(self.named[place], self.first_warp, self.warps)
            case Place.WARPGROUP if self.first_warp % WARPGROUP == 0:
                return self._from(self.named[place], self.first_warp // WARPGROUP, -(-self.warps // WARPGROUP))
            case _:
                raise fail("E0502", f"the place {place} is not emitted here on this target", launch.span)

    @staticmethod
    def _from(whole: ix.Term, first: int, count: int) -> ix.Term:
        """A coordinate of which the part has so many from the first one on, counted from that."""
        own = ix.variable(whole.text, first, first + count - 1)
        return ix.add(own, ix.constant(-first)) if first else own


def coordinates(launch: Launch, warp_size: int) -> dict[Place, tuple[str, ix.Term]]:
    """What the coordinates of a launch's threads are called, and their values."""
    last_warp = (launch.threads - 1) // warp_size
    found = {
        Place.LANE: ("lane", ix.variable("tx::lane()", 0, min(launch.threads, warp_size) - 1)),
        Place.WARP: ("warp", ix.variable("tx::warp()", 0, last_warp)),
        Place.WARPGROUP: ("warpgroup", ix.variable("tx::warpgroup()", 0, last_warp // WARPGROUP)),
        Place.CLUSTER: ("rank", ix.variable("tx::cluster_rank()", 0, prod(launch.cluster) - 1)),
    }
    used = {digit.place for digit in launch.hardware}
    return {place: row for place, row in found.items() if place in used}


def served_lines(part: Part) -> str:
    """`: line; line`, the lines of the program that a part serves."""
    lines = list(dict.fromkeys(source_line(o.span) for o in operators(part.body) if o.span.source.text))
    more = "; ..." if len(lines) > MAX_LINES else ""
    return f": {'; '.join(lines[:MAX_LINES])}{more}" if lines else ""
