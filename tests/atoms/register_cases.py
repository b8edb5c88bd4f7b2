"""Registers of a thread: parts at every number, elements rounded two at once, the greatest of narrow floats, what is
picked of them, partials that are scaled together, functions that may be approximate."""

import math

import ml_dtypes
import numpy as np
from cases import HEADER, Case, Family, kernel

from texpr.grammar import numerics
from texpr.grammar.interpret.bound import FUNCTION_ERRORS
from texpr.grammar.operators import Fn
from texpr.grammar.types import F64

NARROW = {"tx::bf16": ml_dtypes.bfloat16, "tx::f16": np.float16}
PARTS = {"signed char": np.int8, "tx::bf16": np.uint16, "float": np.float32}
MOVED = """  const tx::Global<const {c}> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  tx::Reg<{c}, 24> r("r");
  TX_UNROLL
  for (int i = 0; i < 24; ++i) r.store(i, x.load(24 * tx::thread() + i));
  TX_UNROLL
  for (int i = 0; i < 5; ++i) {{
    const tx::Vector<{c}, {width}> v = tx::take<{width}>(r, 3 * i);
    TX_UNROLL
    for (int k = 0; k < {width}; ++k) y.store(({width} * tx::thread() + k) * 5 + i, v.get(k));
  }}
  tx::put(r, 5, tx::take<{width}>(r, 8));
  tx::fill(r, 16, tx::Wanted<{width}>(1, {width} - 1), r.load(23));
  TX_UNROLL
  for (int i = 0; i < 24; ++i) y.store(32 * {width} * 5 + 24 * tx::thread() + i, r.load(i));"""


def moved():
    """Parts at even and odd numbers, put back elsewhere, and filled at both ends."""
    cases, texts = [], []
    for c, kind in PARTS.items():
        width, symbol = (8, f"moved_{np.dtype(kind).itemsize}")
        texts.append(kernel(symbol, f"const {c}* X, {c}* Y", MOVED.format(c=c, width=width if c != "float" else 4)))
        width = width if c != "float" else 4
        x = (np.arange(32 * 24) * 37 % 251).astype(np.uint8).astype(kind).reshape(32, 24)
        parts = np.stack([x[:, 3 * i : 3 * i + width] for i in range(5)], axis=2)
        after = x.copy()
        after[:, 5 : 5 + width] = x[:, 8 : 8 + width]
        after[:, 16], after[:, 16 + width - 1] = after[:, 23], after[:, 23]
        want = np.concatenate([parts.reshape(-1), after.reshape(-1)])
        cases.append(Case(name=f"parts of {c}", symbol=symbol, inputs=(x,), want=(want,)))
    return cases, texts


ROUNDED = """  const tx::Global<const float> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  const tx::Global<float> z(Z, "Z");
  tx::Reg<float, 8> r("r");
  tx::put(r, 0, tx::load<4>(x, 8 * tx::thread()));
  tx::put(r, 4, tx::load<4>(x, 8 * tx::thread() + 4));
  tx::store(y, 8 * tx::thread(), tx::rounded<{c}, 8>(r, 0));
  tx::put(r, 0, tx::load<8>(y, 8 * tx::thread()));
  tx::store(z, 8 * tx::thread(), tx::take<4>(r, 0));
  tx::store(z, 8 * tx::thread() + 4, tx::take<4>(r, 4));"""


def odd_floats(count):
    """Ties of narrow floats, overflow, infinities, NaN, signed zeros, subnormals."""
    rng = np.random.default_rng(count)
    x = (rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count)).astype(np.float32)
    x[::3] = np.float32(1) + np.arange(len(x[::3]), dtype=np.float32) * np.float32(2.0**-9)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65520.0, 1e-41, 3.4e38, -3.4e38, 2.0**-25]
    x[5 : 5 + 7 * len(special) : 7] = special
    return x


def rounded():
    """Eight f32 as one vector of narrow floats, and back."""
    cases, texts = [], []
    x = odd_floats(256)
    for c, kind in NARROW.items():
        symbol = f"rounded_{c[4:]}"
        texts.append(kernel(symbol, f"const float* X, {c}* Y, float* Z", ROUNDED.format(c=c)))
        with np.errstate(all="ignore"):
            y = x.astype(kind)
        cases.append(Case(name=f"rounded to {c}", symbol=symbol, inputs=(x,), want=(y, y.astype(np.float32))))
    return cases, texts


