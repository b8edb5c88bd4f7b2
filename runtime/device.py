"""The GPU backend: cubins loaded and launched through cuda-core, on a stream that the call was given.

cuda-core is imported at the first use, so that this package loads without it.
"""

import ctypes
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from texpr.codegen.manifest import LaunchStep
from texpr.codegen.tensor_map import TensorMap
from texpr.grammar.bits import scalar_bytes
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.types import DType
from texpr.runtime.arrays import CUDA, CUDA_HOST, CUDA_MANAGED
from texpr.runtime.driver import COOPERATIVE, OVERLAPPING, encode, launch
from texpr.runtime.driver import driver as bindings
from texpr.runtime.streams import LEGACY

DEFAULT_SHARED_BYTES = 48 * 1024  # of one block, without asking
PORTABLE_CLUSTER = 8  # blocks, likewise
MAX_STREAMS = 64  # of the caller, that a loaded cubin remembers
MAX_LAUNCHES_KEPT = 256  # grids, likewise
MAX_ZEROS = 64  # streams whose calls leave zeros that the next one takes

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


def _allow_wide_clusters(kernel: Any, device: int) -> None:
    """Clusters of more than 8 blocks must be asked for: not every GPU has them."""
    driver = bindings()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    (status,) = driver.cuKernelSetAttribute(attribute, 1, driver.CUkernel(int(kernel.handle)), device)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0505", f"this GPU has no clusters of more than {PORTABLE_CLUSTER} blocks ({status.name})")


def _raise_shared_limit(kernel: Any, size_bytes: int, device: int) -> None:
    """More than 48 KiB of dynamic shared memory must be asked for."""
    driver = bindings()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, size_bytes, driver.CUkernel(int(kernel.handle)), device)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0505", f"this GPU does not give a block {size_bytes} bytes of shared memory ({status.name})")


@dataclass(frozen=True, slots=True)
class Start:
    """A kernel with its grid. `config` is cuda-core's, None where the driver itself is to launch: for tensor maps, and
    for launch `attributes`."""

    function: Any
    step: LaunchStep
    grid: tuple[int, int, int]
    config: Any
    attributes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Queue:
    """A stream, and the device that was current before the call, where it is another one."""

    stream: Any
    before: Any


