"""Sums of squares about a mean that an earlier sum gives: both are made in one reading, and only such sums."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stages import mapped, proved

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.build import build
from texpr.polyhedral.map.centred import centre, to_centre
from texpr.polyhedral.map.kept import Kept, keep_nothing
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import candidate_json, read_candidate
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

NORM = """kernel norm(X: f32[B, C, H, W], Y: f32[B, C, H, W]) where H >= 1, W >= 1 {
    new mean: f32[C]
    new scale: f32[C]
    par C c { mean[c] = (sum B b, H h, W w { X[b, c, h, w] }) / f32(B * H * W) }
    par C c {
        new v: f32
        v = sum B b, H h, W w { (X[b, c, h, w] - mean[c]) * (X[b, c, h, w] - mean[c]) }
        scale[c] = rsqrt(v / f32(B * H * W) + 1.0e-5)
    }
    par B b, C c, H h, W w { Y[b, c, h, w] = (X[b, c, h, w] - mean[c]) * scale[c] }
}"""
LARGE = {"B": 64, "C": 128, "H": 160, "W": 200}
NARROW = NORM.replace("f32[B, C", "bf16[B, C")


def kept(text: str, **sizes: int) -> Kept:
    return keep_nothing(proved(text, **sizes))


def run(found: Kept, x: Any) -> Any:
    problems = Problems(found, parse_target("cuda:sm_90a"), {})
    y = np.full(x.shape, np.nan).astype(x.dtype)
    return simulate(build(problems.wide, problems.first), {"X": x, "Y": y})["Y"].astype(float)


def normed(x: Any) -> Any:
    wide = x.astype(float)
    off = wide - wide.mean((0, 2, 3), keepdims=True)
    return off / np.sqrt((off**2).mean((0, 2, 3), keepdims=True) + 1e-5)


def test_long_batches_are_read_once_for_both_sums() -> None:
    for text in (NORM, NARROW):
        found = mapped(text, **LARGE)
        candidate = found.candidate
        assert isinstance(candidate, Candidate) and candidate.centred == {"S4"} and len(candidate.launches) == 4
        again = read_candidate(candidate_json(candidate))
        assert again == candidate and mapped(text, choices=again, **LARGE).host == found.host


def test_what_fits_in_clusters_stays_there() -> None:
    sizes = {"B": 32, "C": 256, "H": 128, "W": 128}
    found = texpr.parse(NORM).only.compile("cuda:sm_90a", sizes=sizes, stop_after="map").mapping.candidate
    assert isinstance(found, Candidate) and not found.centred and len(found.launches) == 1


@pytest.mark.parametrize("shape", [(3, 2, 5, 7), (1, 3, 4, 8), (2, 1, 1, 1), (5, 1, 1, 33)])
@pytest.mark.parametrize("text", [NORM, NARROW])
def test_such_sums_are_right(text: str, shape: tuple[int, int, int, int]) -> None:
    own = kept(text, **dict(zip("BCHW", shape, strict=True)))
    found = centre(own, to_centre(own))
    assert found.centred == {"S4"}
    x = np.random.default_rng(3).standard_normal(shape)
    x = (x * 0.05 + 30).astype(np.float32) if text is NORM else x.astype(ml_dtypes.bfloat16)
    assert np.abs(run(found, x) - normed(x)).max() < (2e-3 if text is NORM else 2e-2)


def test_infinities_and_nan_come_where_they_came_before() -> None:
    shape = (2, 5, 2, 3)
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    x[1, 0, 0, 1], x[0, 1, 1, 1], x[0, 2, 0, 0], x[0, 3] = np.inf, np.nan, -np.inf, 1e30
    x[1, 2, 0, 0] = np.inf
    own = kept(NORM, **dict(zip("BCHW", shape, strict=True)))
    got, plain = run(centre(own, to_centre(own)), x), run(own, x)
    assert np.array_equal(np.isfinite(got), np.isfinite(plain))
    assert np.array_equal(np.isnan(got), np.isnan(plain))


def test_a_batch_of_none_leaves_what_it_left() -> None:
    text = NORM.replace("f32(B * H * W)", "f32(H * W)").replace("Y: f32[B, C, H, W]", "Y: f32[C]")
    text = text[: text.index("    par B b, C c, H h")] + "    par C c { Y[c] = mean[c] + scale[c] }\n}"
    own = kept(text, B=0, C=3, H=2, W=2)
    problems = Problems(centre(own, to_centre(own)), parse_target("cuda:sm_90a"), {})
    arrays = {"X": np.zeros((0, 3, 2, 2), np.float32), "Y": np.full(3, np.nan, np.float32)}
    got = simulate(build(problems.wide, problems.first), arrays)["Y"]
    assert problems.kept.centred and np.allclose(got, 1 / np.sqrt(1e-5))


SQUARES = "(X[b, c, h, w] - mean[c]) * (X[b, c, h, w] - mean[c])"
WRITER = "    par B b, C c, H h, W w { X[b, c, h, w] = 0.0 }\n    par C c {\n        new v"
LOOPS = NORM.replace(
    "v = sum B b, H h, W w { " + SQUARES + " }",
    "v = 0.0\n        seq B b { seq H h { seq W w { v += " + SQUARES + " } } }",
)
REFUSED = {
    "another element": NORM.replace(SQUARES, "(X[b, c, h, w] - mean[c]) * (X[b, c, 0, w] - mean[c])"),
    "another order": NORM.replace(SQUARES, "(mean[c] - X[b, c, h, w]) * (mean[c] - X[b, c, h, w])"),
    "a product of two differences": NORM.replace(SQUARES, "(X[b, c, h, w] - mean[c]) * (X[b, c, h, w] - 1.0)"),
    "a weight": NORM.replace(SQUARES, SQUARES + " * 2.0"),
    "a rounded element": NARROW.replace(SQUARES, SQUARES.replace("X[b, c, h, w]", "f32(bf16(X[b, c, h, w] * 1.0))")),
    "a value of each element": NORM.replace("- mean[c]", "- X[b, c, h, 0]"),
    "an array that is written": NORM.replace("    par C c {\n        new v", WRITER),
    "a sum of other elements": NORM.replace("W w { X[b, c, h, w] }", "W w { X[b, 0, h, w] }"),
    "fewer elements": NORM.replace("sum B b, H h, W w { X", "sum B b, H h, W - 1 w { X"),
    "rows that may be empty": NORM.replace(" where H >= 1, W >= 1", ""),
    "an order": LOOPS.replace("seq B b", "seq B b #ordered"),
    "an order inside": LOOPS.replace("seq W w", "seq W w #ordered"),
    "strict": LOOPS.replace("mean[c]) }", "mean[c]) #strict }"),
    "a condition": LOOPS.replace("{ v +=", "{ if w > 0 { v +=").replace("mean[c]) }", "mean[c]) } }"),
    "two statements": LOOPS.replace("{ v +=", "{ v += 1.0; v +="),
    "sums that were kept narrow": NORM.replace("new v: f32", "new v: bf16"),
    "elements of f64": NORM.replace("f32", "f64"),
    "rows across memory": NORM.replace("f32[B, C, H, W]", "f32[B, H, W, C]").replace("b, c, h, w]", "b, h, w, c]"),
    "one loop": """kernel norm(X: f32[M, N], V: f32[M], Y: f32[M]) where N >= 1 {
        par M i { V[i] = sum N j { X[i, j] } }
        par M i { Y[i] = sum N j { (X[i, j] - V[i]) * (X[i, j] - V[i]) } }
    }""",
}  # fmt: skip


def test_loops_that_add_are_sums() -> None:
    assert to_centre(kept(LOOPS)) == {"S4"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_looks_like_it_stays(name: str) -> None:
    assert REFUSED[name] not in (NORM, LOOPS)
    try:
        own = kept(REFUSED[name])
    except TExprError as wrong:
        pytest.fail(str(wrong))
    assert not to_centre(own)


def test_any_value_may_be_what_squares_are_about() -> None:
    text = NORM.replace("- mean[c]", "- Z[c]").replace("Y: f32[B", "Z: f32[C], Y: f32[B")
    own = kept(text, B=2, C=3, H=3, W=5)
    found = centre(own, to_centre(own))
    x, z = np.random.default_rng(6).standard_normal((2, 3, 3, 5)).astype(np.float32), np.array([0, 9, -3], np.float32)
    problems = Problems(found, parse_target("cuda:sm_90a"), {})
    got = simulate(build(problems.wide, problems.first), {"X": x, "Y": x * np.nan, "Z": z})["Y"]
    off = x.astype(float) - z.reshape(1, 3, 1, 1)
    assert found.centred and np.allclose(got, off / np.sqrt((off**2).mean((0, 2, 3), keepdims=True) + 1e-5), rtol=1e-5)


def test_a_candidate_that_asks_for_it_elsewhere_is_refused() -> None:
    own = mapped(NORM, B=2, C=3, H=3, W=5).candidate
    assert isinstance(own, Candidate)
    with pytest.raises(TExprError, match="takes S1 about means of rows"):
        mapped(NORM, choices=Candidate(launches=own.launches, centred=frozenset({"S1"})), B=2, C=3, H=3, W=5)
