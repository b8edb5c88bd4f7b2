"""Every barrier is needed: without it the order checker finds a violated order, and `cuda-host` a race."""

from dataclasses import replace

import pytest
from differential import copied
from test_kernels import CASES, compiled_variant, reference_of

import texpr
from texpr.codegen.graph import PlannedGraph
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.orders.barriers import check_positions
from texpr.polyhedral.target import parse_target

TARGET = "cuda-host:sm_90a"


def with_barriers(name: str) -> list[tuple[str, str, int]]:
    made = compiled_variant(name, 0, (), TARGET, "plan")
    planned: PlannedGraph = made.graph.planned
    return [(name, launch, k) for launch, found in planned.barriers.items() for k in range(len(found))]


BARRIERS = [row for name in CASES for row in with_barriers(name)]
IDS = [f"{launch}-{k}" for _, launch, k in BARRIERS]


def test_there_are_barriers_of_both_scopes() -> None:
    scopes = {
        position.scope
        for name, launch, k in BARRIERS
        for position in [compiled_variant(name, 0, (), TARGET, "plan").graph.planned.barriers[launch][k]]
    }
    assert len(BARRIERS) >= 15
    assert scopes == {Scope.WARP, Scope.BLOCK}


@pytest.mark.parametrize(("name", "launch", "number"), BARRIERS, ids=IDS)
def test_the_order_checker_misses_every_barrier(name: str, launch: str, number: int) -> None:
    made = compiled_variant(name, 0, (), TARGET, "plan")
    positions = made.graph.planned.barriers[launch]
    mapped = next(found for found in launches(made.mapping.program.host) if found.name == launch)
    assert not check_positions(mapped, positions)
    assert check_positions(mapped, positions[:number] + positions[number + 1 :])


@pytest.mark.gxx
@pytest.mark.parametrize(("name", "launch", "number"), BARRIERS, ids=IDS)
def test_cuda_host_finds_the_race_without_the_barrier(name: str, launch: str, number: int, need_gxx: None) -> None:
    from texpr.codegen.cuda.emit import emit_cuda
    from texpr.codegen.host_run import HostBackend
    from texpr.runtime.launch import Launcher

    ref = reference_of(name, 0)
    made: texpr.Compiled = compiled_variant(name, 0, (), TARGET)
    planned: PlannedGraph = made.graph.planned
    kept = planned.barriers[launch][:number] + planned.barriers[launch][number + 1 :]
    broken = replace(planned, barriers={**planned.barriers, launch: kept})
    source = emit_cuda(broken, parse_target(TARGET)).source
    with pytest.raises(TExprError) as caught:
        Launcher(made.manifest, HostBackend(source))(**copied(ref.values))
    assert caught.value.diagnostics[0].code == "E0604"
