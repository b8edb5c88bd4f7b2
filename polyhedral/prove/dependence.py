"""Exact dependences between accesses: flow, anti and output, those carried by `seq` loops included.

    dependence = pairs of instances that touch one element  ∩  program order

They are memory-based: every earlier write is a source, not only the last. Pairs carried by a `par` are left out, since
the race proof (`races`) has shown that those commute or are promised not to meet. Two accumulations, or two atomics,
with one operator commute and give none. No stage computes them all: a program whose dependences are hard to tell, and
that nobody reads, is as legal as any other.
"""

from collections.abc import Collection, Iterator

from texpr.polyhedral import isl
from texpr.polyhedral.program import Access, AccessMode, Dependence, Hazard, Program
from texpr.polyhedral.prove.ordering import (
    Use,
    candidates,
    commute,
    meetings,
    ordered,
    shared_loops,
    stands_before,
    uses_by_buffer,
    writes,
)


def find_dependences(
    program: Program, *, among: Collection[str] | None = None, additions: bool = False
) -> tuple[Dependence, ...]:
    """The dependences of a program without races, by buffer, then in text order of the sources: all, or those `among`
    some statements. With `additions` the updates of one element by one operator depend on one another, too, since
    floats add up to something else in another order. E0307 past a limit."""
    found: list[Dependence] = []
    for uses in uses_by_buffer(program).values():
        for first, second in candidates([use for use in uses if among is None or use.statement.id in among]):
            if additions or not commute(first.access, second.access):
                found += _between(program.work, first, second)
    order = {statement.id: number for number, statement in enumerate(program.statements)}
    buffers = {name: number for number, name in enumerate(program.buffers)}
    found.sort(key=lambda d: (buffers[d.source.buffer], order[d.source.statement], d.source.number))
    return tuple(found)


def _between(work: isl.Work, first: Use, second: Use) -> Iterator[Dependence]:
    """The dependences in both directions between two accesses."""
    shared = shared_loops(first.statement, second.statement)
    loops = first.statement.loops[:shared]
    sequential = any(not loop.parallel for loop in loops)
    same = first.access is second.access
    directions = [(first, second)]
    if not same and (sequential or stands_before(second.statement, first.statement, shared)):
        directions.append((second, first))
    if not sequential and not any(stands_before(a.statement, b.statement, shared) for a, b in directions):
        return
    width = first.width + second.width
    with work.limited(second.access.span, "the dependence between these accesses", width):
        met = meetings(first.access, second.access)
        for source, sink in directions:
            relation = _ordered(met if source is first else met.reverse(), source, sink, shared)
            if relation is None:
                continue
            a, b = source.access, sink.access
            yield Dependence(source=a, sink=b, hazard=_hazard(a, b), relation=relation, must=a.must and b.must)


def _ordered(met: isl.Map, source: Use, sink: Use, shared: int) -> isl.Map | None:
    loops = source.statement.loops
    parts = [
        part
        for level, part in ordered(met, source.statement, sink.statement)
        if (level == shared or not loops[level].parallel) and not part.is_empty()
    ]
    if not parts:
        return None
    relation = parts[0]
    for part in parts[1:]:
        relation = relation.union(part)
    return relation.coalesce() if relation.n_basic_map() > 1 else relation


def _hazard(source: Access, sink: Access) -> Hazard:
    """An update reads the old value, so what comes before it and writes flows into it."""
    if not writes(source):
        return Hazard.ANTI
    return Hazard.OUTPUT if sink.mode is AccessMode.WRITE else Hazard.FLOW
