"""The first candidate of a band of accumulations that nothing else takes: its blocks make atomic updates together."""

from collections.abc import Mapping

from texpr.grammar.ast import Accumulate
from texpr.grammar.index.expr import ONE, add, at_least_zero, ceildiv
from texpr.grammar.index.interval import Ranges, most
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.block_sizes import band_sizes, threads_for
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.widths import run_width
from texpr.polyhedral.mapped.candidate import Combined
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.walk import subscript_names

MAX_ROUNDS = 16  # iterations of a reduction that one thread accumulates before the block combines


def choose_combined(problem: Problem, nest: Nest, ranges: Ranges, over: int) -> Combined:
    """Threads along the reduced index, a few rounds of it for each."""
    sizes = band_sizes(problem, nest, ranges)
    asked = width_asked(nest.pars)
    width = run_width(problem, nest.body, nest.indices[over], sizes[over], nest.indices, asked)
    runs = -(-sizes[over] // width)
    threads = threads_asked(problem.kernel, problem.target) or threads_for([runs], problem.target)
    rounds = max(1, min(MAX_ROUNDS // width, -(-runs // threads)))
    others = tuple(i for d, i in reversed(list(enumerate(nest.indices))) if d != over)
    covered = {index: threads * rounds * width if d == over else 1 for d, index in enumerate(nest.indices)}
    return Combined(
        threads=threads,
        over=nest.indices[over],
        rounds=rounds,
        grid=(nest.indices[over], *others),
        widths={nest.indices[over]: width} if width > 1 else {},
        blocks=_limited(problem, nest, ranges, covered),
    )


def _limited(problem: Problem, nest: Nest, ranges: Ranges, covered: Mapping[str, int]) -> dict[str, int]:
    """For each dimension of a long sum that has more blocks than may add to one element, how many it gets."""
    updates = [s for s in nest.body if isinstance(s, Accumulate)]
    if not any(u.id in problem.long for u in updates):
        return {}
    known = size_ranges(problem.kernel)
    used = frozenset[str]().union(*(subscript_names(u.subscripts) for u in updates))
    counts = {
        p.index: most(ceildiv(at_least_zero(add(ranges[p.index][1], ONE)), covered[p.index]), known)
        for p in nest.pars
        if p.index not in used
    }
    limits = block_limits(counts, CHAIN)
    return {index: limit for index, limit in limits.items() if (count := counts[index]) is None or count > limit}


def block_limits(counts: Mapping[str, int | None], budget: int) -> dict[str, int]:
    """So many blocks along each dimension that there are at most `budget` together: few and known counts in full, the
    others alike. None is a count that sizes leave open."""
    limits: dict[str, int] = {}
    waiting = sorted(counts, key=lambda d: (counts[d] is None, counts[d] or 0))
    while waiting:
        share = 1
        while (share + 1) ** len(waiting) <= budget:
            share += 1
        first, count = waiting[0], counts[waiting[0]]
        limits[first] = share if count is None else max(1, min(count, share))
        budget //= limits[first]
        waiting = waiting[1:]
    return limits
