"""Columns in registers: threads of a block lie across a band, and share the loops over each column that one has read.

    par B b, N j { t = sum C c { X[b, c, j] } ; par C c { Y[b, c, j] = X[b, c, j] / t } }     32 lanes, a team of 8

    j = 32*j_block + j_lane        every thread:  X_column[k] = X[b, team + 8*k, j] for all k
                                                  t_part = Sum of X_column[k]
                                   a barrier:     t = Sum of t_part of its team, in every thread
                                                  Y[b, team + 8*k, j] = X_column[k] / t for all k

Neighbouring threads read neighbouring elements, and memory is read once. Where a thread takes several neighbours of the
index across, all of its scalars have an element for each.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Accumulate, Compare, CompareOp, IndexVar, New, Par, Seq, Stmt
from texpr.grammar.index.expr import ONE, ZERO, add, const, constant_value, multiply, where_some
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.column_work import body_of, column_held, column_work, is_of_all
from texpr.polyhedral.map.crew import Crew, Part
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.held import Member, RowElement, named
from texpr.polyhedral.map.launches import band_grid, band_of, launch_of, padding_guard, place_in
from texpr.polyhedral.map.long_sums import narrow
from texpr.polyhedral.map.meeting import in_all
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.row_tiles import make_tile
from texpr.polyhedral.map.runs import in_run, make_run, through
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.updates import changed, targets
from texpr.polyhedral.map.vectors import Element, along, at, element_width
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Columns, Row
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.names import stem


def build_columns(draft: Draft, region: Region, choice: Columns) -> Launch:
    """A band over columns, whose teams hold them."""
    nest, ranges, extents = band_of(region)
    found = column_work(draft.problem, nest)
    assert found is not None, "the candidate fits"
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    crew = Crew(draft, region, choice.shared, Work(reductions=found.reductions, first=(), last=nest.body))
    covered = crew.band.covered[: len(nest.pars)]
    grid = band_grid(draft, nest, extents, covered, choice.grid)
    defines = [
        Define(index=crew.firsts.get(index, index), digits=(*blocks, *reversed(mine)))
        for index, blocks, mine in zip(nest.indices, grid.digits, crew.band.digits, strict=False)
    ]
    if crew.team > 1:
        defines.append(Define(index=crew.team_index, digits=tuple(reversed(crew.band.digits[-1]))))
    body = _Columns(crew, choice).nodes()
    launch = launch_of(draft, region, choice.threads, grid, (*defines, *body))
    return replace(launch, min_blocks=choice.resident)


class _Columns:
    """What a thread does with its columns; `inside` cuts what is no iteration of the band."""

    def __init__(self, crew: Crew, choice: Columns) -> None:
        self.crew, self.draft, self.nest = crew, crew.draft, crew.nest
        found = column_work(self.draft.problem, self.nest)
        assert found is not None, "the candidate fits"
        held = column_held(self.draft.problem, self.nest, found, crew.team)
        assert held is not None, "the candidate fits"
        self.found, self.held = found, held
        covered = dict(zip(self.nest.indices, crew.band.covered, strict=False))
        self.inside = padding_guard(self.nest, covered, crew.ranges, crew.firsts)
        row = Row(indices=tuple(loop.index for loop in found.loops))
        self.tile = make_tile(self.draft, row, held, crew.width)
        self.own = {stmt.buffer for stmt in self.nest.body if isinstance(stmt, New)}
        self.scalars = {name: self._scalar(name) for name in sorted(self.own)}

    def _scalar(self, name: str) -> str:
        """A scalar of an iteration, with an element for each neighbour of a thread."""
        if self.crew.along is None:
            return name
        buffer = self.draft.kernel.buffer(name)
        layout = row_major((const(self.crew.width),))
        return self.draft.local(name, buffer.dtype, Memory.REG, layout, f"{name} of a thread's neighbours")

    def nodes(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        beside: list[Stmt] = []
        loaded = False
        for stmt in self.nest.body:
            if isinstance(stmt, New):
                nodes.append(Fresh(buffer=self.scalars[stmt.buffer]))
            elif isinstance(stmt, Seq | Par):
                nodes += self._beside(beside)
                nodes += () if loaded else self._loads(stmt)
                one = self.found.at(stmt)
                nodes += self._reduced(one) if one is not None else self._guarded(self._over(stmt, body_of(stmt)))
                beside, loaded = [], True
            else:
                beside.append(stmt)
        return (*nodes, *self._beside(beside))

    def _guarded(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        if self.inside is None or not nodes:
            return tuple(nodes)
        return (Guard(condition=self.inside, body=tuple(nodes), padding=True, span=self.crew.span),)

    # ---- beside the loops ----

    def _beside(self, stmts: Sequence[Stmt]) -> tuple[Node, ...]:
        """Statements between loops: scalars in every thread, elements of arrays by the first of a team."""
        element = self.draft.names.fresh("element")
        nodes: list[Node] = []
        for stmt in stmts:
            own = self._named(
                Body(self.draft, hardware=self.nest.indices, digits=self.crew.own).nodes((stmt,)), element
            )
            nodes += own if is_of_all(stmt, self.own) else self._by_first(own)
        return self._guarded(self.crew.of_each(element, nodes)) if nodes else ()

    def _by_first(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        if self.crew.team == 1:
            return nodes
        first = Compare(op=CompareOp.EQ, left=IndexVar(name=self.crew.team_index), right=ZERO)
        return (Guard(condition=first, body=nodes, span=self.crew.span),)

    def _named(self, nodes: tuple[Node, ...], element: str) -> tuple[Node, ...]:
        """The nodes with the scalars of one of a thread's neighbours."""
        if self.crew.along is None:
            return nodes
        here = (IndexVar(name=element),)
        places: dict[Element, Element] = {(name, ()): (other, here) for name, other in self.scalars.items()}
        return through(nodes, places)

    # ---- the loops ----

    def _reduced(self, one: Reduction) -> tuple[Node, ...]:
        """Each thread's part of a reduction, then those of its team, in every thread."""
        crew, parts = self.crew, dict[str, Part]()
        for update in one.updates:
            is_sum = isinstance(update, Accumulate) and crew.is_long(update)
            short = narrow(update.value).dtype if is_sum and isinstance(update, Accumulate) else None
            parts[update.id] = crew.registers(update, "part", short)
        starts = [node for part in parts.values() for node in crew.started(part, "init")]
        over = self._guarded(self._over(one.over, one.body, parts, one))
        element = self.draft.names.fresh("element")
        body = Body(self.draft, hardware=self.nest.indices, digits=crew.own)
        ends: list[Node] = []
        for update in one.updates:
            final = self._named(crew.final(body, parts[update.id], element), element)
            mine = all(name in self.own for name, _ in targets(update))
            ends += final if mine else self._by_first(final)
        some = where_some([one.over.extent])
        ends = ends if some is None else [Guard(condition=some, body=tuple(ends), span=one.over.span)]
        return (*starts, *over, *in_all(crew, tuple(parts.values())), *self._guarded(crew.of_each(element, ends)))

    def _over(
        self, loop: Member, stmts: tuple[Stmt, ...], parts: dict[str, Part] | None = None, one: Reduction | None = None
    ) -> tuple[Node, ...]:
        """A loop over the columns of a thread: what it holds is read from registers."""
        crew, draft = self.crew, self.draft
        serial = self._serial(loop.index)
        hardware = (*self.nest.indices, loop.index)
        run = None
        if crew.along is not None:
            run = make_run(draft, crew.along.index, crew.along.extent, crew.width, loop.span)
            run = replace(run, first=crew.firsts[crew.along.index])
        reading = stmts
        if one is not None and parts is not None:
            here = () if run is None else (IndexVar(name=run.vector.name),)
            reading = changed(reading, crew.into(parts, one.updates, here))
        reading = self.tile.through(reading, loop.index, serial, run)
        nodes = Body(draft, hardware=hardware, digits=crew.own).nodes(reading)
        if run is not None:
            nodes = self._named(nodes, run.vector.name)
            reads = one.reading if one is not None else stmts
            wide = along(draft.problem, reads, run.index, hardware, self.tile.elements(loop.index)).vectors(run.count)
            nodes = in_run(draft, run, wide, nodes, crew.own)
        return self._looped(loop, loop.index, serial, nodes)

    def _serial(self, index: str) -> tuple[Digit, ...]:
        """The digit that numbers a thread's part of a column."""
        if self.tile.rounds == 1:
            return ()
        name, radix = self.draft.names.fresh(f"{stem(index)}_serial"), const(self.tile.rounds)
        digit = Digit(name=name, index=index, weight=self.crew.team, radix=radix, stride=ONE, place=Place.SERIAL)
        self.draft.digits.append(digit)
        return (digit,)

    def _looped(self, loop: Member, index: str, serial: tuple[Digit, ...], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        extent, team = constant_value(loop.extent), self.crew.team
        if extent is None or extent % (team * self.tile.rounds):
            inside = Compare(op=CompareOp.LT, left=IndexVar(name=index), right=loop.extent)
            nodes = (Guard(condition=inside, body=nodes, padding=True, span=loop.span),)
        own = IndexVar(name=self.crew.team_index) if team > 1 else ZERO
        nodes = (Define(index=index, digits=serial, offset=own), *nodes)
        for digit in serial:
            nodes = (Loop(index=digit.name, extent=digit.radix, body=nodes, digit=digit, unroll=True, span=loop.span),)
        return nodes

    # ---- the loads ----

    def _loads(self, loop: Member) -> tuple[Node, ...]:
        """All that a thread holds, before the first loop."""
        fresh = tuple(Fresh(buffer=name) for name in self.tile.registers.values())
        loads = tuple(node for element in self.tile.registers for node in self._load(element, loop))
        return (*fresh, *self._guarded(loads))

    def _load(self, element: RowElement, loop: Member) -> tuple[Node, ...]:
        crew, draft = self.crew, self.draft
        index, access, each = map(draft.names.fresh, ("held", "access", "element"))
        serial = self._serial(index)
        name, subscripts = named(element, index)
        dtype, width = draft.kernel.buffer(name).dtype, crew.width
        if crew.along is not None:
            width = min(width, element_width(draft.problem, (name, subscripts), crew.along.index))
        several = crew.width > width
        here = add(multiply(const(width), IndexVar(name=access)) if several else ZERO, IndexVar(name=each))
        if crew.along is not None:
            there = add(IndexVar(name=crew.firsts[crew.along.index]), here)
            subscripts = at(subscripts, crew.along.index, there)
        start = multiply(const(crew.width), IndexVar(name=serial[0].name)) if serial else ZERO
        copy = Copy(
            id=draft.names.fresh(f"{index}_load"),
            source=View(buffer=name, subscripts=subscripts, dtype=dtype),
            target=View(buffer=self.tile.registers[element], subscripts=(add(start, here),), dtype=dtype),
            over=(*(((access, const(crew.width // width)),) if several else ()), (each, const(width))),
            access=Access.ALIGNED if width * dtype.size_bytes > 1 else Access.EACH,
            digits=crew.own,
            span=loop.span,
        )
        return self._looped(loop, index, serial, (copy,))