CHOSEN = """  const tx::Global<const {c}> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  tx::Reg<{c}, 8> r("r");
  tx::put(r, 0, tx::load<8>(x, 8 * tx::thread()));
  y.store(4 * tx::thread(), tx::fold<tx::Greatest<{c}>, 8>([&](int i) {{ return r.load(i); }}));
  y.store(4 * tx::thread() + 1, tx::fold<tx::Least<{c}>, 8>([&](int i) {{ return r.load(i); }}));
  y.store(4 * tx::thread() + 2, tx::fold<tx::Greatest<{c}>, 5>([&](int i) {{ return r.load(i); }}));
  y.store(4 * tx::thread() + 3, tx::reduce_lanes<tx::Least<{c}>, 4>(r.load(7)));"""


def chosen():
    """The greatest and the least of narrow floats: an even number of them, an odd one, over lanes."""
    cases, texts = [], []
    for c, kind in NARROW.items():
        symbol = f"chosen_{c[4:]}"
        texts.append(kernel(symbol, f"const {c}* X, {c}* Y", CHOSEN.format(c=c)))
        x = np.random.default_rng(3).normal(size=(32, 8)).astype(kind)
        x[1, 2], x[2, 7], x[3, :], x[4, 0], x[5, :], x[6, 3] = np.nan, np.nan, -np.inf, np.inf, np.inf, -np.inf
        x[9, 7] = np.nan
        wide = x.astype(np.float32)
        lanes = np.repeat(wide[:, 7].reshape(8, 4).min(axis=1), 4)
        want = np.stack([wide.max(axis=1), wide.min(axis=1), wide[:, :5].max(axis=1), lanes], axis=1)
        cases.append(Case(name=f"chosen of {c}", symbol=symbol, inputs=(x,), want=(want.astype(kind),)))
    return cases, texts


PICKED = """  const tx::Global<const {c}> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  const tx::Global<short> p(P, "P");
  tx::Reg<{c}, 32> r("r");
  tx::Reg<{c}, 8> best("best");
  tx::Reg<tx::i16, 8> at("at");
  TX_UNROLL
  for (int i = 0; i < 4; ++i) tx::put(r, 8 * i, tx::load<8>(x, 32 * tx::thread() + 8 * i));
  TX_UNROLL
  for (int i = 0; i < 8; ++i) {{
    best.store(i, tx::cast<{c}>(tx::{order}<float>::identity().value));
    at.store(i, -1);
  }}
  TX_UNROLL
  for (int i = 0; i < 4; ++i) tx::pick<tx::{order}<{c}>>(best, at, r, 8 * i, 32764 + i);
  tx::store(y, 8 * tx::thread(), tx::take<8>(best, 0));
  tx::store(p, 8 * tx::thread(), tx::take<8>(at, 0));"""
ORDERS = {
    "FirstGreatest": np.greater,
    "LastGreatest": np.greater_equal,
    "FirstLeast": np.less,
    "LastLeast": np.less_equal,
}


def picked():
    """Narrow floats picked two at once, with a number of 16 bits: NaN, ties, infinities, zeros of both signs and
    numbers too small for an exponent among them."""
    cases, texts = [], []
    for c, kind in NARROW.items():
        x = np.random.default_rng(7).integers(-2, 3, (32, 4, 8)).astype(kind)
        special = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, *(np.array([1, 0x8001], np.uint16).view(kind))], kind)
        drawn = np.random.default_rng(8).integers(0, 14, x.shape)
        x = np.where(drawn < len(special), special[np.minimum(drawn, len(special) - 1)], x).astype(kind)
        x[0], x[1], x[2] = np.nan, np.inf, -np.inf
        for order, better in ORDERS.items():
            symbol = f"picked_{c[4:]}_{order}"
            texts.append(kernel(symbol, f"const {c}* X, {c}* Y, short* P", PICKED.format(c=c, order=order)))
            best = np.full((32, 8), -np.inf if "Greatest" in order else np.inf, kind)
            at = np.full((32, 8), -1, np.int16)
            for i in range(4):
                taken = better(x[:, i].astype(np.float32), best.astype(np.float32))
                best, at = np.where(taken, x[:, i], best), np.where(taken, np.int16(32764 + i), at)
            bits = best.view(np.uint16).reshape(-1)
            cases.append(Case(name=f"{order} of {c}", symbol=symbol, inputs=(x,), want=(bits, at.reshape(-1))))
    return cases, texts


