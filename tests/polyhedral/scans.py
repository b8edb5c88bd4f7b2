"""Scans written by hand: of the values of each thread, over lanes, and of both, with and before each value."""

from typing import Any

from graphs import copy, define, launch, program, scan

from texpr.grammar.types import F32
from texpr.polyhedral.mapped.program import MappedProgram

COUNT = 4  # values of a thread
FLOATS = dict.fromkeys(("A", "B", "C", "v", "p", "q"), F32)
FORMS: dict[str, dict[str, Any]] = {
    "values": {"over": f"e < {COUNT}"},
    "values before": {"over": f"e < {COUNT}", "exclusive": True},
    "lanes": {"lanes": 8},
    "lanes before": {"lanes": 8, "exclusive": True},
    "both": {"over": f"e < {COUNT}", "lanes": 32},
    "both before": {"over": f"e < {COUNT}", "lanes": 16, "exclusive": True},
}


def scanned(name: str, monoid: str = "Sum", **how: Any) -> MappedProgram:
    """Two warps, each thread with values of its own; a program for each form."""
    form, types = FORMS[name], {} if monoid == "Sum" else FLOATS
    at = "e" if "over" in form else "0"
    targets = f"p[{at}]" if monoid == "Sum" else f"p[{at}]; q[{at}]"
    kept = [("S2", "B", "p"), ("S3", "C", "q")][: 1 if monoid == "Sum" else 2]
    stored = [
        copy(id, f"{array}[i, e] = {own}[e]", f"e < {COUNT if at == 'e' else 1}", types=types)
        for id, array, own in kept
    ]
    kind = "i32" if monoid == "Sum" else "f32"
    parameters = ", ".join(f"{array}: {kind}[64, {COUNT}]" for array in "ABC")
    body = (
        define("i", lane=32, warp=2),
        copy("S0", "v[e] = A[i, e]", f"e < {COUNT}", types=types),
        scan("S1", targets, f"v[{at}]", monoid=monoid, types=types, **{**form, **how}),
        *stored,
    )
    registers = dict.fromkeys(("v", "p", "q"), (COUNT,))
    return program(parameters, launch(*body, threads=64, name=NAMES[name, monoid]), registers=registers, types=types)


NAMES = {(form, monoid): f"scan_{n}_{monoid}" for n, form in enumerate(FORMS) for monoid in ("Sum", "ScaledSum")}
