"""The access report: what each access in global memory costs a warp, at the representative sizes."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from texpr.grammar.ast import Gather, Leaf, Subscript
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.text import in_words
from texpr.grammar.index.value import index_value
from texpr.polyhedral.map.objective import AtZero, WeightedAccess, digit_values, footprint
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.operators import Copy, Generic
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
                case Define(index=index, digits=digits, offset=offset):
                    start = index_value(offset, AtZero(lanes))
                    lanes[index] = digit_values(digits, problem.target.warp_size) + start
                case Generic(leaf=leaf) as statement:
                    found += _of_operator(problem, buffers, statement, leaf, lanes if statement.digits else None)
                case Copy(leaf=leaf, over=over) as copy:
                    own = (copy.source.subscripts, copy.target.subscripts)
                    width = (constant_value(over[-1][1]) or 1) if over else 1
                    found += _of_operator(
                        problem, buffers, copy, leaf, lanes if copy.digits else None, dict.fromkeys(own, width)
                    )
                case _:
                    pass
    return tuple(found)


def _of_operator(
    problem: Problem,
    buffers: Mapping[str, MappedBuffer],
    statement: Generic | Copy,
    leaf: Leaf,
    lanes: Mapping[str, Any] | None,
    widths: Mapping[tuple[Subscript, ...], int] = MappingProxyType({}),
) -> Iterator[AccessReport]:
    accesses = [("read", r.buffer, r.subscripts) for r in read_accesses(leaf)]
    write = written(leaf)
    if write is not None:
        accesses.append(("write", *write))
    for mode, name, subscripts in accesses:
        placed = buffers[name]
        if placed.memory is Memory.GLOBAL and not placed.expanded:
            access = WeightedAccess(
                buffer=name,
                layout=placed.layout,
                element_bytes=placed.dtype.size_bytes,
                subscripts=subscripts,
                width=widths.get(subscripts, 1),
            )
            yield _report(problem, statement, mode, access, name, lanes)


def _report(
    problem: Problem,
    statement: Generic | Copy,
    mode: str,
    access: WeightedAccess,
    name: str,
    lanes: Mapping[str, Any] | None,
) -> AccessReport:
    shown = ", ".join("data" if isinstance(s, Gather) else in_words(s) for s in access.subscripts)
    relation = f"{name}[{shown}]"
    found = None
    if lanes is not None:
        found = footprint(access, lanes, problem.sizes)
    if found is None:
        return AccessReport(statement=statement.id, buffer=name, mode=mode, relation=relation, width=access.width)
    return AccessReport(
        statement=statement.id,
        buffer=name,
        mode=mode,
        relation=relation,
        width=access.width,
        lane_stride=found.stride,
        distance=found.distance,
        sectors=found.sectors,
        ideal_sectors=found.ideal,
    )
