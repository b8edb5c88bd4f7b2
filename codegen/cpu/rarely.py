"""Branches of a loop that it rarely takes, for they change what they depend on: records, first places, tables of few.

    for j in range(N):                       for first in range(0, N, 64):
        condition = X[j] > top                   some = any of X[first], … > top         vectors, without a branch
        if condition: top = X[j]; at = j         if some: for j in range(first, …): the loop

As long as no branch is taken nothing changes that a condition reads, so what there was before a piece tells whether any
of its iterations takes one.
"""

from collections.abc import Mapping

from texpr.codegen.cpu.carry import sites_of
from texpr.codegen.cpu.context import CpuTensor
from texpr.codegen.cpu.ranges import Branch, Range
from texpr.grammar.ast import Bind, Gather, IndexConst, Read
from texpr.grammar.walk import walk
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.tree import Define, Fresh

ASKED = 64  # iterations at once: a few wide vectors, and few to run where one of them takes a branch


def is_rarely_taken(loop: Range, tensors: Mapping[str, CpuTensor]) -> bool:
    """Whether a loop is one branch under data that the branch changes, behind values of one iteration alone, which read
    no place from data."""
    if loop.cores or loop.unroll or not loop.body or not isinstance(branch := loop.body[-1], Branch) or branch.orelse:
        return False
    low, high = loop.low, loop.high
    if isinstance(low, IndexConst) and isinstance(high, IndexConst) and high.value - low.value < 2 * ASKED:
        return False
    fresh: set[str] = set()
    read: set[str] = set()
    for node in loop.body[:-1]:
        match node:
            case Define():
                pass
            case Fresh(buffer=buffer) if tensors[buffer].scalar:
                fresh.add(buffer)
            case Generic(leaf=Bind(value=value)) if {name for name, _ in node.writes} <= fresh:
                if any(isinstance(part, Gather) for part in walk(value)):
                    return False
                read |= {part.buffer for part in node.reads}
            case _:
                return False
    if not isinstance(branch.condition, Read) or branch.condition.buffer not in fresh:
        return False
    changed = {name for site in sites_of(branch.body) for name, _ in site.operator.writes}
    return bool(changed & read) and not changed & fresh
