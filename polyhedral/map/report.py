"""The access report: what each access in global memory costs a warp, at the representative sizes."""

from collections.abc import Iterator

from texpr.grammar.ast import Gather, Subscript
from texpr.grammar.index.text import in_words
from texpr.polyhedral.map.objective import footprint, lane_values
from texpr.polyhedral.map.session import Session
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import AccessReport, HostNode
from texpr.polyhedral.mapped.walks import launches, statements
from texpr.polyhedral.walk import read_accesses, written


def access_reports(session: Session, host: tuple[HostNode, ...]) -> tuple[AccessReport, ...]:
    """A line for every access of a parameter or workspace by a statement whose iterations are spread over threads."""
    found: list[AccessReport] = []
    for launch in launches(host):
        for statement in statements(launch.body):
            found += _of_statement(session, statement)
    return tuple(found)


def _of_statement(session: Session, statement: Generic) -> Iterator[AccessReport]:
    leaf = statement.leaf
    accesses = [("read", r.buffer, r.subscripts) for r in read_accesses(leaf)]
    write = written(leaf)
    if write is not None:
        accesses.append(("write", *write))
    for mode, name, subscripts in accesses:
        placed = session.buffers[name]
        if placed.memory is Memory.GLOBAL and not placed.expanded:
            yield _report(session, statement, mode, name, subscripts)


def _report(
    session: Session, statement: Generic, mode: str, name: str, subscripts: tuple[Subscript, ...]
) -> AccessReport:
    shown = ", ".join("data" if isinstance(s, Gather) else in_words(s) for s in subscripts)
    relation = f"{name}[{shown}]"
    band = session.bands.get(statement.id)
    if band is None:
        return AccessReport(statement=statement.id, buffer=name, mode=mode, relation=relation)
    indices, digits = band
    lanes = lane_values(digits, indices, session.target.warp_size)
    found = footprint(session.kernel.buffer(name), subscripts, lanes, session.sizes)
    if found is None:
        return AccessReport(statement=statement.id, buffer=name, mode=mode, relation=relation)
    return AccessReport(
        statement=statement.id,
        buffer=name,
        mode=mode,
        relation=relation,
        lane_stride=found.stride,
        distance=found.distance,
        sectors=found.sectors,
        ideal_sectors=found.ideal,
    )
