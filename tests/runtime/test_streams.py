"""Which stream a call runs on, what is ordered on it, and what is kept alive until it has passed the call."""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from texpr.codegen.manifest import WorkspaceTensor
from texpr.grammar.diagnostics import TExprError


def refusal(run: Callable[[], object]) -> str:
    with pytest.raises(TExprError) as caught:
        run()
    assert caught.value.diagnostics[0].code == "E0601"
    return str(caught.value)


# ---- the current stream, at each call


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_every_call_runs_on_the_stream_that_is_current_at_it(machine: Any, library: str) -> None:
    run = machine.launcher()
    for handle in (71, 72, 0, 2, 73):
        machine.set_streams(library, handle, 99)
        run(machine.array(library), machine.array(library))  # from the second on a call of a known look
    assert machine.log == [(handle or 1, "k_0") for handle in (71, 72, 0, 2, 73)]


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_the_stream_is_that_of_the_arrays_device(machine: Any, library: str) -> None:
    machine.set_streams(library, 71, 72)
    run = machine.launcher()
    for _ in range(2):
        run(machine.array(library, 1), machine.array(library, 1))
    assert machine.log == [(72, "k_0")] * 2
    assert machine.current == 0


def test_threads_run_on_their_own_current_streams(machine: Any) -> None:
    run = machine.launcher()
    run(machine.array("torch"), machine.array("torch"))

    def work(handle: int) -> None:
        machine.set_streams("torch", handle)
        run(machine.array("torch"), machine.array("torch"))

    for handle in (71, 72):
        thread = threading.Thread(target=work, args=(handle,))
        thread.start()
        thread.join()
    run(machine.array("torch"), machine.array("torch"))
    assert [handle for handle, _ in machine.log] == [1, 71, 72, 1]


def test_subclasses_have_the_stream_of_their_library(machine: Any) -> None:
    machine.set_streams("torch", 71)
    parameter = type("Parameter", (type(machine.array("torch")),), {"__module__": "torch.nn.parameter"})
    machine.set_streams("cupy", 71)
    mine = type("Mine", (type(machine.array("cupy")),), {"__module__": "__main__"})
    run = machine.launcher()
    array = mine()
    run(array, parameter())
    assert machine.log == [(71, "k_0")]
    assert array.asked == [-1]  # its own stream: there is nothing to wait for


def test_an_old_torch_is_asked_in_public(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = {0: SimpleNamespace(cuda_stream=75)}
    torch = SimpleNamespace(_C=SimpleNamespace(), cuda=SimpleNamespace(current_stream=streams.__getitem__))
    monkeypatch.setitem(sys.modules, "torch", torch)
    machine.launcher()(machine.array("torch"), machine.array("torch"))
    assert machine.log == [(75, "k_0")]


def test_the_callers_stream_goes_before_the_current_one(machine: Any) -> None:
    machine.set_streams("torch", 71)
    run = machine.launcher()
    protocol = SimpleNamespace(__cuda_stream__=lambda: (0, 77))
    for stream in (77, SimpleNamespace(ptr=77), SimpleNamespace(cuda_stream=77), protocol, 0):
        run(machine.array("torch"), machine.array("torch"), stream=stream)
    assert [handle for handle, _ in machine.log] == [77, 77, 77, 77, 1]
    assert machine.handles == 1  # of the first call; the others go the short way


# ---- several libraries in one call


def test_libraries_whose_current_streams_agree_share_a_call(machine: Any) -> None:
    run = machine.launcher()
    machine.set_streams("cupy", 1)  # 0 and 1 are two names of the default stream
    run(machine.array("cupy"), machine.array("torch"))
    for library in ("torch", "cupy"):
        machine.set_streams(library, 71)
    for _ in range(2):
        run(machine.array("cupy"), machine.array("torch"))
    assert [handle for handle, _ in machine.log] == [1, 71, 71]


def test_libraries_whose_current_streams_differ_need_an_explicit_one(machine: Any) -> None:
    run = machine.launcher()
    run(machine.array("cupy"), machine.array("torch"))
    machine.log.clear()
    machine.set_streams("torch", 71)
    told = refusal(lambda: run(machine.array("cupy"), machine.array("torch")))
    assert "cupy and torch, whose current streams are different" in told and "pass `stream=`" in told
    assert machine.log == []
    run(machine.array("cupy"), machine.array("torch"), stream=71)
    assert machine.log == [(71, "k_0")]


def test_inputs_of_jax_are_made_ready_on_the_calls_stream(machine: Any) -> None:
    run, array = machine.launcher(), machine.array("jax")
    machine.set_streams("torch", 71)
    run(array, machine.array("torch"))
    machine.set_streams("torch", 0)
    run(array, machine.array("torch"))
    run(array, machine.array("torch"), stream=77)
    assert array.asked == [71, 1, 77]
    assert [handle for handle, _ in machine.log] == [71, 1, 77]


def test_arrays_of_jax_are_not_written(machine: Any) -> None:
    run = machine.launcher()
    assert "C is written, and the array is read-only" in refusal(
        lambda: run(machine.array("torch"), machine.array("jax"))
    )
    assert machine.log == []


def test_memory_of_other_libraries_is_kept_until_the_stream_has_passed_the_call(machine: Any) -> None:
    run = machine.launcher()
    backend: Any = run.backend
    for _ in range(2):
        run(machine.array("stranger"), machine.array("torch"))
    assert [event for event, _ in backend._kept] == machine.events
    assert all(len(owners) == 1 for _, owners in backend._kept)
    machine.events[0].is_done = True
    run(machine.array("stranger"), machine.array("torch"))
    assert [event for event, _ in backend._kept] == machine.events[1:]
    run(machine.array("torch"), machine.array("torch"))
    assert len(machine.events) == 3  # nothing to keep: torch's memory is ordered by its own stream


@pytest.mark.parametrize(
    ("libraries", "parameter"),
    [(("torch", "stranger"), "C"), (("stranger", "stranger"), "C"), (("bare", "torch"), "A"), (("torch", "bare"), "C")],
)
def test_arrays_that_nobody_orders_need_an_explicit_stream(
    machine: Any, libraries: tuple[str, str], parameter: str
) -> None:
    run = machine.launcher()
    told = refusal(lambda: run(*map(machine.array, libraries)))
    assert f"the library of {parameter} for its current stream" in told and "pass `stream=`" in told
    assert machine.log == []
    run(*map(machine.array, libraries), stream=77)
    assert machine.log == [(77, "k_0")]


# ---- workspaces


def test_a_workspace_is_allocated_and_freed_in_the_order_of_the_calls_stream(machine: Any) -> None:
    run = machine.launcher(
        workspace_bytes=512,
        workspace=(WorkspaceTensor(name="W", offset_bytes=256, size_bytes=256),),
        host=tuple(replace(machine.step, symbol=s, arguments=(("workspace", "W"),)) for s in ("k_0", "k_1")),
    )
    for handle in (71, 72):
        machine.set_streams("torch", handle)
        run(machine.array("torch"), machine.array("torch"))
    what = ["allocate 512", "k_0", "k_1", f"free {1 << 20}"]
    assert machine.log == [(71, each) for each in what] + [(72, each) for each in what]


def test_a_gpu_without_memory_for_a_workspace_says_so(machine: Any) -> None:
    machine.memory_bytes = 511
    with pytest.raises(TExprError, match=r"no 512 bytes for workspaces \(CUDA_ERROR_OUT_OF_MEMORY\)") as caught:
        machine.launcher(workspace_bytes=512)(machine.array("torch"), machine.array("torch"))
    assert caught.value.diagnostics[0].code == "E0403"
    assert machine.log == []
