"""The first candidate of a band of `atomic` updates whose blocks have copies of what they update.

    par N i { atomic H[K[i]] += 1 }       H: i32[256]: 264 blocks of 1024 threads, 32 copies in each

Updates of global memory that meet in a few elements wait for one another, some nanoseconds each; those of shared memory
go on in every multiprocessor at once. A block pays for its copies twice, when it clears them and when it adds them to
the array, so each must have several updates for every element; of free sizes the launch itself sees to that, for
blocks are no more than there is work for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.choose_parted import blocks_of, rounds_ahead
from texpr.polyhedral.map.digits import power_of_two, power_of_two_below
from texpr.polyhedral.map.hardware_attributes import threads_asked, width_asked
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.tally import copied_bytes, elements, tally
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.map.widths import run_width
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Tallied
from texpr.polyhedral.target import RESERVED_BYTES

THREADS = 1024
AHEAD_BYTES = 32  # that a thread loads before it updates
MIN_UPDATES = 1 << 14  # so many updates of global memory take about as long as clearing and adding up copies
GAIN = 4  # updates of a block for each element of an array that it has copies of


def choose_tallied(problem: Problem, region: Region) -> Tallied | None:
    """Blocks with copies for a band of updates, None where they gain nothing."""
    total = _total(region.nest[0])
    return None if total is not None and total < MIN_UPDATES else tallied(problem, region)


def tallied(problem: Problem, region: Region) -> Tallied | None:
    """Blocks with copies of the arrays of a band that get several updates for each element, None where none does."""
    nest, ranges = region.nest
    sizes = {par.index: problem.representative(par.extent, {}) for par in nest.pars}
    over = max(reversed(nest.indices), key=lambda index: sizes[index])
    found, total = tally(problem, nest, over), _total(nest)
    if found is None:
        return None
    small = [name for name in found.of if total is None or total >= GAIN * _count_of(problem, name)]
    width = run_width(problem, found.reading, over, sizes[over], found.indices, width_asked(nest.pars))
    long = constant_value(found.over.extent) is None
    together = blocks_asked(problem.kernel, problem.target)
    room = problem.target.resident_threads // (together or 1)
    usual = THREADS if long else min(THREADS, power_of_two(-(-sizes[over] // width)))
    usual = min(usual, power_of_two_below(room))
    threads = threads_asked(problem.kernel, problem.target) or max(problem.target.warp_size, usual)
    blocks = together or min(problem.target.resident_blocks, problem.target.resident_threads // threads)
    copies = _copies_of(problem, small, blocks, sure=together is not None)
    if not copies:
        return None
    taken = copied_bytes(problem, copies) + RESERVED_BYTES
    resident = together or min(blocks, problem.target.resident_bytes // taken)
    widths = {over: width} if width > 1 else {}
    work = Work(reductions=(found,), first=(), last=())
    ahead = rounds_ahead(problem, Nest(pars=(), body=()), work, widths, AHEAD_BYTES)
    while ahead > 1 and not long and threads * width * ahead >= 2 * sizes[over]:
        ahead //= 2
    choice = Tallied(
        threads=threads,
        over=over,
        copies=copies,
        ahead=ahead,
        resident=resident,
        widths=widths,
        memory=memory_of(problem, nest.body, block_level=False, outer=nest.indices, ranges=ranges),
    )
    most = problem.target.multiprocessors * resident
    if total is not None:
        most = min(most, total // (GAIN * max(_count_of(problem, name) for name in copies)))
    return replace(choice, blocks=blocks_of(problem, work, ranges, choice.shared_out, most))


def _total(nest: Nest) -> int | None:
    """The iterations of a band, None where sizes leave them open."""
    counts = [constant_value(par.extent) for par in nest.pars]
    return None if None in counts else prod(count for count in counts if count is not None)


def _count_of(problem: Problem, name: str) -> int:
    """The elements of an array that has copies."""
    return elements(problem.kernel.buffer(name)) or 0


def _copies_of(problem: Problem, arrays: Sequence[str], together: int, *, sure: bool) -> Mapping[str, int]:
    """A copy for each lane of a warp where so many blocks have room together, else fewer, and at last one, in all that
    a block may have where these blocks need not be together `sure`ly. Arrays for which that is too small have none."""
    share = problem.target.resident_bytes // together - RESERVED_BYTES
    found = dict.fromkeys(arrays, problem.target.warp_size)

    def bytes_of(name: str) -> int:
        return copied_bytes(problem, {name: found[name]})

    while copied_bytes(problem, found) > share and any(count > 1 for count in found.values()):
        found[max((name for name in found if found[name] > 1), key=bytes_of)] //= 2
    while copied_bytes(problem, found) > (share if sure else problem.target.shared_bytes):
        del found[max(found, key=bytes_of)]
    return found
