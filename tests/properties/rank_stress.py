"""Random programs of tasks on several ranks, within one process, against a sequential run.

    python tests/properties/rank_stress.py [--seeds 100] [--first 0] [--tasks 60] [--minutes M] [--break NAME]

The programs are those of `task_stress`: tasks fail, give up, have children, ask for what they did not declare. Each
rank is an engine with a fake transport, which delays and reorders whatever it may; where tasks and blocks are is
random, too, and so is whether ranks reach each other's memory. All ranks must end with the sequential values, and with
the same blocks without values. `--break` takes a step out of the protocol, after which a wrong value must be found.
"""

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy
from task_stress import SIZE, TILE, TILES, Group, Program, Step, body, declared, expected, parent, random_program

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.distributions import blocked, by_number, cyclic, grid, owner
from texpr.runtime.tasks.gather import gather
from texpr.runtime.tasks.holdings import Holdings
from texpr.runtime.tasks.machine import Machine
from texpr.runtime.tasks.ranks import Ranks
from texpr.runtime.tasks.task import Task
from texpr.runtime.transport.fake import FakeRank, fake
from texpr.runtime.transport.interface import Transport
from texpr.tasks import Block, Engine, Tensor, may_read_write, tiled

Values = list[int | None]


def scattered(task: Task, ranks: int) -> int:
    return task.number * 7919 // 13 % ranks


ENGINES: list[dict[str, Any]] = [
    {"workers": 1},
    {"workers": 2, "placement": scattered},
    {"workers": 1, "placement": by_number, "memories": {"remote": 4 * SIZE}},
    {"workers": {"gpu": 2}, "memories": {"gpu": None}, "placement": scattered},
    {"workers": {"home": 1, "gpu": 1}, "memories": {"gpu": 5 * SIZE, "remote": 4 * SIZE}, "placement": owner},
]
DISTRIBUTIONS = [cyclic, blocked, grid(2), lambda block, ranks: ranks - 1]


def run_rank(program: Program, transport: Transport, options: Mapping[str, Any], distribution: Any) -> list[Values]:
    """What the engine of one rank knows in the end."""
    space = tiled(TILES * TILE, TILE)
    ones = numpy.ones(TILES * TILE, numpy.int64)
    v = Tensor("V", (space,), "i64", data=ones, distribution=distribution)
    s = Tensor("S", (space,), "i64", distribution=distribution)
    with Engine(**options, transport=transport) as engine:
        for item in program:
            if isinstance(item, Group):
                engine.submit(parent, may_read_write(v), may_read_write(s), args=(item, v, s))
            else:
                engine.submit(body, *declared(item, v, s), args=(item, v, s))
        try:
            engine.wait()
        except TExprError as failed:
            if failed.diagnostics[0].code != "E0715":
                raise
        flow = engine._flow
        assert flow.ranks is not None
        assert all(not node.reserved for node in flow.holdings.nodes), "memory is reserved"
        return [values(t, gather(flow.ranks, t)) for t in (v, s)]


def values(tensor: Tensor, whole: Any) -> Values:
    found: Values = []
    for block in tensor.blocks():
        assert isinstance(block, Block)
        part = whole[block.number * TILE : (block.number + 1) * TILE]
        if block.residency is not None:
            assert not any(block.residency.holders) and not any(block.residency.pins), f"{block} is held"
        if block.residency is not None and block.residency.spoilt is not None:
            found.append(None)
        else:
            assert (part == part[0]).all(), f"{block} is torn"
            found.append(int(part[0]))
    return found


def calm(program: Program) -> Program:
    """The same tasks, of which none fails or gives up: a failure hides wrong values."""

    def commits(step: Step) -> Step:
        return replace(step, end="commit")

    return [
        replace(item, steps=tuple(map(commits, item.steps))) if isinstance(item, Group) else commits(item)
        for item in program
    ]


def on_ranks(transports: list[FakeRank], do: Callable[[FakeRank], Any]) -> list[Any]:
    """What each rank's thread gives; the first error of one of them is raised."""
    found: dict[int, Any] = {}
    errors: list[BaseException] = []

    def run(transport: FakeRank) -> None:
        try:
            found[transport.rank] = do(transport)
        except BaseException as why:  # told by the thread that waits
            errors.append(why)

    threads = [threading.Thread(target=run, args=(transport,)) for transport in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[rank] for rank in range(len(transports))]


def try_seed(seed: int, tasks: int) -> None:
    """Raises AssertionError where a rank's result is not the sequential one."""
    rng = random.Random(seed)
    options = ENGINES[seed % len(ENGINES)] | {"debug": seed % 3 > 0}
    distribution = rng.choice(DISTRIBUTIONS)
    program = random_program(rng, tasks, any(options.get("memories", {}).values()))
    if seed % 2:
        program = calm(program)
    before = threading.active_count()
    ranks = fake(rng.choice((2, 3)), seed, near=rng.random() < 0.5)
    results = on_ranks(ranks, lambda rank: run_rank(program, rank, options, distribution))
    assert threading.active_count() == before, "a thread is left"
    wanted = list(expected(program))
    for rank, found in enumerate(results):
        assert found == wanted, f"seed {seed}, rank {rank} of {len(ranks)}: {found}, not {wanted}"


# protocols with a step left out

Broken = Callable[[], Any]


def _no_flush() -> Any:
    return patch.object(FakeRank, "flush", lambda self, rank: None)


def _tells_at_once() -> Any:
    """Completion is told while what a task wrote is on its way home."""
    flush = Holdings.flush

    def not_waited_for(self: Holdings, residency: Any, token: Any) -> int:
        flush(self, residency, Nobody())
        return 0

    return patch.object(Holdings, "flush", not_waited_for)


class Nobody:
    def answer(self, outcome: Any) -> bool:
        return True


def _believes_at_once() -> Any:
    """A stand-in is over when nothing is before it, and nobody waits to be told."""

    def ready(self: Ranks, task: Task) -> None:
        self._told.setdefault(task.number, (task.number, 3, None, []))
        self._end(task)

    return patch.object(Ranks, "ready", ready)


def _keeps_copies() -> Any:
    """Copies of what another rank has changed are taken for good."""

    def overtaken(self: Machine, residency: Any, spoilt: Any) -> None:
        residency.spoilt = spoilt
        self._serve(residency)

    return patch.object(Machine, "overtaken", overtaken)


BROKEN: dict[str, Broken] = {
    "no flush": _no_flush,
    "told too early": _tells_at_once,
    "not waited for": _believes_at_once,
    "stale copies": _keeps_copies,
}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    if name is None:
        yield
    else:
        with BROKEN[name]():
            yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seeds", 100), ("first", 0), ("tasks", 60), ("minutes", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--break", dest="broken", choices=BROKEN)
    options = parser.parse_args()
    sys.setswitchinterval(1e-4)  # threads take turns often
    end = time.monotonic() + 60 * options.minutes
    seed = options.first
    with broken(options.broken):
        while seed < options.first + options.seeds or time.monotonic() < end:
            try_seed(seed, options.tasks)
            seed += 1
    print(f"{seed - options.first} programs of {options.tasks} tasks on several ranks: right")


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main()