SCALED = """  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  using M = tx::ScaledSum<float>;
  const M::Partial all = tx::fold<M, 8>([&](int i) { return M::lift(x.load(8 * tx::thread() + i)); });
  y.store(2 * tx::thread(), M::result(all).greatest);
  y.store(2 * tx::thread() + 1, M::result(all).sum);"""


def scaled():
    """Elements whose sum is scaled by the greatest of them all, with infinities and NaN."""
    x = np.random.default_rng(4).normal(0, 20, (32, 8)).astype(np.float32)
    x[1, 2], x[2, :], x[3, 1], x[4, :7], x[5, :] = np.nan, -np.inf, np.inf, -np.inf, 80.0
    with np.errstate(all="ignore"):
        greatest = x.max(axis=1)
        total = np.exp(x.astype(np.float64) - greatest[:, None]).sum(axis=1)
    want = np.stack([greatest, total], axis=1).astype(np.float32)
    within = np.where(np.isfinite(want), 1e-5, 0.0)
    case = Case(name="scaled sums of 8", symbol="scaled", inputs=(x,), want=(want,), within=(within,))
    return [case], [kernel("scaled", "const float* X, float* Y", SCALED)]


FUNCTIONS = """  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  const tx::Global<float> z(Z, "Z");
  const tx::Global<float> v(V, "V");
  const tx::Global<float> w(W, "W");
  const tx::Global<float> s(S, "S");
  const tx::Global<float> p(P, "P");
  const tx::Global<float> d(D, "D");
  for (int i = tx::thread(); i < n; i += 32) {
    y(i) = tx::fast_exp(x(i));
    z(i) = tx::fast_exp2(x(i));
    v(i) = tx::fast_erf(x(i));
    p(i) = tx::fast_normcdf(x(i));
    w(i) = tx::fast_div(x(i), x(n - 1 - i));
    s(i) = tx::fast_sigmoid(x(i));
    d(i) = tx::fast_div_whole(x(i), tx::cast<tx::f32>(tx::i64(i) * i * (i - 5000)));
  }"""


