"""Scans, sums and products over many blocks give equal bits in 20 runs, while other kernels take their multiprocessors
away.

    python tests/gpu/equal_bits.py build OUT [--arch sm_90a]    where the compiler is, without a GPU
    python tests/gpu/equal_bits.py run OUT                      with PyTorch and cuda-core; no compiler

The load is products of matrices of varied sizes on two other streams, so that the blocks of a launch begin at other
times and in other places in each run. Every result is compared with float64 first.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from build_or_run import build_or_run

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

RUNS = 20
TYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}
Wanted = Callable[[Any, Any], Any]  # of X and Z in f64; of their magnitudes, the size of what is added


def _product(types: str, z: str = "N, P", m: str = "M") -> str:
    """A product of X and Z, whose factors and result have these types."""
    factor, result = types.split()
    at = z.replace("N", "k").replace("P", "j")
    return (
        f"kernel k(X: {factor}[{m}, N], Z: {factor}[{z}], Y: {result}[{m}, P]) {{\n"
        f"    par {m} i, P j {{ Y[i, j] = sum N k {{ X[i, k] * Z[{at}] }} }}\n}}"
    )


PROGRAMS: dict[str, tuple[str, dict[str, int], Wanted]] = {
    "stream_scan": (
        "kernel k(X: f32[N], Y: f32[N]) { new t: f32; t = 0.0; seq N i { t += X[i]; Y[i] = t } }",
        {"N": (1 << 24) + 3},
        lambda x, _: x.cumsum(0),
    ),
    "row_scan": (
        "kernel k(X: f32[M, N], Y: f32[M, N]) {\n"
        "    par M i { new t: f32; t = 0.0; seq N j { t += X[i, j]; Y[i, j] = t } }\n}",
        {"M": 37, "N": 300007},
        lambda x, _: x.cumsum(1),
    ),
    "column_scan": (
        "kernel k(X: f32[M, N], Y: f32[M, N]) {\n"
        "    par N j { new t: f32; t = 0.0; seq M i { t += X[i, j]; Y[i, j] = t } }\n}",
        {"M": 30011, "N": 517},
        lambda x, _: x.cumsum(0),
    ),
    "dot": (
        "kernel k(X: f32[N], Z: f32[N], Y: f32[1]) { Y[0] = sum N i { X[i] * Z[i] } }",
        {"N": (1 << 25) + 1},
        lambda x, z: (x * z).sum().reshape(1),
    ),
    "column_sum": (
        "kernel k(X: f32[M, N], Y: f32[N]) { par N j { Y[j] = sum M i { X[i, j] } } }",
        {"M": 40009, "N": 257},
        lambda x, _: x.sum(0),
    ),
    "row_sum": (
        "kernel k(X: f32[M, N], Y: f32[M]) { par M i { Y[i] = sum N j { X[i, j] } } }",
        {"M": 5, "N": 4000037},
        lambda x, _: x.sum(1),
    ),
    "row_logsumexp": (  # a cluster has a row, and meets once for its maximum and its sum
        "kernel k(X: f32[M, N], Y: f32[M]) {\n"
        "    par M i { new t: f32; new s: f32; t = -inf; seq N j { t max= X[i, j] }\n"
        "        s = 0.0; seq N j { s += exp(X[i, j] - t) } Y[i] = log(s) + t }\n}",
        {"M": 257, "N": 100003},
        lambda x, _: x.logsumexp(1),
    ),
    "split_product": (_product("f32 f32"), {"M": 128, "N": 40000, "P": 128}, lambda x, z: x @ z),
    "product_of_f64": (_product("f64 f64"), {"M": 517, "N": 1031, "P": 517}, lambda x, z: x @ z),
    "few_rows": (_product("f32 f32"), {"M": 5, "N": 4096, "P": 4096}, lambda x, z: x @ z),
    "one_row": (_product("bf16 f32", m="1"), {"N": 4096, "P": 4096}, lambda x, z: x @ z),
    "streamed_product": (_product("bf16 f32"), {"M": 512, "N": 32768, "P": 512}, lambda x, z: x @ z),
    "winding_product": (_product("bf16 f32"), {"M": 4096, "N": 1024, "P": 4096}, lambda x, z: x @ z),
    "high_product": (_product("bf16 bf16", "P, N"), {"M": 4096, "N": 4096, "P": 8192}, lambda x, z: x @ z.T),
}


def build(out: Path, arch: str) -> None:
    """An artifact for each program."""
    import texpr

    for name, (text, sizes, _) in PROGRAMS.items():
        texpr.parse(text).only.compile(f"cuda:{arch}", **sizes).save(out / name)
    print(len(PROGRAMS), "artifacts for", arch)


def run(out: Path) -> int:
    """Check all; 0 when all are right and equal."""
    import torch

    from texpr.codegen.manifest import evaluate
    from texpr.runtime.load import load

    rng, wrong = random.Random(5), 0
    streams = [torch.cuda.Stream() for _ in range(2)]
    loads = [torch.randn(side, side, device="cuda") for side in (300, 700, 1500, 2500)]
    for name, (_, sizes, wanted) in PROGRAMS.items():
        kernel = load(out / name)
        shapes = {p.name: tuple(evaluate(e, sizes) for e in p.shape) for p in kernel.manifest.parameters}
        types = {p.name: TYPES[p.dtype] for p in kernel.manifest.parameters}
        arrays = {n: torch.randn(shape, device="cuda").to(getattr(torch, types[n])) for n, shape in shapes.items()}
        found = []
        for _ in range(RUNS):
            torch.cuda.synchronize()
            for stream in streams:
                with torch.cuda.stream(stream):
                    for _ in range(rng.randrange(1, 6)):
                        side = rng.choice(loads)
                        side @ side
            arrays["Y"] = torch.full_like(arrays["Y"], float("nan"))
            kernel(**arrays)
            found.append(arrays["Y"])
        torch.cuda.synchronize()
        factors = [arrays[n].double() if n in arrays else None for n in ("X", "Z")]
        want, size = wanted(*factors), wanted(*(None if one is None else one.abs() for one in factors))
        error = float(((found[0].double() - want).abs() / size).max())
        equal = all(torch.equal(found[0], other) for other in found[1:])
        good = equal and error < 1e-5 + torch.finfo(found[0].dtype).eps
        wrong += not good
        print(
            f"{name:16} {'right' if good else 'WRONG'}: error {error:.1e} of what is added, {RUNS} runs equal: {equal}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
