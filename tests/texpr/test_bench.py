"""`texpr bench`: what is counted, what is timed and told, and what is refused; `texpr run` prints its time."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import texpr
from texpr import bench, instances, stopwatch
from texpr.inspect import duration
from texpr.instances import Count, weigh_instances
from texpr.roofline import bytes_moved, float_operations, widest_float
from texpr.stopwatch import GpuWatch, HostWatch

ADD = "kernel add(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }"
PRODUCT = "par M i { par N j { seq K k { C[i * N + j] += A[i * K + k] * B[k * N + j] } } }"
SOFTMAX = """kernel softmax(X: bf16[M, N], Y: bf16[M, N]) where N >= 1 {
    par M i {
        new top: f32
        new total: f32
        top = maximum N j { X[i, j] }
        total = sum N j { exp(X[i, j] - top) }
        par N j { Y[i, j] = exp(X[i, j] - top) / total }
    }
}"""
TRIANGLE = "kernel t(A: f64[N, N], S: f64[N]) { par N i { S[i] = sum N - i j { 2.0 * A[i, i + j] } } }"
GATHER = "kernel g(K: i64[M], E: f16[N, 64], Y: f16[M, 64]) where N >= 1 { par M i, 64 j { Y[i, j] = E[K[i], j] } }"
EDGE = "kernel e(A: f32[N], inout B: f32[N]) { par 1..N - 1 i { B[i] = fma(A[i], 2.0, B[i]) } }"


STAIRS = """kernel s(A: f64[N], S: f64[N, N, N]) {
    par N i { par i + 1 j { par j + 1 k { S[i, j, k] = 2.0 * A[k] } } }
}"""
BAND = "kernel b(A: f64[N], S: f64[N, N]) { par N i { par min(N - i, 3) j { S[i, j] = 2.0 * A[i] } } }"
CLIPPED = "kernel c(S: f64[N, N]) { par N i { par N - 2 * i j { S[i, j] = 2.0 * S[i, j] } } }"
HALVES = "kernel h(A: f64[N], S: f64[N, N]) { par N i { par i / 2 j { S[i, j] = 2.0 * A[j] } } }"


def counted(text: str, **sizes: int) -> tuple[int, int, str]:
    kernel = texpr.parse(text).only
    manifest = kernel.compile("cpu", sizes=sizes, stop_after="emit").manifest
    core = kernel.core(sizes=sizes)
    moved, operations = bytes_moved(core, manifest, sizes), float_operations(core, sizes)
    assert moved.exact and operations.exact
    return moved.total, operations.total, widest_float(core)


@pytest.mark.parametrize(
    ("text", "sizes", "moved", "operations", "widest"),
    [
        (ADD, {"N": 100}, 1200, 100, "f32"),
        (PRODUCT, {"M": 3, "N": 5, "K": 7}, 4 * (21 + 35 + 2 * 15), 2 * 105, "f32"),
        (SOFTMAX, {"M": 4, "N": 10}, 160, 7 * 40, "f32"),
        (TRIANGLE, {"N": 9}, 8 * (45 + 9), 2 * 45, "f64"),
        (GATHER, {"M": 3, "N": 1000}, 3 * 8 + 3 * 64 * 2 * 2, 0, "f32"),
        (EDGE, {"N": 12}, 4 * (10 + 2 * 10), 20, "f32"),
        (ADD, {"N": 0}, 0, 0, "f32"),
        (STAIRS, {"N": 100}, 8 * (100 + 2 * 10**6), 171700, "f64"),
        (BAND, {"N": 100}, 8 * (100 + 2 * 300), 297, "f64"),
        (CLIPPED, {"N": 100}, 8 * 2 * 50 * 100, 2550, "f64"),
        (HALVES, {"N": 100}, 8 * (49 + 2 * 98 * 49), 2450, "f64"),
    ],
)
def test_bytes_and_operations_are_those_that_the_program_asks_for(
    text: str, sizes: dict[str, int], moved: int, operations: int, widest: str
) -> None:
    assert counted(text, **sizes) == (moved, operations, widest)


@pytest.mark.parametrize(
    ("extents", "total", "exact"),
    [
        (("N", "i + 1", "j + 1"), lambda n: n * (n + 1) * (n + 2) // 6, True),
        (("N", "N - i", "i + j + 1"), lambda n: sum((n - i) * (n + i + 1) // 2 for i in range(n)), True),
        (("N", "N", "2 * i + 3 * j"), lambda n: 5 * n * n * (n - 1) // 2, True),
        (("N", "i", "j - 1"), lambda n: sum((i - 1) * (i - 2) // 2 for i in range(1, n)), False),
        (("N", "N", "min(i, j)"), lambda n: (n - 1) * n * (2 * n - 1) // 6, False),
        (("N", "N", "(i + j) / 3"), lambda n: sum((i + j) // 3 for i in range(n) for j in range(n)), False),
    ],
)
def test_more_iterations_than_are_counted_make_a_polynomial_or_are_approximate(
    extents: tuple[str, ...], total: Callable[[int], int], exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = " { ".join(f"par {extent} {index}" for extent, index in zip(extents, "ijk", strict=True))
    body = texpr.parse(f"kernel k(S: f32[N, N, 5 * N]) {{ {loops} {{ S[i, j, k] = 1.0 }} }} }} }}").only.core().body

    def count(n: int) -> Count:
        return weigh_instances(body, {"N": n}, lambda node: 1)

    assert count(100) == Count(total(100))
    monkeypatch.setattr(instances, "STEPS", 60)
    found = count(100)
    assert found.exact is exact
    assert found.total == (total(100) if exact else pytest.approx(total(100), rel=0.1))


def test_a_large_triangle_is_counted_at_once() -> None:
    body = texpr.parse(STAIRS).only.core().body
    n = 10**9
    assert weigh_instances(body, {"N": n}, lambda node: 1) == Count(n * (n + 1) * (n + 2) // 6)


class Clock:
    """A watch on which a call takes a second for each time that it has run, half of it with warm caches."""

    def __init__(self) -> None:
        self.calls = 0

    def warm(self, call: Callable[[], object]) -> float:
        call()
        return 0.5

    def cold(self, call: Callable[[], object]) -> float:
        call()
        return 1.0

    def copy(self, size_bytes: int) -> Callable[[], object]:
        return lambda: None

    def product(self, dtype: str) -> tuple[Callable[[], object], int]:
        return (lambda: None), 60


def test_the_share_is_the_longer_of_bytes_and_operations_at_their_measured_rates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "HostWatch", Clock)
    monkeypatch.setattr(bench, "LARGE_BYTES", 2400)
    report = bench.run_bench(texpr.parse(ADD).only, "cpu", sizes={"N": 100})
    assert (report.byte_rate, report.operation_rate) == (2400.0, 120.0)
    assert report.least_s == 100 / 120  # of 1200 bytes at 2400, and of 100 operations at 120
    told = report.to_json()
    assert told["time"] == {"warm_us": 5e5, "cold_us": 1e6} and told["share"]["cold"] == pytest.approx(100 / 120)
    text = str(report)
    assert told["approximate"] == [] and "about" not in text
    assert "add on cpu with N=100" in text and "at least 833 ms, by its operations" in text
    assert [line.split()[:3] for line in text.splitlines()[-2:]] == [["warm", "500", "ms"], ["cold", "1", "s"]]


def test_a_count_that_is_not_exact_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "HostWatch", Clock)
    monkeypatch.setattr(instances, "STEPS", 4)
    report = bench.run_bench(texpr.parse(HALVES).only, "cpu", sizes={"N": 100})
    assert report.to_json()["approximate"] == ["bytes", "operations"]
    assert "about 0.07722 MB must move, about 0.00245 million operations" in str(report)


@pytest.fixture
def add(tmp_path: Path) -> Path:
    path = tmp_path / "add.tex"
    path.write_text(ADD)
    return path


def test_the_command_times_a_kernel_on_the_cores(command: Any, add: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (stopwatch, "SWEPT_BYTES", 1 << 16),
        (stopwatch, "ROUND_S", 1e-4),
        (bench, "ROUNDS", 1),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(bench, "LARGE_BYTES", 1 << 16)
    monkeypatch.setitem(stopwatch.PRODUCT, "cpu", 16)
    code, out, _ = command("bench", add, "-D", "N=1000", "--json")
    said = json.loads(out)
    assert (code, said["bytes"], said["operations"]) == (0, 12000, 1000)
    assert min(*said["time"].values(), *said["copy"].values(), *said["roof"].values(), said["least_us"]) > 0


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [("cuda-host:sm_90a", 2, "bench times the targets cpu and cuda"), ("cuda:sm_90a", 3, "error[E0503]")],
)
def test_what_cannot_be_timed_is_refused(
    command: Any, add: Path, monkeypatch: pytest.MonkeyPatch, target: str, code: int, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # on any machine
    found, out, err = command("bench", add, "-D", "N=64", "-t", target)
    assert (found, out) == (code, "") and message in err


def test_cold_calls_on_a_gpu_follow_a_copy_through_all_caches() -> None:
    log: list[str] = []

    class Event:
        def record(self, stream: Any) -> None:
            log.append("event")

        def synchronize(self) -> None:
            log.append("wait")

    class Stream(SimpleNamespace):
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            pass

    memory = SimpleNamespace(data=SimpleNamespace(ptr=0), nbytes=0)
    runtime = SimpleNamespace(memcpyAsync=lambda *told: log.append("sweep"), memcpyDeviceToDevice=3)
    cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda begin, end: 2.0, runtime=runtime)
    cupy = SimpleNamespace(cuda=cuda, ones=lambda count: memory, empty_like=lambda array: memory)
    watch = GpuWatch(cupy, Stream(ptr=7))
    log.clear()
    assert watch.cold(lambda: log.append("call")) == 2e-3
    assert log == ["call", *["sweep", "event", "call", "event"] * 3, *["wait"] * 3]
    log.clear()
    assert watch.warm(lambda: log.append("call")) == 2e-3 / 25  # 50 ms of 2 ms
    assert log == ["event", "call", "event", "wait", *["call"] * 2, "sweep", "event", *["call"] * 25, "event", "wait"]


def test_a_gpu_is_kept_busy_until_the_host_has_enqueued_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = GpuWatch.__new__(GpuWatch)
    swept: list[int] = []
    monkeypatch.setattr(watch, "_sweep", lambda: swept.append(1), raising=False)
    monkeypatch.setattr(watch, "_sweep_s", 1e-4, raising=False)
    for host_s, copies in ((1e-6, 1), (1e-4, 2), (1e-3, 20), (1.0, stopwatch.MAX_COPIES)):
        swept.clear()
        watch._keep_busy(host_s)
        assert copies <= len(swept) <= copies + 1


def test_a_cold_call_on_the_cores_follows_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(HostWatch, "copy", lambda self, size: lambda: log.append("sweep"))
    HostWatch().cold(lambda: log.append("call"))
    assert log == ["sweep", "call"] * 3


def test_a_run_tells_its_time(command: Any, add: Path) -> None:
    assert "  took " in command("run", add, "-D", "N=64")[1]
    assert json.loads(command("run", add, "-D", "N=64", "--json")[1])["time_us"] > 0


@pytest.mark.parametrize(
    ("seconds", "said"), [(2.0, "2 s"), (0.5, "500 ms"), (1.234e-3, "1.23 ms"), (9.87e-6, "9.87 us"), (0.0, "0 us")]
)
def test_durations_have_a_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said
