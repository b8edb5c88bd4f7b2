"""Which elements are read before anything surely wrote them, and which are surely written in the end.

    undefined = access relation  minus  { instance -> element written by a sure write before that instance }

An accumulation and an atomic read the old value. A bind is sure when its subscripts are affine and every data-dependent
`if` around it is also around the read, in the same evaluation of its condition; what both arms of an `if` bind is sure
after it. Locals and declared `out` parameters
must have no undefined read (E0303).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from texpr.grammar.ast import Role
from texpr.grammar.diagnostics import Diagnostic, TExprError, error
from texpr.polyhedral import isl
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import AccessMode, Program, ProgramStatement
from texpr.polyhedral.prove.arms import SureWrite, with_united_arms
from texpr.polyhedral.prove.bounds import VERBS
from texpr.polyhedral.prove.ordering import Use, Uses, all_pairs, apart, is_gathered, ordered
from texpr.polyhedral.prove.witness import (
    element_text,
    instance_mapping,
    instance_text,
    least,
    sizes_mapping,
    sizes_text,
    touched,
)

WRITTEN_BEFORE = "the proof that this element is written before"


def check_definedness(program: Program, by_buffer: Uses) -> Iterator[Diagnostic]:
    """A diagnostic for each access of a local or declared `out` that can read an undefined element."""
    for name, uses in by_buffer.items():
        home = program.buffers[name]
        if home.buffer.role is not Role.LOCAL and home.buffer.direction != "out":
            continue
        try:
            writes = sure_writes(program.work, uses)
        except TExprError as limit:
            yield from limit.diagnostics
            continue
        for reader in readers(uses):
            try:
                missing = undefined(program, reader, writes)
                with program.work.limited(reader.access.span, WRITTEN_BEFORE, columns(missing)):
                    found = None if missing.is_empty() else _report(program, reader, missing)
            except TExprError as limit:
                yield from limit.diagnostics
                continue
            if found is not None:
                yield found


def readers(uses: Sequence[Use]) -> list[Use]:
    """The uses of an element's old value: all but binds."""
    return [use for use in uses if use.access.mode is not AccessMode.WRITE]


def sure_writes(work: isl.Work, uses: Sequence[Use]) -> list[SureWrite]:
    """The binds at affine subscripts, arms of conditions united. E0307 past the limit."""
    binds = [use for use in uses if use.access.mode is AccessMode.WRITE and not is_gathered(use.access)]
    return [_weighed(work, write) for write in with_united_arms(work, binds)]


def _weighed(work: isl.Work, write: SureWrite) -> SureWrite:
    """The write with the columns that subtracting what it reaches is worth."""
    relation = write.use.access.relation
    with work.limited(write.use.access.span, WRITTEN_BEFORE, write.use.width):
        hidden = isl.unsolved(relation.range())
    return replace(write, use=replace(write.use, width=write.use.width + hidden)) if hidden else write


def undefined(program: Program, reader: Use, writes: Sequence[SureWrite]) -> isl.Map:
    """The part of an access relation whose elements no sure write reaches before. E0307 past the limit."""
    missing = reader.access.relation
    with program.work.limited(reader.access.span, WRITTEN_BEFORE, reader.width):
        if missing.is_empty():
            return missing
    for write in reversed(writes):
        writer = write.use
        if apart(writer, reader):
            continue
        first, second = writer.statement, reader.statement
        with program.work.limited(reader.access.span, WRITTEN_BEFORE, reader.width + writer.width):
            missing = program.facts.joined(missing, writer.access.relation)
            for level, before in ordered(all_pairs(first, second), first, second):
                if not _same_guards(first, second, level) or _inside(write, second, level):
                    continue
                missing = missing.subtract(before.reverse().apply_range(writer.access.relation))
                if missing.is_empty():
                    return missing
    return missing


def _same_guards(writer: ProgramStatement, reader: ProgramStatement, level: int) -> bool:
    """Whether the writer surely runs when the reader does, at equal values of the outer `level` loops."""
    known = {(guard.number, guard.value) for guard in reader.guards}
    return all((guard.number, guard.value) in known and guard.depth <= level for guard in writer.guards)


def _inside(write: SureWrite, reader: ProgramStatement, level: int) -> bool:
    """Whether the reader stands in an arm of the evaluation that the write unites."""
    return any(guard.number in write.arms and guard.depth <= level for guard in reader.guards)


def unwritten(program: Program, elements: isl.Set, writes: Sequence[SureWrite]) -> isl.Set:
    """The elements that none of the writes surely reaches."""
    for write in writes:
        if not write.use.statement.guards:
            relation = write.use.access.relation
            elements = program.facts.joined(elements, relation).subtract(relation.range())
            if elements.is_empty():
                break
    return elements


def width_of(elements: isl.Set, writes: Sequence[SureWrite]) -> int:
    """The columns of `unwritten`."""
    return columns(elements) + max((write.use.width for write in writes), default=0)


def _report(program: Program, reader: Use, missing: isl.Map) -> Diagnostic:
    statement, access = reader.statement, reader.access
    home = program.buffers[access.buffer]
    name = home.buffer.source_name or home.buffer.name
    sizes, point = least(program, missing.wrap().flatten())
    values = point[: len(statement.loops)]
    environment = {**sizes_mapping(program, sizes), **instance_mapping(statement, values)}
    element = touched(access, environment, point[len(statement.loops) :], len(home.outer), home.flat_strides)
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
