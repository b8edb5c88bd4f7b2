"""The first candidate of a problem: which form each launch has, asked of those that choose one.

A band without inner parallelism is flat, lanes on the index with the fewest sectors, or in tiles where no lanes serve
all its accesses (`choose_tiles`); one with inner `par`s, a shared buffer or rows to reduce has a block for each
iteration; plain statements, few rows and bands of accumulations are shared out over blocks (`choose_parted`), and those
that are not are combined over the threads of their blocks; `atomic` updates of small arrays have copies of these in
every block (`choose_tallied`). On a CPU the outer indices are on cores and the contiguous one is innermost (`cores`).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

from texpr.grammar.ast import If, IndexExpr, Leaf, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.interval import Ranges, index_range
from texpr.grammar.permissions import cooperative_of
from texpr.polyhedral.map.author_tiles import (
    shares_asked,
    tile_asked,
)
from texpr.polyhedral.map.author_units import block_threads, unit_share, unit_sizes
from texpr.polyhedral.map.bands import (
    Nest,
    bounded_nest,
    has_block_level,
    inner_nests,
    is_serial_par,
)
from texpr.polyhedral.map.block_sizes import DEFAULT_THREADS, band_sizes, threads_for
from texpr.polyhedral.map.choose_beside import MOST_FEW
from texpr.polyhedral.map.choose_columns import choose_columns
from texpr.polyhedral.map.choose_combined import choose_combined
from texpr.polyhedral.map.choose_contracted import choose_contracted
from texpr.polyhedral.map.choose_cores import choose_cores
from texpr.polyhedral.map.choose_flat import choose_flat, choose_width, in_runs, named
from texpr.polyhedral.map.choose_panels import choose_panels
from texpr.polyhedral.map.choose_parted import choose_parted, choose_summed
from texpr.polyhedral.map.choose_piped import choose_piped
from texpr.polyhedral.map.choose_ringed import choose_ringed
from texpr.polyhedral.map.choose_rows import LONG_ROW, choose_rows
from texpr.polyhedral.map.choose_scanned import choose_scanned
from texpr.polyhedral.map.choose_tallied import choose_tallied
from texpr.polyhedral.map.choose_tiles import choose_tiled
from texpr.polyhedral.map.early import choose_early
from texpr.polyhedral.map.hardware_attributes import check_vectors, threads_asked, width_asked, with_threads
from texpr.polyhedral.map.held import reads_beside
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.lasting import choose_lasting, choose_passing
from texpr.polyhedral.map.placement import choose_memory
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.row_clusters import cluster_faults
from texpr.polyhedral.map.sharing import (
    combined_dim,
    is_long,
    meeting_bytes,
    prefers_blocks,
    prefers_threads,
    shared_loops,
    shared_reduction,
)
from texpr.polyhedral.map.staged import check_stages
from texpr.polyhedral.map.tiles_kept import check_tiles
from texpr.polyhedral.map.uses import local_uses, memory_of
from texpr.polyhedral.map.warp_each import choose_together
from texpr.polyhedral.map.widths import run_width
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choice, Deal, Single, widths_of
from texpr.polyhedral.mapped.on_cores import OnCores
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.walk import touched, written


def choose(problem: Problem, *, wide: bool = True) -> Candidate:
    """The first candidate. Raises E0401, E0403 where the author's placements leave none."""
    launches = _chosen(problem)
    threads = {
        n for choice in launches.values() if (n := 1 if isinstance(choice, Single | OnCores) else choice.threads) > 1
    }
    if len(threads) > 1 and cooperative_of(problem.kernel) is not None:  # they are phases of one launch
        with suppress(TExprError):  # or its author's attributes leave them no blocks of one size
            launches = _chosen(replace(problem, kernel=with_threads(problem.kernel, max(threads)), answers={}))
    early = choose_early(problem, launches)
    kept = problem.kept
    return Candidate(
        launches=launches,
        wide=wide,
        kept=kept.buffers,
        laid=kept.laid,
        centred=kept.centred,
        jammed=kept.jammed,
        shared=kept.shared,
        early=early,
        lasting=choose_lasting(problem, launches),
        passing=choose_passing(problem, launches),
        moves=kept.moves,
    )


