"""What launches whose blocks share out their iterations have in common: numbers that do not fit, names in words."""

from collections.abc import Iterable, Iterator

from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.mapped.candidate import Parted, Scanned, Tallied
from texpr.polyhedral.mapped.places import Memory

MAX_AHEAD = 8  # rounds that a thread loads before it uses what they brought
MAX_CHUNKS = 20  # the same of aligned chunks that are one load each


def crew_faults(problem: Problem, choice: Parted | Tallied | Scanned, most_ahead: int = MAX_AHEAD) -> Iterator[str]:
    """What is wrong with the blocks of a launch, and with how each of its threads works."""
    if isinstance(choice, Parted) and choice.lines:
        if not 1 <= choice.ahead <= MAX_CHUNKS:
            yield f"`ahead` is at most {MAX_CHUNKS} where neighbours are counted from lines"
    elif choice.ahead > most_ahead or not is_power_of_two(choice.ahead):
        yield f"`ahead` is a power of two up to {most_ahead}"
    if choice.resident * choice.threads > problem.target.resident_threads:
        yield f"`resident`: {choice.resident} blocks have more threads than a multiprocessor runs"
    asked = blocks_asked(problem.kernel, problem.target)
    if asked is not None and choice.resident != asked:
        yield f"`resident`: the author asks for {asked} blocks, and the candidate has {choice.resident}"
    if any(where is not Memory.REG for where in choice.memory.values()):
        yield "`memory`: every thread has its own scalars in registers"


def listed(items: Iterable[object]) -> str:
    """Names in a sentence."""
    return ", ".join(map(str, items)) or "none"
