"""Workers on GPUs: the engine's own code over devices in memory of the host, and over a driver that is faked."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from fake_gpu import FakeDriver, FakeGpu, Queues, on_gpu, raw
from test_tensors import refused

import texpr
from texpr.codegen.manifest import Manifest, Parameter
from texpr.runtime.tasks import cuda_device
from texpr.runtime.tasks.cuda_device import WORTH_LOCKING
from texpr.tasks import (
    Block,
    Engine,
    FunctionDefinition,
    Task,
    TaskContext,
    Tensor,
    accumulate,
    gpu,
    may_accumulate,
    on_arrays,
    read,
    read_write,
    temp,
    tiled,
    write,
)  # fmt: skip


class Kernel:
    """A compiled kernel for a GPU, which puts its work on the stream that it is given."""

    def __init__(self, queues: Queues, modes: dict[str, str], body: Any) -> None:
        ops = {"accumulate": "add"}
        parameters = tuple(
            Parameter(name=name, dtype="f64", shape=("N",), strides=(1,), mode=mode, op=ops.get(mode))
            for name, mode in modes.items()
        )
        self.manifest = Manifest(
            name="kernel", target="cuda:sm_90a", arch="", loadable=True, parameters=parameters, workspace_bytes=0,
            workspace=(), host=(), files={}, texpr="", sizes={"N": None}, facts=(),
        )  # fmt: skip
        self.queues, self.body = queues, body

    def __call__(self, *views: Any, stream: int) -> None:
        assert all(view.device[0] == 2 and view.strides == (1,) for view in views)
        arrays = [raw(view.pointer, 8 * view.shape[0]).view(numpy.float64) for view in views]
        self.queues.put(stream, lambda: self.body(*arrays))


@pytest.fixture(params=["device", "driver"])
def one_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A GPU's memory, with its queues, that has nothing left at the end."""
    if request.param == "device":
        memory: Any = FakeGpu(bound=3 * 32)
        yield memory
        assert memory.device.closed
        return
    fake = FakeDriver()
    monkeypatch.setattr(cuda_device, "driver", lambda: fake)
    monkeypatch.setattr(cuda_device, "entry", fake.entry)
    monkeypatch.setattr(cuda_device, "brief", fake.entry)

    yield SimpleNamespace(queues=fake.queues, bound=3 * 32, open=gpu(1).open)
    assert not (fake.memory or fake.contexts or fake.locked or fake.retained or fake.streams or fake.modules)


def vector(name: str = "A", tiles: int = 4, **options: Any) -> Tensor:
    return Tensor(name, (tiled(4 * tiles, 4),), data=numpy.arange(4.0 * tiles), **options)


def axpy(x: Any, y: Any) -> None:
    y += x


def test_kernels_run_on_a_gpu_and_what_they_began_is_waited_for(one_gpu: Any) -> None:
    x, y, z = vector("x"), vector("y"), Tensor("z", (tiled(16, 4),))
    add = Kernel(one_gpu.queues, {"x": "read", "y": "accumulate"}, axpy)
    double = Kernel(one_gpu.queues, {"y": "read-write", "z": "write"}, lambda y, z: numpy.copyto(z, y * 2))
    with Engine({"gpu": 2}, memories={"gpu": one_gpu}, debug=True) as engine:
        for _ in range(3):
            for k in range(4):
                engine.submit(add, x[k], y[k])
        for k in range(4):
            engine.submit(double, y[k], z[k])
        assert engine.array(z).tolist() == [8.0 * k for k in range(16)]
        assert engine.array(y).tolist() == [4.0 * k for k in range(16)]


def test_a_block_that_is_part_of_a_matrix_is_packed_on_its_way(one_gpu: Any) -> None:
    data = numpy.arange(12.0).reshape(3, 4)
    a = Tensor("A", (tiled(3, 1), tiled(4, 2)), data=data)

    def negate(context: TaskContext, block: Block) -> None:
        with context.get_buf_cread_write(block) as buffer:
            values = context.memory.on_host(buffer.array)
            buffer.release_put(-values)

    with Engine({"gpu": 1}, memories={"gpu": one_gpu}, debug=True) as engine:
        for block in a.blocks():
            cuda = FunctionDefinition(cuda=negate)
            engine.submit(cuda, read_write(block, cancellable=True), args=(block,))
    assert numpy.array_equal(data, -numpy.arange(12.0).reshape(3, 4))