def _chosen(problem: Problem) -> dict[str, Choice]:
    """A choice for each launch by itself."""
    launches = dict[str, Choice]()
    for region in problem.regions():
        choice = launches[region.name] = _choice(problem, region)
        if problem.target.is_cuda:
            check_vectors(region.stmts, widths_of(choice))
            check_tiles(region.stmts, plain_nest(region)[0].pars, choice)
            check_stages(region.stmts, choice)
    return launches


def _multiplied(problem: Problem, region: Region) -> Choice | None:
    """Products of matrices on tensor cores, where each iteration is one thread's."""
    if has_block_level(problem.kernel, region.nest[0]) or problem.objective.by_distance:
        return None
    return choose_piped(problem, region) or choose_ringed(problem, region)


def _choice(problem: Problem, region: Region) -> Choice:
    if region.band is None:
        shared = (choose_parted(problem, region) or choose_scanned(problem, region)) if problem.target.is_cuda else None
        return shared or Single(memory=memory_of(problem, region.stmts, block_level=False, outer=(), ranges={}))
    nest, ranges = region.nest
    if not problem.target.is_cuda:
        return choose_panels(problem, region) or choose_cores(problem, nest, ranges)
    sizes = band_sizes(problem, nest, ranges)
    chosen = _multiplied(problem, region) or choose_columns(problem, nest, ranges)
    if chosen is not None:
        return chosen
    if has_block_level(problem.kernel, nest):
        if prefers_threads(problem, nest, sizes, DEFAULT_THREADS, ranges):
            return choose_flat(problem, nest, ranges)
        return choose_blocks(problem, nest, ranges)
    if problem.objective.by_distance:
        return choose_flat(problem, nest, ranges)
    contracted = choose_contracted(problem, region)
    if contracted is not None:
        few = choose_parted(problem, region) if min(sizes) <= MOST_FEW else None
        return few if few is not None and few.patch else contracted
    if tile_asked(nest.pars):
        flat = choose_flat(problem, nest, ranges)
        tiled = None if shares_asked(nest.pars).by_level else choose_tiled(problem, nest, sizes, flat)
        return tiled or flat
    shared_out = (
        _in_clusters(problem, nest, sizes, ranges)
        or choose_parted(problem, region)
        or choose_tallied(problem, region)
        or choose_scanned(problem, region)
    )
    if shared_out is not None:
        return shared_out
    if prefers_blocks(problem, nest, sizes, DEFAULT_THREADS, ranges):
        return choose_blocks(problem, nest, ranges)
    summed = choose_summed(problem, region)
    if summed is not None:
        return summed
    over = combined_dim(problem, nest, sizes, DEFAULT_THREADS, ranges)
    if over is not None:
        return choose_combined(problem, nest, ranges, over)
    flat = choose_flat(problem, nest, ranges)
    return choose_tiled(problem, nest, sizes, flat) or flat


def choose_blocks(problem: Problem, nest: Nest, ranges: Ranges) -> Blocks:
    """A block for each iteration, or several that share long rows, where they do nothing else."""
    choice = _blocks(problem, nest, ranges, problem.target.max_cluster)
    alone = choice.cluster == 1 or next(cluster_faults(problem, nest, choice), None) is None
    return choose_together(problem, nest, ranges, choice if alone else _blocks(problem, nest, ranges, 1))


