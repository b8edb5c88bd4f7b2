"""Bands over columns that teams of threads hold: which these are, how launches take them, and that they are right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped
from test_map_programs import arguments
from test_scanned import with_names

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import New
from texpr.grammar.core import statements
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.column_work import column_work
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Choice, Columns
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

HEAD = "kernel k(X: f32[B, C, N], Y: f32[B, C, N], G: f32[C]) where C >= 1 { par B b, N j { BODY } }"
NORM = """new t: f32; t = sum C c { X[b, c, j] * X[b, c, j] }; let s = t + 1.0
    par C d { Y[b, d, j] = X[b, d, j] * s * G[d] }"""


def of(body: str, head: str = HEAD) -> str:
    return head.replace("BODY", body)


PROGRAMS = {
    "norm": of(NORM),
    "softmax": of("""new m: f32; new t: f32; m = maximum C c { X[b, c, j] }
        t = sum C c { X[b, c, j] - m }; par C c { Y[b, c, j] = X[b, c, j] - m + t }"""),
    "halves": of(NORM.replace("t = sum C c", "t = sum C c").replace("X[b, c, j] *", "f32(X[b, c, j]) *")).replace(
        "X: f32", "X: bf16"
    ),
    "in place": of("""new t: f32; t = sum C c { X[b, c, j] }; par C d { X[b, d, j] = X[b, d, j] - t }""").replace(
        "(X: f32[B, C, N], Y: f32[B, C, N], G: f32[C])", "(inout X: f32[B, C, N])"
    ),
    "two of one loop": of("""new t: f32; new m: f32; t = 1.0; m = -9.0
        seq C c { t += X[b, c, j]; m max= X[b, c, j] }
        par C d { if X[b, d, j] > 0.0 { Y[b, d, j] = X[b, d, j] - m } else { Y[b, d, j] = t } }"""),
    "elements": of("""new m: f32; m = maximum C c { X[b, c, j] }; T[b, j] = sum C c { X[b, c, j] - m }""").replace(
        "Y: f32[B, C, N]", "T: f32[B, N]"
    ),
    "first greatest": of("""new m: f32; new at: i64; m = X[b, 0, j]; at = 0
        seq C c { if X[b, c, j] > m { m = X[b, c, j]; at = c } }
        par C d { Y[b, d, j] = X[b, d, j] - m + f32(at) }"""),
    "two arrays": of("""new t: f32; t = sum C c { X[b, c, j] * Z[b, c, j] }
        par C d { Y[b, d, j] = X[b, d, j] - Z[b, d, j] * t }""").replace("X: f32", "Z: bf16[B, C, N], X: f32").replace(
        "* Z[b, c, j]", "* f32(Z[b, c, j])"
    ).replace("- Z[b, d, j]", "- f32(Z[b, d, j])"),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "teams of 8": {"threads": 64, "lanes": 8},
    "teams of a warp and a half": {"threads": 192, "lanes": 4},
    "a thread for each": {"threads": 64, "lanes": 64},
    "neighbours": {"threads": 64, "lanes": 4, "widths": {"j": 4}},
    "neighbours of 8": {"threads": 32, "lanes": 2, "widths": {"j": 8}},
}
SHAPES = {
    "teams of 8": ({"C": 19}, 37),
    "teams of a warp and a half": ({"C": 96}, 5),
    "a thread for each": ({"C": 3}, 70),
    "neighbours": ({"C": 33, "N": 40}, 40),
    "neighbours of 8": ({"C": 16, "N": 16}, 16),
}


def in_columns(text: str, way: str, **changes: Any) -> MappedProgram:
    """The program with the launch in teams of this way."""
    bound = SHAPES[way][0]
    found = mapped(text, **bound)
    assert isinstance(found.candidate, Candidate)
    ((name, _),) = found.candidate.launches.items()
    problem = problem_of(found.proved, found)
    (region,) = problem.regions()
    nest = region.nest[0]
    work = column_work(problem, nest)
    assert work is not None
    choice: Choice = Columns(
        **{
            "across": "j",
            "loops": tuple(loop.index for loop in work.loops),
            "grid": ("j", "b"),
            "memory": {stmt.buffer: Memory.REG for stmt in statements(nest.body) if isinstance(stmt, New)},
            **WAYS[way],
            **changes,
        }
    )
    return mapped(text, choices=replace(found.candidate, launches={name: choice}), **bound)


def values_of(program: MappedProgram, way: str) -> tuple[dict[str, Any], dict[str, int]]:
    sizes = {"B": 2, "N": SHAPES[way][1], **SHAPES[way][0]}
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    return arguments(program.kernel, sizes), known


def same(got: dict[str, Any], expected: dict[str, Any], name: str) -> None:
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=f"{name} {array}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_column_that_a_team_holds_gives_what_its_loops_compute(name: str, way: str) -> None:
    program = in_columns(PROGRAMS[name], way)
    values, sizes = values_of(program, way)
    expected = interpret(program.kernel, values, sizes=sizes).outputs
    same(simulate(program, values, sizes=sizes), expected, name)


@pytest.mark.gxx
def test_the_text_is_right_on_the_cpu() -> None:
    ways = ("teams of 8", "a thread for each", "neighbours")
    pairs = [(name, way) for name in PROGRAMS for way in ways]
    programs = [with_names(in_columns(PROGRAMS[name], way), f"columns_{n}") for n, (name, way) in enumerate(pairs)]
    texts = [Emitted(program) for program in programs]
    module = HostModule("\n".join(text.source for text in texts), werror=True)
    for (name, way), program, text in zip(pairs, programs, texts, strict=True):
        values, sizes = values_of(program, way)
        arrays = {n: np.array(v) for n, v in values.items()}
        assert text.run(module, arrays, 3) is None
        same(arrays, interpret(program.kernel, values, sizes=sizes).outputs, f"{name} {way}")
