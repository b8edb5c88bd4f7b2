"""Which reductions the threads of a block share out, and which bands are given blocks for it.

A `seq` at block level that only accumulates is shared out where it is long enough, or where it goes over a row that
lanes share all the same: every lane would read all of it (softmax of rows of 31 in f32 ran at .29 of what it does). A
band of rows whose elements lie
along a reduction does better with a block for each iteration, so that lanes run along it: a matrix times a vector reads
each row contiguously. A band of accumulations alone may combine its updates over a block's threads.
"""

from collections.abc import Mapping, Sequence
from math import prod

from texpr.grammar.ast import New, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest, block_statements, fits_threads, inner_nests
from texpr.polyhedral.map.digits import share, thread_digits
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.objective import cost, lane_values
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.reducible import MIN_EXTENT, Reduction, combinable, reduction
from texpr.polyhedral.map.updates import Update, part_bytes
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.names import Names
from texpr.polyhedral.walk import subscript_names

REST = 8  # at most one part in so many of the accesses may be outside the reductions
ENOUGH = 4  # one thread in so many of those that a GPU runs at once keeps its memory busy
FEW = 8  # iterations of a loop that one thread has run sooner than lanes have met
GAIN = 4  # a band is given blocks where lanes along the reduction touch this many times fewer sectors

Placement = Mapping[str, Memory]


def shared_reduction(problem: Problem, seq: Seq, memory: Placement) -> Reduction | None:
    """A loop as a reduction whose iterations the threads of a block may share out, None where it is none: they have no
    loops, and what they compute stays in registers. `memory` has the locals that lie somewhere."""
    found = reduction(problem.kernel, seq, seq.index)
    inside = tuple(statements(seq.body))
    own = {s.buffer for s in inside if isinstance(s, New)}
    fits = found is not None and not any(isinstance(s, Seq) for s in inside)
    return found if fits and all(memory.get(name, Memory.REG) is Memory.REG for name in own) else None


def reductions(problem: Problem, stmts: Sequence[Stmt], ranges: Ranges) -> tuple[Seq, ...]:
    """The reductions among the statements that the threads of a block would share out, locals in registers."""
    long = (s for s in stmts if isinstance(s, Seq) and is_long(problem, s, ranges))
    return tuple(s for s in long if shared_reduction(problem, s, {}) is not None)


def shared_loops(problem: Problem, nest: Nest, ranges: Ranges) -> tuple[Seq, ...]:
    """The reductions in a band's body that a block's threads would share out: long ones, and of short ones those over a
    row that is also a nest's, where lanes have no loop that is long."""
    stmts, inside = block_statements(nest.body), inner_nests(nest.body)
    sizes = [prod(problem.representative(par.extent, ranges) for par in inner.pars) for inner in inside]
    rows = {inner.pars[0].extent for inner in inside} if max(sizes, default=0) < MIN_EXTENT else set()
    short = (s for s in stmts if isinstance(s, Seq) and s.extent in rows)
    long = {s.index for s in short if problem.representative(s.extent, ranges) > FEW}
    return tuple(
        s
        for s in stmts
        if isinstance(s, Seq) and (s.index in long or is_long(problem, s, ranges))
        if shared_reduction(problem, s, {}) is not None
    )


def is_long(problem: Problem, seq: Seq, ranges: Ranges) -> bool:
    """Whether it pays to share out the iterations."""
    return problem.representative(seq.extent, ranges) >= MIN_EXTENT


