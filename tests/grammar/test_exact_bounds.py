"""What the float64 interpreter calls exact is exact: a bound of 0 holds bit by bit, in every order of a sum."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import texpr
from texpr.grammar import numerics
from texpr.grammar.ast import Fn
from texpr.grammar.interpret.bound import apply_float, exact, round_to
from texpr.grammar.interpret.loops import running_sums
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.types import ELEMENT_TYPES, F32, F64

FEW_BITS = st.builds(lambda whole, scale: float(np.ldexp(whole, scale)), st.integers(-4096, 4096), st.integers(-12, 4))
ANY = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)
ARITY = {Fn.ADD: 2, Fn.SUB: 2, Fn.MUL: 2, Fn.DIV: 2, Fn.SQRT: 1, Fn.FMA: 3}


@pytest.mark.parametrize("fn", ARITY)
@given(args=st.lists(FEW_BITS | ANY, min_size=3, max_size=3))
def test_an_operation_without_a_bound_rounds_nothing(fn: Fn, args: list[float]) -> None:
    if fn is Fn.SQRT:
        args = [abs(value) for value in args]
    operands = tuple(np.float32([value]) for value in args[: ARITY[fn]])
    wide = apply_float(fn, tuple(exact(value.astype(np.float64)) for value in operands), F32)
    if wide.bound[0] == 0 and np.isfinite(wide.value[0]):
        with np.errstate(all="ignore"):
            assert numerics.apply(fn, operands, F32)[0] == wide.value[0]


def test_short_operations_have_no_bound() -> None:
    three, quarter = exact(np.array([3.0])), exact(np.array([0.25]))
    for fn in (Fn.ADD, Fn.SUB, Fn.MUL, Fn.DIV):
        assert apply_float(fn, (three, quarter), F32).bound[0] == 0
    assert apply_float(Fn.DIV, (quarter, three), F32).bound[0] > 0
    assert apply_float(Fn.EXP, (quarter,), F32).bound[0] > 0
    assert round_to(three, ELEMENT_TYPES["f8e5m2"]).bound[0] == 0
    assert round_to(exact(np.array([4.5])), ELEMENT_TYPES["f8e5m2"]).bound[0] > 0


@pytest.mark.parametrize("stored", ["f64", "f32", "f16", "f8e4m3"])
@given(terms=st.lists(FEW_BITS, min_size=1, max_size=40), seed=st.integers(0, 99))
def test_a_sum_without_a_bound_is_the_same_in_every_order(stored: str, terms: Sequence[float], seed: int) -> None:
    text = f"kernel s(A: f32[N], S: {stored}[1]) {{ S[0] = 0.0 ; seq N i {{ S[0] += A[i] }} }}"
    values = np.array(terms, dtype=np.float32)
    done = interpret(texpr.parse(text).only.core(), {"A": values, "S": _zero(stored)}, float64=True)
    if done.bounds["S"][0] > 0:
        return
    dtype = ELEMENT_TYPES[stored]
    total = _zero(stored)[0]
    for value in np.random.default_rng(seed).permutation(values):
        wide = numerics.cast(np.asarray(total), dtype, F64) + np.float64(value)
        total = numerics.cast(np.float32(wide) if stored != "f64" else wide, F32 if stored != "f64" else F64, dtype)
    assert float(total) == done.outputs["S"][0]


def test_sums_of_short_numbers_have_no_bound_and_others_have_one() -> None:
    kernel = texpr.parse("kernel s(A: f32[N], S: f32[1]) { S[0] = sum N i { A[i] } }").only.core()
    for term, certain in ((0.125, True), (0.1, False), (2.0**23, False)):
        values = np.full(4096, term, np.float32)
        values[0] = 1.0
        bound = interpret(kernel, {"A": values, "S": _zero("f32")}, float64=True).bounds["S"][0]
        assert bool(bound == 0) is certain


def _zero(dtype: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    return np.zeros(1, dtype=numerics.storage(ELEMENT_TYPES[dtype]))


def test_a_running_sum_is_not_exact_because_its_own_order_is() -> None:
    """4 + 1 - 4 + 2**-22 is exact step by step; who adds 1 - 4 + 2**-22 first rounds."""
    kernel = texpr.parse("kernel k(X: f32[4], Y: f32[4]) { Y[0] = X[0]; seq 3 i { Y[i + 1] = Y[i] + X[i + 1] } }").only
    values = {"X": np.array([4.0, 1.0, -4.0, 2.0**-22], np.float32), "Y": np.zeros(4, np.float32)}
    bounds = interpret(kernel.core(), values, float64=True).bounds["Y"]
    assert bounds[0] == bounds[1] == 0.0 < 2.0**-23 < bounds[3]


@pytest.mark.parametrize(
    ("body", "carried"),
    [
        ("seq N i { Y[0] = Y[0] + X[i] }", True),
        ("seq N t { par N i { Y[i] = X[i] + Y[i] } }", True),
        ("seq N - 1 i { Y[i + 1] = Y[i] - X[i] }", True),
        ("new s: f32; s = 0.0; seq N i { s = s + X[i]; Y[i] = s }", True),
        ("seq N i #ordered { Y[0] = Y[0] + X[i] }", False),
        ("par N i { Y[i] = Y[i] + X[i] }", False),
        ("seq N i { Y[i] = Y[i] + X[i] }", False),
        ("seq N i { new s: f32; s = X[i]; s = s + X[i]; Y[i] = s }", False),
        ("seq N i { Y[0] = Y[0] + Y[i] }", False),
        ("seq N i { Y[0] = X[i] - Y[0] }", False),
        ("seq N i { Y[0] = Y[0] * X[i] }", False),
    ],
)
def test_a_sum_is_running_where_a_seq_hands_it_on(body: str, carried: bool) -> None:
    kernel = texpr.parse(f"kernel k(X: f32[N], inout Y: f32[N]) where N >= 1 {{ {body} }}").only.core()
    assert bool(running_sums(kernel)) is carried


F8_SUM = "kernel s(A: f8e4m3[N], B: f8e5m2[N], S: f32[1]) { S[0] = 0.0 ; seq N i { S[0] += A[i] * B[i] } }"


def _portions(a: Sequence[float], b: Sequence[float], text: str = F8_SUM) -> tuple[float, float]:
    """The sum of products of f8 and its bound."""
    kernel = texpr.parse(text).only.core()
    given_ = {
        n: np.array(v, numerics.storage(ELEMENT_TYPES[t])) for n, v, t in (("A", a, "f8e4m3"), ("B", b, "f8e5m2"))
    }
    done = interpret(kernel, {**given_, "S": np.zeros(1, np.float32)}, float64=True)
    return float(done.outputs["S"][0]), float(done.bounds["S"][0])


def test_a_sum_of_f8_keeps_the_bits_of_a_portion() -> None:
    ones = [1.0] * 300
    assert _portions(ones, ones) == (300.0, 0.0)
    assert _portions([1.0, 2.0**-6], [1.0, 2.0**-7]) == (1 + 2.0**-13, 0.0)
    total, bound = _portions([1.0, 2.0**-6], [1.0, 2.0**-8])
    assert total == 1 + 2.0**-14 and 2.0**-14 <= bound <= 2.0**-12 * total * 1.01
    long = _portions([1.5] * 127 + [2.0**-6], [1.5] * 127 + [2.0**-14])
    longer = _portions([1.5] * 1270 + [2.0**-6], [1.5] * 1270 + [2.0**-14])
    assert longer[1] / longer[0] == pytest.approx(long[1] / long[0], rel=0.01)  # no portion has more than 128


def test_a_denormal_factor_counts_as_the_least_normal_number() -> None:
    denormal = _portions([2.0**-9, 2.0**-9], [2.0**15, 2.0**-2])  # of f8e4m3, whose least normal number is 2^-6
    assert denormal[1] >= 2.0**-13 * 2.0**9
    assert _portions([0.0, 2.0**-9], [2.0**15, 2.0**-2])[1] == 0  # what is 0 counts for nothing


@pytest.mark.parametrize(
    "term", ["f32(f64(A[i]) * f64(B[i]))", "A[i] * B[i] * 1.0", "A[i] * f32(bf16(f32(B[i]) + 0.0))", "A[i] * abs(B[i])"]
)
def test_other_terms_of_f8_are_added_as_others_are(term: str) -> None:
    a, b = [1.0, 2.0**-6], [1.0, 2.0**-14]
    assert _portions(a, b, F8_SUM.replace("A[i] * B[i]", term)) == (1 + 2.0**-20, 0.0)
