"""Target `cpu` beside hand-written Numba, in one process: `python benchmarks/cpu.py [--json FILE] [NAME…]`.

Every kernel runs alternately with its peer on fresh outputs, best of several rounds; results are compared first. The
ratio is the peer's time over ours: above 1 TExpr is faster. Limits: matmul at least 3, products beside NumPy at least
.6 (OPENBLAS_NUM_THREADS and NUMBA_NUM_THREADS give both as many threads, and each side is timed when the other's are
asleep), all others at least 1 / 1.1. `short` is a call of a few microseconds of work, with free sizes, after pauses in
which the other threads fall asleep: there medians count.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import texpr

sys.path.insert(0, str(Path(__file__).parent))
from peers import numba_kernels as peers

Call = Callable[[], None]
ROUNDS = 12
ASLEEP_S = 0.1  # OpenBLAS's other threads look for work for some 20 ms behind a product, on the cores of what follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`ours` and `peer` compute into the same array `out`, since an array's place in memory changes times
    by a quarter; `reset` restores what they update. Before each call there is a pause."""

    name: str
    ours: Call
    peer: Call
    out: Any
    reset: Call
    least_ratio: float
    pause_s: float = 0.0  # before every call
    settle_s: float = 0.0  # before the calls of each side


def compiled(text: str, types: dict[str, str] | None = None, **sizes: int) -> Any:
    return texpr.parse(text).only.compile("cpu", sizes=sizes, types=types or {})


def random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


