"""Surface kernels and bare programs against the text of their core trees: buffers, indices, sizes, conditions."""

import pytest
from checked import core, lines, refused

from texpr.grammar import ast
from texpr.grammar.check.stage import show
from texpr.grammar.diagnostics import Diagnostic

SEED = """
par M i {
    par N j {
        seq K k {
            C[i * N + j] += A[i * K + k] * B[k * N + j]
        }
    }
}
"""


def test_a_reduction_binds_the_identity_and_accumulates_in_a_seq() -> None:
    text = "kernel f(A: f16[M, K], C: f32[M]) { par M i #tile(64) { C[i] = sum K k { A[i, k] * A[i, k] } } }"
    assert lines(text)[1:] == [
        "par i: M (band 1) #tile(64)",
        "S0: C[i] = 0.0:f32",
        "seq k: K",
        "S1: C[i] add= mul.f32(f32(A[i, k]), f32(A[i, k]))",
    ]


def test_the_seeds_program_is_one_bare_kernel_with_flat_buffers_in_order_of_appearance() -> None:
    (kernel,) = core(SEED)
    assert kernel.bare
    assert [b.name for b in kernel.buffers] == ["C", "A", "B"]
    assert [s.name for s in kernel.sizes] == ["M", "N", "K"]
    assert "C: f32[M * N] flat" in show(kernel)


def test_types_from_outside_are_those_of_a_bare_programs_buffers() -> None:
    (kernel,) = core(SEED, types={"A": "f16", "B": "bf16"})
    assert [b.dtype.name for b in kernel.buffers] == ["f32", "f16", "bf16"]
    assert refused(SEED, types={"D": "f16"})[0][0] == "E0211"
    assert refused(SEED, types={"A": "f15"})[0][0] == "E0211"


@pytest.mark.parametrize(
    ("statement", "length"),
    [
        ("par N i { B[i] = A[i + 2] }", "N + 2"),
        ("par N i { B[i] = A[2 * i] }", "max(0, 2 * N - 1)"),
        ("par N i { seq i + 1 j { B[i] += A[i * N + j] } }", "N * N"),
        ("par N i { B[i] = A[i / 2] }", "(N - 1) / 2 + 1"),
        ("par N i { B[i] = A[i % 4] }", "4"),
        ("par N i { B[i] = A[N - 1 - i] }", "N"),
        ("par N i { B[i] = A[i] + A[i + 1] }", "N + 1"),
        ("par N i { B[i] = A[i]; B[i] += A[M] }", "max(N, M + 1)"),
        ("par N i { if i + 1 < N { B[i] = A[i + 1] } }", "N"),
        ("par N i { B[i] = select(i < N - 3, A[i + 3], 0.0) }", "N"),
        ("par 2..N i { B[i] = A[i - 2] }", "max(0, N - 2)"),
    ],
)
def test_the_length_of_an_undeclared_buffer_is_its_greatest_subscript_plus_one(statement: str, length: str) -> None:
    head = lines(statement)[0]
    assert f"A: f32[{length}] flat" in head


def test_index_names_are_unique_and_the_authors_word_is_kept() -> None:
    (kernel,) = core("kernel f(A: f32[N]) { par N i { A[i] = 0.0 } par N i { A[i] += 1.0 } }")
    first, second = kernel.body
    assert isinstance(first, ast.Par) and isinstance(second, ast.Par)
    assert (first.index, second.index, second.source_name) == ("i", "i_1", "i")
    assert first.band != second.band


def test_a_range_runs_from_zero_with_the_shift_in_the_subscripts() -> None:
    assert lines("kernel f(A: f32[N]) { par 1..N - 1 i { A[i] = A[i - 1] } }")[1:] == [
        "par i: N - 2 (band 1)",
        "S0: A[i + 1] = A[i]",
    ]


def test_the_locals_of_a_kernel_stand_in_order_of_their_new() -> None:
    text = "kernel f(A: f32[N], B: f32[N]) { par N i { B[i] = (sum N k { sum N q { A[q] } }) + 1.0; let z = A[i] } }"
    (kernel,) = core(text)
    assert [b.name for b in kernel.buffers if b.role is ast.Role.LOCAL] == ["sum_1", "sum", "z"]


