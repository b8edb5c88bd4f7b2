"""Calls of the CUDA driver that its Python packages do not make, or not as fast: tensor maps, which lie at multiples of
128 bytes, launches that are prepared once, and which GPU is current.

The driver says where its functions are (`cuGetProcAddress`); the structures are those of cuda.h.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from texpr.codegen.tensor_map import PROMOTION_BYTES, SWIZZLE_BYTES, TYPES, TensorMap
from texpr.grammar.diagnostics import fail
from texpr.runtime.streams import LEGACY

_STREAM = _POINTER = struct.Struct("<Q")
MAP_BYTES, MAP_ALIGNMENT = 128, 128  # of a CUtensorMap; before CUDA 13 its alignment was 64
COOPERATIVE, OVERLAPPING = 2, 6  # launch attributes: cooperative; programmatic stream serialization


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is an int here."""

    _fields_ = (("id", ctypes.c_int), ("unused", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def driver() -> Any:
    """The driver's own bindings."""
    from cuda.bindings import driver

    return driver


@cache
def _address(name: str, version: int) -> int:
    """Where a function of the driver is, of that version of CUDA. Raises E0503 for a driver that has none."""
    status, address, _ = driver().cuGetProcAddress(name.encode(), version, 0)
    if int(status) != 0 or not address:
        raise fail("E0503", f"the CUDA driver has no {name}", help="install a newer driver")
    return int(address)


@cache
def entry(name: str) -> Any:
    """A function of the driver, of values of ctypes, giving a CUresult; other threads run meanwhile."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(_address(name, 12000))


@cache
def brief(name: str) -> Any:
    """The same of a function that only enqueues: no other thread runs meanwhile, as to let one run and to go on again
    takes longer than the call."""
    return ctypes.PYFUNCTYPE(ctypes.c_int)(_address(name, 12000))


def check(answer: int, what: str) -> None:
    """Raises E0601 where the driver did not do it."""
    if answer != 0:
        raise fail("E0601", f"{what}: {_said(answer)}")


def _said(code: int) -> str:
    bindings = driver()
    status, name = bindings.cuGetErrorName(bindings.CUresult(code))
    return name.decode() if int(status) == 0 else f"CUresult {code}"


def encode(found: TensorMap) -> Any:
    """The tensor map as the driver writes it: what a launch passes by value. Raises E0601 where the driver refuses."""
    memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    place = -(-ctypes.addressof(memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    rank = len(found.shape)
    u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(
        ctypes.c_int, pointer, ctypes.c_int, u32, pointer, pointer, pointer, pointer, pointer,
        ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
    )(_address("cuTensorMapEncodeTiled", 12000))  # fmt: skip
    shape = (u64 * rank)(*reversed(found.shape))
    strides = (u64 * max(rank - 1, 1))(*reversed(found.strides_bytes[:-1]))
    box, steps = (u32 * rank)(*reversed(found.box)), (u32 * rank)(*[1] * rank)
    no_interleave, zeros_beyond = 0, 0
    swizzle, promotion = SWIZZLE_BYTES[found.swizzle_bytes][1], PROMOTION_BYTES[found.promotion_bytes][1]
    numbers = no_interleave, swizzle, promotion, zeros_beyond
    code = call(place, TYPES[found.dtype][1], rank, found.address, shape, strides, box, steps, *numbers)
    check(code, f"the driver makes no tensor map of {found}")
    result: Any = (ctypes.c_byte * MAP_BYTES).from_address(place)
    result.kept = memory
    return result


class Way:
    """How one kernel is launched, but for its stream and what its parameters are. `kinds` has a letter for each: Q is
    an unsigned number, q a signed one, and P a value of ctypes, which stays where it is."""

    def __init__(
        self,
        symbol: str,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        kinds: str,
        attributes: Sequence[int] = (),
    ) -> None:
        self._symbol = symbol
        self._launch = ctypes.CFUNCTYPE(ctypes.c_int)(_address("cuLaunchKernelEx", 11080))
        self._function = ctypes.byref(ctypes.c_char.from_address(function))
        self._attributes = (_Attribute * max(len(attributes), 1))(*(_Attribute(id=id, value=1) for id in attributes))
        self._config = bytes(
            _Config(
                grid=tuple(grid),
                block=tuple(block),
                shared_bytes=shared_bytes,
                attributes=self._attributes,
                count=len(attributes),
            )
        )
        count = len(kinds)
        self._pointed = [k for k, kind in enumerate(kinds) if kind == "P"]
        self._pack = struct.Struct(f"<{kinds.replace('P', 'Q')}").pack_into
        self._places = struct.Struct(f"<{count}Q")
        self._places_at = len(self._config)
        self._values_at = self._places_at + 8 * count
        self._memory = ctypes.c_char * (self._values_at + 8 * count + 1)
        self._spare: list[_Frame] = []

    def once(self, stream: int | None, arguments: Sequence[Any]) -> int:
        """Enqueue the kernel on this stream, with these arguments; the driver's answer, 0 where all is well. It is done
        in a frame that other launches get, too, one at a time."""
        try:
            frame = self._spare.pop()
        except IndexError:
            frame = self._made()
        memory = frame.memory
        if self._pointed:
            arguments = self._point(memory, arguments)
        if stream != frame.stream:
            _STREAM.pack_into(memory, _Config.stream.offset, stream or LEGACY)
            frame.stream = stream
        self._pack(memory, self._values_at, *arguments)
        answer: int = frame.launch()
        self._spare.append(frame)
        return answer

    def kept(self, stream: int | None, arguments: Sequence[Any]) -> Callable[[], int]:
        """The same for later, as often as one likes: all of it is in one piece of memory, which never changes, so that
        threads may share it. What has its arguments ready as C's, and no frame of Python's, is called in a third of the
        time."""
        frame = self._made()
        memory = frame.memory
        _STREAM.pack_into(memory, _Config.stream.offset, stream or LEGACY)
        self._pack(memory, self._values_at, *self._point(memory, arguments))
        return frame.launch

    def refuse(self, answer: int) -> None:
        """Raises E0601 for a launch that the driver did not take."""
        check(answer, f"the launch of {self._symbol} failed")

    def _made(self) -> "_Frame":
        memory: Any = self._memory()
        memory[: self._places_at] = self._config
        first = ctypes.addressof(memory) + self._values_at
        self._places.pack_into(memory, self._places_at, *range(first, first + self._places.size, 8))
        parameters = ctypes.byref(ctypes.c_char.from_buffer(memory, self._places_at))
        return _Frame(memory, partial(self._launch, ctypes.byref(memory), self._function, parameters, None))

    def _point(self, memory: Any, arguments: Sequence[Any]) -> Sequence[Any]:
        """Values of ctypes stay where they are: a frame says where that is, and keeps them."""
        memory.kept = arguments
        values = list(arguments)
        for k in self._pointed:
            _POINTER.pack_into(memory, self._places_at + 8 * k, ctypes.addressof(values[k]))
            values[k] = 0
        return values


class _Frame:
    """Memory with the configuration of a launch, where each parameter is, and eight bytes for each; and its call."""

    __slots__ = ("launch", "memory", "stream")

    def __init__(self, memory: Any, launch: Callable[[], int]) -> None:
        self.memory, self.launch = memory, launch
        self.stream: int | None = -1


class _Place(threading.local):
    """Where the driver writes a number for this thread: that, and a pointer to it."""

    def __init__(self) -> None:
        number = ctypes.c_int()
        self.pair = number, ctypes.byref(number)


def current_device_check() -> Callable[[int], bool]:
    """Whether a GPU is current in the thread that asks. The driver answers at once, so other threads wait for it."""
    place, get = _Place(), ctypes.PYFUNCTYPE(ctypes.c_int)(_address("cuCtxGetDevice", 2000))

    def is_current(device: int) -> bool:
        number, pointer = place.pair
        return not get(pointer) and number.value == device

    return is_current
