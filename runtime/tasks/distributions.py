"""Which rank has what: the homes of a tensor's blocks, and where tasks run. Both are functions that every rank calls,
and that must give the same everywhere.

    Tensor("A", (n, n), distribution=grid(2, 2))          the home of each block, `cyclic` where nothing is said
    Engine(transport=…, placement=by_number)              the rank of each task, `owner` where nothing is said
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.permissions import EFFECT, Effect
from texpr.runtime.tasks.spaces import is_count
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.task import Task

Placement = Callable[["Task", int], int]


def cyclic(block: Block, ranks: int) -> int:
    """Blocks in row-major order go round the ranks."""
    return block.number % ranks


def blocked(block: Block, ranks: int) -> int:
    """Each rank has one run of the blocks in row-major order."""
    return block.number * ranks // block.tensor.n_blocks


def grid(*counts: int) -> Callable[[Block, int], int]:
    """Ranks form a grid, over which the tiles go round in each dimension; dimensions that are not named have one rank
    each. Raises E0703."""
    if not counts or not all(is_count(count) and count for count in counts):
        raise fail("E0703", f"a grid of ranks has a number of them in each dimension, not {counts!r}")

    def of(block: Block, ranks: int) -> int:
        rank = 0
        for tile, count in zip(block.index, counts, strict=False):
            rank = rank * count + tile % count
        return rank % ranks

    return of


def home_rank(block: Block, ranks: int) -> int:
    """The rank that has a block, as its tensor's distribution says. Raises E0703."""
    rank = (block.tensor.distribution or cyclic)(block, ranks)
    if not is_count(rank) or rank >= ranks:
        raise fail("E0703", f"the distribution of {block.tensor.name} puts {block} at rank {rank!r} of {ranks}")
    return rank


def owner(task: "Task", ranks: int) -> int:
    """A task runs where the first block has its home that it may modify, or else the first that it reads."""
    blocks, whole = task.grants.blocks, task.grants.whole
    for modifies in (True, False):
        for block, right in blocks.items():
            if (EFFECT[right] is not Effect.READ) is modifies:
                return home_rank(block, ranks)
        for tensor, right in whole.items():
            if (EFFECT[right] is not Effect.READ) is modifies and tensor.n_blocks:
                return home_rank(next(tensor.blocks()), ranks)
    return by_number(task, ranks)


def by_number(task: "Task", ranks: int) -> int:
    """Tasks go round the ranks in the order of their submission."""
    return task.number % ranks
