"""One tile of a scan: the iterations that a block takes at a time, behind a fold of all before them.

    X_run[q, e] = X[j_first + 1024*q + e]                                          all loads first
    total_terms[q, e] = X_run[q, e]                                                what an iteration adds
    total_part[q] = Sum of total_terms[q, e] ;  total_lanes[q] = Sum before total_part[q] over the lanes
    total_slots[q, unit] = total_part[q] + total_lanes[q]                          by the last lane; barrier
    for each q, each unit: total_start[q] = total_tile where it is one's own ;  total_tile += total_slots[q, unit]
    total_now = total_before + total_start[q] + total_lanes[q] ;  the iterations of q as the program has them

Where lanes lie across the scans, a thread's iterations follow one another: it folds all of each of its elements, and a
unit is one thread.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from texpr.grammar.ast import (
    Compare,
    CompareOp,
    Condition,
    IndexVar,
    Or,
)
from texpr.grammar.index.expr import (
    ONE,
    add,
    at_least_zero,
    ceildiv,
    conjunction,
    const,
    constant_value,
    multiply,
    subtract,
)
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.lines import LINE_BYTES, lead_of
from texpr.polyhedral.map.rounded_stores import unrounded
from texpr.polyhedral.map.runs import (
    Copies,
    Line,
    Run,
    each_of,
    is_harmless,
    loads_of,
    registers_of,
    rounds_inside,
    stores_of,
    through,
)
from texpr.polyhedral.map.scan import Scan, without_unread
from texpr.polyhedral.map.scan_columns import before_each
from texpr.polyhedral.map.scan_lines import adds_nothing, reach, scan_origins
from texpr.polyhedral.map.scan_loads import in_one, reads_early
from texpr.polyhedral.map.scan_ring import Ring
from texpr.polyhedral.map.scan_shifted import AllRows, Rows, shifted
from texpr.polyhedral.map.scan_split import begin, each_element, whole
from texpr.polyhedral.map.scan_stmts import as_now, as_terms, is_top
from texpr.polyhedral.map.scan_team import Fold, Team, choice_width, covered_by_team
from texpr.polyhedral.map.scan_units import Registers, of_terms, parts_of
from texpr.polyhedral.map.scan_work import rounded_late
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.vectors import Element, Wide, along
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.mapped.places import Digit, Place, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import map_nodes
from texpr.polyhedral.names import stem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One of the times that a thread goes over its iterations: the digits of rounds and of neighbours."""

    round: Digit | None
    vector: Digit | None
    run: Run | None

    @property
    def place(self) -> Registers:
        """The registers of an iteration."""
        return tuple(IndexVar(name=d.name) for d in (self.round, self.vector) if d is not None)


