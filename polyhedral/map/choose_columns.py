"""The choice of columns: how many threads lie across a band, and how many share a column.

    256 channels of images      f32: 32 threads across, teams of 8 with 32 rounds     bf16: the same, 2 neighbours each
    1024 channels               16 threads across, teams of 32
    of 129 x 127 pixels         f32: 64 threads across, teams of 8                    bf16: 128 threads across

Measured on an H200, relative to a device copy: 256 channels run at .95 to .96 where a thread reads 4 bytes at once, and
no better where it reads 16, for then it has more to combine. Teams that read 64 bytes of a row do (.92 for 1024
channels in f32), those that read 32 do not (.29, and .58 for threads that read columns twice). Where rows begin
anywhere in memory, sectors are shared by two blocks: bf16 of 257 channels runs at .50 with 64 bytes of a row, at .64
with 128. A thread with 64 elements of bf16 takes 80 registers, and spills (.78) where it has 64.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.linear import linear
from texpr.polyhedral.map.bands import Nest, fits_threads
from texpr.polyhedral.map.block_sizes import band_sizes
from texpr.polyhedral.map.column_work import ColumnWork, body_of, column_held, column_work
from texpr.polyhedral.map.columns_fit import columns_faults
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.held import Held, named
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.vectors import along, is_run
from texpr.polyhedral.mapped.candidate import Columns
from texpr.polyhedral.target import REGISTERS

ACCESS = 4  # bytes that a thread reads at once
LINE_BYTES = 128  # that a team reads of a row
SHIFTED_LINE_BYTES = 256  # where rows begin anywhere in memory
LEAST_LINE_BYTES = 64  # where a column takes many threads
OWN = 36  # accesses of a thread, each of which has a register at least
BESIDE = 44  # registers that it has for anything else
FEW = 4  # one block for so many multiprocessors at least: else an iteration does better with a block
USUAL, MOST = 256, 512  # threads of a block, where a row is not shorter for it


def choose_columns(problem: Problem, nest: Nest, ranges: Ranges) -> Columns | None:
    """Teams that hold what several loops read of a column; None where these are none, or cannot hold it."""
    found = column_work(problem, nest)
    asked = threads_asked(problem.kernel, problem.target) or width_asked(nest.pars)
    if found is None or asked or problem.objective.by_distance or not fits_threads(problem.kernel, nest):
        return None
    held = column_held(problem, nest, found, 1)
    across = lies_across(problem, nest, held) if held is not None else None
    if held is None or across is None:
        return None
    sizes = dict(zip(nest.indices, band_sizes(problem, nest, ranges), strict=True))
    size = max(problem.kernel.buffer(name).dtype.size_bytes for name, _ in held.elements)
    width = _width(problem, nest, found, across, size)
    accesses = problem.representative(found.loops[0].extent, ranges) * len(held.elements)
    shape = _shape(problem, sizes, across, size, width, accesses)
    if shape is None:
        return None
    lanes, threads = shape
    choice = replace(
        columns_of(problem, nest, ranges, found, across),
        threads=threads,
        lanes=lanes,
        widths={across: width} if width > 1 else {},
        resident=blocks_asked(problem.kernel, problem.target) or _resident(threads, width, size),
    )
    return choice if next(columns_faults(problem, nest, choice), None) is None else None


def columns_of(problem: Problem, nest: Nest, ranges: Ranges, found: ColumnWork, across: str) -> Columns:
    """Columns with a warp for each block, all of it across the band."""
    warp = problem.target.warp_size
    return Columns(
        threads=warp,
        across=across,
        lanes=warp,
        loops=tuple(loop.index for loop in found.loops),
        grid=(across, *(index for index in reversed(nest.indices) if index != across)),
        resident=blocks_asked(problem.kernel, problem.target) or 0,
        memory=memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=ranges),
    )


def lies_across(problem: Problem, nest: Nest, held: Held) -> str | None:
    """The index along which neighbouring columns are neighbours in memory."""
    read = [named(element, loop) for loop, own in held.reads.items() for element in own]
    return next((i for i in nest.indices if all(is_run(problem, element, i) for element in read)), None)


def _width(problem: Problem, nest: Nest, found: ColumnWork, across: str, size: int) -> int:
    """The neighbours of the index across that a thread takes, where all accesses to them are wide."""
    extent, width = next(par.extent for par in nest.pars if par.index == across), max(1, ACCESS // size)
    bodies = [(body_of(loop), (*nest.indices, loop.index)) for loop in found.loops]
    wide = all(along(problem, body, across, hardware).vectors(width).whole(width) for body, hardware in bodies)
    return width if wide and linear(extent).is_multiple(width, problem.divisors) else 1


def _shape(
    problem: Problem, sizes: Mapping[str, int], across: str, size: int, width: int, accesses: int
) -> tuple[int, int] | None:
    """Threads across and of a block; None where teams have no room for their columns, or there are few of these."""
    target, team = problem.target, power_of_two(-(-accesses // OWN))
    whole = sizes[across] * size % SECTOR_BYTES == 0
    line = LINE_BYTES if whole else SHIFTED_LINE_BYTES
    if team == 1:
        lanes = USUAL
    else:
        lanes = min(max(1, line // (size * width)), power_of_two(-(-sizes[across] // width)))
        while lanes * team > (MOST if whole else target.max_threads) and lanes * size * width > LEAST_LINE_BYTES:
            lanes //= 2
        team *= max(1, USUAL // (lanes * team))
    if lanes * team > target.max_threads:
        return None
    blocks = prod(sizes.values()) // (width * lanes)
    return (lanes, lanes * team) if blocks * FEW >= target.multiprocessors else None


def _resident(threads: int, width: int, size: int) -> int:
    """Blocks that a multiprocessor has room for, where narrow elements would have a register each."""
    several = REGISTERS // (threads * (OWN + BESIDE))
    return several if width > 1 and size < ACCESS and several > 1 else 0
