"""What a kernel does with each parameter: in, out or inout; and whether it only accumulates into it.

Only read is `in`; wholly written before any read is `out`; all else is `inout`. A declared direction is checked:
an `in` that is written (E0305), an `out` that is read before (E0303, in `definedness`) or not wholly written (E0304),
an `inout` that is used one way (W0301).
"""

from dataclasses import field

from texpr.grammar.ast import AccOp, Role
from texpr.grammar.diagnostics import Diagnostic, Label, Severity, TExprError, error
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramBuffer
from texpr.polyhedral.prove.definedness import readers, sure_writes, undefined, unwritten, width_of
from texpr.polyhedral.prove.ordering import Use, Uses, writes
from texpr.polyhedral.prove.witness import element_text, least, sizes_mapping, sizes_text


@dataclass(slots=True, kw_only=True)
class Directions:
    """`directions` and `accumulated` as `ProvedProgram` has them, with what was found on the way."""

    directions: dict[str, str] = field(default_factory=dict)
    accumulated: dict[str, AccOp] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def infer_directions(program: Program, by_buffer: Uses) -> Directions:
    """The direction of every array parameter, and the diagnostics of the declared ones."""
    result = Directions()
    for name, uses in by_buffer.items():
        home = program.buffers[name]
        if home.buffer.role is not Role.PARAM:
            continue
        try:
            result.directions[name] = _direction(program, home, uses, result.diagnostics)
        except TExprError as limit:
            result.diagnostics += limit.diagnostics
            result.directions[name] = "inout"
        op = _accumulated([use.access for use in uses])
        if op is not None:
            result.accumulated[name] = op
    return result


def _direction(program: Program, home: ProgramBuffer, uses: list[Use], diagnostics: list[Diagnostic]) -> str:
    buffer = home.buffer
    name = buffer.source_name or buffer.name
    written = [use.access for use in uses if writes(use.access)]
    if buffer.direction == "in":
        for access in written[:1]:
            diagnostics.append(
                error("E0305", f"{name} is declared `in` and written", access.span, help=f"declare {name} `inout`")
            )
        return "in"
    if not written:
        if buffer.direction == "out":
            diagnostics.append(_not_written(program, home, uses))
        elif buffer.direction == "inout":
            diagnostics.append(_one_way(home, "only read", "in"))
        return buffer.direction or "in"
    if buffer.direction == "out":
        known = sure_writes(program.work, uses)
        width = width_of(home.elements, known)
        with program.work.limited(buffer.span, f"the proof that {name} is wholly written", width):
            whole = unwritten(program, home.elements, known).is_empty()
        if not whole:
            diagnostics.append(_not_written(program, home, uses))
        return "out"
    try:
        out = _is_out(program, home, uses)
    except TExprError:
        # Past the limit the wider direction is always right.
        out = False
    if buffer.direction == "inout":
        if out and not _no_elements(program, home):
            diagnostics.append(_one_way(home, "wholly written before it is read", "out"))
        return "inout"
    return "out" if out else "inout"


def _is_out(program: Program, home: ProgramBuffer, uses: list[Use]) -> bool:
    known = sure_writes(program.work, uses)
    if not known:
        return False
    if _no_elements(program, home):
        # Nothing is read early at size 0; the text decides, so that the direction does not hang on it.
        return not readers(uses)
    for reader in readers(uses):
        if not undefined(program, reader, known).is_empty():
            return False
    width = width_of(home.elements, known)
    with program.work.limited(home.buffer.span, "the direction of this parameter", width):
        return bool(unwritten(program, home.elements, known).is_empty())


def _no_elements(program: Program, home: ProgramBuffer) -> bool:
    """Whether the buffer is empty at all sizes."""
    with program.work.limited(home.buffer.span, "the direction of this parameter", columns(home.elements)):
        return bool(home.elements.is_empty())


def _accumulated(accesses: list[Access]) -> AccOp | None:
    ops = {a.op for a in accesses}
    updates = all(a.mode in (AccessMode.ACCUMULATE, AccessMode.ATOMIC) for a in accesses)
    return ops.pop() if accesses and updates and len(ops) == 1 else None


def _not_written(program: Program, home: ProgramBuffer, uses: list[Use]) -> Diagnostic:
    buffer = home.buffer
    name = buffer.source_name or buffer.name
    known = sure_writes(program.work, uses)
    width = width_of(home.elements, known)
    with program.work.limited(buffer.span, f"the proof that {name} is wholly written", width):
        missing = unwritten(program, home.elements, known)
        if missing.is_empty():
            return _one_way(home, "not used", "in")
        sizes, element = least(program, missing)
    if home.flat_strides:
        environment = sizes_mapping(program, sizes)
        element = (sum(int(index_value(s, environment)) * c for s, c in zip(home.flat_strides, element, strict=True)),)
    return error(
        "E0304",
        f"{name} is declared `out` and not wholly written",
        buffer.span,
        f"{sizes_text(program, sizes)}nothing surely writes {element_text(buffer, element)}",
        help=f"write every element, or declare {name} `inout`",
        witness={"sizes": sizes_mapping(program, sizes), "buffer": buffer.name, "element": list(element)},
    )


def _one_way(home: ProgramBuffer, use: str, better: str) -> Diagnostic:
    name = home.buffer.source_name or home.buffer.name
    return Diagnostic(
        code="W0301",
        severity=Severity.WARNING,
        message=f"{name} is declared `inout` and {use}",
        primary=Label(span=home.buffer.span),
        help=f"declare {name} `{better}`",
    )