class Tiles:
    """The tiles of one scan, whose carriers have these folds."""

    def __init__(
        self, team: Team, scan: Scan, folds: Sequence[Fold], inside: Condition | None, ring: Ring | None = None
    ) -> None:
        self.team, self.scan, self.folds, self.inside, self.ring = team, scan, folds, inside, ring
        self.draft, self.choice = team.draft, team.choice
        self.ahead, self.own_width = team.choice.ahead, choice_width(team.choice, scan)
        self.neighbours = team.width if team.across is not None else self.own_width
        self.chunks = self.ahead if team.is_along else team.width
        self.inner = self.own_width if team.is_along else self.ahead
        self.covered = covered_by_team(team.choice, scan.index)
        self.hardware = (*team.nest.indices, scan.index)
        problem, extent = self.draft.problem, constant_value(scan.loop.extent)
        self.origin = scan_origins(problem, team.nest, self.choice, scan).get(scan.index)
        self.line = None if self.origin is None else Line(lead=self.draft.names.fresh("lead"))
        self.exact = extent is not None and extent % self.covered == 0 and self.line is None
        self.count = ceildiv(at_least_zero(reach(problem, scan, self.origin)), self.covered)
        self.single = self.count == const(1) and team.chain is None
        self.first = self.draft.names.fresh(f"{stem(scan.index)}_first")
        self.step = team.team * self.own_width if team.is_along else 1
        self.moved: tuple[Wide, ...] = ()
        self.registers: dict[Element, str] = {}
        self.late = frozenset[Element]()
        self.tile = ""  # the index of tiles, where a block has several
        self.loaded = False  # what there is no iteration for is 0 in registers
        if self.neighbours > 1:
            loop = team.across or scan.loop
            found = along(problem, scan.body, loop.index, self.hardware, origin=self.origin)
            self.moved = found.vectors(self.neighbours).wide
        if moved := shifted(problem, team.nest, self.choice, scan):  # all lanes come together
            self.moved, self.inside = moved, None

    def nodes(self, *, handed_on: bool) -> list[Node]:
        """All tiles, one after the other; `handed_on`: the folds are wanted behind them."""
        scan, draft, count, chain = self.scan, self.draft, self.count, self.team.chain
        several = not self.single and chain is None
        each = self.own_width if self.team.is_along else self.ahead
        begin = multiply(const(each), IndexVar(name=self.team.member))  # of the first tile
        before: list[Node] = []
        if self.origin is not None and self.line is not None:
            begin = subtract(begin, IndexVar(name=self.line.lead))
            before = [lead_of(draft.problem, self.line.lead, self.origin, scan.index, LINE_BYTES)]
        tile, offset = draft.names.fresh(f"{stem(scan.index)}_tile") if several else "", begin
        self.tile = tile
        if several or chain is not None:
            number = IndexVar(name=tile if chain is None else chain.part)
            offset = add(multiply(const(self.covered), number), begin)
        loads, behind = self._moved_in(), list[Node]()
        if several and self.choice.next_tile and self.loaded and reads_early(self.scan, self.moved):
            first = draft.names.fresh(f"{stem(scan.index)}_first")
            before.append(Define(index=first, digits=(), offset=begin))
            before += [*self._fresh(loads=True), *self._loads(first, self._turn())]
            behind, loads = [self._next_loads(tile)], self._fresh(loads=False)
        body = [Define(index=self.first, digits=(), offset=offset), *loads]
        body += self._tile(behind, handed_on=handed_on or several)
        if several:
            ring = self.ring
            body += ring.turned(tile, count) if ring is not None else ()
            loop = Loop(index=tile, extent=count, body=tuple(body), span=scan.loop.span)
            return [*before, loop] if ring is None else [*before, *ring.filled(tile, count), loop, *ring.over()]
        return [*before, *body]

    def _tile(self, behind: Sequence[Node], *, handed_on: bool) -> list[Node]:
        """What is done with what is loaded; `behind` comes after the terms."""
        nodes, team = list[Node](), self.team
        for fold in self.folds:
            nodes.append(Fresh(buffer=fold.terms))
        nodes += [*self._terms(), *behind]
        for fold in self.folds:
            nodes += parts_of(team, fold, self.chunks, self.inner)
        nodes += before_each(team, self.folds, self.chunks, handed_on=handed_on)
        nodes += self._iterations()
        if handed_on:
            for fold in self.folds:
                nodes += each_element(team, partial(self._next, fold))
        return nodes

    def _moved_in(self) -> list[Node]:
        """The registers of what is moved, and the loads of a tile."""
        if not self.moved:
            return []
        turn, rows = self._turn(), (self.ahead,) if self.ahead > 1 else ()
        assert turn.run is not None, "what is wide is along a run"
        folds = {fold.carrier.name: (fold, ()) for fold in self.folds}
        self.late = rounded_late(self.scan, self.moved, lambda stmt: as_now(self.team, self.scan, stmt, folds, ()))
        self.registers = registers_of(self.draft, turn.run, self.moved, rows, self.late)
        return [*self._fresh(loads=True), *self._fresh(loads=False), *self._loads(self.first, turn)]

    def _fresh(self, *, loads: bool) -> list[Node]:
        """The registers of what is loaded, or of all else that is moved."""
        return [Fresh(buffer=self.registers[wide.element]) for wide in self.moved if wide.loads is loads]

    def _loads(self, first: str, turn: _Turn) -> tuple[Node, ...]:
        """The loads of all rounds of the tile that begins there, before anything else."""
        team = self.team
        assert turn.run is not None, "what is wide is along a run"
        loads = loads_of(Copies(self.draft, turn.run, team.own), self.moved, self.registers)
        if team.across is not None and loads and any(wide.shifted for wide in self.moved):
            rows, self.loaded = AllRows(self.draft, self.scan, team.across, turn.run, first, self.ahead), True
            return rows.brought(loads, self.moved, self.registers, team.own, partial(self._rounds, turn, first=first))
        draft, is_along = self.draft, team.is_along
        together = is_along and in_one(draft, turn.run, loads, first, self.step, self.ahead, single=self.single)
        if not together or self.inside is not None:
            return self._rounds(turn, loads) if loads else ()
        self.loaded = True
        return together

    def _next_loads(self, tile: str) -> Node:
        """The loads of the next tile, where there is one: on their way while this one is folded."""
        first, following = self.draft.names.fresh(f"{stem(self.scan.index)}_next"), add(IndexVar(name=tile), ONE)
        define = Define(index=first, digits=(), offset=add(IndexVar(name=self.first), const(self.covered)))
        more = Compare(op=CompareOp.LT, left=following, right=self.count)
        body = (define, *self._loads(first, self._turn()))
        return Guard(condition=more, body=body, uniform=Scope.BLOCK, span=self.scan.loop.span)

    def _next(self, fold: Fold, at: Registers) -> Node:
        """What is before the next tile."""
        return self.team.combine(fold, "next", fold.before, at, whole(self.team, fold, at))

    # ---- a thread's iterations ----

    def _turn(self) -> _Turn:
        """New digits for one time over a thread's iterations."""
        team, scan = self.team, self.scan
        round_ = team.digit(scan.index, "round", self.step, self.ahead, Place.SERIAL)
        along = team.across or scan.loop
        vector = team.digit(along.index, "vector", 1, self.neighbours, Place.VECTOR)
        if vector is None:
            return _Turn(round=round_, vector=None, run=None)
        row = () if round_ is None else (IndexVar(name=round_.name),)
        first = team.firsts[along.index] if team.across is not None else self.first
        if team.across is None and round_ is not None:
            first = self.draft.names.fresh(f"{stem(scan.index)}_first")
        line = self.line
        if line is not None and round_ is not None and self.single:
            line = replace(line, part=round_.name, covered=self.step)
        run = Run(
            index=along.index,
            extent=along.extent,
            first=first,
            vector=vector,
            count=self.neighbours,
            span=along.span,
            line=line,
            row=row,
        )
        return _Turn(round=round_, vector=vector, run=run)

    def _rounds(
        self,
        turn: _Turn,
        nodes: Sequence[Node],
        before: Sequence[Node] = (),
        *,
        first: str = "",
        orelse: tuple[Node, ...] = (),
        asks: bool = True,
    ) -> tuple[Node, ...]:
        """The nodes for each round of the tile that begins at `first`, of which there are iterations where it `asks`,
        `orelse` for one without, and `before` them what is done for all rounds."""
        name = turn.run.first if turn.run is not None and self.team.across is None else self.scan.index
        digits = (turn.round,) if turn.round is not None else ()
        live = self._live(name, turn) if asks else None
        inside: tuple[Node, ...] = tuple(nodes)
        if live is not None:
            inside = (Guard(condition=live, body=inside, orelse=orelse, padding=True, span=self.scan.loop.span),)
        if name != self.first:
            inside = (Define(index=name, digits=digits, offset=IndexVar(name=first or self.first)), *inside)
        return self.team.unrolled(turn.round, (*before, *inside))

    def _live(self, name: str, turn: _Turn) -> Condition | None:
        """Where a round has iterations."""
        parts, extent = [self.inside] if self.inside is not None else [], self.scan.loop.extent
        if not self.exact:
            begun: Condition = Compare(op=CompareOp.LT, left=IndexVar(name=name), right=extent)
            whole = rounds_inside(self.draft.kernel, extent, self.step) if self.single and self.team.is_along else 0
            if whole and turn.round is not None:
                sure = Compare(op=CompareOp.LT, left=IndexVar(name=turn.round.name), right=const(whole))
                begun = Or(parts=(sure, begun))
            parts.append(begun)
        return conjunction(parts) if parts else None

    def _each(
        self, turn: _Turn, nodes: tuple[Node, ...], moved: Sequence[Wide], spare: Collection[str]
    ) -> tuple[Node, ...]:
        """The nodes for each iteration of a round; what folds take of the others is not theirs to write."""
        if turn.run is None:
            return nodes
        seen = {fold.terms for fold in self.folds if fold.terms not in spare}
        return (each_of(self.draft, turn.run, moved, self.registers, nodes, self.team.own, spare, seen),)

    # ---- the parts of a tile ----

    def _terms(self) -> tuple[Node, ...]:
        """The terms of all iterations, before anything else."""
        turn = self._turn()
        terms = {fold.carrier.update.id: fold for fold in self.folds}
        stmts = tuple(as_terms(self.scan, stmt, terms, turn.place) for stmt in self.scan.terms)
        nodes = Body(self.draft, hardware=self.hardware, digits=self.team.own).nodes(stmts)
        nodes = self._in_ring(map_nodes(nodes, of_terms), turn)
        inits: list[Node] = []
        for fold in self.folds:
            if not self._is_sure(fold):
                name = self.draft.names.fresh("element")
                row = () if turn.round is None else (IndexVar(name=turn.round.name),)
                at = (*row, IndexVar(name=name)) if self.neighbours > 1 else row
                init = self.team.bind(
                    fold, "none", fold.terms, at, self.team.nothing(fold, fold.carrier.term.dtype), Origin.INIT
                )
                inits += self.team.each(name, self.neighbours, (init,))
        moved = [wide for wide in self.moved if wide.loads]
        zeros = {wide.element for wide in moved}  # where there is no iteration
        spare = [fold.terms for fold in self.folds if adds_nothing(fold.carrier, zeros)]
        if self.loaded and turn.run is not None and len(spare) == len(self.folds):
            body = through(nodes, {e: (name, turn.place) for e, name in self.registers.items()})
            if is_harmless(self.draft, turn.run, body, {*self.registers.values(), *spare}):
                return self._rounds(turn, self._each(turn, nodes, moved, spare), asks=False)
        if self.ring is not None and self.ring.is_harmless(nodes):
            return (*self.team.unrolled(turn.round, inits), *self._for_column(self._rounds(turn, nodes, asks=False)))
        return self._rounds(turn, self._each(turn, nodes, moved, spare), inits)

    def _in_ring(self, nodes: tuple[Node, ...], turn: _Turn) -> tuple[Node, ...]:
        """The nodes of an iteration on what goes through a ring."""
        if self.ring is None:
            return nodes
        assert turn.round is not None, "a tile of a ring has several rows"
        round_ = IndexVar(name=turn.round.name)
        row = add(multiply(const(self.ahead), IndexVar(name=self.team.member)), round_)
        return self.ring.through(nodes, self.tile, row, round_)

    def _for_column(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """What is done by threads that have a column."""
        if self.inside is None:
            return nodes
        return (Guard(condition=self.inside, body=nodes, padding=True, span=self.scan.loop.span),)

    def _is_sure(self, fold: Fold) -> bool:
        """Whether there is a term in every register."""
        extent = (self.team.across or self.scan.loop).extent
        whole = self.neighbours == 1 or linear(extent).is_multiple(self.neighbours, self.draft.problem.divisors)
        return is_top(self.scan, fold) and whole and self.exact and self.inside is None

    def _iterations(self) -> list[Node]:
        """The iterations, as the program has them, behind the fold of all before."""
        team, turn = self.team, self._turn()
        element = () if team.across is None or turn.vector is None else (IndexVar(name=turn.vector.name),)
        folds = {fold.carrier.name: (fold, element) for fold in self.folds}
        stmts = without_unread(tuple(as_now(team, self.scan, stmt, folds, turn.place) for stmt in self.scan.body))
        nodes = unrounded(Body(self.draft, hardware=self.hardware, digits=team.own).nodes(stmts), self.late)
        nodes = self._in_ring(nodes, turn)
        inside, asks = self._each(turn, nodes, self.moved, [fold.now for fold in self.folds]), True
        if turn.run is not None:
            copies = stores_of(Copies(self.draft, turn.run, team.own), self.moved, self.registers)
            stores: tuple[Node, ...] = copies
            if team.strip is not None:
                body = through(nodes, {e: (name, turn.place) for e, name in self.registers.items()})
                spare = {*self.registers.values(), *(fold.now for fold in self.folds)}
                asks = not (self.loaded and is_harmless(self.draft, turn.run, body, spare))
                rows = None if asks else Rows.of(self.scan, self.first, self.ahead)
                stores = team.strip.stores(copies, self.moved, turn.run.first, rows)
            inside += stores
        chunk = turn.round.name if turn.round is not None and team.is_along else self.draft.names.fresh("chunk")
        begins = [node for fold in self.folds for node in self._begin(fold, chunk)]
        if team.is_along:
            return list(self._rounds(turn, inside, begins))
        if self.ring is not None and self.ring.is_harmless(nodes):
            return [*begins, *self._for_column(self._rounds(turn, inside, asks=False))]
        return [*begins, *self._rounds(turn, inside, asks=asks)]

    def _begin(self, fold: Fold, chunk: str) -> list[Node]:
        """The fold of all that is before a thread's chunk."""
        team = self.team
        at = (IndexVar(name=chunk),) if self.chunks > 1 else ()
        place = () if team.is_along else at
        before = team.read(fold, begin(fold), place)
        nodes: list[Node] = [team.bind(fold, "now", fold.now, place, before)]
        if team.team > 1:
            nodes.append(team.combine(fold, "now", fold.now, place, team.read(fold, fold.start, at)))
        if team.lanes > 1:
            nodes.append(team.combine(fold, "now", fold.now, place, team.read(fold, fold.lanes, at)))
        return [Fresh(buffer=fold.now), *(nodes if team.is_along else team.each(chunk, self.chunks, nodes))]
