"""Both arms of a data-dependent `if`: what each of them surely binds is surely bound when the `if` is over.

if A[i] > 0.0 { x = 1.0 } else { x = 2.0 }        x is bound, whichever way it went

arm -> { outer loops of the if -> element }   united by arm, then the intersection of the two arms
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.records import dataclass
from texpr.polyhedral import isl
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import ProgramStatement
from texpr.polyhedral.prove.ordering import Use, use_of

UNITED = "the union of what both arms of this condition write"


@dataclass(frozen=True, slots=True, kw_only=True)
class SureWrite:
    """A bind that is sure where its guards hold, or all that both arms of an `if` bind; then `arms` has the numbers of
    the `if`s that were united: inside them, nothing is said of the evaluation that is running."""

    use: Use
    arms: frozenset[int] = frozenset()


def with_united_arms(work: isl.Work, binds: Sequence[Use]) -> list[SureWrite]:
    """The binds in program order, those of two arms united after both, inner `if`s first. E0307 past the limit."""
    writes = [SureWrite(use=use) for use in binds]
    depth = max((len(use.statement.guards) for use in binds), default=0)
    for level in reversed(range(depth)):
        arms: dict[int, dict[bool, list[SureWrite]]] = {}
        for write in writes:
            guards = write.use.statement.guards
            if len(guards) == level + 1:
                arms.setdefault(guards[level].number, {}).setdefault(guards[level].value, []).append(write)
        for number, sides in arms.items():
            if len(sides) == 2:
                united = _united(work, number, sides[True], sides[False])
                if united is not None:
                    writes.append(united)
    return writes


def _united(work: isl.Work, number: int, first: Sequence[SureWrite], second: Sequence[SureWrite]) -> SureWrite | None:
    """What both arms write, in every evaluation of the condition; None where that is nothing."""
    sample = first[0].use
    statement, depth = sample.statement, sample.statement.guards[-1].depth
    width = max(columns(write.use.access.relation) for write in (*first, *second))
    with work.limited(sample.access.span, UNITED, width, isl.BUILDING):
        both = _arm(statement.id, first, depth).intersect(_arm(statement.id, second, depth)).coalesce()
        if both.is_empty():
            return None
        evaluation: ProgramStatement = replace(
            statement,
            loops=statement.loops[:depth],
            domain=both.domain(),
            accesses=(),
            position=statement.position[: 2 * depth + 1],
            guards=statement.guards[:-1],
        )
        use = use_of(evaluation, replace(sample.access, relation=both))
    inside = frozenset[int]().union(*(write.arms for write in (*first, *second)))
    return SureWrite(use=use, arms=inside | {number})


def _arm(name: str, writes: Sequence[SureWrite], depth: int) -> isl.Map:
    """The elements that one arm writes, by the values of the loops around its `if`."""
    parts = []
    for write in writes:
        relation = write.use.access.relation
        inner = relation.dim(isl.dim_type.in_) - depth
        relation = relation.project_out(isl.dim_type.in_, depth, inner)
        parts.append(relation.set_tuple_name(isl.dim_type.in_, name))
    result = parts[0]
    for part in parts[1:]:
        result = result.union(part)
    return result