def _in_clusters(problem: Problem, nest: Nest, sizes: Sequence[int], ranges: Ranges) -> Blocks | None:
    """Clusters for rows that begin anywhere in memory, where they keep a GPU busy: blocks that share reductions out
    read such rows one element at a time (argmax of 257 x 100003 in bf16: .29 of what it reads). A loop by itself that
    reads more than it holds, as a vector beside each row, reads it at any address then, a few runs in each block: such
    a matrix in f32 times a vector takes 41 us in clusters, 31 in blocks that read runs of both."""
    alone = [s for s in nest.body if isinstance(s, Seq)]
    if problem.target.max_cluster == 1 or len(alone) != 1 or not is_long(problem, alone[0], ranges):
        return None
    if problem.representative(alone[0].extent, ranges) < LONG_ROW:
        return None
    choice = choose_blocks(problem, nest, ranges)
    busy = prod(sizes) * choice.cluster >= choice.resident * problem.target.multiprocessors
    wide = choice.cluster > 1 and busy and all(row.line for row in choice.rows)
    if any(row.indices == (alone[0].index,) for row in choice.rows) and reads_beside(problem, nest.body, alone[0]):
        return None
    return choice if wide and prefers_blocks(problem, nest, sizes, DEFAULT_THREADS, ranges) else None


def _blocks(problem: Problem, nest: Nest, ranges: Ranges, most_ranks: int) -> Blocks:
    """A block for each iteration, with threads for the longest nest or reduction inside."""
    widths, inside = _inside(problem, nest, {**ranges, **_seq_ranges(nest.body)})
    asked = block_threads(nest, problem.target, threads_asked(problem.kernel, problem.target))
    rows = choose_rows(problem, nest, ranges, widths, asked, most_ranks)
    for loop, width in ((loop, row.width) for row in rows for loop in row.loops):
        widths[loop.index] = width
        del inside[loop.index]
    least = [*(threads_for(sizes, problem.target) for sizes in inside.values()), *(row.threads for row in rows)]
    threads = asked or max(least, default=problem.target.warp_size)
    uses, _ = local_uses(problem.kernel, nest.body, block_level=True, outer=nest.indices, ranges=ranges)
    memory = {name: found for name, (found, _) in choose_memory(uses, problem.target).items()}
    shared = sum(u.bytes or 0 for u in uses if memory[u.buffer.name] is Memory.SHARED)
    together = {seq.index for seq in shared_loops(problem, nest, ranges)}
    block = _Inner(problem, threads, memory, problem.target.shared_bytes - shared, widths, together)
    block.visit(nest.body, ranges)
    return Blocks(
        threads=threads,
        grid=tuple(reversed(nest.indices)),
        inner=block.deals,
        shared_out=tuple(block.shared_out),
        widths={i: width for i, width in widths.items() if width > 1 and i in (*block.dealt, *block.shared_out)},
        rows=tuple(row.row for row in rows if all(loop.index in block.alone for loop in row.loops)),
        cluster=max((row.cluster for row in rows), default=1),
        resident=max((row.resident for row in rows if row.threads == threads), default=0),
        memory=memory,
    )


