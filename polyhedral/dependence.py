"""Exact dependences between accesses: flow, anti and output, those carried by `seq` loops included.

    dependence = pairs of instances that touch one element  ∩  program order

They are memory-based: every earlier write is a source, not only the last. Pairs carried by a `par` are left out, since
the race proof (`races`) has shown that those commute or are promised not to meet. Two accumulations, or two atomics,
with one operator commute and give none.
"""

from collections.abc import Iterator
from itertools import product

import islpy as isl

from texpr.polyhedral.affine import limited
from texpr.polyhedral.ordering import commute, is_gathered, meetings, never_meet, ordered, shared_loops, writes
from texpr.polyhedral.program import Access, AccessMode, Dependence, Hazard, Program, ProgramStatement


def find_dependences(program: Program) -> tuple[Dependence, ...]:
    """The dependences of a program without races, by buffer, then in text order. E0307 past the limit."""
    return tuple(_find(program))


def _find(program: Program) -> Iterator[Dependence]:
    for name in program.buffers:
        uses = [(s, a) for s in program.statements for a in s.accesses if a.buffer == name]
        for (s, a), (t, b) in product(uses, uses):
            if commute(a, b) or never_meet(a, b) or not _can_precede(s, t):
                continue
            with limited(b.span, "the dependence between these accesses"):
                relation = _relation(s, a, t, b)
            if relation is not None:
                yield Dependence(
                    source=a,
                    sink=b,
                    hazard=_hazard(a, b),
                    relation=relation,
                    must=a.must and b.must and not is_gathered(a) and not is_gathered(b),
                )


def _can_precede(first: ProgramStatement, second: ProgramStatement) -> bool:
    shared = shared_loops(first, second)
    if any(not loop.parallel for loop in first.loops[:shared]):
        return True
    left, right = first.position[2 * shared], second.position[2 * shared]
    return isinstance(left, int) and isinstance(right, int) and left < right


def _relation(s: ProgramStatement, a: Access, t: ProgramStatement, b: Access) -> isl.Map | None:
    met = meetings(a, b)
    if met.is_empty():
        return None
    shared = shared_loops(s, t)
    parts = [
        part
        for level, part in ordered(met, s, t)
        if (level == shared or not s.loops[level].parallel) and not part.is_empty()
    ]
    if not parts:
        return None
    relation = parts[0]
    for part in parts[1:]:
        relation = relation.union(part)
    return relation.coalesce()


def _hazard(source: Access, sink: Access) -> Hazard:
    """An update reads the old value, so what comes before it and writes flows into it."""
    if not writes(source):
        return Hazard.ANTI
    return Hazard.OUTPUT if sink.mode is AccessMode.WRITE else Hazard.FLOW