class CudaBackend:
    """One cubin on the current machine's GPUs; kernels are loaded on first use and kept."""

    devices: Sequence[int] = (CUDA, CUDA_HOST, CUDA_MANAGED)

    def __init__(self, cubin: bytes, steps: Iterable[LaunchStep]) -> None:
        """Load `cubin` for the launches of a host program. Raises E0503, E0505."""
        self._core = _cuda()
        try:
            device = self._core.Device()
            device.set_current()
            code = self._core.ObjectCode.from_cubin(cubin)
            self._kernels: dict[str, Any] = {}
            self._large: dict[str, int] = {}
            self._wide: set[str] = set()
            for step in steps:
                symbol, size = step.symbol, step.shared_bytes
                self._kernels[symbol] = self._kernels.get(symbol) or code.get_kernel(symbol)
                if size > max(self._large.get(symbol, 0), DEFAULT_SHARED_BYTES):
                    self._large[symbol] = size
                if prod(step.cluster) > PORTABLE_CLUSTER:
                    self._wide.add(symbol)
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
        self._launches: dict[tuple[Any, ...], Start] = {}
        self._zeros: dict[int | None, tuple[int, int]] = {}  # by the stream's number: address, bytes

    def _make_ready(self, device: int) -> None:
        """Ask a device for the shared memory and the clusters of all kernels: limits are those of each device. Raises
        E0505."""
        for symbol, size in self._large.items():
            _raise_shared_limit(self._kernels[symbol], size, device)
        for symbol in sorted(self._wide):
            _allow_wide_clusters(self._kernels[symbol], device)
        _ = self._core.Device(device).memory_resource  # from here on, workspaces come from memory that the pool keeps
        self._ready.add(device)

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int]) -> Start:
        key = (step.symbol, grid, step.block, step.shared_bytes, step.overlaps, step.cooperative)
        start = self._launches.get(key)  # once: another thread may empty what is kept
        if start is None:
            if len(self._launches) >= MAX_LAUNCHES_KEPT:
                self._launches.clear()
            attributes = (COOPERATIVE,) * step.cooperative + (OVERLAPPING,) * step.overlaps
            config = None
            if not attributes and not step.maps:
                config = self._core.LaunchConfig(grid=grid, block=step.block, shmem_size=step.shared_bytes)
            start = self._launches[key] = Start(self._kernels[step.symbol], step, grid, config, attributes)
        return start

    def pointer(self, address: int, size_bytes: int) -> Any:
        """cuda-core takes a plain int for a pointer."""
        return address

    def tensor_map(self, described: TensorMap) -> Any:
        return encode(described)

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
        address = _allocated(size_bytes, queue)
        try:
            yield address
        finally:
            _free(address, queue)

    def zero(self, address: int, size_bytes: int, queue: Queue) -> None:
        """In the order of the stream."""
        driver = bindings()
        (status,) = driver.cuMemsetD8Async(address, 0, size_bytes, queue.stream.handle)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise fail("E0601", f"the GPU does not clear the words of a call ({status.name})")

    @contextmanager
    def zeros(self, size_bytes: int, queue: Queue) -> Iterator[int]:
        """What the last call on this stream left as zeros. A call has it alone, and leaves it where it ends well: of
        one that fails, a part of the launches may have run. A graph that is captured may run beside its stream, so it
        has its own, cleared in each of its runs."""
        number = _number(queue)
        with self._keeping:
            address, size = self._zeros.pop(number, (0, 0))
        fresh = size < size_bytes
        if fresh:
            if size:
                _free(address, queue)
            address, size = _allocated(size_bytes, queue), size_bytes
        well = False
        try:
            if fresh:
                self.zero(address, size, queue)
            yield address
            well = True
        finally:
            if not (well and self._keep_zeros(number, address, size)):
                _free(address, queue)

    def _keep_zeros(self, number: int | None, address: int, size: int) -> bool:
        """Whether the next call on this stream finds them; not where there are some already, or too many streams."""
        with self._keeping:
            if number is None or number in self._zeros or len(self._zeros) >= MAX_ZEROS:
                return False
            self._zeros[number] = address, size
            return True

    def start(self, kernel: Start, arguments: Sequence[Any], queue: Queue) -> None:
        """Enqueue one kernel; E0601 when the driver refuses the launch."""
        step = kernel.step
        if kernel.config is None:
            function, stream = int(kernel.function.handle), int(queue.stream.handle)
            launch(
                function, kernel.grid, step.block, step.shared_bytes, stream, arguments,
                attributes=kernel.attributes, symbol=step.symbol,
            )  # fmt: skip
            return
        try:
            self._core.launch(queue.stream, kernel.config, kernel.function, *arguments)
        except Exception as why:  # the driver's own error classes
            raise fail("E0601", f"the launch of {step.symbol} failed: {str(why)[:300]}") from None


def _allocated(size_bytes: int, queue: Queue) -> int:
    """Memory in the order of the stream. Raises E0403."""
    driver = bindings()
    status, address = driver.cuMemAllocAsync(size_bytes, queue.stream.handle)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0403", f"the GPU gives no {size_bytes} bytes for workspaces ({status.name})")
    return int(address)


def _free(address: int, queue: Queue) -> None:
    """When what is on the stream is over."""
    bindings().cuMemFreeAsync(address, queue.stream.handle)


def _number(queue: Queue) -> int | None:
    """The stream's number, for handles are given again; None while it is captured."""
    driver = bindings()
    handle = queue.stream.handle
    status, capturing = driver.cuStreamIsCapturing(handle)
    if status != driver.CUresult.CUDA_SUCCESS or int(capturing) != 0:
        return None
    status, number = driver.cuStreamGetId(handle)
    return number if status == driver.CUresult.CUDA_SUCCESS else None


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