def test_memory_of_a_tasks_own_is_on_the_gpu_and_given_back(one_gpu: Any) -> None:
    a, zero = vector(), Tensor("Z", (tiled(4, 4),), zero=lambda i: True)

    def body(context: TaskContext) -> None:
        assert context.kind == "cuda" and context.device == context.memory.device.number
        with context.get_buf_tmp(a[0], fill=3) as own, context.get_buf_read(zero[0]) as zeros:
            copied = own.copy()
            assert context.memory.on_host(zeros.array).tolist() == [0] * 4
            with pytest.raises(texpr.TExprError, match="E0708"):
                own.view("numpy")
            with pytest.raises(texpr.TExprError, match="E0708"):
                numpy.asarray(own)
            copied.release_add()
        with pytest.warns(texpr.TExprWarning, match="W0701"):
            sums = context.get_buf_accumulate(a[1])
        sums.release_add()

    with Engine({"gpu": 1}, memories={"gpu": one_gpu}) as engine:
        engine.submit(FunctionDefinition(cuda=body), temp(a[0]), may_accumulate(a), read(zero[0]))
        assert engine.array(a).tolist() == [3, 4, 5, 6, *range(4, 16)]
        assert engine._flow.holdings.nodes[1].reserved == 0


def test_each_worker_runs_the_entry_of_its_kind() -> None:
    seen: list[str] = []

    def at_home(context: TaskContext, *args: Any) -> None:
        seen.append(f"home {context.kind}")

    def away(context: TaskContext, *args: Any) -> None:
        seen.append(f"away {context.kind}")

    both = FunctionDefinition(cpu=at_home, cuda=away)
    with Engine({"home": 1, "gpu": 1}, memories={"gpu": FakeGpu()}, policy=AtNode()) as engine:
        engine.submit(both, args=(1,))
        engine.submit(both, args=(0,))
        engine.submit(at_home, args=(0,))
        engine.wait()
        assert sorted(seen) == ["away cuda", "home cpu", "home cpu"]
        engine.submit(at_home, args=(1,))
        refused("E0715", "the policy places it at 1, not at one of [0]", engine.wait)
    with Engine({"gpu": 1}, memories={"gpu": FakeGpu()}) as engine:
        said = "task at_home#0 has an entry for `cpu`, and the engine has workers for `cuda`"
        refused("E0716", said, lambda: engine.submit(at_home))


class AtNode:
    """Tasks run where their last argument says."""

    def place(self, task: Task, load: Any) -> int:
        node: int = task.args[-1]
        return node


def test_blocks_move_between_gpus_without_going_home() -> None:
    memories = {"a": FakeGpu(0), "b": FakeGpu(1)}
    x, sums = vector(tiles=1), Tensor("S", (tiled(4, 4),))
    with Engine({"a": 1, "b": 1}, memories=memories, policy=AtNode(), debug=True) as engine:
        engine.submit(on_gpu(lambda x: numpy.multiply(x, 2, out=x)), read_write(x[0]), args=(1,))
        engine.submit(on_gpu(lambda x, s: numpy.add(s, x, out=s)), read(x[0]), accumulate(sums[0]), args=(1,))
        engine.submit(on_gpu(lambda x, s: numpy.add(s, x, out=s)), read(x[0]), accumulate(sums[0]), args=(2,))
        assert engine.array(sums).tolist() == [0, 4, 8, 12]
    a, b = (memory.device for memory in memories.values())
    assert b.counts["copy_peer"] == 1 and b.counts["copy_in"] == b.counts["add"] == 1  # a sum meets what is at home
    assert "copy_peer" not in a.counts and a.counts["copy_in"] == 1 + a.counts["add"] == 2


