"""Shadow memory of the exact mode: who touched which element in which iteration of which running `par`.

Two accesses race at a `par` when they lie in different iterations of one run of it, touch one element, and are not
both reads, both accumulations with one operator, or both atomic updates with one operator. For each running `par` and
element it suffices to keep two accesses of different iterations per kind: if any access conflicts, one of these does.
An accumulation beside another access in its own iteration is refused too as soon as a second iteration accumulates
into the element, since that one differs from the iteration of the other access.
"""

from dataclasses import field

import numpy as np

from texpr.grammar.ast import AccOp, Buffer, Par
from texpr.grammar.diagnostics import Diagnostic
from texpr.grammar.interpret.cells import Array
from texpr.grammar.interpret.errors import Party, Reports, Site
from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What an access does: `verb` is read, write, accumulate into or update (atomic); `op` of the last two."""

    verb: str
    op: AccOp | None = None


READ = Kind("read")
WRITE = Kind("write")


def conflict(one: Kind, two: Kind) -> bool:
    """Whether accesses of these kinds to one element, in two iterations of a `par`, race."""
    return one != two or one == WRITE


@dataclass(frozen=True, slots=True)
class Access:
    """One access: its iteration of the `par` at hand, the place of its statement in the text, and whether that has
    the promise `#unique`."""

    turn: int
    kind: Kind
    site: Site
    order: int
    unique: bool


@dataclass(slots=True)
class Instance:
    """One life of a buffer. `depth` counts the `par`s that were running when it was made: to those it is private."""

    buffer: Buffer
    shape: tuple[int, ...]
    flat: Array
    defined: Array
    depth: int
    number: int

    def element(self, place: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.unravel_index(place, self.shape)) if self.shape else ()


@dataclass(slots=True)
class Running:
    """One run of a `par`: the iteration at hand and the accesses so far, by instance and element."""

    loop: Par
    turn: int = 0
    touched: dict[tuple[int, int], dict[Kind, list[Access]]] = field(default_factory=dict)


def touch(
    running: list[Running],
    reports: Reports,
    instance: Instance,
    place: int,
    kind: Kind,
    site: Site,
    order: int,
    unique: bool,
) -> Diagnostic | None:
    """Records an access in every running `par` that shares the instance; the outermost race that it makes, if any."""
    found: Diagnostic | None = None
    for frame in running[instance.depth :]:
        access = Access(frame.turn, kind, site, order, unique)
        seen = frame.touched.setdefault((instance.number, place), {})
        for other_kind, entries in seen.items():
            if found is None and conflict(kind, other_kind):
                rivals = [entry for entry in entries if entry.turn != access.turn]
                if rivals:
                    found = report(reports, frame.loop, instance, place, access, rivals[0])
        kept = seen.setdefault(kind, [])
        if len(kept) < 2 and all(entry.turn != access.turn for entry in kept):
            kept.append(access)
    return found


def report(reports: Reports, loop: Par, instance: Instance, place: int, access: Access, other: Access) -> Diagnostic:
    """E0301, or E0604 where both writes carry the promise `#unique`."""
    later, earlier = (access, other) if access.order >= other.order else (other, access)
    code = "E0604" if access.unique and other.unique else "E0301"
    parties = Party(later.kind.verb, later.site), Party(earlier.kind.verb, earlier.site)
    return reports.race(code, loop, instance.buffer, instance.element(place), *parties)