def prefers_blocks(problem: Problem, nest: Nest, sizes: Sequence[int], threads: int, ranges: Ranges) -> bool:
    """Whether a band without inner pars does better with a block for each iteration: some row that no other iteration
    reads lies along a reduction, lanes along it touch far fewer sectors, and little else is left to one thread."""
    own = declared(nest.body)
    found = reductions(problem, block_statements(nest.body), ranges)
    total = sum(a.weight for a in problem.accesses(nest.body, ranges, without=own))
    shared_out = sum(a.weight for seq in found for a in problem.accesses((seq,), ranges, without=own))
    if not found or (total - shared_out) * REST > total:
        return False
    for seq in found:
        every, accesses = {*nest.indices, seq.index}, problem.accesses(seq.body, ranges, without=own)
        if not any(every <= subscript_names(a.subscripts) for a in accesses):
            return False
    across, along = _sectors(problem, nest, sizes, threads, ranges, [(seq.index, seq.body) for seq in found])
    return along * GAIN <= across


def prefers_threads(problem: Problem, nest: Nest, sizes: Sequence[int], threads: int, ranges: Ranges) -> bool:
    """Whether a band with inner pars does better with a thread for each iteration: there are enough of them, and lanes
    along the band touch far fewer sectors than lanes along what is inside, or each iteration has few of its own."""
    at_once = problem.target.multiprocessors * problem.target.resident_threads
    if not fits_threads(problem.kernel, nest) or prod(sizes) * ENOUGH < at_once:
        return False
    loops = [s for s in statements(nest.body) if isinstance(s, Par | Seq)]
    if loops and all(problem.representative(loop.extent, ranges) <= FEW for loop in loops):
        return True
    found = [(seq.index, seq.body) for seq in reductions(problem, block_statements(nest.body), ranges)]
    found += [(inner.indices[-1], inner.body) for inner in inner_nests(nest.body)]
    across, along = _sectors(problem, nest, sizes, threads, ranges, found)
    return bool(found) and across * GAIN <= along


def _sectors(
    problem: Problem,
    nest: Nest,
    sizes: Sequence[int],
    threads: int,
    ranges: Ranges,
    loops: Sequence[tuple[str, tuple[Stmt, ...]]],
) -> tuple[int, int]:
    """The sectors of loops, of these indices and bodies: with lanes across them, on the band, and with lanes along."""
    own, warp = declared(nest.body), problem.target.warp_size
    fixed = {**dict.fromkeys(ranges, 0), **problem.sizes}
    order, caps = choose_lanes(problem, nest, sizes, threads, ranges, without=own)
    on_band = lane_values(
        thread_digits(nest.indices, share(sizes, order, caps, threads), Names(()), warp), nest.indices, warp
    )
    across = along = 0
    for index, body in loops:
        accesses = problem.accesses(body, ranges, without=own)
        on_loop = lane_values(thread_digits((index,), ((0, warp),), Names(()), warp), (index,), warp)
        across += cost(accesses, on_band, fixed, warp)[0]
        along += cost(accesses, on_loop, fixed, warp)[0]
    return across, along


def combined_dim(problem: Problem, nest: Nest, sizes: Sequence[int], threads: int, ranges: Ranges) -> int | None:
    """The dimension over which a band's updates are combined: long, and lanes along it are no worse than elsewhere."""
    free = [d for d in combinable(nest) if sizes[d] >= MIN_EXTENT]
    if not free:
        return None
    own = declared(nest.body)
    accesses = [a for a in problem.accesses(nest.body, ranges, without=own) if not a.update]
    fixed = {**dict.fromkeys(ranges, 0), **problem.sizes}
    warp = problem.target.warp_size

    def sectors(dim: int) -> int:
        along = thread_digits((nest.indices[dim],), ((0, warp),), Names(()), warp)
        return cost(accesses, lane_values(along, (nest.indices[dim],), warp), fixed, warp)[0]

    best = min(free, key=lambda d: (sectors(d), -d))
    order, _ = choose_lanes(problem, nest, sizes, threads, ranges, without=own)
    return best if sectors(best) <= GAIN * sectors(order[0]) else None


def meeting_bytes(problem: Problem, updates: Sequence[Update], threads: int) -> int:
    """Shared memory in which the partial results of the updates meet: a slot for each warp, where there are several."""
    warps = threads // problem.target.warp_size
    return warps * part_bytes(updates) if warps > 1 else 0
