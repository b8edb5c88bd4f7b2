"""Launches whose blocks tell one another something at counters only: who counts where, and which blocks stand for all.

    last of sharers at tickets[tile]      tickets[0]: blocks 0, 1    tickets[1]: block 1    tickets[2]: blocks 1, 2 …

What a block does apart from that differs in its indices alone, and so does a count of as many blocks: those of the
first and of the last one of each number stand for all, with those of their clusters. Counts are made of all blocks
(`trace.py`), of launches with nothing in them but what leads to a counter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from texpr.polyhedral.mapped.between import Await, GridBarrier, Publish, Turn
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Lead, Loop, Node, Parts
from texpr.polyhedral.mapped.walks import branches, every_node, of_kind

Count = tuple[tuple[str, tuple[int, ...]], int, int]
"""A counter's word, how many are to come to it, and a block that does."""


def only_counts(launch: Launch) -> bool:
    """Whether counters are all that blocks tell one another something at."""
    others = Await | GridBarrier | Publish | Turn
    nodes = tuple(every_node(launch.body))
    return any(isinstance(node, Last) for node in nodes) and not any(isinstance(node, others) for node in nodes)


def skeleton(launch: Launch) -> Launch:
    """The launch with nothing in it but what leads to its counters."""
    return replace(launch, body=tuple(_bare(launch.body)))


def _bare(body: Sequence[Node]) -> Iterator[Node]:
    for node in body:
        inside = any(any(of_kind(one, Last)) for one in branches(node))
        match node:
            case Define() | Lead():
                yield node
            case Loop() if inside:
                yield replace(node, body=tuple(_bare(node.body)))
            case Guard() if inside:
                yield replace(node, body=tuple(_bare(node.body)), orelse=tuple(_bare(node.orelse)))
            case Parts() if inside:
                yield Parts(parts=tuple(replace(part, body=tuple(_bare(part.body))) for part in node.parts))
            case Last():
                yield replace(node, body=tuple(_bare(node.body)))
            case _:
                pass


def standing(counts: Sequence[Count], cluster_of: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
    """The blocks that stand for all."""
    words: dict[tuple[str, int], list[tuple[int, ...]]] = {}  # by counter and number
    for (name, at), n, _ in counts:
        words.setdefault((name, n), []).append(at)
    ends = {key: (own[0], own[-1]) for key, own in words.items()}
    chosen = {block for (name, at), n, block in counts if at in ends[name, n]}
    return tuple(sorted({other for block in (0, *chosen) for other in cluster_of(block)}))
