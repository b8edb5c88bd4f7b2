"""Which instances meet, and in which order: the relations that races, dependences and undefined reads share.

Two statements share their outer loops. In program order an instance of S comes before one of T when, for some shared
loop, all loops outside it are equal and its own index is less (that loop *carries* the pair), or when all shared loops
are equal and S stands first in the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

from texpr.grammar.ast import Gather
from texpr.grammar.records import dataclass
from texpr.polyhedral import isl
from texpr.polyhedral.affine import coprime_columns
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramStatement

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
    left = first.domain.get_space().align_params(second.domain.get_space())
    return isl.Map.universe(left.map_from_domain_and_range(second.domain.get_space().align_params(left)))


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


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """An access with its statement; `constants` are the coordinates of its element that never change, `width` the
    columns of its relation, floors among them."""

    statement: ProgramStatement
    access: Access
    constants: tuple[int | None, ...]
    width: int


Uses = Mapping[str, list[Use]]


def uses_by_buffer(program: Program) -> Uses:
    """The accesses to every buffer in program order."""
    uses: dict[str, list[Use]] = {name: [] for name in program.buffers}
    for statement in program.statements:
        for access in statement.accesses:
            uses[access.buffer].append(use_of(statement, access))
    return uses


def use_of(statement: ProgramStatement, access: Access) -> Use:
    """The use that an access makes of its buffer."""
    return Use(statement, access, _constants(access.relation), _width(access))


def _constants(relation: isl.Map) -> tuple[int | None, ...]:
    values = (relation.plain_get_val_if_fixed(OUT, k) for k in range(relation.dim(OUT)))
    return tuple(value.to_python() if value.is_int() else None for value in values)


def _width(access: Access) -> int:
    floors = max((piece.dim(isl.dim_type.div) for piece in access.relation.get_basic_maps()), default=0)
    return columns(access.relation) + floors + coprime_columns(access.subscripts)


def apart(first: Use, second: Use) -> bool:
    """Whether two constant coordinates differ: the cheap answer for unrolled code."""
    return first.constants != second.constants and any(
        left != right and left is not None and right is not None
        for left, right in zip(first.constants, second.constants, strict=True)
    )


def candidates(uses: Sequence[Use]) -> Iterator[tuple[Use, Use]]:
    """Every pair of uses of one buffer, each with itself too, that may touch one element and of which one writes; the
    first is not after the second. Uses that all have a constant coordinate meet only where it is equal."""
    rank = len(uses[0].constants) if uses else 0
    for place in range(rank):
        if all(use.constants[place] is not None for use in uses):
            groups: dict[int | None, list[Use]] = {}
            for use in uses:
                groups.setdefault(use.constants[place], []).append(use)
            break
    else:
        groups = {None: list(uses)}
    for group in groups.values():
        if any(writes(use.access) for use in group):
            for first, second in combinations_with_replacement(group, 2):
                if (writes(first.access) or writes(second.access)) and not apart(first, second):
                    yield first, second


def meetings(first: Access, second: Access) -> isl.Map:
    """The pairs of instances that touch one element."""
    return first.relation.apply_range(second.relation.reverse())
