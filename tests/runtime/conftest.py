"""Stand-ins for a machine with two GPUs: cuda-core, the driver, and arrays of torch, cupy, jax and of a stranger."""

import ctypes
import sys
import threading
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from texpr.codegen.manifest import LaunchStep, Manifest, Parameter
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime import captured_words as captured_words_module
from texpr.runtime import device as device_module
from texpr.runtime import driver as driver_module
from texpr.runtime.arrays import CUDA, ArrayView, _DLDataType, _DLDevice, _DLTensor
from texpr.runtime.captured_words import ROOM_BYTES
from texpr.runtime.device import CudaBackend
from texpr.runtime.launch import Launcher

STEP = LaunchStep(
    symbol="k_0",
    grid=(1, 1, 1),
    cluster=(1, 1, 1),
    block=(32, 1, 1),
    shared_bytes=0,
    arguments=(("param", "A"), ("param", "C")),
)
PROGRAM = Manifest(
    name="k",
    target="cuda:sm_90a",
    arch="sm_90a",
    loadable=True,
    parameters=(
        Parameter(name="A", dtype="f32", shape=("N",), strides=(1,), mode="read"),
        Parameter(name="C", dtype="f32", shape=("N",), strides=(1,), mode="write"),
    ),
    sizes={"N": None},
    facts=(),
    workspace_bytes=0,
    workspace=(),
    host=(STEP,),
    files={},
    texpr="0",
)


SUCCESS = SimpleNamespace(name="CUDA_SUCCESS")
ROOM = 1 << 24  # where the driver has memory for the words of graphs
FULL = SimpleNamespace(name="CUDA_ERROR_OUT_OF_MEMORY")


class FakeDevice:
    memory_resource = None

    def __init__(self, number: int, machine: "Machine") -> None:
        self.device_id, self.machine = number, machine

    def set_current(self) -> None:
        self.machine.current = self.device_id


class Results(int):
    """The driver's results, of which a few have objects here."""

    CUDA_SUCCESS = SUCCESS


U32, U64, POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, ctypes.c_int, U32, *[POINTER] * 5, *[ctypes.c_int] * 4
)  # of cuTensorMapEncodeTiled
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(driver_module._Config), POINTER, POINTER, POINTER)
WHICH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
READ: dict[str, Any] = {
    "u": lambda place: U64.from_address(place).value,
    "i": lambda place: ctypes.c_int64.from_address(place).value,
    "map": lambda place: ctypes.string_at(place, 14),
}
_memory = iter(range(1 << 24, 1 << 40, 1 << 12))  # addresses of device memory, which nobody reads here
_Place = namedtuple("_Place", "type index")
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class TorchLike:
    dtype, layout, shape = "torch.float32", "torch.strided", (4,)

    def __init__(self, device: int = 0) -> None:
        self.device, self.address, self.is_cuda = _Place("cuda", device), next(_memory), True

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def data_ptr(self) -> int:
        return self.address

    def is_neg(self) -> bool:
        return False


