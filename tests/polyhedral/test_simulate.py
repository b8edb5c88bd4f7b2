"""The simulator runs mapped programs as the interpreter runs kernels, and finds what a wrong mapping does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphs import barrier, define, do, index, last, launch
from graphs import program as by_hand
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stages import PIPE, edited, mapped, only_launch, with_launch, without_barrier, without_barriers

from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.operators import Generic, Unused
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Define, Guard, Node
from texpr.polyhedral.simulate.clocks import MAX_AGENTS
from texpr.polyhedral.simulate.stage import simulate


def with_body(program: MappedProgram, edit: Any) -> MappedProgram:
    """The program with its only launch's nodes passed through `edit`."""
    return with_launch(program, edited(only_launch(program), edit))


def bare(program: MappedProgram) -> MappedProgram:
    return with_launch(program, without_barriers(only_launch(program)))


def failure(program: MappedProgram, arrays: dict[str, Any], **options: Any) -> str:
    with pytest.raises(TExprError) as caught:
        simulate(program, arrays, **options)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0604"
    return diagnostic.message


COUNT = "kernel count(C: i32[M, N]) { par M i, N j { C[i, j] += 1 } }"
SPREAD = "kernel spread(C: i32[M, N], X: i32[N]) { par M i, N j #vector(1) { C[i, j] = X[j] } }"
ROW = "kernel row(C: i32[M, N]) where N >= 1 { par M i { C[i, 0] += 1; par N - 1 j { C[i, j + 1] += 1 } } }"
TRIANGLE = "kernel triangle(C: i32[M, N]) { par M i { par N - i j { C[i, j] += 1 } } }"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([COUNT, ROW]),
    st.integers(0, 70),
    st.one_of(st.integers(1, 40), st.sampled_from([255, 256, 257, 300])),
    st.sampled_from(["cuda:sm_90a", "cpu"]),
    st.sampled_from(["", " #threads(32)", " #threads(64)", " #threads(96)", " #threads(1024)"]),
    st.booleans(),
)
def test_every_iteration_runs_exactly_once(text: str, m: int, n: int, target: str, threads: str, free: bool) -> None:
    text = text.replace(" { par", f"{threads} {{ par", 1)
    program = mapped(text, target, **({} if free else {"M": m, "N": n}))
    got = simulate(program, {"C": np.zeros((m, n), dtype=np.int32)}, seed=m)
    assert (got["C"] == 1).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from(["cuda:sm_90a", "cpu"]))
def test_every_iteration_of_a_triangle_runs_exactly_once(m: int, n: int, target: str) -> None:
    got = simulate(mapped(TRIANGLE, target), {"C": np.zeros((m, n), dtype=np.int32)})
    assert (got["C"] == (np.arange(n)[None, :] < n - np.arange(m)[:, None])).all()


TILES = """kernel tiles(A: T[2, 3, E], C: T[2]) {
    par 2 b { seq 3 q { par E e { C[b] += A[b, q, e] } } }
}"""


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("extent", [1, 31, 32, 33, 64, 128, 255, 256, 257, 512])
def test_a_sum_over_tiles_is_right_whether_a_tile_fills_the_threads_or_not(extent: int, dtype: Any) -> None:
    text = TILES.replace("T[", "f32[" if dtype is np.float32 else "i32[").replace("E", str(extent))
    tiles = np.arange(6 * extent, dtype=dtype).reshape(2, 3, extent) % 7
    got = simulate(mapped(text), {"A": tiles, "C": np.array([1, 2], dtype)})["C"]
    np.testing.assert_array_equal(got, tiles.sum(axis=(1, 2)) + np.array([1, 2]))


def test_digits_that_a_loop_defines_are_named_in_it_only() -> None:
    launch = only_launch(mapped(TILES.replace("T[", "i32[").replace("E", "128")))
    around = [node for node in launch.body if isinstance(node, Generic)]
    assert [(s.id, s.digits, s.unused) for s in around] == [
        ("S0_init", (), Unused.REPLICATED),
        ("S0_out", (), Unused.REPLICATED),
    ]


REVERSED = """kernel reversed(A: f32[M, 64]) {
    par M i {
        new t: f32[64]
        par 64 a { t[a] = A[i, a] }
        par 64 b { A[i, b] = t[63 - b] }
    }
}"""


