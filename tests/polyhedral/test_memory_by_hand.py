"""Memory-bound kernels by hand: printed, checked, simulated, at odd sizes and any address."""

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graphs import copy, define, do, launch, once, program, reduce, when
from memory_by_hand import cluster_softmax, softmax, ticket_sum
from spoil import spoiled

from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.types import F32
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.operators import Operator
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.walks import map_nodes
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate


def rows(m: int, n: int) -> Any:
    return np.random.default_rng(m + n).normal(size=(m, n)).astype(ml_dtypes.bfloat16)


def softmax_of(x: Any) -> Any:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def run_softmax(mapped: MappedProgram, x: Any, seed: int = 0, base: int = 0) -> Any:
    addresses = {"X": base, "Y": base}
    return simulate(mapped, {"X": x, "Y": np.full_like(x, np.nan)}, seed=seed, addresses=addresses)["Y"]


@pytest.mark.parametrize(("m", "n", "base"), [(3, 203, 6), (2, 8, 0), (2, 1, 126), (3, 431, 30)])
def test_rows_in_registers_are_softmaxes_at_any_address(m: int, n: int, base: int) -> None:
    got = run_softmax(softmax(2, 1), rows(m, n), base=base)
    np.testing.assert_allclose(got.astype(np.float64), softmax_of(rows(m, n)), rtol=0.01)


def test_rows_of_extremes_are_what_the_statements_leave() -> None:
    x = rows(4, 77)
    x[0, 3], x[1, :], x[2, 5], x[3, :70] = np.inf, -np.inf, np.nan, -np.inf
    got = run_softmax(softmax(2, 1), x).astype(np.float64)
    assert np.isnan(got[:3]).all()
    np.testing.assert_allclose(got[3], softmax_of(x[3:])[0], rtol=0.01)


