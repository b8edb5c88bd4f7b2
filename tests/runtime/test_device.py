"""The GPU backend: which GPU is current, which streams and launches are refused, what every GPU is asked for."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from texpr.grammar.diagnostics import TExprError
from texpr.runtime import device as device_module
from texpr.runtime.device import DEFAULT_SHARED_BYTES, CudaBackend


def refusal(run: Callable[[], object]) -> str:
    with pytest.raises(TExprError) as caught:
        run()
    assert caught.value.diagnostics[0].code == "E0601"
    return str(caught.value)


def test_a_call_on_another_gpu_puts_the_current_one_back(machine: Any) -> None:
    backend = machine.backend()
    for number in (0, 1):
        queue = backend.queue(number, 5)
        assert (machine.current, queue.stream.handle) == (number, 5)
        backend.leave(queue, ())
        assert machine.current == 0


def test_a_stream_that_the_driver_does_not_take_leaves_the_current_gpu(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = machine.backend()

    def refuse(handle: int) -> Any:
        raise RuntimeError("CUDA_ERROR_INVALID_HANDLE")

    monkeypatch.setattr(machine.core.Stream, "from_handle", refuse)
    assert "INVALID_HANDLE" in refusal(lambda: backend.queue(1, 5))
    assert machine.current == 0


class Broken:
    def __cuda_stream__(self) -> tuple[int, int]:
        raise RuntimeError("this stream is gone")


@pytest.mark.parametrize("stream", ["x", True, -1, 1 << 64, 1.0, Broken(), SimpleNamespace(ptr=-1)])
def test_what_is_no_stream_is_refused_before_anything_starts(machine: Any, stream: Any) -> None:
    run = machine.launcher()
    refusal(lambda: run(machine.array("torch", 1), machine.array("torch", 1), stream=stream))
    assert (machine.current, machine.log) == (0, [])


def test_a_step_in_clusters_is_refused(machine: Any) -> None:
    backend = machine.backend()
    step = machine.step
    assert backend.kernel(step, (1, 1, 1)) is backend.kernel(step, (1, 1, 1))
    assert backend.kernel(replace(step, shared_bytes=16), (1, 1, 1))[0]["shmem_size"] == 16
    with pytest.raises(TExprError, match="runs in clusters") as caught:
        backend.kernel(replace(step, cluster=(2, 1, 1)), (2, 1, 1))
    assert caught.value.diagnostics[0].code == "E0505"


def test_every_gpu_is_asked_once_for_more_shared_memory(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(device_module, "_raise_shared_limit", lambda *question: asked.append(question))
    backend = CudaBackend(b"", {"k_0": DEFAULT_SHARED_BYTES + 1, "k_1": DEFAULT_SHARED_BYTES})
    for number in (0, 1, 1, 0):
        backend.leave(backend.queue(number, 1), ())
    assert asked == [("k_0", DEFAULT_SHARED_BYTES + 1, 0), ("k_0", DEFAULT_SHARED_BYTES + 1, 1)]
