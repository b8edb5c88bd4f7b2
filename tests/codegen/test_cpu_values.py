"""Every operator and every conversion on the CPU, against the one definition in `texpr.grammar.numerics`."""

from functools import cache

import numpy as np
import pytest

import texpr
from texpr.grammar.ast import Fn
from texpr.grammar.numerics import apply, cast, storage
from texpr.grammar.types import BOOL, ELEMENT_TYPES, F32, F64, I32, I64, U32

pytestmark = pytest.mark.usefixtures("optimised_file")

FLOAT_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.DIV: "/"}
INTEGER_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.FLOORDIV: "/", Fn.MOD: "%"}
COMPARE = {Fn.EQ: "==", Fn.NE: "!=", Fn.LT: "<", Fn.LE: "<=", Fn.GT: ">", Fn.GE: ">="}
UNARY = (
    Fn.ABS,
    Fn.EXP,
    Fn.EXP2,
    Fn.LOG,
    Fn.LOG2,
    Fn.LOG1P,
    Fn.EXPM1,
    Fn.SQRT,
    Fn.RSQRT,
    Fn.TANH,
    Fn.SIGMOID,
    Fn.ERF,
    Fn.NORMCDF,
    Fn.SIN,
    Fn.COS,
)
ROUNDING = (Fn.FLOOR, Fn.CEIL, Fn.ROUND)
EXACT = {*FLOAT_INFIX, *ROUNDING, Fn.ABS, Fn.NEG, Fn.MIN, Fn.MAX, Fn.SQRT}


def samples(dtype):
    """Pairs of values: all pairs of the specials of a type, and random ones."""
    rng = np.random.default_rng(dtype.bits)
    kind = storage(dtype)
    if dtype.is_float:
        special = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            2.5,
            3.5,
            1e-40,
            6e-8,
            448.0,
            465.0,
            7e4,
            -3e38,
            1e300,
            np.inf,
            -np.inf,
            np.nan,
        ]
        with np.errstate(all="ignore"):
            special = np.array(special).astype(kind)
            more = (rng.standard_normal(200) * 10.0 ** rng.integers(-3, 4, 200)).astype(kind)
    elif dtype.is_bool:
        return np.array([False, False, True, True]), np.array([False, True, False, True])
    else:
        low, high = dtype.integer_range
        special = np.array([low, low + 1, max(low, -1), 0, 1, 2, 7, 31, 32, 63, high - 1, high], dtype=np.int64)
        special = special.astype(kind)
        more = rng.integers(low, high, 200, dtype=np.int64).astype(kind)
    left, right = np.meshgrid(special, special)
    return np.concatenate([left.ravel(), more]), np.concatenate([right.ravel(), more[::-1]])


def run(dtype, result, texts):
    """The values of expressions over a and b, one row for each text."""
    a, b = samples(dtype)
    lines = "".join(f"        Y[{row}, i] = {text}\n" for row, text in enumerate(texts))
    kernel = texpr.parse(
        f"kernel table(A: {dtype}[N], B: {dtype}[N], Y: {result}[R, N]) {{\n    par N i {{\n{lines}    }}\n}}\n"
    ).only
    out = np.zeros((len(texts), a.size), storage(result))
    memory = [np.require(x, requirements=["A", "C"]) for x in (a, b)]
    kernel.compile("cpu", R=len(texts))(*memory, out)
    return a, b, out


def same(got, want, what):
    nan = np.isnan(want) if want.dtype.kind == "f" else np.zeros(want.shape, bool)
    assert np.array_equal(got[~nan], want[~nan]), what
    if nan.any():
        assert np.isnan(got[nan]).all(), what


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_float_operators_are_exact_or_within_a_few_ulp(dtype):
    texts = {fn: f"A[i] {sign} B[i]" for fn, sign in FLOAT_INFIX.items()}
    texts |= {
        Fn.NEG: "-A[i]",
        Fn.MIN: "min(A[i], B[i])",
        Fn.MAX: "max(A[i], B[i])",
        Fn.POW: "pow(A[i], B[i])",
        Fn.XLOGY: "xlogy(A[i], B[i])",
    }
    texts |= {fn: f"{fn.value}(A[i])" for fn in (*UNARY, *ROUNDING)}
    a, b, out = run(dtype, dtype, list(texts.values()))
    for fn, got in zip(texts, out, strict=True):
        args = (a,) if fn in (*UNARY, *ROUNDING, Fn.NEG) else (a, b)
        want = apply(fn, args, dtype)
        if fn in EXACT:
            same(got, want, fn)
            continue
        finite = np.isfinite(want) & (np.abs(want) > np.finfo(want.dtype).tiny)
        near = finite & ((np.abs(a) < 1e6) if fn in (Fn.SIN, Fn.COS) else True)
        error = np.abs(got[near].astype(np.float64) - want[near]) / np.spacing(np.abs(want[near]))
        assert error.max() <= 8, (fn, error.max())
        same(np.isnan(got), np.isnan(want), fn)
        same(np.isinf(got), np.isinf(want), fn)


