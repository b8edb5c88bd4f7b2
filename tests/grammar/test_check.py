"""The checker: surface programs against the text of their core trees."""

from pathlib import Path

import pytest

from texpr.grammar import ast, context
from texpr.grammar.check import check, check_kernel, show
from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.grammar.modules import STD
from texpr.grammar.parser import parse
from texpr.grammar.source import SourceText

SEED = """
par M i {
    par N j {
        seq K k {
            C[i * N + j] += A[i * K + k] * B[k * N + j]
        }
    }
}
"""


def core(text: str, **given: object) -> tuple[ast.Kernel, ...]:
    return check(parse(SourceText("t.tex", text)), **given)  # type: ignore[arg-type]


def lines(text: str, **given: object) -> list[str]:
    """The lines of the only kernel's core."""
    (kernel,) = core(text, **given)
    return [line.strip() for line in show(kernel).splitlines()]


def elementwise(value: str, params: str = "A: f32[N], B: f32[N]", target: str = "B[i]", op: str = "=") -> str:
    """The core of one statement in a `par`."""
    return lines(f"kernel f({params}) {{ par N i {{ {target} {op} {value} }} }}")[-1]


def refused(text: str, **given: object) -> list[tuple[str, str]]:
    with pytest.raises(TExprError) as found:
        core(text, **given)
    return [(d.code, d.message) for d in found.value.diagnostics]


# ---- kernels and bare programs


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
        ("par N i { B[i] = A[2 * i] }", "max(0, N * 2 - 1)"),
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


# ---- sizes


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


# ---- types


