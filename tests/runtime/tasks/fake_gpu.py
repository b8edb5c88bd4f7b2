"""GPUs in memory of the host: as devices of an engine, and as the driver under the real device.

What is put on a queue happens when the queue is finished, and not before: whoever does not wait sees old values. A
device has so many bytes, and fails on demand.
"""

import ctypes
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.device_sums import TEXT
from texpr.tasks import FunctionDefinition, TaskContext


class Queues:
    """Work that is put off until its queue is finished."""

    def __init__(self) -> None:
        self.work: dict[int, list[Callable[[], None]]] = {}
        self.lock = threading.Lock()

    def new(self) -> int:
        with self.lock:
            handle = 1000 + len(self.work)
            self.work[handle] = []
            return handle

    def put(self, handle: int, work: Callable[[], None]) -> None:
        self.work[handle].append(work)

    def finish(self, handle: int) -> None:
        work, self.work[handle] = self.work[handle], []
        for step in work:
            step()


def raw(address: int, size: int) -> Any:
    return numpy.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))


ADDED = ("int64", "float64")  # types of which a device adds arrays


def within(address: int, memory: dict[int, Any]) -> bool:
    return any(begin <= address < begin + array.nbytes for begin, array in list(memory.items()))


def added(address: int, source: int, count: int, dtype: str) -> None:
    to, of = (raw(place, count * numpy.dtype(dtype).itemsize).view(dtype) for place in (address, source))
    to += of


class FakeDevice:
    """A device of an engine. `failing` names operations that fail."""

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number, self.size_bytes = number, size_bytes
        self.queues = Queues()
        self.memory: dict[int, Any] = {}
        self.counts: dict[str, int] = {}
        self.failing: set[str] = set()
        self.closed = False

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        if name in self.failing:
            raise fail("E0717", f"GPU {self.number} failed: {name}")

    def enter(self) -> None:
        self._count("enter")

    def queue(self, *, urgent: bool = False) -> int:
        return self.queues.new()

    def free_bytes(self) -> int:
        return self.size_bytes - sum(array.nbytes for array in self.memory.values())

    def allocate(self, size_bytes: int) -> int:
        self._count("allocate")
        if size_bytes > self.free_bytes():
            raise fail("E0717", f"GPU {self.number} failed: no memory")
        array = numpy.full(size_bytes, 0xAB, numpy.uint8)
        self.memory[array.ctypes.data] = array
        return int(array.ctypes.data)

    def free(self, address: int) -> None:
        del self.memory[address]

    def lock(self, host: Any) -> None:
        self._count("lock")

    def unlock(self, host: Any) -> None:
        self._count("unlock")

    def copy_in(self, address: int, host: Any, queue: int) -> None:
        self._count("copy_in")
        assert host.flags.c_contiguous and within(address, self.memory)
        self.queues.put(queue, lambda: ctypes.memmove(address, host.ctypes.data, host.nbytes))

    def copy_out(self, host: Any, address: int, queue: int) -> None:
        self._count("copy_out")
        assert host.flags.c_contiguous and within(address, self.memory)
        self.queues.put(queue, lambda: ctypes.memmove(host.ctypes.data, address, host.nbytes))

    def copy_within(self, address: int, source: int, size_bytes: int, queue: int) -> None:
        self._count("copy_within")
        self.queues.put(queue, lambda: ctypes.memmove(address, source, size_bytes))

    def copy_peer(self, address: int, other: Any, source: int, size_bytes: int, queue: int) -> None:
        self._count("copy_peer")
        assert source in other.memory
        self.queues.put(queue, lambda: ctypes.memmove(address, source, size_bytes))

    def zero(self, address: int, size_bytes: int, queue: int) -> None:
        self._count("zero")
        self.queues.put(queue, lambda: ctypes.memset(address, 0, size_bytes))

    def adds(self, dtype: str) -> bool:
        return dtype in ADDED

    def add(self, address: int, source: int, count: int, dtype: str, queue: int) -> None:
        self._count("add")
        self.queues.put(queue, lambda: added(address, source, count, dtype))

    def finish(self, queue: int) -> None:
        self._count("finish")
        self.queues.finish(queue)

    def close(self) -> None:
        self.closed = True
        self.memory.clear()


class FakeGpu:
    """What stands among the memories of an engine."""

    def __init__(self, number: int = 0, bound: int | None = None, size_bytes: int = 1 << 20) -> None:
        self.device, self.bound = FakeDevice(number, size_bytes), bound
        self.queues = self.device.queues

    def open(self) -> FakeDevice:
        return self.device


def on_gpu(body: Any) -> FunctionDefinition:
    """A function on the arrays of the declared accesses that puts its work on the worker's stream."""

    def run(context: TaskContext, *args: Any) -> None:
        buffers = [context.get_buf(access) for access in context.task.grants.accesses]
        own = [raw(b.array.address, b.array.size_bytes).view(b.array.dtype) for b in buffers]
        memory: Any = context.memory
        memory.device.queues.put(context.stream, lambda: body(*own))
        for buffer in buffers:
            buffer.commit()

    return FunctionDefinition(cuda=run, name="on_gpu")


