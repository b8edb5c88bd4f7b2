"""Blocks as arrays of NumPy and of other libraries, on one memory; functions on arrays as functions of tasks."""

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy
import pytest
from test_tensors import refused

from texpr.grammar.diagnostics import TExprWarning
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.engine import Engine
from texpr.runtime.tasks.frameworks import on_arrays
from texpr.runtime.tasks.permissions import accumulate, read, read_write, temp, write
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.tensors import Block, Tensor


def vector(name: str, *values: float, **options: Any) -> Tensor:
    return Tensor(name, (tiled(len(values), 2),), data=numpy.array(values, float), **options)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What of torch the runtime asks for, and no more: a consumer of DLPack that takes no read-only memory."""

    def from_dlpack(array: Any) -> Any:
        array.__dlpack__()  # which refuses memory that cannot be written, and types that DLPack has not
        return array.view()

    module = ModuleType("torch")
    module.from_dlpack, module.bfloat16 = from_dlpack, numpy.dtype("V2")  # type: ignore[attr-defined]  # a fake
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.mark.parametrize("workers", [{"workers": 1}, {"workers": {"away": 1}, "memories": {"away": 64}}])
def test_a_function_on_arrays_gets_the_blocks_it_declared_and_commits_them(workers: Any) -> None:
    x, y, z = vector("x", 1, 2), vector("y", 3, 4), vector("z", 5, 6)

    @on_arrays
    def body(a: Any, b: Any, c: Any, d: Any, factor: float) -> None:
        d[...] = 1
        b += factor * a * d
        c[...] = a
        with pytest.raises(ValueError, match="read-only"):
            a[...] = 0

    with Engine(**workers) as engine:
        task = engine.submit(body, read(x[0]), accumulate(y[0]), write(z[0], cancellable=True), temp(x[0]), args=(2.0,))
        assert str(task) == "task body#0"
        assert (engine.array(y).tolist(), engine.array(z).tolist()) == ([5, 8], [1, 2])


def test_what_a_function_on_arrays_returns_must_be_what_it_modified() -> None:
    x, y = vector("x", 1, 2), vector("y", 3, 4)
    with Engine(1) as engine:
        engine.submit(on_arrays(lambda a, b: numpy.add(a, 1, out=b)), read(x[0]), write(y[0]))
        assert engine.array(y).tolist() == [2, 3]
        engine.submit(on_arrays(lambda a, b: a + b), read(x[0]), write(y[0]))
        refused("E0715", "returns a ndarray, and nothing takes it", engine.wait)


def test_blocks_are_tensors_of_torch_on_the_same_memory(torch: ModuleType) -> None:
    data = numpy.array([[1.0, 2, 3], [4, 5, 6]])
    x, y = Tensor("x", (tiled(2, 2), tiled(3, 2)), data=data), Tensor("y", (tiled(2, 2),))
    seen: list[Any] = []

    def body(a: Any, b: Any) -> None:
        seen.append(a)
        b += a.sum(1)

    def plain(context: TaskContext, block: Block) -> None:
        with context.get_buf_read(block) as buffer:
            seen.append(buffer.view("torch"))
            assert buffer.view("numpy") is buffer.array

    with Engine(1) as engine:
        engine.submit(on_arrays(body, library="torch"), read(x[0, 0]), accumulate(y[0]))
        engine.submit(plain, read(x[0, 1]), args=(x[0, 1],))
        assert engine.array(y).tolist() == [3, 9]
    assert seen[0].strides == (24, 8) and numpy.shares_memory(seen[0], data)
    assert numpy.shares_memory(seen[1], data)


def test_types_that_numpy_does_not_export_go_as_their_bits(torch: ModuleType) -> None:
    x = Tensor("x", (tiled(2, 2),), dtype="bf16")
    seen: list[Any] = []
    with Engine(1) as engine:
        engine.submit(on_arrays(lambda a: seen.append(a.dtype), library="torch"), read(x[0]))
    assert seen == [numpy.dtype("V2")]


def test_a_zero_block_is_zeros_to_torch(torch: ModuleType) -> None:
    x = Tensor("x", (tiled(2, 2),), zero=lambda i: True)
    seen: list[Any] = []
    with Engine(1) as engine:
        engine.submit(on_arrays(lambda a: seen.extend(a.tolist()), library="torch"), read(x[0]))
    assert seen == [0, 0]


def test_a_library_that_cannot_have_a_block_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    x = vector("x", 1, 2)
    refused("E0703", "arrays are of numpy, torch, cupy, not of 'jax'", lambda: on_arrays(len, library="jax"))
    refused("E0703", "a function on arrays is a function, not a int", lambda: on_arrays(3))  # type: ignore[arg-type]  # on purpose
    with Engine(1) as engine:
        for library, said in (
            ("torch", "task len#0: x[0] is asked for as an array of torch"),
            ("cupy", "task len#1: x[0] is in memory of the host, where no array of cupy can be"),
        ):
            engine.submit(on_arrays(len, library=library), read(x[0]))
            refused("E0715", said, engine.wait)


def test_the_face_of_tasks_loads_when_it_is_asked_for() -> None:
    code = (
        "import sys, texpr\n"
        "before = 'numpy' in sys.modules\n"
        "names = ('torch', 'cupy', 'numba', 'rich')\n"
        "print(before, texpr.tasks.Engine.__name__, [name for name in names if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False Engine []"


def test_a_function_on_arrays_that_another_one_calls_commits_at_once() -> None:
    x, y = vector("x", 1, 2), vector("y", 3, 4)
    add = on_arrays(lambda a, b: numpy.add(a, b, out=b))

    def twice(context: TaskContext) -> None:
        add(context)
        with context.get_buf_read_write(y[0]) as buffer:  # which it no longer holds
            buffer.array[...] *= 2
            buffer.release_put()

    with pytest.warns(TExprWarning, match="was not declared"), Engine(1) as engine:
        engine.submit(twice, read(x[0]), read_write(y[0]))
        assert engine.array(y).tolist() == [8, 12]
