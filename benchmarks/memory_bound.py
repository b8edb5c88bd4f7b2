"""The memory-bound kernels on a GPU, by group: beside a device copy, and beside their peers in the same rounds.

    python benchmarks/memory_bound.py build DIR     where the compiler is, without a GPU
    python benchmarks/memory_bound.py run DIR       with PyTorch, Triton, CuPy and cuda-core; no compiler
    python benchmarks/memory_bound.py warm DIR      before it, with many cores: compiles torch.compile's peers
    python benchmarks/memory_bound.py check         the programs on the CPU, at small sizes

    --group, --kernel, --size 32768x4096, --dtype: what of it (each may be given again); --all: every size and type
    run: --rounds 5, --seconds 60 (begins no kernel later), --results FILE, --no-compile
    warm: --processes 16, --seconds 60

Every kernel is compared with float64 on a poisoned output before it is timed; inputs and outputs rotate through more
memory than the L2 holds. A time is the median of rounds in shuffled order, each a graph of launches. `of limit` is the
rate of the bytes that must move over that of a device copy, or of a read-only sum where next to nothing is written.
`run` writes its results after each kernel and skips those that DIR/results.json or FILE has for the same artifact. A
kernel whose first launch takes longer than CUT_S is left, and the script starts itself again, without it.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from memory_measure import CUT_S, CutOffError, measure
from memory_problems import GROUPS, PROBLEMS, SIZES, Case

DEFAULT = ((SIZES[0], "bf16"), (SIZES[0], "f32"), (SIZES[1], "bf16"), (SIZES[0], "i32"))

# ---- what is asked for -------------------------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> list[Case]:
    sizes = [tuple(map(int, text.split("x"))) for text in options.size or ()]
    every = options.all or bool(sizes) or bool(options.dtype)
    return [
        (problem, size, dtype)
        for problem in PROBLEMS
        if not options.group or problem.group in options.group
        if not options.kernel or problem.name in options.kernel
        for size in SIZES
        if not sizes or size in sizes
        for dtype in problem.dtypes
        if not options.dtype or dtype in options.dtype
        if every or (size, dtype) in DEFAULT
    ]


def label(name: str, size: tuple[int, int], dtype: str) -> str:
    return f"{name} {size[0]}x{size[1]} {dtype}"


def folder(out: Path, case: Case) -> Path:
    problem, size, dtype = case
    return out / label(problem.program, size, dtype).replace(" ", "-")


# ---- building ---------------------------------------------------------------------------------------


def build(out: Path, cases: Iterable[Case], arch: str) -> int:
    """An artifact for each case; the exit status, 1 where one is refused."""
    import texpr

    refused, made = 0, set()
    for case in cases:
        problem, size, dtype = case
        if folder(out, case) in made:
            continue
        made.add(folder(out, case))
        try:
            kernel = texpr.parse(problem.text(dtype), problem.program).only
            kernel.compile(f"cuda:{arch}", sizes=problem.sizes(*size)).save(folder(out, case))
        except texpr.TExprError as wrong:
            refused += 1
            print(f"{label(problem.name, size, dtype)}: {wrong}")
    print(f"{len(made) - refused} artifacts for {arch} in {out}, {refused} refused")
    return 1 if refused else 0


# ---- running -----------------------------------------------------------------------------------------------------


def run(out: Path, cases: list[Case], options: argparse.Namespace) -> int:
    """Every case that has no result yet; the exit status, 1 where one is wrong."""
    import torch

    begin = float(os.environ.get("BENCHMARK_BEGAN", time.time()))
    results = options.results or out / "results.json"
    rows: dict[str, dict[str, Any]] = {}
    for path in (out / "results.json", results):
        rows |= json.loads(path.read_text()) if path.exists() else {}
    torch.zeros(1, device="cuda")
    device = torch.cuda.get_device_name(0)
    asked: list[str] = []
    for case in cases:
        problem, size, dtype = case
        name, artifact = label(problem.name, size, dtype), folder(out, case)
        if not artifact.exists():
            print(f"{name}: not built")
            continue
        asked.append(name)
        digest = hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest()[:16]
        if rows.get(name, {}).get("artifact") == digest and rows[name]["device"] == device:
            continue
        if time.time() - begin > options.seconds:
            print(f"{options.seconds:.0f} s are over; run it again for the rest, from {name} on")
            break
        cut = False
        try:
            row = measure(torch, case, artifact, options.rounds, compiles=not options.no_compile)
        except CutOffError:
            cut, row = True, {"cut off": f"a launch takes more than {CUT_S} s", "right": True}
        except Exception as why:  # whatever is wrong with one kernel, the others are measured
            row = {"failed": {"texpr": f"{type(why).__name__}: {str(why)[:500]}"}, "right": False}
        rows[name] = {"group": problem.group, "artifact": digest, "device": device, **row}
        results.write_text(json.dumps(rows, indent=1) + "\n")
        print(line_of(name, rows[name]), flush=True)
        if cut:  # the GPU is busy with it until this process ends
            os.environ["BENCHMARK_BEGAN"] = str(begin)
            os.execv(sys.executable, [sys.executable, *sys.argv])
        torch.cuda.empty_cache()
    print(f"\n{HEAD}")
    for name in asked:
        if name in rows:
            print(line_of(name, rows[name]))
    return 0 if all(rows[name]["right"] for name in asked if name in rows) else 1


HEAD = f"{'kernel':36} {'us':>9} {'GB/s':>6} {'of limit':>8} {'spread':>6}  peers: their time over ours"


def line_of(name: str, row: dict[str, Any]) -> str:
    if "cut off" in row:
        return f"{name:36} {row['cut off']}"
    if "ms" not in row:
        return f"{name:36} WRONG: " + (f"an error of {row['error']:.1e}" if "error" in row else str(row["failed"]))
    medians = {key: statistics.median(times) for key, times in row["ms"].items()}
    own, times = medians.pop("texpr"), row["ms"]["texpr"]
    rate = row["bytes"] / own / 1e6
    peers = "  ".join(f"{key} {value / own:.2f}" for key, value in medians.items())
    failed = f"  not: {', '.join(row['failed'])}" if row["failed"] else ""
    spread, share = (max(times) - min(times)) / own, rate / max(row["limit"].values())
    return f"{name:36} {1000 * own:9.1f} {rate:6.0f} {share:8.3f} {spread:6.3f}  {peers}{failed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "warm", "run", "check"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("memory_bound"))
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--kernel", action="append", choices=[problem.name for problem in PROBLEMS])
    parser.add_argument("--size", action="append", choices=[f"{m}x{n}" for m, n in SIZES])
    parser.add_argument("--dtype", action="append", choices=["f32", "bf16", "i32"])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    cases = chosen(options)
    if options.action == "check":
        from memory_check import fault, on_cpu

        small = list(dict.fromkeys((problem, dtype) for problem, _, dtype in cases))
        wrong = [said for problem, dtype in small if (said := fault(problem, dtype, on_cpu))]
        print("\n".join([*wrong, f"{len(small)} programs, {len(wrong)} wrong"]))
        return 1 if wrong else 0
    if options.action == "build":
        return build(options.out, cases, options.arch)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(options.out.resolve() / "inductor"))
    if options.action == "warm":
        from memory_warm import warm

        built = [((case[0].name, *case[1:]), folder(options.out, case)) for case in cases]
        return warm([each for each in built if each[1].exists()], options.processes, options.seconds)
    return run(options.out, cases, options)


if __name__ == "__main__":
    sys.exit(main())
