"""The factors of a contraction on their way from memory: to a thread's registers, to a tile, and to the products.

    copy A_next[e] = A[i_tile + A_i_at, 8*step + A_k_at + e] for e < 4           four neighbours of what is summed
    each e < 4: A_tile[slot, A_k_at + e, A_i_at] = A_next[e]                      turned: each goes to a row of its own
    copy A_part[4*i_square + e] = A_tile[slot, k_deep, i_at + 64*i_square + e]    what a thread's products need

Between the first two a thread multiplies what came before, so that nobody waits for memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from texpr.grammar.ast import (
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    IndexExpr,
    IndexOp,
    IndexVar,
)
from texpr.grammar.index.expr import ZERO, add, combine, conjunction, const, constant_value, minimum, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.contracted_tiles import DEEP, Bringing, bringing, factor_layout, square
from texpr.polyhedral.map.contraction import Contraction
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.placement import ALIGNMENT_BYTES
from texpr.polyhedral.map.side import Side, at_condition, defined
from texpr.polyhedral.map.slack import slack
from texpr.polyhedral.map.summed import along_steps, places
from texpr.polyhedral.map.tiles import TILE_ALIGN_BYTES
from texpr.polyhedral.map.vectors import ACCESS_BYTES, at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Contracted
from texpr.polyhedral.mapped.operators import Copy, Elementwise
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box, View, Within
from texpr.polyhedral.names import stem

ALIGN_BYTES = {Memory.REG: ACCESS_BYTES, Memory.SHARED: TILE_ALIGN_BYTES, Memory.GLOBAL: ALIGNMENT_BYTES[Memory.GLOBAL]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block at work on a contraction: `corner` has the first value of each side of its tile, `at` a thread's first
    one in it, by name; `digits` are those of that thread."""

    draft: Draft
    one: Contraction
    choice: Contracted
    corner: Mapping[str, str]
    at: Mapping[str, str]
    digits: tuple[str, ...]

    @property
    def span(self) -> Span:
        return self.one.update.span

    def local(self, name: str, dtype: DType, memory: Memory, layout: Layout, reason: str) -> str:
        """A new buffer of the grid's, the block's, or a thread's."""
        return self.draft.local(name, dtype, memory, layout, reason, align=ALIGN_BYTES[memory], span=self.span)

    def registers(self, name: str, dtype: DType, shape: Sequence[int], reason: str) -> str:
        """New registers of a thread."""
        return self.local(name, dtype, Memory.REG, row_major(tuple(map(const, shape))), reason)

    def cut(self, side: Side) -> bool:
        """Whether tiles reach beyond a side's extent."""
        return not linear(side.extent).is_multiple(self.choice.tile[side.index], self.draft.problem.divisors)

    @property
    def is_whole(self) -> bool:
        """Whether neither tiles of single indices nor steps reach beyond what there is."""
        whole = linear(self.one.extent).is_multiple(self.choice.depth, self.draft.problem.divisors)
        return whole and not any(side.joins or self.cut(side) for side in self.one.sides)


