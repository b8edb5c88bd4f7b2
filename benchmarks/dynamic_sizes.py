"""One artifact for rows of every length, beside an artifact for each length: softmax, RMSNorm and sums of rows.

    python benchmarks/dynamic_sizes.py build DIR     where the compiler is, without a GPU
    python benchmarks/dynamic_sizes.py run DIR       with PyTorch, CuPy and cuda-core; no compiler

    --kernel NAME, --dtype f32 (each may be given again), run: --rounds 5

The artifact of free sizes is compared with float64 at every length, those at 0 and of 100003 columns among them, and is
timed at most of them in the same rounds as the artifact of that size. DIR/results.json, written after each kernel, has
the times, and the share: the time of the artifact of the size over that of the free one.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from candidates import Bench, Gpu, Subject
from memory_problems import PROBLEMS, Problem

FREE = "free"  # the artifact of free sizes
SIZES = (
    (262144, 1), (262144, 31), (262144, 512), (131072, 1024), (65536, 2048), (32749, 4093), (32768, 4096),
    (16384, 8192), (8192, 32000),
)  # fmt: skip
UNTIMED = ((1000, 0), (0, 4096), (1, 1), (257, 100003))
NAMES = ("softmax", "rmsnorm", "row_sum")
LEAST, UP_TO = 0.95, 8192  # the share that a free size shall have, for rows up to this length


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kernel of one element type, at all of its sizes."""

    problem: Problem
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.problem.name}-{self.dtype}"

    @property
    def text(self) -> str:
        """The program, which is right for rows without an element, too."""
        return self.problem.text(self.dtype).replace("where N >= 1 ", "")

    def at(self, rows: int, columns: int) -> Subject:
        return Subject(
            name=f"{self.name}-{rows}x{columns}",
            text=self.text,
            sizes=self.problem.sizes(rows, columns),
            expected=self.problem.expected,
            tolerance=self.problem.tolerance(self.dtype),
        )


def families(names: Sequence[str] = NAMES, dtypes: Sequence[str] = ("f32", "bf16")) -> Iterator[Family]:
    for problem in PROBLEMS:
        if problem.name in names:
            yield from (Family(problem=problem, dtype=dtype) for dtype in dtypes)


def folder(out: Path, family: Family, size: tuple[int, int] | None) -> Path:
    return out / family.name / (FREE if size is None else f"{size[0]}x{size[1]}")


def build(out: Path, chosen: Sequence[Family], arch: str, *, source_only: bool = False) -> int:
    """The artifacts of every family: how many."""
    import texpr

    made = 0
    for family in chosen:
        kernel = texpr.parse(family.text, family.problem.program).only
        for size in (None, *SIZES):
            bound = {} if size is None else family.at(*size).sizes
            compiled = kernel.compile(f"cuda:{arch}", sizes=bound)
            compiled.save(folder(out, family, size), source_only=source_only)
            made += 1
    return made


def run(out: Path, chosen: Sequence[Family], bench: Bench, rounds: int) -> int:
    """Every family that is built; the exit status, 1 where one is wrong."""
    results: dict[str, Any] = {}
    for family in chosen:
        free = folder(out, family, None)
        if not free.exists():
            print(f"{family.name}: not built")
            continue
        rows: dict[str, Any] = {}
        for size in (*UNTIMED, *SIZES):
            subject, timed = family.at(*size), size in SIZES
            both = [free, folder(out, family, size)] if timed else [free]
            errors = bench.errors(subject, both)
            right = all(error <= subject.tolerance for error in errors.values())
            times = bench.times(subject, both, rounds) if timed and right else {}
            medians = {name: statistics.median(found) for name, found in times.items()}
            share = medians[both[1].name] / medians[FREE] if medians else None
            rows[f"{size[0]}x{size[1]}"] = {"right": right, "errors": errors, "ms": times, "share": share}
        results[family.name] = rows
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(lines_of(family.name, rows), flush=True)
    wrong = [row for rows in results.values() for row in rows.values() if not row["right"]]
    return 1 if wrong or not results else 0


def lines_of(name: str, rows: dict[str, Any]) -> str:
    said = []
    for size, row in rows.items():
        share, short = row["share"], int(size.split("x")[1]) <= UP_TO
        text = "WRONG" if not row["right"] else "right" if share is None else f"{share:.3f} of the size's own"
        low = "  LOW" if share is not None and share < LEAST and short else ""
        said.append(f"{name:14} {size:>12}  {text}{low}")
    return "\n".join(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("dynamic_sizes"))
    parser.add_argument("--kernel", action="append", choices=NAMES)
    parser.add_argument("--dtype", action="append", choices=["f32", "bf16"])
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chosen = list(families(options.kernel or NAMES, options.dtype or ("f32", "bf16")))
    if options.action == "run":
        return run(options.out, chosen, Gpu(), options.rounds)
    print(f"{build(options.out, chosen, options.arch)} artifacts for {options.arch} in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
