"""Scripts for the model of residency: tasks with an operation on one block or two, and the ways in which they end."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from texpr.runtime.tasks.states import Op

Accesses = tuple[tuple[int, Op], ...]  # block and operation, blocks ascending


@dataclass(frozen=True)
class Task:
    accesses: Accesses
    node: int
    end: str = "commit"

    def __repr__(self) -> str:
        what = " ".join(f"{op.name}{'' if len(self.accesses) == 1 else f'(b{b})'}" for b, op in self.accesses)
        return f"{what}@{self.node}{'' if self.end == 'commit' else ' ' + self.end}"


Script = tuple[Task, ...]
ACCESSES = (Op.READ, Op.WRITE, Op.READ_WRITE, Op.ACCUMULATE)


def tasks(nodes: int, ends: tuple[str, ...] = ("commit", "early", "late")) -> list[Task]:
    """All tasks on block 0."""
    found = [Task(((0, op),), node, end) for op in ACCESSES for node in range(nodes) for end in ends]
    found += [Task(((0, op),), node) for op in (Op.FLUSH, Op.EVICT) for node in range(1, nodes)]
    return found


def random_task(rng: random.Random, nodes: int, blocks: int) -> Task:
    node = rng.randrange(nodes)
    end = rng.choice(("commit", "commit", "commit", "early", "late"))
    if rng.random() < 0.2 and node:
        return Task(((rng.randrange(blocks), rng.choice((Op.FLUSH, Op.EVICT))),), node)
    chosen = sorted(rng.sample(range(blocks), rng.randint(1, blocks)))
    return Task(tuple((block, rng.choice(ACCESSES)) for block in chosen), node, end)


def scripts(length: int, nodes: int, blocks: int, seeds: int, first: int = 0) -> Iterator[Script]:
    if not seeds:
        yield from product(tasks(nodes), repeat=length)
    for seed in range(first, first + seeds):
        rng = random.Random(seed)
        yield tuple(random_task(rng, nodes, blocks) for _ in range(length))
