"""Reductions and scans of a simulated launch: the values of every thread combined by a monoid, then those of its lanes.

Elements of a thread combine one after the other, and lanes in a tree of neighbours, in their order: as the headers do.
"""

from collections.abc import Callable

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.monoids import MONOIDS, Monoid, Partial
from texpr.polyhedral.mapped.operators import Combined, Reduce, Scan
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.failure import failure


def reduce(node: Reduce, lanes: Lanes, evaluator: Evaluator) -> None:
    """The reduction by these threads: their targets are written."""
    own = _values(node, lanes, evaluator)
    with np.errstate(all="ignore"):
        partial = _folded(own, own.start)
        if node.lanes > 1:
            partial = _over_lanes(node, own.monoid, partial, lanes.thread)
    _store(node, own.monoid, partial, lanes, evaluator)


def scan(node: Scan, lanes: Lanes, evaluator: Evaluator) -> None:
    """The scan by these threads: the targets of each of their values are written."""
    own = _values(node, lanes, evaluator)
    kept = tuple(np.empty_like(component) for component in own.elements)

    def keep(inside: Array, turn: int, partial: Partial) -> None:
        for component, value in zip(kept, partial, strict=True):
            component[own.first[inside] + turn] = value

    with np.errstate(all="ignore"):
        before = own.start
        if node.lanes > 1:
            before = _before_lanes(node, own.monoid, _folded(own, own.start), own.start, lanes.thread)
        _folded(own, before, **{"before" if node.exclusive else "after": keep})
    _store(node, own.monoid, kept, own.every, evaluator)


def _store(node: Combined, monoid: Monoid, partial: Partial, lanes: Lanes, evaluator: Evaluator) -> None:
    with np.errstate(all="ignore"):
        result = monoid.result(partial) if node.last else partial
    for target, component in zip(node.targets, result, strict=True):
        evaluator.store(target.buffer, target.subscripts, component.astype(numerics.storage(target.dtype)), lanes)


def spread(over: Box, lanes: Lanes) -> Lanes:
    """Every thread once for each value of the indices."""
    for index, extent in over:
        lanes = lanes.spread(index, lanes.index(extent))
    return lanes


@dataclass(frozen=True, slots=True)
class _Own:
    """The values of each thread, lifted: all of them, how many each has, where its first one is, and the partial
    without any."""

    monoid: Monoid
    every: Lanes
    elements: Partial
    count: Array
    first: Array
    start: Partial


def _values(node: Combined, lanes: Lanes, evaluator: Evaluator) -> _Own:
    monoid = MONOIDS[node.monoid]
    if len(node.targets) != len(monoid.components):
        raise failure(f"{node.id}: {node.monoid} has components {', '.join(monoid.components)}", node.span)
    every = spread(node.over, lanes)
    values = [np.broadcast_to(evaluator.value(v, every), every.thread.shape) for v in node.values]
    elements = tuple(values)
    if node.lift:
        elements = monoid.lift(values[0], values[1] if monoid.indexed else np.zeros_like(values[0]))
    count = np.bincount(np.searchsorted(lanes.thread, every.thread), minlength=len(lanes.thread))
    identity = monoid.identity(node.values[0].dtype)
    start = tuple(np.full(len(count), s, dtype=e.dtype) for s, e in zip(identity, elements, strict=True))
    return _Own(monoid, every, elements, count, np.cumsum(count) - count, start)


def _nothing(inside: Array, turn: int, partial: Partial) -> None:
    pass


Step = Callable[[Array, int, Partial], None]


def _folded(own: _Own, start: Partial, before: Step = _nothing, after: Step = _nothing) -> Partial:
    """What each thread has combined of its own, behind `start`; `before` and `after` get what is combined when a value
    is, of some threads."""
    total = tuple(component.copy() for component in start)
    for turn in range(int(own.count.max(initial=0))):
        inside = np.flatnonzero(own.count > turn)
        now = tuple(e[own.first[inside] + turn] for e in own.elements)
        earlier = tuple(t[inside] for t in total)
        before(inside, turn, earlier)
        combined = own.monoid.combine(earlier, now)
        for component, value in zip(total, combined, strict=True):
            component[inside] = value
        after(inside, turn, tuple(t[inside] for t in total))
    return total


def _check_lanes(node: Combined, thread: Array) -> Array:
    """The lanes of threads in their groups, which are whole."""
    _, count = np.unique(thread // node.lanes, return_counts=True)
    if (count != node.lanes).any():
        what = "reduction" if isinstance(node, Reduce) else "scan"
        raise failure(f"{node.id}: not all of {node.lanes} lanes come to the {what}", node.span)
    return np.asarray(thread % node.lanes)


def _before_lanes(node: Scan, monoid: Monoid, partial: Partial, start: Partial, thread: Array) -> Partial:
    """What the lanes of the group before each have combined."""
    lane = _check_lanes(node, thread)
    at = np.arange(len(thread))
    distance = 1
    while distance < node.lanes:
        later = lane >= distance
        earlier = tuple(component[np.where(later, at - distance, at)] for component in partial)
        combined = monoid.combine(earlier, partial)
        partial = tuple(np.where(later, new, old) for new, old in zip(combined, partial, strict=True))
        distance *= 2
    return tuple(np.where(lane > 0, p[np.maximum(at - 1, 0)], s) for p, s in zip(partial, start, strict=True))


def _over_lanes(node: Reduce, monoid: Monoid, partial: Partial, thread: Array) -> Partial:
    """What each group of lanes has combined, in all of them."""
    lane = _check_lanes(node, thread)
    bit = 1
    while bit < node.lanes:
        other = np.arange(len(thread)) + np.where(lane & bit, -bit, bit)
        later = (lane & bit) != 0
        first = tuple(np.where(later, component[other], component) for component in partial)
        then = tuple(np.where(later, component, component[other]) for component in partial)
        partial = monoid.combine(first, then)
        bit *= 2
    return partial
