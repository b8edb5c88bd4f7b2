"""The greatest or least of narrow elements that a thread has in registers, two at once: what is chosen is not rounded.

    top = maximum N k { X[i, k] }        X: bf16, top: f32, a run of 8 elements in each of a thread's rounds

    for k_serial < 8  (unrolled)
      if k_serial < 7
        top_run = Greatest of X_row[8*k_serial + e] for e < 8        in bf16
        top_part = max(top_part, top_run)
      else: element by element, where there is such an iteration

On an H200 a conversion and a comparison in f32 of each element took as many instructions as the rest of cross entropy.
"""

from texpr.grammar.ast import AccOp, Accumulate, Cast, Compare, CompareOp, Condition, IndexExpr, IndexVar, Read, Stmt
from texpr.grammar.index.expr import ZERO, conjunction, const, constant_value
from texpr.grammar.index.linear import linear
from texpr.grammar.source import Span
from texpr.grammar.types import BF16, F16, F32
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.row_tiles import RowTile
from texpr.polyhedral.map.runs import rounds_inside
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.places import Digit, Memory
from texpr.polyhedral.mapped.tree import Fresh, Guard, Node
from texpr.polyhedral.mapped.views import View

CHOSEN = (AccOp.MAX, AccOp.MIN)


def in_pairs(
    draft: Draft,
    tile: RowTile,
    stmts: tuple[Stmt, ...],
    extent: IndexExpr,
    serial: tuple[Digit, ...],
    digits: tuple[str, ...],
    nodes: tuple[Node, ...],
) -> tuple[Node, ...]:
    """The nodes of a run of the row, in whose place those of a whole run are where `stmts`, on registers, only choose
    the greatest or least of what it has. Runs of a row of whole ones are whole, where there is one."""
    if len(stmts) != 1 or not isinstance(update := stmts[0], Accumulate) or update.op not in CHOSEN:
        return nodes
    value = update.value
    read = value.operand if isinstance(value, Cast) and value.dtype == F32 else value
    if not isinstance(read, Read) or read.dtype not in (F16, BF16) or read.buffer not in tile.registers.values():
        return nodes
    pairs = _pairs(draft, tile, update, read, serial, digits)
    return in_whole_runs(draft, tile, extent, serial, pairs, nodes, update.span)


def in_whole_runs(
    draft: Draft,
    tile: RowTile,
    extent: IndexExpr,
    serial: tuple[Digit, ...],
    whole: tuple[Node, ...],
    nodes: tuple[Node, ...],
    span: Span,
) -> tuple[Node, ...]:
    """What a run of the row does where it is `whole`, and the nodes of any run, where some may be cut."""
    if tile.outside is not None:
        return whole
    if tile.lead is None and linear(extent).is_multiple(tile.width, draft.problem.divisors):
        return whole
    sure = _whole(draft, tile, extent, serial)
    return nodes if sure is None else (Guard(condition=sure, body=whole, orelse=nodes, padding=True, span=span),)


def _whole(draft: Draft, tile: RowTile, extent: IndexExpr, serial: tuple[Digit, ...]) -> Condition | None:
    """Which runs of a thread surely have all their iterations; None where none has."""
    sure = rounds_inside(draft.kernel, extent, tile.covered)
    begun = 0 if tile.lead is None else 1
    if not serial or sure <= begun:
        return None
    part, known = IndexVar(name=serial[0].name), constant_value(extent)
    first = [] if begun == 0 else [Compare(op=CompareOp.LT, left=ZERO, right=part)]
    ends = tile.lead is None and known is not None and known % tile.covered == 0
    last = [Compare(op=CompareOp.LT, left=part, right=const(sure))]
    return conjunction((*first, *(last if not ends or not first else [])))


def _pairs(
    draft: Draft, tile: RowTile, update: Accumulate, read: Read, serial: tuple[Digit, ...], digits: tuple[str, ...]
) -> tuple[Node, ...]:
    fresh = draft.names.fresh
    reason = f"the {'greatest' if update.op is AccOp.MAX else 'least'} of neighbours, chosen in their own type"
    name = draft.local(f"{update.buffer}_run", read.dtype, Memory.REG, row_major(()), reason, span=update.span)
    each = fresh("each")
    place = tile.place(serial, IndexVar(name=each))
    reduce = Reduce(
        id=fresh(f"{update.id}_run"),
        monoid=OF_UPDATE[update.op],
        values=(Read(buffer=read.buffer, subscripts=(place,), dtype=read.dtype, span=read.span),),
        targets=(View(buffer=name, subscripts=(), dtype=read.dtype),),
        over=((each, const(tile.width)),),
        unused=Unused.REPLICATED,
        span=update.span,
    )
    own: Read | Cast = Read(buffer=name, subscripts=(), dtype=read.dtype, span=read.span)
    if isinstance(update.value, Cast):
        own = Cast(operand=own, dtype=F32, span=update.span)
    id = fresh(f"{update.id}_pairs")
    leaf = Accumulate(
        id=id, buffer=update.buffer, subscripts=update.subscripts, op=update.op, value=own, span=update.span
    )
    return (Fresh(buffer=name), reduce, Generic(id=id, leaf=leaf, origin=Origin.COMBINE, digits=digits))
