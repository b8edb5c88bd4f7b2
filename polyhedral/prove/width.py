"""Index expressions stay within 64 bits (E0307): the proofs count without limit, and machines do not.

Where numbers are large, the least and greatest value of an expression over its loops is found by interval arithmetic; a
loop over free sizes is taken to have 2^31 iterations, and what else holds a free size is not judged.

    par 4 i { A[i] = i * 4611686018427387904 }      i = 2 gives 2^63: refused
"""

from collections.abc import Iterable, Iterator

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, Par, Seq
from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.index.expr import I64_MAX, I64_MIN
from texpr.grammar.index.interval import bounds, index_range
from texpr.grammar.index.text import in_words
from texpr.grammar.walk import walk
from texpr.polyhedral.program import Program

LARGE_BITS = 31  # loops and numbers with fewer, those of one expression together, stay within 64 bits


def check_width(program: Program) -> Iterator[Diagnostic]:
    """A diagnostic for each outermost index expression with a part that may leave 64 bits."""
    nodes = list(walk(program.kernel))
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    for node in nodes:
        if isinstance(node, Par | Seq):
            found = index_range(node.extent, ranges)
            if found is not None:
                low, high = found
                ranges[node.index] = (
                    low,
                    high if isinstance(high, IndexConst) else IndexConst(value=(1 << LARGE_BITS) - 1),
                )
    long_loops = any(_bits(ends) > LARGE_BITS for ends in ranges.values())
    inside: set[int] = set()
    for node in nodes:
        if not isinstance(node, IndexBinary) or id(node) in inside:
            continue
        below = list(walk(node))
        parts = [part for part in below if isinstance(part, IndexBinary)]
        inside.update(id(part) for part in parts)
        if (long_loops or _bits(below) > LARGE_BITS) and any(_leaves(part, ranges) for part in parts):
            yield error(
                "E0307",
                f"`{in_words(node)}` may leave 64 bits in these loops",
                node.span,
                help="use smaller numbers, or copy an index to a `new` of i64 first, whose arithmetic wraps",
            )


def _bits(nodes: Iterable[object]) -> int:
    """Of all numbers together: factors add theirs to those of a product, and what is added has them in a sum."""
    return sum(abs(node.value).bit_length() for node in nodes if isinstance(node, IndexConst))


def _leaves(expr: IndexExpr, ranges: dict[str, tuple[IndexExpr, IndexExpr]]) -> bool:
    ends = bounds(expr, ranges) or ()
    return any(isinstance(end, IndexConst) and not I64_MIN <= end.value <= I64_MAX for end in ends)
