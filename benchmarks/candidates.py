"""Predicted and measured times of candidates: some drawn from the space of six kernels, and the compiler's own.

    python benchmarks/candidates.py build DIR     where the compiler is, without a GPU
    python benchmarks/candidates.py run DIR       with PyTorch, CuPy and cuda-core; no compiler

    --kernel NAME (may be given again), build: --count 20, --seed 1; run: --rounds 5

Candidates are drawn without preference, by the seed, from all that fit the problem; one that cannot be built is left
and another one drawn. Each is compared with float64 on a poisoned output, then all of a kernel are timed in shuffled
rounds, on inputs and outputs that rotate through more memory than the L2 holds. DIR/results.json, written after each
kernel, has of each candidate what the roofline predicts and the measured times, and of the kernel the rank correlation
of both (Spearman's) and how near the compiler's own comes to the fastest: the time of that over its own.
"""

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contractions import Product
from memory_problems import PROBLEMS, SIZES, Arrays, Numbers, error_of

OWN = "own"  # the artifact of the compiler's own candidate
PRODUCT = Product(2048, 2048, 2048, "nn")
NAMES = ("softmax", "rmsnorm", "transpose", "column_sum", "nchw_to_nhwc")
MOST_MS = 100.0  # of one launch: a candidate that takes longer is timed once


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kernel whose candidates are compared, at some sizes, and what it computes."""

    name: str
    text: str
    sizes: Mapping[str, int]
    expected: Callable[[Numbers, Arrays], Any]
    tolerance: float = 1e-4


def subjects() -> Iterator[Subject]:
    for problem in PROBLEMS:
        if problem.name in NAMES:
            yield Subject(
                name=problem.name,
                text=problem.text("f32"),
                sizes=problem.sizes(*SIZES[0]),
                expected=problem.expected,
                tolerance=problem.tolerance("f32"),
            )
    yield Subject(
        name="matmul", text=PRODUCT.text, sizes=PRODUCT.sizes, expected=lambda n, a: a["A"] @ a["B"], tolerance=1e-5
    )


# ---- building ----------------------------------------------------------------------------------------------------


def build(out: Path, subject: Subject, *, count: int, seed: int, arch: str, source_only: bool = False) -> int:
    """The artifacts of a kernel's own candidate and of so many others, and DIR/KERNEL.json, which has them in order:
    how many."""
    import texpr
    from texpr.polyhedral.mapped.candidate_json import choices_json

    kernel = texpr.parse(subject.text, subject.name).only
    target = f"cuda:{arch}"
    launches = kernel.compile(target, sizes=subject.sizes, stop_after="map").mapping.alternatives()
    own = sum(launch.own.terms.total for launch in launches)
    first = (launches[0].own.choices, own)
    others = [
        (other.choices, own - one.own.terms.total + other.terms.total) for one in launches for other in one.others
    ]
    drawn = random.Random(seed).sample(others, len(others))
    rows: list[dict[str, Any]] = []
    for candidate, predicted in (first, *drawn):
        if len(rows) > count:
            break
        artifact = f"{len(rows):02}" if rows else OWN
        try:
            made = kernel.compile(target, sizes=subject.sizes, mapping=candidate)
            made.save(out / subject.name / artifact, source_only=source_only)
        except texpr.TExprError as wrong:  # its memory, or its time to compile, is found when it is built
            print(f"{subject.name}: one is left: {str(wrong).splitlines()[0]}")
            continue
        rows.append({"artifact": artifact, "predicted us": predicted / 1e6, "candidate": choices_json(candidate)})
    found = {"seed": seed, "space": len(others) + 1, "target": target, "sizes": dict(subject.sizes), "candidates": rows}
    (out / f"{subject.name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return len(rows)


# ---- running -----------------------------------------------------------------------------------------------------


class Bench(Protocol):
    """Where candidates run: a GPU, or what a test has in its place."""

    def errors(self, subject: Subject, artifacts: Sequence[Path]) -> dict[str, float]:
        """The error of each artifact's output against float64, by the folder's name."""
        ...

    def times(self, subject: Subject, artifacts: Sequence[Path], rounds: int) -> dict[str, list[float]]:
        """The milliseconds of one launch of each, in as many rounds, all in shuffled order."""
        ...


def run(out: Path, chosen: Sequence[Subject], bench: Bench, rounds: int) -> int:
    """Every kernel that is built; the exit status, 1 where a candidate is wrong."""
    results: dict[str, Any] = {}
    for subject in chosen:
        if not (out / f"{subject.name}.json").exists():
            print(f"{subject.name}: not built")
            continue
        built = json.loads((out / f"{subject.name}.json").read_text(encoding="utf-8"))
        artifacts = [out / subject.name / row["artifact"] for row in built["candidates"]]
        errors = bench.errors(subject, artifacts)
        right = [path for path in artifacts if errors[path.name] <= subject.tolerance]
        times = bench.times(subject, right, rounds)
        for row in built["candidates"]:
            name = row["artifact"]
            row |= {"error": errors[name], "right": errors[name] <= subject.tolerance, "ms": times.get(name, [])}
        results[subject.name] = {**built, **judged(built["candidates"])}
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(line_of(subject.name, results[subject.name]), flush=True)
    wrong = [row for each in results.values() for row in each["candidates"] if not row["right"]]
    return 1 if wrong or not results else 0


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rank correlation of predicted and measured times, and the time of the fastest over that of the compiler's
    own; None of both where the own one has no time, or nothing else has."""
    timed = {row["artifact"]: statistics.median(row["ms"]) for row in rows if row["ms"]}
    if OWN not in timed or len(timed) < 2:
        return {"rank correlation": None, "own of best": None}
    predicted = [row["predicted us"] for row in rows if row["artifact"] in timed]
    return {
        "rank correlation": correlation(ranks(predicted), ranks(list(timed.values()))),
        "own of best": min(timed.values()) / timed[OWN],
        "best": min(timed, key=lambda name: timed[name]),
    }


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each in order, that of equal ones their mean."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]


def correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's, of ranks Spearman's; None where one of the two does not vary."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return statistics.correlation(one, other)


def line_of(name: str, found: Mapping[str, Any]) -> str:
    rows = found["candidates"]
    wrong = [row["artifact"] for row in rows if not row["right"]]
    said = f"  WRONG: {', '.join(wrong)}" if wrong else ""
    if found["own of best"] is None:
        return f"{name:14} {len(rows)} candidates of {found['space']}, not compared{said}"
    rank = found["rank correlation"]
    shown = "none" if rank is None else f"{rank:.2f}"
    own = statistics.median(rows[0]["ms"])
    return (
        f"{name:14} {len(rows)} candidates of {found['space']}: rank correlation {shown}; the own one takes "
        f"{1000 * own:.1f} us, predicted {rows[0]['predicted us']:.1f}, {found['own of best']:.3f} of the best"
        f" ({found['best']}){said}"
    )


def error_from(np: Any, got: Any, wanted: Any, *, exact: bool) -> float:
    """As `error_of`; where all that is wanted is 0, how far from it the results are."""
    if not wanted.size:
        return 0.0 if got.shape == wanted.shape else math.inf
    if exact or float(np.linalg.norm(wanted)):
        return error_of(np, got, wanted, exact=exact)
    return float(np.nan_to_num(abs(got), nan=math.inf).max())


class Gpu:
    """The GPU of this machine, by PyTorch, whose arrays the kernels are given."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.drawn: dict[str, list[dict[str, Any]]] = {}
        self.took: dict[Path, float] = {}

    def _sets(self, subject: Subject, manifest: Any) -> list[dict[str, Any]]:
        """Arrays for the calls of a kernel, as many as rotate through more memory than the L2 has."""
        from memory_measure import MAX_SETS, ROTATED_BYTES, TorchDraws
        from memory_problems import Problem, arrays_of

        if subject.name not in self.drawn:
            self.drawn.clear()
            problem = Problem(
                name=subject.name, program=subject.name, group="", expected=subject.expected, sizes=lambda m, n: {}
            )
            draws = TorchDraws(self.torch)
            first = arrays_of(problem, manifest.parameters, subject.sizes, draws)
            moved = sum(array.nbytes for array in first.values())
            count = min(MAX_SETS, max(2, -(-ROTATED_BYTES // max(moved, 1))))
            more = (arrays_of(problem, manifest.parameters, subject.sizes, draws) for _ in range(count - 1))
            self.drawn[subject.name] = [first, *more]
        return self.drawn[subject.name]

    def errors(self, subject: Subject, artifacts: Sequence[Path]) -> dict[str, float]:
        import cupy
        from cupyx.scipy.special import erf
        from memory_measure import first_call

        from texpr.runtime.load import load

        found: dict[str, float] = {}
        wanted = None
        for path in artifacts:
            kernel = load(path)
            arrays = self._sets(subject, kernel.manifest)[0]
            (output,) = (p.name for p in kernel.manifest.parameters if p.writes)
            if wanted is None:
                wide = {name: cupy.from_dlpack(array.double()) for name, array in arrays.items()}
                some = all(array.size for array in wide.values())
                wanted = subject.expected(Numbers(cupy, erf), wide) if some else cupy.zeros_like(wide[output])
            arrays[output].fill_(float("nan"))
            self.torch.cuda.synchronize()
            self.took[path] = first_call(self.torch, lambda call=kernel, given=arrays: call(**given))
            got = cupy.from_dlpack(arrays[output].double())
            found[path.name] = error_from(cupy, got, wanted, exact=subject.tolerance == 0.0)
        return found

    def times(self, subject: Subject, artifacts: Sequence[Path], rounds: int) -> dict[str, list[float]]:
        from gpu_timing import filled_graph, interleaved
        from memory_measure import GRAPH_MS, MAX_LAUNCHES

        from texpr.runtime.load import load

        graphs, slow = {}, {}
        for path in artifacts:
            kernel, took = load(path), self.took[path]
            sets = self._sets(subject, kernel.manifest)
            if took > MOST_MS:
                slow[path.name] = [took]
                continue

            def act(number: int, stream: int, call: Any = kernel, sets: Any = sets) -> object:
                return call(**sets[number % len(sets)])

            graphs[path.name] = filled_graph(self.torch, act, GRAPH_MS, MAX_LAUNCHES)
        return interleaved(self.torch, graphs, rounds) | slow


def main() -> int:
    every = {subject.name: subject for subject in subjects()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("candidates"))
    parser.add_argument("--kernel", action="append", choices=list(every))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chosen = [every[name] for name in options.kernel or every]
    if options.action == "run":
        return run(options.out, chosen, Gpu(), options.rounds)
    for subject in chosen:
        made = build(options.out, subject, count=options.count, seed=options.seed, arch=options.arch)
        print(f"{subject.name}: {made} artifacts for {options.arch} in {options.out}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
