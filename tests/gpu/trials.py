"""Time the GEMM that is written by hand in the project's types beside a prototype's kernel and cuBLAS, on a GPU.

    python tests/gpu/trials.py build OUT [--prototype GEMM.cu]    where the compiler is, without a GPU
    python tests/gpu/trials.py run OUT [--rounds 12]              with torch (CUDA) and cuda-core; no compiler

`build` writes an artifact of `tests/polyhedral/gemm_by_hand.py` for each size, and a cubin of the prototype's text.
`run` checks each against float64 on fresh inputs, with a poisoned output, twice with equal bits; then it times bursts:
a lead-in and a graph of launches of one variant after an idle time, variants in random order, medians. It prints the
ratios as JSON, and leaves all figures in OUT/report.json.
"""

import argparse
import ctypes
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "polyhedral")]
THREADS = 384  # of a block
SIZES = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (8192, 4096, 4096))
RAGGED = ((520, 776, 1096), (1320, 776, 1096), (1000, 1000, 1000))
PROTOTYPE = {"CM": 2}  # its switches: 128 x 256, two blocks share the tile of B
PROTOTYPE_SHARED = 4 * (128 + 256) * 128 + 2 * 4 * 2 * 16 * 128 + 16 * 4
BURST_MS, IDLE_MS, LEAD_MS = 10.0, 60.0, 10.0


# ---- building ----------------------------------------------------------------------------------------------------


def build(out: Path, prototype: Path | None) -> None:
    """The artifacts, the prototype's cubin and `trials.json`."""
    from gemm_by_hand import Shape, gemm

    from texpr.codegen.toolchain import find_nvcc
    from texpr.kernels import Compiled
    from texpr.pipeline import build_mapped

    rows = []
    for m, n, k in (*RAGGED, *SIZES):
        shape, name = Shape(m, n, k), f"gemm_{m}_{n}_{k}"
        Compiled(build_mapped(gemm(shape)), ()).save(out / name)
        rows.append({"size": [m, n, k], "timed": (m, n, k) in SIZES, "artifact": name, "blocks": 2 * shape.clusters})
    if prototype is not None:
        switches = [f"-D{name}={value}" for name, value in PROTOTYPE.items()]
        flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-cubin"]
        target = ["-o", str(out / "prototype.cubin"), str(prototype)]
        subprocess.run([find_nvcc().path, *flags, *switches, *target], check=True)
    (out / "trials.json").write_text(json.dumps(rows))
    print(len(rows), "sizes", "and the prototype" if prototype else "without a prototype")


# ---- running -----------------------------------------------------------------------------------------------------


def ours(out: Path, row: dict[str, Any], arrays: dict[str, Any]) -> Callable[[], None]:
    from texpr.runtime.load import load

    kernel = load(out / row["artifact"])
    return lambda: kernel(**arrays)


def prototype(out: Path, row: dict[str, Any], arrays: dict[str, Any]) -> Callable[[], None]:
    """The prototype, which takes C and the sizes beside its maps, as no artifact does."""
    import torch
    from launch_once import launch

    from texpr.codegen.manifest import LaunchStep
    from texpr.codegen.tensor_map import TensorMap
    from texpr.runtime.device import CudaBackend
    from texpr.runtime.driver import encode

    def tensor_map(name: str, box: tuple[int, int]) -> Any:
        (rows, columns), size = arrays[name].shape, 2
        return encode(
            TensorMap(
                address=arrays[name].data_ptr(),
                dtype="bf16",
                element_bytes=size,
                shape=(rows, columns),
                strides_bytes=(columns * size, size),
                box=box,
                swizzle_bytes=128,
            )
        )

    grid, block, shared = (row["blocks"], 1, 1), (THREADS, 1, 1), PROTOTYPE_SHARED
    step = LaunchStep(
        symbol="gemm", grid=(1, 1, 1), cluster=(1, 1, 1), block=block, shared_bytes=shared, arguments=()
    )  # fmt: skip
    backend = CudaBackend((out / "prototype.cubin").read_bytes(), (step,))
    function = backend.function(step.symbol)
    m, n, k = row["size"]
    maps = [tensor_map(name, box) for name, box in (("A", (128, 64)), ("B", (128, 64)), ("C", (16, 64)))]
    values = [arrays["C"].data_ptr(), *(ctypes.c_int(x) for x in (m, n, k)), 0]

    def start() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        launch(function, grid, block, shared, stream, [*maps, *values], attributes=(), symbol="gemm")

    return start


