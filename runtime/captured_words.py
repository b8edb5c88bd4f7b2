"""Words for the calls that a graph captures: memory of zeros, cleared once and outside of any capture.

Memory that is allocated while a stream is captured has other contents in each run of the graph, and would be cleared in
each, by a node that takes 2 us. A call leaves its words as zeros, so that the calls of one stream in one capture, which
follow one another, share words, and so do the runs of the graph. CUDA runs no graph beside itself, and instantiates one
that allocates memory only once at a time: so only calls with a workspace have their words here.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from texpr.runtime.driver import driver as bindings

ROOM_BYTES = 64 * 1024  # on each GPU, for one kernel; what graphs have taken is not given back
ALIGNMENT_BYTES = 256


class CapturedWords:
    """The words of one kernel in graphs, on each GPU."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[int, tuple[int, int]] = {}  # by device: the first free address, bytes
        self._idle: dict[tuple[int, int], tuple[int, int]] = {}  # by capture and stream: address, bytes

    def prepare(self, device: int, stream: int) -> None:
        """Have room on a device, which is current, for the graphs to come; `stream` is not captured. Waits for the
        stream the first time: a graph may run on any other."""
        with self._lock:
            if device in self._left:
                return
            self._left[device] = 0, 0
        driver = bindings()
        done = driver.CUresult.CUDA_SUCCESS
        status, address = driver.cuMemAllocAsync(ROOM_BYTES, stream)
        if status != done:
            return  # graphs clear their words
        (cleared,) = driver.cuMemsetD8Async(int(address), 0, ROOM_BYTES, stream)
        (over,) = driver.cuStreamSynchronize(stream)
        if cleared == over == done:
            with self._lock:
                self._left[device] = int(address), ROOM_BYTES

    @contextmanager
    def taken(self, device: int, stream: int, size_bytes: int) -> Iterator[int | None]:
        """The address of zeros for a call on a stream that is captured; None where there are none. The next call there
        has them where this one ends well: of one that fails, a part of the launches may be in the graph."""
        driver = bindings()
        status, state, capture, *_ = driver.cuStreamGetCaptureInfo(stream)
        active = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
        if status != driver.CUresult.CUDA_SUCCESS or state != active:
            yield None
            return
        key = int(capture), stream
        with self._lock:
            address, size = self._idle.pop(key, (0, 0))
            if size < size_bytes:
                address, left = self._left.get(device, (0, 0))
                size = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
                if size <= left:
                    self._left[device] = address + size, left - size
                else:
                    address = size = 0
        yield address or None
        if address:
            with self._lock:
                self._idle[key] = address, size
