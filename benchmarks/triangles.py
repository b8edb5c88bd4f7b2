"""The lower triangle of a matrix's product with its own transpose on a GPU, from a plain program, beside the whole
product and cuBLAS's, which makes the whole of it (PyTorch).

    python benchmarks/triangles.py build DIR     where the compiler is, without a GPU
    python benchmarks/triangles.py run DIR       with PyTorch and cuda-core; no compiler

    --size 8192 (may be given again): rows, of as many elements; --dtype bf16 (f16, f32)

Every result is compared with float64, and what is above the diagonal must be as it was. A time is the median of bursts
after a pause in shuffled order, each a graph of launches. `run` writes DIR/triangles.json after each size.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SIZES, BURSTS, LAUNCHES = (8192, 4096, 3000), 12, 6
TOLERANCE = {"bf16": 3e-3, "f16": 5e-4, "f32": 1e-5}  # of the norm
LOOPS = {"lower": ("inout", "par M i, i + 1 j"), "whole": ("out", "par M i, M j")}
TEXT = """kernel {name}(A: {dtype}[M, K], {mode} C: {dtype}[M, M]) {{
    {loops} {{ C[i, j] = sum K k {{ A[i, k] * A[j, k] }} }}
}}"""


def build(out: Path, options: argparse.Namespace) -> int:
    """An artifact of the triangle and of the whole product for each size; the exit status."""
    import texpr

    for size in options.size or SIZES:
        for name, (mode, loops) in LOOPS.items():
            text = TEXT.format(name=name, mode=mode, dtype=options.dtype, loops=loops)
            kernel = texpr.parse(text, name).only
            kernel.compile(f"cuda:{options.arch}", sizes={"M": size, "K": size}).save(out / f"{name}-{size}")
    return 0


def run(out: Path, options: argparse.Namespace) -> int:
    """Every size that is built; the exit status, 1 where a result is wrong."""
    import torch

    rows: dict[str, dict[str, Any]] = {}
    for size in options.size or SIZES:
        row = rows[str(size)] = measure(torch, size, out, options.dtype)
        (out / "triangles.json").write_text(json.dumps(rows, indent=1) + "\n")
        took = {name: 1000 * statistics.median(times) for name, times in row["burst ms"].items()}
        print(
            f"{size:6} lower {took['lower']:8.1f} us   whole {took['whole']:8.1f} us   cuBLAS {took['torch']:8.1f} us"
            f"   lower of whole {took['lower'] / took['whole']:.3f}{'' if row['right'] else '   WRONG'}",
            flush=True,
        )
    return 0 if all(row["right"] for row in rows.values()) else 1


def measure(torch: Any, size: int, out: Path, dtype: str) -> dict[str, Any]:
    from gpu_timing import bursts, graph_of
    from memory_problems import error_of
    from product_peers import torch_type

    from texpr.runtime.load import load

    kernels = {name: load(out / f"{name}-{size}") for name in LOOPS}
    a = torch.randn((size, size), device="cuda").to(torch_type(torch, dtype))
    poison = -77.0
    result = {name: torch.full_like(a, poison) for name in (*LOOPS, "again", "torch")}
    wanted = a.double() @ a.double().mT
    below = torch.ones_like(wanted, dtype=torch.bool).tril()
    for name, kernel in kernels.items():
        kernel(A=a, C=result[name])
    kernels["lower"](A=a, C=result["again"])
    lower = torch.where(below, result["lower"].double(), 0.0)
    errors = {
        "lower": error_of(torch, lower, torch.where(below, wanted, 0.0), exact=False),
        "whole": error_of(torch, result["whole"].double(), wanted, exact=False),
    }
    kept = bool((result["lower"][~below] == poison).all()) and bool(torch.equal(result["lower"], result["again"]))
    del wanted, below, lower
    acts: dict[str, Any] = {
        name: lambda n, stream, kernel=kernel, c=result[name]: kernel(A=a, C=c) for name, kernel in kernels.items()
    }
    acts["torch"] = lambda n, stream: torch.matmul(a, a.mT, out=result["torch"])
    graphs = {name: (graph_of(torch, act, LAUNCHES), LAUNCHES) for name, act in acts.items()}
    right = kept and max(errors.values()) <= TOLERANCE[dtype]
    found = bursts(torch, graphs, BURSTS)
    return {"device": torch.cuda.get_device_name(0), "error": errors, "right": right, "burst ms": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("triangles"))
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--dtype", choices=TOLERANCE, default="bf16")
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    return build(options.out, options) if options.action == "build" else run(options.out, options)


if __name__ == "__main__":
    sys.exit(main())