@pytest.mark.parametrize(("dtype", "on_device"), [("f64", True), ("f32", False)])
def test_sums_of_blocks_of_several_sizes_come_home(dtype: str, on_device: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("texpr.runtime.tasks.device_nodes.PIECE", 56)  # a long one comes in pieces
    monkeypatch.setattr("texpr.runtime.tasks.device_nodes.DeviceNode.copiers", (1, 1))  # one thread brings them all
    memory = FakeGpu()
    sums = [Tensor(name, (tiled(extent, extent),), dtype) for name, extent in (("S", 4), ("L", 64), ("M", 8))]
    with Engine({"gpu": 1}, memories={"gpu": memory}, debug=True) as engine:
        for tensor in sums:
            for _ in range(2):
                engine.submit(on_gpu(lambda s: numpy.add(s, 1, out=s)), accumulate(tensor[0]))
            engine.flush(tensor)
            engine.submit(on_gpu(lambda s: numpy.add(s, 1, out=s)), accumulate(tensor[0]))
        assert [set(engine.array(tensor).tolist()) for tensor in sums] == [{3.0}] * 3
    assert ("add" in memory.device.counts) is on_device is ("unlock" not in memory.device.counts)


def test_random_kernels_on_two_gpus_give_what_one_after_another_gives() -> None:
    for seed in range(8):
        rng = random.Random(seed)
        memories = {"a": FakeGpu(0, bound=3 * 32), "b": FakeGpu(1, bound=4 * 32)}
        data = [numpy.arange(4.0) + k for k in range(6)]
        tensors = Tensor("T", (tiled(24, 4),), data=numpy.concatenate(data), packed=True)
        ways = {
            "add": (accumulate, lambda x, y: numpy.add(y, x, out=y)),
            "change": (read_write, lambda x, y: numpy.add(2 * y, x, out=y)),
            "write": (write, lambda x, y: numpy.copyto(y, x + 1)),
        }
        with Engine({"a": 2, "b": 1}, memories=memories, policy=AtNode(), debug=True) as engine:
            for _ in range(40):
                source, target = rng.sample(range(6), 2)
                access, body = ways[rng.choice(sorted(ways))]
                engine.submit(on_gpu(body), read(tensors[source]), access(tensors[target]), args=(rng.randint(1, 2),))
                body(data[source], data[target])
            assert numpy.array_equal(engine.array(tensors), numpy.concatenate(data))
        assert all(memory.device.closed for memory in memories.values())


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("allocate", "task kernel#0 failed: task kernel#0: x[0] has no value"),
        ("copy_in", "task kernel#0 failed: task kernel#0: x[0] has no value"),
        ("finish", "has no value"),
    ],
)
def test_a_gpu_that_fails_fails_its_tasks_and_no_others(failing: str, said: str) -> None:
    memory, x, y, z = FakeGpu(), vector("x"), vector("y"), vector("z")
    add = Kernel(memory.queues, {"x": "read", "y": "accumulate"}, axpy)
    with Engine({"home": 1, "gpu": 1}, memories={"gpu": memory}) as engine:
        memory.device.failing.add(failing)
        engine.submit(add, x[0], y[0])
        refused("E0715", said, engine.wait)
        memory.device.failing.clear()
        engine.submit(on_arrays(lambda z: numpy.negative(z, out=z)), read_write(z[0]))
        engine.submit(add, x[1], y[1])
        assert engine.array(z)[:4].tolist() == [0, -1, -2, -3]
        engine.flush(y)
        assert y[1].home.tolist() == [8, 10, 12, 14]


def test_a_task_that_writes_where_the_gpu_gave_no_memory_fails() -> None:
    memory, y = FakeGpu(), vector("y")
    with Engine({"gpu": 1}, memories={"gpu": memory}) as engine:
        memory.device.failing.add("allocate")
        engine.submit(on_gpu(lambda y: y.fill(1)), write(y[0]))
        refused("E0715", "task on_gpu#0 failed: GPU 0 failed: allocate", engine.wait)
        memory.device.failing.clear()
        engine.submit(on_gpu(lambda y: y.fill(1)), write(y[1]))
        engine.flush(y)
        assert y[1].home.tolist() == [1] * 4


