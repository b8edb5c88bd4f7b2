"""Narrow floats on the CPU backend, over all their bit patterns."""

import ml_dtypes
import numpy as np
import pytest
from numba import njit

from texpr.codegen.cpu import half
from texpr.grammar.numerics import cast, storage
from texpr.grammar.types import ELEMENT_TYPES, F32, F64, I64

pytestmark = pytest.mark.usefixtures("optimised_file")

NAMES = sorted(half.FORMATS)


def _mapped(function, source, result):
    @njit
    def run(values, out):
        for i in range(values.size):
            out[i] = function(values[i])

    out = np.empty(source.size, result)
    run(source, out)
    return out


def _variants(name, table, maker):
    made = [maker(half.FORMATS[name])]
    return made if table[name] is made[0] else [table[name], *made]


def _bits(name):
    return np.uint16 if half.FORMATS[name].bits == 16 else np.uint8


def _same(got, want):
    nan = np.isnan(want.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
    kind = np.uint32 if got.dtype == np.float32 else _bits_of(got)
    assert np.array_equal(got[~nan].view(kind), want[~nan].view(kind))


def _bits_of(array):
    return {1: np.uint8, 2: np.uint16}[array.dtype.itemsize]


@pytest.mark.parametrize("name", NAMES)
def test_decoding_is_exact_for_every_bit_pattern(name):
    codes = np.arange(1 << half.FORMATS[name].bits, dtype=_bits(name))
    with np.errstate(all="ignore"):
        want = codes.view(storage(ELEMENT_TYPES[name])).astype(np.float32)
    for decode in _variants(name, half.decode, half.make_decode):
        _same(_mapped(decode, codes, np.float32), want)


@pytest.mark.parametrize("name", NAMES)
def test_encoding_undoes_decoding_for_every_bit_pattern(name):
    codes = np.arange(1 << half.FORMATS[name].bits, dtype=_bits(name))
    with np.errstate(all="ignore"):
        values = codes.view(storage(ELEMENT_TYPES[name])).astype(np.float32)
    if half.FORMATS[name].bits == 8:  # infinities saturate
        values = np.where(np.isinf(values), np.copysign(np.float32(57344), values), values)
    for encode in _variants(name, half.encode, half.make_encode):
        got = _mapped(encode, values, _bits(name)).view(storage(ELEMENT_TYPES[name]))
        _same(got.astype(np.float32), values)


def _hard_values(name):
    """Every value of the format, every midpoint of neighbours and the f32 next to either, plus random f32."""
    codes = np.arange(1 << half.FORMATS[name].bits, dtype=_bits(name))
    values = codes.view(storage(ELEMENT_TYPES[name])).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middles = (values[1:].astype(np.float64) + values[:-1].astype(np.float64)) / 2
    base = np.concatenate([values.astype(np.float64), middles])
    near = np.concatenate([base, base * (1 + 2.0**-23), base * (1 - 2.0**-23), base * (1 + 2.0**-40)])
    random = np.random.default_rng(0).integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 464.0, 465.0, 61440.0, 65520.0, 65519.99])
    with np.errstate(all="ignore"):
        return np.concatenate([near, random.astype(np.float64), special])


@pytest.mark.parametrize("name", NAMES)
def test_encoding_rounds_to_nearest_even_and_saturates_as_the_language_says(name):
    with np.errstate(all="ignore"):
        values = _hard_values(name).astype(np.float32)
    target = ELEMENT_TYPES[name]
    want = cast(values, F32, target)
    for encode in _variants(name, half.encode, half.make_encode):
        _same(_mapped(encode, values, _bits(name)).view(storage(target)), want)


@pytest.mark.parametrize("name", NAMES)
def test_wider_sources_are_rounded_once(name):
    target = ELEMENT_TYPES[name]
    wide = _hard_values(name)
    wide = np.concatenate([wide, wide * (1 + 2.0**-50), wide * (1 - 2.0**-50)])
    with np.errstate(all="ignore"):
        odd = _mapped(half.odd_f32, wide, np.float32)
        _same(_mapped(half.encode[name], odd, _bits(name)).view(storage(target)), cast(wide, F64, target))
        whole = np.random.default_rng(1).integers(-(2**62), 2**62, 20_000) >> np.arange(20_000) % 62
        odd = _mapped(half.odd_f32_of_i64, whole, np.float32)
        _same(_mapped(half.encode[name], odd, _bits(name)).view(storage(target)), cast(whole, I64, target))


def test_the_eight_bit_formats_are_those_of_ml_dtypes():
    assert ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max == half.FORMATS["f8e4m3"].ceiling
    assert ml_dtypes.finfo(ml_dtypes.float8_e5m2).max == half.FORMATS["f8e5m2"].ceiling
