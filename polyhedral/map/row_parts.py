"""What a product's tiles are reduced to along their rows: each thread's part in registers, those of a tile by shuffles,
those of all tiles of a row by a launch behind, in the order of the tiles.

    S[i] += s * s                       s is the sum that is C[i, j]

    part multiply, every tile           S_part[h] = 0
      each element of the thread        S_part[h] += s * s                 rows 8*h + lane / 4 of its warp's
      after the last column             S_part[h] = Sum over the four lanes of a row
                                        S_tiles[j_tile / 256, i] = S_part[h]               by the first of them
    launch behind, a thread for each i  S_total = Sum of S_tiles[t, i] for all t, in f64 ;  S[i] += S_total

So the sums of a row are added in one order, whoever makes its tiles, and have the same bits in every run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    IndexExpr,
    IndexOp,
    IndexVar,
    Par,
    Read,
    Subscript,
)
from texpr.grammar.identities import first_of
from texpr.grammar.index.expr import ZERO, ceildiv, combine, conjunction, const, multiply
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.matrix_product import MatrixProduct, in_terms
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View

ROW_LANES = 4  # of a warp that have the columns of a row
HALVES = 2  # rows of a thread in 16 of its warp's
THREADS = 256  # of a block of the launch behind


@dataclass(slots=True)
class RowParts:
    """The parts of each accumulation `over` the columns of a product: where a thread has them for its rows of 64, by
    the number of `blocks` of these and by the half."""

    draft: Draft
    product: MatrixProduct
    choice: Piped
    registers: dict[str, str] = field(init=False)
    spaces: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.registers, self.spaces = {}, {}
        for leaf in self.over:
            blocks, shape = self._of_block(const(self.choice.blocks)), self.draft.kernel.buffer(leaf.buffer).shape
            own = self._local(leaf, "part", Memory.REG, (*blocks, const(HALVES)), "a thread's part of rows")
            self.registers[leaf.id] = own
            why = "the parts of each tile of a row; a launch behind adds them"
            self.spaces[leaf.id] = self._local(leaf, "tiles", Memory.GLOBAL, (self.across, *shape), why)

    def _local(
        self, leaf: Accumulate, word: str, memory: Memory, shape: tuple[IndexExpr, ...], why: str, dtype: DType = F32
    ) -> str:
        return self.draft.local(f"{leaf.buffer}_{word}", dtype, memory, row_major(shape), why, span=leaf.span)

    @property
    def across(self) -> IndexExpr:
        """The tiles of a row."""
        return ceildiv(self.product.columns.factor.side.extent, self.choice.tile[self.choice.along])

    @property
    def over(self) -> tuple[Accumulate, ...]:
        return self.product.epilogue.over

    def _of_block(self, index: IndexExpr) -> tuple[IndexExpr, ...]:
        """What tells one of several 64 rows."""
        return (index,) if self.choice.blocks > 1 else ()

    def places(self, block: IndexExpr, half: IndexExpr) -> dict[str, View]:
        """Where the part of each is of a row."""
        return {
            id: View(buffer=name, subscripts=(*self._of_block(block), half), dtype=F32)
            for id, name in self.registers.items()
        }

    def begun(self) -> tuple[Node, ...]:
        """Parts of nothing, at the begin of a tile."""
        if not self.over:
            return ()
        block, half = (self.draft.names.fresh(word) for word in ("block", "half"))
        starts = list[Node]()
        for leaf in self.over:
            id, view = self.draft.names.fresh(f"{leaf.id}_none"), self.places(IndexVar(name=block), _var(half))[leaf.id]
            zero = Const(value=first_of(leaf.op, F32), dtype=F32, span=leaf.span)
            bind = Bind(id=id, buffer=view.buffer, subscripts=view.subscripts, value=zero, span=leaf.span)
            starts.append(Generic(id=id, leaf=bind, origin=Origin.INIT))
        fresh = tuple(Fresh(buffer=name) for name in self.registers.values())
        return (*fresh, self._each(block, half, tuple(starts)))

    def _each(self, block: str, half: str, body: tuple[Node, ...]) -> Loop:
        span = self.over[0].span
        inner = Loop(index=half, extent=const(HALVES), body=body, unroll=True, span=span)
        if self.choice.blocks == 1:
            return inner
        return Loop(index=block, extent=const(self.choice.blocks), body=(inner,), unroll=True, span=span)

    def met(
        self,
        block: IndexExpr,
        lane: str,
        column: IndexExpr,
        row: Callable[[IndexExpr], tuple[Node, ...]],
        some: list[Condition],
    ) -> tuple[Node, ...]:
        """The lanes of a row put their parts together at the end of a tile that begins at a `column`, and the first of
        them leaves it in memory. `row` defines the indices of a row by its half, of which there are those where `some`
        conditions hold."""
        if not self.over:
            return ()
        half, body = self.draft.names.fresh("half"), list[Node]()
        first = Compare(op=CompareOp.EQ, left=combine(IndexOp.MOD, _var(lane), const(ROW_LANES)), right=ZERO)
        tile = combine(IndexOp.DIV, column, const(self.choice.tile[self.choice.along]))
        puts = list[Node]()
        for leaf in self.over:
            view, space = self.places(block, _var(half))[leaf.id], self.spaces[leaf.id]
            value = Read(buffer=view.buffer, subscripts=view.subscripts, dtype=F32, span=leaf.span)
            met, put = (self.draft.names.fresh(f"{leaf.id}_{word}") for word in ("met", "put"))
            body.append(
                Reduce(
                    id=met,
                    monoid=OF_UPDATE[leaf.op],
                    values=(value,),
                    targets=(view,),
                    lanes=ROW_LANES,
                    unused=Unused.REPLICATED,
                    span=leaf.span,
                )
            )
            there: tuple[Subscript, ...] = (tile, *leaf.subscripts)
            bind = Bind(id=put, buffer=space, subscripts=there, value=value, span=leaf.span)
            puts.append(Generic(id=put, leaf=bind, origin=Origin.COMBINE))
        body += row(_var(half))
        body.append(
            Guard(condition=conjunction([first, *some]), body=tuple(puts), padding=True, span=self.over[0].span)
        )
        return (Loop(index=half, extent=const(HALVES), body=tuple(body), unroll=True, span=self.over[0].span),)

    def behind(self, name: str) -> tuple[Launch, ...]:
        """The launches that add the parts of all tiles, one for each accumulation."""
        return tuple(self._added(leaf, self.draft.names.fresh(f"{name}_rows")) for leaf in self.over)

    def _added(self, leaf: Accumulate, name: str) -> Launch:
        fresh, warp_size, span = self.draft.names.fresh, self.draft.target.warp_size, leaf.span
        pars = [par for par in self.product.one.nest.pars if par.index != self.product.columns.index]
        count = reduce(multiply, (par.extent for par in pars))
        at = {par.index: fresh(par.index) for par in pars}
        (row, *others) = at.values()
        thread, tile = fresh("element") if others else row, fresh(f"{self.product.columns.index}_tile")
        counted = (
            (Place.GRID_X, ceildiv(count, THREADS), THREADS),
            (Place.WARP, const(THREADS // warp_size), warp_size),
            (Place.LANE, const(warp_size), 1),
        )

        def digit(place: Place, radix: IndexExpr, weight: int) -> Digit:
            own = fresh(f"{thread}_{place.value[:4]}")
            return Digit(name=own, index=thread, weight=weight, radix=radix, stride=const(1), place=place)

        digits = tuple(digit(*one) for one in counted)
        some = Compare(op=CompareOp.LT, left=_var(thread), right=count)
        body = (*self._places(thread, at, pars), *self._total(leaf, at, tile))
        return Launch(
            name=name,
            grid=(ceildiv(count, THREADS), const(1), const(1)),
            threads=THREADS,
            digits=digits,
            body=(
                Define(index=thread, digits=digits),
                Guard(condition=some, body=body, padding=True, span=span),
            ),
            span=span,
        )

    def _places(self, thread: str, at: Mapping[str, str], pars: Sequence[Par]) -> Iterator[Node]:
        """The indices of a thread's element, by its number, the last one fastest."""
        left: IndexExpr = _var(thread)
        for par in reversed(pars[1:]):
            yield Define(index=at[par.index], digits=(), offset=combine(IndexOp.MOD, left, par.extent))
            left = combine(IndexOp.DIV, left, par.extent)
        if len(pars) > 1:
            yield Define(index=at[pars[0].index], digits=(), offset=left)

    def _total(self, leaf: Accumulate, at: Mapping[str, str], tile: str) -> tuple[Node, ...]:
        """The parts of all tiles added to the element."""
        span, target = leaf.span, self.draft.kernel.buffer(leaf.buffer)
        total = self._local(leaf, "total", Memory.REG, (), "the parts of all tiles", F64)
        places = {index: _var(own) for index, own in at.items()}
        there = tuple(in_terms(subscript, places) for subscript in leaf.subscripts)
        of_tile = Read(buffer=self.spaces[leaf.id], subscripts=(_var(tile), *there), dtype=F32, span=span)
        none, each, end = (self.draft.names.fresh(f"{leaf.id}_{word}") for word in ("total", "tile", "end"))
        zero = Const(value=first_of(leaf.op, F64), dtype=F64, span=span)
        begin = Bind(id=none, buffer=total, subscripts=(), value=zero, span=span)
        added = Accumulate(id=each, buffer=total, subscripts=(), op=leaf.op, value=as_type(of_tile, F64), span=span)
        value = as_type(Read(buffer=total, subscripts=(), dtype=F64, span=span), target.dtype)
        last = Accumulate(id=end, buffer=leaf.buffer, subscripts=there, op=leaf.op, value=value, span=span)
        every = (Generic(id=each, leaf=added, origin=Origin.COMBINE),)
        return (
            Fresh(buffer=total),
            Generic(id=none, leaf=begin, origin=Origin.INIT),
            Loop(index=tile, extent=self.across, body=every, span=span),
            Generic(id=end, leaf=last, origin=Origin.COMBINE),
        )


def _var(name: str) -> IndexVar:
    return IndexVar(name=name)