@pytest.mark.parametrize("n", [1, 5000, 4099, 31])
def test_the_last_block_adds_the_sums_of_all_in_one_launch(n: int) -> None:
    a = np.random.default_rng(n).normal(size=n).astype(np.float32)
    arrays = {"A": a, "B": np.full(1, np.nan, np.float32)}
    got = simulate(ticket_sum(2, 2, 3), arrays, seed=n)["B"]
    np.testing.assert_allclose(got, a.astype(np.float64).sum(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("m", "n", "base"), [(2, 431, 30), (1, 3, 126)])
def test_rows_over_a_cluster_are_softmaxes(m: int, n: int, base: int) -> None:
    got = run_softmax(cluster_softmax(2, 1, 1), rows(m, n), base=base)
    np.testing.assert_allclose(got.astype(np.float64), softmax_of(rows(m, n)), rtol=0.01)


KERNELS = {"softmax": softmax(2, 1), "sum": ticket_sum(2, 2, 3), "cluster": cluster_softmax(2, 1, 1)}


@pytest.mark.parametrize("name", KERNELS)
def test_the_checker_finds_every_order(name: str) -> None:
    check_orders(KERNELS[name])


@pytest.mark.parametrize("name", KERNELS)
def test_every_barrier_that_goes_is_missed(name: str) -> None:
    dropped = [(text, m) for text, m in spoiled(KERNELS[name]) if re.match(r"drop (.* at )?barrier", text)]
    wrong = {text for text, mapped in dropped if refused(mapped)}
    assert dropped and wrong == {text for text, _ in dropped} - {BEGUN}


def refused(mapped: MappedProgram) -> bool:
    try:
        check_orders(mapped)
    except InternalError:
        return True
    return False


BEGUN = "drop wait at barrier begun (cluster)"  # that blocks have begun, the checker takes for granted


def test_operators_print_what_they_do_and_over_what() -> None:
    text = show(softmax(2, 2))
    assert "lead = X[i, 0] behind a multiple of 128 bytes\n" in text
    box = "q < 2, e < 8, 0 - c - 512 * q <= e < N - c - 512 * q"
    assert f"S0: copy v[8 * q + e] = from X[i, c + 512 * q + e] for {box}, else -inf:bf16  (now, aligned, repl" in text
    assert "S1: m[0] = Greatest of f32(v[x]) for x < 16  (replicated)\n" in text
    assert "S3: each x < 16: p[x] = from v[x], r[0]  (replicated)\n" in text
    assert "SL: g[0], z[0] = ScaledSum of partial m[0], s[0]  (over 32 lanes, replicated)\n" in text


def expanded(node: Node) -> Node:
    return expand(node) if isinstance(node, Operator) else node


def test_operators_mean_the_statements_of_their_expansion() -> None:
    whole = softmax(2, 1)
    (only,) = whole.host
    assert isinstance(only, Launch)
    apart = replace(whole, host=(replace(only, body=map_nodes(only.body, expanded)),))
    x = rows(2, 300)
    np.testing.assert_array_equal(run_softmax(whole, x), run_softmax(apart, x))


def test_a_wide_access_at_another_address_is_refused() -> None:
    x = rows(1, 20)
    with pytest.raises(TExprError, match="the elements of Y begin at no multiple of their bytes by S10"):
        simulate(softmax(2, 1), {"X": x, "Y": np.zeros_like(x)}, addresses={"X": 0, "Y": 2})


def test_a_wide_access_to_elements_apart_is_refused() -> None:
    moved = copy("S0", "v[e] = A[2 * e]", "e < 4", access="aligned")
    mapped = program("A: i32[32]", launch(moved, threads=32), registers={"v": (4,)})
    with pytest.raises(TExprError, match="the elements of A are no neighbours by S0"):
        simulate(mapped, {"A": np.zeros(32, np.int32)}, addresses={"A": 0})


def test_unwanted_elements_are_not_touched_and_wanted_ones_must_be_there() -> None:
    moved = copy("S0", "v[e] = A[e + 2]", "e < 4", within=("0 - 2", "3"), other=7)
    stored = copy("S1", "B[e] = v[e]", "e < 4")
    mapped = program("A: i32[5], B: i32[4]", launch(moved, once(stored), threads=32), registers={"v": (4,)})
    arrays = {"A": np.arange(5, dtype=np.int32), "B": np.zeros(4, np.int32)}
    assert simulate(mapped, arrays)["B"].tolist() == [2, 3, 4, 7]
    past = replace(moved, within=None)
    reading_past = program("A: i32[5], B: i32[4]", launch(past, threads=32), registers={"v": (4,)})
    with pytest.raises(TExprError, match="subscript 0 of A is 5, and the extent is 5"):
        simulate(reading_past, arrays)


def test_all_lanes_of_a_group_come_to_a_reduction() -> None:
    summed = reduce("S0", "s[0]", "Sum", "A[l]", lanes=32)
    body = (define("l", lane=32), when("l < 5", summed))
    mapped = program("A: i32[32]", launch(*body, threads=32), registers={"s": (1,)})
    with pytest.raises(TExprError, match="not all of 32 lanes come to the reduction"):
        simulate(mapped, {"A": np.zeros(32, np.int32)})
    with pytest.raises(InternalError, match="S0 combines lanes where they diverge"):
        check_orders(mapped)


def test_lanes_combine_in_their_order() -> None:
    found = reduce("S0", "n[0]; m[0]; q[0]", "Moments", "A[l]", lanes=8, types=MOMENTS)
    body = (define("l", lane=32), found, do("S1", "B[l] = q[0]", types=MOMENTS))
    registers = {"n": (1,), "m": (1,), "q": (1,)}
    mapped = program("A: f32[32], B: f32[32]", launch(*body, threads=32), registers=registers, types=MOMENTS)
    a = np.random.default_rng(0).normal(size=32).astype(np.float32)
    got = simulate(mapped, {"A": a, "B": np.zeros(32, np.float32)})["B"]
    groups = a.reshape(4, 8).astype(np.float64)
    expected = np.repeat(((groups - groups.mean(1, keepdims=True)) ** 2).sum(1), 8)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


MOMENTS = dict.fromkeys(("A", "B", "n", "m", "q"), F32)
