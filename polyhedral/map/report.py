"""The access report: what each access in global memory costs a warp, at the representative sizes."""

from collections.abc import Iterator, Mapping
from typing import Any

from texpr.grammar.ast import Gather, Subscript
from texpr.grammar.index.text import in_words
from texpr.polyhedral.map.objective import digit_values, footprint
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import AccessReport, HostNode, MappedBuffer
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.mapped.walks import every_node, launches
from texpr.polyhedral.walk import read_accesses, written


def access_reports(
    problem: Problem, host: tuple[HostNode, ...], buffers: Mapping[str, MappedBuffer]
) -> tuple[AccessReport, ...]:
    """A line for every access of a parameter or workspace, with figures where threads share out the statement."""
    found: list[AccessReport] = []
    for launch in launches(host):
        lanes: dict[str, Any] = {}
        for node in every_node(launch.body):
            match node:
                case Define(index=index, digits=digits):
                    lanes[index] = digit_values(digits, problem.target.warp_size)
                case Generic() as statement:
                    found += _of_statement(problem, buffers, statement, lanes if statement.digits else None)
                case _:
                    pass
    return tuple(found)


def _of_statement(
    problem: Problem, buffers: Mapping[str, MappedBuffer], statement: Generic, lanes: Mapping[str, Any] | None
) -> Iterator[AccessReport]:
    leaf = statement.leaf
    accesses = [("read", r.buffer, r.subscripts) for r in read_accesses(leaf)]
    write = written(leaf)
    if write is not None:
        accesses.append(("write", *write))
    for mode, name, subscripts in accesses:
        placed = buffers[name]
        if placed.memory is Memory.GLOBAL and not placed.expanded:
            yield _report(problem, statement, mode, name, subscripts, lanes)


def _report(
    problem: Problem,
    statement: Generic,
    mode: str,
    name: str,
    subscripts: tuple[Subscript, ...],
    lanes: Mapping[str, Any] | None,
) -> AccessReport:
    shown = ", ".join("data" if isinstance(s, Gather) else in_words(s) for s in subscripts)
    relation = f"{name}[{shown}]"
    found = None
    if lanes is not None:
        found = footprint(problem.access(name, subscripts), lanes, problem.sizes)
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
