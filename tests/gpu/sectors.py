"""Whether the sectors that a mapping predicts are those that a GPU counts: kernels under ncu, and a table.

    python tests/gpu/sectors.py [--json FILE] [--only KERNEL ...] [--ncu PATH]

Builds the kernels for this machine's GPU in processes of their own, runs each once in one process under Nsight Compute,
and compares sectors and requests of plain loads and stores of global memory, launch by launch, with those of the
mapping (`texpr map --json`). A launch is left out, with a word, where some access has no prediction. The exit code is 1
where fewer than ENOUGH kernels have all their ratios within TOLERANCE, and 3 where ncu is missing or has no counters
here, which is said.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

TOLERANCE, ENOUGH = 0.05, 20
RIGHT, WRONG, MISSING = 0, 1, 3
COUNTED = {"read": "ld", "write": "st"}
METRICS = {
    f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum": (what, mode)
    for what in ("sectors", "requests")
    for mode, op in COUNTED.items()
}
CASES: dict[str, dict[str, int]] = {
    "vector_add": {"N": 1000003},
    "transpose": {"M": 1000, "N": 700},
    "ragged": {"M": 1000, "N": 1003},
    "softmax": {"M": 301, "N": 1000},
    "sum_axis0": {"M": 1000, "N": 515},
    "sum_axis1": {"M": 515, "N": 1000},
    "conv1d": {"N": 10007},
    "conv2d": {"B": 2, "C": 3, "K": 4, "H": 66, "V": 99},
    "conv2d_same": {"H": 507, "V": 311},
    "permute_021": {"L": 13, "M": 117, "N": 119},
    "complex_aos": {"N": 5501},
    "reversed": {"N": 7777},
    "leading_dimension": {"M": 409, "N": 140, "lda": 170, "ldb": 140},
    "strided_params": {"M": 409, "N": 314},
    "triangle_copy": {"N": 523},
    "transpose_padded": {"M": 445, "N": 367},
    "transpose_shared": {"M": 448, "N": 320},
    "max_pool": {"C": 3, "H": 105, "V": 117},
    "depthwise": {"B": 2, "C": 5, "H": 80, "V": 71},
    "layernorm": {"M": 206, "N": 1065},
    "rmsnorm_bf16": {"M": 204, "N": 2096},
    "modular": {"M": 110, "N": 3001},
    "distances": {"N": 270, "K": 133},
    "gesummv": {"N": 290},
    "mvt": {"N": 370},
    "atax": {"M": 230, "N": 310},
    "normalised_rows": {"M": 40, "N": 900},
    "matmul_a_bt": {"M": 310, "N": 290, "K": 170},
    "integer_ops": {"N": 30000},
    "copy_offset": {"N": 10000},
    "deep_nest": {"P": 30, "Q": 10, "R": 77},
    "ordered_sum": {"M": 120, "N": 500},
    "matmul_seed": {"M": 512, "N": 512, "K": 512},
}

Counts = dict[str, dict[str, float]]
"""Sectors and requests by mode."""


def kernel_of(name: str) -> Any:
    import texpr

    return texpr.load(ROOT / "tests" / "kernels" / f"{name}.tex").only


def build(name: str, target: str, folder: str) -> dict[str, Any]:
    """Save a kernel's artifact, and what its mapping predicts by launch."""
    compiled = kernel_of(name).compile(target, sizes=CASES[name])
    compiled.save(Path(folder) / name)
    return predicted(compiled.mapping.data()["accesses"])


