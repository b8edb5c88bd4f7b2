"""The map stage: a proved program on a target, as launches of threads.

    par M i, N j { C[i, j] = A[i, j] }     cuda   j = 256*j_block + 32*j_warp + j_lane, i = i_block

Input: a `ProvedProgram`, a `Target`, and representative values of free sizes. Output: a `MappedProgram` that runs
every iteration of every statement exactly once, with the same result. Host structure: an outermost band is a launch,
plain statements are a launch of one thread, a `seq` around pars is a loop of launches, an `if` around them a condition
on the host, or a guard in every launch where it depends on data. Errors: E0401, E0402, E0403, E0502.
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.ast import Condition, If, Kernel, New, Par, Read, Role, Seq, Stmt
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.interval import index_range
from texpr.polyhedral.map.cores import CoreBuilder
from texpr.polyhedral.map.digits import Names
from texpr.polyhedral.map.hardware_attributes import check_attributes, check_host_loop
from texpr.polyhedral.map.idle_attributes import idle_attributes
from texpr.polyhedral.map.launches import LaunchBuilder
from texpr.polyhedral.map.long_sums import carried_wide, long_updates
from texpr.polyhedral.map.partials import add_partials
from texpr.polyhedral.map.placement import place_parameter, place_workspace
from texpr.polyhedral.map.promote import promote
from texpr.polyhedral.map.report import access_reports
from texpr.polyhedral.map.session import DEFAULT_SIZE, Session
from texpr.polyhedral.mapped.places import Place, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram, Report
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.mapped.walks import launch_names, launches, located, tree_buffers
from texpr.polyhedral.orders.find import launch_orders
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target
from texpr.polyhedral.walk import children, contains_par, walk

Saved = tuple[tuple[Read, bool], ...]  # data-dependent conditions around a launch, and whether each must hold


def map_program(proved: ProvedProgram, target: Target, *, hints: Mapping[str, int] | None = None) -> MappedProgram:
    """The mapping of a proved program to a target; `hints` gives sizes that are free a value to judge choices at.

    Raises E0401 where attributes or sizes leave no mapping, E0402 for attributes that are not mapped, E0403 for
    buffers that do not fit, E0502 for constructs that have no emission.
    """
    check_attributes(proved.program.kernel, target)
    known = hints or {}
    wide, narrow = carried_wide(proved.program), carried_wide(proved.program, arrays=False)
    tiles = [new.name for new, old in zip(wide.buffers, narrow.buffers, strict=True) if new.dtype != old.dtype]
    try:
        return _map(proved, target, wide, known)
    except TExprError as wrong:
        if not tiles or not {d.code for d in wrong.diagnostics} <= {"E0401", "E0403"}:
            raise
    mapped = _map(proved, target, narrow, known)
    said = tuple(f"{name} has no room in f64: its long sums stay in f32, of every addition" for name in tiles)
    return replace(mapped, report=replace(mapped.report, notes=(*mapped.report.notes, *said)))


def _map(proved: ProvedProgram, target: Target, kernel: Kernel, known: Mapping[str, int]) -> MappedProgram:
    """The mapping of `kernel`, the proved one with its long sums carried as they are to be."""
    session = Session(
        kernel=kernel,
        proved=proved,
        target=target,
        sizes={s.name: known.get(s.name, s.default or DEFAULT_SIZE) for s in kernel.sizes},
        names=Names(_taken(kernel)),
        long=long_updates(proved.program),
    )
    for buffer in kernel.params:
        session.buffers[buffer.name] = place_parameter(buffer)
    host = _Host(session).nodes(kernel.body, (), ())
    touched = set[str]().union(*(tree_buffers(launch.body) for launch in launches(host)))
    buffers = {n: b for n, b in session.buffers.items() if n in touched or b.role is not Role.LOCAL}
    notes = (*session.notes, *idle_attributes(kernel, target, host, buffers))
    return MappedProgram(
        kernel=kernel,
        proved=proved,
        target=target,
        host=host,
        buffers=buffers,
        report=Report(accesses=access_reports(session, host), representative=dict(session.sizes), notes=notes),
    )


def _taken(kernel: Kernel) -> tuple[str, ...]:
    loops = tuple(s.index for s in walk(kernel.body) if isinstance(s, Par | Seq))
    return loops + tuple(b.name for b in kernel.buffers) + tuple(s.name for s in kernel.sizes)


class _Host:
    """Builds the host tree; launches are numbered in text order."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.count = 0

    def nodes(self, stmts: tuple[Stmt, ...], indices: tuple[str, ...], saved: Saved) -> tuple[HostNode, ...]:
        """The host nodes of statements outside any par, `indices` being the host indices around them."""
        for stmt in stmts:
            if isinstance(stmt, New):
                buffer = self.session.kernel.buffer(stmt.buffer)
                self.session.buffers[buffer.name] = place_workspace(buffer, self.session.target)
        found: list[HostNode] = []
        plain: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, New):
                continue
            if not contains_par((stmt,)):
                plain.append(stmt)
                continue
            found += self._single(plain, indices, saved)
            plain = []
            match stmt:
                case Par():
                    found.append(self._finish(self._builder(indices).band(stmt, self._name()), indices, saved))
                case Seq(index=index, extent=extent, body=body):
                    check_host_loop(stmt)
                    known = index_range(extent, self.session.host_ranges)
                    if known is not None:
                        self.session.host_ranges[index] = known
                    inside = self.nodes(body, (*indices, index), saved)
                    found.append(HostLoop(index=index, extent=extent, body=inside, span=stmt.span))
                case If():
                    found += self._if(stmt, indices, saved)
                case _:
                    found += self.nodes(children(stmt), indices, saved)
        found += self._single(plain, indices, saved)
        return tuple(found)

    def _builder(self, indices: tuple[str, ...]) -> LaunchBuilder | CoreBuilder:
        if self.session.target.is_cuda:
            return LaunchBuilder(self.session, indices)
        return CoreBuilder(self.session, indices)

    def _name(self) -> str:
        self.count += 1
        return f"{self.session.kernel.name}_{self.count - 1}"

    def _single(self, plain: list[Stmt], indices: tuple[str, ...], saved: Saved) -> tuple[HostNode, ...]:
        if not plain:
            return ()
        launch = LaunchBuilder(self.session, indices).single(tuple(plain), self._name())
        return (self._finish(launch, indices, saved),)

    def _if(self, stmt: If, indices: tuple[str, ...], saved: Saved) -> tuple[HostNode, ...]:
        condition: Condition | Read = stmt.condition
        if isinstance(condition, Read):
            then = self.nodes(stmt.then, indices, (*saved, (condition, True)))
            return then + self.nodes(stmt.orelse, indices, (*saved, (condition, False)))
        return (
            HostIf(
                condition=condition,
                then=self.nodes(stmt.then, indices, saved),
                orelse=self.nodes(stmt.orelse, indices, saved),
                span=stmt.span,
            ),
        )

    def _finish(self, launch: Launch, indices: tuple[str, ...], saved: Saved) -> Launch:
        """The launch with the saved conditions around its body, its accumulators in registers and its orders."""
        body = add_partials(self.session, promote(self.session, launch.body))
        for condition, holds in reversed(saved):
            inside, orelse = (body, ()) if holds else ((), body)
            body = (Guard(condition=condition, body=inside, orelse=orelse, uniform=Scope.GRID, span=condition.span),)
        used = launch_names(launch.grid, launch.digits, body)
        looped = {place.node.index for place in located(body) if isinstance(place.node, Loop) and place.node.digit}
        made = (*launch.digits, *self.session.digits)
        digits = tuple(d for d in made if d.name in looped or d.place not in (Place.SERIAL, Place.VECTOR))
        self.session.digits = ()
        launch = replace(launch, body=body, digits=digits, arguments=tuple(i for i in indices if i in used))
        return replace(launch, orders=launch_orders(launch, self.session.buffers, self.session.proved.program))
