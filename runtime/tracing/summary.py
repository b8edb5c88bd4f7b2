"""What a trace says about a run: its critical path, how transfers and work overlap, idle workers, bytes moved.

The critical path is the longest chain of tasks of which each had to wait for the one before: with any number of workers
and no transfers the run takes no less. A task with children is over when they are; a child begins no sooner after its
parent than it was submitted.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from texpr.grammar.records import dataclass
from texpr.runtime.tracing.joins import Joined, Pair
from texpr.runtime.tracing.trace_file import Trace

MAX_SHOWN = 10  # tasks of the critical path that are printed
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Times in microseconds. `statuses` counts tasks; `idle` is a share of the whole for each worker; `moved` has
    (transfers, bytes) by (source, target); `overlap` is the share of the time of transfers during which a task ran."""

    statuses: Mapping[str, int]
    wall_us: float
    work_us: float
    critical_us: float
    critical: tuple[tuple[int, str, float], ...]  # number, name, microseconds
    transfer_us: float
    overlap: float | None
    idle: Mapping[str, float]
    moved: Mapping[tuple[str, str], tuple[int, int]]
    evictions: int

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": dict(self.statuses),
            "wall_us": self.wall_us,
            "work_us": self.work_us,
            "critical_path_us": self.critical_us,
            "critical_path": [{"task": number, "name": name, "us": us} for number, name, us in self.critical],
            "transfer_us": self.transfer_us,
            "overlap": self.overlap,
            "idle": dict(self.idle),
            "moved": [
                {"from": source, "to": target, "transfers": count, "bytes": size}
                for (source, target), (count, size) in self.moved.items()
            ],
            "evictions": self.evictions,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        lines = [f"tasks          {counts or 'none'}", f"time           {_time(self.wall_us)}"]
        share = f", {self.critical_us / self.wall_us:.0%} of the time" if self.wall_us else ""
        lines.append(f"critical path  {_time(self.critical_us)}{share}; {len(self.critical)} tasks")
        longest = sorted(self.critical, key=lambda part: -part[2])[:MAX_SHOWN]
        lines += [f"               {_time(us):>10}  {name}#{number}" for number, name, us in longest]
        lines.append(f"work           {_time(self.work_us)} in all workers")
        lines += [f"idle           {share:>6.1%}  {worker}" for worker, share in self.idle.items()]
        if self.overlap is not None:
            lines.append(f"transfers      {_time(self.transfer_us)}, tasks ran during {self.overlap:.0%} of it")
        for (source, target), (count, size) in self.moved.items():
            lines.append(f"moved          {_bytes(size):>10}  {source} -> {target}, {count} transfers")
        if self.evictions:
            lines.append(f"evictions      {self.evictions}")
        return "\n".join(lines)


def summarise(trace: Trace) -> Summary:
    runs = trace.tasks.values()
    working = merged((run.begin_us, run.end_us) for run in runs)
    moving = merged((run.begin_us, run.end_us) for run in trace.transfers)
    ends = merged([*working, *moving])
    wall = ends[-1][1] - ends[0][0] if ends else 0.0
    statuses: dict[str, int] = {}
    for run in runs:
        statuses[run.status] = statuses.get(run.status, 0) + 1
    if trace.dropped:
        statuses["never ran"] = trace.dropped
    busy = dict.fromkeys(trace.workers, 0.0)
    for run in runs:
        busy[run.worker] = busy.get(run.worker, 0.0) + run.end_us - run.begin_us
    moved: dict[tuple[str, str], tuple[int, int]] = {}
    for move in trace.transfers:
        count, size = moved.get((move.source, move.target), (0, 0))
        moved[move.source, move.target] = count + 1, size + move.size_bytes
    critical = critical_path(trace)
    in_transfer = length(moving)
    return Summary(
        statuses=statuses,
        wall_us=wall,
        work_us=sum(busy.values()),
        critical_us=critical[0],
        critical=tuple(
            (number, trace.tasks[number].name, trace.tasks[number].end_us - trace.tasks[number].begin_us)
            for number in critical[1]
        ),
        transfer_us=in_transfer,
        overlap=length(common(moving, working)) / in_transfer if in_transfer else None,
        idle={worker: 1 - used / wall if wall else 0.0 for worker, used in sorted(busy.items())},
        moved=moved,
        evictions=trace.evictions,
    )


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals, in order."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def common(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """What two unions of intervals have in common."""
    found: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            found.append((begin, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def critical_path(trace: Trace) -> tuple[float, tuple[int, ...]]:
    """The length of the longest chain in microseconds, and its tasks from first to last."""
    tasks = trace.tasks
    over: dict[int, Pair] = {}  # when a task and its children are over at the soonest, and the last of them
    begun: dict[int, Pair | None] = {}  # when it can begin at the soonest, and the task that it waits for until then
    joined = Joined(trace.joins, over.get)
    for run in sorted(tasks.values(), key=lambda run: (run.begin_us, run.number)):  # all before it are over
        soonest = joined.greatest(run.after)
        parent = tasks.get(run.parent) if run.parent is not None else None
        if parent is not None and parent.number in begun:
            there = _time_of(begun[parent.number]) + max(0.0, run.submitted_us - parent.begin_us)
            soonest = max(soonest or (-1.0, 0), (there, parent.number))
        begun[run.number] = soonest
        end = _time_of(soonest) + run.end_us - run.begin_us
        above: int | None = run.number
        while above is not None and above in tasks and _time_of(over.get(above)) <= end:
            over[above] = end, run.number
            above = tasks[above].parent
    longest = max(over.values(), default=None)
    chain: list[int] = []
    at = longest
    while at is not None:
        chain.append(at[1])
        at = begun[at[1]]
    return _time_of(longest), tuple(reversed(chain))


def _time_of(pair: Pair | None) -> float:
    return 0.0 if pair is None else pair[0]


def _time(us: float) -> str:
    return f"{us / 1e6:.3f} s" if us >= 1e6 else f"{us / 1e3:.3f} ms" if us >= 1e3 else f"{us:.1f} us"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