def predicted(accesses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sectors and requests of each launch by mode; a word instead of them where something has none."""
    found: dict[str, Any] = defaultdict(dict)
    for entry in accesses:
        if entry["memory"] != "global":
            continue
        mode, own = entry["mode"], found[entry["launch"]]
        mean = entry["mean"]
        if mode not in COUNTED or entry["by"] != "threads" or (mean is None and entry["requests"] != 0):
            own[mode] = f"{entry['relation']}: {entry['why'] or entry['by']}"
        elif not isinstance(own.get(mode), str) and mean is not None:
            counts = own.setdefault(mode, {"sectors": 0.0, "requests": 0})
            counts["sectors"] += mean["sectors"] * mean["requests"]
            counts["requests"] += mean["requests"]
    return dict(found)


def launch(folder: Path) -> None:
    """Run every artifact of a folder once."""
    from texpr.runtime.gpu_arrays import on_gpu
    from texpr.runtime.load import load
    from texpr.trial import make_arguments

    for name in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        launcher = load(folder / name)
        values = make_arguments(kernel_of(name).core(sizes=CASES[name]), launcher.manifest, CASES[name], 0, {})
        with on_gpu(values) as (arrays, stream):
            launcher(*(arrays[p.name] for p in launcher.manifest.parameters), stream=stream)
            stream.synchronize()


def counted(ncu: str, folder: Path) -> dict[str, Counts]:
    """What ncu counts of every launch, by the symbol of its kernel. Raises OSError and ValueError where it cannot."""
    log = folder / "counters.csv"
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += ["--metrics", ",".join(METRICS), "--log-file", str(log)]
    command += [sys.executable, str(Path(__file__).resolve()), "--launch", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith('"ID"')]
    if done.returncode or not heads:
        said = [line for line in (*lines, *done.stderr.splitlines()) if line.strip()]
        raise ValueError("; ".join(said[-4:]) or f"ncu ended with {done.returncode}")
    found: dict[str, Counts] = defaultdict(lambda: {mode: {"sectors": 0.0, "requests": 0.0} for mode in COUNTED})
    for row in csv.DictReader(lines[heads[0] :]):
        if row["ID"]:  # the row below the heads has the units
            for metric, (what, mode) in METRICS.items():
                found[row["Kernel Name"]][mode][what] += float(row[metric].replace(",", ""))
    return found


def compared(name: str, prediction: Mapping[str, Any], found: Mapping[str, Counts]) -> list[dict[str, Any]]:
    """A row for each launch and mode."""
    rows = []
    for own, modes in prediction.items():
        for mode in COUNTED:
            want, got = modes.get(mode), found.get(own, {}).get(mode)
            row: dict[str, Any] = {"kernel": name, "launch": own, "mode": mode, "predicted": want, "counted": got}
            if isinstance(want, dict) and got is not None and want["requests"] and got["requests"]:
                row["predicted_each"] = want["sectors"] / want["requests"]
                row["counted_each"] = got["sectors"] / got["requests"]
                row["ratio"] = row["predicted_each"] / row["counted_each"]
            rows.append(row)
    return rows


def said(row: Mapping[str, Any]) -> str:
    head = f"{row['launch']:<24}{row['mode']:<7}"
    if "ratio" not in row:
        return head + (row["predicted"] if isinstance(row["predicted"], str) else "nothing to compare")
    far = "" if abs(row["ratio"] - 1) <= TOLERANCE else "  <<<"
    requests = f"{row['predicted']['requests']:>12,}{row['counted']['requests']:>12,.0f}"
    return f"{head}{row['predicted_each']:>10.3f}{row['counted_each']:>10.3f}{row['ratio']:>8.3f}{requests}{far}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=sorted(CASES), metavar="KERNEL")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch is not None:
        launch(options.launch)
        return RIGHT
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with ProcessPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            jobs = {name: pool.submit(build, name, options.target, text) for name in options.only}
            predictions = {name: job.result() for name, job in jobs.items()}
        try:
            found = counted(options.ncu, folder)
        except (OSError, ValueError, subprocess.TimeoutExpired) as why:
            print(f"no counters: {why}")
            return MISSING
    rows = [row for name in options.only for row in compared(name, predictions[name], found)]
    print(f"{'launch':<24}{'mode':<7}{'predicted':>10}{'counted':>10}{'ratio':>8}{'requests':>12}{'counted':>12}")
    print("\n".join(said(row) for row in rows))
    told = [row for row in rows if "ratio" in row]
    far = [row for row in told if abs(row["ratio"] - 1) > TOLERANCE]
    kernels = {row["kernel"] for row in told}
    near = kernels - {row["kernel"] for row in far}
    print(f"{len(told) - len(far)} of {len(told)} ratios within {TOLERANCE:.0%}; {len(near)} of {len(kernels)} kernels")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return RIGHT if len(near) >= min(ENOUGH, len(kernels)) else WRONG


if __name__ == "__main__":
    sys.exit(main())