class FakeDriver:
    """The functions of the CUDA driver that the real device calls, by name, taking values of ctypes."""

    def __init__(self) -> None:
        self.queues = Queues()
        self.memory: dict[int, Any] = {}
        self.locked: dict[int, int] = {}
        self.contexts: list[int] = []
        self.retained = 0
        self.streams = self.modules = 0
        self.functions: list[str] = []
        self.calls: list[str] = []
        self.CUresult = lambda code: SimpleNamespace(name=f"CUDA_ERROR_{code}")

    def cuInit(self, flags: int) -> tuple[int]:  # noqa: N802 -- the driver's name
        return (0,)

    def entry(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            found = [getattr(a, "_obj", a) for a in arguments]
            return int(getattr(self, f"do_{name}")(*found) or 0)

        return call

    def do_cuDeviceGet(self, device: Any, number: Any) -> int:  # noqa: N802 -- the driver's name
        device.value = number.value + 70
        return 0 if number.value < 2 else 101

    def do_cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:  # noqa: N802 -- the driver's name
        self.retained += 1
        context.value = device.value + 100

    def do_cuDevicePrimaryCtxRelease(self, device: Any) -> None:  # noqa: N802 -- the driver's name
        self.retained -= 1

    def do_cuCtxSetCurrent(self, context: Any) -> None:  # noqa: N802 -- the driver's name
        assert context.value >= 170

    def do_cuCtxPushCurrent(self, context: Any) -> None:  # noqa: N802 -- the driver's name
        self.contexts.append(context.value)

    def do_cuCtxPopCurrent(self, context: Any) -> None:  # noqa: N802 -- the driver's name
        context.value = self.contexts.pop()

    def do_cuCtxGetStreamPriorityRange(self, least: Any, first: Any) -> None:  # noqa: N802 -- the driver's name
        least.value, first.value = 0, -5

    def do_cuStreamCreateWithPriority(self, stream: Any, flags: Any, priority: Any) -> None:  # noqa: N802 -- the driver's name
        assert flags.value == 1 and priority.value in (0, -5)
        self.streams += 1
        stream.value = self.queues.new()

    def do_cuStreamDestroy(self, stream: Any) -> None:  # noqa: N802 -- the driver's name
        self.streams -= 1

    def do_cuStreamQuery(self, stream: Any) -> int:  # noqa: N802 -- the driver's name
        return 600 if self.queues.work[stream.value] else 0

    def do_cuStreamSynchronize(self, stream: Any) -> None:  # noqa: N802 -- the driver's name
        self.queues.finish(stream.value)

    def do_cuCtxEnablePeerAccess(self, context: Any, flags: Any) -> int:  # noqa: N802 -- the driver's name
        assert context.value != self.contexts[-1] and flags.value == 0
        return 217  # no link

    def do_cuModuleLoadData(self, module: Any, text: Any) -> None:  # noqa: N802 -- the driver's name
        assert text.value.startswith(b".version")
        module.value, self.modules = 5, self.modules + 1

    def do_cuModuleUnload(self, module: Any) -> None:  # noqa: N802 -- the driver's name
        self.modules -= module.value == 5

    def do_cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> None:  # noqa: N802 -- the driver's name
        assert b".entry " + name.value + b"(" in TEXT.encode()
        self.functions.append(name.value.decode().removeprefix("add_"))
        function.value = len(self.functions)

    def do_cuLaunchKernel(self, function: Any, *shape: Any) -> None:  # noqa: N802 -- the driver's name
        *grid, queue, places, _ = shape
        to, of, count = (ctypes.c_uint64.from_address(place).value for place in places)
        name = self.functions[function.value - 1]
        dtype = name if "float" in name else f"int{name}"
        assert grid[0].value * grid[3].value >= min(count, 1) and of in self.memory
        self.queues.put(queue.value, lambda: added(to, of, count, dtype))

    def do_cuMemGetInfo(self, free: Any, total: Any) -> None:  # noqa: N802 -- the driver's name
        free.value, total.value = 1000, 2000

    def do_cuMemAlloc(self, address: Any, size: Any) -> int:  # noqa: N802 -- the driver's name
        if size.value > 1 << 20:
            return 2
        array = numpy.full(size.value, 0xAB, numpy.uint8)
        self.memory[array.ctypes.data] = array
        address.value = array.ctypes.data
        return 0

    def do_cuMemFree(self, address: Any) -> None:  # noqa: N802 -- the driver's name
        del self.memory[address.value]

    def do_cuMemHostRegister(self, begin: Any, size: Any, flags: Any) -> int:  # noqa: N802 -- the driver's name
        if begin.value in self.locked:
            return 712
        self.locked[begin.value] = size.value
        return 0

    def do_cuMemHostUnregister(self, begin: Any) -> None:  # noqa: N802 -- the driver's name
        del self.locked[begin.value]

    def _move(self, target: Any, source: Any, size: Any, queue: Any) -> None:
        assert within(target.value, self.memory) or within(source.value, self.memory)
        self.queues.put(queue.value, lambda: ctypes.memmove(target.value, source.value, size.value))

    do_cuMemcpyHtoDAsync = do_cuMemcpyDtoHAsync = do_cuMemcpyDtoDAsync = _move  # noqa: N815 -- the driver's names

    def do_cuMemcpyPeerAsync(self, target: Any, here: Any, source: Any, there: Any, size: Any, queue: Any) -> None:  # noqa: N802 -- the driver's name
        assert here.value != there.value
        self._move(target, source, size, queue)

    def do_cuMemsetD8Async(self, address: Any, byte: Any, size: Any, queue: Any) -> None:  # noqa: N802 -- the driver's name
        self.queues.put(queue.value, lambda: ctypes.memset(address.value, byte.value, size.value))
