"""Arguments of attributes: what they come to when sizes are bound, and which ones cannot be."""

import re

import pytest
from attribute_programs import ROWS, SUM, built, refusal

import texpr
from texpr.grammar.diagnostics import TExprError


@pytest.mark.parametrize(
    ("asked", "said"),
    [("#unroll(63)", "unrolled by 63"), ("#unroll(64)", "unrolled)"), ("#unroll(65)", "unrolled)")],
)
def test_more_at_a_time_than_there_are_iterations_is_all_of_them(asked: str, said: str) -> None:
    assert said in built(ROWS % ("", f"#thread {asked}"))


def test_a_loop_of_free_extent_is_unrolled_by_a_number_only() -> None:
    text = "kernel f(A: f32[K], s: f32[1]) { s[0] = 0.0; seq K k #ordered %s { s[0] += A[k] } }"
    assert "TX_UNROLL_BY(4) for" in built(text % "#unroll(4)")
    assert refusal(text % "#unroll", "cuda:sm_90a", "map") == {"E0401"}
    assert refusal(text % "#unroll(K)", "cuda:sm_90a", "map") == {"E0401"}


def test_a_loop_that_is_not_to_be_unrolled_is_not_however_short() -> None:
    short = SUM.replace("1024", "4")
    assert "TX_UNROLL for" in built(short % "")
    assert "TX_UNROLL_BY(1) for" in built(short % "#unroll(1)")


def test_a_loop_of_launches_is_not_unrolled() -> None:
    program = "kernel f(A: f32[8, N], C: f32[N]) { seq 8 k #unroll { par N i { C[i] = A[k, i] } } }"
    assert refusal(program, "cuda:sm_90a", "map") == {"E0402"}
    assert refusal(program, "cpu", "map") == {"E0402"}


@pytest.mark.parametrize(
    "program",
    [
        "kernel f(A: f32[64]) { new w: f32[64] #align(512); par 64 i { w[i] = 1.0 }; par 64 i { A[i] = w[i] } }",
        "kernel f(A: f32[64]) { par 64 i { new global w: f32[3] #align(64); w[0] = 1.0; A[i] = w[0] } }",
    ],
    ids=["beyond the start of a workspace", "of one copy for each iteration"],
)
def test_an_alignment_that_memory_does_not_have_is_refused(program: str) -> None:
    assert refusal(program, "cuda:sm_90a", "map") == {"E0402"}


def test_the_threads_of_a_size_are_judged_when_it_is_bound() -> None:
    kernel = next(iter(texpr.parse("kernel f(A: f32[64]) #threads(T) { size T = 64; par 64 i { A[i] = 1.0 } }")))
    assert "64 threads" in str(kernel.compile("cuda-host:sm_90a", stop_after="map").mapping)
    with pytest.raises(TExprError) as caught:
        kernel.compile("cuda-host:sm_90a", sizes={"T": 100}, stop_after="map")
    assert [d.code for d in caught.value.diagnostics] == ["E0401"]


def test_an_unrolling_by_a_size_is_judged_when_it_is_bound() -> None:
    text = "kernel f(A: f32[64], s: f32[1]) { size U = 8; s[0] = 0.0; seq 64 k #unroll(U) { s[0] += A[k] } }"
    kernel = next(iter(texpr.parse(text)))
    assert "unrolled by 8" in str(kernel.compile("cuda-host:sm_90a", stop_after="map").mapping)
    with pytest.raises(TExprError, match="at most 1024"):
        kernel.compile("cuda-host:sm_90a", sizes={"U": 1025}, stop_after="map")


def test_threads_of_a_reduction_at_kernel_level_are_obeyed_and_not_called_idle() -> None:
    asked = built("kernel f(A: f32[9000], s: f32[1]) #threads(64) { s[0] = sum 9000 k { A[k] } }")
    assert "64 threads" in asked and "changes nothing" not in asked


def test_as_many_blocks_as_are_asked_for_share_a_reduction() -> None:
    text = "kernel f(A: f32[9000000], s: f32[1]) #blocks_per_sm(%d) { s[0] = sum 9000000 k { A[k] } }"
    assert "__launch_bounds__(512, 2)" in built(text % 2)
    assert refusal(text % 5, "cuda:sm_90a", "map") == {"E0401"}
    assert "__launch_bounds__(512, 3)" in built(text % 3, "cuda:sm_89")
    assert refusal(text % 4, "cuda:sm_89", "map") == {"E0401"}


def test_a_grid_has_whole_clusters_and_blocks_beyond_the_band_do_nothing() -> None:
    text = "kernel f(A: f32[8192], C: f32[8192]) %s { par 8192 i { C[i] = A[i] } }"
    grid = re.search(r"grid \((\d+), 1, 1\)", built(text % ""))
    assert grid is not None
    blocks = int(grid[1])
    cut = built(text % "#cluster_shape(3)")
    assert blocks % 3 and f"grid ({-(-blocks // 3) * 3}, 1, 1)" in cut and f"if block_x < {blocks}  (padding)" in cut
    whole = built(text % f"#cluster_shape({blocks})")
    assert f"grid ({blocks}, 1, 1)" in whole and "block_x <" not in whole


@pytest.mark.parametrize(
    ("shape", "target", "code", "said"),
    [
        ("2", "cuda:sm_80", "E0401", "cuda:sm_80 has no clusters"),
        ("1, 2", "cuda:sm_90a", "E0401", "a cluster has 2 blocks along y, and the grid of f_0 has 1"),
        ("K", "cuda:sm_90a", "E0401", "the shape of a cluster is not known"),
        ("7", "cuda:sm_90a", "E0402", "are counted, and are no whole clusters"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(shape: str, target: str, code: str, said: str) -> None:
    text = f"kernel f(A: f32[K, 8000000], s: f32[K]) #cluster_shape({shape}) {{"
    with pytest.raises(TExprError, match=said) as caught:
        sum_ = "par K k { s[k] = sum 8000000 i { A[k, i] } } }" if code == "E0402" else "par K k { s[k] = A[k, 0] } }"
        sizes = {} if shape == "K" else {"K": 1 if code == "E0402" else 64}
        next(iter(texpr.parse(text + sum_))).compile(target, stop_after="map", sizes=sizes)
    assert [d.code for d in caught.value.diagnostics] == [code] and all(d.help for d in caught.value.diagnostics)


def test_blocks_whose_shared_memory_has_no_room_together_are_refused() -> None:
    text = (
        "kernel f(A: f32[8, 10240], C: f32[8, 10240]) #blocks_per_sm(%d) { par 8 b { new shared t: f32[10240]\n"
        "par 10240 i { t[i] = A[b, i] }; par 10240 j { C[b, j] = t[10239 - j] } } }"
    )
    assert ", 5)" in built(text % 5)
    assert refusal(text % 6, "cuda:sm_90a", "plan") == {"E0403"}
