"""States: elements that the program itself looks at between one addition and the next.

    seq T t { par N i { v[i] += dt * f(x[i]) } ; par N i { x[i] += dt * v[i] } }

Every `x[i]` is read after it was added to, and before it is added to again: the program asks for T values in f32, and
no two additions make a partial. A run of additions is what nothing but other additions interrupts; a loop whose
iterations are all apart, for each two of them that add to one element, makes runs no longer. (The loops of a `par` are
never: there a read between would be a race.)
"""

from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral import isl
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.program import AccessMode, Program
from texpr.polyhedral.prove.additions import CHAIN, product, repeating
from texpr.polyhedral.prove.ordering import Use, all_pairs, carried, meetings, ordered, shared_loops, uses_by_buffer


def is_state(program: Program, buffer: str, long: frozenset[str], most: int = CHAIN) -> bool:
    """Whether the runs of a buffer's `long` updates are so short that a partial may have them, of at most so many. A
    buffer of which it takes too many steps to tell is none."""
    uses = uses_by_buffer(program)[buffer]
    updates = [use for use in uses if use.statement.id in long and use.access is use.statement.write]
    others = [use for use in uses if use not in updates and use.access.must]
    total = 0
    for update in updates:
        turns = repeating(program, update.statement, size_ranges(program.kernel), most)
        run = product(
            count
            for depth, count in turns.items()
            if update.statement.loops[depth].parallel or not _apart(program, update, depth, updates, others)
        )
        if run is None:
            return False
        total += run
    return total <= most


def _apart(program: Program, update: Use, depth: int, updates: list[Use], others: list[Use]) -> bool:
    """Whether something else touches the element between any two additions in different iterations of a loop."""
    inside = [other for other in updates if shared_loops(update.statement, other.statement) > depth]
    return all(
        _interrupted(program, first, second, depth, others)
        for first, second in {(a, b) for other in inside for a, b in ((update, other), (other, update))}
    )


def _interrupted(program: Program, first: Use, second: Use, depth: int, others: list[Use]) -> bool:
    """The same for two updates, the first in an earlier iteration than the second."""
    width = first.width + second.width
    try:
        with program.work.limited(first.access.span, "what lies between these additions", width):
            pairs = carried(meetings(first.access, second.access), depth)
            for other in others:
                if pairs.is_empty():
                    break
                pairs = pairs.subtract(_around(first, other).apply_range(_until(other, second)))
            return bool(pairs.is_empty())
    except TExprError:
        if program.work.exhausted:
            raise
        return False


def _around(update: Use, other: Use) -> isl.Map:
    """Every instance of an update with those of a use that touch its element after it."""
    return _after(meetings(update.access, other.access), update, other)


def _until(other: Use, update: Use) -> isl.Map:
    """Every instance of a use with those of an update after it; an update reads before it writes."""
    pairs = all_pairs(other.statement, update.statement)
    found = _after(pairs, other, update)
    if other.statement is update.statement and other.access.mode is AccessMode.READ:
        found = found.union(isl.Map.identity(pairs.get_space()))
    return found


def _after(relation: isl.Map, first: Use, second: Use) -> isl.Map:
    found = isl.Map.empty(relation.get_space())
    for _, part in ordered(relation, first.statement, second.statement):
        found = found.union(part)
    return found
