"""Sums that their row's greatest value scales, made about what each thread has of it: all threads meet once.

    top = maximum N k { X[i, k] }                          top_part = max of the thread's elements
    total = sum N k { exp(X[i, k] - top) }                 base = top_part, or 0 where that is -inf
                                                           total_part = sum of exp(X[i, k] - base), of the same ones
                                                           top_part, total_part = ScaledSum over all threads
                                                           top = max(top, top_part)
                                                           total += total_part * exp(top_part - top)

The two statements leave the same in exact arithmetic, whatever `top` was before, and the same NaN: a thread without a
number above -inf has a sum of 0, and where no thread has one the last factor is that of -inf and -inf, as the author's
is. Each element's exponential is at most 1, and that of a thread's greatest one is 1, so nothing is lost that the
author's sum keeps, but for what the two rescalings round (`monoids.py` bounds it).

The exponential of what is 0 at most is `exp_below` (`math.cuh`), six instructions, where the sum is not rounded to 16
bits in the end: cross entropy of 257 x 100003 in f32 runs at .927 of a read on an H200 so, at .919 with the usual one,
and 1024 x 100000 at .958 and .929. Instructions bound it: with an exponential of two of them f32 has .957. By hand a
block for each row, which streams it through its threads and scales what these have as it goes, has .931; rows in slots
of shared memory have .865 at most. In bf16 an exponent that is a line through the element, by 16 bits of log2(e), one
instruction in place of three, had .877 by hand in place of .855.

So the blocks of a cluster wait for one another once: on an H200 cross entropy of 257 x 100003 runs at .82 of a read in
bf16, at .77 with a meeting for the maximum alone, in f32 at .92 and .87, softmax in bf16 at .91 of a copy, and .89.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Const,
    Expr,
    Fn,
    IndexVar,
    Kernel,
    New,
    Op,
    Read,
    Select,
    Seq,
    Stmt,
)
from texpr.grammar.ast import Node as Tree
from texpr.grammar.permissions import may_contract
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, BOOL, F16, F32
from texpr.grammar.walk import rewrite
from texpr.polyhedral.map.long_sums import narrow
from texpr.polyhedral.map.reducible import reduction
from texpr.polyhedral.map.updates import Scaled
from texpr.polyhedral.walk import read_accesses


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPair:
    """The loop of a greatest value, that of the sum which it scales, and both updates as one."""

    first: Seq
    second: Seq
    update: Scaled


def scaled_pairs(kernel: Kernel, stmts: Sequence[Stmt]) -> Mapping[str, ScaledPair]:
    """The pairs among statements that stand beside one another, by the indices of both loops of each."""
    found: dict[str, ScaledPair] = {}
    for at, first in enumerate(stmts):
        greatest = _update(kernel, first, AccOp.MAX)
        if not isinstance(first, Seq) or greatest is None or first.index in found:
            continue
        for second in stmts[at + 1 :]:
            total = _update(kernel, second, AccOp.ADD)
            if isinstance(second, Seq) and total is not None and second.extent == first.extent:
                if _scales(greatest, first.index, total, second.index):
                    pair = ScaledPair(first=first, second=second, update=Scaled(greatest=greatest, total=total))
                    found |= {first.index: pair, second.index: pair}
                break
            if not isinstance(second, New | Bind) or greatest.buffer in _touched(second):
                break
    return found


def _update(kernel: Kernel, stmt: Stmt, op: AccOp) -> Accumulate | None:
    """The only statement of a loop, where that is such an update of a scalar in f32, or wider, of which the author says
    nothing."""
    if not isinstance(stmt, Seq) or len(stmt.body) != 1 or reduction(kernel, stmt, stmt.index) is None:
        return None
    leaf = stmt.body[0]
    if not isinstance(leaf, Accumulate) or leaf.op is not op or leaf.subscripts or narrow(leaf.value).dtype != F32:
        return None
    return leaf if may_contract(kernel) and may_contract(stmt) and may_contract(leaf) else None


def _scales(greatest: Accumulate, one: str, total: Accumulate, other: str) -> bool:
    """Whether the second adds exp(e - top) for each element e of which the first has the greatest, `top`."""
    match narrow(total.value):
        case Op(fn=Fn.EXP, args=(Op(fn=Fn.SUB, args=(element, about)),)):
            top = narrow(about)
            same = rewrite(element, lambda node: IndexVar(name=one) if node == IndexVar(name=other) else node)
            is_top = isinstance(top, Read) and top.buffer == greatest.buffer and top.dtype == F32
            return is_top and same == greatest.value and _is_element(element) and total.buffer != greatest.buffer
    return False


def _is_element(value: Expr) -> bool:
    read = value.operand if isinstance(value, Cast) and value.dtype == F32 else value
    return isinstance(read, Read) and read.dtype in (F32, F16, BF16)


def _touched(stmt: New | Bind) -> set[str]:
    own = {stmt.buffer}
    return own if isinstance(stmt, New) else own | {read.buffer for read in read_accesses(stmt)}


def based(total: Accumulate, top: str, base: Read) -> Accumulate:
    """What a thread adds, about a base of its own."""

    def change(node: Tree) -> Tree:
        return base if isinstance(node, Read) and node.buffer == top else node

    return replace(total, value=rewrite(total.value, change))


def base_of(top: Read, lowest: Const) -> Expr:
    """The base of a thread that has this greatest value: -inf minus itself would be no number."""
    none = Op(fn=Fn.EQ, args=(top, lowest), dtype=BOOL, span=top.span)
    return Select(condition=none, then=Const(value=0.0, dtype=F32, span=top.span), other=top, dtype=F32, span=top.span)


def at_end(update: Scaled, registers: Sequence[Read]) -> tuple[Accumulate, Expr]:
    """The program's own updates by what all threads have: that of the greatest value, and what is added to the sum."""
    top, total = registers
    own = Read(buffer=update.greatest.buffer, subscripts=(), dtype=F32, span=update.span)
    below = Op(fn=Fn.SUB, args=(top, own), dtype=F32, span=update.span)
    scale = Op(fn=Fn.EXP, args=(below,), dtype=F32, span=update.span)
    added = Op(fn=Fn.MUL, args=(total, scale), dtype=F32, span=update.span)
    return replace(update.greatest, value=top), added
