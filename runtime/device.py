"""The GPU backend: cubins loaded through cuda-core, and launched by the driver on a stream that the call was given.

cuda-core is imported at the first use, so that this package loads without it.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from texpr.codegen.manifest import LaunchStep
from texpr.codegen.tensor_map import TensorMap
from texpr.grammar.bits import scalar_bytes
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.runtime.arrays import CUDA, CUDA_HOST, CUDA_MANAGED
from texpr.runtime.captured_words import CapturedWords
from texpr.runtime.driver import COOPERATIVE, OVERLAPPING, Way, current_device_check, encode
from texpr.runtime.driver import driver as bindings
from texpr.runtime.streams import LEGACY

DEFAULT_SHARED_BYTES = 48 * 1024  # of one block, without asking
PORTABLE_CLUSTER = 8  # blocks, likewise
MAX_STREAMS = 64  # of the caller, that a loaded cubin remembers
KINDS = {"param": "Q", "workspace": "Q", "words": "Q", "scalar": "Q", "map": "P"}  # of arguments; numbers have a sign
_LOADED: list[Any] = []
"""The code of every cubin that was loaded: a graph that captured its kernels may outlive whoever loaded it."""
MAX_ZEROS = 64  # streams whose calls leave zeros that the next one takes


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


def _hold(step: LaunchStep, function: int, grid: tuple[int, int, int]) -> None:
    """Raises E0403 for blocks that must run together where the device that is current does not hold so many."""
    driver = bindings()
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    known, device = driver.cuCtxGetDevice()
    counted, count = driver.cuDeviceGetAttribute(attribute, device)
    asked, each = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, prod(step.block), step.shared_bytes)
    if any(status != driver.CUresult.CUDA_SUCCESS for status in (known, counted, asked)):
        return  # the launch itself will say what is wrong
    if prod(grid) > each * count:
        raise fail(
            "E0403",
            f"the {prod(grid)} blocks of {step.symbol} must run together, and this GPU holds {each * count}: "
            f"{each} on each of {count} multiprocessors",
            help="compile for this GPU, write a smaller #blocks_per_sm(n), or remove #cooperative",
        )


def _raise_shared_limit(kernel: Any, size_bytes: int, device: int) -> None:
    """More than 48 KiB of dynamic shared memory must be asked for."""
    driver = bindings()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, size_bytes, driver.CUkernel(int(kernel.handle)), device)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0505", f"this GPU does not give a block {size_bytes} bytes of shared memory ({status.name})")


@dataclass(frozen=True, slots=True)
class Queue:
    """A stream with its handle, and the device that was current before the call, where it is another one."""

    stream: Any
    handle: int
    before: Any = None


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
            _LOADED.append(code)
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
            self.is_current = current_device_check()
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
        self._queues: dict[tuple[int, int], Queue] = {}
        self._kept: list[tuple[Any, Sequence[Any]]] = []  # owners of memory, with the event after their last use
        self._keeping = threading.Lock()
        self._zeros: dict[int | None, tuple[int, int]] = {}  # by the stream's number: address, bytes
        self._captured = CapturedWords()

    def _make_ready(self, device: int) -> None:
        """Ask a device for the shared memory and the clusters of all kernels: limits are those of each device. Raises
        E0505."""
        for symbol, size in self._large.items():
            _raise_shared_limit(self._kernels[symbol], size, device)
        for symbol in sorted(self._wide):
            _allow_wide_clusters(self._kernels[symbol], device)
        _ = self._core.Device(device).memory_resource  # from here on, workspaces come from memory that the pool keeps
        self._ready.add(device)

    def function(self, symbol: str) -> int:
        """The driver's handle of a kernel on the device that is current: it need not look for it at each launch.
        Raises E0505."""
        driver = bindings()
        status, function = driver.cuKernelGetFunction(driver.CUkernel(int(self._kernels[symbol].handle)))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise fail("E0505", f"the GPU has no {symbol} ({status.name})")
        return int(function)

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int], lengths: Mapping[int, int]) -> Way:
        attributes = (COOPERATIVE,) * step.cooperative + (OVERLAPPING,) * step.overlaps
        kinds = "".join(KINDS.get(kind, "q") for kind, _ in step.arguments)
        function = self.function(step.symbol)
        if step.cooperative:
            _hold(step, function, grid)
        return Way(step.symbol, function, grid, step.block, step.shared_bytes, kinds, attributes)

    def tensor_map(self, described: TensorMap) -> Any:
        return encode(described)

    def scalar(self, value: int | float | bool, dtype: DType) -> int:
        """The bits, of which the kernel reads as many as it has."""
        return int.from_bytes(scalar_bytes(value, dtype), "little")

    def queue(self, device: int, stream: int | None) -> Queue:
        """The stream of this handle, with its device current. Raises E0505 for a device that has not the shared
        memory."""
        queue = self._queues.get((device, stream or LEGACY))  # once: another thread may empty what is kept
        if queue is not None and self.is_current(device):
            return queue
        before = self._core.Device()
        target = before if before.device_id == device else self._core.Device(device)
        target.set_current()
        try:
            if device not in self._ready:
                self._make_ready(device)
            queue = queue or self._new_queue(device, stream or LEGACY)
        except BaseException:
            before.set_current()
            raise
        return queue if before is target else replace(queue, before=before)

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

    def _new_queue(self, device: int, handle: int) -> Queue:
        """A stream that the caller owns, as cuda-core sees it; making that costs more than a launch, so it is kept."""
        if len(self._queues) >= MAX_STREAMS:
            self._queues.clear()
        try:
            queue = self._queues[device, handle] = Queue(self._core.Stream.from_handle(handle), handle)
        except Exception as why:  # the driver's own error classes
            raise fail("E0601", f"the stream cannot be used: {str(why)[:200]}") from None
        return queue

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
        (status,) = driver.cuMemsetD8Async(address, 0, size_bytes, queue.handle)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise fail("E0601", f"the GPU does not clear the words of a call ({status.name})")

    @contextmanager
    def zeros(self, size_bytes: int, queue: Queue, *, once: bool) -> Iterator[int]:
        """What the last call on this stream left as zeros. A call has it alone, and leaves it where it ends well: of
        one that fails, a part of the launches may have run. A graph that is captured may run beside its stream, so it
        has its own: cleared before where it is instantiated `once` at a time, else cleared in each of its runs."""
        number = _number(queue)
        if number is None and once:
            with self._captured.taken(_current_device(), queue.handle, size_bytes) as words:
                if words is not None:
                    yield words
                    return
        with self._keeping:
            address, size = self._zeros.pop(number, (0, 0))
        fresh = size < size_bytes
        if fresh:
            if size:
                _free(address, queue)
            address, size = _allocated(size_bytes, queue), size_bytes
            if number is not None:
                self._captured.prepare(_current_device(), queue.handle)
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


def _allocated(size_bytes: int, queue: Queue) -> int:
    """Memory in the order of the stream. Raises E0403."""
    driver = bindings()
    status, address = driver.cuMemAllocAsync(size_bytes, queue.handle)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0403", f"the GPU gives no {size_bytes} bytes for workspaces ({status.name})")
    return int(address)


def _free(address: int, queue: Queue) -> None:
    """When what is on the stream is over."""
    bindings().cuMemFreeAsync(address, queue.handle)


def _number(queue: Queue) -> int | None:
    """The stream's number, for handles are given again; None while it is captured."""
    driver = bindings()
    handle = queue.handle
    status, capturing = driver.cuStreamIsCapturing(handle)
    if status != driver.CUresult.CUDA_SUCCESS or int(capturing) != 0:
        return None
    status, number = driver.cuStreamGetId(handle)
    return number if status == driver.CUresult.CUDA_SUCCESS else None


def _current_device() -> int:
    status, device = bindings().cuCtxGetDevice()
    return int(device) if status == bindings().CUresult.CUDA_SUCCESS else -1


def _is_over(event: Any) -> bool:
    """Whether the GPU has passed an event; one that a graph captured never is."""
    try:
        return bool(event.is_done)
    except Exception:  # the driver's own error classes
        return False


def device_name(number: int) -> str:
    """The name of a GPU. Raises E0503 without cuda-core or a driver."""
    core = _cuda()
    try:
        return str(core.Device(number).name)
    except Exception as why:  # the driver's own error classes
        raise fail("E0503", f"GPU {number} cannot be asked: {str(why)[:200]}", help="see `texpr doctor`") from None


def compute_capability(number: int) -> tuple[int, int]:
    """Major and minor compute capability of a GPU. Raises E0503 without cuda-core or a driver."""
    core = _cuda()
    try:
        found = core.Device(number).compute_capability
        return int(found.major), int(found.minor)
    except Exception as why:  # the driver's own error classes
        raise fail("E0503", f"GPU {number} cannot be asked: {str(why)[:200]}", help="see `texpr doctor`") from None
