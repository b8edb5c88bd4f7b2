"""A partial result and what it becomes have one name where the two are never needed at once, and only there."""

import numpy as np
import pytest
from stages import mapped

from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, tree_buffers
from texpr.polyhedral.simulate.stage import simulate

SOFTMAX = """kernel f(X: f32[5, 64], Y: f32[5, 64]) {
    par 5 i {
        new m: f32
        new s: f32
        m = maximum 64 k { X[i, k] }
        s = sum 64 k { exp(X[i, k] - m) }
        par 64 j { Y[i, j] = exp(X[i, j] - m) / s }
    }
}"""
WRITTEN_AGAIN = """kernel f(X: f32[5, 64], Y: f32[5, 64]) {
    par 5 i {
        new m: f32
        m = maximum 64 k { X[i, k] }
        m = minimum 64 k { X[i, k] - m }
        par 64 j { Y[i, j] = m }
    }
}"""
TWICE = """kernel f(X: f32[5, 64], Y: f32[5, 64]) {
    par 5 i {
        new s: f32
        s = 0.0
        seq 64 k { s += X[i, k] }
        seq 64 q { s += X[i, q] * 2.0 }
        par 64 j { Y[i, j] = s }
    }
}"""
IN_MEMORY = "kernel f(X: f32[5, 64], Y: f32[5]) { par 5 i { Y[i] = sum 64 k { X[i, k] } } }"
FROM_ONE = """kernel f(X: f32[5, 64], Y: f32[5]) {
    par 5 i {
        new s: f32
        s = 1.0
        seq 64 k { s += X[i, k] }
        Y[i] = s
    }
}"""


def buffers(program: MappedProgram) -> set[str]:
    """The buffers that the last launch touches."""
    *_, launch = launches(program.host)
    return tree_buffers(launch.body)


@pytest.mark.parametrize(
    "text, parts",
    [(SOFTMAX, set()), (WRITTEN_AGAIN, set()), (TWICE, {"s_part_1"}), (IN_MEMORY, {"Y_part"}), (FROM_ONE, {"s_part"})],
    ids=["softmax", "written again", "twice", "in memory", "from one"],
)
def test_a_partial_result_keeps_a_name_of_its_own_only_where_it_needs_one(text: str, parts: set[str]) -> None:
    program = mapped(text)
    assert {name for name in buffers(program) if "_part" in name and "_parts" not in name} == parts
    x = np.random.default_rng(3).standard_normal((5, 64)).astype(np.float32)
    shape = program.buffers["Y"].shape
    found = simulate(program, {"X": x, "Y": np.zeros([extent.value for extent in shape], np.float32)})["Y"]
    m = x.max(1, keepdims=True)
    wanted = {
        SOFTMAX: np.exp(x - m) / np.exp(x - m).sum(1, keepdims=True),
        WRITTEN_AGAIN: np.broadcast_to((x - m).min(1, keepdims=True), x.shape),
        TWICE: np.broadcast_to(3 * x.sum(1, keepdims=True), x.shape),
        IN_MEMORY: x.sum(1),
        FROM_ONE: 1 + x.sum(1),
    }[text]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
