"""What a launch of loops on cores costs: tasks instead of blocks, and accesses that are contiguous or not inside."""

from math import prod

from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.block_sizes import band_sizes
from texpr.polyhedral.map.choose_cores import step
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.mapped.on_cores import Cores


def core_accesses(problem: Problem, nest: Nest, ranges: Ranges, choice: Cores) -> tuple[int, int, int]:
    """Tasks, accesses, and those of them that are not contiguous."""
    sizes = dict(zip(nest.indices, band_sizes(problem, nest, ranges), strict=True))
    tasks = prod(-(-sizes[i] // (choice.chunk or 1)) for i in choice.cores)
    rest = prod(n for i, n in sizes.items() if i not in choice.cores)
    times = tasks * rest * (choice.chunk or 1)
    found = problem.accesses(nest.body, ranges, without=declared(nest.body), weight=times)
    read = [a for a in found if not a.update]
    strided = sum(a.weight for a in read if choice.vector and step(problem, a, choice.vector) not in (0, 1))
    return tasks, sum(a.weight for a in read), strided
