"""Which instances meet, and in which order: the relations that races, dependences and undefined reads share.

Two statements share their outer loops. In program order an instance of S comes before one of T when, for some shared
loop, all loops outside it are equal and its own index is less (that loop *carries* the pair), or when all shared loops
are equal and S stands first in the text.
"""

from collections.abc import Iterator

import islpy as isl

from texpr.grammar.ast import Gather, IndexConst
from texpr.polyhedral.program import Access, AccessMode, ProgramStatement

IN, OUT = isl.dim_type.in_, isl.dim_type.out


def shared_loops(first: ProgramStatement, second: ProgramStatement) -> int:
    """How many outer loops two statements have in common."""
    count = 0
    for left, right in zip(first.loops, second.loops, strict=False):
        if left.index != right.index:
            break
        count += 1
    return count


def stands_before(first: ProgramStatement, second: ProgramStatement, shared: int) -> bool:
    """Whether `first` comes first in the text, inside the shared loops."""
    left, right = first.position[2 * shared], second.position[2 * shared]
    return isinstance(left, int) and isinstance(right, int) and left < right


def exclusive(first: ProgramStatement, second: ProgramStatement, level: int) -> bool:
    """Whether the statements stand in two branches of one data-dependent `if` whose condition is evaluated once when
    the outer `level` loops are equal."""
    return any(
        left.number == right.number and left.value != right.value and left.depth <= level
        for left, right in zip(first.guards, second.guards, strict=False)
    )


def equal_outside(relation: isl.Map, level: int) -> isl.Map:
    """The pairs at equal values of the outer `level` loops."""
    for position in range(level):
        relation = relation.equate(IN, position, OUT, position)
    return relation


def carried(relation: isl.Map, level: int) -> isl.Map:
    """The pairs at equal values of the outer `level` loops whose next loop goes forward."""
    return equal_outside(relation, level).order_lt(IN, level, OUT, level)


def ordered(relation: isl.Map, first: ProgramStatement, second: ProgramStatement) -> Iterator[tuple[int, isl.Map]]:
    """The parts of `relation` whose first instance comes before the second, with the number of equal outer loops:
    those inside one iteration of all shared loops, then those carried by each shared loop, innermost first."""
    shared = shared_loops(first, second)
    if stands_before(first, second, shared) and not exclusive(first, second, shared):
        yield shared, equal_outside(relation, shared)
    for level in reversed(range(shared)):
        if not exclusive(first, second, level):
            yield level, carried(relation, level)


def all_pairs(first: ProgramStatement, second: ProgramStatement) -> isl.Map:
    """Every instance of one statement with every instance of another, domains aside."""
    return isl.Map.universe(first.domain.get_space().map_from_domain_and_range(second.domain.get_space()))


def is_gathered(access: Access) -> bool:
    """Whether a subscript is read from data."""
    return any(isinstance(subscript, Gather) for subscript in access.subscripts)


def writes(access: Access) -> bool:
    return access.mode is not AccessMode.READ


def commute(first: Access, second: Access) -> bool:
    """Whether the order of two accesses to one element does not matter: two reads, or two updates by one operator."""
    if not writes(first) and not writes(second):
        return True
    updates = (AccessMode.ACCUMULATE, AccessMode.ATOMIC)
    return first.mode in updates and first.mode is second.mode and first.op is second.op


def never_meet(first: Access, second: Access) -> bool:
    """Whether two constant subscripts differ: the cheap answer for unrolled code."""
    return any(
        isinstance(left, IndexConst) and isinstance(right, IndexConst) and left.value != right.value
        for left, right in zip(first.subscripts, second.subscripts, strict=True)
    )


def meetings(first: Access, second: Access) -> isl.Map:
    """The pairs of instances that touch one element."""
    return first.relation.apply_range(second.relation.reverse())