def checked(variant: Callable[[], None], arrays: dict[str, Any], want: Any) -> float:
    """The relative error; infinite where an element is missing, or two runs differ."""
    import torch

    results = []
    for _ in range(2):
        arrays["C"].fill_(float("nan"))
        variant()
        torch.cuda.synchronize()
        results.append(arrays["C"].clone())
    if not torch.equal(results[0].view(torch.int16), results[1].view(torch.int16)):
        return float("inf")
    error = float((results[0].double() - want).norm() / want.norm())
    return error if error == error else float("inf")


def burst(graph: Any, lead: Any) -> float:
    """Milliseconds of a graph, after an idle time and a lead-in of the same variant."""
    import torch

    time.sleep(IDLE_MS / 1000)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    lead.replay()
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def run(out: Path, rounds: int) -> int:
    """Check all, time the great sizes; 0 when all are right."""
    import torch

    rows = json.loads((out / "trials.json").read_text())
    torch.zeros(1, device="cuda")
    wrong, report = 0, []
    for row in rows:
        m, n, k = row["size"]
        seed = random.randrange(1 << 30)
        torch.manual_seed(seed)
        arrays = {
            name: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            for name, shape in (("A", (m, k)), ("B", (n, k)), ("C", (m, n)))
        }
        want = arrays["A"].double() @ arrays["B"].double().T
        variants: dict[str, Callable[[], None]] = {"texpr": ours(out, row, arrays)}
        if (out / "prototype.cubin").exists():
            variants["prototype"] = prototype(out, row, arrays)
        a, b, c = arrays["A"], arrays["B"].T, arrays["C"]
        for name in ("cublas", "cublas again"):
            variants[name] = lambda a=a, b=b, c=c: torch.matmul(a, b, out=c)  # type: ignore[misc]  # bound by default
        errors = {name: checked(launch, arrays, want) for name, launch in variants.items()}
        wrong += sum(error > 2.5e-3 for error in errors.values())
        found: dict[str, Any] = {"size": row["size"], "seed": seed, "errors": errors}
        del want
        if row["timed"]:
            found |= timed(variants, m * n * k * 2, rounds)
        print(json.dumps(found), flush=True)
        report.append(found)
    (out / "report.json").write_text(json.dumps(report, indent=1))
    print("wrong:", wrong)
    return 1 if wrong else 0


def timed(variants: dict[str, Callable[[], None]], flop: int, rounds: int) -> dict[str, Any]:
    """TFLOP/s by variant, and the ratios of ours to the others."""
    import torch
    from gpu_timing import graph_of

    count = max(4, round(BURST_MS / (flop / 700e12 * 1e3)))
    lead = max(4, round(LEAD_MS / (flop / 700e12 * 1e3)))

    def captured(launch: Callable[[], None], launches: int) -> Any:
        return graph_of(torch, lambda number, stream: launch(), launches)[0]

    graphs = {name: (captured(launch, count), captured(launch, lead)) for name, launch in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name in random.sample(list(variants), len(variants)):
            times[name].append(burst(*graphs[name]) / count)
    rates = {name: flop / statistics.median(each) / 1e9 for name, each in times.items()}
    ratios = {name: rates["texpr"] / rate for name, rate in rates.items() if name != "texpr"}
    return {"tflops": rates, "ratio": ratios, "launches": count, "ms": times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--prototype", type=Path, help="the prototype's text, beside the headers that it includes")
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    if args.what == "run":
        return run(args.out, args.rounds)
    args.out.mkdir(parents=True, exist_ok=True)
    build(args.out, args.prototype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
