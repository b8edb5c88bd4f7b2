"""Times of GPU work by events: launches captured into a graph, replayed in shuffled rounds, in bursts after a pause or
for longer than the limit of power remembers. Needs PyTorch."""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Graph = tuple[Any, Any]
"""A captured graph, and its stream."""


def graph_of(torch: Any, act: Callable[[int, int], object], launches: int) -> Graph:
    """`act(number, stream)` so many times, captured after a first run."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        act(0, stream.cuda_stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for number in range(launches):
                act(number, stream.cuda_stream)
        graph.replay()
    stream.synchronize()
    return graph, stream


FEW = 2  # launches of a graph that says how many fill a longer one


def launches_in(milliseconds: float, each: float, most: int) -> int:
    """How many launches of `each` milliseconds a graph of about so many has, `most` at most."""
    return max(FEW, min(most, int(milliseconds / max(each, 1e-3))))


def filled_graph(torch: Any, act: Callable[[int, int], object], milliseconds: float, most: int) -> tuple[Graph, int]:
    """A graph of about so many milliseconds, and its launches: as many as a short graph says, for a call alone has the
    host's time in it, too, and what begins a graph of few launches would count."""
    launches = launches_in(milliseconds, time_of(torch, graph_of(torch, act, FEW), FEW), most)
    return graph_of(torch, act, launches), launches


def time_of(torch: Any, graph: Graph, launches: int) -> float:
    """Milliseconds of one launch: the median of three replays."""
    replayed, stream = graph
    found = []
    with torch.cuda.stream(stream):
        for _ in range(3):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            replayed.replay()
            end.record(stream)
            end.synchronize()
            found.append(begin.elapsed_time(end) / launches)
    return statistics.median(found)


def interleaved(torch: Any, graphs: Mapping[str, tuple[Graph, int]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a launch of each graph, which has so many, in rounds of shuffled order."""
    found: dict[str, list[float]] = {key: [] for key in graphs}
    order = list(graphs)
    for _ in range(rounds):
        random.shuffle(order)
        for key in order:
            found[key].append(time_of(torch, *graphs[key]))
    return found


def once(torch: Any, graph: Graph) -> float:
    """Milliseconds of one replay."""
    replayed, stream = graph
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        begin.record(stream)
        replayed.replay()
        end.record(stream)
        end.synchronize()
    return float(begin.elapsed_time(end))


PAUSE_S = 0.06  # after which a GPU draws as little as before


def bursts(torch: Any, graphs: Mapping[str, tuple[Graph, int]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a launch of each graph, replayed once after a pause, in rounds of shuffled order."""
    found: dict[str, list[float]] = {key: [] for key in graphs}
    for key in (key for _ in range(rounds) for key in random.sample(list(graphs), len(graphs))):
        time.sleep(PAUSE_S)
        graph, launches = graphs[key]
        found[key].append(once(torch, graph) / launches)
    return found


def sustained(
    torch: Any, graphs: Mapping[str, tuple[Graph, int]], rounds: int, block_ms: float
) -> dict[str, list[float]]:
    """The same of blocks that last so long, each behind one of its own that is not timed: a GPU at its limit of power
    remembers for 0.1 s what it ran before."""
    found: dict[str, list[float]] = {key: [] for key in graphs}
    for key in (key for _ in range(rounds) for key in random.sample(list(graphs), len(graphs))):
        (replayed, stream), launches = graphs[key]
        repeats = max(1, round(block_ms / once(torch, graphs[key][0])))
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            for number in range(2 * repeats):
                if number == repeats:
                    begin.record(stream)
                replayed.replay()
            end.record(stream)
            end.synchronize()
        found[key].append(float(begin.elapsed_time(end)) / (repeats * launches))
    return found


def ratio(of: Sequence[float], to: Sequence[float]) -> tuple[float, float, float]:
    """The median of what the second takes over what the first does, by round, and the least and the greatest."""
    found = [theirs / ours for ours, theirs in zip(of, to, strict=True)]
    return statistics.median(found), min(found), max(found)
