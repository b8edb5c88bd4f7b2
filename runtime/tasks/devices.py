"""GPUs as memories of an engine: what an engine needs of one, and a block's memory on it.

    Engine({"home": 1, "gpu": 2}, memories={"gpu": gpu(0, bound=8 << 30)})

A `Device` is small, so that tests have one in host memory; `cuda_device.py` is the real one. What is begun on a queue
(a stream) is over when `finish` has returned; a thread has queues of its own.
"""

from math import prod
from typing import Any, Protocol

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.records import dataclass
from texpr.grammar.strides import dense
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.arrays import CUDA, NAMES_OF_NUMPY, ArrayView
from texpr.runtime.tasks.spaces import is_count

CARRIERS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # what NumPy does not export goes as
SHARE = 0.9  # of the memory that is free when the engine begins, where no bound is given


class Device(Protocol):
    """A GPU. Addresses and queues are numbers; whatever goes wrong raises E0717."""

    @property
    def number(self) -> int: ...

    def enter(self) -> None:
        """This thread works with the device from here on."""

    def queue(self, *, urgent: bool = False) -> int:
        """A new queue, which lives as long as the device. `urgent`: what is on it goes before what is on others."""

    def free_bytes(self) -> int: ...
    def allocate(self, size_bytes: int) -> int: ...
    def free(self, address: int) -> None: ...

    def lock(self, host: Any) -> None:
        """A contiguous array of the host will be copied often; it stays where it is until `unlock` or `close`."""

    def unlock(self, host: Any) -> None: ...

    def copy_in(self, address: int, host: Any, queue: int) -> None:
        """From a contiguous array of the host, which stays as it is until the queue is finished."""

    def copy_out(self, host: Any, address: int, queue: int) -> None: ...
    def copy_within(self, address: int, source: int, size_bytes: int, queue: int) -> None: ...
    def copy_peer(self, address: int, other: "Device", source: int, size_bytes: int, queue: int) -> None: ...
    def zero(self, address: int, size_bytes: int, queue: int) -> None: ...

    def adds(self, dtype: str) -> bool:
        """Whether it adds arrays of this type, as NumPy names it."""

    def add(self, address: int, source: int, count: int, dtype: str, queue: int) -> None:
        """Add so many elements to those at `address`."""

    def finish(self, queue: int) -> None: ...

    def close(self) -> None:
        """Give up all memory and queues."""


class DeviceMemory(Protocol):
    """What a user puts among the `memories` of an engine; `open` makes the device, once for each engine."""

    @property
    def bound(self) -> int | None: ...
    def open(self) -> Device: ...


@dataclass(frozen=True, slots=True)
class Gpu:
    number: int
    bound: int | None

    def open(self) -> Device:
        from texpr.runtime.tasks.cuda_device import CudaDevice

        return CudaDevice(self.number)


def gpu(number: int = 0, *, bound: int | None = None) -> Gpu:
    """The memory of a GPU, for blocks of at most `bound` bytes; without it, of most of what is free. Raises E0703."""
    if not is_count(number) or not (bound is None or is_count(bound)):
        raise fail("E0703", f"gpu({number!r}, bound={bound!r}): a number of a GPU, and bytes or None")
    return Gpu(number, bound)


class DeviceArray:
    """A block's memory on a GPU, dense in row-major order, which torch and cupy take by `__cuda_array_interface__`.
    `fault` is why there is no memory; `views` are arrays of libraries on it that were made before."""

    __slots__ = ("address", "device", "dtype", "fault", "shape", "views")

    def __init__(
        self, device: Device, address: int, shape: tuple[int, ...], dtype: Any, fault: TExprError | None = None
    ) -> None:
        self.device, self.address, self.shape, self.dtype, self.fault = device, address, shape, dtype, fault
        self.views: dict[str, Any] = {}

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * int(self.dtype.itemsize)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        import numpy

        carrier = numpy.dtype(CARRIERS.get(self.dtype.name, self.dtype))
        return {
            "shape": self.shape, "typestr": carrier.str, "data": (self.address, False), "strides": None, "version": 3,
        }  # fmt: skip

    def as_view(self) -> ArrayView:
        """What a compiled kernel takes."""
        return ArrayView(
            pointer=self.address,
            shape=self.shape,
            strides=dense(self.shape),
            dtype=ELEMENT_TYPES[NAMES_OF_NUMPY[self.dtype.name]],
            device=(CUDA, self.device.number),
            readonly=False,
        )
