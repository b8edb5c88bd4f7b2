"""Stopwatches for calls on this machine's cores and on its GPU, with warm caches and with cold ones.

Before a cold call, a copy of SWEPT_BYTES goes through all caches. Warm times are those of calls after one another.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

SWEPT_BYTES = 1 << 28  # read and written together
ROUND_S = 0.05  # of calls with warm caches in one round, about
LEAD_S = 0.005  # of calls before them, which are not timed: at least one is made
BUSY_S, HEAD_START = 0.02, 2.0  # a GPU is kept busy, at most, and for so many times as long as the host takes
MAX_COPIES = 500  # that wait for a GPU at once
MAX_CALLS, COLD_CALLS = 200, 3  # in one round
PRODUCT = {"cpu": 1024, "gpu": 4096}  # rows of the matrices
COPY = "kernel copy(A: f64[N], B: f64[N]) { par N i { B[i] = A[i] } }"

Call = Callable[[], object]


class Watch(Protocol):
    """Seconds of a call in one round."""

    def warm(self, call: Call) -> float:
        """With what the call before it left in the caches."""

    def cold(self, call: Call) -> float:
        """With nothing of its own in the caches."""

    def copy(self, size_bytes: int) -> Call:
        """A copy that reads and writes so many bytes together."""

    def product(self, dtype: str) -> tuple[Call, int]:
        """A matrix product in a type, f32 or f64, and its operations."""


def calls_in(round_s: float, once_s: float) -> int:
    return max(1, min(MAX_CALLS, int(round_s / max(once_s, 1e-7))))


class HostWatch:
    """All cores: copies are made by a kernel for the same target."""

    def __init__(self) -> None:
        import texpr

        self._copy = texpr.parse(COPY).only.compile("cpu")
        self._sweep = self.copy(SWEPT_BYTES)

    def warm(self, call: Call) -> float:
        once = self._seconds(call)
        for _ in range(calls_in(LEAD_S, once)):
            call()
        count = calls_in(ROUND_S, once)
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count

    def cold(self, call: Call) -> float:
        found = []
        for _ in range(COLD_CALLS):
            self._sweep()
            found.append(self._seconds(call))
        return statistics.median(found)

    def copy(self, size_bytes: int) -> Call:
        import numpy

        source, target = numpy.ones(max(1, size_bytes // 16)), numpy.empty(max(1, size_bytes // 16))
        return lambda: self._copy(source, target)

    def product(self, dtype: str) -> tuple[Call, int]:
        import numpy

        rows = PRODUCT["cpu"]
        a = numpy.random.default_rng(0).standard_normal((rows, rows)).astype(dtype.replace("f", "float"))
        out = numpy.empty_like(a)
        return lambda: numpy.matmul(a, a, out=out), 2 * rows**3

    def _seconds(self, call: Call) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin


class GpuWatch:
    """A stream: calls are timed by events on it. Copies before them keep the GPU busy until the host has enqueued them
    all, so that nothing of the host's time counts."""

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._cupy, self._stream = cupy, stream
        self._sweep = self.copy(SWEPT_BYTES)
        self._sweep()
        self._sweep_s = self._elapsed(self._record(self._sweep))

    def warm(self, call: Call) -> float:
        once = self._elapsed(self._record(call))
        host_s = self._enqueued(call, calls_in(LEAD_S, once))
        count = max(1, min(calls_in(ROUND_S, once), int(BUSY_S / (HEAD_START * host_s))))
        self._keep_busy(count * host_s)
        begin, end = self._events()
        begin.record(self._stream)
        for _ in range(count):
            call()
        end.record(self._stream)
        return self._elapsed((begin, end)) / count

    def cold(self, call: Call) -> float:
        host_s, pairs = self._enqueued(call, 1), []
        for _ in range(COLD_CALLS):
            self._keep_busy(host_s)
            pairs.append(self._record(call))
        return statistics.median([self._elapsed(pair) for pair in pairs])

    def _enqueued(self, call: Call, count: int) -> float:
        """Seconds that the host takes to enqueue a call, of so many."""
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return max(1e-6, (time.perf_counter() - begin) / count)

    def _keep_busy(self, host_s: float) -> None:
        """Copies through all caches, one at least, for longer than the host is to take."""
        for _ in range(max(1, min(MAX_COPIES, round(HEAD_START * host_s / self._sweep_s + 0.5)))):
            self._sweep()

    def copy(self, size_bytes: int) -> Call:
        with self._stream:
            source = self._cupy.ones(max(1, size_bytes // 16))
            target = self._cupy.empty_like(source)
        copied = self._cupy.cuda.runtime.memcpyAsync
        on_device = self._cupy.cuda.runtime.memcpyDeviceToDevice
        return lambda: copied(target.data.ptr, source.data.ptr, source.nbytes, on_device, self._stream.ptr)

    def product(self, dtype: str) -> tuple[Call, int]:
        cupy, rows = self._cupy, PRODUCT["gpu"]
        with self._stream:
            a = cupy.random.standard_normal((rows, rows)).astype(dtype.replace("f", "float"))
            out = cupy.empty_like(a)

        def multiply() -> None:
            with self._stream:
                cupy.matmul(a, a, out=out)

        return multiply, 2 * rows**3

    def _events(self) -> tuple[Any, Any]:
        return self._cupy.cuda.Event(), self._cupy.cuda.Event()

    def _record(self, call: Call) -> tuple[Any, Any]:
        begin, end = self._events()
        begin.record(self._stream)
        call()
        end.record(self._stream)
        return begin, end

    def _elapsed(self, pair: tuple[Any, Any]) -> float:
        pair[1].synchronize()
        return float(self._cupy.cuda.get_elapsed_time(*pair)) * 1e-3


def gpu_watch(stream: Any) -> GpuWatch:
    """For calls on a stream of CuPy's."""
    import cupy

    return GpuWatch(cupy, stream)
