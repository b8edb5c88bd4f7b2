"""Reductions of a simulated launch: the values of every thread combined by a monoid, then those of its lanes.

Elements of a thread combine one after the other, and lanes in a tree of neighbours, in their order: as the headers do.
"""

import numpy as np

from texpr.grammar import numerics
from texpr.polyhedral.mapped.monoids import MONOIDS, Monoid, Partial
from texpr.polyhedral.mapped.operators import Reduce
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.failure import failure


def reduce(node: Reduce, lanes: Lanes, evaluator: Evaluator) -> None:
    """The reduction by these threads: their targets are written."""
    monoid = MONOIDS[node.monoid]
    if len(node.targets) != len(monoid.components):
        raise failure(f"{node.id}: {node.monoid} has components {', '.join(monoid.components)}", node.span)
    with np.errstate(all="ignore"):
        partial = _of_threads(node, monoid, lanes, evaluator)
        if node.lanes > 1:
            partial = _over_lanes(node, monoid, partial, lanes.thread)
        if node.last:
            partial = monoid.result(partial)
    for target, component in zip(node.targets, partial, strict=True):
        evaluator.store(target.buffer, target.subscripts, component.astype(numerics.storage(target.dtype)), lanes)


def spread(over: Box, lanes: Lanes) -> Lanes:
    """Every thread once for each value of the indices."""
    for index, extent in over:
        lanes = lanes.spread(index, lanes.index(extent))
    return lanes


def _of_threads(node: Reduce, monoid: Monoid, lanes: Lanes, evaluator: Evaluator) -> Partial:
    """What each thread has combined of its own."""
    every = spread(node.over, lanes)
    values = [np.broadcast_to(evaluator.value(v, every), every.thread.shape) for v in node.values]
    if node.lift:
        dtype = node.values[0].dtype
        elements = monoid.lift(values[0], values[1] if monoid.indexed else np.zeros_like(values[0]))
        start = monoid.identity(dtype)
    else:
        elements = tuple(values)
        start = monoid.identity(node.values[0].dtype)
    count = np.bincount(np.searchsorted(lanes.thread, every.thread), minlength=len(lanes.thread))
    first = np.cumsum(count) - count
    total = tuple(np.full(len(count), s, dtype=e.dtype) for s, e in zip(start, elements, strict=True))
    for turn in range(int(count.max(initial=0))):
        inside = np.flatnonzero(count > turn)
        now = tuple(e[first[inside] + turn] for e in elements)
        combined = monoid.combine(tuple(t[inside] for t in total), now)
        for component, value in zip(total, combined, strict=True):
            component[inside] = value
    return total


def _over_lanes(node: Reduce, monoid: Monoid, partial: Partial, thread: Array) -> Partial:
    """What each group of lanes has combined, in all of them."""
    group = thread // node.lanes
    _, count = np.unique(group, return_counts=True)
    if (count != node.lanes).any():
        raise failure(f"{node.id}: not all of {node.lanes} lanes come to the reduction", node.span)
    lane = thread % node.lanes
    bit = 1
    while bit < node.lanes:
        other = np.arange(len(thread)) + np.where(lane & bit, -bit, bit)
        later = (lane & bit) != 0
        first = tuple(np.where(later, component[other], component) for component in partial)
        then = tuple(np.where(later, component, component[other]) for component in partial)
        partial = monoid.combine(first, then)
        bit *= 2
    return partial
