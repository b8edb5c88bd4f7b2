"""The GPU backend: which GPU is current, which streams and launches are refused, what every GPU is asked for."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from texpr.codegen.manifest import MapArgument
from texpr.codegen.tensor_map import TensorMap
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.types import F32
from texpr.runtime import device as device_module
from texpr.runtime.captured_words import ROOM_BYTES
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


def test_a_thread_without_a_current_gpu_gets_that_of_the_arrays(machine: Any) -> None:
    run, arrays = machine.launcher(), (machine.array("torch"), machine.array("torch"))
    run(*arrays)
    machine.current = None
    run(*arrays)
    assert (machine.current, machine.log) == (0, [(1, "k_0")] * 2)


MAP = MapArgument(
    name="A_box", array="A", dtype="bf16", shape=(3, 8), strides=(24, 1), box=(2, 8), swizzle_bytes=32,
    promotion_bytes=128,
)  # fmt: skip
DESCRIBED = TensorMap(
    address=1 << 20, dtype="bf16", element_bytes=2, shape=(3, 8), strides_bytes=(48, 2), box=(2, 8), swizzle_bytes=32
)


@pytest.mark.parametrize(
    ("changes", "attributes"),
    [
        ({}, []),
        ({"maps": (MAP,)}, []),
        ({"overlaps": True}, [(6, 1)]),
        ({"cooperative": True}, [(2, 1)]),
        ({"cooperative": True, "overlaps": True}, [(2, 1), (6, 1)]),
    ],
)
def test_a_launch_is_told_to_the_driver_as_often_as_it_is_started(machine: Any, changes: Any, attributes: Any) -> None:
    backend = machine.backend()
    kinds = (("param", "A"), ("map", "A_box"), ("size", "N"), ("scalar", "s"), ("param", "C"))
    kernel = backend.kernel(replace(machine.step, shared_bytes=64, arguments=kinds, **changes), (5, 2, 1), {})
    arguments = [(1 << 64) - 1, backend.tensor_map(DESCRIBED), -3, backend.scalar(-2.0, F32), 78]
    machine.told = ["u", "map", "i", "u", "u"]
    ready = kernel.kept(9, arguments)
    first, arguments[0] = arguments[0], 0  # what is ready does not change
    ready()
    kernel.once(9, arguments)
    kernel.once(None, [first, *arguments[1:]])
    ready()
    told = b"map of 1048576", -3, 0xC0000000, 78
    assert machine.driver_launches == [
        ((5, 2, 1), (32, 1, 1), 64, stream, attributes, "k_0", value, *told)
        for value, stream in ((first, 9), (0, 9), (first, 1), (first, 9))
    ]


def test_blocks_that_must_run_together_are_refused_where_the_gpu_does_not_hold_them(machine: Any) -> None:
    backend, step = machine.backend(), replace(machine.step, arguments=(), cooperative=True)
    backend.kernel(step, (5, 2, 1), {})
    backend.kernel(replace(step, cooperative=False), (11, 1, 1), {})
    with pytest.raises(TExprError) as caught:
        backend.kernel(step, (11, 1, 1), {})
    assert [d.code for d in caught.value.diagnostics] == ["E0403"]
    said = str(caught.value)
    assert "the 11 blocks of k_0 must run together, and this GPU holds 10: 2 on each of 5 multiprocessors" in said


def test_a_tensor_map_is_written_from_the_contiguous_dimension_at_a_multiple_of_128(machine: Any) -> None:
    machine.backend().tensor_map(DESCRIBED)
    ((place, *told),) = machine.encoded
    assert place % 128 == 0
    assert told == [9, 2, 1 << 20, (8, 3), (48,), (8, 2), (1, 1), 0, 1, 2, 0]


def test_what_the_driver_refuses_is_told_with_its_word(machine: Any) -> None:
    backend = machine.backend()
    machine.refuses = 1
    assert "CUDA_ERROR_1" in refusal(lambda: backend.tensor_map(DESCRIBED))
    kernel = backend.kernel(replace(machine.step, arguments=()), (1, 1, 1), {})
    answers = kernel.once(9, []), kernel.kept(9, [])()
    for answer in answers:
        assert "the launch of k_0 failed: CUDA_ERROR_1" in refusal(lambda answer=answer: kernel.refuse(answer))


ROOM = 1 << 24  # where the machine has the words of graphs
FOR_GRAPHS = [f"allocate {ROOM_BYTES}", f"clear {ROOM_BYTES}"]
MADE = ["allocate 256", *FOR_GRAPHS, "clear 256"]  # by the first call on a GPU


def test_each_stream_keeps_zeros_of_its_own_and_a_captured_graph_clears_its(machine: Any) -> None:
    backend = machine.backend()

    def zeros(stream: int, size: int) -> list[Any]:
        machine.log.clear()
        with backend.zeros(size, backend.queue(0, stream), once=False):
            pass
        return [what for _, what in machine.log]

    assert zeros(5, 256) == MADE and zeros(6, 256) == ["allocate 256", "clear 256"]
    assert zeros(5, 256) == [] and zeros(6, 128) == []
    assert zeros(5, 512) == [f"free {1 << 20}", "allocate 512", "clear 512"]
    machine.capturing = 1
    assert zeros(5, 512) == ["allocate 512", "clear 512", f"free {1 << 20}"]


def test_graphs_that_are_instantiated_once_at_a_time_find_words_that_were_cleared_before(machine: Any) -> None:
    backend = machine.backend()

    def words(capture: int, stream: int, size: int, device: int = 0) -> int | None:
        machine.capturing = capture
        machine.log.clear()
        queue = backend.queue(device, stream)
        with backend.zeros(size, queue, once=True) as address:
            pass
        backend.leave(queue, ())
        return None if machine.log else address

    assert words(7, 5, 256) is None  # no call before this capture: the graph clears its own
    words(0, 5, 256)
    assert words(7, 5, 100) == ROOM and words(7, 5, 256) == ROOM  # one after the other
    assert words(7, 6, 256) == ROOM + 256 and words(8, 5, 256) == ROOM + 512
    assert words(7, 5, 257) == ROOM + 768 and words(7, 5, 100) == ROOM + 768
    assert words(9, 5, 256, device=1) is None and words(9, 5, ROOM_BYTES) is None
    assert words(0, 5, 256) == 1 << 20  # what the stream itself kept


def test_captured_calls_that_fail_or_run_at_a_time_share_no_words(machine: Any) -> None:
    backend = machine.backend()
    queue = backend.queue(0, 5)
    with backend.zeros(256, queue, once=True):
        pass
    machine.capturing = 7
    with pytest.raises(KeyboardInterrupt), backend.zeros(256, queue, once=True) as first:
        raise KeyboardInterrupt
    with backend.zeros(256, queue, once=True) as second, backend.zeros(256, queue, once=True) as third:
        assert (first, second, third) == (ROOM, ROOM + 256, ROOM + 512)


def test_code_stays_loaded_for_graphs_that_hold_its_kernels(machine: Any) -> None:
    before = len(device_module._LOADED)
    machine.backend()
    assert len(device_module._LOADED) == before + 1


def test_a_call_that_fails_leaves_no_zeros_to_the_next(machine: Any) -> None:
    backend = machine.backend()
    queue = backend.queue(0, 5)
    with pytest.raises(KeyboardInterrupt), backend.zeros(256, queue, once=False):
        raise KeyboardInterrupt
    with backend.zeros(256, queue, once=False):
        pass
    made = ["allocate 256", "clear 256"]
    assert [what for _, what in machine.log] == [*MADE, f"free {1 << 20}", *made]


def test_two_calls_at_a_time_on_one_stream_have_zeros_of_their_own(machine: Any) -> None:
    backend = machine.backend()
    queue = backend.queue(0, 5)
    made = [*MADE, "allocate 256", "clear 256"]
    with backend.zeros(256, queue, once=False), backend.zeros(256, queue, once=False):
        assert [what for _, what in machine.log] == made
    with backend.zeros(256, queue, once=False):
        assert [what for _, what in machine.log] == [*made, f"free {1 << 20}"]


def test_wide_clusters_are_asked_for_on_every_gpu(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(device_module, "_allow_wide_clusters", lambda *question: asked.append(question))
    wide = replace(machine.step, symbol="k_1", cluster=(4, 4, 1))
    backend = CudaBackend(b"", (replace(machine.step, cluster=(8, 1, 1)), wide))
    backend.leave(backend.queue(1, 1), ())
    assert asked == [("k_1", 0), ("k_1", 1)]


def test_every_gpu_is_asked_once_for_more_shared_memory(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(device_module, "_raise_shared_limit", lambda *question: asked.append(question))
    large = replace(machine.step, shared_bytes=DEFAULT_SHARED_BYTES + 1)
    usual = replace(machine.step, symbol="k_1", shared_bytes=DEFAULT_SHARED_BYTES)
    backend = CudaBackend(b"", (replace(large, shared_bytes=0), large, usual))
    for number in (0, 1, 1, 0):
        backend.leave(backend.queue(number, 1), ())
    assert asked == [("k_0", DEFAULT_SHARED_BYTES + 1, 0), ("k_0", DEFAULT_SHARED_BYTES + 1, 1)]
