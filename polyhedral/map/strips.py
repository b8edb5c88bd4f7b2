"""Strips: tiles of whole rows that lie one behind the other in what is written, so that a block writes one run of it.

    par N j, M i { B[j, i] = A[i, j] }      along i, across j; M = 257, bf16, a strip of 128 rows

    phase = B[j_tile, 0] behind a multiple of 128 bytes
    …                                                  A_tile[1800 + phase + 257*j + i], by chunks (`phased.py`)
    barrier (block)
    for i_serial < 8
      j_i_first = 4096*i_serial + … - phase            elements of the strip, in chunks of a line
      if -8 < j_i_first, j_i_first < 257*min(128, N - j_tile)
        copy A_run[e] = A_tile[1800 + phase + j_i_first + e] for e < 8  (now, aligned)
        each: B_run[v] = A_run[v]
        copy B[j_tile + (j_i_first + e) / 257, (j_i_first + e) % 257] = B_run[e] for e < 8, … (now, aligned)

What is written has whole chunks but at both ends of a strip, however long its rows are: NCHW to NHWC of 31 x 257 x 129
x 127 in bf16 ran at .80 of a copy in tiles whose rows are cut at sectors, at .96 so.
"""

from collections.abc import Sequence

from texpr.grammar.ast import And, Compare, CompareOp, Const, IndexOp, IndexVar
from texpr.grammar.index.expr import ZERO, add, combine, const, minimum, multiply, subtract
from texpr.polyhedral.map.lines import LINE_BYTES, ahead, origins
from texpr.polyhedral.map.runs import Line, Run, each_of, make_run, nothing, registers_of
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.tile_parts import TileParts, looped
from texpr.polyhedral.map.tiles import Staged, chunk, owned, tile_begin
from texpr.polyhedral.map.vectors import Element, Wide, at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Lead, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem


def run_strip(tiles: TileParts, found: Sequence[Staged], phase: Lead) -> tuple[Node, ...]:
    """Every element of a strip, in chunks of memory."""
    draft, nest, choice, problem = tiles.draft, tiles.nest, tiles.choice, tiles.draft.problem
    (origin,), count = origins(problem, nest, choice.lines).values(), chunk(problem, nest, choice)
    rows, row, span = owned(problem, nest, choice)[choice.across], choice.tile[choice.along], nest.pars[0].span
    before = ahead(problem, origin, LINE_BYTES)
    team = tiles.team({choice.along: -(-(row * rows + before) // count)}, {choice.along: count})
    there = minimum(const(rows), subtract(tiles.extents[choice.across], IndexVar(name=tiles.corner[choice.across])))
    index = draft.names.fresh(f"{stem(choice.across)}_{stem(choice.along)}")
    run = make_run(draft, index, multiply(const(row), there), count, span, Line(lead=phase.index))
    first = IndexVar(name=run.first)
    some = (
        Compare(op=CompareOp.LT, left=const(-count), right=first),
        Compare(op=CompareOp.LT, left=first, right=run.extent),
    )
    nodes: tuple[Node, ...] = (
        *team.defines,
        Define(
            index=run.first,
            digits=(),
            offset=subtract(IndexVar(name=team.at[choice.along]), IndexVar(name=phase.index)),
        ),
        Guard(
            condition=And(parts=some),
            body=_Chunk(tiles, run, phase, team.digits).nodes(found, origin),
            padding=True,
            span=span,
        ),
    )
    return looped(team, nodes, nest, unrolled=True)


class _Chunk:
    """The elements of a strip that a thread takes at once, from the first one of a `run` on."""

    def __init__(self, tiles: TileParts, run: Run, phase: Lead, digits: tuple[str, ...]) -> None:
        self.tiles, self.run, self.phase, self.digits = tiles, run, phase, digits
        self.element = tiles.draft.names.fresh(f"{stem(run.index)}_element")
        self.at = add(IndexVar(name=run.first), IndexVar(name=self.element))

    def nodes(self, found: Sequence[Staged], origin: Element) -> tuple[Node, ...]:
        """What the tile has of it is loaded, what the program makes of that is stored."""
        draft, nest, run = self.tiles.draft, self.tiles.nest, self.run
        dtype = draft.kernel.buffer(origin[0]).dtype
        stored = Wide(element=origin, dtype=dtype, width=run.count, loads=False, stores=True, first=nest.body[0])
        moved = [*(one.wide for one in found), stored]
        registers = registers_of(draft, run, moved)
        body = Body(draft, hardware=nest.indices, digits=self.digits).nodes(nest.body)
        return (
            *(Fresh(buffer=name) for name in registers.values()),
            *(self._load(one, registers[one.element]) for one in found),
            each_of(draft, run, moved, registers, body, self.digits),
            self._store(stored, registers[origin]),
        )

    def _load(self, one: Staged, register: str) -> Copy:
        tiles, wide = self.tiles, one.wide
        begin = const(tile_begin(tiles.draft.problem, tiles.nest, tiles.choice))
        place = add(add(begin, IndexVar(name=self.phase.index)), self.at)
        tile = View(buffer=tiles.names[one.element], subscripts=(place,), dtype=wide.dtype)
        return self._copy(wide, "load", tile, self._held(wide, register), nothing(wide.dtype, wide.first.span))

    def _store(self, wide: Wide, register: str) -> Copy:
        choice, row = self.tiles.choice, const(self.tiles.choice.tile[self.tiles.choice.along])
        corner = IndexVar(name=self.tiles.corner[choice.across])
        places = {
            choice.across: add(corner, combine(IndexOp.DIV, self.at, row)),
            choice.along: combine(IndexOp.MOD, self.at, row),
        }
        array = View(buffer=wide.element[0], subscripts=at_places(wide.element[1], places), dtype=wide.dtype)
        return self._copy(wide, "store", self._held(wide, register), array, None)

    def _held(self, wide: Wide, register: str) -> View:
        return View(buffer=register, subscripts=(IndexVar(name=self.element),), dtype=wide.dtype)

    def _copy(self, wide: Wide, what: str, source: View, target: View, other: Const | None) -> Copy:
        """An access of the elements that the strip has, from the run's first one on."""
        first = IndexVar(name=self.run.first)
        begin, end = subtract(ZERO, first), subtract(self.run.extent, first)
        return Copy(
            id=self.tiles.draft.names.fresh(f"{getattr(wide.first, 'id', self.run.index)}_{what}"),
            source=source,
            target=target,
            over=((self.element, const(self.run.count)),),
            within=Within(begin=begin, end=end, other=other, unseen=other is not None),
            access=Access.ALIGNED,
            digits=self.digits,
            span=wide.first.span,
        )
