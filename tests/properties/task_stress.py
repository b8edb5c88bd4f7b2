"""Random programs of tasks on several memories with small bounds, against a sequential run.

    python tests/properties/task_stress.py [--seeds 100 | --minutes M] [--first 0] [--tasks 300] [--blocks 12]
        [--processes 1] [--patience 300]

Tasks read, write, change and add, with declared, undeclared, cancellable and temporary buffers, alone or as children of
a task with a permission on a slice; some fail, some give up, some are late. Integers are exact, so final tensors must
be equal, and the same blocks must be without values. Afterwards no memory is reserved, nobody holds a buffer, and no
thread is left. The closing run of a change is `--tasks 1000000 --blocks 10000` with a seed for each engine. Several
processes share the seeds, and each tells from time to time how many it has done; after M minutes none begins another.
A seed that fails, or takes more than `--patience` seconds, is told, and the others go on.
"""

import argparse
import faulthandler
import multiprocessing
import random
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy

from texpr.grammar.diagnostics import TExprError
from texpr.tasks import (
    Affinity,
    Block,
    Engine,
    LeastTransfer,
    ReadyQueue,
    TaskContext,
    Tensor,
    accumulate,
    may_accumulate,
    may_read,
    may_read_write,
    read,
    read_write,
    temp,
    tiled,
    write,
)

TILES, TILE = 6, 4
MODULUS = 1_000_003
WAYS = ("write", "change", "change", "add", "add", "add", "set")
LARGE_WAYS = ("write", "write", "write", "change", "add", "add", "add", "add", "set", "set")
OF_SUMS = ("add", "set")  # the others modify a block of V
LATE = 499  # one in so many tasks
TELL_S = 20.0  # a process says how far it is when it said nothing for so long


@dataclass(frozen=True)
class Step:
    """One task: what it reads, the block that it modifies, how, and what becomes of it."""

    reads: tuple[int, ...]  # blocks of V
    target: int  # a block of V, or of S where it adds or sets
    way: str  # write, change; add, set
    form: str = "declared"  # declared, undeclared, cancellable, temp
    end: str = "commit"  # commit, fail, late, drop, skip
    number: int = 0


@dataclass(frozen=True)
class Group:
    """A parent with a permission on all of V and S, and its children."""

    steps: tuple[Step, ...]
    last: bool


Program = list[Step | Group]


def random_step(rng: random.Random, number: int, bound: bool, tiles: int = TILES) -> Step:
    """In large programs few blocks lose their values, and many get new ones: otherwise all are soon without, and most
    tasks are cancelled."""
    large = tiles > TILES
    way = rng.choice(LARGE_WAYS if large else WAYS)
    target = rng.randrange(tiles)
    reads = tuple(b for b in rng.sample(range(tiles), rng.randint(0, 2)) if way in OF_SUMS or b != target)
    if large and way in ("write", "set"):
        reads = ()
    form = rng.choice(("declared", "declared", "declared", "undeclared", "cancellable", "temp"))
    if form == "undeclared" and bound:  # whether there is room for it depends on what else runs
        form = "declared"
    if way == "change" and form == "temp":
        form = "cancellable"
    end = rng.choice(("commit",) * (130 if large else 30) + ("fail", "late", "drop", "skip"))
    return Step(reads, target, way, form, end, number)


def random_program(rng: random.Random, tasks: int, bound: bool, tiles: int = TILES) -> Program:
    program: Program = []
    while tasks > 0:
        if rng.random() < (0.05 if tiles == TILES else 0.0005):  # a parent is a wall: all that follows waits for it
            steps = tuple(random_step(rng, tasks + k, bound, tiles) for k in range(rng.randint(1, 5)))
            program.append(Group(steps, rng.random() < 0.5))
            tasks -= len(steps)
        else:
            program.append(random_step(rng, tasks, bound, tiles))
            tasks -= 1
    return program


def term(step: Step, values: list[int]) -> int:
    return (sum(values) * 7 + step.number) % MODULUS


# the sequential run


def expected(program: Program, tiles: int = TILES) -> tuple[list[int | None], list[int | None]]:
    """The value of every block of V and S; None where there is none."""
    v: list[int | None] = [1] * tiles
    s: list[int | None] = [0] * tiles
    for item in program:
        for step in item.steps if isinstance(item, Group) else (item,):
            do(step, v, s)
    return v, s


