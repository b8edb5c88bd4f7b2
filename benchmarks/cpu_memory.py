"""The memory-bound kernels on target `cpu` beside hand-written Numba, in one process.

    python benchmarks/cpu_memory.py [--kernel NAME] [--size 2048x4096] [--rounds 12] [--seconds 0.05] [--json FILE]
    python benchmarks/cpu_memory.py --alone ...     on a machine that others use, too
    python benchmarks/cpu_memory.py --equal ...     the peer beside itself

Programs are those of `memory_bound.py`, in f32, without attributes; peers stand in `peers/numba_memory.py` and
`numba_norms.py`. Both write the same array in turn, many short rounds each, after both were compared with float64; the
least time of a call counts.
The ratio is the peer's time over ours: above 1 TExpr is faster. Exit status 1 where one is below `--least`.
NUMBA_NUM_THREADS sets the threads of both.

Times are of the clock, which counts what other programs take of the cores. `--alone` gives each kernel one thread, and
counts the time that this thread runs: what is left of the others is the memory that they read meanwhile. `--equal`
measures the peer in the place of TExpr: how far its ratios lie from 1 is the spread of the machine, so that what lies
closer to 1 says nothing; the last line of a run with `--equal` has the least and the greatest of them.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from memory_check import NumpyDraws, signature_of, wide
from memory_problems import PROBLEMS, Numbers, Problem, arrays_of, error_of
from peers import numba_memory, numba_norms

import texpr

SIZES = ((2048, 4096), (2039, 4093), (67, 100003))


Clock = Callable[[], float]


def best_us(call: Callable[[], object], seconds: float, clock: Clock) -> float:
    """The least time of one call in microseconds, over calls that take about `seconds` together, three at least."""
    best, calls, end = math.inf, 0, time.perf_counter() + seconds
    while calls < 3 or time.perf_counter() < end:
        start = clock()
        call()
        best = min(best, clock() - start)
        calls += 1
    return best * 1e6


def measure(
    problem: Problem, size: tuple[int, int], rounds: int, seconds: float, *, clock: Clock, equal: bool
) -> dict[str, Any]:
    """One kernel at one size; raises ValueError where a result is wrong."""
    sizes = problem.sizes(*size)
    dtype = problem.dtypes[0]
    kernel = texpr.parse(problem.text(dtype), problem.program).only
    manifest = signature_of(kernel, sizes)
    arrays = arrays_of(problem, manifest.parameters, sizes, NumpyDraws(sum(map(ord, problem.name))))
    (output,) = (p.name for p in manifest.parameters if p.writes)
    numbers = Numbers(np, np.vectorize(math.erf, otypes=[float]))
    want = problem.expected(numbers, {name: wide(array) for name, array in arrays.items()})
    compiled = kernel.compile("cpu", sizes=sizes)
    peer = getattr(numba_norms, problem.program, None) or getattr(numba_memory, problem.program)
    ordered = [arrays[p.name] for p in manifest.parameters]
    ours = peer if equal else compiled
    calls = {"texpr": lambda: ours(*ordered), "numba": lambda: peer(*ordered)}
    start = arrays[output].copy()
    for who, call in calls.items():
        arrays[output][...] = start
        call()
        error = error_of(np, wide(arrays[output]), want, exact=problem.exact)
        if error > problem.tolerance(dtype):
            raise ValueError(f"{problem.name} {size}: {who} has an error of {error:.1e}")
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for who, call in calls.items():
            best[who] = min(best[who], best_us(call, seconds, clock))
    return {"us": best, "ratio": best["numba"] / best["texpr"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", choices=[problem.name for problem in PROBLEMS])
    parser.add_argument("--size", action="append")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--least", type=float, default=0.97)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [tuple(map(int, text.split("x"))) for text in options.size or ()] or SIZES
    if options.alone:
        numba.set_num_threads(1)
    threads, clock = numba.get_num_threads(), time.thread_time if options.alone else time.perf_counter
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'kernel':36} {'texpr us':>10} {'numba us':>10} {'ratio':>6}   {threads} threads of {os.cpu_count()} cores")
    for problem in PROBLEMS:
        if options.kernel and problem.name not in options.kernel:
            continue
        for rows_, columns in sizes:
            row = measure(problem, (rows_, columns), options.rounds, options.seconds, clock=clock, equal=options.equal)
            rows[f"{problem.name} {rows_}x{columns}"] = row
            print(
                f"{problem.name + f' {rows_}x{columns}':36} {row['us']['texpr']:10.1f} {row['us']['numba']:10.1f}"
                f" {row['ratio']:6.2f}{'' if row['ratio'] >= options.least else '  below'}",
                flush=True,
            )
    ratios = [row["ratio"] for row in rows.values()]
    if options.equal:
        print(f"{'spread of equal kernels':36} {min(ratios):28.2f} to {max(ratios):.2f}")
    if options.json:
        options.json.write_text(json.dumps({"threads": threads, "kernels": rows}, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["ratio"] >= options.least for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
