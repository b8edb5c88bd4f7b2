"""Scans in two types: tiles of long sums are folded in f32 and handed on in f64; what an author has in f64 stays so."""

import numpy as np
import pytest
from stages import mapped
from test_scanned import STREAM, narrowed

from texpr.grammar.numerics import storage
from texpr.grammar.types import BF16, F32
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.simulate.stage import simulate


def test_a_long_sum_is_handed_on_in_f64_and_rounded_where_it_is_read() -> None:
    n, tile, big = 1 << 14, 1024, 2.0**40
    x = np.ones(n, np.float32)
    x[:tile] = x[n // 2 : n // 2 + tile] = 0
    x[0], x[n // 2] = big, -big
    exact = x.astype(np.float64).cumsum()
    behind = np.arange(n) >= n // 2 + tile
    for look_back in (False, True):
        program = narrowed(STREAM, {"N": n}, threads=128, ahead=8, widths={}, look_back=look_back)
        got = simulate(program, {"X": x, "Y": np.zeros(n, np.float32)})["Y"]
        assert (got[behind] == exact[behind]).all()
        before = np.arange(n) < n // 2
        assert (np.abs(got[before] - exact[before]) <= np.spacing(np.float32(big))).all()
    assert sums(program, {"N": 1 << 40})["s_before"].chain <= 64


def test_what_is_folded_before_the_first_term_is_less_than_all_of_its_type() -> None:
    """The fold is the author's, in f64, of terms that are integers: the least of these is no start of it."""
    text = """kernel k(X: i8[M, N], Y: f64[M, N]) { par M i { new s: f64; s = -1000.0
        seq N j { Y[i, j] = s; s max= f64(X[i, j]) } } }"""
    x = np.random.default_rng(0).integers(-128, 128, (2, 200)).astype(np.int8)
    got = simulate(mapped(text), {"X": x, "Y": np.zeros(x.shape)})["Y"]
    before = np.maximum.accumulate(np.concatenate([np.full((2, 1), -1000.0), x[:, :-1]], 1), 1)
    assert (got == before).all()


def test_fewer_threads_than_lanes_scan_columns() -> None:
    text = """kernel k(X: f32[N, M], Y: f32[N, M]) #threads(8) { par M i { new s: f32; s = 0.0
        seq N j { s += X[j, i]; Y[j, i] = s } } }"""
    x = np.random.default_rng(0).standard_normal((37, 50), np.float32)
    got = simulate(mapped(text), {"X": x, "Y": np.zeros_like(x)})["Y"]
    assert np.allclose(got, x.cumsum(0), atol=1e-5)


ROUNDED = """kernel k(X: {0}[M, N], Y: {0}[M, N]) {{ par N j {{ new s: f32; s = 0.0
    seq M i {{ s += f32(X[i, j]); {1} }} }} }}"""


@pytest.mark.parametrize(
    ("dtype", "store", "alone", "unrounded"),
    [
        ("bf16", "Y[i, j] = s", True, True),
        ("f16", "Y[i, j] = f16(s)", True, True),
        ("f32", "Y[i, j] = s", False, False),
        ("bf16", "Y[i, j] = s - 1000.0", False, True),
        ("bf16", "Y[i, j] = s; if s > 4.0 { Y[i, j] = 4.0 }", False, False),
    ],
)
def test_what_is_rounded_as_it_is_stored_needs_no_second_number(
    dtype: str, store: str, alone: bool, unrounded: bool
) -> None:
    """What is only stored is added up as one number of f32, and stays one up to the store."""
    program = mapped(ROUNDED.format(dtype, store), M=32768, N=4096)
    assert ("s_rest" not in program.buffers) is alone
    assert (program.buffers["Y_run"].dtype == F32) is (unrounded or dtype == "f32")


def test_running_sums_in_bf16_are_within_half_a_unit_of_the_exact_ones() -> None:
    """Terms of both signs far from zero: what they lose of a tile's magnitudes is far below what rounding loses."""
    rows = 1 << 13
    program = mapped(ROUNDED.format("bf16", "Y[i, j] = s"), M=rows, N=32)
    x = np.random.default_rng(0).integers(-256, 512, (rows, 32)).astype(storage(BF16))
    got = simulate(program, {"X": x, "Y": np.zeros_like(x)})["Y"]
    exact = x.astype(np.float64).cumsum(0)
    assert (np.abs(got.astype(np.float64) - exact) <= (2.0**-8 + 2.0**-16) * np.abs(exact) + 2.0**-9).all()
