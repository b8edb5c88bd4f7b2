"""Whether a candidate fits a problem: what `build` takes for granted is checked here, for candidates from outside.

It asks the same questions of the program as what proposes candidates (`sharing`, `core_indices`), and checks the
numbers by itself. It refuses what would leave an iteration without a
thread or give it two, split a reduction that cannot be split, make more additions into one partial than promised, or
contradict the author; a memory that is too small is E0403 where the buffers are placed. Errors: E0401.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from math import prod
from typing import NoReturn, assert_never

from texpr.grammar.ast import Accumulate, If, Par, Seq, Stmt
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ONE, add, at_least_zero, ceildiv, names
from texpr.grammar.index.interval import Ranges, most
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.bands import Nest, bounded_nest, fits_threads, has_block_level, is_serial_par
from texpr.polyhedral.map.choose_panels import panel_fault
from texpr.polyhedral.map.choose_patch import are_rows
from texpr.polyhedral.map.columns_fit import columns_faults
from texpr.polyhedral.map.contracted_fits import contracted_fault
from texpr.polyhedral.map.contraction import contracted_nest
from texpr.polyhedral.map.cores_fit import cores_faults
from texpr.polyhedral.map.crew_fits import listed
from texpr.polyhedral.map.digits import is_power_of_two, thread_pieces_fit
from texpr.polyhedral.map.early import able
from texpr.polyhedral.map.hardware_attributes import blocks_fault, check_vectors, threads_asked
from texpr.polyhedral.map.held import NO_ORIGINS, Origins, row_origins
from texpr.polyhedral.map.lasting import fault as l2_fault
from texpr.polyhedral.map.lines import countable, origins
from texpr.polyhedral.map.parted_fits import parted_fault, runs_of
from texpr.polyhedral.map.placement import MAX_THREAD_BYTES, LocalUse, memories
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.reducible import combinable
from texpr.polyhedral.map.ringed_fits import product_fault
from texpr.polyhedral.map.row_clusters import cluster_faults
from texpr.polyhedral.map.rows_fit import row_faults
from texpr.polyhedral.map.scanned_fits import scanned_fault, scanned_runs
from texpr.polyhedral.map.sharing import meeting_bytes, shared_reduction
from texpr.polyhedral.map.staged import check_stages
from texpr.polyhedral.map.strided import reading_of
from texpr.polyhedral.map.tally import tally
from texpr.polyhedral.map.tally_fits import tally_fault
from texpr.polyhedral.map.tiles import tile_fault
from texpr.polyhedral.map.tiles_kept import check_tiles
from texpr.polyhedral.map.uses import local_uses
from texpr.polyhedral.map.warp_each import together_faults
from texpr.polyhedral.map.widths import has_run
from texpr.polyhedral.map.windows import flat_patch
from texpr.polyhedral.map.work import shared_nest
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
    Scanned,
    Single,
    Tallied,
    Tiled,
    widths_of,
)
from texpr.polyhedral.mapped.on_cores import Cores, OnCores, Panels
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.target import Target
from texpr.polyhedral.walk import subscript_names


def check_candidate(problem: Problem, candidate: Candidate) -> None:
    """Raises E0401 for a candidate that is none of this problem."""
    regions = {region.name: region for region in problem.regions()}
    if candidate.launches.keys() != regions.keys():
        found, wanted = ", ".join(candidate.launches), ", ".join(regions)
        raise fail("E0401", f"the candidate has the launches {found or 'none'}; this kernel has {wanted}")
    if not candidate.early <= {*(may := able(problem, candidate.launches))}:
        found, wanted = ", ".join(sorted(candidate.early)), ", ".join(may)
        raise fail("E0401", f"`early`: {found} cannot all begin before others are over, but {wanted or 'none'}")
    if wrong := l2_fault(problem, candidate):
        raise fail("E0401", wrong)
    for name, region in regions.items():
        check_choice(problem, region, candidate.launches[name])


def check_choice(problem: Problem, region: Region, choice: Choice) -> None:
    """Raises E0401 for a choice that does not fit the region."""
    _Check(problem, region).choice(choice)


class _Check:
    """The check of one launch's choice."""

    def __init__(self, problem: Problem, region: Region) -> None:
        self.problem, self.region = problem, region
        self.target: Target = problem.target

    def choice(self, choice: Choice) -> None:
        band = self.region.band
        if not isinstance(choice, Parted | Scanned) and (band is None) != isinstance(choice, Single):
            self._refuse("plain statements are `Single`, `Parted` or `Scanned`, and nothing else is `Single`")
        if isinstance(choice, OnCores) == self.target.is_cuda and not isinstance(choice, Single):
            self._refuse(f"the form {type(choice).__name__} is none of {self.target.name}")
        match choice:
            case Single():
                self._memory(choice.memory, self.region.stmts, block_level=False, outer=(), ranges={})
            case Flat():
                self._flat(choice, *self.region.nest)
            case Blocks():
                self._blocks(choice, *self.region.nest)
            case Columns():
                self._columns(choice, *self.region.nest)
            case Combined():
                self._combined(choice, *self.region.nest)
            case Contracted():
                self._contracted(choice)
            case Piped() | Ringed():
                self._without(product_fault(self.problem, self.region, choice))
                nest, ranges = self.region.nest
                self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)
            case Tiled():
                self._tiled(choice, *self.region.nest)
            case Parted():
                self._parted(choice)
            case Tallied():
                self._tallied(choice, *self.region.nest)
            case Scanned():
                self._scanned(choice, *plain_nest(self.region))
            case Cores():
                self._cores(choice, *self.region.nest)
            case Panels():
                nest = contracted_nest(self.region)
                self._without(panel_fault(self.problem, nest, choice))
                ranges = plain_nest(self.region)[1]
                self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)
            case _:
                assert_never(choice)
        if self.target.is_cuda:
            check_vectors(self.region.stmts, widths_of(choice))
            check_tiles(self.region.stmts, plain_nest(self.region)[0].pars, choice)
            check_stages(self.region.stmts, choice)

    def _flat(self, choice: Flat, nest: Nest, ranges: Ranges) -> None:
        if has_block_level(self.problem.kernel, nest) and not fits_threads(self.problem.kernel, nest):
            self._refuse("its band has work for the threads of a block: `Blocks` gives each iteration one")
        self._threads(choice.threads)
        self._deal(choice.deal, nest, choice.threads, "deal")
        self._lines(choice.lines, choice.widths, nest)
        self._runs(nest, choice.widths, nest.indices, origins(self.problem, nest, choice.lines), strided=True)
        self._known_widths(choice.widths, nest.indices)
        self._grid(choice.grid, nest)
        if not choice.turns.keys() <= set(nest.indices) or min(choice.turns.values(), default=2) < 2:
            self._refuse(f"`turns` says how often, at least twice, a thread comes to any of {listed(nest.indices)}")
        fits = are_rows(nest, choice) or flat_patch(self.problem, nest, choice) is not None
        if choice.patch and (min(choice.patch.values()) < 2 or not fits):
            self._refuse("`patch` says of which index beside a run a thread takes rows, at least 2, that share reads")
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _lines(self, counted: Mapping[str, str], widths: Mapping[str, int], nest: Nest) -> None:
        """Runs are counted from lines of what an iteration writes along their index."""
        for index, name in counted.items():
            able = countable(self.problem, nest, index) if index in widths else {}
            if name not in able:
                self._refuse(f"`lines`: runs of {index} are counted from {listed(able)}, not from {name}")

    def _tiled(self, choice: Tiled, nest: Nest, ranges: Ranges) -> None:
        if has_block_level(self.problem.kernel, nest):
            self._refuse("its band has work for the threads of a block: `Blocks` gives each iteration one")
        self._threads(choice.threads)
        self._grid(choice.grid, nest)
        self._without(tile_fault(self.problem, nest, choice))
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _contracted(self, choice: Contracted) -> None:
        nest, ranges = contracted_nest(self.region), plain_nest(self.region)[1]
        self._threads(choice.threads)
        self._without(contracted_fault(self.problem, nest, choice, alone=bool(self.region.saved)))
        self._grid(choice.grid, nest, {index for indices in choice.joined.values() for index in indices})
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _blocks(self, choice: Blocks, nest: Nest, ranges: Ranges) -> None:
        self._threads(choice.threads)
        self._grid(choice.grid, nest)
        uses = self._memory(choice.memory, nest.body, block_level=True, outer=nest.indices, ranges=ranges)
        inner = {stmt.index: stmt for stmt in _at_block_level(nest.body, choice.shared_out) if isinstance(stmt, Par)}
        if inner.keys() != choice.inner.keys():
            self._refuse(f"`inner` deals threads to {listed(choice.inner)}; the nests inside are {listed(inner)}")
        indices: tuple[str, ...] = ()
        begins = row_origins(self.problem, nest.body, choice.rows)
        for index, deal in choice.inner.items():
            inside = bounded_nest(inner[index])[0]
            self._deal(deal, inside, choice.team, f"inner of {index}")
            self._runs(inside, choice.widths, nest.indices + inside.indices, begins)
            indices += inside.indices
        self._without(blocks_fault(self.problem.kernel, self.target, nest, choice))
        seqs = {s.index: s for s in _at_block_level(nest.body, choice.shared_out) if isinstance(s, Seq)}
        bytes_needed = sum(use.bytes or 0 for use in uses if choice.memory[use.buffer.name] is Memory.SHARED)
        for index in choice.shared_out:
            found = shared_reduction(self.problem, seqs[index], choice.memory) if index in seqs else None
            if found is None or choice.team == 1:
                self._refuse(f"`shared_out`: {index} is no reduction that the threads of a block can share")
            bytes_needed += meeting_bytes(self.problem, found.updates, choice.team)
            self._run(seqs[index].body, index, choice.widths, (*nest.indices, index), begins)
        self._known_widths(choice.widths, (*indices, *choice.shared_out))
        apart = together_faults(self.problem, nest, choice) if choice.together > 1 else ()
        shared = cluster_faults(self.problem, nest, choice) if choice.cluster > 1 else ()
        for fault in (*apart, *shared, *row_faults(self.problem, nest.body, choice)):
            self._refuse(fault)
        if bytes_needed > self.target.shared_bytes:
            self._refuse(f"it needs {bytes_needed} bytes of shared memory, and a block has {self.target.shared_bytes}")

    def _columns(self, choice: Columns, nest: Nest, ranges: Ranges) -> None:
        self._threads(choice.threads)
        self._grid(choice.grid, nest)
        for fault in columns_faults(self.problem, nest, choice):
            self._refuse(fault)
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _combined(self, choice: Combined, nest: Nest, ranges: Ranges) -> None:
        self._threads(choice.threads)
        self._grid(choice.grid, nest)
        free = {nest.indices[d] for d in combinable(nest)}
        if choice.over not in free or has_block_level(self.problem.kernel, nest):
            self._refuse(f"`over`: the updates cannot be combined over {choice.over}")
        if choice.rounds < 1 or any(limit < 1 for limit in choice.blocks.values()):
            self._refuse("`rounds` and `blocks` count from 1")
        updates = [s for s in nest.body if isinstance(s, Accumulate)]
        used = frozenset[str]().union(*(subscript_names(u.subscripts) for u in updates))
        summed = {p.index: p for p in nest.pars if p.index not in used}
        self._run(nest.body, choice.over, choice.widths, nest.indices)
        self._known_widths(choice.widths, (choice.over,))
        if not choice.blocks.keys() <= summed.keys():
            self._refuse(f"`blocks` limits {listed(choice.blocks)}; the summed indices are {listed(summed)}")
        bytes_needed = meeting_bytes(self.problem, updates, choice.threads)
        if bytes_needed > self.target.shared_bytes:
            self._refuse(f"it needs {bytes_needed} bytes of shared memory, and a block has {self.target.shared_bytes}")
        if any(u.id in self.problem.long for u in updates):
            self._chain(choice, summed, ranges)

    def _parted(self, choice: Parted) -> None:
        nest, ranges = shared_nest(self.region, choice.shared_out)
        self._threads(choice.threads)
        self._grid(choice.grid, nest)
        if self.region.band is not None and has_block_level(self.problem.kernel, nest):
            self._refuse("its band has work for the threads of a block: `Blocks` gives each iteration one")
        if self.region.saved and choice.blocks:
            self._refuse("`blocks`: under a condition on data blocks do not share a reduction")
        self._without(parted_fault(self.problem, nest, choice))
        for stmts, index, hardware in runs_of(self.problem, nest, choice):
            self._run(stmts, index, choice.widths, hardware)
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _tallied(self, choice: Tallied, nest: Nest, ranges: Ranges) -> None:
        self._threads(choice.threads)
        found = tally(self.problem, nest, choice.over)
        if found is None:
            self._refuse(f"`over`: the iterations of {choice.over} are no updates that go to copies of an array")
        self._without(tally_fault(self.problem, found, choice))
        self._run(found.reading, choice.over, choice.widths, found.indices)
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _scanned(self, choice: Scanned, nest: Nest, ranges: Ranges) -> None:
        self._threads(choice.threads)
        self._grid(choice.grid, nest)
        if self.region.band is not None and has_block_level(self.problem.kernel, nest):
            self._refuse("its band has work for the threads of a block: `Blocks` gives each iteration one")
        if choice.look_back and not self.region.is_alone:
            self._refuse("`look_back`: under a condition on data, or in a loop of launches, blocks do not share a scan")
        self._without(scanned_fault(self.problem, nest, choice))
        for stmts, index, hardware, counted in scanned_runs(self.problem, nest, choice):
            self._run(stmts, index, choice.widths, hardware, counted)
        self._memory(choice.memory, nest.body, block_level=False, outer=nest.indices, ranges=ranges)

    def _chain(self, choice: Combined, summed: Mapping[str, Par], ranges: Ranges) -> None:
        """At most `CHAIN` blocks add to one element of a long sum."""
        known, adding = size_ranges(self.problem.kernel), 1
        for index in summed:
            together = choice.threads * choice.rounds * choice.widths.get(index, 1)
            covered = together if index == choice.over else 1
            count = most(ceildiv(at_least_zero(add(ranges[index][1], ONE)), covered), known)
            limits = [n for n in (count, choice.blocks.get(index)) if n is not None]
            adding *= max(1, min(limits)) if limits else CHAIN + 1
        if adding > CHAIN:
            self._refuse(f"more than {CHAIN} blocks may add to one element: limit them by `blocks`")

    def _cores(self, choice: Cores, nest: Nest, ranges: Ranges) -> None:
        for fault in cores_faults(self.problem, nest, choice):
            self._refuse(fault)
        self._memory(choice.memory, nest.body, block_level=False, outer=choice.cores, ranges=ranges)

    # ---- parts ----

    def _threads(self, threads: int) -> None:
        asked, warp = threads_asked(self.problem.kernel, self.target), self.target.warp_size
        small = threads < warp and is_power_of_two(threads)
        if not (small or (threads % warp == 0 and 0 < threads <= self.target.max_threads)):
            self._refuse(f"a block cannot have {threads} threads")
        if asked is not None and asked != threads:
            self._refuse(f"the author asks for {asked} threads, and the candidate has {threads}")

    def _known_widths(self, widths: Mapping[str, int], indices: Sequence[str]) -> None:
        if not widths.keys() <= set(indices):
            self._refuse(f"`widths` has {listed(widths)}; the indices that threads share out are {listed(indices)}")

    def _runs(
        self,
        nest: Nest,
        widths: Mapping[str, int],
        hardware: tuple[str, ...],
        origins: Origins = NO_ORIGINS,
        strided: bool = False,
    ) -> None:
        """At most one index of a nest is taken several iterations at a time, and no other extent depends on it. What is
        `strided` in loops may be wide, too."""
        several = [par for par in nest.pars if par.index in widths]
        if len(several) > 1:
            self._refuse(f"`widths` has {listed(p.index for p in several)}, and a thread takes runs of one index")
        for par in several:
            if any(par.index in names(other.extent) for other in nest.pars):
                self._refuse(f"`widths`: an extent depends on {par.index}")
            index, width, origin = par.index, widths[par.index], origins.get(par.index)
            if not (strided and reading_of(self.problem, nest, index, width, hardware, origin).strided):
                self._run(nest.body, index, widths, hardware, origins)

    def _run(
        self,
        stmts: tuple[Stmt, ...],
        index: str,
        widths: Mapping[str, int],
        hardware: tuple[str, ...],
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """So many neighbouring iterations have a wide access."""
        width = widths.get(index)
        if width is not None and not has_run(self.problem, stmts, index, width, hardware, origins.get(index)):
            self._refuse(f"`widths`: no access is wide where a thread takes {width} iterations of {index}")

    def _deal(self, deal: Deal, nest: Nest, threads: int, where: str) -> None:
        if not {index for index, _ in deal} <= set(nest.indices):
            self._refuse(f"`{where}` deals threads to {listed(i for i, _ in deal)}, not {listed(nest.indices)}")
        radices = [radix for _, radix in deal]
        if min(radices, default=1) < 1 or not thread_pieces_fit(radices, threads, self.target.warp_size):
            self._refuse(f"`{where}` deals {prod(radices)} threads, in pieces that do not number {threads}")

    def _grid(self, grid: tuple[str, ...], nest: Nest, joined: Set[str] = frozenset()) -> None:
        indices = [index for index in nest.indices if index not in joined]
        if sorted(grid) != sorted(indices):
            self._refuse(f"`grid` orders {listed(grid)}; the band has {listed(indices)}")

    def _memory(
        self,
        memory: Mapping[str, Memory],
        stmts: tuple[Stmt, ...],
        *,
        block_level: bool,
        outer: tuple[str, ...],
        ranges: Ranges,
    ) -> tuple[LocalUse, ...]:
        uses, _ = local_uses(self.problem.kernel, stmts, block_level=block_level, outer=outer, ranges=ranges)
        if memory.keys() != {use.buffer.name for use in uses}:
            self._refuse(f"`memory` places {listed(memory)}; the locals are {listed(u.buffer.name for u in uses)}")
        for use in uses:
            allowed = memories(use, self.target)
            if memory[use.buffer.name] not in allowed:
                where = " or ".join(m.value for m in allowed)
                self._refuse(f"`memory`: {use.buffer.name} can lie in {where} memory only")
        kept = sum(use.bytes or 0 for use in uses if memory[use.buffer.name] is Memory.REG)
        if kept > MAX_THREAD_BYTES:
            self._refuse(f"`memory`: a thread has {MAX_THREAD_BYTES} bytes of its own, not {kept}")
        return uses

    def _without(self, fault: str | None) -> None:
        if fault is not None:
            self._refuse(fault)

    def _refuse(self, why: str) -> NoReturn:
        span = self.region.stmts[0].span
        raise fail("E0401", f"the candidate does not fit {self.region.name}: {why}", span, "this launch")


def _at_block_level(stmts: tuple[Stmt, ...], shared_out: Sequence[str]) -> Iterator[Stmt]:
    """The nests and loops that a block runs as one, what is shared out not entered."""
    for stmt in stmts:
        match stmt:
            case Par() if not is_serial_par(stmt):
                yield stmt
            case Seq(index=index, body=body):
                yield stmt
                if index not in shared_out:
                    yield from _at_block_level(body, shared_out)
            case If(then=then, orelse=orelse):
                yield from _at_block_level(then + orelse, shared_out)
            case _:
                pass
