"""Launches whose threads share out scans (`scan.py`).

    par M i { s = 0; seq N j { s += X[i, j]; Y[i, j] = s } }      256 threads along j, 4 neighbours, 4 rounds
    par N j { s = 0; seq M i { s += X[i, j]; Y[i, j] = s } }      j on 32 lanes; 8 threads with 8 rows each

A block takes tile after tile of its scans (`scan_tile.py`), and hands on the fold. What the program says around scans
all threads do for themselves, where it computes scalars, or the first of those that share a scan. The order of all
folds is fixed, so bits do not depend on timing.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, IndexExpr, IndexVar, New, Read, Stmt
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    ceildiv,
    conjunction,
    const,
    multiply,
    subtract,
    where_some,
)
from texpr.polyhedral.map.digits import Piece, grid_digits, grid_size, numbered, place_on_grid
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import padding_guard, place_in
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.problem import Region, plain_nest
from texpr.polyhedral.map.scan import Scan
from texpr.polyhedral.map.scan_lines import reach, scan_origins
from texpr.polyhedral.map.scan_ring import Ring, ringing, strip_in_ring
from texpr.polyhedral.map.scan_shifted import shifted
from texpr.polyhedral.map.scan_team import Chain, Fold, Team, covered_by_team
from texpr.polyhedral.map.scan_tile import Tiles
from texpr.polyhedral.map.scan_work import Scans, is_wanted, scans
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.candidate import Scanned
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.mapped.places import Digit, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Node


def build_scanned(draft: Draft, region: Region, choice: Scanned) -> Launch:
    """A band, or plain statements, whose scans are shared out."""
    nest, ranges = plain_nest(region)
    found = scans(draft.problem, nest.body, choice.shared_out)
    assert found is not None, "the candidate fits"
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    if not choice.ring:
        return _Launch(Team(draft, region, choice), found, region.name).build()
    form = ringing(draft.problem, nest, found, choice.along)
    assert form is not None, "the candidate fits"
    par = next(par for par in nest.pars if par.index == choice.along)
    strip = strip_in_ring(draft, form, par, choice)
    ring = Ring(draft, choice, form, found.scans[0], strip)
    return _Launch(Team(draft, region, choice, strip), found, region.name, ring).build()


class _Launch:
    """The launch in the making; `inside` cuts what is no iteration of its band."""

    def __init__(self, team: Team, found: Scans, name: str, ring: Ring | None = None) -> None:
        self.team, self.found, self.name, self.ring = team, found, name, ring
        self.draft, self.nest = team.draft, team.nest
        covered = dict(zip(self.nest.indices, team.band.covered, strict=False))
        if team.strip is not None:
            covered[team.strip.columns.index] = team.strip.all_columns(team.ranges)
        shifts = any(shifted(self.draft.problem, self.nest, team.choice, scan) for scan in found.scans)
        names = {} if shifts else team.firsts  # where lanes shift, a row may end among the elements of a thread
        self.inside = padding_guard(self.nest, covered, team.ranges, names)
        if ring is not None:
            self.inside = conjunction([*([self.inside] if self.inside is not None else []), ring.has_column])
        self.turns = ""

    def build(self) -> Launch:
        team, nest, draft = self.team, self.nest, self.draft
        extents = [add(team.ranges[p.index][1], ONE) for p in nest.pars]
        order, covered = [nest.indices.index(i) for i in team.choice.grid], team.band.covered[: len(nest.pars)]
        if team.choice.look_back:
            grid, numbering = self._chained(extents, order)
        else:
            own = list(covered)
            if team.strip is not None:
                dim = nest.pars.index(team.strip.columns)
                own[dim] = team.strip.own
                extents[dim] = multiply(const(own[dim]), team.strip.number(extents[dim]))
            grid = grid_digits(nest.indices, extents, own, order, draft.names, draft.target, team.span)
            numbering = ()
        body: list[Node] = []
        for par, block, mine in zip(nest.pars, grid, team.band.digits, strict=False):
            digits: tuple[Digit, ...] = (block,) if block else ()
            offset: IndexExpr = ZERO
            if (
                team.strip is not None and par is team.strip.columns
            ):  # what is counted from where a strip begins overlaps
                body.append(Define(index=team.strip.first, digits=digits))
                digits, offset = (), IndexVar(name=team.strip.first)
            name = team.firsts.get(par.index, par.index)
            body.append(Define(index=name, digits=(*digits, *reversed(mine)), offset=offset))
        body.append(Define(index=team.member, digits=tuple(reversed(team.band.digits[-1]))))
        body += team.stand if team.team > 1 else ()
        body += numbering
        body += self._body()
        used = tuple(d for d in grid if d)
        return Launch(
            name=self.name,
            grid=grid_size(used),
            threads=team.choice.threads,
            min_blocks=team.choice.resident,
            turns=self.turns,
            digits=used,
            body=tuple(body),
            span=team.span,
        )

    def _chained(
        self, extents: Sequence[IndexExpr], order: Sequence[int]
    ) -> tuple[tuple[Digit | None, ...], tuple[Node, ...]]:
        """Grid digits of the band and, slowest, of the tiles of its scan, and nodes that say where a block stands."""
        team, draft, fresh = self.team, self.draft, self.draft.names.fresh
        (scan,) = self.found.scans
        origin = scan_origins(draft.problem, self.nest, team.choice, scan).get(scan.index)
        needed = ceildiv(reach(draft.problem, scan, origin), covered_by_team(team.choice, scan.index))
        parts = add(ONE, at_least_zero(subtract(needed, ONE)))
        part = fresh("part")
        pieces = [self._piece(n, extents[n]) for n in order]
        pieces.append(Piece(index=part, radix=parts, weight=1))
        found = place_on_grid(pieces, draft.names, draft.target, team.span, together=len(pieces))
        grid = dict(zip((*order, len(order)), found, strict=True))
        nodes = list(numbered(found[:-1], draft.names))
        again = [digit for node in nodes for digit in node.digits]
        draft.digits += again
        last = found[-1]
        if last is not None:
            at, tiles = (IndexVar(name=node.index) for node in nodes), (digit.radix for digit in again)
            team.chain = Chain(part=part, parts=parts, at=tuple(at), tiles=tuple(tiles))
            nodes.append(Define(index=part, digits=(last,)))
            self.turns = fresh("turns")
            draft.words.append(Words(name=self.turns, shape=(), init=Init.ZERO_EACH_CALL))
        return tuple(grid[n] for n in range(len(order) + 1)), tuple(nodes)

    def _piece(self, dim: int, extent: IndexExpr) -> Piece:
        """The grid digit of a dimension of the band."""
        team, own = self.team, self.team.band.covered[dim]
        radix = ceildiv(at_least_zero(extent), own)
        if team.strip is not None and self.nest.pars[dim] is team.strip.columns:
            radix, own = team.strip.number(extent), team.strip.own
        return Piece(index=self.nest.indices[dim], radix=radix, weight=own)

    def _body(self) -> list[Node]:
        """The scans, and what the program says before, between and behind them."""
        nodes: list[Node] = []
        before: tuple[Scan, tuple[Fold, ...]] | None = None
        stmts: list[Stmt] = []
        for number, stmt in enumerate(self.found.stmts):
            scan = self.found.at(stmt)
            if scan is None:
                stmts.append(stmt)
                continue
            behind = self.found.stmts[number + 1 :]
            after = scan, tuple(self.team.fold(scan, carrier) for carrier in scan.carriers)
            nodes += [Fresh(buffer=fold.before) for fold in after[1]]
            nodes += self._between(before, stmts, after, (*stmts, *self.found.stmts[number:]))
            wanted = any(self._is_wanted(fold, behind) for fold in after[1])
            nodes += Tiles(self.team, scan, after[1], self.inside, self.ring).nodes(handed_on=wanted)
            before, stmts = after, []
        return [*nodes, *self._between(before, stmts, None, tuple(stmts))]

    def _is_wanted(self, fold: Fold, behind: Sequence[Stmt]) -> bool:
        """Whether somebody asks for what a scan leaves."""
        return is_wanted(self.draft.problem, self.found, fold.carrier, behind)

    def _between(
        self,
        before: tuple[Scan, tuple[Fold, ...]] | None,
        stmts: Sequence[Stmt],
        after: tuple[Scan, tuple[Fold, ...]] | None,
        rest: Sequence[Stmt],
    ) -> tuple[Node, ...]:
        """Behind one scan and before another one, for each element of a thread: the elements that carriers leave, the
        statements, and those that carriers begin with; what is in memory after all that may write there."""
        element = self.draft.names.fresh("element")
        at = self.team.of_thread(element)
        nodes: list[Node] = [Fresh(buffer=stmt.buffer) for stmt in stmts if isinstance(stmt, New)]
        last: list[Node] = []
        if before is not None:
            scan, folds = before
            for fold in folds:
                nodes += self._guarded(self._left(scan, fold, at)) if self._is_wanted(fold, rest) else ()
        for stmt in (s for s in stmts if not isinstance(s, New)):
            nodes += self._guarded(self._beside(stmt, behind=before is not None))
        if after is not None:
            scan, folds = after
            for fold in folds:
                own = nodes if fold.carrier.first[0] in self.found.alike else last
                own += self._start(scan, fold, at)
        return (*self._each(element, tuple(nodes)), *self._each(element, tuple(last)))

    def _start(self, scan: Scan, fold: Fold, at: tuple[IndexExpr, ...]) -> tuple[Node, ...]:
        """The fold before the first iteration."""
        carrier, nodes = fold.carrier, list[Node]()
        buffer, subscripts = carrier.first
        declared = self.draft.kernel.buffer(buffer).dtype
        value = as_type(
            Read(buffer=buffer, subscripts=subscripts, dtype=declared, span=carrier.update.span), carrier.dtype
        )
        start = self.team.bind(fold, "before", fold.before, at, value, digits=self.team.alike.digits)
        start = replace(start, unused=self.team.alike.unused)
        some = where_some([scan.loop.extent]) if subscripts else None
        elsewhere = self.team.chain is not None and buffer not in self.found.alike
        if some is not None or self.inside is not None or elsewhere:
            nodes.append(
                self.team.bind(fold, "none", fold.before, at, self.team.nothing(fold, carrier.dtype), Origin.INIT)
            )
        body: tuple[Node, ...] = (start,)
        if some is not None:
            body = (Guard(condition=some, body=body, span=self.team.span),)
        body = self._guarded(body)
        return (*nodes, *(self._in_part(body, behind=False) if elsewhere else body))

    def _beside(self, stmt: Stmt, *, behind: bool) -> tuple[Node, ...]:
        """A statement beside the scans, before or behind the first."""
        team, hardware = self.team, self.nest.indices
        if self.found.is_alike(stmt):
            return Body(self.draft, hardware=hardware, digits=team.alike.digits, unused=team.alike.unused).nodes(
                (stmt,)
            )
        return self._by_first(Body(self.draft, hardware=hardware, digits=team.own).nodes((stmt,)), behind=behind)

    def _guarded(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """What is run for iterations of the band only."""
        if self.inside is None:
            return tuple(nodes)
        return (Guard(condition=self.inside, body=tuple(nodes), padding=True, span=self.team.span),)

    def _each(self, element: str, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes for each element of a thread."""
        across = self.team.across
        if across is None or not nodes:
            return nodes
        first = IndexVar(name=self.team.firsts[across.index])
        digit = Digit(
            name=element, index=across.index, weight=1, radix=const(self.team.width), stride=ONE, place=Place.VECTOR
        )
        self.draft.digits.append(digit)
        define = Define(index=across.index, digits=(digit,), offset=first)
        return self.team.unrolled(digit, (define, *nodes))

    def _left(self, scan: Scan, fold: Fold, at: tuple[IndexExpr, ...]) -> list[Node]:
        """The element that has what iterations handed on."""
        carrier = fold.carrier
        buffer, subscripts = carrier.every
        declared = self.draft.kernel.buffer(buffer).dtype
        value = as_type(self.team.read(fold, fold.before, at), declared)
        node: Node = self.team.bind(fold, "out", buffer, subscripts, value)
        if buffer in self.found.alike:
            return [*([Fresh(buffer=buffer)] if self.team.across is not None else []), node]
        some = where_some([scan.loop.extent]) if subscripts else None
        if some is not None:
            node = Guard(condition=some, body=(node,), span=self.team.span)
        return list(self._by_first((node,), behind=True))

    def _by_first(self, nodes: tuple[Node, ...], *, behind: bool) -> tuple[Node, ...]:
        """What one thread does for all that share its scans: of the first block before them, of the last one behind."""
        if self.team.team == 1:
            return nodes
        return self._in_part((Guard(condition=self.team.is_first, body=nodes, span=self.team.span),), behind=behind)

    def _in_part(self, nodes: tuple[Node, ...], *, behind: bool) -> tuple[Node, ...]:
        """The nodes in the first of the blocks that share a scan, or in the last."""
        chain = self.team.chain
        if chain is None:
            return nodes
        there = subtract(chain.parts, ONE) if behind else ZERO
        condition = Compare(op=CompareOp.EQ, left=IndexVar(name=chain.part), right=there)
        return (Guard(condition=condition, body=nodes, uniform=Scope.BLOCK, span=self.team.span),)
