"""What a block of a contraction in tiles does with its sums: all that the program says around them.

for i_square < 2, i_row < 4, j_square < 2                             a run of j: C[i, j] = C_sum[…]
"""

from dataclasses import replace

from texpr.grammar.ast import (
    Compare,
    CompareOp,
    IndexExpr,
    IndexVar,
    Read,
    Stmt,
)
from texpr.grammar.index.expr import (
    ONE,
    add,
    conjunction,
    const,
    constant_value,
    multiply,
)
from texpr.grammar.types import F64
from texpr.polyhedral.map.brought import Block, zero
from texpr.polyhedral.map.contracted_tiles import square
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.runs import in_run, make_run
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.side import defined
from texpr.polyhedral.map.vectors import Vectors, along
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.mapped.places import Digit, Place
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node


class Result:
    """The way of a block's sums back to memory."""

    def __init__(self, block: Block) -> None:
        self.block, self.one, self.choice, self.draft = block, block.one, block.choice, block.draft
        self.span = block.span
        self.sides = {side.index: side for side in block.one.sides}

    def stored(self, total: str) -> tuple[Node, ...]:
        """What the program says around its sums, in runs of neighbours."""
        draft, one, block = self.draft, self.one, self.block
        count, across, lane = square(one), self.sides[self.choice.across], self.sides[self.choice.along]
        found = along(draft.problem, self._alone(), lane.index, one.nest.indices).vectors(count)
        whole = lane.whole(count) == count  # then a run is one of the innermost loop
        par = lane.loops[-1]
        index, extent = (par.index, par.extent) if whole else (draft.names.fresh(lane.word), lane.extent)
        run = make_run(draft, index, extent, count, par.span)
        loops = {side: self._turns(side, "square", self.choice.each[side] // count) for side in self.sides}
        row = self._turns(across.index, "row", count)
        first = {side: multiply(const(count), IndexVar(name=loops[side].name)) for side in loops}
        sum_ = Read(
            buffer=total,
            subscripts=(
                add(first[across.index], IndexVar(name=row.name)),
                add(first[lane.index], IndexVar(name=run.vector.name)),
            ),
            dtype=draft.buffers[total].dtype,
            span=self.span,
        )
        nodes = self._around(sum_)
        if one.nest.domain is not None:
            guard = Guard(condition=one.nest.domain, body=nodes, padding=True, span=self.span)
            nodes, found = (guard,), Vectors(wide=(), others=0)
        if not whole:
            nodes, found = (*defined(lane, IndexVar(name=index)), *nodes), Vectors(wide=(), others=0)
        body = in_run(draft, run, found, nodes, block.digits)
        places = {side: add(IndexVar(name=block.corner[side]), self._square(side, loops[side])) for side in loops}
        number = {across.index: across.index, lane.index: run.first}
        defines: list[Define] = []
        for side, offset in ((across, add(places[across.index], IndexVar(name=row.name))), (lane, places[lane.index])):
            if side.joins and (side is across or whole):
                number[side.index] = draft.names.fresh(side.word)
                defines.append(Define(index=number[side.index], digits=(), offset=offset))
                of_first = {lane.index: run.first} if side is lane else {}
                defines += defined(side, IndexVar(name=number[side.index]), of_first)
            else:
                defines.append(Define(index=number[side.index], digits=(), offset=offset))
        cut = [
            Compare(op=CompareOp.LT, left=IndexVar(name=number[side.index]), right=side.extent)
            for side in one.blocked
            if side.index in number and block.cut(side)
        ]
        if cut:
            body = (Guard(condition=conjunction(cut), body=body, padding=True, span=self.span),)
        body = (*defines, *body)
        for digit in (loops[lane.index], row, loops[across.index]):
            body = (Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=True, span=self.span),)
        return body

    def _turns(self, side: str, word: str, count: int) -> Digit:
        name = self.draft.names.fresh(f"{self.sides[side].word}_{word}")
        digit = Digit(name=name, index=side, weight=1, radix=const(count), stride=ONE, place=Place.SERIAL)
        self.draft.digits.append(digit)
        return digit

    def _square(self, side: str, digit: Digit) -> IndexExpr:
        """Where a square of a thread's begins in the tile."""
        squares = constant_value(digit.radix) or 1
        apart = const(self.choice.tile[side] // squares)
        return add(IndexVar(name=self.block.at[side]), multiply(apart, IndexVar(name=digit.name)))

    def _alone(self) -> tuple[Stmt, ...]:
        """The statements around a sum, and its update by what is in a register."""
        return tuple(
            stmt
            if self.one.work.at(stmt) is None
            else replace(self.one.update, value=zero(self.one.update.value.dtype))
            for stmt in self.one.work.last
        )

    def _around(self, sum_: Read) -> tuple[Node, ...]:
        body = Body(self.draft, hardware=self.one.nest.indices, digits=self.block.digits)
        nodes: list[Node] = []
        for stmt in self.one.work.last:
            if self.one.work.at(stmt) is None:
                nodes += body.nodes((stmt,))
                continue
            update, value = self.one.update, sum_
            stored = self.draft.buffers[update.buffer].dtype
            final = body.leaf(replace(update, value=as_type(value, F64 if stored == F64 else self.one.dtype)))
            out: Node = replace(final, id=f"{update.id}_out", origin=Origin.COMBINE)
            some = self.one.some
            nodes.append(out if some is None else Guard(condition=some, body=(out,), span=stmt.span))
        return tuple(nodes)
