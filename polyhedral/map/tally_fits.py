"""Whether the numbers of a launch whose blocks have copies of arrays fit it."""

from collections.abc import Iterator

from texpr.polyhedral.map.crew_fits import crew_faults, listed
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.tally import Tally, copied_bytes
from texpr.polyhedral.mapped.candidate import Tallied


def tally_fault(problem: Problem, found: Tally, choice: Tallied) -> str | None:
    """What does not fit, None where all does; what accesses are wide, and where locals may lie, others say."""
    return next(_faults(problem, found, choice), None)


def _faults(problem: Problem, found: Tally, choice: Tallied) -> Iterator[str]:
    target, counts = problem.target, choice.copies.values()
    if not choice.copies or not choice.copies.keys() <= found.of.keys():
        yield f"`copies` has {listed(choice.copies)}; the arrays that may have some are {listed(found.of)}"
        return
    if any(count < 1 or choice.threads % count for count in counts):
        yield f"`copies`: {choice.threads} threads do not share {listed(counts)} of them evenly"
    needed = copied_bytes(problem, choice.copies)
    if needed > target.shared_bytes:
        yield f"it needs {needed} bytes of shared memory, and a block has {target.shared_bytes}"
    if not choice.blocks.keys() <= set(found.indices) or len(choice.blocks) > 1:
        yield f"`blocks` has {listed(choice.blocks)}, not one of {listed(found.indices)}"
    if any(count < 1 for count in choice.blocks.values()):
        yield "`blocks` count from 1"
    yield from crew_faults(problem, choice)
    if not choice.widths.keys() <= {choice.over}:
        yield f"`widths` has {listed(choice.widths)}; threads take neighbours of {choice.over}"
