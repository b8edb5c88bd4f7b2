"""What the accesses of a launch reach, as isl relations, and where different threads meet at one element.

The domain of a reach has the loops around the access, outermost first, then lane and warp. Sizes, host indices and the
block's digits are parameters; the digits that a thread's number determines are gone.

    par 64 b { … t[63 - b] … } in seq K k      { [k, lane, warp] -> [63 - 32*warp - lane] : 0 <= k < K, … }
"""

from collections.abc import Iterable, Iterator, Sequence

from texpr.grammar.ast import Condition, Gather
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope, relation
from texpr.polyhedral.orders.actors import LANE, WARP, Actor, Touch

IN, OUT = isl.dim_type.in_, isl.dim_type.out
Instances = tuple[Scope, isl.Set]
"""Those of an actor, all threads together, as points of its scope."""


def instances(actor: Actor, fixed: tuple[str, ...], limits: Sequence[Condition], work: isl.Work) -> Instances:
    """The instances of an actor; a condition that is not affine leaves more of them."""
    scope = Scope(fixed, (*actor.dims, LANE.name, WARP.name), work)
    domain = scope.universe()
    for condition in (*limits, *actor.constraints):
        try:
            domain = domain.intersect(scope.holds(condition))
        except NotAffineError:
            continue
    return scope, domain


def reach(touch: Touch, within: Instances) -> isl.Map:
    """The elements of an access; what is not affine, or read from data, may be anything."""
    actor, (scope, domain) = touch.actor, within
    values: list[isl.PwAff | None] = []
    for subscript in touch.subscripts:
        try:
            values.append(None if isinstance(subscript, Gather) else scope.value(subscript))
        except NotAffineError:
            values.append(None)
    loops = len(actor.around.dims)
    return relation(domain, values).project_out(IN, loops, len(actor.dims) - loops)


def meetings(pairs: isl.Map, loops: int, carried: int) -> isl.Map:
    """Of the instances of two accesses at one element those in one iteration of their first `loops` loops, or, where
    `carried` is one of those, in a later iteration of that loop and one of those around it."""
    for number in range(min(carried + 1, loops)):
        pairs = (pairs.order_lt if number == carried else pairs.equate)(IN, number, OUT, number)
    return pairs


def across_warps(pairs: isl.Map) -> Iterator[isl.Map]:
    """Those of different warps, in parts: each takes isl as long as the question whether it is empty."""
    return _apart(pairs, 1)


def across_lanes(pairs: isl.Map) -> Iterator[isl.Map]:
    """Those of different lanes, of whichever warps, likewise."""
    return _apart(pairs, 2)


def _apart(pairs: isl.Map, from_end: int) -> Iterator[isl.Map]:
    """The pairs that differ in a dimension of the thread."""
    place = (IN, pairs.dim(IN) - from_end, OUT, pairs.dim(OUT) - from_end)
    yield pairs.order_lt(*place)
    yield pairs.order_gt(*place)


def least_distance(parts: Iterable[isl.Map], whole: isl.Map, loop: int) -> int:
    """The fewest iterations of a loop that lie between instances of all parts, which have one at least: less than one
    they are never, nor less than between any of the `whole`."""
    least: int | None = None
    bound = 1
    for pairs in parts:
        if pairs.is_empty():
            continue
        own = _distance(pairs, loop)
        if least is None and own > bound:
            bound = _distance(whole, loop)
        if own == bound:
            return own
        least = own if least is None else min(least, own)
    assert least is not None, "some instances meet"
    return least


def _distance(pairs: isl.Map, loop: int) -> int:
    """The fewest iterations of a loop that lie between any of these."""
    for side in (IN, OUT):
        pairs = pairs.project_out(side, loop + 1, pairs.dim(side) - loop - 1).project_out(side, 0, loop)
    (found,) = isl.least_point(pairs.deltas().project_out_all_params())
    return found
