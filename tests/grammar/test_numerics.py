"""The NumPy semantics of every operator, conversion and accumulation."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from texpr.grammar import numerics
from texpr.grammar.ast import AccOp, Fn
from texpr.grammar.interpret import bound as error_bound
from texpr.grammar.types import BF16, BOOL, ELEMENT_TYPES, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U32

NARROW = (F16, BF16, F8E4M3, F8E5M2)


def one(value, source, target):
    return numerics.cast(numerics.constant(value, source), source, target).item()


def all_finite(dtype):
    values = np.arange(1 << dtype.bits, dtype=np.uint8 if dtype.bits == 8 else np.uint16).view(numerics.storage(dtype))
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    return np.unique(wide[np.isfinite(wide)])


def nearest(value, candidates):
    """The candidate nearest to a float, ties to the even neighbour (by position among non-negative candidates)."""
    if value < 0:
        return -nearest(-value, candidates)
    positive = candidates[candidates >= 0]
    right = int(np.searchsorted(positive, value))
    if right == positive.size:
        return float(positive[-1])
    if right == 0:
        return 0.0
    low, high = Fraction(float(positive[right - 1])), Fraction(float(positive[right]))
    middle = (low + high) / 2
    exact = Fraction(value)
    if exact == middle:
        return float(low if (right - 1) % 2 == 0 else high)
    return float(low if exact < middle else high)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@settings(max_examples=300)
@given(data=st.data())
def test_a_float64_is_rounded_once_to_the_nearest_narrow_value(dtype, data):
    candidates = all_finite(dtype)
    near = data.draw(st.integers(0, candidates.size - 2))
    middle = (candidates[near] + candidates[near + 1]) / 2
    value = data.draw(
        st.sampled_from([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), candidates[near]])
    )
    assert float(numerics.cast(np.asarray(value), F64, dtype)) == nearest(float(value), candidates)


@pytest.mark.parametrize("dtype", (F16, BF16), ids=str)
@settings(max_examples=200)
@given(value=st.integers(-(2**62), 2**62) | st.integers(-70_000, 70_000))
def test_an_i64_is_rounded_once_to_a_narrow_float(dtype, value):
    got = float(numerics.cast(np.asarray(value, dtype=np.int64), I64, dtype))
    overflows = dtype == F16 and abs(value) >= 65_520  # half a step beyond the greatest, which is odd
    assert got == (math.copysign(math.inf, value) if overflows else nearest(value, all_finite(dtype)))


@pytest.mark.parametrize("dtype", (F8E4M3, F8E5M2), ids=str)
def test_conversion_to_an_eight_bit_float_saturates_and_keeps_nan(dtype):
    top = numerics.greatest(dtype)
    assert [one(v, F32, dtype) for v in (1e30, -1e30, math.inf, -math.inf)] == [top, -top, top, -top]
    assert math.isnan(one(math.nan, F32, dtype))


def test_f16_and_bf16_overflow_to_infinity_where_rounding_says():
    assert one(65519.0, F32, F16) == 65504.0
    assert one(65520.0, F32, F16) == math.inf
    assert one(3.4e38, F32, BF16) == math.inf


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (3.9, I32, 3),
        (-3.9, I32, -3),
        (math.nan, I32, 0),
        (math.inf, I64, 2**63 - 1),
        (-math.inf, I64, -(2**63)),
        (1e20, I32, 2**31 - 1),
        (300.0, I8, 127),
        (-5.0, U8, 0),
        (-0.5, U32, 0),
        (4294967295.0, U32, 4294967295),
        (9.2e18, I64, 9200000000000000000),
    ],
)
def test_a_float_becomes_an_integer_by_truncation_and_saturation(value, target, expected):
    assert one(value, F64, target) == expected


def test_integers_wrap_when_they_narrow():
    assert one(300, I32, U8) == 44
    assert one(200, I32, I8) == -56
    assert one(-1, I32, U32) == 2**32 - 1
    assert one(2**32 + 5, I64, I32) == 5


def test_bool_is_zero_or_one_and_anything_but_zero_is_true():
    assert one(True, BOOL, F32) == 1.0
    assert one(True, BOOL, I8) == 1
    assert [one(v, F32, BOOL) for v in (0.0, -0.0, 1e-45, math.nan)] == [False, False, True, True]


def test_every_pair_of_types_converts_without_a_warning():
    for source in ELEMENT_TYPES.values():
        for target in ELEMENT_TYPES.values():
            values = np.asarray([0, 1, 3]).astype(numerics.storage(source))
            assert numerics.cast(values, source, target).dtype == numerics.storage(target)


def binary(fn, left, right, dtype):
    return numerics.apply(fn, (numerics.constant(left, dtype), numerics.constant(right, dtype)), dtype).item()


@pytest.mark.parametrize("dtype", (I8, I16, I32, I64, U8, U32), ids=str)
@settings(max_examples=60)
@given(data=st.data())
def test_integer_arithmetic_wraps_and_division_floors(dtype, data):
    low, high = dtype.integer_range
    numbers = st.sampled_from([low, low + 1, 0, 1, high]) | st.integers(low, high)
    left, right = data.draw(numbers), data.draw(numbers)

    def wrap(value):
        return (value - low) % (1 << dtype.bits) + low

    assert binary(Fn.ADD, left, right, dtype) == wrap(left + right)
    assert binary(Fn.SUB, left, right, dtype) == wrap(left - right)
    assert binary(Fn.MUL, left, right, dtype) == wrap(left * right)
    assert binary(Fn.FLOORDIV, left, right, dtype) == (wrap(left // right) if right else 0)
    assert binary(Fn.MOD, left, right, dtype) == (left % right if right else 0)
    assert numerics.apply(Fn.NEG, (numerics.constant(left, dtype),), dtype).item() == wrap(-left)
    assert numerics.apply(Fn.ABS, (numerics.constant(left, dtype),), dtype).item() == wrap(abs(left))


@pytest.mark.parametrize("dtype", (I32, I64, U32), ids=str)
@settings(max_examples=60)
@given(data=st.data())
def test_shift_counts_outside_the_type_shift_everything_out(dtype, data):
    low, high = dtype.integer_range
    value, count = data.draw(st.integers(low, high)), data.draw(st.integers(max(low, -70), 70))
    inside = 0 <= count < dtype.bits
    left = ((value << count) - low) % (1 << dtype.bits) + low if inside else 0
    assert binary(Fn.SHL, value, count, dtype) == left
    assert binary(Fn.SHR, value, count, dtype) == (value >> count if inside else (-1 if value < 0 else 0))


def test_min_and_max_propagate_nan():
    for fn in (Fn.MIN, Fn.MAX):
        assert math.isnan(binary(fn, math.nan, 1.0, F32))
        assert math.isnan(binary(fn, 1.0, math.nan, F16))


def test_round_takes_ties_to_even():
    values = np.asarray([0.5, 1.5, 2.5, -0.5, -1.5], dtype=np.float32)
    assert numerics.apply(Fn.ROUND, (values,), F32).tolist() == [0.0, 2.0, 2.0, -0.0, -2.0]


@settings(max_examples=200)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_fma_rounds_once(values):
    exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
    for dtype, size in ((F32, 32), (F64, 64)):
        got = numerics.apply(Fn.FMA, tuple(numerics.constant(v, dtype) for v in values), dtype).item()
        if abs(exact) < numerics.greatest(F32) / 2:
            step = Fraction(float(np.spacing(numerics.storage(dtype).type(abs(got)))))
            assert abs(Fraction(got) - exact) <= step / 2, (got, size)


def test_pow_of_one_half_is_no_square_root_at_the_ends():
    for base in (np.asarray(-math.inf), np.asarray([-math.inf, -math.inf])):
        assert np.all(numerics.apply(Fn.POW, (base, np.asarray(0.5)), F64) == math.inf)
    assert binary(Fn.POW, 2.25, 0.5, F32) == 1.5


def test_erf_and_sigmoid_are_right_at_the_ends():
    x = np.asarray([-math.inf, -6.0, 0.0, 1.0, 800.0, math.inf, math.nan])
    assert numerics.apply(Fn.ERF, (x,), F64)[[0, 2, 4]].tolist() == [-1.0, 0.0, 1.0]
    assert numerics.apply(Fn.ERF, (x,), F64)[3] == math.erf(1.0)
    sigmoid = numerics.apply(Fn.SIGMOID, (-x,), F64)
    assert sigmoid[[0, 2, 5]].tolist() == [1.0, 0.5, 0.0]
    assert math.isnan(sigmoid[6])


def test_f32_functions_are_within_an_ulp_of_the_exact_value():
    x = np.linspace(0.01, 20, 1000, dtype=np.float32)
    for fn, reference in ((Fn.EXP, np.exp), (Fn.LOG, np.log), (Fn.TANH, np.tanh), (Fn.RSQRT, lambda v: 1 / np.sqrt(v))):
        exact = reference(x.astype(np.longdouble))
        got = numerics.apply(fn, (x,), F32)
        assert got.dtype == np.float32
        assert np.all(np.abs(got - exact) <= 0.51 * np.spacing(np.abs(got)))


def test_narrow_arithmetic_is_f32_rounded_once():
    a, b = (np.asarray(v, dtype=np.float16) for v in (2048.0, 1.0))
    assert numerics.apply(Fn.ADD, (a, b), F16).item() == 2048.0
    got = numerics.apply(Fn.MUL, (numerics.constant(448, F8E4M3), numerics.constant(2, F8E4M3)), F8E4M3)
    assert float(got) == 448.0


@pytest.mark.parametrize("dtype", ELEMENT_TYPES.values(), ids=str)
@pytest.mark.parametrize("op", AccOp, ids=str)
def test_the_identity_of_a_fold_changes_nothing(op, dtype):
    if dtype.is_bool and op in (AccOp.ADD, AccOp.MUL):
        return
    values = np.asarray([0, 1, 3]).astype(numerics.storage(dtype))
    identity = np.broadcast_to(numerics.identity(op, dtype), (3,))
    assert numerics.accumulate(op, identity, dtype, values, dtype).tolist() == values.tolist()


def test_an_accumulation_is_computed_in_the_values_type_and_rounded_to_the_buffers():
    small = numerics.constant(2048, F16)
    assert numerics.accumulate(AccOp.ADD, small, F16, numerics.constant(1.5, F32), F32).item() == 2050.0
    assert (
        numerics.accumulate(AccOp.ADD, numerics.constant(120, I8), I8, numerics.constant(10, I32), I32).item() == -126
    )


def test_constants_wrap_and_round():
    assert numerics.constant(2**31, I32).item() == -(2**31)
    assert numerics.constant(10**400, F32).item() == math.inf
    assert numerics.constant(0.1, F32).item() == struct.unpack("f", struct.pack("f", 0.1))[0]


def test_functions_near_zero_have_a_bound_relative_to_their_small_result() -> None:
    tiny = error_bound.exact(np.asarray(1e-6))
    for fn in (Fn.LOG1P, Fn.EXPM1):
        found = error_bound.apply_float(fn, (tiny,), F32)
        assert abs(found.value - 1e-6) < 1e-12
        assert 0 < found.bound < 1e-12
    product = error_bound.apply_float(
        Fn.XLOGY, (error_bound.exact(np.asarray(0.0)), error_bound.exact(np.asarray(0.0))), F32
    )
    assert (product.value, product.bound < 1e-40, product.undecided) == (0.0, True, False)
    nearly = error_bound.Bounded(np.asarray(0.0), np.asarray(1e-8), np.asarray(False))
    product = error_bound.apply_float(Fn.XLOGY, (nearly, error_bound.exact(np.asarray(0.5))), F32)
    assert 1e-9 < product.bound < 1e-7
    assert np.isnan(numerics.apply(Fn.XLOGY, (np.asarray(0.0), np.asarray(np.nan)), F64))


def test_the_normal_distribution_keeps_its_digits_where_it_is_tiny():
    x = np.asarray([-math.inf, 0.0, math.inf, math.nan, -1e300, 1e300])
    assert numerics.apply(Fn.NORMCDF, (x,), F64)[[0, 1, 2, 4, 5]].tolist() == [0.0, 0.5, 1.0, 0.0, 1.0]
    assert math.isnan(numerics.apply(Fn.NORMCDF, (x,), F64)[3])
    for at in (-3.3, -5.3, -10.1, -20.777, -37.3):  # the continued fraction of Mills' ratio
        ratio = Fraction(-at)
        for k in range(4000, 0, -1):
            ratio = -Fraction(at) + Fraction(k) / ratio.limit_denominator(1 << 200)
        square = Fraction(at) * Fraction(at) / 2
        density = math.exp(-float(square)) * (1 - float(square - Fraction(float(square)))) / math.sqrt(2 * math.pi)
        exact = density / float(ratio)
        assert abs(float(numerics.apply(Fn.NORMCDF, (np.asarray(at),), F64)) / exact - 1) < 8 * 2.0**-53
