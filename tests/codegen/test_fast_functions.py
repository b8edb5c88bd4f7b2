"""The normal distribution and the exponential of `math.cuh` as the device has them, compiled here: over all bf16 and a
sample of all f32, against float64 within the table of docs/numerics.md."""

import ctypes
import re

import numpy as np
import pytest

from texpr.codegen.toolchain import INCLUDE, compile_host
from texpr.grammar import numerics
from texpr.grammar.ast import Fn
from texpr.grammar.interpret.bound import FUNCTION_ERRORS
from texpr.grammar.types import F64

APPROXIMATE = 4  # ulps that the device's reciprocal and power of two may take, which are exact here
STEP = 4093  # between the f32 that are tried: every exponent of both signs, with two thousand fractions each
TEXT = """
#include <cmath>
namespace device {{
inline float fma(float a, float b, float c) {{ return std::fmaf(a, b, c); }}
inline float min(float a, float b) {{ return a < b || a != a ? a : b; }}
inline float max(float a, float b) {{ return a > b || a != a ? a : b; }}
inline float near_exp2(float x) {{ return std::exp2(x); }}
inline float near_inverse(float x) {{ return 1.0f / x; }}
inline float fast_exp2(float x) {{  // of the device: what would be denormal is 0
  const float y = std::exp2(x);
  return y < 1.17549435e-38f ? 0.0f : y;
}}
using f32 = float;
{functions}
}}
extern "C" __attribute__((visibility("default")))
void run(const float* x, float* y, float* gelu, float* z, float* below, long long n) {{
  for (long long i = 0; i < n; ++i) {{
    y[i] = device::fast_normcdf(x[i]);
    gelu[i] = x[i] * y[i];
    z[i] = device::normcdf(x[i]);
    below[i] = device::exp_below(x[i]);
  }}
}}
"""


def device_text(name):
    """The function of the device: the last of that name."""
    found = re.findall(
        rf"^TX_FN f32 {name}\(f32 x\) \{{\n.*?^\}}", (INCLUDE / "texpr" / "math.cuh").read_text(), re.M | re.S
    )
    assert len(found) == 1, "one of several lines: that of a CPU is one line"
    return found[0].replace("TX_FN", "inline").replace("TX_C(fabsf)", "std::fabs")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fast")
    library = ctypes.CDLL(
        str(
            compile_host(
                TEXT.format(functions="\n".join(map(device_text, ("normcdf", "fast_normcdf", "exp_below")))), folder
            )
        )
    )

    def call(x):
        found = [np.empty_like(x) for _ in range(4)]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, *found)]
        library.run(*pointers, ctypes.c_longlong(len(x)))
        return found

    return call


def all_of_16_bits():
    return (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)


def some_of_32_bits():
    return np.arange(0, 1 << 32, STEP, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("values", [all_of_16_bits, some_of_32_bits])
def test_the_faster_normal_distribution_is_within_its_bound(run, values):
    x = values()
    x = np.where(np.isnan(x), np.float32(np.nan), x)  # NumPy warns of others
    got, gelu, accurate, _ = run(x)
    exact = numerics.apply(Fn.NORMCDF, (x.astype(np.float64),), F64)
    error = FUNCTION_ERRORS[Fn.NORMCDF]
    with np.errstate(all="ignore"):
        within = error.fast_ulps * np.spacing(exact.astype(np.float32)).astype(np.float64) + error.fast_absolute
        number = ~np.isnan(x)
        left = error.f32_ulps - APPROXIMATE  # of the device's own approximations
        ulp = np.maximum(np.spacing(exact.astype(np.float32)), 2.0**-149).astype(np.float64)
        assert np.all(np.abs(accurate - exact)[number] <= left * ulp[number])
        assert np.all(np.isnan(accurate[~number]))
        assert np.all(np.abs(got - exact)[number] <= within[number])
        assert np.all(np.isnan(got[~number]) | np.isnan(gelu[~number])), "NaN stays"
        finite = np.isfinite(x)
        wanted = x.astype(np.float64) * exact
        assert np.all(np.abs(gelu - wanted)[finite] <= np.abs(x.astype(np.float64) * within)[finite] + 2.0**-126)
        assert np.all(gelu[finite & (x < -12)] == 0), "nothing is left of the tail, however long"
        assert np.all(gelu[finite & (x > 7)] == x[finite & (x > 7)])


def test_the_ends_of_gelu_are_those_of_its_formula(run):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-149), 1e-40], np.float32)
    _, gelu, accurate, _ = run(x)
    assert np.all(np.abs(accurate[:4] - [0.5, 0.5, 1.0, 0.0]) < 3e-7)
    assert gelu[0] == 0 and not np.signbit(gelu[0])
    assert gelu[1] == 0 and np.signbit(gelu[1])
    assert gelu[2] == np.inf and np.isnan(gelu[3]) and np.isnan(gelu[4])
    assert abs(gelu[7] / 5e-41 - 1) < 1e-3


@pytest.mark.parametrize("values", [all_of_16_bits, some_of_32_bits])
def test_the_exponential_of_what_is_0_at_most_is_as_accurate_as_any(run, values):
    x = values()
    x = x[x <= 0]
    *_, below = run(x)
    exact = np.exp(x.astype(np.float64))
    kept = exact >= 2.0**-125
    ulp = np.spacing(exact[kept].astype(np.float32)).astype(np.float64)
    left = FUNCTION_ERRORS[Fn.EXP].f32_ulps - 1  # of the device's own power of two, which is exact here
    assert np.all(np.abs(below[kept] - exact[kept]) <= left * ulp)
    assert np.all((below[~kept] >= 0) & (below[~kept] <= 2.0**-124)), "0 or what little there is, of -inf, too"
    assert np.all(np.isnan(run(np.array([np.nan], np.float32))[-1])) and np.all(below[x == 0] == 1)
