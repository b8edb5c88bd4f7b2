"""Triangles of products on tensor cores: tiles that they do not meet have no turn, threads store what there is of those
that they cut."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

LOWER = "A: bf16[M, K], inout C: bf16[M, M]) { par M i, i + 1 j { C[i, j] = sum K k { A[i, k] * A[j, k] }"
PROGRAMS = {
    "lower": LOWER,
    "strict": "A: bf16[K, M], inout C: f32[M, M]) { par M i, i j { C[i, j] += sum K k { A[k, i] * A[k, j] }",
    "other corner": "A: bf16[M, K], inout C: bf16[M, M]) { par M i, M - i j { C[i, j] = sum K k { A[i, k] * A[j, k] }",
}


def program(name: str) -> Any:
    return texpr.parse(f"kernel g({PROGRAMS[name]} }} }}").only


def piped(rows: int, columns: int, **how: Any) -> Candidate:
    given = {"stages": 2, "persistent": 2, **how}
    return Candidate(launches={"g_0": Piped(along="j", across="i", tile={"i": rows, "j": columns}, **given)})


FORMS = {
    "lower": piped(64, 64, cluster=2, persistent=4, band=2),
    "strict": piped(64, 64),
    "other corner": piped(64, 64),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_triangle_is_right_and_nothing_beside_it_is_written(name: str) -> None:
    sizes = {"M": 136, "K": 40}
    mapped = program(name).compile("cuda:sm_90a", stop_after="map", mapping=FORMS[name], **sizes).mapping.program
    random, types = np.random.default_rng(2), {"bf16": ml_dtypes.bfloat16, "f32": np.float32}
    values: dict[str, Any] = {}
    for buffer in mapped.kernel.params:
        shape = [constant_value(extent) or 0 for extent in buffer.shape]
        values[buffer.name] = random.integers(-2, 3, shape).astype(types[str(buffer.dtype)])
    want = interpret(mapped.kernel, {key: np.array(value) for key, value in values.items()}).outputs["C"]
    assert np.array_equal(simulate(mapped, values)["C"].astype(float), want.astype(float))
    assert faults(shortened(mapped), {}) == ()


def test_a_large_triangle_goes_to_the_tensor_cores_in_bands_that_share_its_tiles_out() -> None:
    proved = program("lower").compile("cuda:sm_90a", stop_after="prove", M=8192, K=8192).build.result("prove")
    own = Problems(keep_nothing(proved), parse_target("cuda:sm_90a"), {}).first.launches["g_0"]
    assert isinstance(own, Piped) and (own.tile, own.cluster, own.band) == ({"i": 128, "j": 256}, 2, 16)


def test_tiles_beside_a_triangle_have_no_turn_and_threads_store_what_it_cuts() -> None:
    sizes = {"M": 136, "K": 40}
    found = str(program("lower").compile("cuda:sm_90a", stop_after="map", mapping=FORMS["lower"], **sizes).mapping)
    assert "if i_tile - 64 * rank + 128 - j_tile > 0" in found and "if i < 136 and j < i + 1" in found


def test_groups_do_not_alternate_on_a_triangle() -> None:
    with pytest.raises(texpr.TExprError, match="of a triangle blocks pass over turns"):
        program("lower").compile("cuda:sm_90a", stop_after="map", mapping=piped(128, 64, alternate=True), M=200, K=40)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_single_warps_take_no_triangle(target: str) -> None:
    """They wrote all of a tile, beside the triangle too."""
    found = program("lower").compile(f"cuda:{target}", stop_after="map", M=512, K=512).mapping.candidate
    assert not any(isinstance(choice, Ringed) for choice in found.launches.values())
