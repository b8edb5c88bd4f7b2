"""Elementary functions of f32 on the CPU: their errors over all floats, and that LLVM makes vectors of them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from texpr.codegen.cpu import elementary
from texpr.grammar.ast import Fn
from texpr.grammar.functions import FLOAT_FUNCTIONS

pytestmark = pytest.mark.usefixtures("optimised_file")

STRIDE = 3001  # every float whose bits are a multiple of it, and those beside where a function changes its way
erf = np.vectorize(math.erf, otypes=[float])
CASES: dict[str, tuple[Fn, Callable[[Any], Any]]] = {
    "exp_f32": (Fn.EXP, np.exp),
    "exp2_f32": (Fn.EXP2, np.exp2),
    "log_f32": (Fn.LOG, np.log),
    "log2_f32": (Fn.LOG2, np.log2),
    "erf_f32": (Fn.ERF, erf),
    "normcdf_f32": (Fn.NORMCDF, FLOAT_FUNCTIONS[Fn.NORMCDF].value),
    "tanh_f32": (Fn.TANH, np.tanh),
}
EDGES = (
    0.0,
    2.0**-149,
    2.0**-126,
    1 / 3,
    0.55,
    0.92,
    2 / 3,
    1.0,
    4 / 3,
    3.92,
    87.4,
    88.73,
    89.0,
    103.98,
    104.0,
    126.0,
    128.0,
)
EDGES += (0.5, 2.5, 13.2, 14.2, 15.0, 149.0, 150.0, 151.0, 3.4028235e38, math.inf)


def values() -> Any:
    bits = np.arange(0, 1 << 32, STRIDE, dtype=np.uint64).astype(np.uint32)
    near = np.array([*EDGES, *(-edge for edge in EDGES)], np.float32).view(np.uint32).astype(np.int64)
    beside = (near[:, None] + np.arange(-50, 51)).ravel() % (1 << 32)
    return np.concatenate([bits, beside.astype(np.uint32)]).view(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_errors_are_below_those_of_the_numerics(name: str) -> None:
    function, (fn, reference) = getattr(elementary, name), CASES[name]

    @njit(error_model="numpy")
    def run(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = function(x[i])

    x = values()
    y = np.empty_like(x)
    run(x, y)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isnan(y), np.isnan(rounded))
    finite = np.isfinite(rounded)
    assert np.array_equal(y[~finite & ~np.isnan(y)], rounded[~finite & ~np.isnan(y)])
    error = np.abs(y[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    assert error.max() <= FLOAT_FUNCTIONS[fn].error.f32_ulps, x[finite][error.argmax()]
    zero = rounded == 0
    assert np.array_equal(np.signbit(y[zero & finite]), np.signbit(rounded[zero & finite]))
    (assembly,) = run.inspect_asm().values()
    assert not any(f"${call}" in assembly for call in ("expf", "exp2f", "logf", "log2f", "erff", "tanhf", "fmaf"))
