"""The trace file: JSON that Perfetto and chrome://tracing open, and what `texpr trace` reads of it.

Each memory is a process, each worker and copier a thread. docs/trace.schema.json says which events there are; `args` of
tasks and transfers have all that a summary needs. A task comes `after` others: numbers of tasks, or names of join nodes
("j1"), which stand in `otherData.joins` with what comes before them.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.paths import as_path, not_written, read_plain
from texpr.grammar.records import dataclass
from texpr.runtime.tasks.residency import HOME
from texpr.runtime.tasks.submission import Node
from texpr.runtime.tracing.joins import Joined
from texpr.runtime.tracing.recorder import Recorder, Span, Vertex

FORMAT, VERSION = "texpr-trace", 1
MAX_TRACE_BYTES = 1 << 31
INTO_HOME = ("PUT", "ADD")  # the transfers that leave a node
Event = dict[str, Any]
Before = tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """A task that ran. Times are in microseconds; `worker` names its thread."""

    number: int
    name: str
    status: str
    parent: int | None
    after: Before
    worker: str
    submitted_us: float
    ready_us: float
    begin_us: float
    end_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRun:
    """A transfer between memories."""

    source: str
    target: str
    size_bytes: int
    begin_us: float
    end_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a trace file says; `joins` are join nodes by name, `dropped` counts tasks that never ran."""

    tasks: Mapping[int, TaskRun]
    joins: Mapping[str, Before]
    transfers: tuple[TransferRun, ...]
    workers: tuple[str, ...]
    evictions: int
    dropped: int


def write_trace(recorder: Recorder, memories: Sequence[str], workers: Sequence[tuple[int, str]]) -> None:
    """Write what was recorded. `memories` are named by their nodes, `workers` are threads with theirs. Raises E0606 or
    E0608."""
    threads = {name: (node, number + 1) for number, (node, name) in enumerate(workers)}
    events = [*_names(memories, threads)]
    after, joins = _edges(recorder)
    events += _tasks(recorder, after, threads)
    events += _transfers(recorder, memories, threads)
    events += _flows(recorder, after, joins, threads)
    events += _queues(recorder)
    events += _memory(recorder)
    other = {"format": FORMAT, "version": VERSION, "joins": joins}
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}, separators=(",", ":"))
    try:
        recorder.path.write_text(text, encoding="utf-8")
    except OSError as why:
        raise not_written(recorder.path, why) from None


def _us(time: int) -> float:
    return time / 1000


def _names(memories: Sequence[str], threads: Mapping[str, tuple[int, int]]) -> list[Event]:
    def named(kind: str, pid: int, tid: int, name: str) -> Event:
        return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}

    events = [named("process_name", node, 0, f"memory {name}") for node, name in enumerate(memories)]
    return events + [named("thread_name", pid, tid, name) for name, (pid, tid) in threads.items()]


def _edges(recorder: Recorder) -> tuple[dict[int, list[int | str]], dict[str, list[int | str]]]:
    """What each task and each join node comes after."""
    names: dict[Node, str] = {}
    after: dict[int, list[int | str]] = {}
    joins: dict[str, list[int | str]] = {}
    work: list[Node] = [task.vertex for task in recorder.submitted]
    while work:
        node = work.pop()
        source: int | str = node.number if isinstance(node, Vertex) else names[node]
        for behind in node.successors:
            if isinstance(behind, Vertex):
                after.setdefault(behind.number, []).append(source)
                continue
            if behind not in names:
                names[behind] = f"j{len(names) + 1}"
                work.append(behind)
            joins.setdefault(names[behind], []).append(source)
    return after, joins


def _tasks(
    recorder: Recorder, after: Mapping[int, Sequence[int | str]], threads: Mapping[str, tuple[int, int]]
) -> list[Event]:
    events = []
    ready = {number: time for time, number, _ in recorder.ready}
    for task in sorted(recorder.submitted, key=lambda task: task.number):
        args: Event = {
            "task": task.number,
            "status": recorder.ended.get(task.number, "dropped"),
            "parent": task.parent,
            "after": sorted(set(after.get(task.number, ())), key=str),
            "accesses": list(task.accesses),
            "submitted": _us(task.time),
        }
        span = recorder.ran.get(task.number)
        if span is None:
            events.append(
                {"name": task.name, "cat": "task", "ph": "i", "s": "g", "pid": HOME, "tid": 0, "ts": _us(task.time),
                 "args": args}
            )  # fmt: skip
        else:
            args["ready"] = _us(ready.get(task.number, span.begin))
            events.append({"name": task.name, "cat": "task", "ph": "X", **_at(span, threads), "args": args})
    return events


def _at(span: Span, threads: Mapping[str, tuple[int, int]]) -> Event:
    pid, tid = threads[span.thread]
    return {"pid": pid, "tid": tid, "ts": _us(span.begin), "dur": _us(span.end - span.begin)}


def _transfers(recorder: Recorder, memories: Sequence[str], threads: Mapping[str, tuple[int, int]]) -> list[Event]:
    events = []
    for step, block, size_bytes, begin, span in recorder.moved:
        here, home = memories[span.node], memories[HOME]
        source, target = (here, home) if step in INTO_HOME else (memories[begin] if step == "GET" else here, here)
        args = {"step": step, "block": block, "from": source, "to": target, "bytes": size_bytes}
        events.append({"name": f"{step} {block}", "cat": "transfer", "ph": "X", **_at(span, threads), "args": args})
    return events