@pytest.mark.parametrize(
    ("value", "params", "expected"),
    [
        ("A[i] * 2", "A: f32[N], B: f32[N]", "S0: B[i] = mul.f32(A[i], 2.0:f32)"),
        ("A[i] * A[i]", "A: f16[N], B: f16[N]", "S0: B[i] = f16(mul.f32(f32(A[i]), f32(A[i])))"),
        ("A[i]", "A: f64[N], B: f16[N]", "S0: B[i] = f16(A[i])"),
        ("A[i] + C[i]", "A: f16[N], B: f64[N], C: f64[N]", "S0: B[i] = add.f64(f64(A[i]), C[i])"),
        ("A[i] + 1", "A: i8[N], B: i8[N]", "S0: B[i] = i8(add.i32(i32(A[i]), 1:i32))"),
        ("A[i] * C[i]", "A: u8[N], B: u8[N], C: u8[N]", "S0: B[i] = u8(mul.i32(i32(A[i]), i32(C[i])))"),
        ("A[i] + C[i]", "A: u8[N], B: u32[N], C: u32[N]", "S0: B[i] = add.u32(u32(A[i]), C[i])"),
        ("A[i]", "A: u8[N], B: i64[N]", "S0: B[i] = i64(A[i])"),
        ("A[i] / 2", "A: i32[N], B: i32[N]", "S0: B[i] = floordiv.i32(A[i], 2:i32)"),
        ("A[i] % 2", "A: i64[N], B: i64[N]", "S0: B[i] = mod.i64(A[i], 2:i64)"),
        ("A[i] / 2", "A: f32[N], B: f32[N]", "S0: B[i] = div.f32(A[i], 2.0:f32)"),
        ("1 / 3", "B: f32[N]", "S0: B[i] = div.f32(1.0:f32, 3.0:f32)"),
        ("0.1", "B: f16[N]", "S0: B[i] = 0.1:f16"),
        ("-128", "B: i8[N]", "S0: B[i] = -128:i8"),
        ("1e9", "B: f8e4m3[N]", "S0: B[i] = 1000000000.0:f8e4m3"),
        ("-inf", "B: f32[N]", "S0: B[i] = -inf:f32"),
        ("i * N + 1", "B: i64[N]", "S0: B[i] = index(i * N + 1)"),
        ("i / N", "B: i64[N]", "S0: B[i] = floordiv.i64(index(i), index(N))"),
        ("i * i", "B: i64[N]", "S0: B[i] = mul.i64(index(i), index(i))"),
        ("i32(i) + 1", "B: i32[N]", "S0: B[i] = add.i32(i32(index(i)), 1:i32)"),
        ("f32(i) * A[i]", "A: f32[N], B: f32[N]", "S0: B[i] = mul.f32(f32(index(i)), A[i])"),
        ("i8(300)", "B: i8[N]", "S0: B[i] = 44:i8"),
        ("u8(A[i])", "A: f32[N], B: u8[N]", "S0: B[i] = u8(A[i])"),
        ("exp(1)", "B: f64[N]", "S0: B[i] = exp.f64(1.0:f64)"),
        ("max(A[i], 0)", "A: f16[N], B: f16[N]", "S0: B[i] = f16(max.f32(f32(A[i]), 0.0:f32))"),
        ("shl(A[i], 3)", "A: u32[N], B: u32[N]", "S0: B[i] = shl.u32(A[i], 3:u32)"),
        ("A[i] < 0", "A: f32[N], B: bool[N]", "S0: B[i] = lt(A[i], 0.0:f32)"),
        ("i < 3", "B: bool[N]", "S0: B[i] = truth(i < 3)"),
        ("i < 3 and A[i] > 0", "A: f32[N], B: bool[N]", "S0: B[i] = select(i < 3, gt(A[i], 0.0:f32), false)"),
        ("A[i] > 0 or i < 3", "A: f32[N], B: bool[N]", "S0: B[i] = select(gt(A[i], 0.0:f32), true, truth(i < 3))"),
        ("not (A[i] > 0)", "A: f32[N], B: bool[N]", "S0: B[i] = not(gt(A[i], 0.0:f32))"),
        ("select(A[i] > 0, 1, 0)", "A: f32[N], B: i32[N]", "S0: B[i] = select(gt(A[i], 0.0:f32), 1:i32, 0:i32)"),
        ("select(i > 0, A[i - 1], 0)", "A: f16[N], B: f16[N]", "S0: B[i] = f16(select(i > 0, f32(A[i - 1]), 0.0:f32))"),
        ("A[i]", "A: f16[N], B: f16[N]", "S0: B[i] = A[i]"),
        ("A[C[i] + 1]", "A: f32[N], B: f32[N], C: i32[N]", "S0: B[i] = A[{i64(add.i32(C[i], 1:i32))}]"),
    ],
)
def test_conversions_are_explicit_and_literals_take_their_neighbours_type(
    value: str, params: str, expected: str
) -> None:
    assert elementwise(value, params) == expected


@pytest.mark.parametrize(
    ("op", "value", "params", "expected"),
    [
        ("+=", "A[i]", "A: f16[N], B: f32[N]", "S0: B[i] add= f32(A[i])"),
        ("-=", "A[i]", "A: f32[N], B: f32[N]", "S0: B[i] add= neg.f32(A[i])"),
        ("+=", "A[i]", "A: i8[N], B: i8[N]", "S0: B[i] add= i32(A[i])"),
        ("+=", "A[i]", "A: f64[N], B: f32[N]", "S0: B[i] add= A[i]"),
        ("*=", "2", "B: f16[N]", "S0: B[i] mul= 2.0:f32"),
        ("max=", "A[i]", "A: i32[N], B: i64[N]", "S0: B[i] max= i64(A[i])"),
        ("min=", "A[i]", "A: i8[N], B: i8[N]", "S0: B[i] min= i32(A[i])"),
        ("max=", "i8(A[i])", "A: i32[N], B: i8[N]", "S0: B[i] max= i32(i8(A[i]))"),
        ("max=", "-7", "B: i8[N]", "S0: B[i] max= i32(-7:i8)"),
        ("=", "max(B[i], A[i])", "A: f32[N], B: f32[N]", "S0: B[i] max= A[i]"),
        ("=", "min(A[i], B[i])", "A: f32[N], B: f32[N]", "S0: B[i] min= A[i]"),
        ("=", "max(B[i + 1], A[i])", "A: f32[N], B: f32[N]", "S0: B[i] = max.f32(B[i + 1], A[i])"),
        ("=", "B[i] + A[i]", "A: f32[N], B: f32[N]", "S0: B[i] = add.f32(B[i], A[i])"),
    ],
)
def test_updates_are_computed_in_the_common_type(op: str, value: str, params: str, expected: str) -> None:
    assert elementwise(value, params, op=op) == expected


