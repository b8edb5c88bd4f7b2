"""What a summary says of a trace, beside what is counted by hand and by force."""

import random
from dataclasses import replace
from itertools import pairwise, permutations
from xml.etree import ElementTree

import pytest

import texpr
from texpr.runtime.tracing.drawing import MAX_DRAWN, draw_dot, draw_svg
from texpr.runtime.tracing.summary import common, length, merged, summarise
from texpr.runtime.tracing.trace_file import TaskRun, Trace, TransferRun


def run(
    number: int, begin: float, end: float, *after: int | str, worker: str = "w0", parent: int | None = None
) -> TaskRun:
    return TaskRun(
        number=number, name=f"f{number % 2}", status="done", parent=parent, after=after, worker=worker,
        submitted_us=0, ready_us=begin, begin_us=begin, end_us=end,
    )  # fmt: skip


def trace(
    *runs: TaskRun, joins: dict[str, tuple[int | str, ...]] | None = None, moves: tuple[TransferRun, ...] = ()
) -> Trace:
    return Trace(
        tasks={r.number: r for r in runs}, joins=joins or {}, transfers=moves, workers=("w0", "w1"), evictions=0,
        dropped=0,
    )  # fmt: skip


def move(source: str, target: str, size: int, begin: float, end: float) -> TransferRun:
    return TransferRun(source=source, target=target, size_bytes=size, begin_us=begin, end_us=end)


def test_overlap_idle_and_bytes_are_as_counted_by_hand() -> None:
    moves = (move("home", "gpu", 100, 0, 10), move("home", "gpu", 50, 5, 20), move("gpu", "home", 7, 90, 100))
    found = summarise(trace(run(0, 10, 30), run(1, 15, 95, worker="w1"), moves=moves))
    assert found.wall_us == 100 and found.work_us == 100
    assert found.idle == {"w0": 0.8, "w1": pytest.approx(0.2)}
    assert found.moved == {("home", "gpu"): (2, 150), ("gpu", "home"): (1, 7)}
    assert found.transfer_us == 30 and found.overlap == pytest.approx((10 + 5) / 30)
    assert "home -> gpu, 2 transfers" in str(found) and "tasks ran during 50% of it" in str(found)


def test_a_trace_of_nothing_is_summed_up() -> None:
    found = summarise(trace())
    assert (found.wall_us, found.critical, found.overlap) == (0, (), None) and "none" in str(found)


def test_the_critical_path_goes_through_joins_and_children() -> None:
    joins: dict[str, tuple[int | str, ...]] = {"j2": ("j1", 2), "j1": (0, 1)}
    found = summarise(trace(run(0, 0, 5), run(1, 0, 9), run(2, 0, 2), run(3, 20, 21, "j2"), joins=joins))
    assert (found.critical_us, [number for number, *_ in found.critical]) == (10, [1, 3])
    child = replace(run(1, 50, 60, parent=0), submitted_us=4)
    found = summarise(trace(run(0, 2, 5), child, run(2, 70, 71, 0)))
    assert (found.critical_us, [number for number, *_ in found.critical]) == (2 + 10 + 1, [0, 1, 2])


def test_the_critical_path_is_the_longest_of_all_chains() -> None:
    rng = random.Random(0)
    for _ in range(50):
        count = rng.randint(1, 6)
        after = [tuple(b for b in range(k) if rng.random() < 0.4) for k in range(count)]
        times = [rng.randint(1, 9) for _ in range(count)]
        runs = [run(k, 100 * k, 100 * k + times[k], *after[k]) for k in range(count)]
        chains = (
            sum(times[k] for k in chain)
            for size in range(1, count + 1)
            for chain in permutations(range(count), size)
            if all(a in after[b] for a, b in pairwise(chain))
        )
        found = summarise(trace(*runs))
        assert found.critical_us == max(chains) == sum(us for *_, us in found.critical)


def test_unions_of_intervals_count_every_moment_once() -> None:
    rng = random.Random(1)
    for _ in range(50):
        some = [[sorted((rng.randint(0, 30), rng.randint(0, 30))) for _ in range(rng.randint(0, 5))] for _ in range(2)]
        left, right = ([(float(a), float(b)) for a, b in part] for part in some)
        moments = [{m for a, b in part for m in range(int(a), int(b))} for part in (left, right)]
        assert length(merged(left)) == len(moments[0])
        assert length(common(merged(left), merged(right))) == len(moments[0] & moments[1])


def test_drawings_have_every_task_and_edge() -> None:
    failed = replace(run(2, 20, 30, 1), status="failed", name='a<"b')
    drawn = trace(run(0, 0, 1), run(1, 2, 3, 0, "j1"), failed, joins={"j1": (0,)})
    root = ElementTree.fromstring(draw_svg(drawn))
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert (kinds.count("rect"), kinds.count("circle"), kinds.count("path")) == (3, 1, 4)
    assert len([e for e in root.iter() if e.get("stroke-dasharray")]) == 1
    dot = draw_dot(drawn)
    assert dot.count("->") == 4 and r'label="a<\"b#2", style=dashed' in dot


def test_a_graph_that_is_too_large_to_see_is_not_drawn() -> None:
    with pytest.raises(texpr.TExprError, match=f"more than {MAX_DRAWN}"):
        draw_svg(trace(*(run(k, k, k + 1) for k in range(MAX_DRAWN + 1))))
