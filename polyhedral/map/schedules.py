"""Which schedule a program is mapped in: the program as it is, unless another one costs less.

    as it is             3 launches   8 kB of workspaces   14 µs
    fused, contracted    1 launch     none                 4.5 µs

The times are those of the roofline, of the first candidate at the representative sizes, with the turns of the host's
loops. A schedule is taken where it takes less time and no more workspaces, or as much time with less of the rest; and
where no workspace becomes an array that has no room on the chip, and no row is read again that no cache has kept.
Whatever cannot be judged stays as it is.
"""

from collections.abc import Iterator
from math import prod

from texpr.grammar.ast import Buffer
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.cost import LaunchCost, cost
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.problem import Outline, Problem, Region, workspaces
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.map.roofline import moved_bytes, rounded, time
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choice, Combined
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostIf, HostLoop
from texpr.polyhedral.moves import Contract, Move
from texpr.polyhedral.schedule.draft import Draft, checked
from texpr.polyhedral.schedule.propose import SHARE
from texpr.polyhedral.schedule.stage import Scheduled, Schedules

WORTH_WORKSPACES = 2  # so many times as fast is what needs more of them
CACHE_BYTES = 40 << 20  # of the caches before memory, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """`launches`, `workspace_bytes` and `picoseconds` of one call."""

    launches: int
    workspace_bytes: int
    picoseconds: int

    def beats(self, other: "Price") -> bool:
        """Whether it takes less time and no more workspaces, or as much time, with fewer launches or workspaces; with
        more workspaces, whether it takes less than half the time."""
        if self.workspace_bytes > other.workspace_bytes:
            return self.picoseconds * WORTH_WORKSPACES < other.picoseconds
        if self.picoseconds > other.picoseconds:
            return False
        if self.picoseconds < other.picoseconds:
            return True
        return self.launches <= other.launches and (self.workspace_bytes, self.launches) != (
            other.workspace_bytes,
            other.launches,
        )


def chosen(schedules: Schedules, own: Problems) -> tuple[Scheduled, Problems] | None:
    """Another schedule that a program is mapped in, checked, with its problems; None where that is the program as it
    is, whose problems are `own`."""
    if not schedules.others:
        return None
    with schedules.proved.program.work.share(SHARE):
        return _cheapest(schedules, own)


def _cheapest(schedules: Schedules, own: Problems) -> tuple[Scheduled, Problems] | None:
    """The schedule that costs the least, where one costs less than the program as it is and passes its check."""
    most = price(own)
    if most is None:
        return None
    better: list[tuple[Price, Draft, Problems]] = []
    for draft in schedules.others:
        try:
            kept = keep_nothing(draft.proved(schedules.proved), draft.moves)
        except TExprError:
            continue
        problems = Problems(kept, own.target, own.hints)
        found = price(problems, draft.moves)
        if found is not None and found.beats(most):
            better.append((found, draft, problems))
    for _, draft, problems in sorted(better, key=lambda one: (one[0].picoseconds, one[0].launches, len(one[1].moves))):
        try:
            return checked(schedules.proved, draft), problems
        except TExprError:  # the check may know less than the rules, or take too many steps
            continue
    return None


def price(problems: Problems, moves: tuple[Move, ...] = ()) -> Price | None:
    """The price of the first candidate; None where there is none, or a contracted array lies in global memory."""
    try:
        problem, candidate = problems.wide, problems.first
        paid = cost(problem, candidate)
    except TExprError:
        return None
    if any(_lies_outside(candidate, move.buffer) for move in moves if isinstance(move, Contract)):
        return None
    if moves and any(
        _is_read_again(problem, region, candidate.launches[region.name], paid.launches[region.name])
        for region in problem.regions()
    ):
        return None
    own = list(_regions(problem, problem.outline, 1))
    return Price(
        launches=sum(times for _, times in own),
        workspace_bytes=sum(_bytes(problem, buffer) for buffer in workspaces(problem.kernel)),
        picoseconds=rounded(sum(times * time(problem, region, paid.launches[region.name]) for region, times in own)),
    )


def _bytes(problem: Problem, buffer: Buffer) -> int:
    return buffer.dtype.size_bytes * prod(problem.representative(extent, {}) for extent in buffer.shape)


def _lies_outside(candidate: Candidate, buffer: str) -> bool:
    """Whether a local of some launch lies in global memory, which the cost does not count."""
    choices = (choice for choice in candidate.launches.values() if not isinstance(choice, Combined))
    return any(choice.memory.get(buffer) is Memory.GLOBAL for choice in choices)


def _is_read_again(problem: Problem, region: Region, choice: Choice, paid: LaunchCost) -> bool:
    """Whether blocks read again what no cache has kept meanwhile: bands apart read no more, and share long rows out."""
    if not isinstance(choice, Blocks):
        return False
    moved = moved_bytes(problem, region)
    at_once = problem.target.multiprocessors * max(1, problem.target.resident_threads // choice.threads)
    return (
        moved * min(at_once, paid.blocks) > CACHE_BYTES * paid.blocks and SECTOR_BYTES * paid.sectors > moved * 5 // 4
    )


def _regions(problem: Problem, outline: Outline, times: int) -> Iterator[tuple[Region, int]]:
    """Every region, with how often a call runs it at most."""
    for node in outline:
        match node:
            case Region():
                yield node, times
            case HostLoop(extent=extent, body=body):
                yield from _regions(problem, body, times * problem.representative(extent, problem.host_ranges))
            case HostIf(then=then, orelse=orelse):
                yield from _regions(problem, then, times)
                yield from _regions(problem, orelse, times)