@pytest.mark.parametrize(
    ("value", "params"),
    [
        ("A[i]", "A: i32[N], B: f32[N]"),
        ("A[i]", "A: f32[N], B: i32[N]"),
        ("A[i]", "A: i64[N], B: i32[N]"),
        ("A[i] + i16(1)", "A: i8[N], B: i8[N]"),
        ("A[i] + 1", "A: u32[N], B: i32[N]"),
        ("fma(A[i], A[i], C[i])", "A: u8[N], B: u32[N], C: i32[N]"),
        ("A[i] + C[i]", "A: u32[N], B: i64[N], C: i64[N]"),
        ("A[i]", "A: bool[N], B: i32[N]"),
        ("A[i] + true", "A: f32[N], B: f32[N]"),
        ("i", "B: f32[N]"),
        ("i", "B: i32[N]"),
        ("4294967296", "B: u32[N]"),
        ("-1", "B: u8[N]"),
        ("1.0", "B: i64[N]"),
        ("true", "B: f32[N]"),
        ("1", "B: bool[N]"),
        ("exp(A[i])", "A: i32[N], B: f32[N]"),
        ("-A[i]", "A: bool[N], B: bool[N]"),
    ],
)
def test_what_does_not_mix_or_narrows_needs_a_cast(value: str, params: str) -> None:
    found = refused(f"kernel f({params}) {{ par N i {{ B[i] = {value} }} }}")
    assert [code for code, _ in found] == ["E0204"]


@pytest.mark.parametrize(
    ("value", "bound", "message", "cure"),
    [
        ("bitand(1, 3)", "f32", "`bitand` is for integers, and f32 is wanted here", "f32(bitand(1, 3))"),
        ("A[i] + 7 % 4", "f32", "`%` is for integers, and f32 is wanted here", "A[i] + f32(7 % 4)"),
        ("select(i < 2, shl(1, 2), 3)", "f16", "`shl` is for integers, and f32 is wanted here", "f16(shl(1, 2))"),
        ("exp(1)", "i32", "`exp` is for floats, and i32 is wanted here", "i32(exp(1))"),
        ("1 + floor(2)", "i8", "`floor` is for floats, and i32 is wanted here", "i8(1 + i32(floor(2)))"),
        ("sqrt(bitand(1, 3))", "f32", "`bitand` is for integers, and f32 is wanted here", "sqrt(f32(bitand(1, 3)))"),
    ],
)
def test_an_operation_on_literals_stands_where_its_kind_of_type_is_wanted(
    value: str, bound: str, message: str, cure: str
) -> None:
    def text(right: str) -> str:
        return f"kernel f(A: f32[N], B: {bound}[N]) {{ par N i {{ B[i] = {right} }} }}"

    assert ("E0204", message) in refused(text(value))
    assert core(text(cure))


@pytest.mark.parametrize("value", ["A[i] * 3", "C[i]", "200", "maximum M k { A[i] + A[k] }"])
def test_max_and_min_of_a_value_that_wraps_need_a_cast(value: str) -> None:
    found = refused(f"kernel f(A: i8[N], C: i32[N], B: i8[N]) {{ par N i {{ B[i] max= {value} }} }}")
    assert [code for code, _ in found] == ["E0204"]