def test_a_kernel_that_fails_is_told_when_its_task_gives_its_blocks_back() -> None:
    memory, y = FakeGpu(), vector("y")

    def body(context: TaskContext, block: Block) -> None:
        with context.get_buf_write(block) as buffer:
            memory.device.failing.add("finish")
            buffer.release_put()

    with Engine({"gpu": 1}, memories={"gpu": memory}) as engine:
        engine.submit(FunctionDefinition(cuda=body), write(y[0]), args=(y[0],))
        refused("E0715", "task body#0 failed: GPU 0 failed: finish", engine.wait)
        memory.device.failing.clear()
        engine.submit(on_gpu(lambda y: y.fill(1)), write(y[0]))
        assert engine.array(y)[:4].tolist() == [1] * 4


def test_memory_that_nobody_uses_goes_back_to_the_driver_for_other_sizes() -> None:
    memory = FakeGpu(bound=64)
    small, large = Tensor("S", (tiled(16, 4),)), Tensor("L", (tiled(8, 8),))
    add = Kernel(memory.queues, {"x": "read"}, lambda x: None)
    with Engine({"gpu": 1}, memories={"gpu": memory}) as engine:
        for block in (*small.blocks(), *large.blocks(), *small.blocks()):
            engine.submit(add, block)
        engine.wait()
        assert sum(array.nbytes for array in memory.device.memory.values()) <= 64
        assert memory.device.counts["allocate"] <= 2 + 1 + 2


def test_a_gpu_without_a_bound_has_most_of_what_is_free() -> None:
    with Engine({"gpu": 1}, memories={"gpu": FakeGpu(size_bytes=1000)}) as engine:
        assert engine._flow.holdings.nodes[1].bound == 900


def test_pages_of_home_are_locked_once_and_unlocked_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDriver()
    monkeypatch.setattr(cuda_device, "driver", lambda: fake)
    monkeypatch.setattr(cuda_device, "entry", fake.entry)
    monkeypatch.setattr(cuda_device, "brief", fake.entry)
    count = WORTH_LOCKING // 8
    a, b = (Tensor(name, (tiled(count, count),)) for name in "AB")
    kernel = Kernel(fake.queues, {"x": "read-write"}, lambda x: numpy.add(x, 1, out=x))
    with Engine({"gpu": 1}, memories={"gpu": gpu(0, bound=2 * WORTH_LOCKING)}) as engine:
        for tensor in (a, b, a):
            engine.submit(kernel, tensor[0])
        assert engine.array(a)[-1] == 2
        assert fake.calls.count("cuMemHostRegister") == 2 and a[0].home.ctypes.data in fake.locked
        engine.deallocate(a)
        engine.wait()
        assert list(fake.locked) == [b[0].home.ctypes.data]
    assert not fake.locked and not fake.memory and fake.retained == 0


def test_a_gpu_that_is_not_there_is_refused_when_the_engine_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDriver()
    monkeypatch.setattr(cuda_device, "driver", lambda: fake)
    monkeypatch.setattr(cuda_device, "entry", fake.entry)
    monkeypatch.setattr(cuda_device, "brief", fake.entry)
    refused(
        "E0717", "GPU 2 failed: cuDeviceGet says CUDA_ERROR_101",
        lambda: Engine({"a": 1, "b": 1}, memories={"a": gpu(0), "b": gpu(2)}),
    )  # fmt: skip
    assert fake.retained == 0

    def missing() -> Any:
        raise ImportError

    monkeypatch.setattr(cuda_device, "driver", missing)
    refused("E0503", "need the package cuda-bindings", lambda: Engine({"a": 1}, memories={"a": gpu(0)}))
    refused("E0703", "a number of a GPU, and bytes or None", lambda: gpu(-1))
    refused("E0703", "a number of a GPU, and bytes or None", lambda: gpu(0, bound=True))
