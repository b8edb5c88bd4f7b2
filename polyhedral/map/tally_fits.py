"""Whether the numbers of a launch whose blocks have copies of arrays fit it."""

from collections.abc import Iterable, Iterator

from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.tally import Tally, copied_bytes
from texpr.polyhedral.mapped.candidate import Tallied
from texpr.polyhedral.mapped.places import Memory


def tally_fault(problem: Problem, found: Tally, choice: Tallied) -> str | None:
    """What does not fit, None where all does; what accesses are wide, and where locals may lie, others say."""
    return next(_faults(problem, found, choice), None)


def _faults(problem: Problem, found: Tally, choice: Tallied) -> Iterator[str]:
    target, counts = problem.target, choice.copies.values()
    if not choice.copies or not choice.copies.keys() <= found.of.keys():
        yield f"`copies` has {_listed(choice.copies)}; the arrays that may have some are {_listed(found.of)}"
        return
    if any(count < 1 or choice.threads % count for count in counts):
        yield f"`copies`: {choice.threads} threads do not share {_listed(counts)} of them evenly"
    needed = copied_bytes(problem, choice.copies)
    if needed > target.shared_bytes:
        yield f"it needs {needed} bytes of shared memory, and a block has {target.shared_bytes}"
    if not choice.blocks.keys() <= set(found.indices) or len(choice.blocks) > 1:
        yield f"`blocks` has {_listed(choice.blocks)}, not one of {_listed(found.indices)}"
    if any(count < 1 for count in choice.blocks.values()):
        yield "`blocks` count from 1"
    if choice.ahead < 1 or choice.ahead & (choice.ahead - 1):
        yield "`ahead` is a power of two"
    if choice.resident * choice.threads > target.resident_threads:
        yield f"`resident`: {choice.resident} blocks have more threads than a multiprocessor runs"
    asked = blocks_asked(problem.kernel, target)
    if asked is not None and choice.resident != asked:
        yield f"`resident`: the author asks for {asked} blocks, and the candidate has {choice.resident}"
    if not choice.widths.keys() <= {choice.over}:
        yield f"`widths` has {_listed(choice.widths)}; threads take neighbours of {choice.over}"
    if any(where is not Memory.REG for where in choice.memory.values()):
        yield "`memory`: every thread has its own scalars in registers"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "none"