def _inside(problem: Problem, nest: Nest, ranges: Ranges) -> tuple[dict[str, int], dict[str, list[int]]]:
    """What a thread takes at once of the indices inside a block, and the sizes of its nests and reductions in that, by
    their first index."""
    widths, found = dict[str, int](), dict[str, list[int]]()
    inside = inner_nests(nest.body)
    sizes_of = [[problem.representative(p.extent, ranges) for p in inner.pars] for inner in inside]
    chosen: list[dict[str, int]] = []
    for inner, sizes in zip(inside, sizes_of, strict=True):
        hardware = nest.indices + inner.indices
        some = [choose_width(problem, inner, sizes, d, hardware) for d in range(len(sizes))]
        lane = 0
        if len(sizes) > 1 and any(some):
            bounds = bounded_nest(inner.pars[0])[1]
            lane = choose_lanes(problem, inner, sizes, DEFAULT_THREADS, {**ranges, **bounds})[0][0]
        chosen.append(some[lane])
    for inner, sizes, own in zip(inside, sizes_of, _agreed(inside, chosen), strict=True):
        widths |= own
        found[inner.indices[0]] = unit_sizes(inner, in_runs(inner, sizes, own), problem.target)
    for seq in shared_loops(problem, nest, ranges):
        size = problem.representative(seq.extent, ranges)
        width = run_width(problem, seq.body, seq.index, size, (*nest.indices, seq.index), width_asked((seq,)))
        widths |= {seq.index: width} if width > 1 else {}
        found[seq.index] = [-(-size // width)]
    return widths, found


def _agreed(nests: Sequence[Nest], widths: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """The widths of nests, of which those that touch what another one writes take it alike: an element then stays with
    its thread from one to the other, and nobody waits."""
    found = list(widths)
    leaves = [[s for s in statements(nest.body) if isinstance(s, Leaf)] for nest in nests]
    touched_by = [{name for leaf in own for name, _ in touched(leaf)} for own in leaves]
    written_by = [{target[0] for leaf in own if (target := written(leaf)) is not None} for own in leaves]
    while True:
        apart = {
            n
            for one in range(len(nests))
            for other in range(len(nests))
            if written_by[one] & touched_by[other] and {*found[one].values()} != {*found[other].values()}
            for n in (one, other)
        }
        free = [n for n in apart if found[n] and width_asked(nests[n].pars) is None]
        if not free:
            return found
        for number in free:
            found[number] = {}


class _Inner:
    """Deals a block's threads to the nests inside, and shares out reductions while their parts fit beside the shared
    buffers; `left` counts the bytes."""

    def __init__(
        self,
        problem: Problem,
        threads: int,
        memory: Mapping[str, Memory],
        left: int,
        widths: Mapping[str, int],
        shared: Collection[str],
    ) -> None:
        self.problem, self.threads, self.memory, self.left, self.widths = problem, threads, memory, left, widths
        self.shared = shared  # loops that the threads share out, though some are short
        self.deals: dict[str, Deal] = {}
        self.dealt: set[str] = set()
        self.shared_out: list[str] = []
        self.alone: set[str] = set()  # indices that all threads share out

    def visit(self, stmts: tuple[Stmt, ...], ranges: Ranges) -> None:
        for stmt in stmts:
            match stmt:
                case Par() if not is_serial_par(stmt):
                    nest, own = bounded_nest(stmt)
                    sizes = band_sizes(self.problem, nest, own, ranges)
                    near = frozenset(name for name, memory in self.memory.items() if memory is not Memory.GLOBAL)
                    known = {**ranges, **own}
                    order, caps = choose_lanes(self.problem, nest, sizes, self.threads, known, near=near)
                    sizes = in_runs(nest, sizes, self.widths)
                    self.deals[stmt.index] = named(
                        nest, unit_share(nest, sizes, order, caps, self.threads, self.problem.target)
                    )
                    self.dealt |= set(nest.indices)
                    self.alone |= set(nest.indices) if len(nest.indices) == 1 else set()
                case Seq() if (bytes_ := self._shared(stmt, ranges)) is not None:
                    self.left -= bytes_
                    self.shared_out.append(stmt.index)
                    self.alone.add(stmt.index)
                case Seq(index=index, extent=extent, body=body):
                    inside = index_range(extent, ranges)
                    self.visit(body, {**ranges, index: inside} if inside else ranges)
                case If(then=then, orelse=orelse):
                    self.visit(then + orelse, ranges)
                case _:
                    pass

    def _shared(self, seq: Seq, ranges: Ranges) -> int | None:
        """The shared memory that a loop needs which the threads share out, None for one that they do not."""
        found = shared_reduction(self.problem, seq, self.memory)
        if found is None or self.threads == 1:
            return None
        if seq.index not in self.shared and not is_long(self.problem, seq, ranges):
            return None
        needed = meeting_bytes(self.problem, found.updates, self.threads)
        return needed if needed <= self.left else None


def _seq_ranges(stmts: tuple[Stmt, ...]) -> dict[str, tuple[IndexExpr, IndexExpr]]:
    """Ranges of the seq indices below, as far as they are bounded without outer indices."""
    found: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    for stmt in statements(stmts):
        if isinstance(stmt, Seq):
            inside = index_range(stmt.extent, found)
            if inside is not None:
                found[stmt.index] = inside
    return found
