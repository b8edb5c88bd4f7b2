"""A GPU by the CUDA driver, as the engine needs one. Calls go through ctypes, which lets other threads run meanwhile,
but for those that only enqueue.

Copies from and to memory of the host whose pages are locked run beside everything else, at the full speed of the bus.
"""

import ctypes
import threading
from contextlib import suppress
from typing import Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.driver import brief, driver, entry
from texpr.runtime.tasks.device_sums import BLOCKS, NAMES, TEXT, THREADS

NON_BLOCKING = 1  # a stream does not wait for the default one
PORTABLE = 1  # locked pages count as such for all devices
WORTH_LOCKING = 1 << 16  # bytes; smaller arrays share their pages with others
_POINTER, _SIZE, _INT = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint


class CudaDevice:
    """The GPU of a number, with its primary context."""

    def __init__(self, number: int) -> None:
        """Raises E0503 without the driver or its bindings, E0717 without such a GPU."""
        self.number = number
        try:
            bindings = driver()
        except ImportError:
            raise fail(
                "E0503", "workers on a GPU need the package cuda-bindings", help='pip install "texpr[cuda]"'
            ) from None
        try:
            (status,) = bindings.cuInit(0)
        except RuntimeError as why:  # its library is not there
            raise fail("E0503", f"there is no CUDA driver: {str(why)[:200]}", help="see `texpr doctor`") from None
        if int(status) != 0:
            raise fail("E0503", f"the CUDA driver does not begin: {status.name}", help="see `texpr doctor`")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._device, self.context = device, context
        self._lock = threading.Lock()
        self._queues: list[int] = []
        self._allocated: set[int] = set()
        self._locked: dict[int, bool] = {}  # by address; False where the driver refused
        self._linked: set[int] = set()  # GPUs that copies went to or came from
        self._module = ctypes.c_void_p()
        self._sums: dict[str, ctypes.c_void_p] | None = None  # functions by their names; none where the driver refused

    def _call(self, name: str, *arguments: Any, enqueues: bool = False) -> None:
        code = (brief if enqueues else entry)(name)(*arguments)
        if code != 0:
            said = driver().CUresult(code).name
            raise fail("E0717", f"GPU {self.number} failed: {name} says {said}", help="see `texpr doctor`")

    def enter(self) -> None:
        self._call("cuCtxSetCurrent", self.context, enqueues=True)

    def _current(self) -> "_Current":
        return _Current(self)

    def queue(self, *, urgent: bool = False) -> int:
        stream, least, first = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        with self._current():
            self._call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(first))
            priority = first if urgent else least
            self._call("cuStreamCreateWithPriority", ctypes.byref(stream), _INT(NON_BLOCKING), priority)
        with self._lock:
            self._queues.append(stream.value or 0)
        return stream.value or 0

    def free_bytes(self) -> int:
        free, total = _SIZE(), _SIZE()
        with self._current():
            self._call("cuMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size_bytes: int) -> int:
        address = _POINTER()
        with self._current():
            self._call("cuMemAlloc", ctypes.byref(address), _SIZE(size_bytes))
        with self._lock:
            self._allocated.add(address.value)
        return address.value

    def free(self, address: int) -> None:
        with self._lock:
            self._allocated.discard(address)
        with self._current():
            self._call("cuMemFree", _POINTER(address))

    def lock(self, host: Any) -> None:
        """Where the driver refuses, as for pages that are locked already, copies are as right and may be slower."""
        begin, size = host.ctypes.data, host.nbytes
        with self._lock:
            if begin in self._locked or size < WORTH_LOCKING:
                return
            self._locked[begin] = False
        with self._current():
            done = entry("cuMemHostRegister")(_POINTER(begin), _SIZE(size), _INT(PORTABLE)) == 0
        with self._lock:
            self._locked[begin] = done

    def unlock(self, host: Any) -> None:
        with self._lock:
            locked = self._locked.pop(host.ctypes.data, False)
        if locked:
            with self._current():
                self._call("cuMemHostUnregister", _POINTER(host.ctypes.data))

    def copy_in(self, address: int, host: Any, queue: int) -> None:
        begin, size = host.ctypes.data, host.nbytes
        arguments = (_POINTER(address), _POINTER(begin), _SIZE(size), _POINTER(queue))
        self._call("cuMemcpyHtoDAsync", *arguments, enqueues=self._locked.get(begin, False))

    def copy_out(self, host: Any, address: int, queue: int) -> None:
        begin, size = host.ctypes.data, host.nbytes
        arguments = (_POINTER(begin), _POINTER(address), _SIZE(size), _POINTER(queue))
        self._call("cuMemcpyDtoHAsync", *arguments, enqueues=self._locked.get(begin, False))

    def copy_within(self, address: int, source: int, size_bytes: int, queue: int) -> None:
        arguments = (_POINTER(address), _POINTER(source), _SIZE(size_bytes), _POINTER(queue))
        self._call("cuMemcpyDtoDAsync", *arguments, enqueues=True)

    def copy_peer(self, address: int, other: Any, source: int, size_bytes: int, queue: int) -> None:
        self._link(other)
        here, there = self.context, other.context
        target, begin, size = _POINTER(address), _POINTER(source), _SIZE(size_bytes)
        self._call("cuMemcpyPeerAsync", target, here, begin, there, size, _POINTER(queue), enqueues=True)

    def _link(self, other: Any) -> None:
        """Let two GPUs reach each other's memory, which is refused where no link joins them: then copies go by the
        host."""
        with self._lock:
            if other.number in self._linked:
                return
            self._linked.add(other.number)
        for one, another in ((self, other), (other, self)):
            with one._current():
                entry("cuCtxEnablePeerAccess")(another.context, _INT(0))

    def adds(self, dtype: str) -> bool:
        if dtype not in NAMES:
            return False
        with self._lock:
            if self._sums is None:
                self._sums = self._loaded()
        return bool(self._sums)

    def _loaded(self) -> dict[str, ctypes.c_void_p]:
        """The kernels that add; none where the driver comes without its compiler."""
        text, found = ctypes.c_char_p(TEXT.encode()), dict[str, ctypes.c_void_p]()
        with self._current():
            if entry("cuModuleLoadData")(ctypes.byref(self._module), text) != 0:
                return found
            for name in set(NAMES.values()):
                found[name] = ctypes.c_void_p()
                self._call(
                    "cuModuleGetFunction", ctypes.byref(found[name]), self._module, ctypes.c_char_p(name.encode())
                )
        return found

    def add(self, address: int, source: int, count: int, dtype: str, queue: int) -> None:
        given = _POINTER(address), _POINTER(source), ctypes.c_uint64(count)
        places = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in given))
        grid = _INT(min(-(-count // THREADS), BLOCKS)), _INT(1), _INT(1)
        block = _INT(THREADS), _INT(1), _INT(1)
        function = (self._sums or {})[NAMES[dtype]]
        self._call("cuLaunchKernel", function, *grid, *block, _INT(0), _POINTER(queue), places, None, enqueues=True)

    def zero(self, address: int, size_bytes: int, queue: int) -> None:
        byte = ctypes.c_ubyte(0)
        self._call("cuMemsetD8Async", _POINTER(address), byte, _SIZE(size_bytes), _POINTER(queue), enqueues=True)

    def finish(self, queue: int) -> None:
        if brief("cuStreamQuery")(_POINTER(queue)) != 0:  # not over, or failed; otherwise no other thread need run
            self._call("cuStreamSynchronize", _POINTER(queue))

    def close(self) -> None:
        with suppress(TExprError):  # of a device that is lost, nothing is left to give up
            with self._current():
                if self._sums:
                    self._call("cuModuleUnload", self._module)
                for begin, locked in self._locked.items():
                    if locked:
                        self._call("cuMemHostUnregister", _POINTER(begin))
                for address in self._allocated:
                    self._call("cuMemFree", _POINTER(address))
                for queue in self._queues:
                    self._call("cuStreamDestroy", _POINTER(queue))
            self._call("cuDevicePrimaryCtxRelease", self._device)
        self._locked, self._allocated, self._queues, self._sums = {}, set(), [], None


class _Current:
    """A device is current in this thread; afterwards, what was before."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._device._call("cuCtxPushCurrent", self._device.context, enqueues=True)

    def __exit__(self, *unused: object) -> None:
        self._device._call("cuCtxPopCurrent", ctypes.byref(ctypes.c_void_p()), enqueues=True)
