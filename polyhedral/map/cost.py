"""What a candidate costs, item by item, at the representative sizes: the terms by which candidates are compared.

    matmul_0   4096 blocks of 256 threads   2 waves   0 % idle   34.1e6 sectors, of 33.6e6 at best

Sectors are those of 32 bytes that a warp's requests of global memory touch, times how often they are made: an access
inside a loop counts for each turn, but the element of an accumulation, which a register carries, for none. No cache is
modelled. On a CPU it counts how many accesses step by at most one element in the innermost loop.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any, assert_never

from texpr.grammar.ast import Gather, If, Par, Seq, Stmt
from texpr.grammar.index.expr import ONE, ZERO, subtract
from texpr.grammar.index.interval import Ranges, index_range
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest, bounded_nest, is_serial_par
from texpr.polyhedral.map.block_sizes import band_sizes
from texpr.polyhedral.map.choose_panels import panel_accesses
from texpr.polyhedral.map.column_work import body_of, column_held, column_work
from texpr.polyhedral.map.contracted_tiles import DEEP, bringing
from texpr.polyhedral.map.contraction import contracted_nest, contraction
from texpr.polyhedral.map.core_costs import core_accesses
from texpr.polyhedral.map.crew import covered_by_block, team_of
from texpr.polyhedral.map.held import RowElement, held_rows, named, row_origins
from texpr.polyhedral.map.lines import origins
from texpr.polyhedral.map.matrix_product import product_of_any_rows
from texpr.polyhedral.map.objective import WeightedAccess, footprint
from texpr.polyhedral.map.problem import Problem, Region, declared, plain_nest
from texpr.polyhedral.map.product_work import product_work
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.requests import Request, Runs, blocks_of, flat_runs, lanes_of
from texpr.polyhedral.map.row_runs import across_rows
from texpr.polyhedral.map.rows_beside import of_all_rows
from texpr.polyhedral.map.scan_lines import scan_origins
from texpr.polyhedral.map.scan_team import covered_by_team
from texpr.polyhedral.map.scan_work import scans
from texpr.polyhedral.map.summed import along_steps
from texpr.polyhedral.map.tally import elements, tally
from texpr.polyhedral.map.tiles import load_lanes, load_units, owned, run_units, staged, tile_lanes
from texpr.polyhedral.map.windows import once_each
from texpr.polyhedral.map.work import shared_nest, work
from texpr.polyhedral.mapped.candidate import (
    Blocks,
    Candidate,
    Choice,
    Columns,
    Combined,
    Contracted,
    Deal,
    Flat,
    Parted,
    Row,
    Scanned,
    Single,
    Tallied,
    Tiled,
)
from texpr.polyhedral.mapped.on_cores import Cores, Panels
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.ringed import Ringed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """`blocks` of `threads` run in `waves` on a GPU's multiprocessors; `idle` is the share of threads beyond an extent.
    `requests` are warps' requests of global memory with `sectors` of them, `ideal` at least; on a CPU every access is a
    request, and a sector where it is not contiguous. `updates` are those of single elements of global memory that data
    tells, or at the ends of blocks, which wait for one another; `made` are products on tensor cores, of one
    multiprocessor, at their best rate. A thread has `ahead` accesses on their way, where its choice says so."""

    blocks: int
    threads: int
    waves: int
    idle: float
    requests: int
    sectors: int
    ideal: int
    updates: int = 0
    made: int = 0
    ahead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of every launch, by name. How often the host repeats one does not count: it is the same for all."""

    launches: Mapping[str, LaunchCost]

    @property
    def sectors(self) -> int:
        return sum(launch.sectors for launch in self.launches.values())


def cost(problem: Problem, candidate: Candidate) -> Cost:
    """The cost of a candidate that fits the problem."""
    launches = {r.name: launch_cost(problem, r, candidate.launches[r.name]) for r in problem.regions()}
    return Cost(launches=launches)