def do(step: Step, v: list[int | None], s: list[int | None]) -> None:
    into = s if step.way in OF_SUMS else v
    found = [v[b] for b in step.reads]
    values = [value for value in found if value is not None]
    old = into[step.target]
    needs = step.way == "change" or (step.way == "add" and (step.form == "declared" or step.end == "commit"))
    declared = step.form == "declared" or (step.form == "cancellable" and step.way == "change")
    if step.end == "skip" and not declared:
        needs = False
    if len(values) < len(found) or (needs and old is None) or step.end == "fail":
        into[step.target] = None
        return
    if step.end == "skip" or (step.end in ("drop", "late") and step.form != "declared" and not holds(step)):
        return
    if step.end in ("late", "drop"):
        into[step.target] = None
        return
    new = term(step, values)
    if step.way in ("write", "set"):
        into[step.target] = new
    elif old is not None:
        into[step.target] = (old * 3 + new) % MODULUS if step.way == "change" else old + new


def holds(step: Step) -> bool:
    """Whether the buffer that is given up late is the block's own."""
    return step.form == "declared" or (step.form == "undeclared" and step.way != "add")


# the run by tasks


def body(context: TaskContext, step: Step, v: Tensor, s: Tensor) -> None:
    values = []
    for b in step.reads:
        with context.get_buf_read(v.block((b,))) as buffer:
            assert (buffer.array == buffer.array[0]).all()
            values.append(int(buffer.array[0]))
    if step.number % LATE == 1:
        time.sleep(0.003)
    if step.end == "fail":
        raise RuntimeError("on purpose")
    if step.end == "skip":
        return
    target = (s if step.way in OF_SUMS else v).block((step.target,))
    new = term(step, values)
    buffer = BUFFERS[step.way, step.form](context, target)
    if step.end in ("late", "drop"):
        buffer.cancel()
        return
    if step.way in ("write", "set"):
        buffer.array[...] = new
    elif step.way == "change":
        buffer.array[...] = (buffer.array * 3 + new) % MODULUS
    elif step.form == "temp":
        buffer.array[...] = new
    else:
        buffer.array[...] += new
    if step.way == "add":
        buffer.release_add()
    else:
        buffer.release_put()


GET = {"write": "write", "change": "read_write", "add": "accumulate", "set": "write"}
BUFFERS: dict[tuple[str, str], Any] = {
    (way, form): getattr(
        TaskContext, "get_buf_tmp" if form == "temp" else f"get_buf_{'c' * (form == 'cancellable')}{get}"
    )
    for way, get in GET.items()
    for form in ("declared", "undeclared", "cancellable", "temp")
}
ACCESS = {"write": write, "change": read_write, "add": accumulate, "set": write}


def declared(step: Step, v: Tensor, s: Tensor) -> list[Any]:
    target: Block = (s if step.way in OF_SUMS else v).block((step.target,))
    reads: list[Any] = [read(v.block((b,))) for b in step.reads]
    right = may_accumulate(target) if step.way == "add" else may_read_write(target)
    if step.form == "undeclared":
        return [right, *(may_read(v.block((b,))) for b in step.reads)]
    if step.form == "temp":
        return [*reads, right, temp(target)]
    return [*reads, ACCESS[step.way](target, cancellable=step.form == "cancellable")]


def parent(context: TaskContext, group: Group, v: Tensor, s: Tensor) -> None:
    for k, step in enumerate(group.steps):
        submit = context.submit_last if group.last and k + 1 == len(group.steps) else context.submit
        submit(body, *declared(step, v, s), args=(step, v, s))


def run(program: Program, options: dict[str, Any], tiles: int = TILES) -> tuple[list[int | None], list[int | None]]:
    """What the engine makes of a program."""
    space = tiled(tiles * TILE, TILE)
    v = Tensor("V", (space,), "i64", data=numpy.ones(tiles * TILE, numpy.int64))
    s = Tensor("S", (space,), "i64")
    before = threading.active_count()
    with Engine(**options) as engine:
        for item in program:
            if isinstance(item, Group):
                engine.submit(parent, may_read_write(v), may_read_write(s), args=(item, v, s))
            else:
                engine.submit(body, *declared(item, v, s), args=(item, v, s))
        try:
            engine.wait()
        except TExprError as failed:
            assert failed.diagnostics[0].code == "E0715", failed
        for tensor in (v, s):
            engine.flush(tensor)
        flow = engine._flow
        assert all(not node.reserved for node in flow.holdings.nodes), "memory is reserved"
        assert all(node.bound is None or node.peak <= node.bound for node in flow.holdings.nodes), "a bound is exceeded"
        results = tuple([outcome(tensor.block((b,))) for b in range(tiles)] for tensor in (v, s))
    assert threading.active_count() == before, "a thread is left"
    return results[0], results[1]