# ---- conditions


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


# ---- views and functions


def test_views_compose_into_subscripts() -> None:
    text = """
    kernel f(A: f32[M, N], B: f32[M]) {
        par M / 4 i {
            let tile = A[4 * i:4, 8:16]
            let row = tile[2, 1:3]
            B[i] = row[i % 3]
        }
    }
    """
    assert lines(text)[-1] == "S0: B[i] = A[4 * i + 2, 9 + i % 3]"


def test_a_gathered_slice_adds_the_subscript_to_the_gather() -> None:
    text = "kernel f(A: f32[N, K], t: i32[M], B: f32[M]) { par M i { let r = A[t[i], 0:K]; B[i] = r[i] } }"
    assert lines(text)[-1] == "S0: B[i] = A[{i64(t[i])}, i]"


def test_a_function_is_inlined_with_its_types_and_sizes_and_keeps_both_spans() -> None:
    text = """
    fn scale(alpha: T, in x: T[n], out y: T[n]) { par n i { y[i] = alpha * x[i] } }
    kernel f(A: f16[M, N], B: f16[M, N]) { par M i { scale(2, A[i, 0:N], B[i, 0:N]) } }
    """
    assert lines(text)[2:] == ["par i_1: N (band 2)", "S0: B[i, i_1] = f16(mul.f32(2.0:f32, f32(A[i, i_1])))"]
    (kernel,) = core(text)
    (outer,) = kernel.body
    assert isinstance(outer, ast.Par)
    (inner,) = outer.body
    assert isinstance(inner, ast.Par)
    assert [span.text for span in inner.call_spans] == ["scale(2, A[i, 0:N], B[i, 0:N])"]
    assert inner.span.text.startswith("n i")


def test_a_pure_function_is_an_expression_and_may_stand_in_an_arm_of_select() -> None:
    assert (
        elementwise("select(i > 0, relu(A[i - 1]), 0.0)")
        == "S0: B[i] = select(i > 0, max.f32(A[i - 1], 0.0:f32), 0.0:f32)"
    )


def test_an_argument_that_is_used_twice_is_computed_once() -> None:
    text = "kernel f(A: f32[N]) { par N i { A[i] = silu(A[i] + 1.0) } }"
    assert lines(text)[2:] == [
        "new x: f32",
        "S0: x = add.f32(A[i], 1.0:f32)",
        "S1: A[i] = mul.f32(x, sigmoid.f32(x))",
    ]


def test_a_function_may_return_a_value_that_its_statements_compute() -> None:
    text = """
    fn dot(a: T[n], b: T[n]): f32 { new s: f32; s = 0.0; seq n i { s += a[i] * b[i] } return s }
    kernel f(A: f16[M, K], C: f32[M]) { par M i { C[i] = dot(A[i, 0:K], A[i, 0:K]) } }
    """
    assert lines(text)[-3:] == [
        "new dot: f32",
        "S2: dot = s",
        "S3: C[i] = dot",
    ]


def test_a_slice_is_bound_to_the_array_that_a_function_returns() -> None:
    text = """
    fn twice(a: f32[n]): f32[n] { new r: f32[n]; par n i { r[i] = a[i] * 2.0 } return r }
    kernel f(A: f32[N], B: f32[N]) { par N / 16 i { B[16 * i:16] = twice(A[16 * i:16]) } }
    """
    assert lines(text)[-2:] == ["par e: 16 (band 3)", "S1: B[16 * i + e] = r[e]"]


def test_an_extent_that_only_sizes_decide_becomes_a_fact() -> None:
    text = """
    fn g(a: f32[16], out b: f32[16]) { par 16 i { b[i] = a[i] } }
    kernel f(A: f32[N], B: f32[16]) { g(A, B) }
    """
    assert lines(text)[0] == "kernel f(A: f32[N], B: f32[16]) sizes N where N == 16"


