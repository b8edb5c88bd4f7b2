"""Where in a launch the text stands: in which part of the block, under which loops.

if (tx::warp() < 1) {          // part load
} else {                       // part sum: its first warp is 1, so its warps are tx::warp() - 1
"""

from dataclasses import dataclass

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.names import source_line
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Part
from texpr.polyhedral.mapped.walks import operators
from texpr.polyhedral.target import WARPGROUP

MAX_LINES = 3  # of the program that the comment of a part names


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """The part around ("": the whole block), its warps and the number of its first one; `looped` where the text may be
    run more than once, or by some threads only. `warp_size` is the target's."""

    part: str = ""
    first_warp: int = 0
    warps: int
    warp_size: int
    looped: bool = False

    @staticmethod
    def whole(launch: Launch, warp_size: int) -> "Stand":
        """The start of a launch."""
        return Stand(warps=-(-launch.threads // warp_size), warp_size=warp_size)

    @property
    def elected(self) -> str:
        """Whether this is the first thread."""
        return f"tx::thread() == {self.first_warp * self.warp_size}"

    def coordinate(self, place: Place, threads: int) -> ix.Term | None:
        """The warp, warpgroup or lane of a thread of the part, in a block of `threads`; None for another place."""
        match place:
            case Place.LANE:
                return ix.variable("tx::lane()", 0, min(threads, self.warp_size) - 1)
            case Place.WARP:
                own = ix.variable("tx::warp()", self.first_warp, self.first_warp + self.warps - 1)
                return ix.add(own, ix.constant(-self.first_warp)) if self.first_warp else own
            case Place.WARPGROUP if self.first_warp % WARPGROUP == 0:
                first = self.first_warp // WARPGROUP
                own = ix.variable("tx::warpgroup()", first, first + (self.warps - 1) // WARPGROUP)
                return ix.add(own, ix.constant(-first)) if first else own
            case _:
                return None


def served_lines(part: Part) -> str:
    """`: line; line`, the lines of the program that a part serves."""
    lines = list(dict.fromkeys(source_line(o.span) for o in operators(part.body) if o.span.source.text))
    more = "; ..." if len(lines) > MAX_LINES else ""
    return f": {'; '.join(lines[:MAX_LINES])}{more}" if lines else ""
