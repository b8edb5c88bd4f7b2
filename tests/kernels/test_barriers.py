"""Every barrier is needed: without it the order checker finds a violated order, and `cuda-host` a race."""

import pytest
from differential import copied
from stages import barriers, with_launch, without_barrier
from test_kernels import CASES, compiled_variant, reference_of

import texpr
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.orders.flow import unenforced
from texpr.polyhedral.target import parse_target

TARGET = "cuda-host:sm_90a"


def launch_of(name: str, launch: str) -> Launch:
    program = compiled_variant(name, 0, (), TARGET, "map").mapping.program
    return next(found for found in launches(program.host) if found.name == launch)


def with_barriers(name: str) -> list[tuple[str, str, int]]:
    program = compiled_variant(name, 0, (), TARGET, "map").mapping.program
    return [(name, found.name, k) for found in launches(program.host) for k in range(len(barriers(found)))]


BARRIERS = [row for name in CASES for row in with_barriers(name)]
IDS = [f"{launch}-{k}" for _, launch, k in BARRIERS]


def test_there_are_barriers_of_both_scopes() -> None:
    assert len(BARRIERS) >= 15
    assert {barriers(launch_of(name, launch))[k].scope for name, launch, k in BARRIERS} == {Scope.WARP, Scope.BLOCK}


@pytest.mark.parametrize(("name", "launch", "number"), BARRIERS, ids=IDS)
def test_the_order_checker_misses_every_barrier(name: str, launch: str, number: int) -> None:
    found = launch_of(name, launch)
    assert not unenforced(found)
    assert unenforced(without_barrier(found, number))


@pytest.mark.gxx
@pytest.mark.parametrize(("name", "launch", "number"), BARRIERS, ids=IDS)
def test_cuda_host_finds_the_race_without_the_barrier(name: str, launch: str, number: int, need_gxx: None) -> None:
    from texpr.codegen.cuda.emit import emit_cuda
    from texpr.codegen.host_run import HostBackend
    from texpr.runtime.launch import Launcher

    ref = reference_of(name, 0)
    made: texpr.Compiled = compiled_variant(name, 0, (), TARGET)
    program = with_launch(made.mapping.program, without_barrier(launch_of(name, launch), number))
    source = emit_cuda(plan(program), parse_target(TARGET)).source
    with pytest.raises(TExprError) as caught:
        Launcher(made.manifest, HostBackend(source))(**copied(ref.values))
    assert caught.value.diagnostics[0].code == "E0604"
