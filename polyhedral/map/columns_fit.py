"""Whether the columns of a candidate are such: what is wrong with them, in words."""

from collections.abc import Iterator

from texpr.grammar.index.linear import linear
from texpr.polyhedral.map.bands import Nest, fits_threads
from texpr.polyhedral.map.column_work import body_of, column_held, column_work
from texpr.polyhedral.map.crew_fits import listed
from texpr.polyhedral.map.digits import thread_pieces_fit
from texpr.polyhedral.map.held import held_bytes
from texpr.polyhedral.map.meeting import groups_of
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.row_room import HELD_BYTES
from texpr.polyhedral.map.updates import part_bytes
from texpr.polyhedral.map.vectors import along
from texpr.polyhedral.mapped.candidate import Columns


def columns_faults(problem: Problem, nest: Nest, choice: Columns) -> Iterator[str]:
    """What is wrong with a launch of teams that share columns."""
    target, found = problem.target, column_work(problem, nest)
    if found is None or not fits_threads(problem.kernel, nest):
        yield f"the loops of {listed(nest.indices)} are no loops over columns that threads share"
        return
    loops = tuple(loop.index for loop in found.loops)
    if choice.loops != loops:
        yield f"`loops` has {listed(choice.loops)}; the loops over a column are {listed(loops)}"
    if choice.across not in nest.indices or choice.lanes < 1 or choice.threads % choice.lanes:
        yield f"`across`: {choice.lanes} of {choice.threads} threads cannot lie across {choice.across}"
        return
    team = choice.threads // choice.lanes
    if not thread_pieces_fit([n for n in (choice.lanes, team) if n > 1], choice.threads, target.warp_size):
        yield f"`lanes`: {choice.lanes} threads and teams of {team} do not number {choice.threads}"
    yield from _widths(problem, nest, choice)
    held = column_held(problem, nest, found, team)
    width = choice.widths.get(choice.across, 1)
    if held is None or held_bytes(problem, held, width) > HELD_BYTES:
        yield f"`loops`: {HELD_BYTES} bytes of a thread's registers cannot hold what {listed(loops)} read"
    slots = choice.threads * (width + bool(groups_of(team, width))) if team > 1 else 0
    needed = slots * part_bytes([update for one in found.reductions for update in one.updates])
    if needed > target.shared_bytes:
        yield f"it needs {needed} bytes of shared memory, and a block has {target.shared_bytes}"
    asked = blocks_asked(problem.kernel, target)
    if asked is not None and choice.resident != asked:
        yield f"`resident`: the author asks for {asked} blocks, and the candidate has {choice.resident}"
    if choice.resident * choice.threads > target.resident_threads:
        yield f"`resident`: {choice.resident} blocks have more threads than a multiprocessor runs"


def _widths(problem: Problem, nest: Nest, choice: Columns) -> Iterator[str]:
    """A thread takes neighbours of the index across, of which there are whole runs, by wide accesses."""
    if not choice.widths:
        return
    width = choice.widths.get(choice.across, 1)
    if choice.widths.keys() != {choice.across} or width < 2:
        yield f"`widths` has {listed(choice.widths)}, and a thread takes neighbours of {choice.across}"
        return
    extent = next(par.extent for par in nest.pars if par.index == choice.across)
    if not linear(extent).is_multiple(width, problem.divisors):
        yield f"`widths`: the extent of {choice.across} is no multiple of {width}"
    found = column_work(problem, nest)
    for loop in found.loops if found is not None else ():
        hardware = (*nest.indices, loop.index)
        if not along(problem, body_of(loop), choice.across, hardware).vectors(width).wide:
            yield f"`widths`: no access is wide where a thread takes {width} iterations of {choice.across}"