class Brought:
    """One factor on its way: `next` are the registers that it goes through, `part` those of the products at hand."""

    def __init__(self, block: Block, side: str) -> None:
        draft, one, choice = block.draft, block.one, block.choice
        self.block, self.side = block, side
        self.own: Bringing = bringing(draft.problem, one, choice, side)
        self.array = self.own.factor.element[0]
        self.summed = along_steps(one, choice.depth)
        self.ways = {side: self.own.factor.side.word, DEEP: stem(self.summed.index)}
        self.reach = {side: choice.tile[side], DEEP: choice.depth}
        pieces = tuple((list(self.ways).index(way), n) for way, n in self.own.pieces)
        each = {name: self.own.each(way) for way, name in self.ways.items()}
        band = thread_digits(tuple(self.ways.values()), pieces, draft.names, draft.target.warp_size, each)
        draft.digits += band.all
        self.digits = tuple(digit.name for digit in band.all)
        self.at = {way: draft.names.fresh(f"{self.array}_{name}_at") for way, name in self.ways.items()}
        self.defines = tuple(
            Define(index=self.at[way], digits=tuple(reversed(mine)))
            for way, mine in zip(self.ways, band.digits, strict=True)
        )
        rounds = {way: self.reach[way] // self.own.covered(way) for way in self.ways}
        self.rounds = {way: (draft.names.fresh(f"{self.ways[way]}_round"), n) for way, n in rounds.items() if n > 1}
        joined = self.own.factor.side if self.own.factor.side.joins else None
        self.fixed = {i: draft.names.fresh(f"{self.array}_{stem(i)}") for i in joined.indices} if joined else {}
        if joined and side not in self.rounds:
            self.defines += defined(joined, self._index, self.fixed)
        self.element = draft.names.fresh(f"{self.ways[DEEP if self.own.turned else side]}_element")
        count = self.own.width
        for _, n in self.rounds.values():
            count *= n
        self.next = block.registers(
            f"{self.array}_next", self.own.factor.dtype, (count,), f"elements of {self.array} on their way to its tile"
        )
        self.tile = block.local(
            f"{self.array}_tile",
            one.dtype,
            Memory.SHARED,
            factor_layout(one, choice, self.own),
            f"what {choice.depth} products of each sum need of {self.array}, and the next ones",
        )
        self.part = block.registers(
            f"{self.array}_part",
            one.dtype,
            (choice.each[side] * choice.ahead,),
            f"what a thread's products need of {self.array}",
        )

    @property
    def fresh(self) -> tuple[Node, ...]:
        return tuple(Fresh(buffer=name) for name in (self.tile, self.next, self.part))

    def _id(self, word: str) -> str:
        return self.block.draft.names.fresh(f"{self.block.one.update.id}_{self.array}_{word}")

    @property
    def _over(self) -> Box:
        """All that a thread brings."""
        rounds = tuple((name, const(n)) for name, n in self.rounds.values())
        return (*rounds, (self.element, const(self.own.width)))

    def _each_round(self, load: Copy) -> Node:
        """A load of one round along a side that is joined, with the indices of that round."""
        if not self.fixed or self.side not in self.rounds:
            return load
        (index, extent), *over = load.over
        one = replace(load, over=tuple(over))
        defines = defined(self.own.factor.side, self._index, self.fixed)
        return Loop(index=index, extent=extent, body=(*defines, one), unroll=True, span=load.span)

    @property
    def _register(self) -> View:
        """Where that goes through."""
        number: IndexExpr = ZERO
        for name, extent in self._over:
            number = add(multiply(number, extent), IndexVar(name=name))
        return View(buffer=self.next, subscripts=(number,), dtype=self.own.factor.dtype)

    def _place(self, way: str) -> IndexExpr:
        """Where an access begins in the tile."""
        place: IndexExpr = IndexVar(name=self.at[way])
        if way in self.rounds:
            place = add(place, multiply(const(self.own.covered(way)), IndexVar(name=self.rounds[way][0])))
        return place

    @property
    def _index(self) -> IndexExpr:
        """The value of the side where an access begins."""
        return add(IndexVar(name=self.block.corner[self.side]), self._place(self.side))

    def load(self, step: IndexExpr) -> Node:
        """What the products of a step need, into registers; zeros beyond the extents."""
        block, own, one = self.block, self.own, self.block.one
        base, index = multiply(const(block.choice.depth), step), self._index
        number = add(base, self._place(DEEP))
        side, e = own.factor.side, IndexVar(name=self.element)
        here: dict[str, IndexExpr] = {name: IndexVar(name=fixed) for name, fixed in self.fixed.items()}
        here = {**(here or side.places(index)), **places(one, block.choice.depth, step, self._place(DEEP))}
        asked = [] if own.factor.where is None else [slack(at_condition(own.factor.where, here))]
        moving = self.summed.index if own.turned else side.index
        here[moving] = add(here[moving], e)
        ends: list[IndexExpr] = []
        whole: list[Condition] = []
        for way, first, extent, begin in (
            (self.side, index, side.extent, IndexVar(name=block.corner[self.side])),
            (DEEP, number, one.extent, base),
        ):
            if block.cut(side) if way == self.side else (constant_value(extent) or 1) % self.block.choice.depth:
                left = subtract(extent, first)
                ends.append(left if own.each(way) == own.width else multiply(const(own.width), left))
                end = add(begin, const(self.reach[way]))
                whole.append(Compare(op=CompareOp.LE, left=end, right=extent))
        source = View(buffer=self.array, subscripts=at_places(own.factor.element[1], here), dtype=own.factor.dtype)
        load = self._each_round(self._load("load", source, asked))
        if not ends:
            return load
        return Guard(
            condition=conjunction(whole),
            body=(load,),
            orelse=(self._each_round(self._load("load_part", source, [*ends, *asked])),),
            padding=True,
            uniform=Scope.BLOCK,
            span=block.span,
        )

    def _load(self, word: str, source: View, ends: Sequence[IndexExpr]) -> Copy:
        """What brings so many elements as are fewer than each of the `ends`, and zeros for others."""
        within = Within(begin=ZERO, end=reduce(minimum, ends), other=zero(source.dtype), exact=True) if ends else None
        return Copy(
            id=self._id(word),
            source=source,
            target=self._register,
            over=self._over,
            within=within,
            access=Access.ALIGNED,
            digits=self.digits,
            span=self.block.span,
        )

    def store(self, slot: IndexExpr) -> Node:
        """What is in registers, to a slot of the tile."""
        deep, index, e = self._place(DEEP), self._place(self.side), IndexVar(name=self.element)
        there = (slot, add(deep, e), index) if self.own.turned else (slot, deep, add(index, e))
        tile, held = View(buffer=self.tile, subscripts=there, dtype=self.block.one.dtype), self._register
        id, span = self._id("stage"), self.block.span
        if self.own.turned:
            value = as_type(held.read(span), tile.dtype)
            leaf = Bind(id=id, buffer=self.tile, subscripts=there, value=value, span=span)
            return Elementwise(id=id, leaves=(leaf,), over=self._over, digits=self.digits)
        return Copy(
            id=id,
            source=held,
            target=tile,
            over=self._over,
            access=Access.ALIGNED,
            digits=self.digits,
            span=span,
        )

    def held(self, deep: IndexExpr, own: IndexExpr) -> IndexExpr:
        """The register of what a thread's products of a number need."""
        ahead, count = self.block.choice.ahead, self.block.choice.each[self.side]
        return add(multiply(const(count), combine(IndexOp.MOD, deep, const(ahead))), own)

    def zeros(self, deep: IndexExpr) -> Node:
        """Zeros in place of what a thread's products of a number need."""
        own, id = self.block.draft.names.fresh(f"{self.ways[self.side]}_none"), self._id("none")
        there = (self.held(deep, IndexVar(name=own)),)
        leaf = Bind(id=id, buffer=self.part, subscripts=there, value=zero(self.block.one.dtype), span=self.block.span)
        over = ((own, const(self.block.choice.each[self.side])),)
        return Elementwise(id=id, leaves=(leaf,), over=over, digits=self.block.digits)

    def take(self, slot: IndexExpr, deep: IndexExpr, turn: IndexExpr) -> Node:
        """What a thread's products of a number need, from a slot of the tile to the registers of its turn."""
        block, count = self.block, square(self.block.one)
        squares = block.choice.each[self.side] // count
        name, element = (block.draft.names.fresh(f"{self.ways[self.side]}_{word}") for word in ("square", "element"))
        number, e = IndexVar(name=name), IndexVar(name=element)
        apart = multiply(const(block.choice.tile[self.side] // squares), number)
        place = add(add(IndexVar(name=block.at[self.side]), apart), e)
        return Copy(
            id=self._id("take"),
            source=View(buffer=self.tile, subscripts=(slot, deep, place), dtype=block.one.dtype),
            target=View(
                buffer=self.part,
                subscripts=(self.held(turn, add(multiply(const(count), number), e)),),
                dtype=block.one.dtype,
            ),
            over=((name, const(squares)), (element, const(count))),
            access=Access.ALIGNED,
            digits=block.digits,
            span=block.span,
        )


def zero(dtype: DType) -> Const:
    """What stands for a factor that there is not, and for a sum of nothing."""
    return Const(value=0.0 if dtype.is_float else 0, dtype=dtype)
