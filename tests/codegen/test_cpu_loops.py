"""Loops as the text for a CPU has them beside the interpreter: runs of digits, groups for copies, rare branches."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.interpret.stage import interpret

FIRST = """kernel k(X: f32[P, R], I: i64[P], T: f32[P]) {
    par P i {
        new top: f32
        new at: i64
        top = -inf
        at = -1
        seq R j { if X[i, j] > top { top = X[i, j]; at = j } }
        I[i] = at
        T[i] = top
    }
}"""
FALLS = """kernel k(X: f32[R], inout T: f32[2]) {
    seq R j { let x = X[j] - 1.0; if x < T[0] { T[0] = x; T[1] += 1.0 } }
}"""
COUNTED = "kernel k(X: f32[R], inout T: f32[2]) { seq R j { if X[j] > 0.0 { T[0] += 1.0 } } }"
COUNTS = "kernel k(I: i64[R], inout Y: i64[9]) { par R i { atomic Y[I[i]] += i } }"
TAPS = (
    "kernel k(X: f32[P, R + 2, 5], Y: f32[P, R, 5]) { par P i, R j, 5 k { Y[i, j, k] = X[i, j, k] + X[i, j + 2, k] } }"
)
BOUND = (97, 1000)  # sizes for which a text is compiled, too
POOL = """kernel k(X: f32[2 * P + 1, 2 * R + 1], Y: f32[P, R]) {
    par P i, R j { Y[i, j] = maximum 3 y, 3 x { X[2 * i + y, 2 * j + x] } }
}"""
SUM = """kernel k(X: f16[P, 3 * R + 7], W: f32[7], Y: f32[P, R]) {
    par P i, R j {
        new t: f32
        t = 1.0
        seq 7 x { t += W[x] * f32(X[i, 3 * j + x]) }
        Y[i, j] = t
    }
}"""
APART = "kernel k(X: f32[P, 2 * R], Y: f32[P, R]) { par P i, R j { Y[i, j] = maximum 2 x { X[i, 2 * j + x] } } }"
CHOSEN = """kernel k(X: f32[P, 2 * R + 1], Y: f32[P, R]) {
    par P i, R j { Y[i, j] = sum 3 x { select(2 * j + x > 0, X[i, 2 * j + x], 0.0) } }
}"""
ORDERS = ("random", "rising", "falling", "equal", "nan")


def rows(order: str, count: int) -> Any:
    found = np.random.default_rng(count).normal(size=count).astype(np.float32)
    if order == "nan":
        found[::3] = np.nan
    return {"rising": np.sort(found), "falling": np.sort(found)[::-1].copy(), "equal": np.full_like(found, 2)}.get(
        order, found
    )


@cache
def compiled(text: str, **sizes: int) -> Any:
    return texpr.parse(text).only.compile("cpu", sizes=sizes)


def agree(text: str, given: dict[str, Any], **sizes: int) -> None:
    wanted = interpret(bind_sizes(texpr.parse(text).only.core(), sizes), given).outputs
    for made in (compiled(text), *((compiled(text, **sizes),) if sizes["R"] in BOUND else ())):
        found = {name: array.copy() for name, array in given.items()}
        made(**found)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 127, 129, 1000])
@pytest.mark.parametrize("order", ORDERS)
def test_a_branch_that_is_asked_for_many_iterations_at_once_is_taken_in_the_same_ones(order: str, count: int) -> None:
    x = rows(order, 3 * count).reshape(3, count)
    agree(FIRST, {"X": x, "I": np.zeros(3, np.int64), "T": np.zeros(3, np.float32)}, P=3, R=count)
    agree(FALLS, {"X": rows(order, count), "T": np.array([0.5, 0.0], np.float32)}, R=count)


def test_what_no_branch_changes_is_not_asked_for() -> None:
    assert "some0" in texpr.parse(FIRST).only.compile("cpu").source
    assert "some0" not in texpr.parse(COUNTED).only.compile("cpu").source
    assert "some0" not in texpr.parse(FIRST).only.compile("cpu", sizes={"P": 3, "R": 100}).source


@pytest.mark.parametrize("count", [0, 1, 3, 5, 300_001])
def test_copies_are_updated_by_every_iteration_once(count: int) -> None:
    keys = np.random.default_rng(count).integers(0, 9, count)
    agree(COUNTS, {"I": keys, "Y": np.arange(9)}, R=count)


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (3, 0), (1, 1), (7, 1), (5, 13), (331, 97)])
def test_runs_of_digits_begin_and_end_within_rows(outer: int, inner: int) -> None:
    x = rows("random", outer * (inner + 2) * 5).reshape(outer, inner + 2, 5)
    agree(TAPS, {"X": x, "Y": np.zeros((outer, inner, 5), np.float32)}, P=outer, R=inner)


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (3, 0), (1, 1), (7, 2), (5, 17), (2, 97)])
def test_windows_that_overlap_are_those_of_the_program(outer: int, inner: int) -> None:
    y = np.zeros((outer, inner), np.float32)
    odd = rows("nan", (2 * outer + 1) * (2 * inner + 1)).reshape(2 * outer + 1, 2 * inner + 1)
    agree(POOL, {"X": odd, "Y": y}, P=outer, R=inner)
    whole = np.random.default_rng(inner).integers(-8, 9, (outer, 3 * inner + 7)).astype(np.float16)
    agree(SUM, {"X": whole, "W": np.arange(7, dtype=np.float32), "Y": y}, P=outer, R=inner)


def test_only_windows_that_overlap_hand_on_what_they_read() -> None:
    for text in (POOL, SUM):
        assert "X_next0 = X_next" in compiled(text).source
    assert "X_next0 = X_next" in compiled(POOL, R=64).source and "opaque" not in compiled(POOL, R=64).source
    assert "X_next" not in compiled(POOL, R=89).source  # few, of which some fill no vector
    for text in (APART, CHOSEN):
        assert "X_next" not in compiled(text).source
