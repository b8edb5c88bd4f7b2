"""Graphs of tasks, and what they should be: closures of edges, and of all pairs that conflict."""

from collections.abc import Sequence

from texpr.runtime.tasks.submission import Node

Order = list[int]  # for each task, the set of tasks before it, as bits


def orders_of(tasks: Sequence[Node]) -> Order:
    """Which tasks the edges put before each task; join nodes are seen through."""
    number = {id(task): k for k, task in enumerate(tasks)}
    before = [0] * len(tasks)

    def reach(node: Node, bits: int, seen: set[int]) -> None:
        for after in node.successors:
            if id(after) in number:
                before[number[id(after)]] |= bits
            elif id(after) not in seen:
                seen.add(id(after))
                reach(after, bits, seen)

    for k, task in enumerate(tasks):  # tasks are submitted in order, so what is before this one is known
        reach(task, before[k] | 1 << k, set())
    return before


def orders_wanted(conflicts: Sequence[Sequence[int]]) -> Order:
    """The closure of `conflicts`: for each task, the earlier ones that it conflicts with."""
    before = [0] * len(conflicts)
    for k, earlier in enumerate(conflicts):
        for j in earlier:
            before[k] |= before[j] | 1 << j
    return before


def edges_of(tasks: Sequence[Node]) -> int:
    """How many edges there are, those of join nodes among them."""
    nodes: dict[int, Node] = {id(task): task for task in tasks}
    open_ = list(tasks)
    while open_:
        for after in open_.pop().successors:
            if id(after) not in nodes:
                nodes[id(after)] = after
                open_.append(after)
    return sum(len(node.successors) for node in nodes.values())