MATMUL = "par M i { par N j { seq K k { C[i * N + j] += A[i * K + k] * B[k * N + j] } } }"
PRODUCT = """kernel product(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""
VADD = "kernel vadd(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }"
SAXPY = "kernel saxpy(a: f32, X: f32[N], inout Y: f32[N]) { par N i { Y[i] = a * X[i] + Y[i] } }"
GELU = """kernel smooth(X: f32[N], Y: f32[N]) {
    par N i { Y[i] = 0.5 * X[i] * (1.0 + erf(X[i] * 0.7071067811865476)) }
}"""
ROWS = "kernel rows(A: f32[M, N], s: f32[M]) { par M i { s[i] = sum N j { A[i, j] } } }"
COLUMNS = "kernel columns(A: f32[M, N], s: f32[N]) { par N j { s[j] = sum M i { A[i, j] } } }"
TOTAL = "kernel total(A: f32[N], s: f32[1]) { s[0] = 0.0; par N i { s[0] += A[i] } }"
GREATEST = "kernel greatest(A: f32[N], s: f32[1]) { s[0] = -inf; par N i { s[0] max= A[i] } }"
SOFTMAX = """kernel rows_softmax(X: f32[M, N], Y: f32[M, N]) {
    par M i {
        new top: f32
        new found: f32
        top = maximum N j { X[i, j] }
        found = 0.0
        seq N j {
            Y[i, j] = exp(X[i, j] - top)
            found += Y[i, j]
        }
        par N j { Y[i, j] = Y[i, j] / found }
    }
}"""


def matmul(n: int) -> Case:
    a, b = random(n, n), random(n, n)
    out = np.zeros((n, n), np.float32)
    kernel = compiled(MATMUL, M=n, N=n, K=n)

    def reset() -> None:
        out[:] = 0

    return Case(
        name=f"matmul {n}",
        ours=lambda: kernel(out, a, b),
        peer=lambda: peers.matmul_three_loops(a, b, out),
        out=out,
        reset=reset,
        least_ratio=3.0,
    )


def beside_numpy(m: int, n: int, k: int, *, free: bool = False) -> Case:
    a, b = random(m, k), random(k, n)
    out = np.zeros((m, n), np.float32)
    kernel = compiled(PRODUCT, **({} if free else {"M": m, "N": n, "K": k}))

    def reset() -> None:
        out[:] = np.nan

    return Case(
        name=f"product {m}x{n}x{k}{' free' if free else ''}",
        ours=lambda: kernel(a, b, out),
        peer=lambda: np.matmul(a, b, out=out),
        out=out,
        reset=reset,
        least_ratio=0.6,
        settle_s=ASLEEP_S,
    )


def simple(
    name: str, text: str, peer: Any, inputs: tuple[Any, ...], shape: tuple[int, ...], inout: bool = False, **sizes: int
) -> Case:
    kernel = compiled(text, **sizes)
    start = random(*shape)
    out = start.copy()

    def reset() -> None:
        out[...] = start if inout else np.float32(np.nan)

    return Case(
        name=name,
        ours=lambda: kernel(*inputs, out),
        peer=lambda: peer(*inputs, out),
        out=out,
        reset=reset,
        least_ratio=1 / 1.1,
    )


def short(n: int) -> Case:
    case = simple(f"short {n}", VADD, peers.vadd, (random(n), random(n)), (n,))
    return replace(case, pause_s=0.002)


def cases(names: list[str]) -> list[Case]:
    large, small = 1 << 24, 1 << 23
    makers: dict[str, Callable[[], list[Case]]] = {
        "matmul": lambda: [matmul(512)],
        "product": lambda: [
            *(beside_numpy(n, n, n) for n in (1024, 1000)),
            beside_numpy(511, 1023, 257),
            beside_numpy(1000, 1000, 1000, free=True),
        ],
        "vadd": lambda: [
            simple(f"vadd {n}", VADD, peers.vadd, (random(n), random(n)), (n,), N=n) for n in (small, large)
        ],
        "short": lambda: [short(1000), short(10000)],
        "saxpy": lambda: [
            simple(f"saxpy {n}", SAXPY, peers.saxpy, (1.5, random(n)), (n,), inout=True, N=n) for n in (small, large)
        ],
        "gelu": lambda: [simple(f"gelu {n}", GELU, peers.gelu, (random(n),), (n,), N=n) for n in (small, large // 4)],
        "rows": lambda: [
            simple(f"rows {m}x{n}", ROWS, peers.row_sums, (random(m, n),), (m,), M=m, N=n)
            for m, n in ((4096, 4096), (262144, 64), (64, 262144))
        ],
        "columns": lambda: [
            simple(f"columns {m}x{n}", COLUMNS, peers.column_sums, (random(m, n),), (n,), M=m, N=n)
            for m, n in ((4096, 4096), (262144, 64), (64, 262144))
        ],
        "total": lambda: [simple(f"total {n}", TOTAL, peers.total, (random(n),), (1,), N=n) for n in (small, large)],
        "greatest": lambda: [
            simple(f"greatest {n}", GREATEST, peers.greatest, (random(n),), (1,), N=n) for n in (small, large)
        ],
        "softmax": lambda: [
            simple(f"softmax {m}x{n}", SOFTMAX, peers.softmax, (random(m, n),), (m, n), M=m, N=n)
            for m, n in ((2048, 1024),)
        ],
    }
    return [case for name, make in makers.items() if not names or name in names for case in make()]


def best_us(call: Call, seconds: float) -> float:
    """The least time of one call in microseconds, over rounds that take about `seconds` together."""
    best = float("inf")
    end = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best * 1e6


def usual_us(call: Call, pause_s: float, calls: int = 20) -> float:
    """The median time of a call after a pause, in microseconds."""
    times = []
    for _ in range(calls):
        time.sleep(pause_s)
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e6)


def measure(case: Case) -> dict[str, Any]:
    """Check the two against one another, then time them in turn, in many short rounds: what disturbs the machine
    disturbs both."""
    case.reset()
    case.ours()
    got = case.out.copy()
    case.reset()
    case.peer()
    error = float(np.abs(got - case.out).max()) / max(float(np.abs(case.out).max()), 1e-30)
    if not error < 1e-3:
        raise SystemExit(f"{case.name}: results differ by {error:.3g} of the greatest value")
    ours = peer = float("inf")
    for _ in range(ROUNDS):
        case.reset()
        time.sleep(case.settle_s)
        ours = min(ours, usual_us(case.ours, case.pause_s) if case.pause_s else best_us(case.ours, 0.05))
        case.reset()
        time.sleep(case.settle_s)
        peer = min(peer, usual_us(case.peer, case.pause_s) if case.pause_s else best_us(case.peer, 0.05))
    ratio = peer / ours
    return {
        "name": case.name,
        "texpr_us": round(ours, 1),
        "peer_us": round(peer, 1),
        "ratio": round(ratio, 3),
        "least_ratio": round(case.least_ratio, 3),
        "reached": ratio >= case.least_ratio,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'kernel':24} {'texpr us':>12} {'peer us':>12} {'ratio':>8} {'limit':>8}")
    for case in cases(options.names):
        row = measure(case)
        rows.append(row)
        mark = "" if row["reached"] else "  below"
        print(
            f"{row['name']:24} {row['texpr_us']:12.1f} {row['peer_us']:12.1f} {row['ratio']:8.2f}"
            f" {row['least_ratio']:8.2f}{mark}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