def test_a_seed_style_new_takes_its_type_from_the_first_bind() -> None:
    text = "kernel f(A: f16[N], B: f32[N]) { par N i { new acc 4; acc[0] = A[i]; B[i] = acc[0] } }"
    assert "new acc: f16[4]" in lines(text)


def test_a_size_constant_is_a_default_that_a_given_size_replaces() -> None:
    text = "size BM = 64\nsize BN = BM * 2\nkernel f(A: f32[BM, BN]) { par BM i, BN j { A[i, j] = 0.0 } }"
    assert lines(text)[0] == "kernel f(A: f32[BM, BM * 2]) sizes BM = 64"
    assert lines(text, sizes={"BM": 32})[0] == "kernel f(A: f32[BM, BM * 2]) sizes BM = 32"
    assert lines(text, sizes={"BN": 16})[0] == "kernel f(A: f32[BM, BN]) sizes BM = 64, BN = 16"
    assert refused(text, sizes={"BK": 16}) == [("E0211", "there is no size `BK`")]


def test_a_size_at_kernel_level_is_a_constant_too() -> None:
    text = "kernel f(A: f32[N]) { size B = 4\n par N / B b { par B i { A[b * B + i] = 0.0 } } }"
    assert lines(text)[0] == "kernel f(A: f32[N]) sizes N, B = 4"
    assert lines(text, sizes={"B": 8, "N": 64})[0] == "kernel f(A: f32[N]) sizes N = 64, B = 8"


def test_facts_of_where_are_conditions_over_sizes() -> None:
    text = "kernel f(A: f32[N]) where N % 8 == 0 and N > 0, N <= 65536 { par N i { A[i] = 0.0 } }"
    assert lines(text)[0] == "kernel f(A: f32[N]) sizes N where N % 8 == 0, N > 0, N <= 65536"


def test_an_inexact_division_of_constants_in_an_extent_is_a_warning_with_the_missed_range() -> None:
    warnings: list[Diagnostic] = []
    core("kernel f(A: f32[100]) { par 100 / 16 i { A[i] = 0.0 } }", warnings=warnings)
    assert [(w.code, w.message) for w in warnings] == [("W0302", "100 / 16 floors: 96 to 99 of 100 are missed")]


def test_an_affine_if_restricts_the_domain_and_a_data_dependent_one_reads_a_fresh_local() -> None:
    text = "kernel f(A: f32[N]) { par N i { if i < 3 { A[i] = 0.0 } else { if A[i] > 0.0 { A[i] = 1.0 } } } }"
    assert lines(text)[2:] == [
        "if i < 3",
        "S0: A[i] = 0.0:f32",
        "else",
        "new condition: bool",
        "S1: condition = gt(A[i], 0.0:f32)",
        "if condition",
        "S2: A[i] = 1.0:f32",
    ]


def test_the_affine_part_of_an_and_restricts_the_domain_around_the_rest() -> None:
    text = "kernel f(A: f32[N]) { par N i { if i > 0 and A[i - 1] > 0.0 { A[i] = 1.0 } } }"
    assert lines(text)[2:] == [
        "if i > 0",
        "new condition: bool",
        "S0: condition = gt(A[i - 1], 0.0:f32)",
        "if condition",
        "S1: A[i] = 1.0:f32",
    ]


def test_a_let_of_an_affine_condition_stays_affine() -> None:
    inner = "let c = i > 0 and i < 9; A[i] = select(not c, 0.0, A[i - 1]); if c { A[i] = 1.0 }"
    text = f"kernel f(A: f32[N]) {{ par N i {{ {inner} }} }}"
    assert lines(text)[2:] == [
        "S0: A[i] = select(not (i > 0 and i < 9), 0.0:f32, A[i - 1])",
        "if i > 0 and i < 9",
        "S1: A[i] = 1.0:f32",
    ]


def test_a_kernel_may_have_the_name_of_a_library_function_that_the_file_does_not_call() -> None:
    assert core("kernel relu(A: f32[N]) { par N i { A[i] = max(A[i], 0.0) } }")[0].name == "relu"
    text = "kernel relu(A: f32[N]) { par N i { A[i] = %s(A[i]) } }"
    assert core(text % "silu")[0].name == "relu"
    assert refused(text % "relu") == [("E0202", "`relu` is a function of the library, which this file calls")]
