"""Products on tensor cores that are soon over: what their launches begin with, and how their steps are unrolled."""

from functools import cache

import pytest

import texpr
from texpr.polyhedral.mapped.piped import Piped

TEXT = """kernel f(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""


@cache
def source(**sizes: int) -> str:
    return texpr.parse(TEXT).only.compile("cuda:sm_90a", **sizes).source


@pytest.mark.parametrize(
    ("sizes", "loop"),
    [
        ({"M": 1024, "N": 1024, "K": 1024}, "TX_UNROLL_BY(8) for (int k_step = 0; k_step < 16; ++k_step)"),
        ({"M": 1024, "N": 1024, "K": 1536}, "TX_UNROLL_BY(8) for (int k_step = 0; k_step < 24; ++k_step)"),
        ({"M": 8192, "N": 8192, "K": 1024}, "  for (int k_step = 0; k_step < 16; ++k_step)"),  # of several tiles
        (
            {"M": 2048, "N": 2048, "K": 2048},
            "TX_UNROLL_BY(1) for (int k_step = 0; k_step < 32; ++k_step)",
        ),  # of two groups
        ({"M": 4096, "N": 4096, "K": 4096}, "TX_UNROLL_BY(1) for (int k_step = 0; k_step < 64; ++k_step)"),
    ],
)
def test_steps_of_the_one_tile_of_a_warpgroup_are_unrolled_by_eight(sizes: dict[str, int], loop: str) -> None:
    assert loop in source(**sizes)


def test_a_thread_that_makes_no_barriers_asks_for_every_tensor_map_before_the_first_copy() -> None:
    text = source(M=1024, N=1024, K=1024)
    ahead = text[: text.index("tx::fence_barrier_init")]
    assert "if (tx::thread() == 224) {" in ahead
    assert [f"tx::prefetch_map({name}_box);" in ahead for name in "ABC"] == [True, True, True]


@pytest.mark.parametrize(("rows", "columns", "stages"), [(16, 4096, 8), (8, 14336, 6)])
def test_few_rows_are_brought_in_as_many_stages_as_are_fastest(rows: int, columns: int, stages: int) -> None:
    compiled = texpr.parse(TEXT).only.compile("cuda:sm_90a", stop_after="map", M=rows, N=columns, K=4096)
    (choice,) = compiled.mapping.candidate.launches.values()
    assert isinstance(choice, Piped)
    assert choice.stages == stages
