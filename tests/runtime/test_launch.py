"""Host programs: loops unrolled with their indices, plans kept per look, what differs filled in, limits counted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from texpr.codegen.manifest import IfStep, LaunchStep, LoopStep, Manifest, Parameter, WorkspaceTensor
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.types import DType
from texpr.runtime import device as device_module
from texpr.runtime.arrays import CPU
from texpr.runtime.device import DEFAULT_SHARED_BYTES, CudaBackend
from texpr.runtime.launch import MAX_KEPT, Launcher

STEP = LaunchStep(
    symbol="k_0",
    grid=(["-", ["-", "N", "t"], 1], 1, 1),
    cluster=(1, 1, 1),
    block=(32, 1, 1),
    shared_bytes=0,
    arguments=(("param", "A"), ("scalar", "s"), ("workspace", "W"), ("size", "N"), ("index", "t")),
)
PROGRAM = Manifest(
    name="k",
    target="test",
    arch="",
    loadable=False,
    parameters=(
        Parameter(name="s", dtype="i32", shape=(), strides=(), mode="read", scalar=True),
        Parameter(name="A", dtype="f32", shape=("N",), strides=(1,), mode="write"),
    ),
    sizes={"N": None},
    facts=(),
    workspace_bytes=["*", 4, ["+", "N", 64]],
    workspace=(WorkspaceTensor(name="W", offset_bytes=256, size_bytes=["*", 4, "N"]),),
    host=(LoopStep(index="t", extent="N", body=(STEP,)),),
    files={},
    texpr="0",
)


class Recorder:
    """A backend that writes down what it is told."""

    devices = (CPU,)

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.prepared = self.left = 0

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int]) -> Any:
        self.prepared += 1
        return step.symbol, grid

    def pointer(self, address: int, size_bytes: int) -> Any:
        return "pointer", address, size_bytes

    def scalar(self, value: int | float | bool, dtype: DType) -> Any:
        return dtype.name, value

    def queue(self, device: int, stream: Any) -> Any:
        return device, stream

    def leave(self, queue: Any) -> None:
        self.left += 1

    @contextmanager
    def scratch(self, size_bytes: int, queue: Any) -> Iterator[int]:
        self.started.append(("scratch", size_bytes))
        yield 1000

    def start(self, kernel: Any, arguments: Sequence[Any], queue: Any) -> None:
        self.started.append((*kernel, *arguments, queue))


def array(count: int) -> Any:
    return np.zeros(count, np.float32)


def test_host_programs_run_their_loops_with_indices() -> None:
    backend = Recorder()
    a = array(3)
    Launcher(PROGRAM, backend)(7, a, stream="mine")
    common = (("pointer", a.ctypes.data, 12), ("i32", 7), ("pointer", 1256, 12), ("i64", 3))
    assert backend.started == [
        ("scratch", 268),
        ("k_0", (2, 1, 1), *common, ("i64", 0), (0, "mine")),
        ("k_0", (1, 1, 1), *common, ("i64", 1), (0, "mine")),
    ]  # at t = 2 the grid is empty
    assert backend.left == 1


def test_a_second_call_of_one_look_prepares_nothing_and_takes_its_own_arguments() -> None:
    backend = Recorder()
    launcher = Launcher(PROGRAM, backend)
    launcher(7, array(3))
    assert backend.prepared == 2
    backend.started.clear()
    other = array(3)
    launcher(A=other, s=-9)
    assert backend.prepared == 2
    assert [start[2:4] for start in backend.started[1:]] == [(("pointer", other.ctypes.data, 12), ("i32", -9))] * 2
    launcher(7, array(4))
    assert backend.prepared == 5


def test_long_host_programs_are_walked_again_instead_of_kept() -> None:
    backend = Recorder()
    launcher = Launcher(PROGRAM, backend)
    count = MAX_KEPT + 3
    for _ in range(2):
        backend.started.clear()
        launcher(1, array(count))
        assert [start[6] for start in backend.started[1:]] == [("i64", t) for t in range(count - 1)]


def test_too_long_host_programs_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("texpr.runtime.launch.MAX_LAUNCHES", 1000)
    twice = replace(PROGRAM, host=(LoopStep(index="t", extent="N", body=(STEP, STEP)),))
    for program, count, message in ((PROGRAM, 1001, "rounds of host loops"), (twice, 600, "launches in one call")):
        backend = Recorder()
        with pytest.raises(TExprError, match=f"more than 1000 {message}"):
            Launcher(program, backend)(1, array(count))
        assert not backend.started


def test_conditions_choose_for_the_calls_sizes() -> None:
    other = replace(STEP, symbol="k_1", grid=(1, 1, 1), arguments=())
    program = replace(PROGRAM, host=(IfStep(condition=["<", "N", 4], then=(other, other), orelse=(other,)),))
    backend = Recorder()
    launcher = Launcher(program, backend)
    for count, want in ((3, 2), (4, 1)):
        backend.started.clear()
        launcher(0, array(count))
        assert len(backend.started) == 1 + want


def test_an_error_while_starting_leaves_the_queue() -> None:
    class Failing(Recorder):
        def start(self, kernel: Any, arguments: Sequence[Any], queue: Any) -> None:
            raise RuntimeError("the driver says no")

    backend = Failing()
    with pytest.raises(RuntimeError):
        Launcher(PROGRAM, backend)(7, array(3))
    assert backend.left == 1


def test_an_unknown_argument_is_a_damaged_manifest_and_starts_nothing() -> None:
    step = replace(STEP, grid=(1, 1, 1), arguments=(("param", "B"),))
    backend = Recorder()
    with pytest.raises(TExprError, match="unknown param B") as caught:
        Launcher(replace(PROGRAM, host=(replace(STEP, grid=(1, 1, 1), arguments=()), step)), backend)(7, array(3))
    assert caught.value.diagnostics[0].code == "E0505"
    assert not backend.started


# ---- the GPU backend's handling of devices and streams, on a stand-in for cuda-core


class FakeDevice:
    def __init__(self, number: int, machine: Any) -> None:
        self.device_id, self.machine = number, machine
        self.default_stream = f"default {number}"

    def set_current(self) -> None:
        self.machine.current = self.device_id

    def create_stream(self, stream: Any) -> str:
        return f"wrapped {stream.__cuda_stream__()}"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(current=0, handles=0)
    devices = [FakeDevice(0, made), FakeDevice(1, made)]

    class Stream:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        @classmethod
        def from_handle(cls, handle: int) -> "Stream":
            made.handles += 1
            return cls(handle)

    core = SimpleNamespace(
        Device=lambda number=None: devices[made.current if number is None else number],
        Stream=Stream,
        ObjectCode=SimpleNamespace(from_cubin=lambda cubin: SimpleNamespace(get_kernel=lambda symbol: symbol)),
        LaunchConfig=lambda **options: options,
    )
    monkeypatch.setattr(device_module, "_cuda", lambda: core)
    return made


def test_a_call_on_another_gpu_puts_the_current_one_back(machine: Any) -> None:
    backend = CudaBackend(b"", {"k_0": 0})
    for number in (0, 1):
        queue = backend.queue(number, None)
        assert (machine.current, queue.stream) == (number, f"default {number}")
        backend.leave(queue)
        assert machine.current == 0
    with pytest.raises(TExprError, match="is not a CUDA stream"):
        backend.queue(1, "no stream")
    assert machine.current == 0


def test_a_step_in_clusters_is_refused(machine: Any) -> None:
    backend = CudaBackend(b"", {"k_0": 0})
    assert backend.kernel(STEP, (1, 1, 1)) is backend.kernel(STEP, (1, 1, 1))
    assert backend.kernel(replace(STEP, shared_bytes=16), (1, 1, 1))[0]["shmem_size"] == 16
    with pytest.raises(TExprError, match="runs in clusters") as caught:
        backend.kernel(replace(STEP, cluster=(2, 1, 1)), (2, 1, 1))
    assert caught.value.diagnostics[0].code == "E0505"


def test_streams_are_taken_as_handles_and_by_protocol(machine: Any) -> None:
    backend = CudaBackend(b"", {"k_0": 0})
    assert backend.queue(0, 77).stream.handle == 77
    assert backend.queue(0, SimpleNamespace(ptr=77)).stream.handle == 77
    assert backend.queue(0, SimpleNamespace(cuda_stream=78)).stream.handle == 78
    assert machine.handles == 2  # one for each handle
    assert backend.queue(1, SimpleNamespace(__cuda_stream__=lambda: (0, 5))).stream == "wrapped (0, 5)"


class Broken:
    def __cuda_stream__(self) -> tuple[int, int]:
        raise RuntimeError("this stream is gone")


@pytest.mark.parametrize("stream", [True, -1, 1 << 64, 1.0, Broken(), SimpleNamespace(ptr=-1)])
def test_what_is_no_stream_is_refused_and_the_current_gpu_stays(machine: Any, stream: Any) -> None:
    backend = CudaBackend(b"", {"k_0": 0})
    with pytest.raises(TExprError) as caught:
        backend.queue(1, stream)
    assert caught.value.diagnostics[0].code == "E0601"
    assert machine.current == 0


def test_every_gpu_is_asked_once_for_more_shared_memory(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(device_module, "_raise_shared_limit", lambda *question: asked.append(question))
    backend = CudaBackend(b"", {"k_0": DEFAULT_SHARED_BYTES + 1, "k_1": DEFAULT_SHARED_BYTES})
    for number in (0, 1, 1, 0):
        backend.leave(backend.queue(number, None))
    assert asked == [("k_0", DEFAULT_SHARED_BYTES + 1, 0), ("k_0", DEFAULT_SHARED_BYTES + 1, 1)]
