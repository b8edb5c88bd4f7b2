"""Loops over pieces of an index: whole pieces apart from the last one, which may be shorter.

    for j in range(4096*c, min(4096*c + 4096, N)): S(j)

    if 4096*c + 4096 <= N:
        for j in range(4096*c, 4096*c + 4096): S(j)
    else:
        for j in range(4096*c, N): S(j)

Of a whole piece LLVM knows the trip count, and makes vectors alone. What it puts around those of a trip count that it
does not know takes as long as a hundred elements.
"""

from dataclasses import replace

from texpr.codegen.cpu.ranges import Branch, CpuNode, Range
from texpr.codegen.cpu.windows import SHORT, VECTOR
from texpr.grammar.ast import Compare, CompareOp, IndexBinary, IndexExpr, IndexOp
from texpr.grammar.index.linear import linear
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.tree import Define, Fresh


def whole_apart(body: tuple[CpuNode, ...]) -> tuple[CpuNode, ...]:
    """The body with a branch for each innermost loop over pieces, or for several that stand side by side."""
    found: list[CpuNode] = []
    for node in body:
        match node:
            case Range() if (ends := _ends(node)) is not None:
                end, last = ends
                fits = Compare(op=CompareOp.LE, left=end, right=last)
                whole, rest = replace(node, high=end, unroll=True), replace(node, high=last)
                before = found[-1] if found else None
                if isinstance(before, Branch) and before.condition == fits and isinstance(before.body[0], Range):
                    found[-1] = replace(before, body=(*before.body, whole), orelse=(*before.orelse, rest))
                else:
                    found.append(Branch(condition=fits, body=(whole,), orelse=(rest,), span=node.span))
            case Range():
                found.append(replace(node, body=whole_apart(node.body)))
            case Branch():
                found.append(replace(node, body=whole_apart(node.body), orelse=whole_apart(node.orelse)))
            case _:
                found.append(node)
    return tuple(found)


def _ends(loop: Range) -> tuple[IndexExpr, IndexExpr] | None:
    """Where a whole piece ends and where the last one does, of an innermost loop over whole vectors; None for any other
    loop, and where no piece is whole."""
    high = loop.high
    if loop.cores or loop.unroll or any(not isinstance(node, Define | Generic | Fresh) for node in loop.body):
        return None
    if not isinstance(high, IndexBinary) or high.op is not IndexOp.MIN:
        return None
    low = linear(loop.low)
    for end, last in ((high.left, high.right), (high.right, high.left)):
        length = (linear(end) - low).value
        if length is not None and length >= SHORT and length % VECTOR == 0:
            is_never_whole = (low + (length - 1) - linear(last)).is_nonnegative()
            return None if is_never_whole else (end, last)
    return None