@pytest.mark.parametrize("dtype", [I32, I64, U32], ids=str)
def test_integer_operators_wrap_floor_and_shift_as_the_language_says(dtype):
    texts = {fn: f"A[i] {sign} B[i]" for fn, sign in INTEGER_INFIX.items()}
    texts |= {fn: f"{fn.value}(A[i], B[i])" for fn in (Fn.MIN, Fn.MAX, Fn.BITAND, Fn.BITOR, Fn.BITXOR)}
    texts |= {fn: f"{fn.value}(A[i], B[i])" for fn in (Fn.SHL, Fn.SHR)}
    texts |= {Fn.NEG: "-A[i]", Fn.ABS: "abs(A[i])"}
    a, b, out = run(dtype, dtype, list(texts.values()))
    for fn, got in zip(texts, out, strict=True):
        args = (a,) if fn in (Fn.NEG, Fn.ABS) else (a, b)
        same(got, apply(fn, args, dtype), fn)


@pytest.mark.parametrize("dtype", [F32, I32, I64, U32], ids=str)
def test_comparisons_are_false_on_nan_and_exact_elsewhere(dtype):
    a, b, out = run(dtype, BOOL, [f"A[i] {sign} B[i]" for sign in COMPARE.values()])
    for fn, got in zip(COMPARE, out, strict=True):
        same(got, apply(fn, (a, b), BOOL), fn)


TYPES = list(ELEMENT_TYPES.values())


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_conversions_round_once_saturate_and_wrap(source):
    a, _ = samples(source)
    targets = [t for t in TYPES if t != source]
    params = ", ".join(f"Y_{t}: {t}[N]" for t in targets)
    lines = "".join(f"        Y_{t}[i] = {t}(A[i])\n" for t in targets)
    text = f"kernel casts(A: {source}[N], {params}) {{\n    par N i {{\n{lines}    }}\n}}\n"
    outs = [np.zeros(a.size, storage(t)) for t in targets]
    texpr.parse(text).only.compile("cpu")(a, *outs)
    for target, got in zip(targets, outs, strict=True):
        want = cast(a, source, target)
        if target.is_float:
            with np.errstate(all="ignore"):
                got, want = got.astype(np.float64), want.astype(np.float64)
        same(got, want, f"{source} to {target}")


UNIQUE = """kernel scatter(idx: i32[N], X: f32[N], inout Y: f32[M]) {
    par N i {
        seq 2 k {
            Y[idx[i]] += X[i] #unique
        }
    }
}
"""


@cache
def scattering():
    return texpr.parse(UNIQUE).only.compile("cpu")


@pytest.mark.parametrize("n", [50, 30_000])
def test_a_broken_promise_of_unique_is_found_and_a_kept_one_is_not(every_core, n):
    kernel = scattering()
    idx = np.random.default_rng(0).permutation(n).astype(np.int32)
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    kernel(idx, x, y)
    assert np.array_equal(y[idx], 2 * x)
    idx[n // 2] = idx[n // 3]
    with pytest.raises(texpr.TExprError) as caught:
        kernel(idx, x, y)
    assert caught.value.diagnostics[0].code == "E0604"
    assert "#unique" in str(caught.value)


def test_nested_selects_keep_their_grouping():
    text = """kernel nested(A: f32[N], Y: f32[N], Z: f32[N]) {
    par N i {
        let inside = select(A[i] > 0.0, A[i] > 1.0, A[i] > -1.0)
        Y[i] = select(inside, select(A[i] > 2.0, 1.0, 2.0), select(A[i] < -2.0, 3.0, 4.0))
        Z[i] = select(select(A[i] > 0.0, A[i] > 1.0, A[i] > -1.0), select(A[i] > 2.0, 1.0, 2.0), 5.0)
    }
}
"""
    a = np.linspace(-3, 3, 25, dtype=np.float32)
    y, z = np.zeros_like(a), np.zeros_like(a)
    texpr.parse(text).only.compile("cpu")(a, y, z)
    outer = np.where(a > 0, a > 1, a > -1)
    assert np.array_equal(y, np.where(outer, np.where(a > 2, 1, 2), np.where(a < -2, 3, 4)))
    assert np.array_equal(z, np.where(outer, np.where(a > 2, 1, 2), 5))


@pytest.mark.parametrize("depth", [12, 21])
def test_loops_beyond_what_python_nests_are_refused_with_a_diagnostic(depth):
    opening = "".join(f"seq 1 k{level} {{ " for level in range(depth))
    body = f"{opening} Y[i] = A[i] {'}' * depth}"
    text = f"kernel deep(A: f32[N], Y: f32[N]) {{\n    par N i {{\n        {body}\n    }}\n}}\n"
    a, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    try:
        texpr.parse(text).only.compile("cpu")(a, y)
    except texpr.TExprError as refused:
        assert depth > 19
        assert refused.diagnostics[0].code in ("E0506", "E0307")
    else:
        assert np.array_equal(y, a)
