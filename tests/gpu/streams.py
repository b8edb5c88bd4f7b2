"""Launching artifacts on streams that the caller does not name: side streams, graphs, several launches, threads.

    python tests/gpu/streams.py ARTIFACTS [--json FILE]

ARTIFACTS is what `build.py` wrote. Every check puts a long kernel before the inputs are made, so that a launch on
another stream reads what was there before. Prints one line per check, then host times of the stream's lookup and of
whole calls (medians of 2000).
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from host_times import median_us

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.load import load
from texpr.runtime.streams import library_of

SLEEP_CYCLES = 200_000_000  # about a tenth of a second
ROUNDS = 3
SIZE = 1 << 20

SLEEP = """extern "C" __global__ void wait(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}"""


class Checks:
    def __init__(self) -> None:
        self.results: dict[str, object] = {}

    def __call__(self, name: str, run: Callable[[], bool]) -> None:
        """Run one check; an exception is a wrong answer, and the next check runs."""
        try:
            right, why = bool(run()), ""
        except Exception as wrong:
            right, why = False, f": {type(wrong).__name__}: {str(wrong)[:300]}"
        self.results[name] = right
        print(f"{'right' if right else 'WRONG'}  {name}{why}", flush=True)


def torch_checks(check: Checks, folder: Path) -> None:
    import torch

    add, atax, mean = (
        load(folder / f"{name}-dynamic") for name in ("vector_add", "atax", "statements_at_kernel_level")
    )

    def side_stream(stream: Any) -> bool:
        a, b, c = (torch.zeros(SIZE, device="cuda") for _ in range(3))
        torch.cuda.synchronize()
        good = True
        with torch.cuda.stream(stream):
            for value in range(1, ROUNDS + 1):
                torch.cuda._sleep(SLEEP_CYCLES)
                a.fill_(value)
                b.fill_(1.0)
                add(a, b, c)
                good &= bool((c == value + 1).all())
        return good

    def several_launches() -> bool:
        stream = torch.cuda.Stream()
        matrix, x, y = (
            torch.zeros(4096, 31, device="cuda"),
            torch.zeros(31, device="cuda"),
            torch.zeros(31, device="cuda"),
        )
        row, out = torch.zeros(SIZE, device="cuda"), torch.zeros(SIZE, device="cuda")
        torch.cuda.synchronize()
        good = True
        with torch.cuda.stream(stream):
            for _ in range(ROUNDS):
                torch.cuda._sleep(SLEEP_CYCLES)
                matrix.normal_()
                x.normal_()
                row.uniform_()
                atax(matrix, x, y)
                mean(row, out)
                wide = matrix.double()
                want = wide.T @ (wide @ x.double())
                good &= torch.allclose(y.double(), want, rtol=1e-3, atol=1e-2)
                good &= torch.allclose(out, row - row.double().mean().float(), atol=1e-3)
        return good

    def captured(run: Callable[[], None], inputs: list[Any], right: Callable[[], bool]) -> bool:
        """Capture without `stream=`, then replay on other inputs, several times in a row without waiting."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            run()
        good = True
        for _ in range(ROUNDS):
            torch.cuda._sleep(SLEEP_CYCLES)
            for tensor in inputs:
                tensor.normal_()
            graph.replay()
            graph.replay()
            good &= right()
        return good

    def capture_one() -> bool:
        a, b, c = (torch.zeros(SIZE, device="cuda") for _ in range(3))
        return captured(lambda: add(a, b, c), [a, b], lambda: torch.equal(c, a + b))

    def capture_several() -> bool:
        matrix, x, y, z = (torch.zeros(*shape, device="cuda") for shape in ((4096, 31), (31,), (31,), (31,)))

        def run() -> None:
            atax(matrix, x, y)  # two launches and a workspace, twice in one graph
            atax(matrix, y, z)

        def right() -> bool:
            wide = matrix.double()
            first = wide.T @ (wide @ x.double())
            second = wide.T @ (wide @ first)
            near = torch.allclose(y.double(), first, rtol=1e-3, atol=1e-1)
            return near and bool((z.double() - second).norm() < 1e-3 * second.norm())

        return captured(run, [matrix, x], right)

    def capture_four() -> bool:
        row, out = torch.zeros(SIZE, device="cuda"), torch.zeros(SIZE, device="cuda")

        def right() -> bool:
            return torch.allclose(out, row - row.double().mean().float(), atol=1e-3)

        return captured(lambda: mean(row, out), [row], right)

    def capture_at_first_call() -> bool:
        fresh = load(folder / "atax-dynamic")
        matrix, x, y = (torch.zeros(*shape, device="cuda") for shape in ((4096, 31), (31,), (31,)))

        def right() -> bool:
            wide = matrix.double()
            return torch.allclose(y.double(), wide.T @ (wide @ x.double()), rtol=1e-3, atol=1e-1)

        return captured(lambda: fresh(matrix, x, y), [matrix, x], right)

    def threads() -> bool:
        """Two threads, each with its own stream and arrays, call one launcher at the same time."""
        found: list[bool] = []
        start = threading.Barrier(2)

        def work(seed: int) -> None:
            stream = torch.cuda.Stream()
            matrix, x, y = (torch.zeros(*shape, device="cuda") for shape in ((4096, 31), (31,), (31,)))
            torch.cuda.synchronize()
            start.wait()
            good = True
            with torch.cuda.stream(stream):
                for step in range(10):
                    torch.cuda._sleep(SLEEP_CYCLES // 20 * (seed + 1))
                    matrix.fill_(seed + step + 1.0)
                    x.fill_(1.0)
                    atax(matrix, x, y)
                    want = 4096 * 31 * (seed + step + 1.0) ** 2
                    good &= bool(((y - want).abs() < 1e-3 * want).all())
            found.append(good)

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return found == [True, True]

    check("torch: a side stream behind a long kernel", lambda: side_stream(torch.cuda.Stream()))
    check("torch: the default stream behind a long kernel", lambda: side_stream(torch.cuda.default_stream()))
    check("torch: several launches and workspaces on a side stream", several_launches)
    check("torch: capture and replay", capture_one)
    check("torch: capture of two launches with a workspace, twice", capture_several)
    check("torch: capture of four launches with a workspace", capture_four)
    check("torch: capture at the first call", capture_at_first_call)
    check("torch: two threads with two streams", threads)


def cupy_checks(check: Checks, folder: Path) -> None:
    import cupy

    add, atax = (load(folder / f"{name}-dynamic") for name in ("vector_add", "atax"))
    wait = cupy.RawKernel(SLEEP, "wait")

    def sleep() -> None:
        wait((1,), (1,), (SLEEP_CYCLES,))

    sleep()  # compiled now

    def side_stream(stream: Any) -> bool:
        a, b, c = (cupy.zeros(SIZE, cupy.float32) for _ in range(3))
        cupy.cuda.Device().synchronize()
        good = True
        with stream:
            for value in range(1, ROUNDS + 1):
                sleep()
                a.fill(value)
                b.fill(1.0)
                add(a, b, c)
                good &= bool((c == value + 1).all())
        return good

    def captured() -> bool:
        matrix, x, y = (cupy.zeros(shape, cupy.float32) for shape in ((4096, 31), (31,), (31,)))
        a, b, c = (cupy.zeros(SIZE, cupy.float32) for _ in range(3))
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            add(a, b, c)
            atax(matrix, x, y)
            graph = stream.end_capture()
            good = True
            for value in range(1, ROUNDS + 1):
                sleep()
                a.fill(value)
                b.fill(1.0)
                matrix.fill(value)
                x.fill(1.0)
                graph.launch()
                graph.launch()
                want = 4096 * 31 * float(value) ** 2
                good &= bool((c == value + 1).all()) and bool((abs(y - want) < 1e-3 * want).all())
        return good

    check("cupy: a side stream behind a long kernel", lambda: side_stream(cupy.cuda.Stream(non_blocking=True)))
    check("cupy: the default stream behind a long kernel", lambda: side_stream(cupy.cuda.Stream.null))
    check("cupy: the default stream of the thread", lambda: side_stream(cupy.cuda.Stream.ptds))
    check("cupy: capture and replay, with a workspace", captured)


def mixed_checks(check: Checks, folder: Path) -> None:
    import cupy
    import jax
    import torch

    add = load(folder / "vector_add-dynamic")

    def as_cupy(stream: Any) -> Any:
        new = getattr(cupy.cuda.Stream, "from_external", None)
        return new(stream) if new is not None else cupy.cuda.ExternalStream(stream.cuda_stream)

    def shared_stream() -> bool:
        stream = torch.cuda.Stream()
        out = torch.zeros(SIZE, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), as_cupy(stream):
            torch.cuda._sleep(SLEEP_CYCLES)
            a = cupy.full(SIZE, 3.0, cupy.float32)
            add(a, a, out)
            return bool((out == 6.0).all())

    def different_streams() -> bool:
        stream = torch.cuda.Stream()
        a, out = cupy.full(SIZE, 3.0, cupy.float32), torch.zeros(SIZE, device="cuda")
        cupy.cuda.Device().synchronize()
        with torch.cuda.stream(stream):
            try:
                add(a, a, out)
            except TExprError as wrong:
                refused = wrong.diagnostics[0].code == "E0601" and "stream=" in str(wrong)
            else:
                refused = False
            add(a, a, out, stream=stream)
            return refused and bool((out == 6.0).all())

    def jax_inputs() -> bool:
        """Inputs still being computed, and dropped as soon as the call has returned."""
        slow = jax.jit(lambda m: jax.lax.fori_loop(0, 200, lambda k, v: v @ m / 2048.0, m).reshape(-1)[:SIZE] + 4.0)
        m = jax.numpy.ones((2048, 2048), jax.numpy.float32)
        slow(m).block_until_ready()
        stream = torch.cuda.Stream()
        out = torch.zeros(SIZE, device="cuda")
        torch.cuda.synchronize()
        good = True
        with torch.cuda.stream(stream):
            for _ in range(ROUNDS):
                out.zero_()
                torch.cuda._sleep(SLEEP_CYCLES)
                add(slow(m), slow(m), out)
                jax.block_until_ready([jax.numpy.zeros(SIZE, jax.numpy.float32) for _ in range(8)])
                good &= bool((out == 10.0).all())
        return good

    def jax_output() -> bool:
        a = torch.zeros(SIZE, device="cuda")
        try:
            add(a, a, jax.numpy.zeros(SIZE, jax.numpy.float32))
        except TExprError as wrong:
            return "read-only" in str(wrong)
        return False

    check("torch and cupy on one stream", shared_stream)
    check("torch and cupy on two streams are refused without `stream=`", different_streams)
    check("jax inputs are awaited and kept", jax_inputs)
    check("jax outputs are refused", jax_output)


def time_calls(folder: Path) -> dict[str, float]:
    """Host times: nothing is asserted."""
    import cupy
    import torch

    add, atax = load(folder / "vector_add-dynamic"), load(folder / "atax-dynamic")
    t = [torch.zeros(1001, device="cuda") for _ in range(3)]
    c = [cupy.zeros(1001, cupy.float32) for _ in range(3)]
    w = [torch.zeros(*shape, device="cuda") for shape in ((64, 31), (31,), (31,))]
    torch_now, cupy_now = library_of(t[0]), library_of(c[0])
    assert torch_now is not None and cupy_now is not None
    stream = torch.cuda.current_stream()
    calls: dict[str, Callable[[], object]] = {
        "nothing_us": lambda: None,
        "torch_lookup_us": lambda: torch_now.current(0),
        "cupy_lookup_us": lambda: cupy_now.current(0),
        "launch_us": lambda: add(*t),
        "launch_with_stream_us": lambda: add(*t, stream=stream),
        "launch_cupy_us": lambda: add(*c),
        "two_launches_and_workspace_us": lambda: atax(*w),
    }
    times = {name: median_us(call, torch.cuda.synchronize) for name, call in calls.items()}
    for name, value in times.items():
        print(f"{name:32} {value:6.2f}")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.artifacts / "small"
    check = Checks()
    torch_checks(check, folder)
    cupy_checks(check, folder)
    mixed_checks(check, folder)
    wrong = [name for name, right in check.results.items() if not right]
    check.results |= time_calls(folder)
    if options.json:
        options.json.write_text(json.dumps(check.results, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
