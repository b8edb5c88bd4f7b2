"""Proof that every affine subscript stays inside its buffer, or the least iteration that leaves it (E0302).

    access range  minus  elements        empty: proved; else its least preimage is the counterexample

A gathered dimension has the whole range as its relation and is checked at run time.
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.diagnostics import Diagnostic, TExprError, error
from texpr.grammar.index.value import index_value
from texpr.polyhedral import isl
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramBuffer, ProgramStatement
from texpr.polyhedral.prove.remedy import missing_fact
from texpr.polyhedral.prove.witness import (
    element_text,
    instance_mapping,
    instance_text,
    least,
    sizes_mapping,
    sizes_text,
    touched,
)

VERBS = {
    AccessMode.READ: "reads",
    AccessMode.WRITE: "writes",
    AccessMode.ACCUMULATE: "updates",
    AccessMode.ATOMIC: "updates",
}

HELP = "shorten the loop, or guard the access with `if` or `select`"


def check_bounds(program: Program) -> Iterator[Diagnostic]:
    """A diagnostic for each access that can leave its buffer."""
    for statement in program.statements:
        for access in statement.accesses:
            try:
                width = columns(access.relation)
                with program.work.limited(access.span, "the proof that this subscript is in bounds", width):
                    found = _check(program, statement, access)
            except TExprError as limit:
                yield from limit.diagnostics
                continue
            if found is not None:
                diagnostic, outside = found
                fact = missing_fact(program, outside, access.span)
                yield replace(diagnostic, help=f"{HELP}; or state `where {fact}`") if fact else diagnostic


def _check(program: Program, statement: ProgramStatement, access: Access) -> tuple[Diagnostic, isl.Set] | None:
    """The least violation of an access with the set of all of them, or None."""
    home = program.buffers[access.buffer]
    if not access.subscripts or access.relation.range().is_subset(home.elements):
        return None
    outside = access.relation.intersect_range(home.elements.complement()).wrap().flatten()
    sizes, point = least(program, outside)
    values = point[: len(statement.loops)]
    environment = {**sizes_mapping(program, sizes), **instance_mapping(statement, values)}
    element = touched(access, environment, point[len(statement.loops) :], len(home.outer), home.flat_strides)
    where = instance_text(program, statement, sizes, values)
    verb = VERBS[access.mode]
    said = f"{sizes_text(program, sizes)}{where or 'this statement'} {verb} {element_text(home.buffer, element)}"
    name = home.buffer.source_name or home.buffer.name
    found = error(
        "E0302",
        f"a subscript of {name} leaves the buffer",
        access.span,
        f"{said}, and {name} {_size_text(home, environment)}",
        help=HELP,
        witness={
            "sizes": sizes_mapping(program, sizes),
            "statement": statement.id,
            "first": instance_mapping(statement, values),
            "buffer": access.buffer,
            "element": list(element),
        },
    )
    return found, outside


def _size_text(home: ProgramBuffer, environment: dict[str, int]) -> str:
    extents = [max(0, index_value(extent, environment)) for extent in home.buffer.shape]
    if len(extents) == 1:
        return f"has {extents[0]} element{'s' if extents[0] != 1 else ''}"
    return f"is {' by '.join(str(e) for e in extents)}"