def launch_cost(problem: Problem, region: Region, choice: Choice) -> LaunchCost:
    """The cost of a launch by a choice that fits the problem."""
    match choice:
        case Single():
            return _counted(problem, 1, 1, 0.0, _alone(problem, region.stmts, {}, 1))
        case Cores():
            return _on_cores(*core_accesses(problem, *region.nest, choice))
        case Panels():
            return _on_cores(*panel_accesses(problem, region, choice))
        case Flat():
            nest, ranges = region.nest
            sizes = band_sizes(problem, nest, ranges)
            each = {i: choice.taken.get(i, 1) * choice.turns.get(i, 1) for i in nest.indices}
            blocks, idle = blocks_of(nest, sizes, choice.deal, each)
            warps = -(-blocks * choice.threads * choice.runs // problem.target.warp_size)
            lanes = lanes_of(problem, nest.indices, choice.deal, choice.taken)
            runs = flat_runs(problem, nest, choice)
            found = once_each(problem, nest, choice, ranges, warps)
            return _counted(problem, blocks, choice.threads, idle, runs.requests(found, lanes))
        case Columns():
            return _columns(problem, *region.nest, choice)
        case Combined():
            nest, ranges = region.nest
            extents = dict(zip(nest.indices, band_sizes(problem, nest, ranges), strict=True))
            covered = choice.threads * choice.rounds * choice.widths.get(choice.over, 1)
            parts = {i: -(-n // covered) if i == choice.over else n for i, n in extents.items()}
            blocks = prod(min(n, choice.blocks.get(i, n)) for i, n in parts.items())
            warps = prod(parts.values()) * choice.rounds * -(-choice.threads // problem.target.warp_size)
            lanes = lanes_of(problem, (choice.over,), ((choice.over, choice.threads),), choice.widths)
            idle = 1 - extents[choice.over] / (parts[choice.over] * covered)
            found = problem.accesses(nest.body, ranges, weight=warps)
            runs = Runs(problem, nest.body, nest.indices, choice.widths)
            return _counted(problem, blocks, choice.threads, idle, runs.requests(found, lanes))
        case Contracted():
            return _contracted(problem, region, choice)
        case Piped() | Ringed():
            return _multiplied(problem, region, choice)
        case Tiled():
            nest, ranges = region.nest
            extents = dict(zip(nest.indices, band_sizes(problem, nest, ranges), strict=True))
            blocks = prod(
                -(-n // own) for n, own in zip(extents.values(), owned(problem, nest, choice).values(), strict=True)
            )
            idle = 1 - prod(extents.values()) / (blocks * prod(choice.tile.values()))
            return _counted(problem, blocks, choice.threads, idle, _tiled(problem, nest, ranges, choice, blocks))
        case Parted():
            nest, ranges = shared_nest(region, choice.shared_out)
            return _parted(problem, nest, ranges, choice)
        case Tallied():
            return _tallied(problem, *region.nest, choice)
        case Scanned():
            return _scanned(problem, *plain_nest(region), choice)
        case Blocks():
            nest, ranges = region.nest
            blocks = prod(band_sizes(problem, nest, ranges))
            inside = _Inside(problem, choice, nest).visit(nest.body, ranges, blocks)
            return _counted(problem, -(-blocks * choice.cluster // choice.together), choice.threads, 0.0, inside)
        case _:
            assert_never(choice)


def _multiplied(problem: Problem, region: Region, choice: Piped | Ringed) -> LaunchCost:
    """Whole rows of tiles are brought: no lanes ask for anything else."""
    product = product_of_any_rows(problem, region, boxes=isinstance(choice, Piped), across=choice.across)
    assert product is not None, "the candidate fits"
    work = product_work(problem, product, choice)
    return replace(_counted(problem, work.blocks, choice.threads, work.idle, iter(())), made=work.made)


def _contracted(problem: Problem, region: Region, choice: Contracted) -> LaunchCost:
    """The requests that bring the factors; whatever is around the sums is little."""
    nest = contracted_nest(region)
    one = contraction(problem, nest, choice)
    assert one is not None, "the candidate fits"
    sizes = [problem.representative(side.extent, {}) for side in one.blocked]
    blocks = prod(-(-n // choice.tile.get(side.index, 1)) for side, n in zip(one.blocked, sizes, strict=True))
    steps = -(-problem.representative(one.extent, {}) // choice.depth)
    warps, requests = -(-choice.threads // problem.target.warp_size), list[Request]()
    for side in choice.tile:
        own = bringing(problem, one, choice, side)
        access = problem.access(*own.factor.element, width=own.width)
        shares = choice.tile[side] * choice.depth // (own.width * choice.threads)
        ways = {DEEP: along_steps(one, choice.depth).index}
        pieces = tuple((ways.get(way, way), n) for way, n in own.pieces)
        each = {ways.get(way, way): own.each(way) for way, _ in own.pieces}
        indices = tuple(dict.fromkeys(index for index, _ in pieces))
        found = lanes_of(problem, indices, pieces, each)
        requests.append(Request(access, found, blocks * steps * warps * shares))
    idle = 1 - prod(sizes) / (blocks * prod(choice.tile.values()))
    return _counted(problem, blocks * choice.parts, choice.threads, idle, iter(requests))


def _tiled(problem: Problem, nest: Nest, ranges: Ranges, choice: Tiled, blocks: int) -> Iterator[Request]:
    """The requests that fill tiles, and those of their runs."""
    warps, found = blocks * -(-choice.threads // problem.target.warp_size), staged(problem, nest, choice)
    for one in found:
        units, each = load_units(choice, one), {choice.along: one.along, choice.across: one.across}
        times = warps * one.along * -(-prod(units.values()) // choice.threads)
        lanes = load_lanes(problem, nest, choice)
        access = problem.access(*one.element, width=one.across)
        yield Request(access, tile_lanes(problem, nest, units, choice.threads, each, lanes), times)
    units, held = run_units(choice), {(id(problem.layouts[one.element[0]]), one.element[1]) for one in found}
    weight = warps * (prod(units.values()) // choice.threads)
    others = problem.accesses(nest.body, ranges, without=declared(nest.body), weight=weight)
    others = [access for access in others if (id(access.layout), access.subscripts) not in held]
    widths = {index: n for index, n in choice.widths.items() if index == choice.along}
    runs = Runs(problem, nest.body, nest.indices, widths, origins(problem, nest, choice.lines))
    yield from runs.requests(others, tile_lanes(problem, nest, units, choice.threads, widths))


def _alone(problem: Problem, stmts: tuple[Stmt, ...], ranges: Ranges, times: int) -> Iterator[Request]:
    """The requests of one thread."""
    found = problem.accesses(stmts, ranges, without=declared(stmts), weight=times)
    return (Request(access, {}, access.weight) for access in found)


class _Inside:
    """The requests of the threads of blocks; accesses to the launch's own locals do not count."""

    def __init__(self, problem: Problem, choice: Blocks, band: Nest) -> None:
        self.problem, self.choice = problem, choice
        self.outer, self.own = band.indices, declared(band.body)
        self.warps = -(-choice.team * choice.cluster // problem.target.warp_size)
        self.origins = row_origins(problem, band.body, choice.rows)
        self.rows, self.loaded = held_rows(problem, band.body, choice), set[tuple[Row, RowElement]]()

    def visit(self, stmts: tuple[Stmt, ...], ranges: Ranges, times: int) -> Iterator[Request]:
        for stmt in stmts:
            match stmt:
                case Par(index=index) if not is_serial_par(stmt):
                    nest, known = bounded_nest(stmt)
                    deal, widths = self.choice.inner[index], self.choice.widths
                    rounds, _ = blocks_of(nest, band_sizes(self.problem, nest, known, ranges), deal, widths)
                    lanes = lanes_of(self.problem, nest.indices, deal, widths)
                    times_inside = times * -(-rounds // self.choice.cluster) * self.warps
                    yield from self._requests(nest.body, {**ranges, **known}, lanes, times_inside, nest.indices)
                case Seq(index=index, extent=extent) if index in self.choice.shared_out:
                    widths = self.choice.widths
                    covered = self.choice.team * self.choice.cluster * widths.get(index, 1)
                    rounds = -(-self.problem.representative(extent, ranges) // covered)
                    lanes = lanes_of(self.problem, (index,), ((index, self.choice.team),), widths)
                    yield from self._requests(stmt.body, ranges, lanes, times * rounds * self.warps, (index,))
                case Seq(index=index, extent=extent, body=body):
                    inside = index_range(extent, ranges)
                    turns = self.problem.representative(extent, ranges)
                    yield from self.visit(body, {**ranges, index: inside} if inside else ranges, times * turns)
                case If(then=then, orelse=orelse):
                    yield from self.visit(then + orelse, ranges, times)
                case _:
                    yield from self._requests((stmt,), ranges, {}, times)

    def _requests(
        self,
        stmts: tuple[Stmt, ...],
        ranges: Ranges,
        lanes: Mapping[str, Any],
        times: int,
        indices: tuple[str, ...] = (),
    ) -> Iterator[Request]:
        found = self.problem.accesses(stmts, ranges, without=self.own, weight=times)
        found = [access for access in found if not (indices and self._is_held(access, indices[0]))]
        return Runs(self.problem, stmts, self.outer + indices, self.choice.widths, self.origins).requests(found, lanes)

    def _is_held(self, access: WeightedAccess, index: str) -> bool:
        """Whether a row has the element already: only the first access to it loads it."""
        if index not in self.rows:
            return False
        row, held = self.rows[index]
        for element in held.reads[index]:
            if (access.buffer, access.subscripts) == named(element, index) and not access.writes:
                known = (row, element) in self.loaded
                self.loaded.add((row, element))
                return known
        return False


def _counted(problem: Problem, blocks: int, threads: int, idle: float, requests: Iterator[Request]) -> LaunchCost:
    resident = problem.target.multiprocessors * max(1, problem.target.resident_threads // threads)
    made = sectors = ideal = updates = 0
    for request in requests:
        if request.access.update:
            gathered = any(isinstance(subscript, Gather) for subscript in request.access.subscripts)
            updates += problem.target.warp_size * request.times if gathered else 0
            continue
        fixed = {**dict.fromkeys(request.lanes, 0), **problem.sizes}
        found = footprint(request.access, request.lanes, fixed)
        made += request.times
        sectors += request.times * (problem.target.warp_size if found is None else found.sectors)
        ideal += request.times * (1 if found is None else found.ideal)
    waves = -(-blocks // resident)
    return LaunchCost(
        blocks=blocks,
        threads=threads,
        waves=waves,
        idle=idle,
        requests=made,
        sectors=sectors,
        ideal=ideal,
        updates=updates,
    )


def _parted(problem: Problem, nest: Nest, ranges: Ranges, choice: Parted) -> LaunchCost:
    """Blocks times parts; the requests of the reductions, whatever is before and after them is little."""
    found = work(problem, nest.body, choice.shared_out)
    assert found is not None, "the candidate fits"
    blocks, idle = blocks_of(nest, band_sizes(problem, nest, ranges), choice.deal, choice.taken)
    shared = [_shared_out(problem, nest, ranges, choice, one, blocks) for one in found.reductions]
    requests = (request for _, own in shared for request in own)
    paid = _counted(problem, blocks * max(parts for parts, _ in shared), choice.threads, idle, requests)
    return replace(paid, ahead=choice.ahead)


def _shared_out(
    problem: Problem, nest: Nest, ranges: Ranges, choice: Parted, one: Reduction, blocks: int
) -> tuple[int, Iterator[Request]]:
    """Among how many parts a reduction is shared out, and its requests."""
    sizes, known = problem.loop_sizes(one.loops, ranges)
    times, over, parts = blocks, one.over.index, 1
    for index, size in sizes.items():
        covered = covered_by_block(one, choice, index)
        if index in choice.blocks:
            parts = min(choice.blocks[index], -(-size // covered))
        times *= -(-size // (covered // choice.ahead)) if index == over else size
    times *= -(-choice.threads // problem.target.warp_size)
    lanes = lanes_of(problem, (*nest.indices, over), (*choice.deal, (over, team_of(choice))), choice.taken)
    reads = problem.accesses(one.body, known, without=declared(nest.body), weight=times)
    hardware = (*nest.indices, *one.indices)
    across = {run.wide.element: run for run in across_rows(problem, one, choice, hardware)}
    alone = [access for access in reads if (access.buffer, access.subscripts) not in across]
    wide = (
        Request(replace(access, width=run.wide.width), lanes, access.weight * run.accesses(choice))
        for access in reads
        if (run := across.get((access.buffer, access.subscripts))) is not None
    )
    runs = Runs(problem, one.reading, hardware, choice.widths)
    return parts, chain(runs.requests(of_all_rows(choice, alone), lanes), wide)


def _columns(problem: Problem, nest: Nest, ranges: Ranges, choice: Columns) -> LaunchCost:
    """The requests of the loops, of which the first to read a column loads it."""
    found, team = column_work(problem, nest), team_of(choice.shared)
    held = column_held(problem, nest, found, team) if found is not None else None
    assert found is not None and held is not None, "the candidate fits"
    deal: Deal = ((choice.across, choice.lanes),)
    blocks, idle = blocks_of(nest, band_sizes(problem, nest, ranges), deal, choice.widths)
    times = held.rounds * blocks * -(-choice.threads // problem.target.warp_size)
    loaded, requests = set[RowElement](), list[Request]()
    for loop in found.loops:
        body, indices = body_of(loop), (*nest.indices, loop.index)
        known = {**ranges, loop.index: (ZERO, subtract(loop.extent, ONE))}
        lanes = lanes_of(problem, indices, (*deal, (loop.index, team)), choice.widths)
        here = {named(element, loop.index): element for element in held.reads.get(loop.index, ())}
        reads = problem.accesses(body, known, without=declared(nest.body), weight=times)
        fresh = [a for a in reads if here.get((a.buffer, a.subscripts)) not in loaded]
        loaded.update(here.values())
        requests += Runs(problem, body, indices, choice.widths).requests(fresh, lanes)
    return _counted(problem, blocks, choice.threads, idle, iter(requests))


def _tallied(problem: Problem, nest: Nest, ranges: Ranges, choice: Tallied) -> LaunchCost:
    """The requests of the iterations, and the updates with which blocks end."""
    found = tally(problem, nest, choice.over)
    assert found is not None, "the candidate fits"
    alone = Nest(pars=(), body=nest.body)
    parts, requests = _shared_out(problem, alone, ranges, choice.shared_out, found, 1)
    copied = sum(elements(problem.kernel.buffer(name)) or 0 for name in choice.copies)
    others = (request for request in requests if request.access.buffer not in choice.copies)
    paid = _counted(problem, parts, choice.threads, 0.0, others)
    return replace(paid, updates=paid.updates + parts * copied)


def _scanned(problem: Problem, nest: Nest, ranges: Ranges, choice: Scanned) -> LaunchCost:
    """The requests of the scans; whatever stands around them is little."""
    found = scans(problem, nest.body, choice.shared_out)
    assert found is not None, "the candidate fits"
    blocks, idle = blocks_of(nest, band_sizes(problem, nest, ranges), choice.deal, choice.widths)
    warps = blocks * -(-choice.threads // problem.target.warp_size)
    team, requests = team_of(choice), list[Request]()
    for one in found.scans:
        size = problem.representative(one.loop.extent, ranges)
        times = warps * choice.ahead * -(-size // covered_by_team(choice, one.index))
        own, indices = ((one.index, team),), (*nest.indices, one.index)
        deal = (*own, *choice.deal) if choice.along in choice.shared_out else (*choice.deal, *own)
        each = choice.widths if choice.along in choice.shared_out else {**choice.widths, one.index: choice.ahead}
        lanes = lanes_of(problem, indices, deal, each)
        without = declared(nest.body).union(carrier.name for carrier in one.carriers)
        reads = problem.accesses(one.body, ranges, without=without, weight=times)
        runs = Runs(problem, one.body, indices, choice.widths, scan_origins(problem, nest, choice, one))
        requests += runs.requests(reads, lanes)
    return _counted(problem, blocks, choice.threads, idle, iter(requests))


def _on_cores(tasks: int, accesses: int, far: int) -> LaunchCost:
    """A CPU's launch, with accesses that are contiguous or not."""
    return LaunchCost(blocks=tasks, threads=1, waves=1, idle=0.0, requests=accesses, sectors=far, ideal=0)
