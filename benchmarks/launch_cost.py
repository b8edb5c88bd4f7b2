"""Host time of a launch from Python, beside CuPy's raw kernel and torch's own operation.

    python benchmarks/launch_cost.py build DIR [--arch sm_90a]    where the compiler is, without a GPU
    python benchmarks/launch_cost.py run DIR [--json FILE]        with PyTorch, CuPy and cuda-core; no compiler

Every way is called once on new arrays, and its result compared, before any is timed. Microseconds of one call that only
enqueues: medians of rounds in shuffled order, each of CALLS calls, short enough not to fill the GPU's queue. `again`
calls with the arrays of the call before, `others` with outputs that no call had yet; all of these are compared too.
Below them, what a call that gives the arrays of the call before spends its time on, each part called by itself, and the
same launch by other calls of the driver; a loop around nothing takes what `nothing` says.
"""

import argparse
import ctypes
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CALLS, ROUNDS, WARM, ELEMENTS = 200, 50, 20, 1024
LIMIT_US = 1.0  # of ours above CuPy's
PROGRAMS = {
    "add": "kernel add(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }",
    "saxpy": "kernel saxpy(a: f32, X: f32[N], inout Y: f32[N]) { par N i { Y[i] = a * X[i] + Y[i] } }",
    "twice": """kernel twice(A: f32[N], C: f32[N]) {
        new B: f32[N]
        par N i { B[i] = 2.0 * A[i] }
        par N i { C[i] = B[N - 1 - i] + B[i] }
    }""",
}
A = np.arange(ELEMENTS, dtype=np.float32)
ARRAYS = (A, 3 * A + 1, np.full(ELEMENTS, -1, np.float32))  # two inputs, and where the result goes
WANTED = {"add": ARRAYS[0] + ARRAYS[1], "saxpy": 2 * ARRAYS[0] + ARRAYS[2], "twice": 2 * A[::-1] + 2 * A}
RAW = 'extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {{ {} }}'.format(
    "long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) c[i] = a[i] + b[i];"
)


Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to call what one of PROGRAMS says: `bind` makes a call of arrays such as ARRAYS, which `new` makes, and
    `back` brings one of them back to NumPy."""

    program: str
    bind: Callable[[Any, Any, Any], Call]
    new: Callable[[Any], Any]
    back: Callable[[Any], Any]

    def arrays(self) -> tuple[Any, Any, Any]:
        first, second, result = map(self.new, ARRAYS)
        return first, second, result

    def is_right(self) -> bool:
        """Whether a call on new arrays leaves the result, and its inputs as they were."""
        arrays = self.arrays()
        self.bind(*arrays)()
        wanted = (*ARRAYS[:2], WANTED[self.program])
        return all(np.array_equal(self.back(got), want) for got, want in zip(arrays, wanted, strict=True))


def build(out: Path, arch: str) -> int:
    import texpr

    for name, text in PROGRAMS.items():
        texpr.parse(text).only.compile(f"cuda:{arch}").save(out / name)
    print(f"{len(PROGRAMS)} artifacts for {arch} in {out}")
    return 0


def parts_of(kernel: Any, arrays: tuple[Any, ...], name: str) -> dict[str, Call]:
    """What a call with the arrays of the call before does, one thing after another."""
    for _ in range(5):
        kernel(*arrays)
    call = kernel._bind.recall(arrays, {})
    (ready,) = call.again[1]
    seen = call.seen
    return {
        f"{name}: arrays are the same": lambda: kernel._bind.recall(arrays, {}),
        f"{name}: current stream": lambda: seen.stream(seen.device),
        f"{name}: current device": seen.here or (lambda: kernel.backend.is_current(seen.device)),
        f"{name}: current device, the driver": lambda: kernel.backend.is_current(seen.device),
        f"{name}: the driver's launch": ready,
    }


def launches_of(kernel: Any, arrays: tuple[Any, ...]) -> dict[str, Call]:
    """The same launch by calls of the driver that could be made instead."""
    from cuda.bindings import driver

    from texpr.codegen.manifest import evaluate
    from texpr.runtime.driver import _address

    (step,) = kernel.manifest.host
    function, unbound = (int(each) for each in (kernel.backend.function(step.symbol), _kernel_of(kernel, step.symbol)))
    x, y, z = (evaluate(extent, {"N": ELEMENTS}) for extent in step.grid)
    grid, pointers = (x, y, z), [array.data_ptr() for array in arrays]
    values = (ctypes.c_uint64 * (len(pointers) + 1))(*pointers, ELEMENTS)
    places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(values) + 8 * k for k in range(len(values))))
    plain = ctypes.CFUNCTYPE(ctypes.c_int)(_address("cuLaunchKernel", 7000))
    kept = (arrays, values)  # of which `places` has addresses only

    def by_numbers(handle: int) -> Call:
        at = ctypes.byref(ctypes.c_char.from_address(handle))
        return lambda held=kept: plain(at, *grid, *step.block, 0, None, ctypes.byref(places), None)

    nothing = ctypes.CFUNCTYPE(ctypes.c_int)(_address("cuDriverGetVersion", 2020))
    number = ctypes.c_int()
    return {
        "nothing": lambda: None,
        "ctypes, a call that does nothing": partial(nothing, ctypes.byref(number)),
        "cuLaunchKernel of a function": by_numbers(function),
        "cuLaunchKernel of a kernel": by_numbers(unbound),
        "cuLaunchKernelEx of a kernel": _start_of(unbound, step, grid, [*pointers, ELEMENTS]),
        "cuda.bindings, cuLaunchKernel": lambda held=kept: driver.cuLaunchKernel(
            function, *grid, *step.block, 0, 0, ctypes.addressof(places), 0
        ),
    }


def _kernel_of(kernel: Any, symbol: str) -> int:
    return int(kernel.backend._kernels[symbol].handle)


def _start_of(handle: int, step: Any, grid: tuple[int, int, int], arguments: list[int]) -> Call:
    from texpr.runtime.driver import Way

    return Way(step.symbol, handle, grid, step.block, 0, "Q" * len(arguments)).kept(0, arguments)


def run(out: Path, path: Path | None) -> int:
    """Print the table; 1 where a result is wrong, or ours is more than LIMIT_US above CuPy's raw kernel."""
    import cupy
    import torch

    from texpr.runtime.load import load

    add, saxpy, twice = (load(out / name) for name in PROGRAMS)
    raw = cupy.RawKernel(RAW, "add")
    torch.zeros(1, device="cuda")
    blocks = (-(-ELEMENTS // 256),)

    def in_cupy(program: str, bind: Callable[[Any, Any, Any], Call]) -> Way:
        return Way(program=program, bind=bind, new=cupy.array, back=cupy.asnumpy)

    def in_torch(program: str, bind: Callable[[Any, Any, Any], Call]) -> Way:
        return Way(
            program=program, bind=bind, new=lambda a: torch.tensor(a, device="cuda"), back=lambda a: a.cpu().numpy()
        )

    ways = {
        "cupy raw kernel": in_cupy("add", lambda a, b, c: lambda: raw(blocks, (256,), (a, b, c, ELEMENTS))),
        "torch.add": in_torch("add", lambda a, b, c: lambda: torch.add(a, b, out=c)),
        "ours, cupy": in_cupy("add", lambda a, b, c: lambda: add(a, b, c)),
        "ours, torch, again": in_torch("add", lambda a, b, c: lambda: add(a, b, c)),
        "ours, torch, stream=": in_torch("add", lambda a, b, c: lambda: add(a, b, c, stream=0)),
        "ours, a scalar": in_torch("saxpy", lambda a, b, c: lambda: saxpy(2.0, a, c)),
        "ours, two launches and a workspace": in_torch("twice", lambda a, b, c: lambda: twice(a, c)),
    }
    wrong = [name for name, way in ways.items() if not way.is_right()]
    if wrong:
        print(f"WRONG results: {'; '.join(wrong)}")
        return 1
    calls = {name: way.bind(*way.arrays()) for name, way in ways.items()}
    first, second, _ = ways["ours, torch, again"].arrays()
    others = [torch.zeros(ELEMENTS, device="cuda") for _ in range(WARM + CALLS * ROUNDS)]
    unused = iter(others)
    calls["ours, torch, others"] = lambda: add(first, second, next(unused))
    parts = {
        **parts_of(add, ways["ours, torch, again"].arrays(), "torch"),
        **parts_of(add, ways["ours, cupy"].arrays(), "cupy"),
        **launches_of(add, ways["ours, torch, again"].arrays()),
    }
    found = times_of({**calls, **parts}, torch.cuda.synchronize)
    if not all(np.array_equal(each, WANTED["add"]) for each in torch.stack(others).cpu().numpy()):
        print("WRONG results: ours, torch, others")
        return 1
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name in calls:
        print(f"{name:36} {medians[name]:6.2f} us   {medians[name] - medians['cupy raw kernel']:+6.2f}")
    print("of which")
    for name in parts:
        print(f"  {name:34} {medians[name]:6.2f} us")
    if path is not None:
        path.write_text(json.dumps({"device": torch.cuda.get_device_name(0), "us": medians}, indent=1) + "\n")
    return int(max(medians["ours, cupy"], medians["ours, torch, again"]) > medians["cupy raw kernel"] + LIMIT_US)


def times_of(calls: dict[str, Call], wait: Call) -> dict[str, list[float]]:
    """Microseconds of a call in each round, by way."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
    order = list(calls)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            call = calls[name]
            wait()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            found[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    return build(options.out, options.arch) if options.action == "build" else run(options.out, options.json)


if __name__ == "__main__":
    sys.exit(main())
