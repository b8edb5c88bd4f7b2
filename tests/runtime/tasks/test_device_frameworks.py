"""Functions of torch on blocks in a GPU's memory, over a torch that is faked."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
from fake_gpu import FakeGpu, raw
from test_devices import axpy, vector

from texpr.tasks import Engine, FunctionDefinition, Tensor, accumulate, einsum, on_arrays, read, read_write, tiled


class Tensorlike(numpy.ndarray):
    """A tensor of torch's, as far as the runtime asks one."""

    def detach(self) -> "Tensorlike":
        return self.view()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What of torch the runtime asks for on a GPU; the list has the streams that were current."""
    module, streams = ModuleType("torch"), list[Any]()

    def as_tensor(array: Any, device: str) -> Any:
        told = array.__cuda_array_interface__
        size = int(numpy.prod(told["shape"])) * numpy.dtype(told["typestr"]).itemsize
        assert told["data"][1] is False and device == "cuda:0" and told["version"] == 3
        return raw(told["data"][0], size).view(told["typestr"]).reshape(told["shape"]).view(Tensorlike)

    @contextmanager
    def stream(current: Any) -> Iterator[None]:
        streams.append(current)
        yield
        streams.append(None)

    cuda = SimpleNamespace(stream=stream, ExternalStream=lambda handle, device: (handle, device))
    module.as_tensor, module.cuda, module.bfloat16 = as_tensor, cuda, numpy.dtype("V2")  # type: ignore[attr-defined]  # a fake
    monkeypatch.setitem(sys.modules, "torch", module)
    return streams


def test_functions_of_torch_run_on_the_stream_of_their_worker(torch: list[Any]) -> None:
    memory, x, y = FakeGpu(), vector("x", 1), vector("y", 1)
    half = Tensor("H", (tiled(2, 2),), dtype="bf16")
    seen: list[Any] = []
    with Engine({"gpu": 1}, memories={"gpu": memory}) as engine:
        engine.submit(FunctionDefinition(cuda=on_arrays(axpy, library="torch")), read(x[0]), accumulate(y[0]))
        engine.submit(
            FunctionDefinition(cuda=on_arrays(lambda h: seen.append(h.dtype), library="torch")), read(half[0])
        )
        assert engine.array(y).tolist() == [0, 2, 4, 6]
    assert seen == [numpy.dtype("V2")]
    assert len(torch) == 4 and torch[0][1] == 0 and torch[0][0] in memory.queues.work and torch[1] is None


def test_a_function_of_torch_may_return_what_it_works_on(torch: list[Any]) -> None:
    x, y = vector("x", 1), vector("y", 1)
    add = FunctionDefinition(cuda=on_arrays(lambda x, y: numpy.add(y, x, out=y), library="torch"))
    with Engine({"gpu": 1}, memories={"gpu": FakeGpu()}) as engine:
        engine.submit(add, read(x[0]), read_write(y[0]))
        assert engine.array(y).tolist() == [0, 2, 4, 6]


def test_contractions_on_a_gpu_are_those_of_torch(torch: list[Any]) -> None:
    sys.modules["torch"].einsum = numpy.einsum  # type: ignore[attr-defined]  # a fake
    space = tiled(5, 2)
    a, b = (Tensor(name, (space, space), data=numpy.arange(25.0).reshape(5, 5)) for name in "AB")
    out = Tensor("C", (space, space))
    with Engine({"gpu": 2}, memories={"gpu": FakeGpu(bound=200)}) as engine:
        assert einsum(engine, "ik,kj->ij", a, b, out=out, alpha=2) == 27
        assert numpy.array_equal(engine.array(out), 2 * a.at_home() @ b.at_home())
    assert len(torch) == 2 * 27


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of NumPy 2.5; a tensor of torch has it
def test_a_function_that_changes_the_shape_of_its_tensor_changes_no_others(torch: list[Any]) -> None:
    x, shapes = vector("x", 1), list[Any]()

    def turn(x: Any) -> None:
        shapes.append(x.shape)
        x.shape = (2, 2)

    with Engine({"gpu": 1}, memories={"gpu": FakeGpu()}) as engine:
        for _ in range(2):
            engine.submit(FunctionDefinition(cuda=on_arrays(turn, library="torch")), read(x[0]))
    assert shapes == [(4,)] * 2
