"""The memory of a GPU as a node of an engine: its buffers, and the streams of the threads that work there.

Each worker and each copier has a stream of its own, and waits for it before it reports that a task or a transfer is
over: so transfers, kernels and what the host does overlap between threads, and nothing else needs to be ordered. There
are copiers for each direction, two of them, so that the next copy is enqueued before one is over. Sums on their way
home are added on the GPU, by pieces, which takes a tenth of the time that a core takes. A buffer that was given up is
kept for the next one of its size, as giving memory back to the driver stops the device.
"""

import threading
from math import prod
from typing import Any

import numpy

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.devices import SHARE, Device, DeviceArray, DeviceMemory
from texpr.runtime.tasks.nodes import MemoryNode
from texpr.runtime.tasks.states import Step
from texpr.runtime.tasks.tensors import Block
from texpr.runtime.tasks.turns import begin_short_turns, end_short_turns

PIECE = 1 << 26  # bytes of a sum that are added at a time


class DeviceNode(MemoryNode):
    copiers = (2, 2)

    def __init__(self, number: int, name: str, memory: DeviceMemory) -> None:
        """Raises E0503 without a driver, E0717 without such a device."""
        self.device: Device = memory.open()
        bound = memory.bound if memory.bound is not None else int(self.device.free_bytes() * SHARE)
        super().__init__(number, name, bound)
        self.kind = "cuda"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._kept: dict[int, list[int]] = {}  # addresses by bytes
        self._bytes = 0  # that the driver gave
        self._places: dict[int, Any] = {}  # of threads, for sums on their way home; locked while the device is open
        self._passages: dict[int, list[Any]] = {}  # by bytes, those that nobody uses
        self._all_passages: list[Any] = []  # locked while the device is open
        begin_short_turns()

    def enter(self, *, copies: bool = False) -> None:
        self.device.enter()
        self._local.queue = self.device.queue(urgent=copies)

    @property
    def stream(self) -> int:
        queue: int = self._local.queue
        return queue

    def finish(self) -> None:
        self.device.finish(self.stream)

    # memory

    def own(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """What the device does not give is an array with a fault: whoever uses it fails, and no one else."""
        size = prod(shape) * int(dtype.itemsize)
        try:
            return DeviceArray(self.device, self._address(size) if size else 0, shape, dtype)
        except TExprError as why:
            return DeviceArray(self.device, 0, shape, dtype, why)

    def _address(self, size: int) -> int:
        with self._lock:
            kept = self._kept.get(size)
            if kept:
                return kept.pop()
            if self.bound is not None and self._bytes + size > self.bound:
                self._give_back()
            try:
                address = self.device.allocate(size)
            except TExprError:
                self._give_back()
                address = self.device.allocate(size)
            self._bytes += size
            return address

    def _give_back(self) -> None:
        """What nobody uses goes back to the driver."""
        for size, addresses in self._kept.items():
            for address in addresses:
                self.device.free(address)
                self._bytes -= size
        self._kept.clear()

    def drop(self, buffer: DeviceArray) -> None:
        if buffer.address:
            with self._lock:
                self._kept.setdefault(buffer.size_bytes, []).append(buffer.address)

    def check(self, buffer: DeviceArray) -> None:
        if buffer.fault is not None:
            raise buffer.fault

    def forget(self, block: Block) -> None:
        if block.made is not None:
            self.device.unlock(block.made)

    def close(self) -> None:
        end_short_turns()
        self.device.close()

    # values

    def fill(self, buffer: DeviceArray, value: Any) -> None:
        if value == 0:
            self.device.zero(buffer.address, buffer.size_bytes, self.stream)
        else:
            self._put(buffer, numpy.full(buffer.shape, value, buffer.dtype))

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        self.device.copy_within(target.address, source.address, source.size_bytes, self.stream)

    def readable(self, buffer: DeviceArray) -> DeviceArray:
        return buffer

    def on_host(self, buffer: Any) -> Any:
        if not isinstance(buffer, DeviceArray):
            return buffer
        values = numpy.empty(buffer.shape, buffer.dtype)
        self.device.copy_out(values, buffer.address, self.stream)
        self.finish()
        return values

    def passage(self, shape: tuple[int, ...], dtype: Any) -> Any:
        size = prod(shape) * int(dtype.itemsize)
        with self._lock:
            kept = self._passages.setdefault(size, [])
            if not kept:
                kept.append(numpy.empty(size, numpy.uint8))
                self._all_passages.append(kept[0])
            return kept.pop().view(dtype).reshape(shape)

    def passed(self, passage: Any) -> None:
        with self._lock:
            self._passages[passage.nbytes].append(passage.reshape(-1).view(numpy.uint8))

    def _put(self, buffer: DeviceArray, values: Any) -> None:
        self.device.copy_in(buffer.address, numpy.ascontiguousarray(values), self.stream)
        self.finish()

    def lane(self, step: Step) -> int:
        return 1 if step in (Step.PUT, Step.ADD) else 0

    def carry(self, step: Step, home: Any, buffer: DeviceArray, peer: Any) -> None:
        self.check(buffer)
        if not buffer.size_bytes:
            return
        if home.flags.c_contiguous:
            self.device.lock(home)
        if step is Step.FILL:
            self.fill(buffer, 0)
        elif step is Step.GET and isinstance(peer, DeviceArray):
            self.device.copy_peer(buffer.address, peer.device, peer.address, buffer.size_bytes, self.stream)
        elif step is Step.GET:
            self._put(buffer, home)
        elif step is Step.PUT and home.flags.c_contiguous:
            self.device.copy_out(home, buffer.address, self.stream)
        elif step is Step.PUT:
            numpy.copyto(home, self.on_host(buffer))
        elif not (home.flags.c_contiguous and self._add_here(home, buffer)):
            numpy.add(home, self._brought(buffer), out=home)
        self.finish()

    def _add_here(self, home: Any, buffer: DeviceArray) -> bool:
        """Add a sum to what is at home on the GPU, if it can: the buffer holds the values of home afterwards."""
        place, size = self._piece(buffer.size_bytes) if self.device.adds(buffer.dtype.name) else (0, 0)
        if not place:
            return False
        values, item = home.reshape(-1), buffer.dtype.itemsize
        for begin in range(0, home.size, size // item):
            part, at = values[begin : begin + size // item], buffer.address + begin * item
            self.device.copy_in(place, part, self.stream)
            self.device.add(at, place, part.size, buffer.dtype.name, self.stream)
            self.device.copy_out(part, at, self.stream)
        return True

    def _piece(self, wanted: int) -> tuple[int, int]:
        """Memory of this thread on the GPU, and its bytes; 0 where there is no room."""
        place, size = getattr(self._local, "piece", (0, 0))
        if size < min(wanted, PIECE):
            if place:
                self.device.free(place)
            size = min(wanted, PIECE)
            try:
                place = self.device.allocate(size)
            except TExprError:
                place = size = 0
            self._local.piece = place, size
        return place, size

    def _brought(self, buffer: DeviceArray) -> Any:
        """Its values in memory of this thread whose pages are locked, until the next time."""
        kept = getattr(self._local, "kept", None)
        if kept is None or kept.nbytes < buffer.size_bytes:
            if kept is not None:
                self.device.unlock(kept)
                del self._places[id(kept)]
            self._local.kept = kept = numpy.empty(buffer.size_bytes, numpy.uint8)
            self._places[id(kept)] = kept
            self.device.lock(kept)
        values = kept[: buffer.size_bytes].view(buffer.dtype).reshape(buffer.shape)
        self.device.copy_out(values, buffer.address, self.stream)
        self.finish()
        return values
