"""Which schedule a program is mapped in: the program as it is, unless another one costs less.

    as it is             3 launches   8 kB of workspaces   9.4e6 sectors
    fused, contracted    1 launch     none                 8.4e6 sectors

Counted are launches, with the turns of the host's loops, workspaces, and the memory traffic of the first candidate at
the representative sizes. A schedule is taken where launches and workspaces are fewer, a loop of launches is gone, or
the traffic is a good deal less or no longer left to one thread; where nothing of it is more; and where no workspace
becomes an array that has no room on the chip. Caches are not modelled, so that fewer launches alone are no reason.
Whatever cannot be judged stays as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from texpr.grammar.ast import Buffer
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.cost import LaunchCost, cost
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.problem import Outline, Problem, Region, workspaces
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.mapped.candidate import Candidate, Combined
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostIf, HostLoop
from texpr.polyhedral.moves import Contract, Move
from texpr.polyhedral.schedule.draft import Draft, Scheduled, checked
from texpr.polyhedral.schedule.propose import SHARE
from texpr.polyhedral.schedule.stage import Schedules
from texpr.polyhedral.target import RESIDENT_THREADS, Target

LESS = 0.75  # of the traffic that was waited for, at most
CORES = 4  # of a CPU, at least
FEWER = 8  # times the launches that there were, at least
NARROW = 4  # sectors of a warp's request of 4 bytes a thread
ENOUGH = 4  # one thread in so many of those that a GPU runs at once keeps its memory busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """`launches`, `workspace_bytes` and `traffic` of one call: sectors on a GPU, accesses on a CPU, where `strided` are
    those that are not contiguous; `waited` is the traffic, each launch's as many times as it has too few threads."""

    launches: int
    workspace_bytes: int
    traffic: int
    strided: int
    waited: float

    def beats(self, other: "Price") -> bool:
        """Whether launches and workspaces are both fewer, the launches many times fewer, or the traffic waited for a
        good deal less, and nothing is more."""
        if self.traffic > other.traffic or self.strided > other.strided or self.waited > other.waited:
            return False
        if self.launches > other.launches or self.workspace_bytes > other.workspace_bytes:
            return False
        both = self.launches < other.launches and self.workspace_bytes < other.workspace_bytes
        return both or self.launches * FEWER <= other.launches or self.waited <= LESS * other.waited


def chosen(schedules: Schedules, own: Problems) -> tuple[Scheduled, Problems] | None:
    """Another schedule that a program is mapped in, checked, with its problems; None where that is the program as it
    is, whose problems are `own`."""
    if not schedules.others:
        return None
    with schedules.proved.program.work.share(SHARE):
        return _cheapest(schedules, own)


def _cheapest(schedules: Schedules, own: Problems) -> tuple[Scheduled, Problems] | None:
    """The schedule that costs the least, where one costs less than the program as it is and passes its check."""
    most = _price(own, ())
    if most is None:
        return None
    better: list[tuple[Price, Draft, Problems]] = []
    for draft in schedules.others:
        try:
            kept = keep_nothing(draft.proved(schedules.proved), draft.moves)
        except TExprError:
            continue
        problems = Problems(kept, own.target, own.hints)
        price = _price(problems, draft.moves)
        if price is not None and price.beats(most):
            better.append((price, draft, problems))
    for _, draft, problems in sorted(better, key=lambda one: (one[0].launches, one[0].traffic, len(one[1].moves))):
        try:
            return checked(schedules.proved, draft), problems
        except TExprError:  # the check may know less than the rules, or take too many steps
            continue
    return None


def _price(problems: Problems, moves: tuple[Move, ...]) -> Price | None:
    """The price of the first candidate; None where there is none, or a contracted array lies in global memory."""
    try:
        problem, candidate = problems.wide, problems.first
        paid = cost(problem, candidate)
    except TExprError:
        return None
    if any(_lies_outside(candidate, move.buffer) for move in moves if isinstance(move, Contract)):
        return None
    target = problems.target
    costs = [(times, paid.launches[region.name]) for region, times in _regions(problem, problem.outline, 1)]
    traffic = [times * (c.sectors if target.is_cuda else c.requests) for times, c in costs]
    return Price(
        launches=sum(times for times, _ in costs),
        workspace_bytes=sum(_bytes(problem, buffer) for buffer in workspaces(problem.kernel)),
        traffic=sum(traffic),
        strided=0 if target.is_cuda else sum(times * c.sectors for times, c in costs),
        waited=sum(own / _share(target, c) for own, (_, c) in zip(traffic, costs, strict=True)),
    )


def _bytes(problem: Problem, buffer: Buffer) -> int:
    return buffer.dtype.size_bytes * prod(problem.representative(extent, {}) for extent in buffer.shape)


def _share(target: Target, paid: LaunchCost) -> float:
    """How much of the memory's rate a launch has threads for; those with wide accesses have more bytes on their way."""
    if not target.is_cuda:
        return min(1.0, paid.blocks / CORES)
    each = max(1.0, paid.ideal / (NARROW * max(1, paid.requests)))
    return min(1.0, ENOUGH * each * paid.blocks * paid.threads / (target.multiprocessors * RESIDENT_THREADS))


def _lies_outside(candidate: Candidate, buffer: str) -> bool:
    """Whether a local of some launch lies in global memory, which the cost does not count."""
    choices = (choice for choice in candidate.launches.values() if not isinstance(choice, Combined))
    return any(choice.memory.get(buffer) is Memory.GLOBAL for choice in choices)


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
