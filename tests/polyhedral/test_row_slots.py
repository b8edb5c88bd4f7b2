"""Rows in slots of shared memory, where each thread has its own: right wherever they fit, and refused elsewhere."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import const, constant_value
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.candidate import Blocks, Candidate
from texpr.polyhedral.mapped.candidate_json import candidate_json, read_candidate
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier, Close, WaitGroup
from texpr.polyhedral.mapped.tree import Loop, Node
from texpr.polyhedral.mapped.walks import every_node, map_launches, map_nodes, of_kind, operators
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

SOFTMAX = """kernel k(X: {t}[M, {n}], Y: {t}[M, {n}]) {{ par M i {{
    let m = maximum {n} k {{ f32(X[i, k]) }}
    let s = sum {n} k {{ exp(f32(X[i, k]) - m) }}
    par {n} j {{ Y[i, j] = {t}(exp(f32(X[i, j]) - m) / s) }}
}} }}"""
NORM = """kernel k(X: {t}[M, {n}], G: {t}[{n}], Y: {t}[M, {n}]) {{ par M i {{
    let m = (sum {n} k {{ f32(X[i, k]) }}) / {n}.0
    let v = sum {n} k {{ (f32(X[i, k]) - m) * (f32(X[i, k]) - m) }}
    par {n} j {{ Y[i, j] = {t}((f32(X[i, j]) - m) * rsqrt(v / {n}.0 + 1.0e-5) * f32(G[j])) }}
}} }}"""
SCALED = """kernel k(inout X: {t}[M, {n}]) {{ par M i {{
    let s = sum {n} k {{ f32(X[i, k]) * f32(X[i, k]) }}
    par {n} j {{ X[i, j] = {t}(f32(X[i, j]) * rsqrt(s + 1.0)) }}
}} }}"""
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


def usual(program: MappedProgram) -> tuple[str, Blocks]:
    assert isinstance(program.candidate, Candidate)
    ((name, choice),) = program.candidate.launches.items()
    assert isinstance(choice, Blocks) and choice.rows
    return name, choice


def in_slots(text: str, threads: int = 0, **changes: Any) -> MappedProgram:
    """The program with its rows in slots, by so many threads."""
    name, choice = usual(mapped(text, M=2))
    if threads:
        inner = {index: tuple((i, threads) for i, _ in deal) for index, deal in choice.inner.items()}
        choice = replace(choice, threads=threads, inner=inner)
    rows = tuple(replace(row, slots=True) for row in choice.rows)
    return mapped(text, choices=Candidate(launches={name: replace(choice, rows=rows, **changes)}), M=2)


def want(text: str, x: Any, g: Any) -> Any:
    wide = x.astype(float)
    if text is SOFTMAX:
        powers = np.exp(wide - wide.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if text is NORM:
        off = wide - wide.mean(1, keepdims=True)
        return off / np.sqrt((off**2).mean(1, keepdims=True) + 1e-5) * g.astype(float)
    return wide / np.sqrt((wide**2).sum(1, keepdims=True) + 1.0)


@pytest.mark.parametrize(
    ("text", "dtype", "n"),
    [
        (SOFTMAX, "f32", 517), (SOFTMAX, "bf16", 1027), (NORM, "f32", 520), (NORM, "bf16", 1027), (SCALED, "bf16", 517),
        (SCALED, "f32", 512), (SCALED, "f32", 515),
    ],
)  # fmt: skip
def test_rows_in_slots_are_right(text: str, dtype: str, n: int) -> None:
    random = np.random.default_rng(n)
    x, g = (random.standard_normal(shape).astype(TYPES[dtype]) for shape in ((2, n), (n,)))
    expected = want(text, x, g)
    for cluster in (1, 2):
        program = in_slots(text.format(t=dtype, n=n), 64, cluster=cluster)
        arrays = {"X": x.copy()} | ({"G": g} if text is NORM else {})
        arrays |= {} if text is SCALED else {"Y": np.full((2, n), np.nan).astype(x.dtype)}
        got = simulate(program, arrays, seed=n)["X" if text is SCALED else "Y"].astype(float)
        assert np.abs(got - expected).max() < (1e-5 if dtype == "f32" else 4e-2)


def test_a_thread_waits_for_its_own_slots_alone() -> None:
    program = in_slots(SOFTMAX.format(t="f32", n=1027), 64)
    body = only_launch(program).body
    brought = [c for c in operators(body) if isinstance(c, Copy) and c.completion is Completion.CP_ASYNC]
    barriers = [node for node in every_node(body) if isinstance(node, Barrier) and node.scope is Scope.BLOCK]
    assert [c.source.buffer for c in brought] == ["X"] and len(barriers) == 2  # of two sums over two warps
    assert not any(c.source.buffer == "X" for c in operators(body) if isinstance(c, Copy) and c not in brought)


def test_runs_are_waited_for_one_by_one_in_the_first_loop_over_them() -> None:
    """As many groups are left on their way as there are runs behind: an empty one counts for each that came."""
    body = only_launch(in_slots(SOFTMAX.format(t="f32", n=1027), 64)).body
    loops = [node for node in body if isinstance(node, Loop)]
    (brought,) = (loop for loop in loops if any(c.completion is Completion.CP_ASYNC for c in of_kind(loop.body, Copy)))
    waiting = [loop for loop in loops if any(of_kind(loop.body, WaitGroup))]
    rounds = constant_value(brought.extent)
    assert rounds == 5 and len(list(of_kind(brought.body, Close))) == 1 and len(waiting) == 1
    wait, empty = waiting[0].body[:2]
    assert isinstance(wait, WaitGroup) and isinstance(empty, Close) and wait.behind == rounds - 1


@pytest.mark.parametrize("less", [1, 2])
def test_a_wait_for_fewer_runs_is_missed(less: int) -> None:
    program = in_slots(SOFTMAX.format(t="f32", n=1027), 64)

    def late(node: Node) -> Node:
        return replace(node, behind=node.behind + less) if isinstance(node, WaitGroup) else node

    check_orders(program)
    hasty = map_launches(program.host, lambda one: replace(one, body=map_nodes(one.body, late)))
    with pytest.raises(InternalError):
        check_orders(replace(program, host=hasty))


def test_their_text_computes_the_same() -> None:
    program = in_slots(NORM.format(t="bf16", n=1027), 64)
    random = np.random.default_rng(3)
    x, g = (random.standard_normal(shape).astype(TYPES["bf16"]) for shape in ((2, 1027), (1027,)))
    arrays = {"X": x, "G": g, "Y": np.full((2, 1027), np.nan).astype(x.dtype)}
    emitted = Emitted(program)
    assert emitted.source.count("tx::cp_async_wait<2>();") == 1
    assert emitted.run(HostModule(emitted.source), arrays) is None
    assert np.abs(arrays["Y"].astype(float) - want(NORM, x, g)).max() < 4e-2


def test_long_rows_fill_the_slots_of_small_blocks_to_the_last_one() -> None:
    """A row may begin 63 elements behind a line: one element more, and a thread needs another run."""
    for n, runs in ((100289, 7), (114625, 8)):
        program, more = (mapped(NORM.format(t="bf16", n=length), M=2) for length in (n, n + 1))
        choice, other = usual(program)[1], usual(more)[1]
        assert (choice.cluster, choice.threads, choice.rows[0].slots) == (8, 224, True) and other.threads != 224
        assert program.buffers["X_row"].layout.shape[0] == const(runs) and 8 * 8 * 224 * runs == n + 63
        check_orders(program)


def test_small_blocks_that_a_long_row_fills_are_right_as_cuda() -> None:
    n, random = 100289, np.random.default_rng(7)
    emitted = Emitted(mapped(NORM.format(t="bf16", n=n), M=2))
    x, g = (random.standard_normal(shape).astype(TYPES["bf16"]) for shape in ((2, n), (n,)))
    arrays = {"X": x, "G": g, "Y": np.full((2, n), np.nan).astype(x.dtype)}
    assert emitted.run(HostModule(emitted.source), arrays) is None
    assert np.abs(arrays["Y"].astype(float) - want(NORM, x, g)).max() < 4e-2


def test_a_candidate_says_where_its_rows_are() -> None:
    program = in_slots(SOFTMAX.format(t="f32", n=512))
    assert isinstance(program.candidate, Candidate)
    again = read_candidate(candidate_json(program.candidate))
    assert again == program.candidate and usual(program)[1].rows[0].slots


@pytest.mark.parametrize(
    ("text", "threads", "changes", "why"),
    [
        (SOFTMAX.format(t="f32", n=70000), 0, {"resident": 0, "cluster": 1}, "have room for"),
        (SOFTMAX.format(t="f32", n=20000), 0, {"resident": 3, "cluster": 1}, "have room for"),
        (SOFTMAX.format(t="f32", n=517).replace("X: f32[M, 517]", "X: f32[M, 517] #align(4)"), 64, {}, "whole chunks"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, threads: int, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why):
        in_slots(text, threads, **changes)
