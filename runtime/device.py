"""The GPU backend: cubins loaded and launched through cuda-core, on a stream that the call was given.

cuda-core is imported at the first use, so that this package loads without it.
"""

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from texpr.codegen.manifest import LaunchStep
from texpr.grammar.bits import scalar_bytes
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.types import DType
from texpr.runtime.arrays import CUDA, CUDA_HOST, CUDA_MANAGED
from texpr.runtime.streams import LEGACY

DEFAULT_SHARED_BYTES = 48 * 1024  # of one block, without asking
MAX_STREAMS = 64  # of the caller, that a loaded cubin remembers
MAX_LAUNCHES_KEPT = 256  # grids, likewise

_CTYPES: dict[str, Any] = {
    "f64": ctypes.c_double, "f32": ctypes.c_float, "i64": ctypes.c_int64, "i32": ctypes.c_int32,
    "i16": ctypes.c_int16, "i8": ctypes.c_int8, "u32": ctypes.c_uint32, "u8": ctypes.c_uint8, "bool": ctypes.c_bool,
    "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16, "f8e4m3": ctypes.c_uint8, "f8e5m2": ctypes.c_uint8,
}  # fmt: skip


def _cuda() -> Any:
    try:
        import cuda.core as core
    except ImportError:
        raise fail(
            "E0503", "launching on a GPU needs the package cuda-core", help='pip install "texpr[cuda]"'
        ) from None
    return core


def _driver() -> Any:
    """The driver itself, for what cuda-core has no call for."""
    from cuda.bindings import driver

    return driver


def _raise_shared_limit(kernel: Any, size_bytes: int, device: int) -> None:
    """More than 48 KiB of dynamic shared memory must be asked for."""
    driver = _driver()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, size_bytes, driver.CUkernel(int(kernel.handle)), device)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0505", f"this GPU does not give a block {size_bytes} bytes of shared memory ({status.name})")


@dataclass(frozen=True, slots=True)
class Queue:
    """A stream, and the device that was current before the call, where it is another one."""

    stream: Any
    before: Any


