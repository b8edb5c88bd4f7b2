"""Times of GPU work by events: launches captured into a graph, replayed in shuffled rounds. Needs PyTorch."""

import random
import statistics
from collections.abc import Callable, Mapping
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
