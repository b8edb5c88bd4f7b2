"""The GPU backend: cubins loaded and launched through cuda-core, on the caller's stream.

cuda-core is imported at the first use, so that this package loads without it.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from texpr.codegen.manifest import LaunchStep
from texpr.grammar.bits import scalar_bytes
from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.arguments import Bound
from texpr.runtime.arrays import CUDA, CUDA_HOST, CUDA_MANAGED
from texpr.runtime.launch import Argument, Pointer, Scalar

DEFAULT_SHARED_BYTES = 48 * 1024  # of one block, without asking

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


def _raise_shared_limit(kernel: Any, size_bytes: int, device: int) -> None:
    """More than 48 KiB of dynamic shared memory must be asked for; cuda-core has no call for it yet."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, size_bytes, driver.CUkernel(int(kernel.handle)), device)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise fail("E0505", f"this GPU does not give a block {size_bytes} bytes of shared memory ({status.name})")


def kernel_argument(argument: Argument) -> Any:
    """What cuda-core copies for a kernel argument: a plain int is a pointer, everything else is sized by ctypes."""
    match argument:
        case Pointer(address=address):
            return address
        case Scalar(value=value, dtype=dtype):
            return _CTYPES[dtype.name].from_buffer_copy(scalar_bytes(value, dtype))


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
            for symbol, size in shared_bytes.items():
                if size > DEFAULT_SHARED_BYTES:
                    _raise_shared_limit(self._kernels[symbol], size, device.device_id)
        except TExprError:
            raise
        except Exception as why:  # the driver's errors, of several classes: no driver, no GPU, wrong architecture
            raise fail(
                "E0505",
                f"the kernels could not be loaded on this machine's GPU: {str(why)[:300]}",
                help="check `texpr doctor`, and that the target names this GPU's architecture",
            ) from None
        self._configs: dict[tuple[Any, ...], Any] = {}

    def _device(self, bound: Bound) -> Any:
        number = next((view.device[1] for view in bound.arrays.values()), 0)
        device = self._core.Device(number)
        device.set_current()
        return device

    def _stream(self, device: Any, stream: Any) -> Any:
        """cuda-core's stream for None (the legacy default), a handle, or an object with `__cuda_stream__`."""
        if stream is None:
            return device.default_stream
        if isinstance(stream, int):
            return self._core.Stream.from_handle(stream)
        if isinstance(stream, self._core.Stream):
            return stream
        if hasattr(stream, "__cuda_stream__"):
            return device.create_stream(stream)
        for attribute in ("cuda_stream", "ptr"):  # torch, cupy
            if isinstance(getattr(stream, attribute, None), int):
                return self._core.Stream.from_handle(getattr(stream, attribute))
        raise fail("E0601", f"a {type(stream).__name__[:40]} is not a CUDA stream")

    @contextmanager
    def scratch(self, size_bytes: int, bound: Bound, stream: Any) -> Iterator[int]:
        """Stream-ordered device memory, released after the call's launches."""
        if size_bytes == 0:
            yield 0
            return
        device = self._device(bound)
        on = self._stream(device, stream)
        try:
            buffer = device.memory_resource.allocate(size_bytes, stream=on)
        except Exception as why:  # the driver's own error classes
            raise fail("E0403", f"the GPU gives no {size_bytes} bytes for workspaces: {str(why)[:200]}") from None
        try:
            yield int(buffer.handle)
        finally:
            buffer.close(on)

    def launch(
        self, step: LaunchStep, grid: tuple[int, int, int], arguments: Sequence[Argument], bound: Bound, stream: Any
    ) -> None:
        """Enqueue one kernel; E0601 when the driver refuses the launch."""
        device = self._device(bound)
        key = (grid, step.block, step.shared_bytes)
        config = self._configs.get(key)
        if config is None:
            if len(self._configs) > 256:
                self._configs.clear()
            config = self._core.LaunchConfig(grid=grid, block=step.block, shmem_size=step.shared_bytes)
            self._configs[key] = config
        kernel = self._kernels[step.symbol]
        try:
            self._core.launch(self._stream(device, stream), config, kernel, *map(kernel_argument, arguments))
        except Exception as why:  # the driver's own error classes
            raise fail("E0601", f"the launch of {step.symbol} failed: {str(why)[:300]}") from None


def compute_capability(number: int) -> tuple[int, int]:
    """Major and minor compute capability of a GPU. Raises E0503 without cuda-core or a driver."""
    core = _cuda()
    try:
        found = core.Device(number).compute_capability
        return int(found.major), int(found.minor)
    except Exception as why:  # the driver's own error classes
        raise fail("E0503", f"GPU {number} cannot be asked: {str(why)[:200]}", help="see `texpr doctor`") from None