def matrix(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_blocks_in_any_order_give_one_result() -> None:
    program = mapped(REVERSED)
    results = [simulate(program, {"A": matrix(9, 64)}, seed=seed)["A"] for seed in range(4)]
    for result in results:
        np.testing.assert_array_equal(result, matrix(9, 64)[:, ::-1])


def test_a_missing_barrier_is_a_race_that_names_both_lines() -> None:
    message = failure(bare(mapped(REVERSED)), {"A": matrix(2, 64)})
    assert "no barrier orders S0 (line 4) and S1 (line 5)" in message


@pytest.mark.parametrize("number", [0, 1])
def test_every_barrier_of_a_loop_is_missed(number: int) -> None:
    program = mapped(PIPE)
    arrays = {"A": matrix(2, 3, 64), "B": matrix(2, 64)}
    launch = without_barrier(only_launch(program), number)
    assert "no barrier orders" in failure(with_launch(program, launch), arrays)
    simulate(program, arrays)


def test_a_barrier_of_a_warp_does_not_order_two_warps() -> None:
    def edit(node: Node) -> tuple[Node, ...]:
        return (replace(node, scope=Scope.WARP),) if isinstance(node, Barrier) else (node,)

    assert "no barrier orders" in failure(with_body(mapped(REVERSED), edit), {"A": matrix(2, 64)})


def test_a_barrier_that_some_threads_miss_is_found() -> None:
    def edit(node: Node) -> tuple[Node, ...]:
        waits = Barrier(scope=Scope.BLOCK, orders=())
        return (replace(node, body=(waits, *node.body)),) if isinstance(node, Guard) else (node,)

    program = with_body(bare(mapped(REVERSED.replace("64", "48").replace("63", "47"))), edit)
    message = failure(program, {"A": matrix(2, 48)})
    assert "not all threads of a block reach the barrier" in message


def spread(rows: int, columns: int) -> dict[str, Any]:
    return {"C": np.zeros((rows, columns), dtype=np.int32), "X": np.arange(columns, dtype=np.int32)}


def test_a_lost_padding_guard_leaves_the_buffer() -> None:
    program = mapped(SPREAD, M=5, N=33)
    wrong = with_body(program, lambda node: node.body if isinstance(node, Guard) else (node,))
    assert "and the extent is" in failure(wrong, spread(5, 33))


def test_a_wrong_weight_makes_threads_meet() -> None:
    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Define) and node.index == "j":
            return (replace(node, digits=tuple(replace(d, weight=0) for d in node.digits)),)
        return (node,)

    wrong = with_body(mapped(SPREAD, M=4, N=64), edit)
    assert "no barrier orders" in failure(wrong, spread(4, 64))


def test_an_author_s_atomic_update_is_one_whatever_is_promised_of_it() -> None:
    text = "kernel k(at: i32[64], X: f32[64], inout H: f32[4]) { par 64 i { atomic H[at[i]] max= X[i] #unique } }"
    at, x = np.arange(64, dtype=np.int32) % 4, np.arange(64, dtype=np.float32)
    made = simulate(mapped(text), {"at": at, "X": x, "H": np.zeros(4, np.float32)})
    assert made["H"].tolist() == [60, 61, 62, 63]


def test_an_update_that_should_be_atomic_is_a_race() -> None:
    program = mapped("kernel total(A: f32[N], s: f32[1]) { par N i { s[0] += A[i] } }", N=40)
    arrays = {"A": matrix(40), "s": np.zeros(1, dtype=np.float32)}
    assert simulate(program, arrays)["s"][0] == matrix(40).sum()

    def edit(node: Node) -> tuple[Node, ...]:
        return (replace(node, atomic=False),) if isinstance(node, Generic) else (node,)

    assert "no barrier orders S0 (line 1) and S0" in failure(with_body(program, edit), arrays)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 9), st.sampled_from([0, 1, 63, 64, 255, 257, 1024, 4097]), st.booleans(), st.booleans())