def outcome(block: Block) -> int | None:
    if block.residency is not None:
        assert not any(block.residency.holders) and not any(block.residency.pins), f"{block} is held"
        if block.residency.spoilt is not None:
            return None
    assert (block.home == block.home[0]).all(), f"{block} is torn"
    return int(block.home[0])


SIZE = TILE * 8


def engines(tiles: int) -> list[dict[str, Any]]:
    """Options of engines; the smallest bounds are those of one task, or a tenth of all blocks."""
    small = max(4, tiles // 5) * SIZE
    return [
        {"workers": 2},
        {"workers": {"gpu": 2}, "memories": {"gpu": None}},
        {"workers": {"gpu": 2}, "memories": {"gpu": small}},
        {"workers": {"home": 1, "gpu": 1}, "memories": {"gpu": small + SIZE}, "policy": LeastTransfer()},
        {"workers": {"a": 1, "b": 1}, "memories": {"a": small, "b": None}, "policy": Affinity()},
        {"workers": {"home": 1, "a": 1, "b": 1}, "memories": {"a": small, "b": small}, "policy": ReadyQueue()},
    ]


ENGINES = engines(TILES)


def try_seed(seed: int, tasks: int, tiles: int = TILES) -> None:
    """Raises AssertionError where the engine's result is not the sequential one."""
    rng = random.Random(seed)
    options = engines(tiles)[seed % len(ENGINES)] | {"debug": seed % 3 > 0}
    program = random_program(rng, tasks, any(options.get("memories", {}).values()), tiles)
    found, wanted = run(program, options, tiles), expected(program, tiles)
    assert found == wanted, f"seed {seed}: {found[:20]}, not {wanted[:20]}"


def try_seeds(options: argparse.Namespace, taken: Any, trying: Any, name: str) -> int:
    """Seeds one after another, as long as there are any; how many failed. `trying` has the one that runs."""
    sys.setswitchinterval(1e-5)  # threads take turns as often as they can
    warnings.simplefilter("ignore")
    begun = told = time.monotonic()
    done = failed = 0
    while True:
        with taken.get_lock():
            number = taken.value
            over = time.monotonic() > begun + 60 * options.minutes if options.minutes else number >= options.seeds
            taken.value += not over
        if over or time.monotonic() > told + TELL_S:
            told = time.monotonic()
            print(f"{name}: {done} programs in {told - begun:.0f} s, {failed} failed", flush=True)
        if over:
            trying.value = -1
            return failed
        seed = trying.value = options.first + number
        faulthandler.dump_traceback_later(options.patience, exit=True)
        try:
            try_seed(seed, options.tasks, options.blocks // 2)
        except Exception as why:  # whatever it is, the others are to be tried, too
            failed += 1
            print(f"seed {seed} FAILED: {type(why).__name__}: {str(why)[:2000]}", flush=True)
        faulthandler.cancel_dump_traceback_later()
        done += 1


def process(options: argparse.Namespace, taken: Any, trying: Any, name: str) -> None:
    sys.exit(min(try_seeds(options, taken, trying, name), 100))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("first", 0), ("tasks", 300), ("blocks", 2 * TILES), ("processes", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--seeds", type=int, default=100)
    many.add_argument("--minutes", type=float)
    parser.add_argument("--patience", type=float, default=300)
    options = parser.parse_args()
    spawning = multiprocessing.get_context("spawn")
    taken, begun = spawning.Value("q", 0), time.monotonic()
    trying = [spawning.Value("q", -1) for _ in range(options.processes)]
    children = [
        spawning.Process(target=process, args=(options, taken, each, f"process {number}"))
        for number, each in enumerate(trying)
    ]
    for child in children:
        child.start()
    for child, each in zip(children, trying, strict=True):
        child.join()
        if each.value >= 0:
            print(f"seed {each.value} FAILED: its process ended, or ran out of time", flush=True)
    ends = [child.exitcode for child in children]
    minutes = (time.monotonic() - begun) * options.processes / 60
    said = "right" if not any(ends) else f"WRONG: processes ended with {ends}"
    print(f"{taken.value} programs of {options.tasks} tasks on {options.blocks} blocks, {minutes:.1f} minutes: {said}")
    return 1 if any(ends) else 0


if __name__ == "__main__":
    sys.exit(main())
