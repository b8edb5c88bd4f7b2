"""Index expressions stay within 64 bits (E0307): the proofs count without limit, and machines do not.

Where a coefficient is large, the least and greatest value of every expression over its loops is found by interval
arithmetic; expressions of free sizes, which have no greatest value, are left to the launch.

    par 4 i { A[i] = i * 4611686018427387904 }      i = 2 gives 2^63: refused
"""

from collections.abc import Iterator

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, Par, Seq
from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.indexing import I64_MAX, I64_MIN, write_index
from texpr.grammar.walk import walk
from texpr.polyhedral.indices import bounds, index_range
from texpr.polyhedral.program import Program

LARGE = 1 << 31  # without a coefficient of this magnitude, indices of any memory stay within 64 bits


def check_width(program: Program) -> Iterator[Diagnostic]:
    """A diagnostic for each outermost index expression with a part that may leave 64 bits."""
    nodes = list(walk(program.kernel))
    if not any(isinstance(node, IndexConst) and abs(node.value) >= LARGE for node in nodes):
        return
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    for node in nodes:
        if isinstance(node, Par | Seq):
            found = index_range(node.extent, ranges)
            if found is not None:
                ranges[node.index] = found
    inside: set[int] = set()
    for node in nodes:
        if not isinstance(node, IndexBinary) or id(node) in inside:
            continue
        parts = [part for part in walk(node) if isinstance(part, IndexBinary)]
        inside.update(id(part) for part in parts)
        if any(_leaves(part, ranges) for part in parts):
            yield error(
                "E0307",
                f"`{write_index(node)}` may leave 64 bits in these loops",
                node.span,
                help="use smaller numbers, or copy an index to a `new` of i64 first, whose arithmetic wraps",
            )


def _leaves(expr: IndexExpr, ranges: dict[str, tuple[IndexExpr, IndexExpr]]) -> bool:
    ends = bounds(expr, ranges) or ()
    return any(isinstance(end, IndexConst) and not I64_MIN <= end.value <= I64_MAX for end in ends)
