"""Which elements are read before anything surely wrote them, and which are surely written in the end.

    undefined = access relation  minus  { instance -> element written by a sure write before that instance }

An accumulation and an atomic read the old value. A bind is sure when its subscripts are affine and every data-dependent
`if` around it is also around the read, in the same evaluation of its condition. Locals and declared `out` parameters
must have no undefined read (E0303).
"""

from collections.abc import Iterator

import islpy as isl

from texpr.grammar.ast import Role
from texpr.grammar.diagnostics import Diagnostic, TExprError, error
from texpr.polyhedral.affine import least_point, limited
from texpr.polyhedral.bounds import VERBS
from texpr.polyhedral.ordering import all_pairs, is_gathered, never_meet, ordered
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramStatement
from texpr.polyhedral.witness import (
    element_text,
    instance_mapping,
    instance_text,
    sizes_mapping,
    sizes_text,
    touched,
)


def check_definedness(program: Program) -> Iterator[Diagnostic]:
    """A diagnostic for each access of a local or declared `out` that can read an undefined element."""
    for name, home in program.buffers.items():
        if home.buffer.role is not Role.LOCAL and home.buffer.direction != "out":
            continue
        for statement, access in readers(program, name):
            try:
                with limited(access.span, "the proof that this element is written before"):
                    missing = undefined(program, statement, access)
                    found = None if missing.is_empty() else _report(program, statement, access, missing)
            except TExprError as limit:
                yield from limit.diagnostics
                continue
            if found is not None:
                yield found


def readers(program: Program, buffer: str) -> Iterator[tuple[ProgramStatement, Access]]:
    """The accesses that use the old value of an element: all but binds."""
    for statement in program.statements:
        for access in statement.accesses:
            if access.buffer == buffer and access.mode is not AccessMode.WRITE:
                yield statement, access


def undefined(program: Program, reader: ProgramStatement, access: Access) -> isl.Map:
    """The part of an access relation whose elements no sure write reaches before."""
    missing = access.relation
    if missing.is_empty():
        return missing
    for writer, write in reversed(_sure_writes(program, access.buffer)):
        if never_meet(write, access):
            continue
        for level, before in ordered(all_pairs(writer, reader), writer, reader):
            if not _same_guards(writer, reader, level):
                continue
            covered = before.reverse().apply_range(write.relation)
            missing = missing.subtract(covered)
            if missing.is_empty():
                return missing
    return missing


def _sure_writes(program: Program, buffer: str) -> list[tuple[ProgramStatement, Access]]:
    return [
        (s, a)
        for s in program.statements
        for a in s.accesses
        if a.buffer == buffer and a.mode is AccessMode.WRITE and not is_gathered(a)
    ]


def _same_guards(writer: ProgramStatement, reader: ProgramStatement, level: int) -> bool:
    """Whether the writer surely runs when the reader does, at equal values of the outer `level` loops."""
    known = {(guard.number, guard.value) for guard in reader.guards}
    return all((guard.number, guard.value) in known and guard.depth <= level for guard in writer.guards)


def unwritten(program: Program, buffer: str) -> isl.Set:
    """The elements of a parameter that the kernel does not surely write."""
    missing = program.buffers[buffer].elements
    for writer, write in _sure_writes(program, buffer):
        if writer.guards:
            continue
        missing = missing.subtract(write.relation.range())
        if missing.is_empty():
            break
    return missing


def _report(program: Program, statement: ProgramStatement, access: Access, missing: isl.Map) -> Diagnostic:
    home = program.buffers[access.buffer]
    name = home.buffer.source_name or home.buffer.name
    count = len(program.kernel.sizes)
    point = least_point(missing.wrap().flatten())
    sizes, values = point[:count], point[count : count + len(statement.loops)]
    environment = {**sizes_mapping(program, sizes), **instance_mapping(statement, values)}
    element = touched(access, environment, point[count + len(statement.loops) :], len(home.outer), home.flat_strides)
    where = instance_text(program, statement, sizes, values) or "this statement"
    return error(
        "E0303",
        f"{name} is read before it is written",
        access.span,
        f"{sizes_text(program, sizes)}{where} {VERBS[access.mode]} {element_text(home.buffer, element)}, "
        "which nothing has surely written before",
        help=f"bind {name} before, under no narrower condition",
        witness={
            "sizes": sizes_mapping(program, sizes),
            "statement": statement.id,
            "first": instance_mapping(statement, values),
            "buffer": access.buffer,
            "element": list(element),
        },
    )
