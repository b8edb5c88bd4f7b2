"""Lines of scans: rows that begin anywhere are taken in runs from where a line of memory begins (`lines.py`).

    par M i { s = 0; seq 4093 j { s += X[i, j]; Y[i, j] = s } }     runs of j from where a line begins before Y[i, 0]

What is before the first iteration, or behind the last one, adds nothing: 0 stands for what it would have read, and
where that does not say so by itself each iteration is asked whether there is it.
"""

from collections.abc import Collection

from texpr.grammar.ast import AccOp, IndexExpr
from texpr.grammar.index.expr import add, const
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.lines import LINE_BYTES, ahead, countable
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.scan import Carrier, Scan
from texpr.polyhedral.map.updates import is_zero
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.mapped.candidate import Scanned


def scan_lines(problem: Problem, nest: Nest, one: Scan) -> dict[str, Element]:
    """The elements from whose lines the runs of a scan may be counted, by how the mapping prints them."""
    return countable(problem, Nest(pars=nest.pars, body=one.body), one.index)


def scan_origins(problem: Problem, nest: Nest, choice: Scanned, one: Scan) -> dict[str, Element]:
    """The element from whose lines the runs of a scan's index are counted, if from any. KeyError for what is none."""
    return {i: scan_lines(problem, nest, one)[name] for i, name in choice.lines.items() if i == one.index}


def reach(problem: Problem, one: Scan, origin: Element | None) -> IndexExpr:
    """The iterations of a scan, and as many as may lie before the first one where runs are counted from a line."""
    return one.loop.extent if origin is None else add(one.loop.extent, const(ahead(problem, origin, LINE_BYTES)))


def adds_nothing(carrier: Carrier, zeros: Collection[Element]) -> bool:
    """Whether the term of an iteration for which these elements are 0 leaves a fold as it is."""
    return carrier.update.op is AccOp.ADD and is_zero(carrier.term, zeros)
