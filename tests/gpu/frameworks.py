"""Launching artifacts with torch, cupy and jax arrays, on the caller's stream, and the errors before a launch.

    python tests/gpu/frameworks.py ARTIFACTS [--json FILE]

ARTIFACTS is what `build.py` wrote. Prints one line per check, then host times of one launch
beside those of cupy's and torch's own (medians of 2000).
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from host_times import median_us

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.arrays import view_of
from texpr.runtime.load import load


def refused(run: Callable[[], object]) -> str:
    try:
        run()
    except TExprError as wrong:
        return wrong.diagnostics[0].code
    return "accepted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import cupy
    import jax
    import jax.numpy
    import torch

    add = load(options.artifacts / "small" / "vector_add-dynamic")
    softmax = load(options.artifacts / "small" / "softmax-dynamic")
    results: dict[str, object] = {}

    def check(name: str, right: bool) -> None:
        results[name] = bool(right)
        print(f"{'right' if right else 'WRONG'}  {name}")

    a, b = torch.rand(1001, device="cuda"), torch.rand(1001, device="cuda")
    c = torch.empty_like(a)
    add(a, b, c)
    check("torch tensors", torch.equal(c, a + b))

    x, y = cupy.random.rand(777, dtype=cupy.float32), cupy.random.rand(777, dtype=cupy.float32)
    z = cupy.empty_like(x)
    add(x, y, z)
    check("cupy arrays", bool((z == x + y).all()))

    u = jax.numpy.arange(512, dtype=jax.numpy.float32)
    out = torch.empty(512, device="cuda")
    jax.block_until_ready(u)
    add(u, u, out)
    check("jax arrays as inputs", bool((out.cpu().numpy() == 2 * np.arange(512)).all()))

    rows = torch.randn(37, 70, device="cuda")
    result = torch.empty_like(rows)
    softmax(rows, result)
    check("dynamic sizes from shapes", torch.allclose(result, torch.softmax(rows, 1), atol=1e-6))

    stream = torch.cuda.Stream()
    big, other, target = (torch.empty(1 << 26, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        big.fill_(1.0)
        other.fill_(2.0)
        add(big, other, target, stream=stream)
        copied = target.clone()
    stream.synchronize()
    check("the caller's torch stream", bool((copied == 3.0).all()))

    mine = cupy.cuda.Stream(non_blocking=True)
    with mine:
        p = cupy.full(1 << 24, 4.0, cupy.float32)
        q = cupy.zeros(1 << 24, cupy.float32)
        add(p, p, q, stream=mine)
    mine.synchronize()
    check("the caller's cupy stream", bool((q == 8.0).all()))

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        add(a, b, c, stream=torch.cuda.current_stream())
    c.zero_()
    graph.replay()
    torch.cuda.synchronize()
    check("captured in a CUDA graph", torch.equal(c, a + b))

    there = torch.arange(12.0).reshape(3, 4).t()
    seen = view_of("A", there)
    known = (seen.pointer, seen.shape, seen.strides, seen.dtype.name, seen.device[0])
    check("torch tensors in host memory are seen", known == (there.data_ptr(), (4, 3), (1, 4), "f32", 1))

    half = torch.rand(1001, device="cuda", dtype=torch.float16)
    host = np.ones(1001, np.float32)
    wrong = {
        "a NumPy array": (lambda: add(a, b, host), "E0605"),
        "a torch tensor in host memory": (lambda: add(a, b, torch.zeros(1001)), "E0605"),
        "another element type": (lambda: add(a, b, half), "E0601"),
        "another shape": (lambda: add(a, b, torch.empty(1000, device="cuda")), "E0601"),
        "strides": (lambda: add(a, b, torch.empty(2002, device="cuda")[::2]), "E0601"),
        "overlap": (lambda: add(a, b, a), "E0603"),
        "alignment": (lambda: add(torch.empty(1002, device="cuda")[1:], b, c), "E0601"),
        "a stream that is none": (lambda: add(a, b, c, stream="x"), "E0601"),
    }
    for name, (run, code) in wrong.items():
        found = refused(run)
        check(f"refused before launch: {name} ({found})", found == code)

    if torch.cuda.device_count() > 1:
        away = [torch.rand(1001, device="cuda:1") for _ in range(3)]
        torch.cuda.synchronize(1)
        add(*away)
        check("another GPU than the current one", torch.equal(away[2], away[0] + away[1]))
        check("the current GPU stays current", torch.cuda.current_device() == 0)

    source = """extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
    }"""
    raw = cupy.RawKernel(source, "add")
    x, y, z = (cupy.zeros(1001, cupy.float32) for _ in range(3))
    calls: dict[str, Callable[[], object]] = {
        "launch_us": lambda: add(a, b, c),
        "launch_by_name_us": lambda: add(A=a, B=b, C=c),
        "launch_on_torch_stream_us": lambda: add(a, b, c, stream=stream),
        "launch_cupy_arrays_us": lambda: add(x, y, z),
        "cupy_raw_kernel_us": lambda: raw((8,), (128,), (x, y, z, 1001)),
        "torch_add_us": lambda: torch.add(a, b, out=c),
    }
    for name, call in calls.items():
        results[name] = median_us(call, torch.cuda.synchronize)
        print(f"{name:28} {results[name]:6.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.exit(not all(value for value in results.values() if isinstance(value, bool)))


if __name__ == "__main__":
    main()
