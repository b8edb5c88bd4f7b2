"""How long compilation takes: every stage, and whole commands with their start-up.

    python benchmarks/compile_time.py [--repeat 5]

Prints milliseconds per stage (best of N, in one warm process) for several kernels, then seconds of CPU time
(user + system, children included, best of N) of whole commands.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import texpr
from texpr.pipeline import STAGES

ROOT = Path(__file__).resolve().parents[1]
KERNELS = {
    "vector_add": {"N": 1 << 20},
    "matmul_seed": {"M": 512, "N": 512, "K": 512},
    "matmul_tiled": {"M": 512, "N": 512, "K": 512},
    "softmax": {"M": 512, "N": 4096},
    "attention_tile": {"M": 64, "N": 256, "D": 64},
    "conv2d": {"B": 2, "C": 3, "K": 4, "H": 16, "V": 16},
}


def stage_times(name: str, sizes: dict[str, int], target: str, repeat: int) -> dict[str, float]:
    path = ROOT / "tests" / "kernels" / f"{name}.tex"
    best: dict[str, float] = {}
    for _ in range(repeat):
        for stage, milliseconds in texpr.load(path).only.compile(target, sizes=sizes).build.times_ms.items():
            best[stage] = min(best.get(stage, milliseconds), milliseconds)
    return best


def cpu_seconds(command: list[str], repeat: int) -> float:
    """User and system seconds of a command and its children, best of `repeat`."""
    best = float("inf")
    for _ in range(repeat):
        before = os.times()
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, used)
    return best


def two_hundred_lines(folder: Path) -> Path:
    """A file of 200 lines made of the test kernels."""
    lines: list[str] = []
    for path in sorted((ROOT / "tests" / "kernels").glob("*.tex")):
        text = path.read_text(encoding="utf-8")
        if "kernel " in text and len(lines) + text.count("\n") <= 200:
            lines += text.splitlines()
    target = folder / "two_hundred.tex"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    shown = [stage for stage in STAGES if stage != "parse"]
    for target in ("cuda:sm_90a", "cpu"):
        print(f"{target:<16}" + "".join(f"{stage:>9}" for stage in shown) + f"{'sum':>9}  (ms)")
        for name, sizes in KERNELS.items():
            times = stage_times(name, sizes, target, options.repeat)
            row = [times[stage] for stage in shown]
            print(f"{name:<16}" + "".join(f"{value:9.1f}" for value in row) + f"{sum(row):9.1f}")
    with tempfile.TemporaryDirectory() as name:
        file = two_hundred_lines(Path(name))
        count = file.read_text(encoding="utf-8").count("\n")
        seed = ROOT / "tests" / "kernels" / "matmul_seed.tex"
        sizes = ["-D", "M=512", "-D", "N=512", "-D", "K=512"]
        commands = {
            f"check, {count} lines": ["check", str(file)],
            "build --source-only, seed matmul": ["build", str(seed), *sizes, "--source-only", "-o", f"{name}/out"],
            "version": ["version"],
        }
        for label, arguments in commands.items():
            used = cpu_seconds([sys.executable, "-m", "texpr", *arguments], options.repeat)
            print(f"texpr {label:<34} {used:.2f} s user + system, best of {options.repeat}")


if __name__ == "__main__":
    main()
