"""Products on a CPU: of two of their loops a few iterations are taken together, inside the innermost one.

    par M i, N j { C[i, j] = 0 ; seq K k { C[i, j] += A[i, k] * B[k, j] } }        i: 4, k: 4

    core i:  for j (vector): C[4*i + 0 .. 3, j] = 0
             for k < K / 4: for j (vector): C[4*i + 0 .. 3, j] += A[4*i + 0 .. 3, 4*k + 0 .. 3] * B[4*k + 0 .. 3, j]
             for k in the rest: for j (vector): …

An element of B is loaded for four rows, one of C for four products. Each element is summed in the order of the program.
What the fours leave of the rows runs as it would without them. Where C is of a narrower type than the sums, tiles of
its four rows are carried on the core's stack (`rows.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Gather,
    IndexExpr,
    IndexOp,
    IndexVar,
    Par,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ZERO, add, at_least_zero, combine, const, constant_value, multiply, names, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.rows import TILE, Piece, carried_rows, over_piece, summed_rows, tiles
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Digit
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.walk import subscript_names, value_reads

TOGETHER = 4  # of each loop: 16 products for 4 loads and a load and a store of 4 sums, in half of 32 registers


def jams_of(problem: Problem, nest: Nest, cores: Sequence[str], vector: str) -> Iterator[dict[str, int]]:
    """How many iterations of which loops may be taken together: of a core index that something is read without, the
    last one first, and of each loop directly around a sum. None where extents depend on indices, where the band has
    other than loops around plain statements, or where not every sum gains."""
    if vector in cores or any(not isinstance(s, Bind | Accumulate | Seq) for s in statements(nest.body)):
        return
    loops = [s for s in statements(nest.body) if isinstance(s, Seq)]
    sums = [seq for seq in loops if _is_sum(problem, seq, vector)]
    moving = {*nest.indices, *(seq.index for seq in loops)}
    extents = {par.index: par.extent for par in nest.pars}
    if not sums or any(names(extent) & moving for extent in (*extents.values(), *(seq.extent for seq in loops))):
        return
    for index in reversed(cores):
        if _together(extents[index]) == TOGETHER and all(_shares(seq, index) for seq in sums):
            yield {index: TOGETHER, **{seq.index: _together(seq.extent) for seq in sums}}


def _is_sum(problem: Problem, seq: Seq, vector: str) -> bool:
    """Whether the loop is one of a single short sum along `vector`, whose element it does not choose."""
    match seq.body:
        case (Accumulate(subscripts=subscripts) as update,) if update.id not in problem.long:
            used = set() if any(isinstance(s, Gather) for s in subscripts) else subscript_names(subscripts)
            return seq.index not in used and vector in used
        case _:
            return False


def _shares(seq: Seq, index: str) -> bool:
    """Whether iterations of `index` add to elements of their own and have a read in common."""
    (update,) = seq.body
    assert isinstance(update, Accumulate)
    own = index in subscript_names(update.subscripts)
    return own and any(index not in subscript_names(read.subscripts) for read in value_reads(update.value))


def _together(extent: IndexExpr) -> int:
    known = constant_value(extent)
    return TOGETHER if known is None else max(1, min(TOGETHER, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Jam:
    """A core's group of iterations of the index of `par`, of which the digit `own` counts the groups (none: there is
    one), and the loops in `count` of which it takes several together."""

    draft: Draft
    worker: Body
    par: Par
    own: tuple[Digit, ...]
    count: Mapping[str, int]

    def body(self, stmts: tuple[Stmt, ...], vector: Par, one: Callable[[], tuple[Node, ...]]) -> tuple[Node, ...]:
        """The statements for a group; `one` gives what a single iteration does."""
        count, known = self.count[self.par.index], constant_value(self.par.extent)
        whole = self.nodes(stmts, vector)
        if known is not None and known % count == 0:
            return whole
        first = Define(index=self.par.index, digits=self.own).value
        fits = Compare(op=CompareOp.LE, left=add(first, const(count)), right=self.par.extent)
        rest = self._one_after_the_other("rest", subtract(self.par.extent, first), one(), unroll=False)
        return (Guard(condition=fits, body=whole, orelse=(rest,), span=self.par.span),)

    def nodes(self, stmts: tuple[Stmt, ...], vector: Par, piece: Piece | None = None) -> tuple[Node, ...]:
        """The statements for whole groups, with the loop over `vector`, or over a piece of it, innermost but for what
        is taken together."""
        found: list[Node] = []
        for stmt in stmts:
            if not isinstance(stmt, Seq):
                found.append(self._over(vector, piece, self._rows(self.worker.nodes((stmt,)))))
            elif piece is None and (updates := summed_rows(self.draft, vector, stmt)):
                found.append(self._carried(stmt, vector, updates))
            elif stmt.index not in self.count:
                found.append(self.worker.loop(stmt, self.nodes(stmt.body, vector, piece)))
            else:
                found += self._sums(stmt, vector, piece)
        return tuple(found)

    def _carried(self, seq: Seq, vector: Par, updates: tuple[Accumulate, ...]) -> Loop:
        """A loop over tiles of rows that are carried through `seq`."""
        count = self.count[self.par.index]
        tile, piece = tiles(self.draft, vector, TILE // count)
        place = subtract(IndexVar(name=self.par.index), Define(index=self.par.index, digits=self.own).value)

        def over(statement: Generic) -> Node:
            return self._over(vector, piece, self._rows((statement,)))

        inside = self.nodes((seq,), vector, piece)
        body = carried_rows(self.draft, seq, updates, inside, piece, over, ((place, const(count)),))
        return Loop(index=tile.name, extent=tile.radix, body=(piece.start, *body), digit=tile, span=vector.span)

    def _sums(self, seq: Seq, vector: Par, piece: Piece | None) -> Iterator[Loop]:
        """Groups of a loop's iterations, and a loop over those that are left over."""
        count, fresh = self.count[seq.index], self.draft.names.fresh
        body = self.worker.nodes(seq.body)
        extent = at_least_zero(seq.extent)  # a remainder of less is none
        groups, left = combine(IndexOp.DIV, extent, const(count)), combine(IndexOp.MOD, extent, const(count))
        group, one = fresh(f"{seq.index}_group"), fresh(f"{seq.index}_one")
        first = multiply(const(count), IndexVar(name=group))
        define = Define(index=seq.index, digits=(), offset=add(first, IndexVar(name=one)))
        some = Loop(index=one, extent=const(count), body=(define, *body), unroll=True, span=seq.span)
        yield Loop(index=group, extent=groups, body=(self._over(vector, piece, self._rows((some,))),), span=seq.span)
        if left != ZERO:
            each = fresh(f"{seq.index}_rest")
            behind = add(multiply(const(count), groups), IndexVar(name=each))
            define = Define(index=seq.index, digits=(), offset=behind)
            inside = self._over(vector, piece, self._rows((define, *body)))
            yield Loop(index=each, extent=left, body=(inside,), span=seq.span)

    def _rows(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """What all iterations of a group do."""
        return (self._one_after_the_other("one", const(self.count[self.par.index]), body, unroll=True),)

    def _one_after_the_other(self, word: str, extent: IndexExpr, body: tuple[Node, ...], *, unroll: bool) -> Loop:
        name = self.draft.names.fresh(f"{self.par.index}_{word}")
        define = Define(index=self.par.index, digits=self.own, offset=IndexVar(name=name))
        return Loop(index=name, extent=extent, body=(define, *body), unroll=unroll, span=self.par.span)

    def _over(self, vector: Par, piece: Piece | None, body: tuple[Node, ...]) -> Loop:
        loop = replace(self.worker.loop(vector, body), vector=True)
        return loop if piece is None else over_piece(loop, piece)