class CudaBackend:
    """One cubin on the current machine's GPUs; kernels are loaded on first use and kept."""

    devices: Sequence[int] = (CUDA, CUDA_HOST, CUDA_MANAGED)

    def __init__(self, cubin: bytes, shared_bytes: Mapping[str, int]) -> None:
        """Load `cubin`; `shared_bytes` maps every kernel's symbol to its dynamic shared memory. Raises E0503, E0505."""
        self._core = _cuda()
        try:
            device = self._core.Device()
            device.set_current()
            code = self._core.ObjectCode.from_cubin(cubin)
            self._kernels = {symbol: code.get_kernel(symbol) for symbol in shared_bytes}
            self._large = {symbol: size for symbol, size in shared_bytes.items() if size > DEFAULT_SHARED_BYTES}
            self._ready: set[int] = set()
            self._make_ready(device.device_id)
        except TExprError:
            raise
        except Exception as why:  # the driver's errors, of several classes: no driver, no GPU, wrong architecture
            raise fail(
                "E0505",
                f"the kernels could not be loaded on this machine's GPU: {str(why)[:300]}",
                help="check `texpr doctor`, and that the target names this GPU's architecture",
            ) from None
        self._streams: dict[tuple[int, int], Any] = {}
        self._kept: list[tuple[Any, Sequence[Any]]] = []  # owners of memory, with the event after their last use
        self._keeping = threading.Lock()
        self._launches: dict[tuple[Any, ...], Any] = {}

    def _make_ready(self, device: int) -> None:
        """Ask a device for the shared memory of all kernels: the limit is one of each device. Raises E0505."""
        for symbol, size in self._large.items():
            _raise_shared_limit(self._kernels[symbol], size, device)
        _ = self._core.Device(device).memory_resource  # from here on, workspaces come from memory that the pool keeps
        self._ready.add(device)

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int]) -> Any:
        if step.cluster != (1, 1, 1):
            raise fail("E0505", f"{step.symbol} runs in clusters of blocks, which this version does not launch")
        key = (step.symbol, grid, step.block, step.shared_bytes)
        launch = self._launches.get(key)  # once: another thread may empty what is kept
        if launch is None:
            if len(self._launches) >= MAX_LAUNCHES_KEPT:
                self._launches.clear()
            config = self._core.LaunchConfig(grid=grid, block=step.block, shmem_size=step.shared_bytes)
            launch = self._launches[key] = config, self._kernels[step.symbol], step.symbol
        return launch

    def pointer(self, address: int, size_bytes: int) -> Any:
        """cuda-core takes a plain int for a pointer."""
        return address

    def scalar(self, value: int | float | bool, dtype: DType) -> Any:
        """Everything but a pointer is sized by ctypes."""
        return _CTYPES[dtype.name].from_buffer_copy(scalar_bytes(value, dtype))

    def queue(self, device: int, stream: int | None) -> Queue:
        """The stream of this handle, with its device current. Raises E0505 for a device that has not the shared
        memory."""
        before = self._core.Device()
        target = before if before.device_id == device else self._core.Device(device)
        target.set_current()
        try:
            if device not in self._ready:
                self._make_ready(device)
            return Queue(self._stream(device, stream or LEGACY), None if before is target else before)
        except BaseException:
            before.set_current()
            raise

    def leave(self, queue: Queue, owners: Sequence[Any]) -> None:
        """Make the device current again that the caller, and the caller's framework, had chosen; let go the owners of
        earlier calls that are over."""
        try:
            if owners:
                event = queue.stream.record()
                with self._keeping:
                    self._kept = [kept for kept in self._kept if not _is_over(kept[0])]
                    self._kept.append((event, owners))
        finally:
            if queue.before is not None:
                queue.before.set_current()

    def _stream(self, device: int, handle: int) -> Any:
        """cuda-core's view of a stream that the caller owns; making one costs more than a launch, so it is kept."""
        key = (device, handle)
        stream = self._streams.get(key)  # once: another thread may empty what is kept
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self._streams.clear()
            try:
                stream = self._streams[key] = self._core.Stream.from_handle(handle)
            except Exception as why:  # the driver's own error classes
                raise fail("E0601", f"the stream cannot be used: {str(why)[:200]}") from None
        return stream

    @contextmanager
    def scratch(self, size_bytes: int, queue: Queue) -> Iterator[int]:
        """Stream-ordered device memory, released after the call's launches. While the stream is captured, the driver
        makes both into nodes of the graph, which cuda-core's resources do not offer under one name."""
        driver = _driver()
        status, address = driver.cuMemAllocAsync(size_bytes, queue.stream.handle)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise fail("E0403", f"the GPU gives no {size_bytes} bytes for workspaces ({status.name})")
        try:
            yield int(address)
        finally:
            driver.cuMemFreeAsync(address, queue.stream.handle)

    def start(self, kernel: Any, arguments: Sequence[Any], queue: Queue) -> None:
        """Enqueue one kernel; E0601 when the driver refuses the launch."""
        config, function, symbol = kernel
        try:
            self._core.launch(queue.stream, config, function, *arguments)
        except Exception as why:  # the driver's own error classes
            raise fail("E0601", f"the launch of {symbol} failed: {str(why)[:300]}") from None


def _is_over(event: Any) -> bool:
    """Whether the GPU has passed an event; one that a graph captured never is."""
    try:
        return bool(event.is_done)
    except Exception:  # the driver's own error classes
        return False


def compute_capability(number: int) -> tuple[int, int]:
    """Major and minor compute capability of a GPU. Raises E0503 without cuda-core or a driver."""
    core = _cuda()
    try:
        found = core.Device(number).compute_capability
        return int(found.major), int(found.minor)
    except Exception as why:  # the driver's own error classes
        raise fail("E0503", f"GPU {number} cannot be asked: {str(why)[:200]}", help="see `texpr doctor`") from None
