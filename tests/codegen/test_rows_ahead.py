"""Rows whose first or last load has less than a whole chunk, or none: all loads are made before the first is used."""

import ml_dtypes
import numpy as np
import pytest

import texpr

SOFTMAX = """kernel softmax(X: {t}[{m}, {n}], Y: {t}[{m}, {n}]) {{ par {m} i {{
    let top = maximum {n} k {{ f32(X[i, k]) }}
    let total = sum {n} k {{ exp(f32(X[i, k]) - top) }}
    par {n} j {{ Y[i, j] = {t}(exp(f32(X[i, j]) - top) / total) }}
}} }}"""
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
TOTAL = "kernel total(X: f32[{m}, {n}], S: f32[{m}]) {{ par {m} i {{ S[i] = sum {n} k {{ X[i, k] }} }} }}"


def source(text: str, t: str, m: int, n: int) -> str:
    return texpr.parse(text.format(t=t, m=m, n=n)).only.compile("cuda:sm_90a").source


@pytest.mark.parametrize(
    ("columns", "rows", "load"),
    [
        (4352, 64, "tx::load_or_none<8>(X, i * 4352 + row + 1536 * row_part, i * 4352 + row, "),  # whole chunks or none
        (4002, 4, "tx::load_or_sure<8>(X, i * 4002 + row + 1024 * row_part, i * 4002 + row + 1024, "),
        (4093, 5, "tx::load_inside_or_sure<8>(X, i * 4093 + row + 1280 * row_part, i * 4093 + row + 1280, "),
        (4096, 64, "tx::load_or_none<8>(X, i * 4096 + row + 1536 * row_part, i * 4096 + row, "),
        (8192, 64, "tx::load<8>(X, i * 8192 + row + 4096 * row_part)"),  # each of them there
    ],
)
def test_a_thread_makes_every_load_of_its_row_in_any_case(columns: int, rows: int, load: str) -> None:
    assert load in source(SOFTMAX, "bf16", rows, columns)


def test_rows_of_many_runs_or_one_loop_or_one_load_have_conditions() -> None:
    assert "_or_" not in source(SOFTMAX, "bf16", 64, 32000)  # no register for another address
    assert "_or_" not in source(TOTAL, "f32", 64, 4100)  # nothing waits for the whole row
    assert "_or_" not in source(SOFTMAX, "f32", 64, 100)


@pytest.mark.parametrize(("t", "n"), [("f32", 1157), ("bf16", 2002), ("bf16", 2312)])
def test_rows_are_right_on_the_checking_host(t: str, n: int) -> None:
    """Checked for accesses outside of arrays and for reads of what nobody wrote, at lengths with all kinds of ends."""
    numbers = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    kernel = texpr.parse(SOFTMAX.format(t=t, m=3, n=n)).only.compile("cuda-host:sm_90a")
    assert "_or_" in kernel.source
    x = numbers.astype(TYPES[t])
    y = np.zeros_like(x)
    kernel(X=x, Y=y)
    powers = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    np.testing.assert_allclose(
        y.astype(np.float64), powers / powers.sum(1, keepdims=True), rtol=2e-2 if t == "bf16" else 1e-5, atol=1e-9
    )
