"""What a thread loads of a tile of a scan: all rounds at once, so that no load waits for what another one brought.

    copy X_run[q, e] = X[i, j_first + 4096*q + e] for q < 2, e < 8, 0 <= e < N - …, else 0

What there is no iteration for is 0, so terms to which that adds nothing are made of all that is loaded.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Gather, If, IndexExpr, IndexVar, Leaf, Read, SizeVar
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ZERO, add, const, constant_value, multiply, substitute, subtract
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.runs import Run, nothing, rounds_inside
from texpr.polyhedral.map.scan import Scan
from texpr.polyhedral.map.vectors import Wide, at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem
from texpr.polyhedral.walk import read_accesses, written


def in_one(
    draft: Draft, run: Run, loads: Sequence[Node], first: str, step: int, rounds: int, *, single: bool
) -> tuple[Copy, ...] | None:
    """The loads of a run for so many rounds, the first at `first` and the others `step` iterations apart; `single`:
    a thread has no other rounds. None for loads at any address, or at places that are read from data."""
    merged: list[Copy] = []
    for load in loads:
        if not isinstance(load, Copy) or load.access is Access.FUNNEL:
            return None
        if any(isinstance(s, Gather) for s in load.source.subscripts):
            return None
        merged.append(_merged(draft, run, load, first, step, rounds, single=single))
    return tuple(merged)


def reads_early(scan: Scan, moved: Sequence[Wide]) -> bool:
    """Whether what is loaded of a tile may be loaded while the tile before it is at work: nothing of the scan writes
    these arrays, and behind the terms nobody asks for what is in registers."""
    leaves = [stmt for stmt in statements(scan.body) if isinstance(stmt, Leaf)]
    stored = {target[0] for leaf in leaves if (target := written(leaf)) is not None}
    loads = [wide.element for wide in moved if wide.loads]
    carriers = {carrier.update.id for carrier in scan.carriers}
    if any(isinstance(stmt, If) and isinstance(stmt.condition, Read) for stmt in statements(scan.body)):
        return False
    later = {(r.buffer, r.subscripts) for leaf in leaves if leaf.id not in carriers for r in read_accesses(leaf)}
    return bool(loads) and all(element[0] not in stored and element not in later for element in loads)


def _merged(draft: Draft, run: Run, load: Copy, first: str, step: int, rounds: int, *, single: bool) -> Copy:
    begin: IndexExpr = IndexVar(name=first)
    several: tuple[tuple[str, IndexExpr], ...] = ()
    places: dict[str, IndexExpr] = {}
    if rounds > 1:
        ahead = draft.names.fresh(f"{stem(run.index)}_ahead")
        begin = add(begin, multiply(const(step), IndexVar(name=ahead)))
        places |= {row.name: IndexVar(name=ahead) for row in run.row if isinstance(row, IndexVar)}
        several = ((ahead, const(rounds)),)
    places[run.first] = begin

    def put(name: IndexVar | SizeVar) -> IndexExpr | None:
        return places.get(name.name)

    def moved(view: View) -> View:
        return replace(view, subscripts=at_places(view.subscripts, places))

    within, extent = load.within, constant_value(run.extent)
    if within is not None:
        within = replace(within, begin=substitute(within.begin, put), end=substitute(within.end, put))
    elif extent is None or extent % (step * rounds):  # of a run there is all, or nothing
        *access, (_, width) = load.over
        start = multiply(width, IndexVar(name=access[0][0])) if access else ZERO
        end = subtract(subtract(run.extent, begin), start)
        within = Within(begin=ZERO, end=end, other=nothing(load.target.dtype, load.span), together=True)
    if within is not None and single and several:
        part = IndexVar(name=several[0][0])
        within = replace(within, part=part, whole=rounds_inside(draft.kernel, run.extent, step))
    return replace(
        load, source=moved(load.source), target=moved(load.target), over=(*several, *load.over), within=within
    )
