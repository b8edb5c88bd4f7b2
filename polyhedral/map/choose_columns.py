"""The choice of columns: how many threads lie across a band, how many share a column, and who takes neighbours.

softmax over 256 channels of images   f32: 8 threads of 4 neighbours across, teams of 32, 8 rounds each
"""

from math import prod

from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.linear import linear
from texpr.polyhedral.map.bands import Nest, fits_threads
from texpr.polyhedral.map.block_sizes import band_sizes
from texpr.polyhedral.map.column_work import ColumnWork, body_of, column_held, column_work
from texpr.polyhedral.map.columns_fit import columns_faults
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.held import held_bytes, named
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.vectors import ACCESS_BYTES, along, is_run
from texpr.polyhedral.mapped.candidate import Columns

LINE_BYTES = (128, 64, 32)  # that a team reads of a row of columns, as many as leave room for teams
OWN_BYTES = 128  # of a column in a thread's registers
THREADS = 256
MOST_THREADS = 512


def choose_columns(problem: Problem, nest: Nest, ranges: Ranges) -> Columns | None:
    """Teams that hold what several loops read of a column; None where these are none, or cannot hold it."""
    found = column_work(problem, nest)
    asked = threads_asked(problem.kernel, problem.target) or width_asked(nest.pars)
    if found is None or asked or problem.objective is Objective.DISTANCE or not fits_threads(problem.kernel, nest):
        return None
    alone = column_held(problem, nest, found, 1)
    if alone is None:
        return None
    runs = [
        par.index
        for par in nest.pars
        if all(is_run(problem, named(element, loop), par.index) for loop, own in alone.reads.items() for element in own)
    ]
    if not runs:
        return None
    across = runs[-1]
    sizes = dict(zip(nest.indices, band_sizes(problem, nest, ranges), strict=True))
    element = max(problem.kernel.buffer(name).dtype.size_bytes for name, _ in alone.elements)
    width = _width(problem, nest, found, across, element)
    column = problem.representative(found.loops[0].extent, ranges) * held_bytes(problem, alone, width) // alone.rounds
    for line in LINE_BYTES:
        lanes = max(1, line // (element * width)) if width > 1 else problem.target.warp_size
        lanes = min(lanes, power_of_two(-(-sizes[across] // width)))
        team = power_of_two(-(-column // OWN_BYTES))
        if lanes * team > MOST_THREADS and line != LINE_BYTES[-1]:
            continue
        lanes *= max(1, THREADS // (lanes * team)) if team == 1 else 1
        team *= max(1, THREADS // (lanes * team))
        if lanes * team > problem.target.max_threads:
            return None
        choice = Columns(
            threads=lanes * team,
            across=across,
            lanes=lanes,
            loops=tuple(loop.index for loop in found.loops),
            grid=(across, *(index for index in reversed(nest.indices) if index != across)),
            widths={across: width} if width > 1 else {},
            resident=blocks_asked(problem.kernel, problem.target) or 0,
            memory=memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=ranges),
        )
        busy = prod(sizes.values()) // width * team >= problem.target.multiprocessors * THREADS
        return choice if busy and next(columns_faults(problem, nest, choice), None) is None else None
    return None


def _width(problem: Problem, nest: Nest, found: ColumnWork, across: str, element: int) -> int:
    """The neighbours of the index across that a thread takes: as many as the widest access has, where all are wide."""
    extent = next(par.extent for par in nest.pars if par.index == across)
    width = ACCESS_BYTES // element
    while width > 1:
        wide = (
            along(problem, body_of(loop), across, (*nest.indices, loop.index)).vectors(width) for loop in found.loops
        )
        if linear(extent).is_multiple(width, problem.divisors) and all(one.whole(width) for one in wide):
            return width
        width //= 2
    return 1
