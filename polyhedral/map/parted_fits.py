"""Whether the choice of a launch whose reductions are shared out fits it: its own numbers, and what it shares out."""

from collections.abc import Iterator
from math import prod

from texpr.grammar.ast import Stmt
from texpr.grammar.index.expr import names
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.by_columns import ends_columns, ends_rows, meeting_slots
from texpr.polyhedral.map.crew import cut_of, team_of
from texpr.polyhedral.map.crew_fits import crew_faults, listed
from texpr.polyhedral.map.digits import thread_pieces_fit
from texpr.polyhedral.map.meeting import groups_of
from texpr.polyhedral.map.part_lines import part_lines, row_lines
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.updates import part_bytes
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.map.widths import reads_alone
from texpr.polyhedral.map.work import Work, work
from texpr.polyhedral.mapped.candidate import Parted

MOST_ROWS = 16  # of a thread along one index, whose registers have the runs of all
MOST_SUMS = 64  # of a thread with rows of two indices


def parted_fault(problem: Problem, nest: Nest, choice: Parted) -> str | None:
    """What does not fit, None where all does; what accesses are wide, and where locals may lie, others say."""
    found = work(problem, nest.body, choice.shared_out)
    if found is None:
        return f"`shared_out`: {listed(choice.shared_out)} are no reductions that blocks can share"
    return next((fault for fault in _faults(problem, nest, choice, found)), None)


def runs_of(problem: Problem, nest: Nest, choice: Parted) -> Iterator[tuple[tuple[Stmt, ...], str, tuple[str, ...]]]:
    """The statements of which a thread takes neighbours of an index that has widths, with all indices around them."""
    found = work(problem, nest.body, choice.shared_out)
    assert found is not None, "the choice fits"
    for one in found.reductions:
        for index in (*nest.indices, one.over.index):
            across = choice.patch and choice.deal  # what is read may lie along rows alone
            if index in choice.widths and not across:
                yield one.reading, index, (*nest.indices, *one.indices)


def _faults(problem: Problem, nest: Nest, choice: Parted, found: Work) -> Iterator[str]:
    target, dealt = problem.target, [index for index, _ in choice.deal]
    own = prod(n for _, n in choice.deal)
    if not set(dealt) <= set(nest.indices):
        yield f"`deal` deals threads to {listed(dealt)}, not some of {listed(nest.indices)}"
    radices = [n for _, n in choice.deal]
    if own < 1 or choice.threads % own or min(radices, default=1) < 1:
        yield f"`deal` deals {own} threads, in pieces that do not number {choice.threads}"
        return
    if not thread_pieces_fit([*radices, team_of(choice)], choice.threads, target.warp_size):
        yield f"`deal` deals {own} threads, in pieces that do not number {choice.threads}"
    shared = [[i for i in one.indices if i in choice.blocks] for one in found.reductions]
    if choice.blocks and (any(len(one) != 1 for one in shared) or choice.blocks.keys() != {i for (i,) in shared}):
        yield f"`blocks` has {listed(choice.blocks)}, not one index of each reduction"
    if len(set(choice.blocks.values())) > 1 or any(n < 1 for n in choice.blocks.values()):
        yield "`blocks`: all reductions of a launch have as many blocks"
    yield from crew_faults(problem, choice)
    yield from _widths(problem, nest, choice, found)
    yield from _lines(problem, nest, choice, found)
    yield from _patch(problem, nest, choice, found)
    slots = _slots(choice, nest, target.warp_size)
    needed = slots * part_bytes([update for one in found.reductions for update in one.updates])
    if needed > target.shared_bytes:
        yield f"it needs {needed} bytes of shared memory, and a block has {target.shared_bytes}"


def _lines(problem: Problem, nest: Nest, choice: Parted, found: Work) -> Iterator[str]:
    """Neighbours of the band are counted from the chunks of what is read, where a thread ends each of a block's."""
    if choice.strip and not choice.lines:
        yield f"`strip`: blocks end {choice.strip} neighbours that are counted from no line"
    for index, name in choice.lines.items():
        if index not in nest.indices:
            yield from _row_lines(problem, nest, choice, found, index, name)
            continue
        along = index in choice.widths and index in nest.indices and ends_columns(choice, index)
        able = part_lines(problem, nest, found, index, team_of(choice)) if along else {}
        if name not in able:
            yield f"`lines`: neighbours of {index} are counted from {listed(able)}, not from {name}"
        elif choice.widths[index] * problem.kernel.buffer(able[name][0]).dtype.size_bytes != ACCESS_BYTES:
            yield f"`lines`: neighbours of {index} are no chunk of {ACCESS_BYTES} bytes"
        elif not 0 <= choice.strip <= (whole := (dict(choice.deal)[index] - 1) * choice.widths[index]):
            yield f"`strip`: threads are sure to read {whole} neighbours of {index}, not {choice.strip}"
        elif choice.strip % choice.widths[index]:
            yield f"`strip`: {choice.strip} neighbours of {index} are no whole chunks"