def _flows(
    recorder: Recorder,
    after: Mapping[int, Sequence[int | str]],
    joins: Mapping[str, Sequence[int | str]],
    threads: Mapping[str, tuple[int, int]],
) -> list[Event]:
    """An arrow for each dependence; of those by way of a join node, for the one that was over last."""
    ran = recorder.ran
    joined = Joined(joins, lambda task: (ran[task].end, task) if task in ran else None)
    arrows = [
        (source[1], task)
        for task, before in after.items()
        for source in dict.fromkeys(joined.greatest((b,)) for b in before)
        if source is not None and task in ran
    ]
    events = []
    for number, (source, task) in enumerate(arrows):
        same = {"name": "dependence", "cat": "dependence", "id": number}
        begin, end = _at(ran[source], threads), _at(ran[task], threads)
        events.append({**same, "ph": "s", "pid": begin["pid"], "tid": begin["tid"], "ts": _us(ran[source].end)})
        events.append({**same, "ph": "f", "bp": "e", "pid": end["pid"], "tid": end["tid"], "ts": end["ts"]})
    return events


def _queues(recorder: Recorder) -> list[Event]:
    """How many tasks have all that they need, and no worker yet."""
    events = []
    begun = [(span.begin, span.node, -1) for span in recorder.ran.values()]
    added = [(time, node, 1) for time, _, node in recorder.ready]
    for node in sorted({node for _, node, _ in added}):
        changes = sorted((time, by) for time, at, by in (*added, *begun) if at == node)
        for (time, _), depth in zip(changes, accumulate(by for _, by in changes), strict=True):
            events.append(_counter("queue depth", node, time, {"tasks": max(depth, 0)}))
    return events


def _memory(recorder: Recorder) -> list[Event]:
    events, used = [], dict[int, int]()
    for time, node, size_bytes, evicted in sorted(recorder.memory, key=lambda change: change.time):
        used[node] = used.get(node, 0) + size_bytes
        events.append(_counter("memory", node, time, {"bytes": used[node]}))
        if evicted is not None:
            args = {"block": evicted, "bytes": -size_bytes}
            events.append(
                {"name": f"evict {evicted}", "cat": "eviction", "ph": "i", "s": "p", "pid": node, "tid": 0,
                 "ts": _us(time), "args": args}
            )  # fmt: skip
    return events


def _counter(name: str, node: int, time: int, values: Mapping[str, int]) -> Event:
    return {"name": name, "ph": "C", "pid": node, "tid": 0, "ts": _us(time), "args": dict(values)}


def read_trace(path: str | Path) -> Trace:
    """What a trace file says. Raises E0606 for a file that is none."""
    root = as_path(path)
    try:
        found = json.loads(read_plain(root, MAX_TRACE_BYTES).decode("utf-8"))
        other, events = found["otherData"], found["traceEvents"]
        if other["format"] != FORMAT or other["version"] != VERSION:
            raise ValueError("another format")
        return _trace(other, events)
    except TExprError:
        raise
    except OSError as why:
        raise fail("E0606", f"{root} cannot be read: {why.strerror or why}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        help = 'it is written by `Engine(trace="FILE")`'
        raise fail("E0606", f"{root} is no trace of tasks of version {VERSION}", help=help) from None


def _trace(other: Event, events: Sequence[Event]) -> Trace:
    names = {(e["pid"], e["tid"]): str(e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    tasks, transfers = [e for e in events if e.get("cat") == "task"], [e for e in events if e.get("cat") == "transfer"]
    ran = [e for e in tasks if e["ph"] == "X"]
    return Trace(
        tasks={int(e["args"]["task"]): _task_run(e, names) for e in ran},
        joins={str(name): _before(before) for name, before in other["joins"].items()},
        transfers=tuple(
            TransferRun(
                source=str(e["args"]["from"]), target=str(e["args"]["to"]), size_bytes=int(e["args"]["bytes"]),
                begin_us=float(e["ts"]), end_us=e["ts"] + float(e["dur"]),
            )
            for e in transfers
            if e["args"]["step"] != "FILL"
        ),
        workers=tuple(name for name in names.values() if "worker" in name),
        evictions=sum(e.get("cat") == "eviction" for e in events),
        dropped=len(tasks) - len(ran),
    )  # fmt: skip


def _task_run(event: Event, names: Mapping[tuple[int, int], str]) -> TaskRun:
    args = event["args"]
    return TaskRun(
        number=int(args["task"]),
        name=str(event["name"]),
        status=str(args["status"]),
        parent=None if args["parent"] is None else int(args["parent"]),
        after=_before(args["after"]),
        worker=names[event["pid"], event["tid"]],
        submitted_us=float(args["submitted"]),
        ready_us=float(args["ready"]),
        begin_us=float(event["ts"]),
        end_us=event["ts"] + float(event["dur"]),
    )


def _before(before: Sequence[Any]) -> Before:
    return tuple(b if isinstance(b, str) else int(b) for b in before)
