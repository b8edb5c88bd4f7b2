"""Memory-bound kernels by hand: printed, checked, simulated, at odd sizes and any address."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from graphs import copy, define, do, launch, once, program, reduce, when
from memory_by_hand import cluster_softmax, softmax, ticket_sum, transpose
from spoil import spoiled

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.codegen.toolchain import compile_cubin
from texpr.grammar.diagnostics import Diagnostic, InternalError, TExprError
from texpr.grammar.types import BF16, F32
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


@pytest.mark.parametrize(("m", "n"), [(67, 41), (1, 33), (48, 32), (7, 1)])
def test_a_transpose_reads_and_writes_whole_chunks_at_any_address(m: int, n: int) -> None:
    x = rows(m, n)
    got = simulate(transpose(64, 32), {"X": x, "Y": np.full((n, m), np.nan, x.dtype)}, seed=m)["Y"]
    np.testing.assert_array_equal(got, x.T)


KERNELS = {
    "softmax": softmax(2, 1),
    "sum": ticket_sum(2, 2, 3),
    "cluster": cluster_softmax(2, 1, 1),
    "transpose": transpose(64, 32),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_checker_finds_every_order(name: str) -> None:
    check_orders(KERNELS[name])


@pytest.mark.parametrize("name", KERNELS)
def test_every_barrier_that_goes_is_missed(name: str) -> None:
    dropped = [(text, m) for text, m in spoiled(KERNELS[name]) if re.match(r"drop (.* at )?barrier", text)]
    wrong = {text for text, mapped in dropped if refused(mapped)}
    assert dropped and wrong == {text for text, _ in dropped}


def refused(mapped: MappedProgram) -> bool:
    try:
        check_orders(mapped)
    except InternalError:
        return True
    return False


def test_operators_print_what_they_do_and_over_what() -> None:
    text = show(softmax(2, 2))
    assert "lead = X[i, 0] behind a multiple of 128 bytes\n" in text
    box = "q < 2, e < 8, 0 - c - 512 * q <= e < N - c - 512 * q"
    assert f"S0: copy v[8 * q + e] = from X[i, c + 512 * q + e] for {box}, else -inf:bf16  (now, aligned, repl" in text
    assert "S1: b[0] = Greatest of v[x] for x < 16  (replicated)\n" in text
    assert "S4: each x < 16: p[x] = from v[x], r[0]  (replicated)\n" in text
    assert "S6: g[0], z[0] = ScaledSum of partial m[0], s[0]  (over 32 lanes, replicated)\n" in text


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
    with pytest.raises(TExprError, match="the elements of Y begin at no multiple of their bytes by S12"):
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
    summed = reduce("S0", "s[0]", "A[l]", monoid="Sum", lanes=32)
    body = (define("l", lane=32), when("l < 5", summed))
    mapped = program("A: i32[32]", launch(*body, threads=32), registers={"s": (1,)})
    with pytest.raises(TExprError, match="not all of 32 lanes come to the reduction"):
        simulate(mapped, {"A": np.zeros(32, np.int32)})
    with pytest.raises(InternalError, match="S0 combines lanes where they diverge"):
        check_orders(mapped)


def test_lanes_combine_in_their_order() -> None:
    found = reduce("S0", "n[0]; m[0]; q[0]", "A[l]", monoid="Moments", lanes=8, types=MOMENTS)
    body = (define("l", lane=32), found, do("S1", "B[l] = q[0]", types=MOMENTS))
    registers = {"n": (1,), "m": (1,), "q": (1,)}
    mapped = program("A: f32[32], B: f32[32]", launch(*body, threads=32), registers=registers, types=MOMENTS)
    a = np.random.default_rng(0).normal(size=32).astype(np.float32)
    got = simulate(mapped, {"A": a, "B": np.zeros(32, np.float32)})["B"]
    groups = a.reshape(4, 8).astype(np.float64)
    expected = np.repeat(((groups - groups.mean(1, keepdims=True)) ** 2).sum(1), 8)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


MOMENTS = dict.fromkeys(("A", "B", "n", "m", "q"), F32)


# ---- the same as CUDA ----


HOST = {
    "softmax": softmax(2, 1, "softmax_0"),
    "sum": ticket_sum(2, 2, 3, "sum_0"),
    "cluster": cluster_softmax(2, 1, 1, "cluster_0"),
    "transpose": transpose(64, 32, "transpose_0"),
}


@cache
def emitted() -> dict[str, Emitted]:
    return {name: Emitted(mapped) for name, mapped in HOST.items()}


def source() -> str:
    return "\n".join(e.source for e in emitted().values())


@cache
def module() -> HostModule:
    return HostModule(source(), werror=True)


def placed(array: Any, base: int) -> Any:
    """The array from so many bytes behind a multiple of 128 in memory."""
    memory = np.zeros(array.nbytes + 2 * 128, np.uint8)
    first = -memory.ctypes.data % 128 + base
    found = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def run_text(name: str, arrays: dict[str, Any], seed: int = 0) -> Diagnostic | None:
    return emitted()[name].run(module(), arrays, seed)


@pytest.mark.gxx
@pytest.mark.parametrize("name", ["softmax", "cluster"])
@pytest.mark.parametrize(("m", "n", "base"), [(3, 203, 6), (2, 1, 126), (3, 431, 30)])
def test_the_text_of_a_softmax_is_right_on_the_cpu(name: str, m: int, n: int, base: int) -> None:
    x = rows(m, n)
    x[0, : n // 2] = -np.inf
    arrays = {"X": placed(x, base), "Y": placed(np.full_like(x, np.nan), base)}
    for seed in (0, 1, 77):
        assert run_text(name, arrays, seed) is None
        np.testing.assert_allclose(arrays["Y"].astype(np.float64), softmax_of(x), rtol=0.01)


@pytest.mark.gxx
@pytest.mark.parametrize("n", [1, 5000, 4099])
def test_the_text_of_a_sum_is_right_on_the_cpu_in_every_order(n: int) -> None:
    a = np.random.default_rng(n).normal(size=n).astype(np.float32)
    for seed in (0, 1, 77):
        arrays = {"A": placed(a, 4 * seed % 128), "B": np.full(1, np.nan, np.float32)}
        assert run_text("sum", arrays, seed) is None
        np.testing.assert_allclose(arrays["B"], a.astype(np.float64).sum(), rtol=1e-5, atol=1e-4)


@pytest.mark.gxx
@pytest.mark.parametrize(("m", "n", "base"), [(67, 41, 2), (1, 33, 30), (48, 32, 0), (7, 1, 126)])
def test_the_text_of_a_transpose_is_right_on_the_cpu(m: int, n: int, base: int) -> None:
    x = rows(m, n)
    arrays = {"X": placed(x, base), "Y": placed(np.full((n, m), np.nan, x.dtype), 126 - base)}
    assert run_text("transpose", arrays) is None
    np.testing.assert_array_equal(arrays["Y"], x.T)


@pytest.mark.gxx
def test_a_vector_at_another_address_is_told_on_the_cpu() -> None:
    x = rows(1, 20)
    report = run_text("softmax", {"X": placed(x, 0), "Y": placed(x, 2)})
    assert report is not None and report.witness is not None and report.witness["kind"] == "alignment"


@pytest.mark.nvcc
def test_the_texts_compile_without_warnings() -> None:
    assert compile_cubin(source(), "sm_90a", werror=True)


def test_a_reduction_and_a_wide_copy_are_one_call_each() -> None:
    mapped = softmax(2, 2)
    text = emit_cuda(plan(mapped), mapped.target).source
    for line in CALLS:
        assert line in text, line


CALLS = (
    "const int N = int(N_i64);",
    "const int lead = tx::lead<128>(X, tx::i64(i) * N);",
    "tx::load_inside<8>(X, tx::i64(i) * N + c + 512 * q, tx::Wanted<8>(0 - c, N - c, 512 * q), M * N));",
    "tx::fill(v, 8 * q_2, tx::Wanted<8>(0 - c, N - c, 512 * q_2), tx::bf16{0xff80});",
    "const tx::bf16 b = tx::fold<tx::Greatest<tx::bf16>, 16>([&](int x) { return v(x); });",
    "tx::reduce_lanes<tx::ScaledSum<tx::f32>>(tx::ScaledSum<tx::f32>::Partial{m, s});",
    "tx::rounded<tx::bf16, 8>(o, 0), tx::Wanted<8>(0 - c, N - c, 512 * q_3));",
)


def test_blocks_of_a_cluster_wait_for_one_another_where_they_first_touch_another() -> None:
    lines = [line.strip() for line in emitted()["cluster"].source.splitlines()]
    arrive, wait = lines.index("tx::cluster_arrive_relaxed();"), lines.index("tx::cluster_wait();")
    loads = next(n for n, line in enumerate(lines) if "tx::load_inside<8>(X" in line)
    pushes = next(n for n, line in enumerate(lines) if "tx::remote(gs, l).store(" in line)
    assert arrive < loads < wait < pushes


def test_exponentials_that_may_be_approximate_are() -> None:
    mapped = cluster_softmax(2, 1, 1, fast=True)
    text = emit_cuda(plan(mapped), mapped.target).source
    assert text.count("tx::fast_exp(") == 2 and "tx::exp(" not in text


def test_a_funnel_reads_a_swizzled_tile_chunk_by_chunk() -> None:
    source = emitted()["transpose"].source
    assert "tx::chunks<8, tx::Swizzled<3, 3, 6>>(t, j * 64 + x).shifted()" in source
    assert "tx::store(t, tx::swizzled<3, 3, 6>(" in source


def one(node: Node, **registers: tuple[int, ...]) -> MappedProgram:
    return program("A: i32[32], B: i32[32]", launch(node, threads=32), registers=registers)


REFUSED = (
    (reduce("S0", "s[0]", "A[0]", monoid="Sum", lanes=6), "S0 combines 6 lanes, which are no group"),
    (reduce("S0", "s[0]", "A[a]", monoid="Sum", over="a < 2, e < 2"), "S0 combines several indices"),
    (reduce("S0", "s[0]", "A[a]", monoid="Sum", over="a < x"), "so many elements as no number says"),
    (reduce("S0", "s[0]", "s[0]", monoid="Sum", lanes=2, types={"s": BF16}), "values of bf16 by Sum"),
    (copy("S0", "s[e] = A[e]", "e < 3", access="aligned"), "S0 is no access of 1, 2, 4, 8 or 16 bytes"),
    (copy("S0", "s[e] = A[2 * e]", "e < 4", access="aligned"), "S0 moves elements of A that are no neighbours"),
    (copy("S0", "B[e] = A[e]", "e < 4", access="aligned"), "S0 is between two memories"),
    (copy("S0", "A[e] = s[e]", "e < 4", access="funnel"), "only loads may be shifted"),
    (copy("S0", "s[e] = A[e]", "e < 4", within=("0", "2"), access="aligned"), "does not say what becomes of those"),
)


@pytest.mark.parametrize(("node", "why"), REFUSED)
def test_what_no_header_function_does_is_refused_with_a_way_round(node: Node, why: str) -> None:
    mapped = one(define("x", lane=32), s=(4,))
    (only,) = mapped.host
    assert isinstance(only, Launch)
    mapped = replace(mapped, host=(replace(only, body=(*only.body, node)),))
    with pytest.raises(TExprError, match=why) as refused:
        emit_cuda(plan(mapped), mapped.target)
    assert refused.value.diagnostics[0].code == "E0502" and refused.value.diagnostics[0].help


def test_blocks_that_fit_together_bound_the_registers() -> None:
    mapped = transpose(64, 32, "transpose_0", 3)
    assert "__launch_bounds__(32, 3)" in emit_cuda(plan(mapped), mapped.target).source
    assert "32 threads, at least 3 blocks together" in show(mapped)


def test_exponentials_that_are_not_kept_are_computed_again() -> None:
    x = rows(2, 1999)
    again = softmax(1, 9, keep=False)
    assert "p[x]" not in show(again)
    np.testing.assert_allclose(run_softmax(again, x).astype(np.float64), softmax_of(x), rtol=0.01)
