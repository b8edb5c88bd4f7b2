"""The graph orders all tasks that conflict, and no others: every sequence of effects, and random ones over slices."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_graphs import edges_of, orders_of, orders_wanted

from texpr.runtime.tasks.grants import grants
from texpr.runtime.tasks.permissions import Effect, may_accumulate, may_read, may_write
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.submission import RULES, Epoch, Node, Rule, Scope, advance, join
from texpr.runtime.tasks.tensors import Block, Tensor

R, W, A = Effect
MAY = (may_read, may_write, may_accumulate)
Rules = tuple[tuple[Rule, Rule, Rule], ...]


def conflict(first: Effect, second: Effect) -> bool:
    return first is not second or first is W


def wrong(length: int, rules: Rules) -> int:
    """How many sequences of effects on one block are ordered otherwise than by their conflicts."""
    block = Tensor("T", (tiled(1, 1),)).block((0,))
    count = 0
    for effects in product(Effect, repeat=length):
        scope, tasks = Scope(rules), [Node() for _ in effects]
        for task, effect in zip(tasks, effects, strict=True):
            scope.submit(task, grants(task, [MAY[effect](block)]))
        conflicts = [[j for j in range(k) if conflict(effects[j], effects[k])] for k in range(length)]
        count += orders_of(tasks) != orders_wanted(conflicts)
    return count


@pytest.mark.parametrize("length", range(1, 7))
def test_every_sequence_of_effects_is_ordered_by_its_conflicts_alone(length: int) -> None:
    assert wrong(length, RULES) == 0


# The seed's cells, read literally: one set for each state, emptied when the first task of another kind arrives.


def literal_read_after_accumulate(epoch: Epoch, node: Node) -> None:
    epoch.previous, epoch.current = epoch.current, []  # the reader goes to the set of writers, which READ never asks


def literal_write_after_write(epoch: Epoch, node: Node) -> None:
    epoch.previous, epoch.current = [], [node]  # no Remove, so no edge


def literal_join(epoch: Epoch, node: Node) -> None:
    epoch.previous = []  # Remove emptied it at the first task
    epoch.current.append(node)


MUTANTS = {
    (R, R): literal_join,
    (A, A): literal_join,
    (W, W): literal_write_after_write,
    (A, R): literal_read_after_accumulate,
}


def changed(last: int, new: int, rule: Rule) -> Rules:
    rows = [list(row) for row in RULES]
    rows[last][new] = rule
    return tuple((row[0], row[1], row[2]) for row in rows)


@pytest.mark.parametrize("cell", MUTANTS, ids=lambda cell: f"{cell[0].name}-{cell[1].name}")
def test_each_literal_cell_of_the_seed_is_found(cell: tuple[Effect, Effect]) -> None:
    assert any(wrong(length, changed(*cell, MUTANTS[cell])) for length in range(1, 5))


@pytest.mark.parametrize("cell", [(last, new) for last in range(3) for new in range(3)])
def test_each_cell_exchanged_for_the_other_rule_is_found(cell: tuple[int, int]) -> None:
    other = join if RULES[cell[0]][cell[1]] is advance else advance
    assert any(wrong(length, changed(*cell, other)) for length in range(1, 5))


ROWS, COLUMNS = 3, 2
region = st.one_of(
    st.just(None),
    st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1)),
    st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(lambda pair: slice(min(pair), max(pair))),
)
Steps = list[tuple[Effect, slice | tuple[int, int] | None]]
steps = st.lists(st.tuples(st.sampled_from(Effect), region), min_size=1, max_size=30)


def finish(node: Node, tasks: list[Node]) -> None:
    """A node is over; so is a join node that waited for it last."""
    node.done = True
    for after in node.successors:
        after.waiting -= 1
        if after.waiting == 0 and all(after is not task for task in tasks):
            finish(after, tasks)


def submitted(sequence: Steps, over: set[int]) -> tuple[list[Node], list[list[int]]]:
    """The tasks of a sequence on one tensor, and what each conflicts with. Tasks of `over` end sooner or later."""
    tensor = Tensor("T", (tiled(ROWS, 1), tiled(COLUMNS, 1)))
    scope = Scope()
    tasks: list[Node] = []
    touched: list[frozenset[int]] = []
    for k, (effect, where) in enumerate(sequence):
        task = Node()
        region = tensor if where is None else tensor[where]
        scope.submit(task, grants(task, [MAY[effect](region)]))
        blocks = [region] if isinstance(region, Block) else list(region.blocks())
        tasks.append(task)
        touched.append(frozenset(block.number for block in blocks))
        for j in over:
            if j <= k and tasks[j].waiting == 0 and not tasks[j].done and (j + k) % 3 == 0:
                finish(tasks[j], tasks)
    pairs = [
        [j for j in range(k) if conflict(sequence[j][0], sequence[k][0]) and touched[j] & touched[k]]
        for k in range(len(tasks))
    ]
    return tasks, pairs


@given(steps)
def test_blocks_slices_and_whole_tensors_meet_in_one_table(sequence: Steps) -> None:
    tasks, conflicts = submitted(sequence, set())
    assert orders_of(tasks) == orders_wanted(conflicts)


@given(steps, st.sets(st.integers(0, 29)))
def test_tasks_that_are_over_are_followed_by_nobody_and_hide_nobody(sequence: Steps, over: set[int]) -> None:
    tasks, conflicts = submitted(sequence, over)
    left = [k for k, task in enumerate(tasks) if not task.done]
    found, wanted = orders_of(tasks), orders_wanted(conflicts)
    for k in left:
        direct = sum(1 << j for j in conflicts[k] if not tasks[j].done)
        assert found[k] & direct == direct
        assert found[k] & ~wanted[k] == 0


def test_join_nodes_keep_edges_linear() -> None:
    tensor = Tensor("T", (tiled(8, 1),))
    scope, tasks = Scope(), []
    for _ in range(4):
        for effect in (R, A):
            for _ in range(50):
                tasks.append(Node())
                scope.submit(tasks[-1], grants(0, [MAY[effect](tensor.block((0,)))]))
    assert edges_of(tasks) <= 3 * len(tasks)
    scope, tasks = Scope(), []
    for _ in range(50):
        tasks.append(Node())
        scope.submit(tasks[-1], grants(0, [may_read(tensor)]))
    for k in range(8):
        tasks.append(Node())
        scope.submit(tasks[-1], grants(0, [may_write(tensor.block((k,)))]))
    assert edges_of(tasks) <= 3 * len(tasks)


def test_readers_that_are_over_are_not_kept() -> None:
    tensor = Tensor("T", (tiled(1, 1),))
    scope = Scope()
    for _ in range(1000):
        task = Node()
        scope.submit(task, grants(0, [may_read(tensor.block((0,)))]))
        task.done = True
    last = Node()
    scope.submit(last, grants(0, [may_write(tensor.block((0,)))]))
    kept = scope._tensors[tensor].blocks[tensor.block((0,))].previous
    assert len(kept) <= 17 and last.waiting == 0
