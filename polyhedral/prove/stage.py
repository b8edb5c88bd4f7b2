"""The prove stage: a program is free of races, out-of-bounds accesses and undefined reads, or says where it is not.

Input: a `Program`. Output: a `ProvedProgram` with the direction of every parameter. Invariant: the proofs hold
for every value of the free sizes that satisfies `Program.context`. Errors: one TExprError with E0301 to E0305 and
E0307, in text order, each with the least counterexample.
"""

from collections.abc import Iterator

from texpr.grammar.diagnostics import Diagnostic, Severity, TExprError
from texpr.polyhedral.program import Program, ProvedProgram
from texpr.polyhedral.prove.additions import warn_ordered
from texpr.polyhedral.prove.bounds import check_bounds
from texpr.polyhedral.prove.definedness import check_definedness
from texpr.polyhedral.prove.directions import infer_directions
from texpr.polyhedral.prove.ordering import Uses, uses_by_buffer
from texpr.polyhedral.prove.races import check_races
from texpr.polyhedral.prove.strides import check_strides
from texpr.polyhedral.prove.width import check_width

MAX_LIMITS = 3  # queries that were given up before the proofs of a kernel stop


def prove(program: Program) -> ProvedProgram:
    """Proves a program; raises TExprError with every error found."""
    uses = uses_by_buffer(program)
    found = _findings(program, uses)
    if sum(d.code == "E0307" for d in found) >= MAX_LIMITS:
        raise TExprError(sorted(found, key=_text_order))
    inferred = infer_directions(program, uses)
    found += inferred.diagnostics
    errors = [d for d in found if d.severity is Severity.ERROR]
    if errors:
        raise TExprError(sorted(found, key=_text_order))
    found += warn_ordered(program)
    return ProvedProgram(
        program=program,
        directions=inferred.directions,
        accumulated=inferred.accumulated,
        warnings=tuple(sorted(found, key=_text_order)),
    )


def _findings(program: Program, uses: Uses) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    limits = 0
    for diagnostic in _checked(program, uses):
        found.append(diagnostic)
        limits += diagnostic.code == "E0307"
        if limits == MAX_LIMITS:
            break
    return found


def _checked(program: Program, uses: Uses) -> Iterator[Diagnostic]:
    """The findings of every check, one check after the other."""
    yield from check_width(program)
    yield from check_bounds(program)
    yield from check_strides(program)
    yield from check_races(program, uses)
    yield from check_definedness(program, uses)


def _text_order(diagnostic: Diagnostic) -> tuple[int, int, str]:
    span = diagnostic.primary.span if diagnostic.primary else None
    return (span.start, span.end, diagnostic.code) if span is not None else (0, 0, diagnostic.code)
