"""Loops that fold rows of a core's own in place, written as functions that fold vectors of them.

for j_step < 128: total += row[j_step] ; row[j_step] = total    ->    total = running_add(row, 0, 128, total)
"""

from texpr.codegen.cpu.context import Context
from texpr.codegen.cpu.ranges import Range
from texpr.grammar.ast import AccOp
from texpr.grammar.index.expr import ONE, ZERO, substitute
from texpr.grammar.types import F32, F64, I32, I64, U32
from texpr.polyhedral.mapped.running import RunningFold, running_folds

FOLDED = (F32, F64, I32, I64, U32)  # types of the rows that `running.py` folds


def fold_lines(loop: Range, context: Context) -> tuple[str, ...]:
    """The lines in place of a loop that folds rows; none where it does anything else."""
    folds = running_folds(loop.index, loop.body) if not loop.cores and loop.low == ZERO else ()
    return tuple(_line(loop, fold, context) for fold in folds) if all(_fits(f, context) for f in folds) else ()


def _fits(fold: RunningFold, context: Context) -> bool:
    row, total = context.tensors[fold.row], context.tensors[fold.update.buffer]
    widened = fold.update.op is AccOp.ADD and (row.dtype, total.dtype) == (F32, F64)
    local = not row.device and row.strides == (ONE,) and total.scalar
    return local and row.dtype in FOLDED and (widened or total.dtype == row.dtype)


def _line(loop: Range, fold: RunningFold, context: Context) -> str:
    first = substitute(fold.place, lambda leaf: ZERO if leaf.name == loop.index else None)
    row, total = (context.tensors[name].identifier for name in (fold.row, fold.update.buffer))
    begin, count = context.names.text(first), context.names.text(loop.high)
    return f"{total} = running_{fold.update.op.value}({row}, {begin}, {count}, {total})"
