"""Every conversion of the headers against the interpreter's: all bit patterns of the narrow types, specials and random
values of the wide ones."""

from functools import cache

import numpy as np
import pytest

from texpr.codegen.host_run import HostArray, HostModule
from texpr.grammar import numerics
from texpr.grammar.bits import narrow_pattern
from texpr.grammar.types import ELEMENT_TYPES

pytestmark = [pytest.mark.gxx, pytest.mark.usefixtures("optimised_file")]

TYPES = tuple(ELEMENT_TYPES.values())


def symbol(source, target):
    return f"cast_{source.name}_{target.name}"


def element(dtype):
    return "tx::b8" if dtype.is_bool else f"tx::{dtype.name}"


def value(dtype):
    return "bool" if dtype.is_bool else f"tx::{dtype.name}"


def kernel(source, target):
    return f"""
extern "C" __global__ void {symbol(source, target)}(const {element(source)}* in_data, {element(target)}* out_data,
                                                    tx::i64 n) {{
  for (tx::i64 i = 0; i < n; ++i) {{
    out_data[i] = tx::encode<{element(target)}>(tx::cast<{value(target)}>(tx::decode(in_data[i])));
  }}
}}
TX_EXPORT({symbol(source, target)});
"""


@pytest.fixture(scope="module")
def casts(need_gxx):
    kernels = "".join(kernel(s, t) for s in TYPES for t in TYPES)
    return HostModule('#include "texpr/kernel.cuh"\n' + kernels)


@cache
def patterns(dtype):
    """All values of an 8- or 16-bit type; specials, neighbours of every power of two and random bits of a wider one."""
    storage = numerics.storage(dtype)
    if dtype.is_bool:
        return np.array([False, True])
    unsigned = np.dtype(f"uint{dtype.bits}")
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=unsigned).view(storage)
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 1 << 63, 20000, dtype=np.uint64).astype(unsigned) * unsigned.type(3)
    if dtype.is_integer:
        powers = [(1 << k) + d for k in range(dtype.bits) for d in (-1, 0, 1)]
        both = np.array([p & ((1 << dtype.bits) - 1) for p in (*powers, *(-p for p in powers))], dtype=unsigned)
        ties = [(1 << k) + (1 << (k - 8)) + d for k in range(10, dtype.bits - 1) for d in (-1, 0, 1)]
        return np.concatenate([both, np.array(ties, dtype=unsigned), noise]).view(storage)
    near = []
    for narrow in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        with np.errstate(all="ignore"):
            every = patterns(ELEMENT_TYPES[narrow]).astype(storage)
        every = np.sort(every[np.isfinite(every)])
        middle = every[:-1] / 2 + every[1:] / 2
        near += [every, middle, np.nextafter(middle, storage.type(np.inf)), np.nextafter(middle, storage.type(-np.inf))]
    edges = [float(b) + d for t in TYPES if t.is_integer for b in t.integer_range for d in (-1.5, -0.5, 0, 0.5, 1.5)]
    specials = [np.nan, np.inf, -np.inf, 0.0, -0.0, *edges]
    return np.concatenate([*near, np.array(specials, dtype=storage), noise.view(storage)])


def same(got, want):
    """Equal bit by bit, except that any NaN equals any NaN."""
    if got.dtype.kind in "iub":
        return got == want
    with np.errstate(all="ignore"):  # a signalling NaN
        nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    unsigned = np.dtype(f"uint{8 * got.itemsize}")
    return nan | (got.view(unsigned) == want.view(unsigned))


@pytest.mark.parametrize("target", TYPES, ids=str)
@pytest.mark.parametrize("source", TYPES, ids=str)
def test_a_cast_of_the_header_is_that_of_the_interpreter(casts, source, target):
    data = patterns(source)
    if len(data) > 1 << 17 and target.bits > 16:  # the neighbours of narrow values are for narrow targets
        data = np.ascontiguousarray(data[::13])
    if (source.name, target.name) == ("f64", "bool"):  # see the test on tiny values below
        data = data[~((np.abs(data) < 1e-40) & (data != 0))]
    got = np.zeros(data.shape, numerics.storage(target))
    report = casts.launch(
        symbol(source, target),
        [HostArray(data.ctypes.data, data.nbytes), HostArray(got.ctypes.data, got.nbytes), len(data)],
        (1, 1, 1),
        1,
    )
    assert report is None
    with np.errstate(all="ignore"):
        want = numerics.cast(data, source, target)
    wrong = np.flatnonzero(~same(got, want))
    assert wrong.size == 0, [(data[k], got[k], want[k]) for k in wrong[:5]]


def test_a_tiny_f64_is_true(casts):
    data, got = np.array([1e-300, 0.0, np.nan]), np.zeros(3, np.bool_)
    arguments = [HostArray(data.ctypes.data, 24), HostArray(got.ctypes.data, 3), 3]
    assert casts.launch("cast_f64_bool", arguments, (1, 1, 1), 1) is None
    assert got.tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3", "f8e5m2"])
def test_a_narrow_literal_is_rounded_as_a_cast_is(name):
    dtype = ELEMENT_TYPES[name]
    data = patterns(ELEMENT_TYPES["f64"])
    data = data[np.isfinite(data)][::17]
    with np.errstate(all="ignore"):
        want = numerics.cast(data, ELEMENT_TYPES["f64"], dtype).view(np.dtype(f"uint{dtype.bits}"))
    assert [narrow_pattern(float(x), dtype) for x in data] == want.tolist()
