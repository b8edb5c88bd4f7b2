"""The figures of a mapping as data, for `texpr map --json`: its accesses with their certificates, and what its
statements iterate over; docs/schemas.md describes both, and `texpr verify` checks them."""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

from texpr.codegen.artifact import json_condition, json_expr
from texpr.codegen.cuda.names import file_name
from texpr.grammar.ast import Gather, IndexVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.text import in_words
from texpr.grammar.source import NO_SPAN
from texpr.polyhedral.mapped.show import element_text

if TYPE_CHECKING:
    from texpr.polyhedral.figures.value import AccessFigures, Certificate, Mean, Sample, Step
    from texpr.polyhedral.mapped.program import MappedProgram
    from texpr.polyhedral.program import Program, ProgramStatement

SECTOR_BYTES, WAVEFRONT_BYTES = 32, 128


def figures_json(program: "MappedProgram") -> dict[str, Any]:
    """Every access to shared and global memory, in execution order, and the bytes that they move by memory."""
    from texpr.polyhedral.figures.measure import access_figures

    found = access_figures(program)
    return {"accesses": [access_json(figures) for figures in found], "bytes": bytes_by_memory(found)}


def access_json(figures: "AccessFigures") -> dict[str, Any]:
    shared = figures.memory.value != "global"
    return {
        "launch": figures.launch,
        "path": list(figures.path),
        "line": None if figures.place is None else {"file": file_name(figures.place[0]), "number": figures.place[1]},
        "statement": figures.statement,
        "number": figures.number,
        "mode": figures.mode,
        "buffer": figures.buffer,
        "memory": figures.memory.value,
        "subscripts": [None if isinstance(s, Gather) else json_expr(s) for s in figures.subscripts],
        "relation": figures.relation,
        "composed": figures.composed,
        "element_bytes": figures.element_bytes,
        "width": figures.width,
        "by": figures.by.value,
        "d": figures.distance,
        "d_by": figures.known.value,
        "certificate": None if figures.certificate is None else _certificate(figures.certificate),
        "unit": "wavefronts" if shared else "sectors",
        "per_request": figures.parts,
        "ideal": figures.ideal,
        "requests": figures.requests,
        "mean": None if figures.mean is None else _mean(figures.mean),
        "samples": [_sample(sample) for sample in figures.samples],
        "why": figures.why,
    }


def _mean(mean: "Mean") -> dict[str, Any]:
    return {"places": mean.places, "sectors": mean.parts, "ideal": mean.ideal, "requests": mean.requests}


def _sample(sample: "Sample") -> dict[str, Any]:
    return {"at": dict(sample.at), "first": list(sample.first), "parts": sample.parts, "ideal": sample.ideal}


def _certificate(proof: "Certificate") -> dict[str, Any]:
    return {
        "lanes": proof.lanes,
        "digits": [{"stride": d.stride, "radix": d.radix, "weight": d.weight} for d in proof.digits],
        "steps": [_step(step) for step in proof.steps],
    }


def _step(step: "Step") -> dict[str, Any]:
    rows = [
        {"before": list(row.before), "after": list(row.after), "constant": row.constant, "exact": row.exact}
        for row in step.rows
    ]
    above, below = ([_fraction(value) for value in side] for side in (step.above, step.below))
    found = {"carries_to": step.carries_to, "count": step.count, "bound": _fraction(step.bound)}
    return {**found, "rows": rows, "above": above, "below": below}


def _fraction(value: Fraction) -> str | int:
    """An integer as it is, another fraction as the text "3/4"."""
    assert gcd(value.numerator, value.denominator) == 1
    return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def statements_json(program: "MappedProgram") -> dict[str, Any]:
    """What each statement of the kernel iterates over, as it is mapped: its loops, outermost first, which of their
    points it runs at, and the element that it writes."""
    model = program.proved.program
    return {statement.id: _statement(model, statement) for statement in model.statements}


def _statement(model: "Program", statement: "ProgramStatement") -> dict[str, Any]:
    write = statement.write
    found: dict[str, Any] = {
        "loops": [
            {"index": loop.index, "extent": {"text": in_words(loop.extent), "tree": json_expr(loop.extent)}}
            for loop in statement.loops
        ],
        "domain": _domain(model, statement),
        "on_data": len(statement.guards) > 0,
        "reads": list(dict.fromkeys(element_text(read.buffer, read.subscripts) for read in statement.reads)),
        "writes": None,
    }
    if write is not None:
        found["writes"] = {
            "buffer": write.buffer,
            "text": element_text(write.buffer, write.subscripts),
            "mode": write.mode.value,
            "subscripts": [None if isinstance(s, Gather) else json_expr(s) for s in write.subscripts],
        }
    return found


def _domain(model: "Program", statement: "ProgramStatement") -> Any:
    """The condition of a statement's iterations, null where no expression says it."""
    from texpr.polyhedral.conditions import condition_of

    coordinates = [IndexVar(name=loop.index) for loop in statement.loops]
    try:
        with model.work.limited(NO_SPAN, "the iterations of a statement", len(coordinates)):
            condition = condition_of(statement.domain, coordinates)
    except TExprError:
        return None
    return {"text": in_words(condition), "tree": json_condition(condition)}


def bytes_by_memory(found: "Sequence[AccessFigures]") -> dict[str, dict[str, int]]:
    """The bytes that the requests of each launch's threads move: whole sectors, and wavefronts of shared memory."""
    totals: dict[str, dict[str, int]] = {}
    for one in found:
        parts, requests = (one.mean.parts, one.mean.requests) if one.mean is not None else (one.parts, one.requests)
        if parts is not None and requests is not None:
            unit = SECTOR_BYTES if one.memory.value == "global" else WAVEFRONT_BYTES
            own = totals.setdefault(one.launch, {})
            own[one.memory.value] = own.get(one.memory.value, 0) + round(parts * requests * unit)
    return totals
