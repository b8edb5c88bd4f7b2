"""Fused indices: which pairs of a band become one, and that the program stays the author's."""

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, proved
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import Par, Seq
from texpr.grammar.core import statements
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

TYPES = "A: f32[M, N], B: f32[M, N], w: f32[N], at: i32[M]"


def bands(text: str) -> list[str]:
    """The indices and extents of every band as it is mapped."""
    problem = problem_of(proved(text), mapped(text))
    return [" ".join(par.index for par in region.nest[0].pars) for region in problem.regions()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] = A[i, j] }} }}", ["i_j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] += A[i, j] * A[0, 0] }} }}", ["i_j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ if A[i, j] > 0.0 {{ B[i, j] = A[i, j] }} }} }}", ["i_j"]),
        ("kernel k(A: f32[L, M, N], B: f32[L, M, N]) { par L l, M i, N j { B[l, i, j] = A[l, i, j] } }", ["l_i_j"]),
        (
            "kernel k(X: f32[B, C, H, W], Y: f32[B, H, W, C]) {"
            " par B b, C c, H h, W w { Y[b, h, w, c] = X[b, c, h, w] } }",
            ["b c h_w"],
        ),
        ("kernel k(A: f32[M, N], B: f32[M * N]) { par M i, N j { B[i * N + j] = A[i, j] } }", ["i_j"]),
        ("kernel k(A: f32[M + 1, N], B: f32[M, N]) { par M i, N j { B[i, j] = A[i + 1, j] } }", ["i_j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] = A[i, j] * w[j] }} }}", ["i j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] = A[M - 1 - i, j] }} }}", ["i j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] = A[i, j] + f32(i) }} }}", ["i j"]),
        (f"kernel k({TYPES}) where N >= 1 {{ par M i, N - 1 j {{ B[i, j] = A[i, j] }} }}", ["i j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] = A[at[i], j] }} }}", ["i j"]),
        (f"kernel k({TYPES}) {{ par M i, N j {{ B[0, 0] += A[i, j] }} }}", ["i j"]),
        ("kernel k(A: f32[M, N] #strides(N + 1, 1), B: f32[M, N]) { par M i, N j { B[i, j] = A[i, j] } }", ["i j"]),
        (f"kernel k({TYPES}) {{ par M i, N j #grid {{ B[i, j] = A[i, j] }} }}", ["i j"]),
        (
            f"kernel k({TYPES}) {{ par M i, N j {{ B[i, j] = A[i, j] }} par N j {{ w[j] = sum M i {{ B[i, j] }} }} }}",
            ["i j", "j_1"],
        ),
        (
            f"kernel k({TYPES}, C: f32[N, M]) {{"
            " par M i, N j { B[i, j] = A[i, j] } par N j, M i { C[j, i] = 1.0 } }",
            ["i_j", "j_1_i_1"],
        ),
    ],
)
def test_indices_are_fused_where_all_accesses_walk_them_as_one(text: str, found: list[str]) -> None:
    assert bands(text) == found


def inner(text: str) -> set[str]:
    """The indices of all loops as they are mapped."""
    problem = problem_of(proved(text), mapped(text))
    return {stmt.index for stmt in statements(problem.kernel.body) if isinstance(stmt, Par | Seq)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kernel k(X: f32[C, H, W], S: f32[C]) { par C c { S[c] = sum H h, W w { X[c, h, w] } } }", {"c", "h_w"}),
        (
            "kernel k(X: f32[B, C, H, W], S: f32[C]) { par C c { S[c] = sum B b, H h, W w { X[b, c, h, w] } } }",
            {"c", "b", "h_w"},
        ),
        (
            "kernel k(X: f32[C, H, W], Y: f32[C, H, W]) { par C c {"
            " let s = sum H h, W w { X[c, h, w] }; par H h, W w { Y[c, h, w] = X[c, h, w] * s } } }",
            {"c", "h_w", "h_1_w_1"},
        ),
        (
            "kernel k(X: f32[C, H, W], Y: f32[C, H, W], G: f32[H]) { par C c {"
            " let s = sum H h, W w { X[c, h, w] }; par H h, W w { Y[c, h, w] = G[h] * s } } }",
            {"c", "h_w", "h_1", "w_1"},
        ),
        (
            "kernel k(X: f32[B, C, H, W], Y: f32[B, C, H, W]) { par B b, H h, W w {"
            " let s = sum C c { X[b, c, h, w] }; seq C c { Y[b, c, h, w] = s } } }",
            {"b", "h_w", "c", "c_1"},
        ),
        ("kernel k(X: f32[H, W], S: f32[1]) { S[0] = sum H h, W w #ordered { X[h, w] } }", {"h", "w"}),
        ("kernel k(X: f32[H, W], S: f32[1]) { S[0] = sum H h, W w { X[h, w] * f32(w) } }", {"h", "w"}),
        ("kernel k(X: f32[H, H], S: f32[1]) { S[0] = sum H h, h w { X[h, w] } }", {"h", "w"}),
        ("kernel k(X: f32[H, W + 2], S: f32[1]) { S[0] = sum H h, W w { X[h, w + 1] } }", {"h", "w"}),
        (
            "kernel k(X: f32[A, B, C, D], Y: f32[A, B]) { par A a, B b { Y[a, b] = sum C c, D d { X[a, b, c, d] } } }",
            {"a_b", "c_d"},
        ),
    ],
)
def test_sums_and_loops_inside_of_others_are_fused_too(text: str, found: set[str]) -> None:
    assert inner(text) == found


SAME = (
    (
        "kernel k4(X: f32[C, H, W], Y: f32[C, H, W]) { par C c {"
        " let s = sum H h, W w { X[c, h, w] }; par H h, W w { Y[c, h, w] = X[c, h, w] * s } } }",
        {"C": 3, "H": 7, "W": 11},
    ),
    (
        "kernel k5(X: f32[B, C, H, W], Y: f32[B, C, H, W]) { par B b, H h, W w {"
        " let s = sum C c { X[b, c, h, w] }; seq C c { Y[b, c, h, w] = s - X[b, c, h, w] } } }",
        {"B": 2, "C": 33, "H": 5, "W": 3},
    ),
    (
        "kernel k6(X: f32[A, B, C, D], Y: f32[A, B]) { par A a, B b { Y[a, b] = sum C c, D d { X[a, b, c, d] } } }",
        {"A": 2, "B": 3, "C": 5, "D": 41},
    ),
    (
        "kernel k7(X: f32[H, W], Y: f32[H, W]) { new r: f32; r = 0.0; seq H h, W w { r += X[h, w]; Y[h, w] = r } }",
        {"H": 9, "W": 13},
    ),
    ("kernel k0(A: f32[M, N], B: f32[M, N]) { par M i, N j { B[i, j] = 2.0 * A[i, j] } }", {"M": 7, "N": 13}),
    (
        "kernel k1(A: bf16[L, M, N], B: f32[L, M, N]) { par L l, M i, N j { B[l, i, j] += f32(A[l, i, j]) } }",
        {"L": 3, "M": 5, "N": 9},
    ),
    (
        "kernel k2(X: u8[3, C, 5, 7], Y: u8[3, 5, 7, C]) { par 3 b, C c, 5 h, 7 w { Y[b, h, w, c] = X[b, c, h, w] } }",
        {"C": 20},
    ),
    (
        "kernel k3(A: f32[M + 2, N], B: f32[M, N]) { par M i, N j { B[i, j] = A[i, j] + A[i + 1, j] + A[i + 2, j] } }",
        {"M": 6, "N": 11},
    ),
)


@pytest.fixture(scope="module")
def emitted() -> list[tuple[Emitted, MappedProgram, dict[str, int]]]:
    made = []
    for text, sizes in SAME:
        for number, bound in enumerate((sizes, {})):
            program = mapped(text.replace("kernel k", f"kernel k{number}"), **bound)
            made.append((Emitted(program), program, sizes))
    return made


def test_fused_loops_compute_what_the_interpreter_computes(
    emitted: list[tuple[Emitted, MappedProgram, dict[str, int]]],
) -> None:
    module = HostModule("\n".join(one.source for one, _, _ in emitted), werror=True)
    for one, program, sizes in emitted:
        given = arguments(program.kernel, sizes)
        written = program.kernel.params[1].name
        expected = interpret(program.kernel, given).outputs[written]
        np.testing.assert_array_equal(simulate(program, given)[written], expected)
        assert one.run(module, given) is None
        np.testing.assert_array_equal(given[written], expected)


def test_rows_of_any_length_keep_the_width_of_accesses() -> None:
    text = "kernel k(G: bf16[M, N], U: bf16[M, N], Y: bf16[M, N]) { par M i, N j { Y[i, j] = G[i, j] * U[i, j] } }"
    assert {a.buffer: a.width for a in mapped(text, M=1023, N=4093).report.accesses} == {"G": 8, "U": 8, "Y": 8}
    source = Emitted(mapped(text)).source
    assert "/" not in "".join(line for line in source.splitlines() if "tx::load" in line or "tx::store" in line)
