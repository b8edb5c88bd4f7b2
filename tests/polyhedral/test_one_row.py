"""Products with one row on tensor cores, where memory takes longest and the other factor lies across what is summed."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.polyhedral.map import one_row
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.simulate.stage import simulate

TARGET = "cuda:sm_90a"
SMALL = Piped(along="i", across="j", tile={"j": 64, "i": 16}, stages=2, persistent=4, cluster=1, split=2, band=8)


def text(dtype: str = "bf16", right: str = "k, j", rows: str = "1") -> str:
    return f"""kernel g(A: {dtype}[{rows}, K], B: {dtype}[{right.upper().replace("J", "N")}], C: {dtype}[{rows}, N]) {{
        par {rows} i, N j {{ C[i, j] = sum K k {{ A[i, k] * B[{right}] }} }}
    }}"""


def launch(program: str, **sizes: int) -> Any:
    how: dict[str, Any] = {"stop_after": "map", **sizes}
    candidate = texpr.parse(program).only.compile(TARGET, **how).mapping.candidate
    assert isinstance(candidate, Candidate)
    return candidate.launches["g_0"]


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (14336, 4096), (4096, 14336)])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_row_is_the_columns_of_tiles_where_they_keep_all_multiprocessors_busy(dtype: str, n: int, k: int) -> None:
    own = launch(text(dtype), N=n, K=k)
    assert isinstance(own, Piped) and (own.along, own.across) == ("i", "j") and 4 * own.persistent >= 3 * 132


@pytest.mark.parametrize(
    ("program", "n", "k"),
    [
        (text(right="j, k"), 4096, 4096),  # along what is summed
        (text(), 256, 65536),  # few tiles
        (text(), 1024, 1024),  # little to do
        (text(), 4100, 4096),  # rows that tensor maps have not
        (text("f32"), 4096, 4096),  # no factors of tensor cores
    ],
)
def test_else_it_is_that_of_a_vector(program: str, n: int, k: int) -> None:
    assert not isinstance(launch(program, N=n, K=k), Piped)


@pytest.mark.parametrize(("n", "k"), [(72, 128), (128, 200)])
def test_products_of_one_row_are_right(n: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_row, "choose_piped", lambda problem, region: SMALL)
    monkeypatch.setattr(one_row, "BUSY", 33)
    random = np.random.default_rng(n)
    a, b = (random.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((1, k), (k, n)))
    how: dict[str, Any] = {"stop_after": "map", "mapping": Candidate(launches={"g_0": SMALL}), "N": n, "K": k}
    program = texpr.parse(text()).only.compile(TARGET, **how).mapping.program
    got = simulate(program, {"A": a, "B": b, "C": np.full((1, n), np.nan).astype(a.dtype)})["C"]
    np.testing.assert_array_equal(got, (a.astype(float) @ b.astype(float)).astype(a.dtype))