def _row_lines(problem: Problem, nest: Nest, choice: Parted, found: Work, index: str, name: str) -> Iterator[str]:
    """Runs along a reduction are counted from the chunks of a thread's rows, which are aligned alike."""
    alone = len(choice.patch) == len(choice.lines) == 1 and not choice.deal
    over = {one.over.index for one in found.reductions}
    able = row_lines(problem, nest, found, next(iter(choice.patch))) if alone and index in over else {}
    if name not in able:
        yield f"`lines`: runs along {index} are counted from {listed(able)}, not from {name}"
    elif choice.widths.get(index, 1) * problem.kernel.buffer(able[name][0][0]).dtype.size_bytes != ACCESS_BYTES:
        yield f"`lines`: runs along {index} are no chunk of {ACCESS_BYTES} bytes"
    if choice.strip:
        yield f"`strip`: blocks end rows, and no strip of {index}"


def _patch(problem: Problem, nest: Nest, choice: Parted, found: Work) -> Iterator[str]:
    """A thread takes several rows where its runs lie along the reductions, and all threads of a block share them."""
    if not choice.patch:
        return
    if choice.next_turn:
        yield "`next_turn`: what a thread loads once for several rows is not loaded while it adds"
    several = [par for par in nest.pars if par.index in choice.patch]
    counts = choice.patch.values()
    if len(several) != len(choice.patch) or len(several) > 2 or min(counts) < 2 or max(counts) > MOST_ROWS:
        yield f"`patch` has {listed(choice.patch)}, not 2 to {MOST_ROWS} of one or two of {listed(nest.indices)}"
        return
    if prod(counts) > MOST_SUMS:
        yield f"`patch`: a thread has at most {MOST_SUMS} rows of two indices"
    over = {one.over.index for one in found.reductions}
    if choice.lines.keys() & {*nest.indices} or choice.widths.keys() != over or found.first:
        yield "`patch`: the runs of a thread lie along the reductions"
    if choice.deal and not ends_rows(choice):
        yield "`patch`: all threads of a block share the reductions, or those to which rows are dealt end one each"
    extents = [p.extent for p in nest.pars] + [loop.extent for one in found.reductions for loop in one.loops]
    for par in several:
        if any(par.index in names(extent) for extent in extents):
            yield f"`patch`: an extent depends on {par.index}"


def _slots(choice: Parted, nest: Nest, warp: int) -> int:
    """The parts of an update that lie in shared memory, those of the block's and those of all blocks."""
    along = next((i for i in nest.indices if i in choice.widths), None)
    if along is not None and ends_columns(choice, along):
        return meeting_slots(choice, dict(choice.deal)[along], choice.widths[along])
    each = prod(choice.taken.get(i, 1) for i in nest.indices)
    if ends_rows(choice):
        return meeting_slots(choice, choice.deal[0][1], each)
    slots = choice.threads * each if choice.deal else choice.threads // warp
    return 2 * (slots + (choice.threads if choice.deal and groups_of(team_of(choice), each) else 0))


def _widths(problem: Problem, nest: Nest, choice: Parted, found: Work) -> Iterator[str]:
    """A thread takes neighbours of one index of the band, or of the indices that threads share."""
    over = [one.over.index for one in found.reductions]
    several = [par for par in nest.pars if par.index in choice.widths]
    if not choice.widths.keys() <= {*nest.indices, *over}:
        yield f"`widths` has {listed(choice.widths)}; those of threads are {listed((*nest.indices, *over))}"
    if len(several) > 1 or (several and (found.first or choice.widths.keys() & set(over))):
        yield f"`widths` has {listed(choice.widths)}, and a thread takes neighbours of one index"
    for par in several:
        extents = [p.extent for p in nest.pars] + [loop.extent for one in found.reductions for loop in one.loops]
        if any(par.index in names(extent) for extent in extents):
            yield f"`widths`: an extent depends on {par.index}"
        width = choice.widths[par.index]
        if cut_of(problem, par, width) is not None and not all(
            reads_alone(problem, one.reading, par.index, width, (*nest.indices, *one.indices))
            for one in found.reductions
        ):
            yield f"`widths`: the extent of {par.index} is no multiple of {width}"
