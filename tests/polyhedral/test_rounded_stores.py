"""Stores that round: f32 until two neighbours are rounded at once, and never where somebody reads what was rounded."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stages import mapped

from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.walks import launches, of_kind
from texpr.polyhedral.simulate.stage import simulate

TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
SCALED = "kernel k(X: {t}[N], Y: {t}[N]) {{ par N i {{ Y[i] = {t}(f32(X[i]) * 1.7) }} }}"


def odd(n: int, dtype: Any) -> Any:
    """Numbers of every size, some that are halfway when they are scaled, and infinities."""
    x = (np.random.default_rng(n).standard_normal(n) * np.exp2(np.arange(n) % 16 - 8)).astype(dtype)
    x[:3] = np.inf, -np.inf, 0.0
    return x


def stored(text: str, **sizes: int) -> list[Copy]:
    (launch,) = launches(mapped(text, **sizes).host)
    return [copy for copy in of_kind(launch.body, Copy) if copy.target.buffer in ("Y", "Z")]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [64, 1 << 18 | 61])
def test_a_run_of_narrow_floats_is_rounded_as_it_is_stored(dtype: str, n: int) -> None:
    text = SCALED.format(t=dtype)
    (copy,) = stored(text, N=n)
    assert (copy.source.dtype.name, copy.target.dtype.name) == ("f32", dtype)
    program = mapped(text, N=n)
    given = {"X": odd(n, TYPES[dtype]), "Y": np.zeros(n, TYPES[dtype])}
    got, want = simulate(program, given, seed=n)["Y"], interpret(program.kernel, given).outputs["Y"]
    assert got.tobytes() == want.astype(TYPES[dtype]).tobytes()


@pytest.mark.parametrize(
    ("body", "rounded"),
    [
        ("Y[i] = bf16(f32(X[i]) * 2.0); Z[i] = bf16(f32(Y[i]) + 1.0)", [False, True]),
        ("Y[i] = X[i]; Z[i] = bf16(f32(X[i]) + 1.0)", [False, True]),
        ("Y[i] = bf16(f32(Y[i]) * 2.0); Z[i] = X[i]", [False, False]),
        ("if f32(X[i]) > 0.0 { Y[i] = bf16(f32(X[i]) * 2.0) } else { Y[i] = X[i] }; Z[i] = X[i]", [False, False]),
    ],
)
def test_what_is_read_again_or_moved_as_it_is_stays_in_its_type(body: str, rounded: list[bool]) -> None:
    text = "kernel k(X: bf16[N], Y: bf16[N], Z: bf16[N]) { par N i { " + body + " } }"
    found = {copy.target.buffer: copy.source.dtype.name == "f32" for copy in stored(text, N=64)}
    assert [found.get(name, False) for name in ("Y", "Z")] == rounded
