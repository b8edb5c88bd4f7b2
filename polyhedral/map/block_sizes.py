"""How many threads a block has where nothing says otherwise: as many as there is work for, up to a usual number."""

from collections.abc import Sequence

from texpr.grammar.index.expr import ONE, add
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.target import Target

DEFAULT_THREADS = 256


def band_sizes(problem: Problem, nest: Nest, ranges: Ranges, outer: Ranges | None = None) -> list[int]:
    """The representative extent of each dimension of a bounded nest."""
    return [problem.representative(add(ranges[p.index][1], ONE), outer or {}) for p in nest.pars]


def threads_for(sizes: Sequence[int], target: Target) -> int:
    """Threads for that many iterations: a power of two from those of a warp to 256."""
    total = 1
    for size in sizes:
        total = min(DEFAULT_THREADS, total * power_of_two(size))
    return max(target.warp_size, min(DEFAULT_THREADS, total))
