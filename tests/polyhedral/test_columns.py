"""Bands over columns that teams of threads hold: which these are, how launches take them, and that they are right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import barriers, mapped, only_launch, with_launch, without_barrier
from test_map_programs import arguments
from test_scanned import with_names

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import New
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.map.column_work import column_work
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Choice, Columns
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.orders.check import check_orders
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


@pytest.mark.parametrize("name", ["norm", "softmax", "first greatest"])
def test_any_order_of_warps_is_right(name: str) -> None:
    program = in_columns(PROGRAMS[name], "teams of 8")
    values, sizes = values_of(program, "teams of 8")
    expected = interpret(program.kernel, values, sizes=sizes).outputs
    for seed in (0, 1):
        same(simulate(program, values, seed=seed, sizes=sizes, interleaved=True), expected, name)


def test_every_barrier_of_a_team_is_needed() -> None:
    program = in_columns(PROGRAMS["norm"], "neighbours")
    launch, (values, sizes) = only_launch(program), values_of(program, "neighbours")
    assert len(barriers(launch)) == 2
    for number in range(2):
        wrong = with_launch(program, without_barrier(launch, number))
        with pytest.raises(InternalError, match="no barrier orders"):
            check_orders(wrong)
        with pytest.raises(TExprError, match="no barrier orders"):
            simulate(wrong, values, sizes=sizes)


@pytest.mark.parametrize("attribute", ["#persistent #blocks_per_sm(1)", "#cooperative"])
def test_teams_go_over_several_columns_where_the_author_wants_blocks_to_stay(attribute: str) -> None:
    sizes = {"B": 1, "C": 40, "N": 5000}
    program = mapped(PROGRAMS["norm"].replace("C >= 1 {", f"C >= 1 {attribute} {{"), **sizes)
    assert isinstance(program.candidate, Candidate)
    assert all(isinstance(choice, Columns) for choice in program.candidate.launches.values())
    values = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, values, sizes={}).outputs
    same(simulate(program, values, sizes={}), expected, attribute)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("c", "n"), [(256, 16384), (257, 16383), (1024, 1024), (3, 33473)])
def test_teams_of_usual_sizes_read_a_column_once(c: int, n: int, dtype: str) -> None:
    text = PROGRAMS["norm"].replace("f32[", f"{dtype}[").replace("X[b, c, j] *", "f32(X[b, c, j]) *")
    program = mapped(text, B=32, C=c, N=n)
    assert isinstance(program.candidate, Candidate)
    (choice,) = program.candidate.launches.values()
    assert isinstance(choice, Columns)
    assert all(one.chain <= 128 for one in sums(program, {}).values())
    reads = [access for access in program.report.accesses if access.relation.startswith("X[") and access.mode == "read"]
    assert len(reads) == 1


@pytest.mark.parametrize(
    "text",
    [
        PROGRAMS["norm"].replace("sum C c {", "sum C c #ordered {"),
        PROGRAMS["norm"].replace("par C d {", "seq C d {"),
        of("new t: f32; t = sum C c { X[b, c, j] }; par C d { Y[b, d, j] = t }"),
        of("""new t: f32; t = sum C c { X[b, c, j] }
            par C d { X[b, d, j] = t + X[b, C - 1 - d, j] }""").replace("X: f32", "inout X: f32"),
        of("new t: f32; t = sum C c { X[b, j, c] }; par C d { Y[b, j, d] = X[b, j, d] - t }").replace("C, N]", "N, C]"),
    ],
)
def test_what_is_no_column_of_a_team_is_not_held(text: str) -> None:
    try:
        program = mapped(text, B=32, C=256, N=16384)
    except TExprError as wrong:
        assert {d.code for d in wrong.diagnostics} <= {"E0301"}, wrong
        return
    assert isinstance(program.candidate, Candidate)
    assert not any(isinstance(choice, Columns) for choice in program.candidate.launches.values())


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("norm", {"loops": ("c",)}, "`loops` has c; the loops over a column are c, d"),
    ("norm", {"across": "c"}, "8 of 64 threads cannot lie across c"),
    ("norm", {"lanes": 24}, "24 of 64 threads cannot lie across j"),
    ("norm", {"threads": 96, "lanes": 3}, "3 threads and teams of 32 do not number 96"),
    ("norm", {"widths": {"b": 2}}, "a thread takes neighbours of j"),
    ("norm", {"widths": {"j": 4}}, "the extent of j is no multiple of 4"),
    ("norm", {"resident": 99}, "more threads than a multiprocessor runs"),
    ("norm", {"grid": ("j",)}, "`grid` orders j; the band has b, j"),
    ("norm", {"memory": {}}, "`memory` places none; the locals are t, s"),
]


@pytest.mark.parametrize(("name", "change", "why"), REFUSED)
def test_a_choice_that_does_not_fit_is_refused(name: str, change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why) as refused:
        in_columns(PROGRAMS[name], "teams of 8", **change)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]
