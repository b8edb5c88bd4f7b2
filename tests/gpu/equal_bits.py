"""Scans and sums over many blocks give equal bits in 20 runs, while other kernels take their multiprocessors away.

    python tests/gpu/equal_bits.py build OUT [--arch sm_90a]    where the compiler is, without a GPU
    python tests/gpu/equal_bits.py run OUT                      with PyTorch and cuda-core; no compiler

The load is products of matrices of varied sizes on two other streams, so that the blocks of a launch begin at other
times and in other places in each run. Every result is compared with float64 first.
"""

import random
import sys
from pathlib import Path
from typing import Any

from build_or_run import build_or_run

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

RUNS = 20
PROGRAMS: dict[str, tuple[str, dict[str, int]]] = {
    "stream_scan": (
        "kernel k(X: f32[N], Y: f32[N]) { new t: f32; t = 0.0; seq N i { t += X[i]; Y[i] = t } }",
        {"N": (1 << 24) + 3},
    ),
    "row_scan": (
        "kernel k(X: f32[M, N], Y: f32[M, N]) {\n"
        "    par M i { new t: f32; t = 0.0; seq N j { t += X[i, j]; Y[i, j] = t } }\n}",
        {"M": 37, "N": 300007},
    ),
    "column_scan": (
        "kernel k(X: f32[M, N], Y: f32[M, N]) {\n"
        "    par N j { new t: f32; t = 0.0; seq M i { t += X[i, j]; Y[i, j] = t } }\n}",
        {"M": 30011, "N": 517},
    ),
    "dot": ("kernel k(X: f32[N], Z: f32[N], Y: f32[1]) { Y[0] = sum N i { X[i] * Z[i] } }", {"N": (1 << 25) + 1}),
    "column_sum": (
        "kernel k(X: f32[M, N], Y: f32[N]) { par N j { Y[j] = sum M i { X[i, j] } } }",
        {"M": 40009, "N": 257},
    ),
    "row_sum": ("kernel k(X: f32[M, N], Y: f32[M]) { par M i { Y[i] = sum N j { X[i, j] } } }", {"M": 5, "N": 4000037}),
    "split_product": (
        "kernel k(X: f32[M, N], Z: f32[N, M], Y: f32[M, M]) {\n"
        "    par M i, M j { Y[i, j] = sum N k { X[i, k] * Z[k, j] } }\n}",
        {"M": 128, "N": 40000},
    ),
}


def build(out: Path, arch: str) -> None:
    """An artifact for each program."""
    import texpr

    for name, (text, sizes) in PROGRAMS.items():
        texpr.parse(text).only.compile(f"cuda:{arch}", **sizes).save(out / name)
    print(len(PROGRAMS), "artifacts for", arch)


def expected(name: str, x: Any, z: Any) -> Any:
    """In float64; and the sum of the magnitudes that an element adds up."""
    wide = x.double()
    if name in ("stream_scan", "row_scan"):
        return wide.cumsum(-1), wide.abs().cumsum(-1)
    if name == "column_scan":
        return wide.cumsum(0), wide.abs().cumsum(0)
    if name == "column_sum":
        return wide.sum(0), wide.abs().sum(0)
    if name == "row_sum":
        return wide.sum(1), wide.abs().sum(1)
    if name == "dot":
        return (wide * z.double()).sum().reshape(1), (wide * z.double()).abs().sum().reshape(1)
    return wide @ z.double(), wide.abs() @ z.double().abs()


def run(out: Path) -> int:
    """Check all; 0 when all are right and equal."""
    import torch

    from texpr.codegen.manifest import evaluate
    from texpr.runtime.load import load

    rng, wrong = random.Random(5), 0
    streams = [torch.cuda.Stream() for _ in range(2)]
    loads = [torch.randn(side, side, device="cuda") for side in (300, 700, 1500, 2500)]
    for name, (_, sizes) in PROGRAMS.items():
        kernel = load(out / name)
        shapes = {p.name: tuple(evaluate(e, sizes) for e in p.shape) for p in kernel.manifest.parameters}
        arrays = {n: torch.randn(shape, device="cuda") for n, shape in shapes.items()}
        found = []
        for _ in range(RUNS):
            torch.cuda.synchronize()
            for stream in streams:
                with torch.cuda.stream(stream):
                    for _ in range(rng.randrange(1, 6)):
                        side = rng.choice(loads)
                        side @ side
            arrays["Y"] = torch.full(shapes["Y"], float("nan"), device="cuda")
            kernel(**arrays)
            found.append(arrays["Y"])
        torch.cuda.synchronize()
        want, size = expected(name, arrays["X"], arrays.get("Z"))
        error = float(((found[0].double() - want).abs() / size).max())
        equal = all(torch.equal(found[0], other) for other in found[1:])
        good = equal and error < 1e-5
        wrong += not good
        print(
            f"{name:16} {'right' if good else 'WRONG'}: error {error:.1e} of what is added, {RUNS} runs equal: {equal}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
