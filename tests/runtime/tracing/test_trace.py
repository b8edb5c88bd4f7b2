"""A trace has all that an engine did, in events that Perfetto opens; a summary of it says what bounded the run."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
from json_schema import faults
from rank_stress import on_ranks

import texpr
from texpr.cli import run_command
from texpr.runtime.tracing.trace_file import Trace, read_trace
from texpr.runtime.transport import fake
from texpr.tasks import (
    Engine,
    TaskContext,
    Tensor,
    accumulate,
    may_read_write,
    on_arrays,
    read,
    read_write,
    tiled,
    write,
)

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "trace.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@on_arrays
def nothing(*arrays: Any) -> None:
    pass


@on_arrays
def add_one(array: Any) -> None:
    array += 1


@on_arrays
def fails(*arrays: Any) -> None:
    raise RuntimeError("on purpose")


def vector(name: str = "A", tiles: int = 4) -> Tensor:
    return Tensor(name, (tiled(4 * tiles, 4),), data=numpy.zeros(4 * tiles))


def written(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert faults(found, SCHEMA, SCHEMA) == []
    return found


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in written(path)["traceEvents"] if event.get("cat", event["name"]) == kind]


def before(trace: Trace, number: int) -> set[int]:
    """The tasks that a task comes after, through join nodes."""
    found, work = set[int](), list(trace.tasks[number].after)
    while work:
        node = work.pop()
        if isinstance(node, str):
            work += trace.joins[node]
        else:
            found.add(node)
    return found


def test_a_trace_has_every_task_transfer_eviction_and_counter(path: Path) -> None:
    a, b = vector(), vector("B")
    with Engine({"fast": 1}, memories={"fast": 2 * 32}, trace=path) as engine:
        for x, y in zip(a.blocks(), b.blocks(), strict=True):
            engine.submit(nothing, read(x), accumulate(y))
    tasks, transfers = events(path, "task"), events(path, "transfer")
    assert [event["args"]["task"] for event in tasks] == [0, 1, 2, 3]
    assert {event["args"]["status"] for event in tasks} == {"done"} and tasks[1]["name"] == "nothing"
    assert tasks[1]["args"]["accesses"] == ["read(A[1])", "accumulate(B[1])"]
    steps = sorted((e["args"]["step"], e["args"]["from"], e["args"]["to"]) for e in transfers)
    assert steps.count(("GET", "home", "fast")) == steps.count(("FILL", "fast", "fast")) == 4
    assert steps.count(("ADD", "fast", "home")) == 4 and len(steps) == 12
    assert len(events(path, "eviction")) >= 6
    used = [event["args"]["bytes"] for event in events(path, "memory")]
    assert max(used) == 64 and min(used) >= 0
    depth = [event["args"]["tasks"] for event in events(path, "queue depth")]
    assert len(depth) == 8 and depth[-1] == 0
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events(path, "thread_name")}
    assert {threads[e["pid"], e["tid"]] for e in tasks} == {"texpr-worker-1.0"}
    assert {threads[e["pid"], e["tid"]] for e in transfers} == {"texpr-copier-1.0"}


def test_dependences_are_kept_also_of_tasks_that_were_over(path: Path) -> None:
    [x, *_] = vector().blocks()
    with Engine(2, trace=path) as engine:
        for access in (write, read, read, read_write):
            engine.submit(nothing, access(x))
            engine.wait()
    trace = read_trace(path)
    assert [set(trace.tasks[k].after) for k in range(4)] == [set(), {0}, {0}, {1, 2}]
    arrows = events(path, "dependence")
    begins = {event["id"]: event for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: event for event in arrows if event["ph"] == "f"}
    assert len(begins) == len(ends) == 4 and len(arrows) == 8
    assert all(begins[number]["ts"] <= ends[number]["ts"] for number in ends)


def test_dependences_through_join_nodes_are_whole(path: Path) -> None:
    [x, *_] = vector().blocks()
    with Engine(2, trace=path) as engine:
        for _ in range(9):
            engine.submit(nothing, read(x))
        for _ in range(9):
            engine.submit(nothing, accumulate(x))
    trace = read_trace(path)
    assert trace.joins and all(before(trace, k) == set(range(9)) for k in range(9, 18))
    arrows = [event for event in events(path, "dependence") if event["ph"] == "f"]
    assert len(arrows) <= 9 * 9


def test_children_tell_their_parent(path: Path) -> None:
    a = vector()

    def parent(context: TaskContext) -> None:
        context.submit(nothing, read_write(a[0]))
        context.submit_last(nothing, read_write(a[0]))

    with Engine(1, trace=path) as engine:
        engine.submit(parent, may_read_write(a))
    trace = read_trace(path)
    assert [run.parent for run in trace.tasks.values()] == [None, 0, 0]
    assert trace.tasks[2].after == (1,)


def test_what_failed_was_cancelled_or_dropped_is_in_the_trace(path: Path) -> None:
    a = vector()
    with pytest.raises(KeyboardInterrupt), Engine(1, trace=path) as engine:
        engine.submit(fails, write(a[0]))
        engine.submit(nothing, read(a[0])).wait()
        begun, go = threading.Event(), threading.Event()

        def slow(context: TaskContext) -> None:
            begun.set()
            go.wait()

        engine.submit(slow, write(a[1]))
        engine.submit(nothing, write(a[1]))
        begun.wait()
        threading.Timer(0.05, go.set).start()
        raise KeyboardInterrupt
    statuses = [(event["ph"], event["args"]["status"]) for event in events(path, "task")]
    assert statuses == [("X", "failed"), ("i", "cancelled"), ("X", "done"), ("i", "dropped")]
    assert read_trace(path).dropped == 2


def test_a_place_where_no_trace_can_be_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(texpr.TExprError, match="E0606"):
        Engine(1, trace=tmp_path / "nowhere" / "trace.json")


def test_engines_without_a_trace_load_nothing_of_it() -> None:
    code = (
        "import sys\n"
        "from texpr.tasks import *\n"
        "with Engine(1) as engine: engine.submit(on_arrays(len), read(Tensor('A', (tiled(1, 1),))[0]))\n"
    )
    code = code.replace("on_arrays(len)", "on_arrays(lambda a: None)")
    code += "print([name for name in sys.modules if 'tracing' in name or name == 'rich'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_each_rank_writes_a_trace_of_its_own(path: Path) -> None:
    def rank(transport: Any) -> list[float]:
        a = vector()
        with Engine(1, transport=transport, trace=path) as engine:
            for block in a.blocks():
                engine.submit(add_one, read_write(block))
            values: list[float] = engine.array(a).tolist()
            return values

    assert on_ranks(fake(2, 3, silence_s=20.0), rank) == [[1.0] * 16] * 2
    runs = [read_trace(path.with_suffix(f".{number}.json")).tasks for number in range(2)]
    assert sorted(number for tasks in runs for number in tasks) == [0, 1, 2, 3] and all(map(len, runs))


def test_the_command_line_sums_a_trace_up_and_draws_it(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a = vector()
    with Engine({"home": 1, "fast": 1}, memories={"fast": None}, trace=path) as engine:
        for block in a.blocks():
            engine.submit(nothing, read_write(block))
    svg, dot = path.with_suffix(".svg"), path.with_suffix(".dot")
    assert run_command(["trace", str(path), "--svg", str(svg), "--dot", str(dot)]) in (0, None)
    said = capfd.readouterr().out
    assert "tasks          4 done" in said and "critical path" in said and "idle" in said
    assert run_command(["trace", str(path), "--json"]) in (0, None)
    found = json.loads(capfd.readouterr().out)
    assert found["tasks"] == {"done": 4} and set(found["idle"]) == {"texpr-worker-0.0", "texpr-worker-1.0"}
    assert svg.read_text(encoding="utf-8").count("<rect") == 4 and dot.read_text(encoding="utf-8").count("label") == 4


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"otherData": {"format": "texpr-trace", "version": 2}}', "\udcff"])
def test_a_file_that_is_no_trace_is_refused(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(texpr.TExprError, match=r"E0606.*is no trace of tasks"):
        read_trace(path)
    path.unlink()
    with pytest.raises(texpr.TExprError, match=r"E0606.*cannot be read"):
        read_trace(path)


def test_progress_shows_a_bar_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    with Engine(1, progress=True):
        assert threading.active_count() == before + 1
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Engine(1, progress=True) as engine:
        assert threading.active_count() == before + 2
        for _ in range(3):
            engine.submit(nothing, read(vector()[0]))
    assert threading.active_count() == before
    assert "3/3" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(texpr.TExprError, match="E0503"):
        Engine(1, progress=True)
    assert threading.active_count() == before
