"""What stands for what is no element of a row: a value that leaves what all loops over the row make of it as it is.

    top = maximum N k { X[i, k] } ; total = sum N k { exp(X[i, k] - top) }     -inf
    seq N k { if X[i, k] < least { least = X[i, k] ; at = k } }                inf

Where runs are counted from a line of memory, the first and the last one of a row have such elements, and nothing is
asked of each then.
"""

from collections.abc import Collection, Sequence

from texpr.grammar.ast import AccOp, Accumulate, Cast, Const, Expr, Kernel, Par, Read, Seq
from texpr.grammar.identities import first_of
from texpr.grammar.types import BF16, F16, F32
from texpr.polyhedral.map.picks import Order
from texpr.polyhedral.map.reducible import reduction
from texpr.polyhedral.map.updates import Update

CHOOSES = {Order.FIRST_GREATEST: AccOp.MAX, Order.FIRST_LEAST: AccOp.MIN}


def outside(kernel: Kernel, loops: Sequence[Seq | Par], scaled: Collection[str]) -> Const | None:
    """The value, where all sequential loops over the row choose one of its elements, or are sums that the greatest has
    `scaled`, by their indices; None where that is not so."""
    found = set[tuple[AccOp, Const]]()
    for loop in loops:
        if isinstance(loop, Seq) and loop.index not in scaled:
            own = reduction(kernel, loop, loop.index)
            if own is None or len(own.updates) != 1 or (chosen := _nothing(own.updates[0])) is None:
                return None
            found.add(chosen)
    if len(found) != 1:
        return None
    ((op, value),) = found
    return value if op is AccOp.MAX or not scaled else None


def _nothing(update: Update) -> tuple[AccOp, Const] | None:
    """What an element that is chosen as it is starts from, and how it is chosen."""
    op: AccOp | None
    value: Expr | None
    if isinstance(update, Accumulate):
        op, value = update.op if update.op in CHOOSES.values() else None, update.value
    else:
        op, value = CHOOSES.get(update.order), update.compared.value if update.compared is not None else None
    read = value.operand if isinstance(value, Cast) and value.dtype == F32 else value
    if op is None or not isinstance(read, Read) or read.dtype not in (F32, F16, BF16):
        return None
    return op, Const(value=first_of(op, read.dtype), dtype=read.dtype)
