"""Blocks of several iterations, a warp for each: chosen where blocks begin too slowly, and right wherever they fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stages import mapped, only_launch

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choices
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate

TOTAL = "kernel k(X: {t}[{m}, {n}], Y: f32[{m}]) {{ par {m} i {{ Y[i] = sum {n} k {{ X[i, k] }} }} }}"
IN_PLACE = """kernel k(inout X: f32[M, {n}], W: f32[{n}]) {{ par M i {{
    let m = maximum {n} k {{ X[i, k] }}
    let s = sum {n} k {{ exp(X[i, k] - m) }}
    par {n} j {{ X[i, j] = exp(X[i, j] - m) / s * W[j] }}
}} }}"""
PICK = """kernel k(X: f32[M, {n}], inout V: f32[M], A: i64[M]) {{ par M i {{
    A[i] = 0
    seq {n} j {{ if X[i, j] > V[i] {{ V[i] = X[i, j]; A[i] = j }} }}
}} }}"""


def one(choices: Choices) -> tuple[str, Blocks]:
    assert isinstance(choices, Candidate)
    ((name, choice),) = choices.launches.items()
    assert isinstance(choice, Blocks)
    return name, choice


def together(program: MappedProgram, count: int, **more: Any) -> Candidate:
    """The same candidate with so many iterations in a block."""
    name, choice = one(program.candidate)
    assert isinstance(program.candidate, Candidate)
    changed: dict[str, Any] = {"together": count, "threads": 32 * count} | more
    return replace(program.candidate, launches={name: replace(choice, **changed)})


def test_rows_that_are_over_before_the_next_block_begins_share_one() -> None:
    many = {"m": 131072, "n": 1024}
    program = mapped(TOTAL.format(t="bf16", **many))
    launch = only_launch(program)
    assert (one(program.candidate)[1].together, launch.threads) == (4, 128)
    assert not any(of_kind(launch.body, Barrier))
    few = [
        TOTAL.format(t="f32", **many),
        TOTAL.format(t="bf16", m=4096, n=1024),
        TOTAL.format(t="bf16", m=131072, n=4096),
    ]
    assert [one(mapped(text).candidate)[1].together for text in few] == [1, 1, 1]


def given(text: str, rows: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n + rows)
    x = rng.standard_normal((rows, n)).astype(np.float32)
    x[:1, n // 2], x[1:2, 0], x[2:3] = np.inf, np.nan, -np.inf
    more = {"W": np.arange(n)} if "W:" in text else {"V": np.full(rows, 0.25), "A": np.zeros(rows, np.int64)}
    return {"X": x} | {name: a if name == "A" else a.astype(np.float32) for name, a in more.items()}


def same(got: Any, expected: Any) -> None:
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("rows", [0, 1, 5, 8])
@pytest.mark.parametrize(("text", "n"), [(IN_PLACE, 31), (IN_PLACE, 256), (PICK, 300), (PICK, 512)])
def test_each_warp_has_an_iteration_and_no_other(text: str, n: int, rows: int, count: int) -> None:
    written = text.format(n=n)
    program = mapped(written, choices=together(mapped(written), count))
    arrays = given(written, rows, n)
    with np.errstate(invalid="ignore"):
        same(simulate(program, arrays, seed=n), interpret(program.kernel, arrays).outputs)


@pytest.mark.parametrize("text", [IN_PLACE, PICK])
def test_warps_of_one_block_are_right_and_race_free_as_cuda(text: str) -> None:
    written = text.format(n=300)
    compiled = texpr.parse(written).only.compile("cuda-host:sm_90a", mapping=together(mapped(written), 4))
    arrays = given(written, 6, 300)
    with np.errstate(invalid="ignore"):
        expected = interpret(mapped(written).kernel, arrays).outputs
    compiled(**arrays)
    same(arrays, expected)


LEVEL = "kernel k(X: f32[M, 32], Y: f32[M, 32]) { par M i { new t: f32[32]"
SHARED = LEVEL + "; par 32 a { t[a] = X[i, a] }; par 32 b { Y[i, b] = t[31 - b] } } }"
ASKS = LEVEL.replace(
    "new t: f32[32]",
    "let c = X[i, 0] > 0.0; if c { par 32 a { Y[i, a] = X[i, a] } } else { par 32 a { Y[i, a] = 0.0 } } } }",
)
WRONG = {
    "threads": (TOTAL.format(t="f32", m="M", n=256), {"together": 4}, "32 threads are not 4 warps"),
    "an odd number": (TOTAL.format(t="f32", m="M", n=256), {"together": 3, "threads": 96}, "a power of two"),
    "a shared local": (SHARED, {"together": 2, "threads": 64}, "would be those of several iterations"),
    "a condition": (ASKS, {"together": 2, "threads": 64}, "a condition on data"),
    "the author's threads": (
        TOTAL.format(t="f32", m="M", n=256).replace("{", "#threads(32) {", 1),
        {"together": 2, "threads": 64},
        "the author asks for 32 threads|the author says which threads",
    ),
}


@pytest.mark.parametrize(("text", "change", "why"), WRONG.values(), ids=WRONG.keys())
def test_iterations_that_cannot_have_a_warp_each_are_refused(text: str, change: dict[str, Any], why: str) -> None:
    program = mapped(text)
    name, choice = one(program.candidate)
    assert isinstance(program.candidate, Candidate)
    with pytest.raises(TExprError, match=why):
        mapped(text, choices=replace(program.candidate, launches={name: replace(choice, **change)}))
