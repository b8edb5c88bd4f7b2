"""Joined indices: which bands write two of their indices as one, and that they compute what the program says."""

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, proved
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import IndexVar
from texpr.grammar.index.expr import add, combine, const, multiply
from texpr.grammar.index.linear import linear
from texpr.grammar.index.operators import IndexOp
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.greatest import greatest
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.simulate.stage import simulate

SHORT = "kernel k(X: {t}[B, C, P], w: {t}[C], Y: {t}[B, P, C]) {{ par B b, C c, P p {{ Y[b, p, c] = {value} }} }}"
CUBE = "kernel k(X: {t}[P, Q, R], Y: {t}[R, Q, P]) {{ par P i, Q j, R k {{ Y[k, j, i] = X[i, j, k] }} }}"


def band(text: str, sizes: dict[str, int]) -> str:
    """The indices of the first band as it is mapped."""
    problem = problem_of(proved(text, **sizes), mapped(text, **sizes))
    return " ".join(par.index for par in next(iter(problem.regions())).nest[0].pars)


@pytest.mark.parametrize(
    ("text", "sizes", "found"),
    [
        (SHORT.format(t="f32", value="X[b, c, p]"), {"B": 2, "C": 3, "P": 90}, "b p_c"),
        (SHORT.format(t="bf16", value="X[b, c, p] * w[c]"), {"B": 2, "C": 8, "P": 90}, "b p_c"),
        (SHORT.format(t="f32", value="X[b, c, p]"), {"B": 2, "C": 17, "P": 90}, "b c p"),
        (SHORT.format(t="f32", value="X[b, c, p]"), {"B": 2, "C": 3}, "b c p"),
        (CUBE.format(t="bf16"), {"P": 37, "Q": 5, "R": 90}, "j_i k"),
        (CUBE.format(t="bf16"), {"P": 40, "Q": 5, "R": 90}, "i j k"),
        (CUBE.format(t="f32"), {"P": 20, "Q": 5, "R": 90}, "i j k"),
        (
            "kernel k(X: f32[M, N], C: f32[N, M], Y: f32[N, M]) { par M i, N j { Y[j, i] = X[i, j] + C[j, i] } }",
            {"M": 5, "N": 90},
            "i j",
        ),
        ("kernel k(X: f32[M, N], Y: f32[N, M]) { par M i, N j { Y[j, i] = X[i, j] } }", {"M": 37, "N": 90}, "i j"),
        (
            "kernel k(X: f32[4, N], Y: f32[N, 4]) { par 3 i, N j { Y[j, i] = X[i, j] } }",
            {"N": 90},
            "i j",
        ),
        (
            "kernel k(X: f32[3, N], inout Y: f32[N, 3]) {"
            " par 3 i, N j { Y[j, i] = X[i, j] } par N j { Y[j, 0] = 1.0 } }",
            {"N": 90},
            "i j",
        ),
        ("kernel k(X: f32[3, N], Y: f32[N, 3]) { par 3 i, N j #grid { Y[j, i] = X[i, j] } }", {"N": 90}, "i j"),
    ],
)
def test_indices_are_joined_where_rows_are_short_or_lie_at_any_address(
    text: str, sizes: dict[str, int], found: str
) -> None:
    assert band(text, sizes) == found


SAME = (
    (SHORT.format(t="bf16", value="X[b, c, p] * w[c]"), {"B": 2, "C": 3, "P": 179}),
    (SHORT.format(t="f32", value="X[b, c, p]"), {"B": 2, "C": 5, "P": 67}),
    (SHORT.format(t="bf16", value="X[b, c, p]"), {"B": 2, "C": 3, "P": 1501}),
    (SHORT.format(t="u8", value="X[b, c, p]"), {"B": 1, "C": 3, "P": 301}),
    (CUBE.format(t="bf16"), {"P": 37, "Q": 11, "R": 139}),
    (CUBE.format(t="f32"), {"P": 19, "Q": 7, "R": 70}),
    (CUBE.format(t="f32"), {"P": 3, "Q": 41, "R": 70}),
)


def test_joined_indices_compute_what_the_interpreter_computes() -> None:
    programs = [mapped(text.replace("kernel k", f"kernel k{n}"), **sizes) for n, (text, sizes) in enumerate(SAME)]
    made = [Emitted(program) for program in programs]
    module = HostModule("\n".join(one.source for one in made), werror=True)
    for one, program, (_, sizes) in zip(made, programs, SAME, strict=True):
        given = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, given).outputs["Y"]
        np.testing.assert_array_equal(simulate(program, given)["Y"], expected)
        assert one.run(module, given) is None
        np.testing.assert_array_equal(given["Y"], expected)


@pytest.mark.parametrize(
    ("dtype", "points", "width", "line"),
    [("bf16", 1600, 8, {}), ("bf16", 1601, 8, {"p_c": "Y[b, p_c]"}), ("f32", 1601, 4, {"p_c": "Y[b, p_c]"})],
)
def test_what_is_read_at_remainders_is_written_by_wide_accesses(
    dtype: str, points: int, width: int, line: dict[str, str]
) -> None:
    program = mapped(SHORT.format(t=dtype, value="X[b, c, p]"), B=2, C=3, P=points)
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    assert (found.widths, found.lines, found.turns) == ({"p_c": width}, line, {"p_c": 2})


def test_the_greatest_address_is_no_less_than_any() -> None:
    f, k = IndexVar(name="f"), IndexVar(name="k")
    rows, columns = combine(IndexOp.DIV, f, const(7)), combine(IndexOp.MOD, f, const(7))
    ends = {"f": (const(3), const(12)), "k": (const(2), const(5))}
    for address in (add(multiply(const(10), rows), k), add(multiply(const(30), columns), add(rows, k))):
        found = greatest(linear(address), ends)
        assert found is not None
        most = max(int(index_value(address, {"f": a, "k": b})) for a in range(3, 13) for b in range(2, 6))
        assert most <= int(index_value(found, {})) <= most + 30
    falling = linear(combine(IndexOp.SUB, k, rows))
    assert greatest(falling, ends) is None
    assert greatest(linear(combine(IndexOp.SUB, k, f)), ends) == const(2)


@pytest.mark.gxx
@pytest.mark.parametrize("element", ["W[p, p] = a", "W[p, p] = a + X[p]"])
def test_a_diagonal_has_one_index(element: str) -> None:
    text = f"kernel k(X: i16[6], a: i16, inout W: i16[6, 6]) {{ par 6 p {{ {element} }} }}"
    program = mapped(text)
    values = {"X": np.arange(6, dtype=np.int16), "a": np.int16(7), "W": np.full((6, 6), -1, np.int16)}
    expected = interpret(proved(text).program.kernel, values).outputs["W"]
    assert (np.diagonal(expected) >= 7).all() and (expected == -1).sum() == 30
    np.testing.assert_array_equal(simulate(program, values)["W"], expected)
    emitted, arrays = Emitted(program), values | {"W": values["W"].copy()}
    assert emitted.run(HostModule(emitted.source), arrays) is None
    np.testing.assert_array_equal(arrays["W"], expected)