def test_a_total_counts_every_element_once(m: int, n: int, free: bool, rows: bool) -> None:
    target = "y[i]" if rows else "y[0]"
    text = f"kernel total(A: i32[M, N], y: i32[M + 1]) {{ par M i, N j {{ {target} += A[i, j] }} }}"
    program = mapped(text, **({} if free else {"M": m, "N": n}))
    got = simulate(program, {"A": np.ones((m, n), np.int32), "y": np.zeros(m + 1, np.int32)})["y"]
    np.testing.assert_array_equal(got, [n] * m + [0] if rows else [n * m] + [0] * m)


def test_a_dropped_statement_leaves_an_element_undefined() -> None:
    def edit(node: Node) -> tuple[Node, ...]:
        return () if isinstance(node, Generic) and node.id == "S0" else (node,)

    program = bare(with_body(mapped(REVERSED), edit))
    message = failure(program, {"A": matrix(2, 64)})
    assert message.startswith("element (63,) of t is read before anything wrote it by S1")


def test_a_gather_out_of_bounds_is_found() -> None:
    program = mapped("kernel g(A: f32[N], p: i32[N], B: f32[N]) { par N i { B[i] = A[p[i]] } }")
    arrays = {"A": matrix(4), "p": np.array([0, 1, 7, 2], dtype=np.int32), "B": matrix(4)}
    assert failure(program, arrays).startswith("subscript 0 of A is 7, and the extent is 4")


def counted(blocks: int, n: str, read: str) -> MappedProgram:
    """Blocks read some row of A, and the last one of the even, and of the odd, writes row 0, and row 1."""
    body = (
        define("i", lane=32),
        define("b", grid=blocks),
        do("S0", f"P[b, i] = A[{read}, i]"),
        last("tickets", n, do("S1", "A[b % 2, i] = 7"), at=["b % 2"]),
    )
    return by_hand(
        f"A: i32[2, 32], P: i32[{blocks}, 32]",
        launch(*body, threads=32, grid=blocks),
        words=(Words(name="tickets", shape=(index(2),), init=Init.ZERO_ONCE),),
    )


def rows(blocks: int) -> dict[str, Any]:
    return {"A": np.ones((2, 32), np.int32), "P": np.zeros((blocks, 32), np.int32)}


def in_clusters(clusters: int, row: str) -> MappedProgram:
    """Each block of a cluster of two turns a row around, which it has in shared memory."""
    body = (
        define("b", grid=2 * clusters),
        define("r", rank=2),
        define("i", lane=32),
        do("S0", "t[i] = A[b, i]"),
        barrier("block"),
        do("S1", f"B[b // 2, {row}, i] = t[31 - i]"),
    )
    return by_hand(
        f"A: i32[{2 * clusters}, 32], B: i32[{clusters}, 2, 32]",
        launch(*body, threads=32, grid=2 * clusters, cluster=2),
        shared={"t": (32,)},
    )


def test_clusters_whose_blocks_share_only_global_memory_may_have_more_threads_than_run_interleaved() -> None:
    clusters = MAX_AGENTS // 64 + 1
    a = np.arange(clusters * 64, dtype=np.int32).reshape(-1, 32)
    got = simulate(in_clusters(clusters, "r"), {"A": a, "B": np.zeros((clusters, 2, 32), np.int32)})
    np.testing.assert_array_equal(got["B"].reshape(-1, 32), a[:, ::-1])


@pytest.mark.parametrize("interleaved", [False, True])
def test_nothing_orders_two_blocks_because_they_are_of_one_cluster(interleaved: bool) -> None:
    arrays = {"A": np.ones((2, 32), np.int32), "B": np.zeros((1, 2, 32), np.int32)}
    assert "touch element (0, 0, " in failure(in_clusters(1, "0"), arrays, interleaved=interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
def test_blocks_of_one_counter_need_not_be_neighbours(interleaved: bool) -> None:
    got = simulate(counted(6, "3", "b % 2"), rows(6), interleaved=interleaved)
    assert (got["A"] == 7).all()
    assert (got["P"] == 1).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_block_between_those_that_are_counted_together_is_none_of_them(interleaved: bool) -> None:
    message = failure(counted(3, "2 - b % 2", "0"), rows(3), interleaved=interleaved)
    assert "touch element (0, 0) of A and" in message
