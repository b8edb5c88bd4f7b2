"""Host time of a launch from Python, beside CuPy's raw kernel and torch's own operation.

    python benchmarks/launch_cost.py build DIR [--arch sm_90a]    where the compiler is, without a GPU
    python benchmarks/launch_cost.py run DIR [--json FILE]        with PyTorch, CuPy and cuda-core; no compiler

Microseconds of one call that only enqueues: medians of rounds in shuffled order, each of CALLS calls, short enough not
to fill the GPU's queue. `again` calls with the arrays of the call before, `others` with arrays that no call had yet.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CALLS, ROUNDS, ELEMENTS = 200, 50, 1024
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
RAW = 'extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {{ {} }}'.format(
    "long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) c[i] = a[i] + b[i];"
)


def build(out: Path, arch: str) -> int:
    import texpr

    for name, text in PROGRAMS.items():
        texpr.parse(text).only.compile(f"cuda:{arch}").save(out / name)
    print(f"{len(PROGRAMS)} artifacts for {arch} in {out}")
    return 0


def run(out: Path, path: Path | None) -> int:
    """Print the table; 1 where ours is more than LIMIT_US above CuPy's raw kernel."""
    import cupy
    import torch

    from texpr.runtime.load import load

    add, saxpy, twice = (load(out / name) for name in PROGRAMS)
    raw = cupy.RawKernel(RAW, "add")
    torch.zeros(1, device="cuda")

    def tensors(count: int) -> list[Any]:
        return [torch.ones(ELEMENTS, device="cuda") for _ in range(count)]

    a, b, c = tensors(3)
    x, y, z = (cupy.ones(ELEMENTS, cupy.float32) for _ in range(3))
    blocks, fresh = (-(-ELEMENTS // 256),), iter(tensors(2 * CALLS * ROUNDS + 200))
    ways: dict[str, Callable[[], object]] = {
        "cupy raw kernel": lambda: raw(blocks, (256,), (x, y, z, ELEMENTS)),
        "torch.add": lambda: torch.add(a, b, out=c),
        "ours, cupy": lambda: add(x, y, z),
        "ours, torch, again": lambda: add(a, b, c),
        "ours, torch, stream=": lambda: add(a, b, c, stream=0),
        "ours, torch, others": lambda: add(a, b, next(fresh)),
        "ours, a scalar": lambda: saxpy(2.0, a, c),
        "ours, two launches and a workspace": lambda: twice(a, c),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        for _ in range(20):
            call()
    order = list(ways)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            call = ways[name]
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            found[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    if not bool((c == c).all()) or float(z[0]) != 2.0:
        print("WRONG results")
        return 1
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name, us in medians.items():
        print(f"{name:36} {us:6.2f} us   {us - medians['cupy raw kernel']:+6.2f}")
    if path is not None:
        path.write_text(json.dumps({"device": torch.cuda.get_device_name(0), "us": medians}, indent=1) + "\n")
    return int(max(medians["ours, cupy"], medians["ours, torch, again"]) > medians["cupy raw kernel"] + LIMIT_US)


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
