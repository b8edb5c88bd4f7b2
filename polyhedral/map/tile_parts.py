"""What the tiles of a launch are made of: teams of threads, where their shares begin, what memory they have."""

from collections.abc import Mapping
from types import MappingProxyType

from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.index.expr import ONE, add, const, constant_value
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import UNROLLED
from texpr.polyhedral.map.tiles import TILE_ALIGN_BYTES, Staged, dealt
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.mapped.candidate import Tiled
from texpr.polyhedral.mapped.operators import Element
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Loop, Node
from texpr.polyhedral.names import stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A block's threads on one tile: `at` has the names of their places in it, defined by `defines` inside `loops`."""

    at: Mapping[str, str]
    defines: tuple[Define, ...]
    loops: tuple[Digit, ...]
    digits: tuple[str, ...]


class TileParts:
    """The tiles of one launch; `corner` has the first iteration of a block's tile, by index."""

    def __init__(self, draft: Draft, nest: Nest, choice: Tiled, corner: Mapping[str, str]) -> None:
        self.draft, self.nest, self.choice, self.corner = draft, nest, choice, corner
        self.extents = {par.index: par.extent for par in nest.pars}
        self.names: dict[Element, str] = {}

    def team(
        self, units: Mapping[str, int], each: Mapping[str, int], lanes: Mapping[str, int] = MappingProxyType({})
    ) -> Team:
        """The threads dealt to shares of a tile, of so many iterations `each`, and loops for what they do not cover:
        the last turn of one may leave the tile where they do not cover it exactly."""
        draft, nest, choice = self.draft, self.nest, self.choice
        pieces = dealt(nest, units, choice.threads, lanes)
        band = thread_digits(nest.indices, pieces, draft.names, draft.target.warp_size, each)
        draft.digits += band.all
        at = {index: draft.names.fresh(f"{stem(index)}_at") for index in units}
        loops: list[Digit] = []
        defines: list[Define] = []
        for index in units:
            number = nest.indices.index(index)
            covered, mine = band.covered[number], band.digits[number]
            if covered < units[index] * each.get(index, 1):
                turns = const(-(-units[index] * each.get(index, 1) // covered))
                name = draft.names.fresh(f"{stem(index)}_serial")
                loops.append(Digit(name=name, index=index, weight=covered, radix=turns, stride=ONE, place=Place.SERIAL))
                mine = (*mine, loops[-1])
            defines.append(Define(index=at[index], digits=tuple(reversed(mine))))
        draft.digits += loops
        return Team(at=at, defines=tuple(defines), loops=tuple(loops), digits=tuple(d.name for d in band.all))

    def place(self, team: Team, index: str) -> IndexExpr:
        """The iteration at which a thread's share of a tile begins."""
        return add(IndexVar(name=self.corner[index]), IndexVar(name=team.at[index]))

    def cut(self, index: str) -> bool:
        """Whether tiles reach beyond an extent."""
        if self.choice.strips and index == self.choice.along:
            return False
        if index in self.choice.lines or self.choice.phased:
            return True
        return not linear(self.extents[index]).is_multiple(self.choice.tile[index], self.draft.problem.divisors)

    def register(self, one: Staged, name: str, reason: str) -> str:
        return self.buffer(one, name, Memory.REG, row_major((const(one.along * one.across),)), reason)

    def buffer(self, one: Staged, name: str, memory: Memory, layout: Layout, reason: str) -> str:
        align = TILE_ALIGN_BYTES if memory is Memory.SHARED else ACCESS_BYTES
        return self.draft.local(name, one.wide.dtype, memory, layout, reason, align=align, span=one.wide.first.span)


def looped(team: Team, nodes: tuple[Node, ...], nest: Nest, *, unrolled: bool = False) -> tuple[Node, ...]:
    """Nodes in the turns of a team: those one after the other that are few, or that have registers of their own."""
    span = nest.pars[0].span
    for digit in reversed(team.loops):
        turns = constant_value(digit.radix) or UNROLLED + 1
        nodes = (
            Loop(
                index=digit.name,
                extent=digit.radix,
                body=nodes,
                digit=digit,
                unroll=unrolled or turns <= UNROLLED,
                span=span,
            ),
        )
    return nodes