class PackLike:
    """An array with DLPack; `asked` are the streams that its exports were to be ready on."""

    shape, strides, dtype = (4,), (4,), "float32"

    def __init__(self, device: int = 0) -> None:
        self.asked: list[int] = []
        self.data = SimpleNamespace(ptr=next(_memory), device_id=device)
        self.extents = (ctypes.c_int64 * 1)(4)
        inner = _DLDevice(2, device), 1, _DLDataType(2, 32, 1)
        self.tensor = _DLTensor(self.data.ptr, *inner, self.extents, None, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.device_id

    def __dlpack__(self, *, stream: int) -> Any:
        self.asked.append(stream)
        return _new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


Tensor = type("Tensor", (TorchLike,), {"__module__": "torch"})
Cupy = type("ndarray", (PackLike,), {"__module__": "cupy"})
Jax = type("ArrayImpl", (PackLike,), {"__module__": "jaxlib._jax"})
Stranger = type("Array", (PackLike,), {"__module__": "stranger"})


def bare(device: int = 0) -> ArrayView:
    pointer, dtype = next(_memory), ELEMENT_TYPES["f32"]
    return ArrayView(pointer=pointer, shape=(4,), strides=(1,), dtype=dtype, device=(CUDA, device), readonly=False)


ARRAYS: dict[str, Any] = {"torch": Tensor, "cupy": Cupy, "jax": Jax, "stranger": Stranger, "bare": bare}


class Machine:
    """What the stand-ins share. `torch` and `cupy` hold the current streams of each thread, by device; `log` has what
    was put on a stream: (handle, what)."""

    def __init__(self) -> None:
        self.current: int | None = 0
        self.handles = 0
        self.memory_bytes = 1 << 30
        self.symbols = {11: "k_0", 12: "k_1"}  # of any device; on device 1 a kernel's function is 100 more
        self.step = STEP
        self.core: Any = None
        self.log: list[tuple[int, Any]] = []
        self.events: list[Any] = []
        self.torch, self.cupy = threading.local(), threading.local()
        self.capturing = self.refuses = 0
        self.fails_at: str | None = None  # a kernel that is not launched
        self.blocks_at_once = 2, 5  # of a multiprocessor, and multiprocessors
        self.encoded: list[Any] = []
        self.driver_launches: list[Any] = []
        self.told: list[str] = []  # of the parameters of a launch: u, i or map
        self.functions = {
            "cuTensorMapEncodeTiled": ENCODE(self.encode),
            "cuLaunchKernelEx": LAUNCH(self.launch),
            "cuCtxGetDevice": WHICH(self.which),
        }

    def set_streams(self, library: str, *handles: int) -> None:
        getattr(self, library).handles = handles

    def driver_alloc(self, size: int, stream: int) -> Any:
        if size > self.memory_bytes:
            return FULL, None
        self.log.append((stream, f"allocate {size}"))
        return SUCCESS, ROOM if size == ROOM_BYTES else 1 << 20

    def driver_free(self, address: int, stream: int) -> Any:
        self.log.append((stream, f"free {address}"))
        return (SUCCESS,)

    def driver_clear(self, address: int, value: int, size: int, stream: int) -> Any:
        assert value == 0
        self.log.append((stream, f"clear {size}"))
        return (SUCCESS,)

    def function(self, name: bytes, version: int, flags: int) -> Any:
        """Where a function of the driver is: what writes down how it is called."""
        return 0, ctypes.cast(self.functions[name.decode()], ctypes.c_void_p).value, None

    def encode(self, place: int, dtype: int, rank: int, address: int, *rest: Any) -> int:
        ctypes.memmove(place, f"map of {address}".encode(), 14)
        shape, strides, box, steps = (
            tuple(ctypes.cast(each, ctypes.POINTER(kind))[:count])
            for each, kind, count in zip(rest, (U64, U64, U32, U32), (rank, rank - 1, rank, rank), strict=False)
        )
        self.encoded.append((place, dtype, rank, address, shape, strides, box, steps, *rest[4:]))
        return self.refuses

    def which(self, place: Any) -> int:
        """The device that is current."""
        if self.current is None:
            return 201
        place.contents.value = self.current
        return 0

    def launch(self, config: Any, function: int, parameters: int, extra: int) -> int:
        """A launch, with parameters of the kinds in `told`."""
        if self.refuses:
            return self.refuses
        told, (which, kernel) = config.contents, divmod(function, 100)
        assert which == self.current  # a function is one device's
        symbol = self.symbols[kernel]
        if symbol == self.fails_at:
            return 719
        places = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        attributes = [(told.attributes[k].id, told.attributes[k].value) for k in range(told.count)]
        ways = tuple(told.grid), tuple(told.block), told.shared_bytes, told.stream, attributes, symbol
        self.driver_launches.append((*ways, *(READ[kind](places[k]) for k, kind in enumerate(self.told))))
        self.log.append((told.stream, symbol))
        return 0

    def launcher(self, **changes: Any) -> Launcher:
        """`PROGRAM`, with changes, ready to be called."""
        return Launcher(replace(PROGRAM, **changes), self.backend())

    def backend(self) -> CudaBackend:
        return CudaBackend(b"", (STEP, replace(STEP, symbol="k_1")))

    def array(self, library: str, device: int = 0) -> Any:
        """An array of torch, cupy, jax, of a library that nobody knows, or a bare view."""
        return ARRAYS[library](device)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    devices = [FakeDevice(0, made), FakeDevice(1, made)]

    class Stream:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        @classmethod
        def from_handle(cls, handle: int) -> "Stream":
            made.handles += 1
            return cls(handle)

        def record(self) -> Any:
            made.events.append(SimpleNamespace(is_done=False))
            return made.events[-1]

    class Kernel(str):
        @property
        def handle(self) -> int:
            return next(number for number, symbol in made.symbols.items() if symbol == self)

    core = SimpleNamespace(
        Device=lambda number=None: devices[(made.current or 0) if number is None else number],
        ObjectCode=SimpleNamespace(from_cubin=lambda cubin: SimpleNamespace(get_kernel=Kernel)),
        Stream=Stream,
    )
    driver = SimpleNamespace(
        CUresult=Results,
        cuMemAllocAsync=made.driver_alloc,
        cuMemFreeAsync=made.driver_free,
        cuMemsetD8Async=made.driver_clear,
        cuStreamIsCapturing=lambda stream: (SUCCESS, made.capturing),
        cuStreamGetId=lambda stream: (SUCCESS, stream + 100),
        cuStreamSynchronize=lambda stream: (SUCCESS,),
        CUstreamCaptureStatus=SimpleNamespace(CU_STREAM_CAPTURE_STATUS_ACTIVE=1),
        cuStreamGetCaptureInfo=lambda stream: (SUCCESS, min(made.capturing, 1), made.capturing, None, [], [], 0),
        cuGetProcAddress=made.function,
        CUkernel=int,
        cuKernelGetFunction=lambda kernel: (SUCCESS, 100 * (made.current or 0) + kernel),
        CUdevice_attribute=SimpleNamespace(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=16),
        cuOccupancyMaxActiveBlocksPerMultiprocessor=lambda function, threads, shared: (SUCCESS, made.blocks_at_once[0]),
        cuCtxGetDevice=lambda: (SUCCESS, made.current or 0),
        cuDeviceGetAttribute=lambda attribute, device: (SUCCESS, made.blocks_at_once[1]),
        cuGetErrorName=lambda code: (0, f"CUDA_ERROR_{code}".encode()),
    )
    torch = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: made.torch.handles[device]),
    )
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=made.cupy.handles[device])),
    )
    made.core = core
    monkeypatch.setattr(device_module, "_cuda", lambda: core)
    monkeypatch.setattr(device_module, "bindings", lambda: driver)
    monkeypatch.setattr(captured_words_module, "bindings", lambda: driver)
    monkeypatch.setattr(driver_module, "driver", lambda: driver)
    driver_module._address.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    made.set_streams("torch", 0, 0)
    made.set_streams("cupy", 0, 0)
    return made
