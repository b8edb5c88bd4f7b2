"""The table of residency: every interleaving of a few tasks is right, and the seed's cells, put back, are found wrong.

`tests/properties/residency_model.py` runs all scripts of two and three tasks; here are samples of them.
"""

from dataclasses import replace

import pytest
from residency_model import World, WrongError, explore
from residency_scripts import Script, Task, scripts, tasks

from texpr.grammar.diagnostics import InternalError
from texpr.runtime.tasks.machine import Machine
from texpr.runtime.tasks.residency import Outcome, Residency
from texpr.runtime.tasks.states import TABLES, Cell, Need, Op, Others, State, Step, Tables

U, N, R, D, P = State
READ, WRITE, RW, ACC, FLUSH, EVICT = Op


def test_every_interleaving_of_one_task_is_right() -> None:
    assert sum(explore((task,)) for task in tasks(3)) > 200


@pytest.mark.parametrize("first", range(4))
def test_interleavings_of_two_and_three_tasks_are_right(first: int) -> None:
    for length, seeds in ((2, 40), (3, 20)):
        for script in scripts(length, 3, 1, seeds, first * 1000):
            explore(script)


def test_interleavings_of_tasks_on_two_blocks_are_right() -> None:
    for script in scripts(2, 3, 2, 60):
        explore(script)


def test_interleavings_in_which_a_transfer_fails_are_right() -> None:
    for length, seeds in ((1, 30), (2, 60), (3, 20)):
        for script in scripts(length, 3, 1, seeds, 7000):
            explore(script, breaks=1)


def cell(
    next: State,
    others: Others,
    *stages: tuple[Step, ...],
    need: Need = Need.UNHELD,
    back: State = R,
    waits: bool = True,
) -> Cell:
    return Cell(need=need, next=next, back=back, others=others, stages=stages, waits=waits)


NONE = Others.NOTHING

# The seed's cells, read literally, where they differ from ours in more than in words, each with tasks that show it.
LITERAL: dict[tuple[Op, State], tuple[Cell, str]] = {
    (READ, N): (cell(R, NONE, (Step.GET,), need=Need.ALONE), "WRITE@1 READ@2"),
    (READ, R): (cell(R, NONE, need=Need.SHARE, waits=False), "READ@1 READ@1"),
    (READ, P): (cell(R, NONE, (Step.ADD_ALL, Step.GET)), "ACCUMULATE@1 READ@1"),
    (WRITE, N): (cell(D, NONE, back=N), "WRITE@1 WRITE@2"),
    (WRITE, R): (cell(D, NONE), "READ@1 READ@2 WRITE@1"),
    (WRITE, P): (cell(D, NONE, (Step.ADD_ALL,), back=P, waits=False), "ACCUMULATE@1 WRITE@1"),
    (RW, N): (cell(D, NONE, (Step.GET,), need=Need.ALONE), "WRITE@1 READ_WRITE@2"),
    (RW, R): (cell(D, NONE), "READ@1 READ@2 READ_WRITE@1"),
    (RW, P): (cell(D, NONE, (Step.ADD_ALL, Step.GET)), "ACCUMULATE@1 READ_WRITE@1"),
    (ACC, N): (cell(P, NONE, back=N), "ACCUMULATE@1"),
    (ACC, R): (cell(P, NONE, back=N), "READ@1 ACCUMULATE@1"),
    (ACC, D): (cell(P, NONE, (Step.PUT,), back=N), "WRITE@1 ACCUMULATE@1"),
    (FLUSH, U): (cell(U, NONE, need=Need.SHARE, waits=False), "WRITE@1 EVICT@1 FLUSH@1"),
    (FLUSH, N): (cell(N, NONE, need=Need.SHARE, waits=False), "ACCUMULATE@1 FLUSH@1 FLUSH@1"),
    (FLUSH, R): (cell(R, NONE, need=Need.SHARE, waits=False), "WRITE@1 FLUSH@1 FLUSH@1"),
    (EVICT, N): (cell(U, NONE), "ACCUMULATE@1 FLUSH@1 EVICT@1"),
    (EVICT, R): (cell(U, NONE), "WRITE@1 FLUSH@1 EVICT@1"),
    (EVICT, D): (cell(R, NONE, (Step.PUT,)), "WRITE@1 EVICT@1"),
    (EVICT, P): (cell(N, NONE, (Step.ADD,)), "ACCUMULATE@1 EVICT@1"),
}

# The seed has no rule between nodes, so none at home.
AT_HOME: dict[Op, str] = {
    READ: "WRITE@1 READ@0",
    WRITE: "WRITE@1 WRITE@0",
    RW: "ACCUMULATE@1 READ_WRITE@0",
    ACC: "READ@1 ACCUMULATE@0",
}


def script_of(text: str, end: str = "commit") -> Script:
    words = (word.split("@") for word in text.split())
    return tuple(Task(((0, Op[op]),), int(node), end) for op, node in words)