def hastened():
    """What `#fast` permits: the faster functions within the table of docs/numerics.md."""
    rng = np.random.default_rng(5)
    drawn = [rng.uniform(-104, 88.5, 4000), rng.uniform(-150, 127.9, 4000), rng.normal(0, 1, 4000)]
    x = np.concatenate([*drawn, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    want, within = [], []
    erf = np.frompyfunc(math.erf, 1, 1)
    number = np.arange(len(x), dtype=np.int64)
    whole = (number**2 * (number - 5000)).astype(np.float32).astype(np.float64)  # 0 and less, too
    for name, fn in (
        (Fn.EXP, np.exp),
        (Fn.EXP2, np.exp2),
        (Fn.ERF, lambda x: erf(x).astype(np.float64)),
        (Fn.DIV, lambda x: x / x[::-1]),
        (Fn.SIGMOID, lambda x: 1 / (1 + np.exp(-x))),
        (Fn.NORMCDF, lambda x: numerics.apply(Fn.NORMCDF, (x,), F64)),
        (Fn.DIV, lambda x: x / whole),
    ):
        with np.errstate(all="ignore"):
            exact, error = fn(x.astype(np.float64)), FUNCTION_ERRORS[name]
            finite = np.where(np.isfinite(x), x, 0)  # at infinities the error is that of a constant
            ulps = error.fast_ulps + error.fast_per_argument * np.abs(finite)
            near = ulps * np.maximum(np.abs(exact) * 2.0**-23, 2.0**-149) + error.fast_absolute
            want.append(exact.astype(np.float32))
        within.append(np.where(np.isfinite(want[-1]), near, 0.0))
    text = kernel(
        "hastened",
        "const float* X, float* Y, float* Z, float* V, float* W, float* S, float* P, float* D, long long n",
        FUNCTIONS,
    )
    case = Case(
        name="fast functions", symbol="hastened", inputs=(x,), want=tuple(want), within=tuple(within), sizes=(len(x),)
    )
    return [case], [text]


BELOW = """  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  for (int i = tx::thread(); i < n; i += 32) y(i) = tx::exp_below(x(i));"""


def below():
    """The exponential of what is 0 at most, within 3 units in the last place; 0 in place of what would be denormal."""
    drawn = np.random.default_rng(7)
    x = np.concatenate(
        [drawn.uniform(-110, 0, 8000), -(10 ** drawn.uniform(-30, 38, 4000)), [0.0, -0.0, -np.inf, np.nan]]
    )
    x = x.astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    ulps = 3 * np.spacing(exact.astype(np.float32)).astype(np.float64)  # 2.54 on an H200 over all f32
    within = np.where(np.isnan(x), 0.0, np.where(exact < 2.0**-125, 2.0**-126, ulps))
    case = Case(
        name="exp below",
        symbol="below",
        inputs=(x,),
        want=(exact.astype(np.float32),),
        within=(within,),
        sizes=(len(x),),
    )
    return [case], [kernel("below", "const float* X, float* Y, long long n", BELOW)]


LOGARITHMS = """  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  const tx::Global<float> z(Z, "Z");
  const tx::Global<float> v(V, "V");
  for (int i = tx::thread(); i < n; i += 32) {
    y(i) = tx::log(x(i));
    z(i) = tx::xlogy(x(n - 1 - i), x(i));
    v(i) = tx::fast_xlogy(x(n - 1 - i), x(i));
  }"""


def logarithms():
    """Those of all numbers, near 1, tiny and special, within the table of docs/numerics.md."""
    rng = np.random.default_rng(6)
    drawn = [np.exp(rng.uniform(-103, 88, 4000)), 1 + rng.normal(0, 1e-3, 4000), 1 + rng.normal(0, 1e-6, 500)]
    x = np.concatenate([*drawn, [0.0, -0.0, 1.0, -1.0, 1e-45, np.inf, -np.inf, np.nan]]).astype(np.float32)
    rng.shuffle(x)
    y, factor = x.astype(np.float64), x[::-1].astype(np.float64)
    want, within = [], []
    for exact, error, fast in (
        (np.log, FUNCTION_ERRORS[Fn.LOG], False),
        (lambda y: np.where((factor == 0) & ~np.isnan(y), 0.0, factor * np.log(y)), FUNCTION_ERRORS[Fn.XLOGY], False),
        (lambda y: np.where((factor == 0) & ~np.isnan(y), 0.0, factor * np.log(y)), FUNCTION_ERRORS[Fn.XLOGY], True),
    ):
        with np.errstate(all="ignore"):
            found = exact(y)
            ulps = error.fast_ulps if fast else error.f32_ulps
            near = ulps * np.maximum(np.abs(found) * 2.0**-23, 2.0**-149)
            near += error.fast_absolute_per_argument * np.abs(factor) if fast else 0.0
            want.append(found.astype(np.float32))
        within.append(np.where(np.isfinite(want[-1]), near, 0.0))
    text = kernel("logarithms", "const float* X, float* Y, float* Z, float* V, long long n", LOGARITHMS)
    case = Case(
        name="logarithms", symbol="logarithms", inputs=(x,), want=tuple(want), within=tuple(within), sizes=(len(x),)
    )
    return [case], [text]


def family():
    cases, texts = [], [HEADER, '#include "texpr/folds.cuh"\n#include "texpr/wanted.cuh"\n']
    every = (moved(), rounded(), chosen(), picked(), scaled(), hastened(), below(), logarithms())
    for more_cases, more_texts in every:
        cases += more_cases
        texts += more_texts
    return Family(name="registers", cases=cases, texts={"sm_80": "".join(texts)})
