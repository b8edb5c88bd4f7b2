"""From a candidate to its program: pure, and without a decision.

Launch by launch the tree of the form that was chosen is built; then accumulators go to registers and long sums get
their partials, data-dependent conditions of the host go around the body, orders are found and barriers
enforce them.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from texpr.grammar.ast import Role
from texpr.grammar.permissions import cooperative_of, persistent_of
from texpr.polyhedral.map.blocks import build_blocks
from texpr.polyhedral.map.clustered import clustered
from texpr.polyhedral.map.distance import distance_notes
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.early import begun_early
from texpr.polyhedral.map.first_sums import bound_once
from texpr.polyhedral.map.held import read_again
from texpr.polyhedral.map.idle_attributes import idle_attributes
from texpr.polyhedral.map.inherited import inherit_attributes
from texpr.polyhedral.map.lasting import with_l2
from texpr.polyhedral.map.launches import build_combined, build_flat, build_single
from texpr.polyhedral.map.one_name import one_name
from texpr.polyhedral.map.partials import add_partials
from texpr.polyhedral.map.persistent import persistent
from texpr.polyhedral.map.placement import place_parameter, place_workspace
from texpr.polyhedral.map.problem import Outline, Problem, Region, workspaces
from texpr.polyhedral.map.promote import promote
from texpr.polyhedral.map.report import access_reports
from texpr.polyhedral.map.resident import resident
from texpr.polyhedral.map.staged import staged
from texpr.polyhedral.mapped.candidate import (
    Blocks,
    Candidate,
    Choice,
    Columns,
    Combined,
    Contracted,
    Flat,
    Parted,
    Scanned,
    Single,
    Tallied,
    Tiled,
)
from texpr.polyhedral.mapped.on_cores import Cores, Panels
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Place, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram, Report
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.mapped.walks import launch_names, launches, map_launches, of_kind, tree_buffers
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.orders.find import launch_orders
from texpr.polyhedral.orders.synchronise import synchronise


def build(problem: Problem, candidate: Candidate) -> MappedProgram:
    """The program of a candidate that fits the problem."""
    draft = Draft(problem=problem, names=Names(names_taken(problem.kernel)))
    for buffer in problem.kernel.params:
        draft.buffers[buffer.name] = place_parameter(buffer, problem.layouts[buffer.name])
    for buffer in workspaces(problem.kernel):
        draft.buffers[buffer.name] = place_workspace(buffer, problem.target)
    host = _finished(draft, candidate, _host(draft, candidate, problem.outline))
    host = inherit_attributes(problem.kernel, problem.kept.implied, host)
    touched = set[str]().union(*(tree_buffers(launch.body) for launch in launches(host)))
    buffers = {n: b for n, b in draft.buffers.items() if n in touched or b.role is not Role.LOCAL}
    host = begun_early(host, candidate.early, buffers, draft.rests)
    host = with_l2(host, candidate, buffers, problem.target)
    program = MappedProgram(
        kernel=problem.whole,
        proved=problem.proved,
        target=problem.target,
        host=host,
        buffers=buffers,
        candidate=candidate,
        words=tuple(draft.words),
        report=Report(
            accesses=access_reports(problem, host, buffers),
            representative=dict(problem.sizes),
            notes=(
                *idle_attributes(problem.kernel, problem.target, host, buffers, draft.obeyed),
                *_read_again(problem, candidate),
                *draft.notes,
                *(distance_notes(problem, candidate) if problem.objective.by_distance else ()),
            ),
        ),
    )
    check_orders(program)
    return program


def _read_again(problem: Problem, candidate: Candidate) -> Iterator[str]:
    for region in problem.regions():
        choice = candidate.launches[region.name]
        if isinstance(choice, Blocks):
            yield from read_again(problem, region.name, region.nest[0].body, choice)


def _host(draft: Draft, candidate: Candidate, outline: Outline) -> tuple[HostNode, ...]:
    found: list[HostNode] = []
    for node in outline:
        match node:
            case Region():
                found.append(_in_registers(draft, node, candidate.launches[node.name]))
                found += draft.behind
            case HostLoop(index=index, extent=extent, body=body):
                inside = _host(draft, candidate, body)
                found.append(HostLoop(index=index, extent=extent, body=inside, span=node.span))
            case HostIf(condition=condition, then=then, orelse=orelse):
                arms = _host(draft, candidate, then), _host(draft, candidate, orelse)
                found.append(HostIf(condition=condition, then=arms[0], orelse=arms[1], span=node.span))
    return tuple(found)


def _launch(draft: Draft, region: Region, choice: Choice) -> Launch:
    """The launch in its form. Most programs have one or two of the forms, and load what builds these."""
    draft.digits, draft.pipes, draft.behind = [], [], []
    match choice:
        case Single():
            return build_single(draft, region, choice)
        case Flat():
            return build_flat(draft, region, choice)
        case Blocks():
            return build_blocks(draft, region, choice)
        case Columns():
            from texpr.polyhedral.map.columns import build_columns

            return build_columns(draft, region, choice)
        case Combined():
            return build_combined(draft, region, choice)
        case Contracted():
            from texpr.polyhedral.map.contracted import build_contracted

            return build_contracted(draft, region, choice)
        case Piped():
            from texpr.polyhedral.map.piped import build_piped

            return build_piped(draft, region, choice)
        case Ringed():
            from texpr.polyhedral.map.ringed import build_ringed

            return build_ringed(draft, region, choice)
        case Tiled():
            from texpr.polyhedral.map.tiled import build_tiled

            return build_tiled(draft, region, choice)
        case Parted():
            from texpr.polyhedral.map.parted import build_parted

            return build_parted(draft, region, choice)
        case Tallied():
            from texpr.polyhedral.map.tallied import build_tallied

            return build_tallied(draft, region, choice)
        case Scanned():
            from texpr.polyhedral.map.scanned import build_scanned

            return build_scanned(draft, region, choice)
        case Cores():
            from texpr.polyhedral.map.cores import build_cores

            return build_cores(draft, region, choice)
        case Panels():
            from texpr.polyhedral.map.panels import build_panels

            return build_panels(draft, region, choice)
        case _:
            assert_never(choice)


def _in_registers(draft: Draft, region: Region, choice: Choice) -> Launch:
    """The launch of a choice, with its accumulators in registers and the conditions of the host around its body."""
    launch = _launch(draft, region, choice)
    if isinstance(choice, Piped | Ringed):
        return launch  # it has its own orders, and what keeps them
    body = one_name(draft, add_partials(draft, bound_once(draft, promote(draft, launch.body))))
    for condition, holds in reversed(region.saved):
        inside, orelse = (body, ()) if holds else ((), body)
        body = (Guard(condition=condition, body=inside, orelse=orelse, uniform=Scope.GRID, span=condition.span),)
    body = staged(draft, launch.threads, body, region.stmts, choice)
    used = launch_names(launch.grid, (*launch.digits, *draft.digits), body)
    looped = {loop.index for loop in of_kind(body, Loop) if loop.digit}
    made = (*launch.digits, *draft.digits)
    digits = tuple(d for d in made if d.name in looped or d.place not in (Place.SERIAL, Place.VECTOR))
    arguments = tuple(i for i in region.host if i in used)
    launch = replace(launch, body=body, digits=digits, arguments=arguments)
    return resident(launch, draft.kernel, draft.target)


def _finished(draft: Draft, candidate: Candidate, host: tuple[HostNode, ...]) -> tuple[HostNode, ...]:
    """The launches on the blocks that their author asks for, with their orders and barriers."""
    bands = {r.name: r.nest[0].pars if r.band is not None else () for r in draft.problem.regions()}

    def alone(launch: Launch) -> Launch:
        choice = candidate.launches.get(launch.name)
        if choice is None:  # behind one of the candidate's; of products of matrices with its own orders
            return launch if launch.pipes else ordered(launch)
        if isinstance(choice, Piped | Ringed):
            return launch
        stays = persistent(launch, choice, draft.kernel, draft.target, draft.names)
        asked = persistent_of(draft.kernel)
        if asked is not None and stays is not launch:
            draft.obeyed.add(asked)
        return ordered(clustered(stays, bands[launch.name], draft.kernel, draft.target, draft.names))

    def ordered(launch: Launch) -> Launch:
        orders = launch_orders(launch, draft.buffers, draft.proved.program, draft.target.warp_size)
        return synchronise(replace(launch, orders=(*launch.orders, *orders)))

    if cooperative_of(draft.kernel) is None:
        return map_launches(host, alone)
    from texpr.polyhedral.map.cooperative import cooperative

    return cooperative(draft, host, candidate.launches, alone, ordered)
