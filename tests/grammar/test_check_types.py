"""Conversions are explicit in the core; what would mix or narrow types silently is refused with a cure."""

import pytest
from checked import core, elementwise, refused


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
        ("max=", "A[i] * 3", "A: i8[N], B: i8[N]", "S0: B[i] max= i32(i8(mul.i32(i32(A[i]), 3:i32)))"),
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


def test_a_maximum_that_wraps_is_no_update() -> None:
    got = elementwise("max(B[i], A[i] * 3)", "A: i8[N], B: i8[N]", op="=")
    assert got == "S0: B[i] = i8(max.i32(i32(B[i]), mul.i32(i32(A[i]), 3:i32)))"


@pytest.mark.parametrize("value", ["C[i]", "200", "A[i] + C[i]", "maximum N k { A[i] + C[k] }"])
def test_max_and_min_of_a_value_of_other_types_need_a_cast(value: str) -> None:
    found = refused(f"kernel f(A: i8[N], C: i32[N], B: i8[N]) {{ par N i {{ B[i] max= {value} }} }}")
    assert [code for code, _ in found] == ["E0204"]
