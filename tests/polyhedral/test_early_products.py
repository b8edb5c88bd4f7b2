"""Programs of several products on tensor cores: each launch but the first begins while the one before ends."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.polyhedral.mapped.between import AfterLaunch, TriggerNext
from texpr.polyhedral.mapped.candidate import Candidate, Cases
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

CHAIN = """kernel g(A: bf16[M, M], B: bf16[M, M], C: bf16[M, M]) {
    new D: bf16[M, M]
    par M i, M j { D[i, j] = sum M k { A[i, k] * B[j, k] } }
    par M i, M j { C[i, j] = sum M k { D[i, k] * B[j, k] } }
}"""
BETWEEN = CHAIN.replace("    par M i, M j { C", "    par M i { D[i, 0] = 0.0 }\n    par M i, M j { C")
TURNED = CHAIN.replace("D[i, k]", "E[i, k]").replace(
    "    par M i, M j { C", "    new E: bf16[M, M]\n    par M i, M j { E[i, j] = D[j, i] * 2.0 + D[i, j] }\n    par M i, M j { C"
)
FIRST = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=2)
EARLY = Candidate(
    launches={"g_0": FIRST, "g_1": replace(FIRST, along="j_1", across="i_1", tile={"i_1": 64, "j_1": 64})},
    early=frozenset({"g_1"}),
)


def chain(size: int) -> MappedProgram:
    program = texpr.parse(CHAIN).only.compile("cuda:sm_90a", stop_after="map", mapping=EARLY, M=size).mapping.program
    assert isinstance(program, MappedProgram)
    return program


def given(size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    small = {name: random.integers(-1, 2, (size, size)).astype(ml_dtypes.bfloat16) for name in "AB"}
    return {**small, "C": np.full((size, size), np.nan, ml_dtypes.bfloat16)}


def wanted(values: dict[str, np.ndarray]) -> np.ndarray:
    a, b = (values[name].astype(np.float64) for name in "AB")
    between = (a @ b.T).astype(ml_dtypes.bfloat16).astype(np.float64)  # whole numbers below 256: exact
    return (between @ b.T).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("text", "size", "early"),
    [
        (CHAIN, 1024, {"g_1"}),
        (CHAIN, 4096, set()),  # one that lasts long gains nothing
        (BETWEEN, 1024, {"g_1", "g_2"}),
        (TURNED, 1024, set()),  # loads a million elements
    ],
)
def test_products_that_are_soon_over_begin_early(text: str, size: int, early: set[str]) -> None:
    assert texpr.parse(text).only.compile("cuda:sm_90a", stop_after="map", M=size).mapping.candidate.early == early


def test_those_of_a_free_size_do_not_and_have_a_case_for_rows_that_boxes_refuse() -> None:
    found = texpr.parse(CHAIN).only.compile("cuda:sm_90a", stop_after="map").mapping.candidate
    assert isinstance(found, Cases)
    every = [*(case.candidate for case in found.cases), found.otherwise]
    assert all(isinstance(choice, Piped) for choice in every[0].launches.values())
    assert [one.early for one in every] == [frozenset()] * len(every)


def test_a_launch_that_another_one_follows_lets_it_begin_once_all_its_blocks_are_there() -> None:
    first, second = launches(chain(64).host)
    assert isinstance(first.body[0], TriggerNext) and isinstance(second.body[0], AfterLaunch)
    assert not any(isinstance(node, TriggerNext) for node in second.body)


@pytest.mark.parametrize("interleaved", [False, True])
def test_they_compute_what_they_did_in_the_simulator(interleaved: bool) -> None:
    values = given(72)
    found = simulate(chain(72), {name: array.copy() for name, array in values.items()}, interleaved=interleaved)
    assert np.array_equal(found["C"].view(np.uint16), wanted(values).view(np.uint16))


@pytest.mark.gxx
def test_their_text_is_right_on_the_cpu() -> None:
    values = given(72)
    texpr.parse(CHAIN).only.compile("cuda-host:sm_90a", mapping=EARLY, M=72)(**values)
    assert np.array_equal(values["C"].view(np.uint16), wanted(values).view(np.uint16))


def test_without_the_wait_the_check_and_the_simulator_say_what_may_be_read_too_soon() -> None:
    program = chain(64)
    first, second = program.host
    check_orders(program)
    hasty = replace(second, body=tuple(node for node in second.body if not isinstance(node, AfterLaunch)))
    late = replace(second, body=(*second.body[1:], second.body[0]))
    with pytest.raises(InternalError, match="nothing orders"):
        check_orders(replace(program, host=(first, late)))
    assert hasty.body != second.body
    with pytest.raises(TExprError, match="D"):
        for seed in range(5):
            simulate(replace(program, host=(first, late)), given(64), seed=seed)
