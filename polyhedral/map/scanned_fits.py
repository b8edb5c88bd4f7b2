"""Whether the choice of a launch whose scans are shared out fits it: its own numbers, and what it shares out."""

from collections.abc import Iterator
from math import prod

from texpr.grammar.ast import New, Stmt
from texpr.grammar.index.expr import names
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.crew import team_of
from texpr.polyhedral.map.crew_fits import MAX_AHEAD, crew_faults, listed
from texpr.polyhedral.map.digits import thread_pieces_fit
from texpr.polyhedral.map.held import Origins
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.scan_lines import scan_lines, scan_origins
from texpr.polyhedral.map.scan_ring import ring_bytes, ring_fault, ringing
from texpr.polyhedral.map.scan_shifted import shifted, strip_of
from texpr.polyhedral.map.scan_team import slot_bytes
from texpr.polyhedral.map.scan_work import Scans, leaves, scans, stands_alone
from texpr.polyhedral.mapped.candidate import Scanned

MAX_TALL = 64  # iterations that follow one another, where lanes lie across them


def scanned_fault(problem: Problem, nest: Nest, choice: Scanned) -> str | None:
    """What does not fit, None where all does; what accesses are wide, and where locals may lie, others say."""
    found = scans(problem, nest.body, choice.shared_out)
    if found is None:
        return f"`shared_out`: {listed(choice.shared_out)} are no scans that the threads of a block can share"
    return next(_faults(problem, nest, choice, found), None)


def scanned_runs(
    problem: Problem, nest: Nest, choice: Scanned
) -> Iterator[tuple[tuple[Stmt, ...], str, tuple[str, ...], Origins]]:
    """The statements of which a thread takes neighbours of an index that has widths, with all indices around them and
    the element from whose lines the neighbours are counted, if any; but for what lanes shift."""
    found = scans(problem, nest.body, choice.shared_out)
    assert found is not None, "the choice fits"
    for one in found.scans:
        if shifted(problem, nest, choice, one):
            continue
        counted = scan_origins(problem, nest, choice, one)
        for index in (*nest.indices, one.index):
            if index in choice.widths:
                yield one.body, index, (*nest.indices, one.index), counted


def takes_neighbours(nest: Nest, found: Scans, index: str) -> bool:
    """Whether a thread may take several neighbours of an index of the band: each has what scans hand on, and nothing
    else of its own."""
    own = {carrier.every[0] for one in found.scans for carrier in one.carriers}
    alone = all(stmt.buffer in own for stmt in found.stmts if isinstance(stmt, New))
    extents = [par.extent for par in nest.pars] + [one.loop.extent for one in found.scans]
    return alone and len(found.scans) == 1 and not any(index in names(extent) for extent in extents)


def _faults(problem: Problem, nest: Nest, choice: Scanned, found: Scans) -> Iterator[str]:
    warp, dealt = problem.target.warp_size, [index for index, _ in choice.deal]
    is_along, own = choice.along in choice.shared_out, prod(n for _, n in choice.deal)
    if not set(dealt) <= set(nest.indices):
        yield f"`deal` deals threads to {listed(dealt)}, not some of {listed(nest.indices)}"
    if own < 1 or choice.threads % own or min((n for _, n in choice.deal), default=1) < 1:
        yield f"`deal` deals {own} threads, in pieces that do not number {choice.threads}"
        return
    radices, team = [n for _, n in choice.deal], team_of(choice)
    pieces = [team, *radices] if is_along else [*radices, team]
    if not thread_pieces_fit(pieces, choice.threads, warp):
        yield f"`deal` deals {own} threads, in pieces that do not number {choice.threads}"
    if not is_along and choice.along not in dealt:
        yield f"`along`: lanes lie along one of {listed((*choice.shared_out, *dealt))}, not {choice.along}"
    if is_along and team < 2:
        yield f"`along`: lanes lie along {choice.along}, and one thread has all of it"
    for one in found.scans:
        if names(one.loop.extent) & set(dealt):
            yield f"`deal`: the extent of {one.index} depends on an index that has threads"
    if choice.look_back:
        yield from _looking_back(problem, nest, choice, found)
        if choice.next_tile:
            yield "`next_tile`: each tile has a block of its own, with `look_back`"
    yield from crew_faults(problem, choice, MAX_AHEAD if is_along else MAX_TALL)
    yield from _widths(nest, choice, found, is_along)
    yield from _lines(problem, nest, choice, found)
    if choice.ring:
        fault = ring_fault(problem, nest, choice, found)
        if fault is not None:
            yield fault
            return
    elif choice.strip and choice.strip != strip_of(problem, nest, choice, found):
        yield "`strip`: lanes of a warp shift all that a scan that looks back moves, and leave a sector of memory"
    form = ringing(problem, nest, found, choice.along) if choice.ring else None
    needed = slot_bytes(choice, found, problem.target) + (ring_bytes(form, choice) if form is not None else 0)
    if needed > problem.target.shared_bytes:
        yield f"it needs {needed} bytes of shared memory, and a block has {problem.target.shared_bytes}"


def _looking_back(problem: Problem, nest: Nest, choice: Scanned, found: Scans) -> Iterator[str]:
    """Blocks have the tiles of one scan, and nothing else goes from one of them to another."""
    if len(found.scans) != 1 or team_of(choice) == 1 or choice.threads < problem.target.warp_size:
        yield "`look_back`: blocks of a warp or more share one scan, and so do some threads of each"
    elif any(index in names(found.scans[0].loop.extent) for index in nest.indices):
        yield f"`look_back`: the extent of {found.scans[0].index} depends on an index of the band"
    elif any(leaves(problem, found, carrier) for carrier in found.scans[0].carriers):
        yield f"`look_back`: a block would write {found.scans[0].carriers[0].every[0]} that another one reads"
    elif not stands_alone(problem, found):
        yield f"`look_back`: what stands beside the scan over {found.scans[0].index} touches what it touches"


def _widths(nest: Nest, choice: Scanned, found: Scans, is_along: bool) -> Iterator[str]:
    """A thread takes neighbours of scans along which lanes lie, or of one index across them."""
    able = choice.shared_out if is_along else nest.indices
    if not choice.widths.keys() <= set(able) or (not is_along and len(choice.widths) > 1):
        yield f"`widths` has {listed(choice.widths)}, and a thread takes neighbours of {listed(able)}"
        return
    if not is_along and any(not takes_neighbours(nest, found, index) for index in choice.widths):
        yield f"`widths`: each neighbour of {listed(choice.widths)} has scalars or extents of its own"


def _lines(problem: Problem, nest: Nest, choice: Scanned, found: Scans) -> Iterator[str]:
    """Runs of a scan are counted from lines of what its iterations write."""
    along = {one.index: one for one in found.scans if one.index in choice.widths}
    for index, name in choice.lines.items():
        able = scan_lines(problem, nest, along[index]) if index in along else {}
        if name not in able:
            yield f"`lines`: runs of {index} are counted from {listed(able)}, not from {name}"
