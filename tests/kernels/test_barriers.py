"""Every barrier is needed: without it the order checker finds a violated order, and `cuda-host` a race."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from differential import copied
from stages import barriers, without_barrier
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


@cache
def barriers_of(name: str) -> list[tuple[Launch, int]]:
    """Every barrier of a kernel: its launch, and its number there."""
    program = compiled_variant(name, 0, (), TARGET).mapping.program
    return [(launch, k) for launch in launches(program.host) for k in range(len(barriers(launch)))]


def test_there_are_barriers_of_both_scopes() -> None:
    found = [barriers(launch)[k].scope for name in CASES for launch, k in barriers_of(name)]
    assert len(found) >= 15
    assert set(found) == {Scope.WARP, Scope.BLOCK}


@pytest.mark.parametrize("name", CASES)
def test_the_order_checker_misses_every_barrier(name: str) -> None:
    for launch, k in barriers_of(name):
        assert not unenforced(launch)
        assert unenforced(without_barrier(launch, k)), (launch.name, k)


@pytest.mark.sampled(4)
@pytest.mark.gxx
@pytest.mark.parametrize("name", CASES)
def test_cuda_host_finds_the_race_without_the_barrier(name: str, need_gxx: None) -> None:
    """One text has the kernel and, under other names, each launch without one of its barriers, which then runs in the
    place of that launch."""
    from texpr.codegen.cuda.emit import emit_cuda
    from texpr.codegen.host_run import HostBackend, HostModule
    from texpr.runtime.launch import Launcher

    if not barriers_of(name):
        return  # asked here and not for the parameters: every process collects all of them
    made: texpr.Compiled = compiled_variant(name, 0, (), TARGET)
    sources = [made.source]
    for launch, k in barriers_of(name):
        alone = replace(without_barrier(launch, k), name=f"{launch.name}_without_{k}")
        sources.append(emit_cuda(plan(replace(made.mapping.program, host=(alone,))), parse_target(TARGET)).source)
    module = HostModule("\n".join(sources))
    for launch, k in barriers_of(name):

        def launched(symbol: str, *rest: Any, of: str = launch.name, without: int = k) -> Any:
            return module.launch(f"{of}_without_{without}" if symbol == of else symbol, *rest)

        backend = HostBackend(module)
        backend.module = SimpleNamespace(launch=launched)  # type: ignore[assignment]  # the other launches as they are
        with pytest.raises(TExprError) as caught:
            Launcher(made.manifest, backend)(**copied(reference_of(name, 0).values))
        assert caught.value.diagnostics[0].code == "E0604", (launch.name, k)
