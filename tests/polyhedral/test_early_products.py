"""Programs of several products on tensor cores: each launch but the first begins while the one before ends."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.codegen.host_run import HostBackend, HostModule
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.pipeline import Build, _emit
from texpr.polyhedral.mapped.between import AfterLaunch, TriggerNext
from texpr.polyhedral.mapped.candidate import Candidate, Cases
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Guard, Node, Parts
from texpr.polyhedral.mapped.walks import launches, map_nodes, of_kind
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate
from texpr.runtime.launch import Launcher

CHAIN = """kernel g(A: bf16[M, M], B: bf16[M, M], C: bf16[M, M]) {
    new D: bf16[M, M]
    par M i, M j { D[i, j] = sum M k { A[i, k] * B[j, k] } }
    par M i, M j { C[i, j] = sum M k { D[i, k] * B[j, k] } }
}"""
LAST = "    par M i, M j { C"
BETWEEN = CHAIN.replace(LAST, "    par M i { D[i, 0] = 0.0 }\n" + LAST)
TURNED = CHAIN.replace("D[i, k]", "E[i, k]").replace(
    LAST, "    new E: bf16[M, M]\n    par M i, M j { E[i, j] = D[j, i] * 2.0 + D[i, j] }\n" + LAST
)


def early(cluster: int = 1) -> Candidate:
    """Both products in tiles of 64 x 64, the second of which begins early."""
    first = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=2, cluster=cluster)
    second = replace(first, along="j_1", across="i_1", tile={"i_1": 64, "j_1": 64})
    return Candidate(launches={"g_0": first, "g_1": second}, early=frozenset({"g_1"}))


def chain(size: int, target: str = "cuda:sm_90a", cluster: int = 1) -> MappedProgram:
    how = early(cluster)
    program = texpr.parse(CHAIN).only.compile(target, stop_after="map", mapping=how, M=size).mapping.program
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
        (CHAIN, 1024, {"g_0", "g_1"}),
        (CHAIN, 4096, set()),  # one that lasts long gains nothing
        (BETWEEN, 1024, {"g_0", "g_1", "g_2"}),
        (TURNED, 1024, {"g_0", "g_2"}),  # between them a million elements are loaded
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


def test_a_launch_lets_the_next_one_begin_at_once_which_waits_where_it_brings_tiles() -> None:
    first, second = launches(chain(64).host)
    assert isinstance(first.body[0], TriggerNext) and not any(of_kind(first.body, AfterLaunch))
    assert not any(of_kind(second.body, TriggerNext))
    (parts,) = of_kind(second.body, Parts)
    brings = parts.parts[0].body[0]
    assert isinstance(brings, Guard) and brings.once and isinstance(brings.body[0], AfterLaunch)


ONE = """kernel g(A: bf16[M, M], B: bf16[M, M], C: bf16[M, M]) {
    par M i, M j { C[i, j] = sum M k { A[i, k] * B[j, k] } }
}"""


def alone(size: int, target: str = "cuda:sm_90a") -> Any:
    tile = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=2)
    how = Candidate(launches={"g_0": tile}, early=frozenset({"g_0"}))
    return texpr.parse(ONE).only.compile(
        target, stop_after="map" if target == "cuda:sm_90a" else None, mapping=how, M=size
    )


def test_the_first_launch_begins_behind_what_is_on_the_queue_and_waits_before_it_lets_others_begin() -> None:
    program = alone(72).mapping.program
    (parts,) = of_kind(program.host[0].body, Parts)
    brings = parts.parts[0].body[0]
    assert isinstance(brings, Guard) and brings.body[0] == AfterLaunch(queue=True) and brings.body[1] == TriggerNext()
    assert not any(of_kind(chain(72).host[0].body, AfterLaunch))
    values = given(72)
    found = simulate(program, {name: array.copy() for name, array in values.items()}, interleaved=True)["C"]
    a, b = (values[name].astype(np.float64) for name in "AB")
    assert np.array_equal(found.astype(np.float64), a @ b.T)


def test_where_threads_of_the_first_launch_read_by_themselves_none_of_it_is_early() -> None:
    text = ONE.replace("B[j, k] }", "B[j, k] } + A[i, j]")
    program = texpr.parse(text).only.compile("cuda:sm_90a", stop_after="map", M=1024).mapping.program
    assert not any(of_kind(program.host[0].body, AfterLaunch | TriggerNext))


def test_a_first_launch_that_waits_too_late_is_found() -> None:
    program = alone(64).mapping.program
    check_orders(program)
    (first,) = program.host
    spoilt = replace(program, host=(replace(first, body=map_nodes(first.body, late)),))
    with pytest.raises(InternalError, match="touches A before the launch waits for what is on the queue"):
        check_orders(spoilt)


@pytest.mark.gxx
def test_and_by_its_text_on_the_cpu_too() -> None:
    program = alone(64, "cuda-host:sm_90a").mapping.program
    (first,) = program.host
    spoilt = replace(program, host=(replace(first, body=map_nodes(first.body, late)),))
    emission = _emit(Build(program.kernel, program.target, {}), program.proved, plan(spoilt), False)
    with pytest.raises(TExprError, match="before after_launch, and the launch before may still use it"):
        Launcher(emission.manifest, HostBackend(HostModule(emission.source), 0))(**given(64))


def test_where_threads_read_by_themselves_all_of_them_wait() -> None:
    text = CHAIN.replace("D[i, k] * B[j, k] }", "D[i, k] * B[j, k] } + A[i, j]")
    program = texpr.parse(text).only.compile("cuda:sm_90a", stop_after="map", M=1024).mapping.program
    assert isinstance(list(launches(program.host))[1].body[0], AfterLaunch)


@pytest.mark.parametrize("interleaved", [False, True])
def test_they_compute_what_they_did_in_the_simulator(interleaved: bool) -> None:
    values = given(72)
    found = simulate(chain(72), {name: array.copy() for name, array in values.items()}, interleaved=interleaved)
    assert np.array_equal(found["C"].view(np.uint16), wanted(values).view(np.uint16))


@pytest.mark.gxx
@pytest.mark.parametrize("cluster", [1, 2])
def test_their_text_is_right_on_the_cpu(cluster: int) -> None:
    values = given(136)
    texpr.parse(CHAIN).only.compile("cuda-host:sm_90a", mapping=early(cluster), M=136)(**values)
    assert np.array_equal(values["C"].view(np.uint16), wanted(values).view(np.uint16))


def late(node: Node) -> Node:
    """The node with a wait that stands behind the copies."""
    if isinstance(node, Guard) and node.body and isinstance(node.body[0], AfterLaunch):
        return replace(node, body=(*node.body[1:], node.body[0]))
    return node


def test_a_wait_that_comes_too_late_is_found_by_the_check_the_simulator_and_on_the_cpu() -> None:
    program = chain(64)
    first, second = program.host
    check_orders(program)
    spoilt = replace(program, host=(first, replace(second, body=map_nodes(second.body, late))))
    with pytest.raises(InternalError, match="nothing orders"):
        check_orders(spoilt)
    with pytest.raises(TExprError, match="D"):
        for seed in range(5):
            simulate(spoilt, given(64), seed=seed)


@pytest.mark.gxx
def test_and_by_its_text_on_the_cpu() -> None:
    program = chain(64, "cuda-host:sm_90a")
    first, second = program.host
    spoilt = replace(program, host=(first, replace(second, body=map_nodes(second.body, late))))
    emission = _emit(Build(program.kernel, program.target, {}), program.proved, plan(spoilt), False)
    with pytest.raises(TExprError, match="before after_launch, and the launch before may still use it"):
        for seed in range(5):
            Launcher(emission.manifest, HostBackend(HostModule(emission.source), seed))(**given(64))
