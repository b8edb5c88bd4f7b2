"""Running one program on every backend and comparing it with the float64 reference, as tests and the fuzzer do.

    python tests/properties/differential.py FIRST COUNT [--backends exact,simulate,cpu,cuda-host] [--large]

prints one line of counts, and every program that a backend gets wrong. Programs for `cuda-host` are compiled many to a
translation unit.
"""

import argparse
import collections
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from programs import Case, generate

import texpr
from texpr.codegen.artifact import signature
from texpr.codegen.cpu.work import SERIAL_OPERATIONS
from texpr.grammar import ast
from texpr.grammar.interpret.stage import Interpretation, interpret
from texpr.grammar.walk import walk
from texpr.kernels import Kernel
from texpr.runtime.compare import Comparison, compare
from texpr.trial import make_arguments, trial_sizes
from texpr.version import VERSION

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 6e-8, 65504.0, 448.0, -3.4e38)


def random_arguments(core: ast.Kernel, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Random arguments of a checked kernel, as `texpr run` makes them for even seeds, and of all bits for odd ones."""
    manifest = signature(core, "cpu", VERSION)
    return make_arguments(core, manifest, trial_sizes(manifest, sizes, {}), seed, {}, uniform=seed % 2 == 1)


def special_arguments(
    kernel: Kernel, sizes: Mapping[str, int], seed: int, types: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Random arguments; one array in four has special floats or extreme integers sprinkled in."""
    core = kernel.core(sizes=sizes, types=types)
    values = random_arguments(core, sizes, seed)
    generator = np.random.default_rng([seed, 77])
    gathered = {name for name in values if name.startswith("G") or name in ("idx", "flag")}
    for name, value in values.items():
        if not isinstance(value, np.ndarray) or name in gathered or generator.random() > 0.25 or not value.size:
            continue
        where = generator.random(value.shape) < 0.2
        if value.dtype.kind in "fV":
            with np.errstate(all="ignore"):
                picked = generator.choice(np.array(SPECIAL), value.shape)
                narrow = picked.astype(value.dtype) if value.dtype != np.float64 else picked
                value[where] = narrow[where]
        elif value.dtype.kind in "iu":
            info = np.iinfo(value.dtype)
            value[where] = generator.choice(np.array([info.min, info.max, 0, 1], value.dtype), value.shape)[where]
    return values


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of which a run may change the arrays: strides and alignment are kept."""
    from texpr.trial import strided

    return {
        name: strided(v, tuple(s // v.dtype.itemsize for s in v.strides), 64) if isinstance(v, np.ndarray) else v
        for name, v in values.items()
    }


@dataclass
class Reference:
    """A program's arguments and what it computes. The sizes in `dynamic` are not bound before the launch."""

    kernel: Kernel
    sizes: dict[str, int]
    values: dict[str, Any]
    wide: Interpretation
    types: Mapping[str, str] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()

    @property
    def core(self) -> ast.Kernel:
        return self.kernel.core(sizes=self.sizes, types=self.types)

    @property
    def free(self) -> dict[str, int]:
        return {name: value for name, value in self.sizes.items() if name in self.dynamic}

    def compile(self, target: str, **options: Any) -> texpr.Compiled:
        static = {name: value for name, value in self.sizes.items() if name not in self.dynamic}
        return self.kernel.compile(target, types=self.types, sizes=static, **options)

    def compare(self, got: Mapping[str, Any]) -> list[Comparison]:
        found = []
        for name, want in self.wide.outputs.items():
            if not isinstance(self.values[name], np.ndarray):
                continue
            bound = self.wide.bounds.get(name, np.zeros(want.shape))
            undecided = self.wide.undecided.get(name, np.zeros(want.shape, bool))
            found.append(compare(name, np.asarray(got[name]).reshape(want.shape), want, bound, undecided))
        return found


def reference(
    kernel: Kernel,
    sizes: Mapping[str, int],
    values: dict[str, Any],
    types: Mapping[str, str] | None = None,
    dynamic: tuple[str, ...] = (),
) -> Reference:
    core = kernel.core(sizes=sizes, types=types)
    wide = interpret(core, values, float64=True, sizes=sizes)
    return Reference(kernel, dict(sizes), values, wide, types or {}, dynamic)


def by_exact(ref: Reference, seed: int) -> Mapping[str, Any]:
    return interpret(ref.core, copied(ref.values), mode="exact", seed=seed, sizes=ref.sizes).outputs


def by_fast(ref: Reference, seed: int) -> Mapping[str, Any]:
    return interpret(ref.core, copied(ref.values), mode="fast", seed=seed, sizes=ref.sizes).outputs


def by_simulate(ref: Reference, seed: int) -> Mapping[str, Any]:
    from texpr.polyhedral.simulate.stage import simulate

    made = ref.kernel.compile("cuda:sm_90a", types=ref.types, sizes=ref.sizes, stop_after="map")
    return simulate(made.mapping.program, copied(ref.values), seed=seed)


def by_target(target: str, **options: Any) -> Callable[[Reference, int], Mapping[str, Any]]:
    def run(ref: Reference, seed: int) -> Mapping[str, Any]:
        values = copied(ref.values)
        ref.compile(target, **options)(**values, **ref.free)
        return values

    return run


def by_cpu(ref: Reference, seed: int) -> Mapping[str, Any]:
    """For every other seed on all cores, however little there is to do."""
    limit = 0 if seed % 2 else SERIAL_OPERATIONS
    with patch("texpr.codegen.cpu.launch.SERIAL_OPERATIONS", limit):
        return by_target("cpu")(ref, seed)


BACKENDS: dict[str, Callable[[Reference, int], Mapping[str, Any]]] = {
    "exact": by_exact,
    "fast": by_fast,
    "simulate": by_simulate,
    "cpu": by_cpu,
    "cuda-host": by_target("cuda-host:sm_90a"),
}


@dataclass
class Tally:
    """Counts over many programs; `failures` has a text for each wrong one."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)

    def fail(self, case: Case, what: str) -> None:
        self.counts["failed"] += 1
        self.failures.append(f"seed {case.seed} {case.sizes}: {what}\n{case.text}")


Emitted = tuple[Case, Reference, texpr.Compiled]


def replay(case: Case, kernel: Kernel, wrong: texpr.TExprError, tally: Tally) -> None:
    """A proof's refusal must be one that exact mode finds, too (may-accesses under data excepted)."""
    codes = {d.code for d in wrong.diagnostics}
    tally.counts[f"refused {min(codes)}"] += 1
    if not codes <= {"E0301", "E0302", "E0303"}:
        return
    values = special_arguments(kernel, case.sizes, case.seed)
    core = kernel.core(sizes=case.sizes)
    try:
        done = interpret(core, values, mode="exact", seed=case.seed, sizes=case.sizes, collect=True)
        found = {d.code for d in done.violations}
    except texpr.TExprError as same:
        found = {d.code for d in same.diagnostics}
    if found & codes:
        tally.counts["replayed"] += 1
    elif any(isinstance(node, ast.If | ast.Select) and hasattr(node.condition, "dtype") for node in walk(core)):
        tally.counts["hangs on data"] += 1  # proved for all data, and these data do not reach it
    else:
        tally.counts["not replayed"] += 1
        tally.failures.append(
            f"seed {case.seed} {case.sizes}: refusal {codes} not replayed ({found})\n{case.text}\n{wrong}"
        )


def prepared(case: Case, tally: Tally) -> Reference | None:
    """An accepted program with arguments and reference; None after counting a refused one."""
    tally.counts["programs"] += 1
    try:
        kernel = texpr.parse(case.text, f"random_{case.seed}").only
        kernel.core(sizes=case.sizes)
    except texpr.TExprError as wrong:
        tally.counts["not checked"] += 1
        tally.failures.append(f"seed {case.seed}: the generator's text is refused\n{case.text}\n{wrong}")
        return None
    try:
        kernel.compile("cpu", sizes=case.sizes, stop_after="prove")
    except texpr.TExprError as wrong:
        replay(case, kernel, wrong, tally)
        return None
    tally.counts["accepted"] += 1
    return reference(kernel, case.sizes, special_arguments(kernel, case.sizes, case.seed))


def judge(case: Case, backend: str, run: Callable[[], Mapping[str, Any]], ref: Reference, tally: Tally) -> None:
    """Run a backend and count what it gets wrong; any exception is a failure."""
    try:
        got = run()
    except texpr.TExprError as wrong:
        tally.fail(case, f"{backend}: {wrong}")
        return
    except Exception:  # a defect of ours: that is what the fuzzer looks for
        tally.fail(case, f"{backend}: {traceback.format_exc()[-1500:]}")
        return
    for found in ref.compare(got):
        tally.counts["elements"] += found.elements
        tally.counts["undecided"] += found.undecided
        if found.wrong:
            tally.fail(case, f"{backend}: {found}")


def run_case(case: Case, backends: Sequence[str], tally: Tally) -> None:
    """One program: refused with a witness that replays, or right on every backend."""
    ref = prepared(case, tally)
    if ref is not None:
        for backend in backends:
            judge(case, backend, lambda run=BACKENDS[backend], ref=ref: run(ref, case.seed), ref, tally)


def run_batch(cases: Sequence[Case], tally: Tally) -> None:
    """Programs on `cuda-host`, all in one translation unit."""
    ready: list[Emitted] = []
    for case in cases:
        ref = prepared(case, tally)
        if ref is None:
            continue
        try:
            ready.append((case, ref, ref.compile("cuda-host:sm_90a")))
        except Exception:  # a refusal after the proofs is a failure, too
            tally.fail(case, f"cuda-host: {traceback.format_exc()[-1500:]}")
    judge_batch(ready, tally)


def judge_batch(ready: Sequence[Emitted], tally: Tally) -> None:
    """Run emitted programs on `cuda-host`, all in one translation unit."""
    from texpr.codegen.host_run import HostBackend
    from texpr.runtime.launch import Launcher

    backend = HostBackend("\n".join(made.source for _, _, made in ready))
    for case, ref, made in ready:

        def run(ref: Reference = ref, made: texpr.Compiled = made, seed: int = case.seed) -> Mapping[str, Any]:
            values = copied(ref.values)
            backend.seed = seed
            Launcher(made.manifest, backend)(**values, **ref.free)
            return values

        judge(case, "cuda-host", run, ref, tally)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--backends", default="exact,simulate")
    parser.add_argument("--bend", type=float, default=0.03)
    parser.add_argument("--large", action="store_true", help="programs of many iterations, for the cores of a CPU")
    parser.add_argument("--show", type=int, default=5, help="failures to print")
    options = parser.parse_args()
    tally = Tally()

    def made(seed: int) -> Case:
        return generate(seed, bend=options.bend, large=options.large)

    backends = options.backends.split(",")
    seeds = range(options.first, options.first + options.count)
    one_by_one = [name for name in backends if name != "cuda-host"]
    for seed in seeds if one_by_one else ():
        try:
            run_case(made(seed), one_by_one, tally)
        except Exception:  # a defect before any backend: keep counting
            tally.fail(made(seed), traceback.format_exc()[-1500:])
    for start in range(0, len(seeds), 30) if "cuda-host" in backends else ():
        run_batch([made(seed) for seed in seeds[start : start + 30]], tally)
    for failure in tally.failures[: options.show]:
        print(failure, "\n")
    print(dict(sorted(tally.counts.items())))
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