def test_an_element_is_passed_by_reference_where_the_function_writes() -> None:
    text = """
    fn bump(inout x: i32) { x += 1 }
    kernel f(A: i32[N]) { par N i { bump(A[i]) } }
    """
    assert lines(text)[-1] == "S0: A[i] add= 1:i32"


def test_a_library_function_may_be_replaced_by_the_programs_own() -> None:
    text = "fn relu(x: f32) { return x + 1.0 }\nkernel f(A: f32[N]) { par N i { A[i] = relu(A[i]) } }"
    assert lines(text)[-1] == "S0: A[i] = add.f32(A[i], 1.0:f32)"


def test_every_library_function_checks_on_every_float_type() -> None:
    calls = {"relu": 1, "silu": 1, "gelu": 1, "gelu_tanh": 1, "softplus": 1, "elu": 1, "leaky_relu": 2, "clamp": 3}
    for name, arity in calls.items():
        for dtype in ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"):
            args = ", ".join(["A[i]"] * arity)
            core(f"kernel f(A: {dtype}[N]) {{ par N i {{ A[i] = {name}({args}) }} }}")


def test_a_reduction_that_reads_its_target_goes_through_a_local() -> None:
    text = "kernel f(A: f32[N]) { par N i { A[i] = sum N k { A[k] } } }"
    assert lines(text)[2:] == ["new sum: f32", "S0: sum = 0.0:f32", "seq k: N", "S1: sum add= A[k]", "S2: A[i] = sum"]


def test_a_reduction_over_several_dims_nests_and_starts_from_the_types_least_value() -> None:
    text = "kernel f(A: i32[M, N], B: i32[1]) { B[0] = maximum M i, N j { A[i, j] } }"
    assert lines(text)[1:] == ["S0: B[0] = -2147483648:i32", "seq i: M", "seq j: N", "S1: B[0] max= A[i, j]"]


def test_an_accumulated_reduction_keeps_what_was_there() -> None:
    text = "kernel f(A: f32[N], B: f32[1]) { B[0] += sum N k { A[k] } }"
    assert lines(text)[1:] == ["seq k: N", "S0: B[0] add= A[k]"]


# ---- hardware


def test_std_mma_is_an_intrinsic_with_both_bodies() -> None:
    text = "import std.mma\nkernel f(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]) { mma_m16n8k16(A, B, C) }"
    found = lines(text)
    assert found[1] == "intrinsic mma_m16n8k16 #ptx(7, 0) #sm(80) reference"
    assert "S1: ra[e] = A[lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8]" in found
    assert "fully par lane: 32 (band 2) #align(32) #block" in found


def test_a_collective_call_from_inside_a_fully_par_is_marked() -> None:
    text = """
    import std.mma
    kernel f(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]) {
        fully par 32 |l| #align(32) #block { mma_m16n8k16(A, B, C) }
    }
    """
    assert any("#collective" in line for line in lines(text))


def test_every_module_of_std_checks() -> None:
    for path in sorted(STD.glob("*.tex")):
        check(parse(SourceText(path.name, path.read_text(encoding="utf-8"))), folder=STD)


@pytest.mark.parametrize("member", ["a", "b", "c"])
def test_a_fragment_layout_is_a_bijection_onto_its_tile(member: str) -> None:
    from texpr.grammar.fragments import FRAGMENTS

    fragment = FRAGMENTS["mma16816"][member]
    cells = set()
    for lane in range(32):
        for register in range(fragment.registers):
            row, column = fragment.place(ast.IndexConst(value=lane), ast.IndexConst(value=register))
            assert isinstance(row, ast.IndexConst) and isinstance(column, ast.IndexConst)
            cells.add((row.value, column.value))
    assert cells == {(r, c) for r in range(fragment.rows) for c in range(fragment.columns)}


# ---- modules


