"""Rows of one thread: neighbouring iterations of an index, one after the other, whose loads are on their way together;
and neighbours that a short loop reads by one access."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.simulate.stage import simulate

MAXIMA = """kernel k(X: {t}[B, 2 * H + 1, 2 * W + 1], Y: {t}[B, H, W]) {{
    par B b, H h, W w {{ Y[b, h, w] = maximum 3 y, 3 x {{ X[b, 2 * h + y, 2 * w + x] }} }}
}}"""
MEANS = """kernel k(X: {t}[B, 2 * H, 2 * W], Y: {t}[B, H, W]) {{
    par B b, H h, W w {{ new s: f32; s = sum 2 y, 2 x {{ f32(X[b, 2 * h + y, 2 * w + x]) }}; Y[b, h, w] = s / 4.0 }}
}}"""
OWN = """kernel k(inout X: f32[B, 2 * H, 2 * W]) where H >= 1 {
    par B b, W w { X[b, 0, 2 * w] = sum 2 x { X[b, 0, 2 * w + x] } }
}"""
TRIANGLE = "kernel k(X: f32[N, N], Y: f32[N, N]) { par N i, i j { Y[i, j] = sum 2 x { X[i, j + x] } } }"


def flat(program: MappedProgram) -> Flat:
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    return found


def changed(text: str, sizes: dict[str, int], **changes: Any) -> MappedProgram:
    first = mapped(text, **sizes)
    assert isinstance(first.candidate, Candidate)
    (name,) = first.candidate.launches
    choice = replace(flat(first), widths={}, lines={}, turns={}, **changes)
    return mapped(text, choices=replace(first.candidate, launches={name: choice}), **sizes)


def arguments(program: MappedProgram) -> dict[str, Any]:
    random = np.random.default_rng(3)
    shapes = {b.name: tuple(constant_value(n) or 0 for n in b.shape) for b in program.kernel.params}
    return {name: random.integers(-9, 10, shape).astype(np.float32) for name, shape in shapes.items()}


def difference(program: MappedProgram) -> float:
    values = arguments(program)
    expected = interpret(program.kernel, values).outputs
    found = simulate(program, values)
    return max(float(np.abs(found[name] - expected[name]).max(initial=0.0)) for name in expected)


@pytest.mark.parametrize(
    ("text", "dtype", "rows"), [(MAXIMA, "bf16", 4), (MAXIMA, "f32", 2), (MEANS, "bf16", 4), (MEANS, "f32", 2)]
)
def test_a_thread_that_reads_few_bytes_takes_several_rows(text: str, dtype: str, rows: int) -> None:
    program = mapped(text.format(t=dtype), B=4096, H=93, W=89)
    assert list(flat(program).patch.values()) == [rows]
    assert not flat(mapped(text.format(t=dtype), B=2, H=93, W=89)).patch


@pytest.mark.parametrize("text", [MAXIMA, MEANS])
@pytest.mark.parametrize(("b", "h", "w"), [(2, 7, 5), (1, 1, 33), (3, 6, 40), (0, 4, 4), (2, 3, 1)])
def test_every_row_is_computed_once(text: str, b: int, h: int, w: int) -> None:
    sizes = {"B": b, "H": h, "W": w}
    index = flat(mapped(text.format(t="f32"), **sizes)).grid[-1]
    assert difference(changed(text.format(t="f32"), sizes, patch={index: 3})) == 0


@pytest.mark.parametrize("w", [8, 7])
def test_neighbours_that_a_short_loop_reads_are_one_access(w: int) -> None:
    program = changed(MEANS.format(t="f32"), {"B": 2, "H": 4, "W": w}, patch={"b_h": 2})
    assert "copy X_pair[x_element] = from X[" in show(program)
    assert difference(program) == 0


def test_neighbours_at_no_known_multiple_are_read_one_by_one() -> None:
    assert "X_pair" not in show(changed(MAXIMA.format(t="f32"), {"B": 2, "H": 4, "W": 7}, patch={"h": 2}))


def test_what_the_launch_writes_is_read_where_it_stands() -> None:
    program = changed(OWN, {"B": 3, "H": 2, "W": 5}, patch={"b": 2})
    assert "X_pair" not in show(program)
    assert difference(program) == 0


def test_rows_of_an_index_that_tells_another_one_are_refused() -> None:
    with pytest.raises(TExprError, match="`patch` says"):
        changed(TRIANGLE, {"N": 40}, patch={"i": 2})


@pytest.mark.parametrize("m", [1, 5, 8, 37])
def test_rows_end_where_one_iteration_around_them_says(m: int) -> None:
    text = "kernel k(X: f32[N, M + 1], Y: f32[N, M, M + 1]) { par N i, M j { par i + M k { Y[i, j, k] = X[i, k] } } }"
    assert difference(changed(text, {"N": 1, "M": m}, patch={"k": 3})) == 0


@pytest.mark.gxx
def test_the_text_of_rows_is_right_on_the_cpu() -> None:
    for text, index in ((MAXIMA, "h"), (MEANS, "b_h")):
        program = changed(text.format(t="f32"), {"B": 2, "H": 7, "W": 5}, patch={index: 3})
        values = arguments(program)
        expected = interpret(program.kernel, values).outputs["Y"]
        emitted = Emitted(program)
        assert emitted.run(HostModule(emitted.source, werror=True), values) is None
        np.testing.assert_array_equal(values["Y"], expected)