def found(text: str, tables: Tables, end: str = "commit") -> None:
    assert explore(script_of(text, end)) > 1
    with pytest.raises(WrongError):
        explore(script_of(text, end), tables=tables)


@pytest.mark.parametrize("key", LITERAL, ids=lambda key: f"{key[0].name}-{key[1].name}")
def test_each_literal_cell_of_the_seed_is_found(key: tuple[Op, State]) -> None:
    literal, script = LITERAL[key]
    found(script, replace(TABLES, away={**TABLES.away, key: literal}))


@pytest.mark.parametrize("op", AT_HOME, ids=lambda op: op.name)
def test_no_rule_between_nodes_at_home_is_found(op: Op) -> None:
    plain = replace(TABLES.home[op, R], others=NONE)
    found(AT_HOME[op], replace(TABLES, home={**TABLES.home, (op, R): plain}))


@pytest.mark.parametrize(
    ("state", "script"), [(D, "WRITE@1"), (P, "ACCUMULATE@1"), (D, "WRITE@0"), (P, "ACCUMULATE@0")]
)
def test_a_cancel_that_is_a_release_is_found(state: State, script: str) -> None:
    as_released = replace(TABLES, given_up=TABLES.released, spoils=TABLES.spoils - {state})
    found(script, as_released, "late")


@pytest.mark.parametrize(("state", "script"), [(D, "WRITE@0 READ@0"), (P, "ACCUMULATE@0 READ@0")])
def test_a_release_at_home_that_keeps_its_state_is_found(state: State, script: str) -> None:
    home, away = TABLES.released
    found(script, replace(TABLES, released=({**home, state: state}, away)))


def test_what_the_writers_give_up_is_as_it_was() -> None:
    """A writer may give up until it takes its buffer, whatever only others have."""
    for before in ("WRITE@1", "ACCUMULATE@1", "ACCUMULATE@1 ACCUMULATE@2", "READ@1"):
        for last in (WRITE, RW, ACC):
            for node in range(3):
                explore((*script_of(before), Task(((0, last),), node, "early")))
    lost = {**TABLES.away, (WRITE, N): replace(TABLES.away[WRITE, N], back=D)}
    with pytest.raises(WrongError):
        explore((Task(((0, WRITE),), 1, "early"),), tables=replace(TABLES, away=lost))


def test_what_nobody_holds_cannot_be_given_back() -> None:
    world = World(script_of("READ@1"), 2, TABLES)
    for end in (world.machine.release, world.machine.cancel):
        for node in range(2):
            with pytest.raises(InternalError, match="which nobody holds"):
                end(world.blocks[0], node)
    with pytest.raises(InternalError, match="is withdrawn that does not wait"):
        world.machine.withdraw(world.blocks[0], 0, "somebody")


def test_a_block_in_use_is_not_evicted() -> None:
    world = World(script_of("READ@1"), 2, TABLES)
    machine, residency = world.machine, world.blocks[0]
    assert machine.evict(residency, 1) is Outcome.REFUSED and machine.evict(residency, 0) is Outcome.REFUSED
    assert machine.request(residency, READ, 1, "reader") is Outcome.WAITING
    assert machine.evict(residency, 1) is Outcome.REFUSED
    machine.done(machine.started.pop())
    machine.release(residency, 1)
    residency.pins[1] = 1
    assert machine.evict(residency, 1) is Outcome.REFUSED
    residency.pins[1] = 0
    assert machine.evict(residency, 1) is Outcome.GRANTED


def test_at_home_alone_nothing_is_moved() -> None:
    machine, residency = Machine(World(script_of("READ@0"), 1, TABLES)), Residency("b", 1)
    for op in (READ, WRITE, RW, ACC):
        assert machine.request(residency, op, 0, op) is Outcome.GRANTED
        waits = machine.request(residency, WRITE, 0, "other")
        assert waits is Outcome.WAITING
        machine.release(residency, 0)
        assert machine.answered == [("other", Outcome.GRANTED)] and not machine.started
        machine.answered.clear()
        machine.cancel(residency, 0)
        assert residency.quiet and residency.state == [R] and list(residency.holders) == [0]


def test_a_buffer_from_which_another_node_is_filled_is_not_evicted() -> None:
    reads, evicts = [Task(((0, Op.READ),), node) for node in (1, 2)], Task(((0, Op.EVICT),), 1)
    assert explore((*reads, evicts), 3) > 20


def test_a_node_is_filled_from_another_one_where_that_has_the_block() -> None:
    world = World((Task(((0, Op.READ),), 1), Task(((0, Op.READ),), 2)), 3, TABLES)
    sources = []
    for _ in range(2):
        world.happen("issue", world.issued)
        [transfer] = world.flying
        sources.append((transfer.node, transfer.source))
        world.happen("move", 0)
        world.happen("done", 0)
    assert sources == [(1, 0), (2, 1)]
