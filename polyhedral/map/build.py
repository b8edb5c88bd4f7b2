"""From a candidate to its program: pure, and without a decision.

Launch by launch the tree of the form that was chosen is built; then accumulators go to registers and long sums get
their partials, data-dependent conditions of the host go around the body, orders are found and barriers
enforce them.
"""

from dataclasses import replace
from typing import assert_never

from texpr.grammar.ast import Role
from texpr.polyhedral.map.cores import build_cores
from texpr.polyhedral.map.digits import Names, names_taken
from texpr.polyhedral.map.idle_attributes import idle_attributes
from texpr.polyhedral.map.inherited import inherit_attributes
from texpr.polyhedral.map.launches import build_blocks, build_combined, build_flat, build_single
from texpr.polyhedral.map.partials import add_partials
from texpr.polyhedral.map.placement import place_parameter, place_workspace
from texpr.polyhedral.map.problem import Outline, Problem, Region, workspaces
from texpr.polyhedral.map.promote import promote
from texpr.polyhedral.map.report import access_reports
from texpr.polyhedral.map.session import Session
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choice, Combined, Cores, Flat, Single
from texpr.polyhedral.mapped.places import Place, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram, Report
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.mapped.walks import launch_names, launches, located, tree_buffers
from texpr.polyhedral.orders.find import launch_orders
from texpr.polyhedral.orders.flow import check_enforced
from texpr.polyhedral.orders.synchronise import synchronise


def build(problem: Problem, candidate: Candidate) -> MappedProgram:
    """The program of a candidate that fits the problem."""
    session = Session(problem=problem, names=Names(names_taken(problem.kernel)))
    for buffer in problem.kernel.params:
        session.buffers[buffer.name] = place_parameter(buffer)
    for buffer in workspaces(problem.kernel):
        session.buffers[buffer.name] = place_workspace(buffer, problem.target)
    host = inherit_attributes(problem.kernel, _host(session, candidate, problem.outline))
    touched = set[str]().union(*(tree_buffers(launch.body) for launch in launches(host)))
    buffers = {n: b for n, b in session.buffers.items() if n in touched or b.role is not Role.LOCAL}
    return MappedProgram(
        kernel=problem.kernel,
        proved=problem.proved,
        target=problem.target,
        host=host,
        buffers=buffers,
        candidate=candidate,
        report=Report(
            accesses=access_reports(problem, host, buffers),
            representative=dict(problem.sizes),
            notes=idle_attributes(problem.kernel, problem.target, host, buffers),
        ),
    )


def _host(session: Session, candidate: Candidate, outline: Outline) -> tuple[HostNode, ...]:
    found: list[HostNode] = []
    for node in outline:
        match node:
            case Region():
                found.append(_finished(session, node, _launch(session, node, candidate.launches[node.name])))
            case HostLoop(index=index, extent=extent, body=body):
                inside = _host(session, candidate, body)
                found.append(HostLoop(index=index, extent=extent, body=inside, span=node.span))
            case HostIf(condition=condition, then=then, orelse=orelse):
                arms = _host(session, candidate, then), _host(session, candidate, orelse)
                found.append(HostIf(condition=condition, then=arms[0], orelse=arms[1], span=node.span))
    return tuple(found)


def _launch(session: Session, region: Region, choice: Choice) -> Launch:
    session.digits = []
    match choice:
        case Single():
            return build_single(session, region, choice)
        case Flat():
            return build_flat(session, region, choice)
        case Blocks():
            return build_blocks(session, region, choice)
        case Combined():
            return build_combined(session, region, choice)
        case Cores():
            return build_cores(session, region, choice)
        case _:
            assert_never(choice)


def _finished(session: Session, region: Region, launch: Launch) -> Launch:
    """The launch with its accumulators in registers, the conditions of the host around its body, its orders and its
    barriers."""
    body = add_partials(session, promote(session, launch.body))
    for condition, holds in reversed(region.saved):
        inside, orelse = (body, ()) if holds else ((), body)
        body = (Guard(condition=condition, body=inside, orelse=orelse, uniform=Scope.GRID, span=condition.span),)
    used = launch_names(launch.grid, (*launch.digits, *session.digits), body)
    looped = {place.node.index for place in located(body) if isinstance(place.node, Loop) and place.node.digit}
    made = (*launch.digits, *session.digits)
    digits = tuple(d for d in made if d.name in looped or d.place not in (Place.SERIAL, Place.VECTOR))
    arguments = tuple(i for i in region.host if i in used)
    launch = replace(launch, body=body, digits=digits, arguments=arguments)
    orders = launch_orders(launch, session.buffers, session.proved.program)
    launch = synchronise(replace(launch, orders=orders))
    check_enforced(launch)
    return launch
