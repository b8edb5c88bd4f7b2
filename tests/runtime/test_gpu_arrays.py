"""NumPy arrays on a GPU for one call: copied, used and copied back on a stream of their own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import texpr
from texpr.runtime.gpu_arrays import on_gpu
from texpr.trial import Trial, run_trial, time_of_a_run


class Stream:
    """A stream of cupy's; `current` is the one that is entered."""

    current: Any = None

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking, self.ptr = non_blocking, 71

    def __enter__(self) -> None:
        Stream.current = self

    def __exit__(self, *error: object) -> None:
        Stream.current = None


class OnDevice:
    """Memory of a device; `log` has the stream of every operation."""

    def __init__(self, data: Any, log: list[Any]) -> None:
        self.memory, self.log, self.device = data, log, SimpleNamespace(id=0)
        self.data = SimpleNamespace(ptr=data.ctypes.data)

    def __setitem__(self, key: Any, value: "OnDevice") -> None:
        self.log.append(Stream.current)
        self.memory[key] = value.memory

    def __getitem__(self, key: Any) -> "OnDevice":
        return OnDevice(self.memory[key], self.log)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    used: list[Any] = []

    def made(data: Any) -> OnDevice:
        used.append(Stream.current)
        return OnDevice(data, used)

    def back(array: OnDevice) -> Any:
        used.append(Stream.current)
        return array.memory

    cupy = SimpleNamespace(
        zeros=lambda count, dtype: made(np.zeros(count, dtype)),
        asarray=lambda data: made(data.copy()),
        asnumpy=back,
        cuda=SimpleNamespace(Stream=Stream),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    yield used


def test_copies_are_made_and_taken_back_on_a_stream_that_is_given_to_the_call(log: list[Any]) -> None:
    a, s = np.arange(6, dtype=np.float32).reshape(2, 3), 5
    with on_gpu({"A": a, "s": s}) as (moved, stream):
        assert stream.non_blocking and Stream.current is None
        assert (moved["s"], moved["A"].shape, moved["A"].strides) == (5, (2, 3), (3, 1))
        there = np.frombuffer((np.ctypeslib.ctypes.c_float * 6).from_address(moved["A"].pointer), np.float32)
        assert there.tolist() == a.ravel().tolist()
        there[2] = 42.0
    assert a[0, 2] == 42.0
    assert len(log) >= 4 and set(log) == {stream}


def test_a_trial_calls_the_kernel_on_the_stream_of_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def copied(values: Any) -> Iterator[Any]:
        yield {name: f"copy of {value}" for name, value in values.items()}, stream

    monkeypatch.setattr("texpr.runtime.gpu_arrays.on_gpu", copied)
    calls: list[Any] = []
    stream = SimpleNamespace(synchronize=lambda: calls.append("wait"))

    class Compiled:
        target, dynamic = "cuda:sm_90a", ("N",)
        manifest = SimpleNamespace(parameters=[SimpleNamespace(name="stream"), SimpleNamespace(name="A")])

        def make_ready(self) -> None:
            calls.append("ready")

        def __call__(self, *args: Any, **kwargs: Any) -> None:
            calls.append((args, kwargs))

    compiled, kernel = cast(Any, Compiled()), cast(Any, None)
    trial = Trial(kernel=kernel, compiled=compiled, solved={"N": 4}, values={"A": "a", "stream": "s"})
    assert time_of_a_run(trial) > 0
    assert calls == ["ready", "wait", (("copy of s", "copy of a"), {"N": 4, "stream": stream}), "wait"]


def test_a_parameter_may_be_called_stream() -> None:
    kernel = texpr.parse("kernel f(stream: f32[N], C: f32[N]) { par N i { C[i] = stream[i] + 1.0 } }").only
    report = run_trial(kernel, "cpu", sizes={"N": 5}, check=True)
    assert report.passed and report.outputs[0].elements == 5
