"""A combined reduction is bound where its element was just bound to what it starts from, and only there."""

import re

import numpy as np
import pytest
from stages import mapped

from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import every_node, launches
from texpr.polyhedral.simulate.stage import simulate

SUM = "kernel f(X: f32[M, 600], S: f32[M]) { par M i { S[i] = sum 600 j { X[i, j] } } }"
DYNAMIC = SUM.replace("600", "N")
FROM_ONE = "kernel f(X: f32[M, 600], S: f32[M]) { par M i { S[i] = 1.0; seq 600 j { S[i] += X[i, j] } } }"
READ_BETWEEN = """kernel f(X: f32[M, 600], S: f32[M], T: f32[M]) {
    par M i {
        S[i] = 0.0
        T[i] = S[i]
        seq 600 j { S[i] += X[i, j] }
    }
}"""
TWICE = """kernel f(X: f32[M, 600], S: f32[M]) {
    par M i {
        S[i] = 0.0
        seq 600 j { S[i] += X[i, j] }
        seq 600 k { S[i] += X[i, k] * 2.0 }
    }
}"""
SHORT = "kernel f(X: bf16[M, 256], S: bf16[M]) { par M i { S[i] = sum 256 j { X[i, j] } } }"
MAXIMUM = "kernel f(X: f32[M, 600], S: f32[M]) { par M i { S[i] = maximum 600 j { X[i, j] } } }"


def written(text: str, **sizes: int) -> list[str]:
    """Who writes the sums, in the order of the last launch, which is that of all sizes."""
    *_, launch = launches(mapped(text, **sizes).host)
    nodes = (node for node in every_node(launch.body) if isinstance(node, Generic))
    return [node.id for node in nodes if any(name == "S" for name, _ in node.writes)]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (SUM, ["S1_out"]),
        (MAXIMUM, ["S1_out"]),
        (DYNAMIC, ["S1_out", "S0"]),
        (FROM_ONE, ["S0", "S1_out"]),
        (READ_BETWEEN, ["S0", "S2_out"]),
        (TWICE, ["S1_out", "S2_out"]),
    ],
)
def test_an_element_is_bound_once_where_it_is_only_a_sum(text: str, ids: list[str]) -> None:
    assert written(text, M=4096) == ids


def test_a_warp_of_several_binds_its_sum_once() -> None:
    assert written(SHORT, M=65536) == ["S1_out"]


def test_a_cluster_binds_its_sum_once() -> None:
    long = SHORT.replace("256", "100003")
    assert written(long, M=257) == ["S1_out"]


def test_a_sum_of_nothing_is_bound_in_the_other_arm() -> None:
    assert re.search(r"else\n +S0: S\[i\] = a constant", show(mapped(DYNAMIC, M=4096)))


@pytest.mark.parametrize("text", [SUM, DYNAMIC, FROM_ONE, READ_BETWEEN, TWICE, MAXIMUM])
def test_the_sums_are_those_of_the_program(text: str) -> None:
    x = np.random.default_rng(7).integers(-4, 5, (3, 600)).astype(np.float32)
    arrays = {"X": x, "S": np.full(3, 9, np.float32)} | ({"T": np.ones(3, np.float32)} if "T:" in text else {})
    found = simulate(mapped(text, M=3), arrays)["S"]
    want = {FROM_ONE: 1 + x.sum(1), TWICE: 3 * x.sum(1), MAXIMUM: x.max(1)}.get(text, x.sum(1))
    assert (found == want).all()


def test_the_sums_of_no_columns_are_what_they_start_from() -> None:
    arrays = {"X": np.zeros((3, 0), np.float32), "S": np.full(3, 9, np.float32)}
    assert not simulate(mapped(DYNAMIC), arrays)["S"].any()