def test_an_import_is_looked_up_under_the_files_own_folder(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ops.tex").write_text(
        "size W = 3\nfn triple(x: T) { return x * W0(x) }\nfn W0(x: T) { return 3.0 }\n"
    )
    text = "import lib.ops\nkernel f(A: f32[N]) { par N i { A[i] = triple(A[i]) } }"
    assert lines(text, folder=tmp_path)[-1] == "S0: A[i] = mul.f32(A[i], 3.0:f32)"


def test_an_import_that_leaves_the_folder_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.tex").write_text("fn g(x: f32) { return x }\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "lib.tex").symlink_to(tmp_path / "outside.tex")
    found = refused("import lib\nkernel f(A: f32[N]) { par N i { A[i] = 0.0 } }", folder=tmp_path / "home")
    assert found == [("E0210", "`lib` leads out of the program's folder")]


def test_modules_that_import_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tex").write_text("import b\nfn fa(x: f32) { return x }\n")
    (tmp_path / "b.tex").write_text("import a\nfn fb(x: f32) { return x }\n")
    found = refused("import a\nkernel f(A: f32[N]) { par N i { A[i] = fa(A[i]) } }", folder=tmp_path)
    assert found == [("E0210", "`a` imports itself")]


def test_a_text_without_a_folder_imports_only_std() -> None:
    assert refused("import lib.ops\npar N i { A[i] = 0.0 }")[0][0] == "E0210"


# ---- limits


def test_the_nodes_of_a_kernel_are_counted_after_inlining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MAX_NODES", 2000)
    calls = "".join(f"fn g{i}(x: f32[n], out y: f32[n]) {{ g{i + 1}(x, y); g{i + 1}(x, y) }}\n" for i in range(12))
    text = (
        calls
        + "fn g12(x: f32[n], out y: f32[n]) { par n i { y[i] = x[i] } }\nkernel k(A: f32[N], B: f32[N]) { g0(A, B) }"
    )
    assert refused(text) == [("E0103", "the kernel has more than 2000 nodes after inlining")]


@pytest.mark.parametrize(
    "text",
    [
        "par N i {\n" + "".join(f"let a{k} = min(a{k - 1}, a{k - 1} + 1)\n" for k in range(1, 60)) + "A[a59] = 0.0 }",
        "fn d(x: T) { return x * x }\nkernel f(A: f32[N]) { par N i { A[i] = select(i > 0, "
        + "d(" * 60 + "A[i] + 1.0" + ")" * 60 + ", 0.0) } }",
        "kernel f(A: f32[N]) { par N i {\nlet c0 = i > 0\n"
        + "".join(f"let c{k} = c{k - 1} and not c{k - 1}\n" for k in range(1, 60)) + "if c59 { A[i] = 0.0 } } }",
        "kernel f(A: i32[N]) { par N i {\nlet v0 = A[0:4]\n"
        + "".join(f"let v{k} = A[v{k - 1}[0] + v{k - 1}[1]:4]\n" for k in range(1, 40)) + "A[i] = v39[0] } }",
    ],
)  # fmt: skip
def test_what_doubles_in_each_step_is_refused_by_count(text: str) -> None:
    text = text.replace("a0", "i")
    found = refused(text)
    assert [code for code, _ in found] == ["E0103"]


def test_a_kernel_is_found_by_its_name() -> None:
    module = parse(SourceText("t.tex", "kernel f(A: f32[N]) { par N i { A[i] = 0.0 } }"))
    assert check_kernel(module, "f").name == "f"
    with pytest.raises(TExprError, match="has no kernel `g`"):
        check_kernel(module, "g")


def test_all_findings_come_at_once_in_text_order_and_each_unknown_name_once() -> None:
    text = "kernel f(A: f32[N]) {\n par N i {\n A[i] = x\n A[i] = x + y\n A[i, i] = 0.0\n A[i] = y\n }\n}"
    assert [code for code, _ in refused(text)] == ["E0201", "E0203", "E0201"]
