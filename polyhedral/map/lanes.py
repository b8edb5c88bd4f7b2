"""The choice of lanes: which dimension of a band runs over the lanes of a warp, and how many warps each one gets.

Every dimension is tried on the lanes; the one with the fewest weighted sectors per warp request wins, then the least
distance, then the innermost. A matmul's band (i, j) takes j: A is one element for the whole warp, B and C are
contiguous. A second dimension gets warps where some access does not depend on the first or on it, for then a block
reads that access's elements again from near memory.
"""

from collections.abc import Sequence

from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import share, thread_digits
from texpr.polyhedral.map.distance import Lanes, weighted
from texpr.polyhedral.map.objective import Objective, cost, lane_values
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.names import Names
from texpr.polyhedral.walk import subscript_names


def choose_lanes(
    problem: Problem,
    nest: Nest,
    sizes: Sequence[int],
    threads: int,
    ranges: Ranges,
    *,
    without: frozenset[str] = frozenset(),
    near: frozenset[str] = frozenset(),
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order in which dimensions receive threads, fastest first, and the most threads of each at first; accesses to
    the buffers `without` do not count, and those to the buffers `near` the threads only where all others are alike."""
    if len(sizes) == 1:
        return (0,), (threads,)
    if problem.objective is Objective.MILP:
        from texpr.polyhedral.map.lanes_program import lanes_by_program

        return lanes_by_program(problem, nest, sizes, threads, ranges, without)
    if problem.objective is Objective.DISTANCE:
        return nearest_lanes(problem, nest, sizes, threads, ranges, without=without)
    warp = problem.target.warp_size
    accesses = problem.accesses(nest.body, ranges, without=without)
    far, close = ([a for a in accesses if (a.buffer in near) is own] for own in (False, True))
    fixed = {**dict.fromkeys(ranges, 0), **problem.sizes}
    best: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    for first in reversed(range(len(sizes))):
        order = (first, *(d for d in reversed(range(len(sizes))) if d != first))
        caps = _caps(nest, order, [subscript_names(a.subscripts) for a in accesses], threads, warp)
        pieces = share(sizes, order, caps, threads)
        trial = thread_digits(nest.indices, pieces, Names(()), warp)
        lanes = lane_values(trial, nest.indices, warp)
        found = (*cost(far, lanes, fixed, warp), *cost(close, lanes, fixed, warp))
        if best is None or found < best[0]:
            best = (found, order, caps)
    assert best is not None, "a nest has at least one par"
    return best[1], best[2]


def nearest_lanes(
    problem: Problem,
    nest: Nest,
    sizes: Sequence[int],
    threads: int,
    ranges: Ranges,
    *,
    without: frozenset[str] = frozenset(),
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order and the most threads of each dimension that bring neighbouring lanes nearest to each other: the seed's
    rule, in which every split of a warp over two dimensions is tried. Of several, the one with the fewest sectors."""
    warp = problem.target.warp_size
    accesses = problem.accesses(nest.body, ranges, without=without)
    fixed = {**dict.fromkeys(ranges, 0), **problem.sizes}
    extents = dict(zip(nest.indices, sizes, strict=True))
    best: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    for first in reversed(range(len(sizes))):
        order = (first, *(d for d in reversed(range(len(sizes))) if d != first))
        for lanes in dict.fromkeys((threads, *(warp >> less for less in range(warp.bit_length() - 1)))):
            caps = (min(lanes, threads), *(threads for _ in order[1:]))
            trial = thread_digits(nest.indices, share(sizes, order, caps, threads), Names(()), warp)
            d = weighted(accesses, Lanes.of(trial), problem.sizes, extents, problem.proved.program.work)
            sectors, _ = cost(accesses, lane_values(trial, nest.indices, warp), fixed, warp)
            if best is None or (d, sectors) < best[0]:
                best = ((d, sectors), order, tuple(caps[order.index(dim)] for dim in range(len(sizes))))
    assert best is not None, "a nest has at least one par"
    return best[1], best[2]


def _caps(
    nest: Nest, order: tuple[int, ...], used: Sequence[frozenset[str]], threads: int, warp: int
) -> tuple[int, ...]:
    """One warp for the first dimension where the second one brings reuse, else all threads."""
    caps = [threads] * len(order)
    if len(order) > 1:
        pair = {nest.indices[order[0]], nest.indices[order[1]]}
        if any(not pair <= names for names in used):
            caps[order[0]] = warp
    return tuple(caps)
