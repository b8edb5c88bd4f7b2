"""Small sizes of a program at which its synchronisation is checked: what is wrong at any size is wrong at one of them.

M // 128 tiles of K // 64 steps in a pipe of 4 stages      M, K = 0, 0    128, 64    256, 128    1152, 576
… where M * N >= 4194304 and M * O < 4194304               M, N, O = 256, 16384, 128 and so on
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar import walk
from texpr.grammar.ast import And, Compare, CompareOp, Condition, IndexBinary, IndexConst, IndexExpr, Read
from texpr.grammar.index.expr import names
from texpr.grammar.index.operators import DIVISIONS
from texpr.grammar.index.value import condition_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.sync import WaitGroup
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.mapped.walks import every_node, launches

MOST_DOUBLED = 12  # sizes, where facts ask for large ones
MOST_TRIED = 4096


def small_sizes(program: MappedProgram) -> Iterator[dict[str, int]]:
    """Sizes at which loops run not at all, once, twice, and so often that every slot of a pipe is used a third time.

    The rules of pipes, groups and barriers look no further back than `stages` turns, and loops repeat them: what is
    wrong with whole tiles of some size is wrong at one of these. Sizes are multiples of what they are divided by, one
    more where a fact says that they are none, and keep what a fact says by itself, if need be as larger ones, or as
    multiples of tiles and not of the blocks that share tiles out (as those that no tile divides never are), or of a
    product that a tile divides the last one alone. Where facts hold at no such sizes that are alike, as those of a
    product of sizes that is small beside one that is large, they are not alike (`_unlike`). Alternatives, as that an
    earlier case of a mapping does not hold, they need not keep.
    """
    nodes = [node for launch in launches(program.host) for node in every_node(launch.body)]
    behind = (node.behind + 2 for node in nodes if isinstance(node, WaitGroup))
    stages = max([1, *(pipe.stages for launch in launches(program.host) for pipe in launch.pipes), *behind])
    divided = [found for launch in launches(program.host) for found in _divisors(launch)]
    facts = [part for fact in program.kernel.facts for part in (fact.parts if isinstance(fact, And) else (fact,))]
    plain = [fact for fact in facts if isinstance(fact, Compare)]
    zero = dict.fromkeys((name for fact in plain for name in names(fact)), 0)  # such are addresses
    few: tuple[int, ...] = (0, 1, 2, 2 * stages + 1) if program.kernel.sizes else (0,)
    some = False
    more = [(2 * stages + 1) << times for times in range(1, MOST_DOUBLED if program.kernel.sizes else 1)]
    order = [size.name for size in program.kernel.sizes]
    odd = {name for fact in plain if fact.op is CompareOp.NE for one in _divisions(fact) for name in one.sizes}
    alone = [
        replace(one, sizes=frozenset(sorted(one.sizes, key=order.index)[-1:]))
        for one in divided
        if one.sizes <= {*order}
    ]

    def sized(units: Mapping[str, int], turns: Mapping[str, int]) -> dict[str, int] | None:
        """So many turns of each size, None where a fact does not hold at them."""
        sizes = {name: turns[name] * unit + (name in odd) for name, unit in units.items()}
        return sizes if all(condition_value(fact, {**zero, **sizes}) for fact in plain) else None

    for found, blocks in ((divided, True), (divided, False), (alone, False)):
        units = {name: _unit(name, found, plain, blocks=blocks) for name in order}
        for turns in (*few, *more):
            sizes = sized(units, dict.fromkeys(order, turns)) if turns in few or not some else None
            if sizes is not None:
                some = True
                yield sizes
        if some:
            return
    own = {name: _unit(name, [one for one in divided if name in one.sizes], plain, blocks=False) for name in order}
    for turns in few[1:]:
        sizes = _unlike(order, turns, lambda each: sized(own, each))
        if sizes is not None:
            yield sizes


def _unlike(
    order: Sequence[str], turns: int, sized: Callable[[Mapping[str, int]], dict[str, int] | None]
) -> dict[str, int] | None:
    """The smallest sizes that hold, of so many turns or some of them doubled again and again; None where none is found
    among the first `MOST_TRIED`."""
    first = (0,) * len(order)
    waiting, seen = deque([first]), {first}
    for _ in range(MOST_TRIED):
        if not waiting:
            return None
        doubled = waiting.popleft()
        sizes = sized({name: turns << times for name, times in zip(order, doubled, strict=True)})
        if sizes is not None:
            return sizes
        for place, times in enumerate(doubled):
            more = (*doubled[:place], times + 1, *doubled[place + 1 :])
            if times < MOST_DOUBLED and more not in seen:
                seen.add(more)
                waiting.append(more)
    return None


@dataclass(frozen=True, slots=True)
class _Division:
    """A constant that something of these sizes is divided by. `of_tiles`: that has no quotient in it; else it is tiles,
    and what divides it the blocks among which they are shared out."""

    by: int
    sizes: frozenset[str]
    of_tiles: bool


def _unit(size: str, divided: Sequence[_Division], facts: Sequence[Compare], *, blocks: bool) -> int:
    """Of what a size is a multiple: of what facts divide it by, and, where a tile divides it, of every tile, with
    `blocks` of the blocks that share tiles out, too."""
    is_tiled = any(one.of_tiles and size in one.sizes for one in divided)
    own = [one.by for one in divided if is_tiled and (one.of_tiles or blocks)]
    return math.lcm(*own, *(one.by for fact in facts for one in _divisions(fact) if size in one.sizes))


def _divisors(launch: Launch) -> Iterator[_Division]:
    """What extents and conditions are divided by."""
    found: list[IndexExpr | Condition] = list(launch.grid)
    for node in every_node(launch.body):
        match node:
            case Loop(extent=extent):
                found.append(extent)
            case Guard(condition=condition) if not isinstance(condition, Read):
                found.append(condition)
            case _:
                pass
    for tree in found:
        yield from _divisions(tree)


def _divisions(tree: IndexExpr | Condition) -> Iterator[_Division]:
    for part in walk.walk(tree):
        if isinstance(part, IndexBinary) and part.op in DIVISIONS and isinstance(part.right, IndexConst):
            inside = walk.walk(part.left)
            quotients = any(isinstance(n, IndexBinary) and n.op in DIVISIONS for n in inside)
            yield _Division(part.right.value, names(part.left), not quotients)
