"""Time the memory-bound kernels by hand on a GPU beside a device copy, and beside other kernels for the same problems.

    python tests/gpu/trials_memory.py build OUT [--arch sm_90a] [--small]    where the compiler is, without a GPU
    python tests/gpu/trials_memory.py run OUT [--rounds 5]                   with PyTorch and cuda-core; no compiler

`--small`: at sizes for sanitizers, and with `--rounds 0` nothing is timed.
`OUT/peers.json` may name other kernels, whose cubins lie beside it: a list of objects with `problem`, `name`, `cubin`,
`symbol`, `grid` (three numbers), `block`, `shared_bytes` and `arguments`, each of these "in", "out", "scratch" (zeros)
or a number of 64 bits. Every kernel is compared with float64 on poisoned output first, rows of infinities and NaN among
them; a wrong one is not timed. Kernels of a problem and the copy of as many bytes take turns in shuffled rounds, each a
graph of several launches on buffers in rotation; the ratio is the copy's time over the kernel's. In a graph the sum
also clears its word, which on a stream is left at zero for it.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "polyhedral")]

SIZES: dict[str, dict[str, int]] = {
    "softmax": {"M": 32749, "N": 4093},
    "sum": {"N": 1 << 27},
    "transpose": {"M": 8191, "N": 8193},
    "cluster": {"M": 257, "N": 100003},
}
SMALL: dict[str, dict[str, int]] = {
    "softmax": {"M": 37, "N": 4093},
    "sum": {"N": (1 << 21) + 5},
    "transpose": {"M": 301, "N": 259},
    "cluster": {"M": 7, "N": 100003},
}
POISON = 7.0  # what no kernel computes
SM_BLOCKS = 4 * 132  # of the sum: as many as are resident
TOLERANCE = {"softmax": 5e-3, "sum": 1e-5, "transpose": 0.0, "cluster": 5e-3}  # of the norm


def build(out: Path, arch: str, every: dict[str, dict[str, int]]) -> None:
    """An artifact for each kernel, and `kernels.json` with their sizes."""
    from memory_by_hand import cluster_softmax, softmax, ticket_sum, transpose

    from texpr.kernels import Compiled
    from texpr.pipeline import build_mapped
    from texpr.polyhedral.target import parse_target

    target = parse_target(f"cuda:{arch}")
    made = [
        ("softmax", "3 warps x 6 chunks", softmax(3, 6, "softmax_0")),
        ("softmax", "4 warps x 5 chunks", softmax(4, 5, "softmax_0")),
        ("sum", "16 warps x 2 chunks", ticket_sum(16, 2, SM_BLOCKS, "sum_0")),
        ("transpose", "128 x 128, 4 blocks", transpose(128, 128, "transpose_0", 4)),
        ("transpose", "128 x 128, 5 blocks", transpose(128, 128, "transpose_0", 5)),
        ("cluster", "4 x 8 warps x 13 chunks, 2 blocks", cluster_softmax(4, 8, 13, "cluster_0", 2)),
        ("cluster", "the same, #fast", cluster_softmax(4, 8, 13, "cluster_0", 2, fast=True)),
    ]
    rows = []
    for number, (problem, name, program) in enumerate(made):
        Compiled(build_mapped(replace(program, target=target)), ()).save(out / str(number))
        rows.append({"problem": problem, "name": name, "artifact": str(number)})
    (out / "kernels.json").write_text(json.dumps({"sizes": every, "kernels": rows}, indent=1))
    print(len(rows), "kernels for", arch)


@dataclass
class Problem:
    """Buffers in rotation, what the first result must be, and the bytes that must move."""

    buffers: list[tuple[Any, Any]]
    want: Any
    bytes: int


def problem_of(torch: Any, name: str, sizes: dict[str, int]) -> Problem:
    if name == "sum":
        sources = [torch.rand(sizes["N"], device="cuda")]  # a sum near 0 would have no relative error
        buffers = [(x, torch.empty(1, device="cuda")) for x in sources]
        return Problem(buffers, sources[0].double().sum()[None], 4 * sizes["N"])
    m, n = sizes["M"], sizes["N"]
    sources = [torch.randn(m, n, device="cuda").bfloat16() for _ in range(2)]
    for row, (first, last, value) in enumerate(ODD):
        for x in sources:
            x[row, first:last] = value
    shape = (n, m) if name == "transpose" else (m, n)
    buffers = [(x, torch.empty(shape, device="cuda", dtype=torch.bfloat16)) for x in sources]
    want = sources[0].T.contiguous().double() if name == "transpose" else torch.softmax(sources[0].double(), 1)
    return Problem(buffers, want, 4 * m * n)


ODD = (
    (0, None, float("-inf")),
    (0, -1, float("-inf")),
    (5, 6, float("inf")),
    (-1, None, float("nan")),
    (0, 9, float("-inf")),
)  # rows of a matrix: from, to, and what stands there


def error_of(torch: Any, got: Any, want: Any) -> float:
    """The distance over the length, of what is a number on both sides; infinite where one side alone is."""
    got = got.double()
    odd = ~torch.isfinite(want)
    alike = torch.where(odd, (got == want) | (got.isnan() & want.isnan()), torch.isfinite(got))
    if not bool(alike.all()):
        return float("inf")
    return float((got - want)[~odd].norm()) / float(want[~odd].norm())


Launch = Callable[[Any, Any, int], None]
"""Of the source and the target, on a stream."""


def ours(out: Path, row: dict[str, Any]) -> Launch:
    from texpr.runtime.load import load

    kernel = load(out / row["artifact"])
    return lambda source, target, stream: kernel(source, target, stream=stream)


def peer(torch: Any, out: Path, row: dict[str, Any]) -> Launch:
    """A kernel of a cubin, whose arguments no manifest describes."""
    from launch_once import launch

    from texpr.codegen.manifest import LaunchStep
    from texpr.runtime.device import CudaBackend

    grid, block, shared = row["grid"], (row["block"], 1, 1), row["shared_bytes"]
    step = LaunchStep(
        symbol=row["symbol"], grid=(1, 1, 1), cluster=(1, 1, 1), block=block, shared_bytes=shared, arguments=()
    )  # fmt: skip
    backend = CudaBackend((out / row["cubin"]).read_bytes(), (step,))
    function = backend.function(step.symbol)
    scratch = [torch.zeros(1 << 22, dtype=torch.uint8, device="cuda") for a in row["arguments"] if a == "scratch"]

    def start(source: Any, target: Any, stream: int) -> None:
        rest = iter(scratch)
        values: list[int] = []
        for argument in row["arguments"]:
            tensors = {"in": source, "out": target}
            of = next(rest) if argument == "scratch" else tensors.get(argument) if isinstance(argument, str) else None
            values.append(argument if of is None else of.data_ptr())
        launch(function, grid, block, shared, stream, values, attributes=(), symbol=row["symbol"])

    return start


def run(out: Path, rounds: int) -> int:
    """Check and time every kernel; 0 when all are right. Writes `times.json`."""
    import torch
    from gpu_timing import Graph, graph_of, interleaved

    torch.zeros(1, device="cuda")
    built = json.loads((out / "kernels.json").read_text())
    every, rows = built["sizes"], built["kernels"]
    peers = out / "peers.json"
    rows += json.loads(peers.read_text()) if peers.exists() else []
    wrong, times = 0, []
    for name, sizes in every.items():
        problem = problem_of(torch, name, sizes)
        launches = max(4, min(60, int(3e-3 / (problem.bytes / 4e12))))
        half = problem.bytes // 4 // 4096 * 4096  # of bf16 elements: the copy reads and writes as much together
        pairs = [tuple(torch.randn(half, device="cuda").bfloat16() for _ in range(2)) for _ in problem.buffers]
        graphs: dict[str, tuple[Graph, int]] = {}
        if rounds:
            graphs["copy"] = (
                graph_of(torch, lambda n, _, p=pairs: p[n % len(p)][0].copy_(p[n % len(p)][1]), launches),
                launches,
            )
        for row in rows:
            if row["problem"] != name:
                continue
            kernel = ours(out, row) if "artifact" in row else peer(torch, out, row)
            source, target = problem.buffers[0]
            target.fill_(POISON)
            kernel(source, target, torch.cuda.current_stream().cuda_stream)
            torch.cuda.synchronize()
            error = error_of(torch, target, problem.want)
            print(f"{name:10} {row['name']:40} error {error:.1e}")
            wrong += not error <= TOLERANCE[name]
            if not rounds or not error <= TOLERANCE[name]:
                continue

            def act(number: int, stream: int, kernel: Launch = kernel, of: Problem = problem) -> None:
                kernel(*of.buffers[number % len(of.buffers)], stream)

            graphs[row["name"]] = (graph_of(torch, act, launches), launches)
        if not rounds:
            continue
        found = interleaved(torch, graphs, rounds)
        copy = statistics.median(found["copy"])
        print(f"## {name} {sizes}: copy {problem.bytes / copy / 1e6:.0f} GB/s")
        for key in sorted(found, key=lambda k: statistics.median(found[k])):
            own = statistics.median(found[key])
            spread = (max(found[key]) - min(found[key])) / own
            print(f"  {key:40} {1000 * own:8.1f} us   {copy / own:.3f} of copy   spread {spread:.3f}")
        times.append({"problem": name, "sizes": sizes, "bytes": problem.bytes, "ms": found})
        (out / "times.json").write_text(json.dumps(times))
        del problem, pairs, graphs
        torch.cuda.empty_cache()
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.action == "build":
        build(options.out, options.arch, SMALL if options.small else SIZES)
        return 0
    return run(options.out, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
