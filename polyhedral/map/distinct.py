"""Elements of an array that no two iterations share, so that each of them may be moved with its neighbours.

    Y[i, j], Y[i + 1, j]     along j      their rows lie a known number apart
    Y[i, j], Y[k, j]                      one place of their rows, which may be the same: where each is bound once

Neighbours of an element are stored together behind the iterations, those of an element that is bound later, later.
"""

from texpr.grammar.ast import Gather, Subscript
from texpr.grammar.index.expr import names
from texpr.grammar.index.linear import difference
from texpr.polyhedral.walk import subscript_names

Subscripts = tuple[Subscript, ...]


def are_distinct(one: Subscripts, other: Subscripts, index: str, *, bound: bool) -> bool:
    """Whether two elements of an array are never the same in two iterations, and in one of them only where it binds
    each element of the array once (`bound`), so that the last one's value is left: their rows lie a known number apart,
    or they are at one place of their rows."""
    own, others = (
        tuple((n, s) for n, s in enumerate(subscripts) if index in subscript_names((s,))) for subscripts in (one, other)
    )
    if own == others and bound:
        return True
    rows = zip(one, other, strict=True)
    return any(
        difference(a, b) not in (None, 0)
        for a, b in rows
        if not isinstance(a, Gather) and not isinstance(b, Gather) and index not in names(a) | names(b)
    )
