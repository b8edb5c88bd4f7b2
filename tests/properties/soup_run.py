"""Running soup: what the checker accepts passes every stage, or a diagnostic refuses it, and every backend is right.

    python tests/properties/soup_run.py FIRST COUNT [--backends exact,fast,simulate,cpu,cuda-host] [--nvcc sm_80,sm_90a]

prints counts, refusals by code and stage, and every program with a traceback, a wrong result or a long wait. CUDA text
is always emitted; `--nvcc` compiles it, many programs to a translation unit, with warnings as errors.
"""

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent))

from differential import BACKENDS, Emitted, Reference, Tally, judge, judge_batch, reference, special_arguments
from programs import Case
from soup import brew

import texpr
from texpr.codegen.toolchain import compile_cubin
from texpr.grammar.diagnostics import TExprError

PATIENCE_S = 20
HASTE_S = 4
INTERPRETED = ("reference", "exact", "simulate")  # they take as long as a program has iterations
T = TypeVar("T")


class TooLongError(Exception):
    """A stage took longer than PATIENCE_S."""


class HurriedTally(Tally):
    """The tally of a run in which a stage that takes long is a finding. Tests take a plain one: they watch no clock."""


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """A limit on the time of what is inside; 0 is none."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def stage(case: Case, name: str, allowed: tuple[str, ...], tally: Tally, work: Callable[[], T]) -> T | None:
    """The value of a stage; None after counting a refusal by a code that the stage may give, or a failure."""
    try:
        seconds = HASTE_S if name in INTERPRETED else PATIENCE_S
        with patience(seconds if isinstance(tally, HurriedTally) else 0):
            return work()
    except TExprError as refused:
        codes = sorted({d.code for d in refused.diagnostics if d.code.startswith("E")})
        tally.counts[f"{name}: {codes[0]}"] += 1
        if not codes or any(not code.startswith(allowed) for code in codes):
            tally.fail(case, f"{name}: {refused}")
    except TooLongError:
        tally.counts[f"{name}: slow"] += 1
        if name not in INTERPRETED:
            tally.fail(case, f"{name}: more than {PATIENCE_S} s")
    except Exception:  # a defect of ours: that is what soup is for
        tally.fail(case, f"{name}: {traceback.format_exc()[-1800:]}")
    return None


def digested(case: Case, tally: Tally) -> Emitted | None:
    """An accepted program with its reference and its CUDA text; None after counting what refused it."""
    tally.counts["programs"] += 1

    def checked() -> texpr.Kernel:
        kernel = texpr.parse(case.text, f"soup_{case.seed}").only
        kernel.core(sizes=case.sizes, types=case.types)
        return kernel

    kernel = stage(case, "check", ("E01", "E02", "E0303"), tally, checked)
    if kernel is None:
        return None
    tally.counts["checked"] += 1
    options = {"types": case.types, "sizes": case.bound}

    def proved() -> texpr.Compiled:
        return kernel.compile("cpu", **options, stop_after="prove")

    if stage(case, "prove", ("E0211", "E03"), tally, proved) is None:
        return None
    tally.counts["proved"] += 1

    def known() -> Reference:
        values = special_arguments(kernel, case.sizes, case.seed, case.types)
        return reference(kernel, case.sizes, values, case.types, case.dynamic)

    ref = stage(case, "reference", (), tally, known)
    made = stage(case, "emit", ("E04", "E0502"), tally, lambda: kernel.compile("cuda-host:sm_90a", **options))
    checks = case.seed % 2 == 0
    again = stage(
        case, "emit", ("E04", "E0502"), tally, lambda: kernel.compile("cuda:sm_90a", checks=checks, **options).source
    )
    if ref is None or made is None or again is None:
        return None
    tally.counts["emitted"] += 1
    return case, ref, made


def taste(cases: Sequence[Case], backends: Sequence[str], tally: Tally, architectures: Sequence[str] = ()) -> None:
    """A batch of programs through all stages and the backends; one translation unit for each compiler."""
    found = [digested(case, tally) for case in cases]
    ready = [emitted for emitted in found if emitted is not None]
    for case, ref, _ in ready:
        for name in backends:
            if name == "cpu" and stage(case, "cpu", ("E04",), tally, lambda ref=ref: ref.compile("cpu")) is None:
                continue
            if name == "cuda-host":
                continue
            got = stage(case, name, (), tally, lambda ref=ref, run=BACKENDS[name], seed=case.seed: run(ref, seed))
            if got is not None:
                judge(case, name, lambda got=got: got, ref, tally)
                tally.counts[f"ran on {name}"] += 1
    if "cuda-host" in backends and ready:
        judge_batch(ready, tally)
        tally.counts["ran on cuda-host"] += len(ready)
    for architecture in architectures if ready else ():
        made = (ref.compile(f"cuda:{architecture}", checks=case.seed % 2 == 0) for case, ref, _ in ready)
        text = "\n".join(compiled.source for compiled in made)
        compile_cubin(text, architecture, werror=True)
        tally.counts[f"nvcc {architecture}"] += len(ready)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--backends", default="exact,fast,simulate")
    parser.add_argument("--nvcc", default="", help="architectures")
    parser.add_argument("--show", type=int, default=5, help="failures to print")
    options = parser.parse_args()
    tally = HurriedTally()
    seeds = range(options.first, options.first + options.count)
    backends, architectures = (text.split(",") if text else [] for text in (options.backends, options.nvcc))
    for start in range(0, len(seeds), 40):
        shown = len(tally.failures)
        try:
            taste([brew(seed) for seed in seeds[start : start + 40]], backends, tally, architectures)
        except TExprError as refused:  # of a compiler, for the whole batch
            tally.counts["failed"] += 1
            tally.failures.append(f"seeds {seeds[start : start + 40]}: {refused}")
        for failure in tally.failures[shown : options.show]:
            print(failure, "\n", flush=True)
    print(dict(sorted(tally.counts.items())))
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
