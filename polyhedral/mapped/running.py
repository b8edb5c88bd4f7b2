"""Running folds: loops that fold rows in place, and do nothing else.

    for j_step < 128: total += row[j_step] ; row[j_step] = total

On a CPU they are functions that fold vectors of the row (`codegen/cpu/running.py`), so what is added to a total in f64
are sums of as many f32 as a vector has lanes, made in a tree.
"""

from collections.abc import Sequence

from texpr.grammar.ast import Accumulate, Bind, Cast, Expr, Gather, IndexExpr, Read
from texpr.grammar.index.linear import linear
from texpr.grammar.permissions import keeps_order
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.tree import Define


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFold:
    """`update` adds the element of a row at `place` to a total, and the element becomes what the total is then."""

    update: Accumulate
    row: str
    place: IndexExpr


def running_folds(index: str, body: Sequence[object]) -> tuple[RunningFold, ...]:
    """The folds that a loop over `index` makes, one for each of its pairs of statements; none where it does anything
    else."""
    nodes = [node for node in body if not isinstance(node, Define)]
    pairs = zip(nodes[::2], nodes[1::2], strict=False)
    found = [fold for update, kept in pairs if (fold := _fold(index, update, kept)) is not None]
    return tuple(found) if 2 * len(found) == len(nodes) else ()


def _fold(index: str, update: object, kept: object) -> RunningFold | None:
    if not isinstance(update, Generic) or not isinstance(kept, Generic):
        return None
    added, bound = update.leaf, kept.leaf
    if not isinstance(added, Accumulate) or not isinstance(bound, Bind) or keeps_order(added) or added.subscripts:
        return None
    element, total = _uncast(added.value), _uncast(bound.value)
    if not isinstance(element, Read) or not isinstance(total, Read) or len(bound.subscripts) != 1:
        return None
    same = (element.buffer, element.subscripts, total.buffer) == (bound.buffer, bound.subscripts, added.buffer)
    (place,) = bound.subscripts
    if not same or isinstance(place, Gather) or linear(place).coefficient(index) != 1:
        return None
    return RunningFold(update=added, row=bound.buffer, place=place)


def _uncast(value: Expr) -> Expr:
    return value.operand if isinstance(value, Cast) else value
