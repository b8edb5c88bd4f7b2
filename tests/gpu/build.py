"""Build everything that the GPU script needs: artifacts of all test kernels, inputs, float64 references, bounds.

    python tests/gpu/build.py OUT [--arch sm_90a] [--seed N] [--random PROGRAMS] [--share 3/16]
    python tests/gpu/build.py OUT --contractions 300 --arch sm_90    alone: the path of sm_80 on that GPU
    python tests/gpu/build.py OUT --drawn 600                        alone: by schedules and candidates drawn at random

Runs where the compiler is, without a GPU. Of several processes, with a share each, each builds its part into OUT.
`OUT/small` holds every kernel at its first sizes (and with its dynamic sizes free), `OUT/large` the kernels that
`verify.py` times. Inputs are drawn fresh from the seed.
"""

import argparse
import sys
import time
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "properties"))

from contraction_programs import contraction
from contraction_run import candidate_of, prepared
from differential import Reference, random_arguments, reference, special_arguments
from drawn import draw
from programs import Case, generate
from soup import brew
from soup_run import TooLongError, patience

import texpr
from texpr.polyhedral.mapped.candidate import Choices
from texpr.polyhedral.target import parse_target
from texpr.runtime.host_arrays import storable

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
FITTING = 8  # candidates drawn for a program, of which one may fit
MOST_S = 20  # that the reference of a random program may take: loops drawn in one another may run for very long
LARGE: dict[str, dict[str, int]] = {
    "vector_add": {"N": 1 << 28},
    "transpose": {"M": 16384, "N": 16384},
    "ragged": {"M": 16383, "N": 16381},
    "softmax": {"M": 32768, "N": 4096},
    "rmsnorm_bf16": {"M": 32768, "N": 4096},
    "sum_axis0": {"M": 16384, "N": 16384},
    "sum_axis1": {"M": 16384, "N": 16384},
    "matmul": {"M": 2048, "N": 2048, "K": 2048},
    "matmul_tiled": {"M": 2048, "N": 2048, "K": 2048},
}


def write_case(out: Path, label: str, ref: Reference, arch: str, mapping: Choices | None = None) -> bool:
    """An artifact, its inputs and its reference; False and a line of text where it is refused."""
    try:
        compiled = ref.compile(f"cuda:{arch}", mapping=mapping) if mapping else ref.compile(f"cuda:{arch}")
        compiled.save(out / label)
    except texpr.TExprError as wrong:
        print(f"{label}: {wrong}")
        return False
    arrays = {f"in_{n}": np.asarray(v) for n, v in ref.values.items()}
    for parameter in compiled.manifest.parameters:
        if parameter.mode != "read":
            n = parameter.name
            arrays[f"ref_{n}"] = ref.wide.outputs[n]
            arrays[f"bound_{n}"] = ref.wide.bounds.get(n, np.zeros(ref.wide.outputs[n].shape))
            arrays[f"und_{n}"] = ref.wide.undecided.get(n, np.zeros(ref.wide.outputs[n].shape, bool))
    free = np.array([[k, str(ref.sizes[k])] for k in compiled.dynamic], dtype="U40").reshape(-1, 2)
    raw = {n: storable(v) for n, v in arrays.items()}
    np.savez(out / f"{label}.npz", allow_pickle=False, sizes_=free, **raw)
    return True


def build_small(out: Path, arch: str, seed: int, own: slice) -> int:
    """Every test kernel at all its sizes, and with its dynamic sizes free; of a share `own` ones."""
    cases = tomllib.loads((KERNELS / "cases.toml").read_text(encoding="utf-8"))
    count = 0
    for name, case in list(cases.items())[own]:
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        variants: list[tuple[str, dict[str, int], tuple[str, ...]]] = []
        variants += [(f"{name}-{k}", sizes, ()) for k, sizes in enumerate(case["sizes"])]
        if "dynamic" in case:
            variants.append((f"{name}-dynamic", case["sizes"][0], tuple(case["dynamic"])))
        for label, sizes, dynamic in variants:
            values = random_arguments(kernel.core(sizes=sizes), sizes, seed + zlib.crc32(label.encode()) % 10**6)
            count += write_case(out, label, reference(kernel, sizes, values, dynamic=dynamic), arch)
    return count


def build_random(out: Path, arch: str, name: str, make: Callable[[int], Case], seeds: range) -> int:
    """Accepted programs of a generator, with special values among their inputs."""
    count = 0
    for seed in seeds:
        case = make(seed)
        try:
            kernel = texpr.parse(case.text, f"{name}_{seed}").only
            kernel.core(sizes=case.sizes, types=case.types)
            kernel.compile("cpu", types=case.types, sizes=case.bound, stop_after="prove")
            values = special_arguments(kernel, case.sizes, seed, case.types)
            with patience(MOST_S):
                ref = reference(kernel, case.sizes, values, case.types, case.dynamic)
        except texpr.TExprError:
            continue
        except TooLongError:
            print(f"{name}-{seed}: left out, for its reference takes longer than {MOST_S} s", flush=True)
            continue
        count += write_case(out, f"{name}-{seed}", ref, arch)
    return count


def build_contractions(out: Path, arch: str, seeds: range) -> tuple[int, int]:
    """Random contractions, in tiles drawn at random: how many there are, and how many ended in a defect."""
    count = defects = 0
    for seed in seeds:
        case = contraction(seed)
        try:
            ref = prepared(case)
            count += write_case(out, f"contraction-{arch}-{seed}", ref, arch, candidate_of(ref, case, f"cuda:{arch}"))
        except Exception as defect:  # of this program; the others are built all the same
            print(f"contraction-{arch}-{seed}: {type(defect).__name__}: {defect}", flush=True)
            defects += 1
    return count, defects


def build_drawn(out: Path, arch: str, seeds: range) -> tuple[int, int]:
    """Random programs after moves drawn at random, each by the first of some candidates drawn at random that fits: how
    many there are, and how many ended in a defect."""
    count = defects = 0
    for seed in seeds:
        label = f"drawn-{arch}-{seed}"
        try:
            each = draw(seed, FITTING, parse_target(f"cuda:{arch}"))
            count += any(write_case(out, label, each.ref, arch, how) for how in (each.candidates if each else ()))
        except Exception as defect:  # of this program; the others are built all the same
            print(f"{label}: {type(defect).__name__}: {defect}", flush=True)
            defects += 1
    return count, defects


def main() -> int:
    """What is asked for, built; 1 where a random program ended in a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--random", type=int, default=0, help="programs of each generator to add")
    parser.add_argument("--contractions", type=int, default=0, help="so many random contractions, and nothing else")
    parser.add_argument("--drawn", type=int, default=0, help="so many programs and candidates, and nothing else")
    parser.add_argument("--share", default="0/1", help="K/N: every N-th kernel and program, from the K-th on")
    options = parser.parse_args()
    first, step = map(int, options.share.split("/"))
    own = slice(first, None, step)
    (options.out / "small").mkdir(parents=True, exist_ok=True)
    for asked, what, build in (
        (options.contractions, "contractions", build_contractions),
        (options.drawn, "candidates", build_drawn),
    ):
        if asked:
            seeds = range(options.seed, options.seed + asked)[own]
            count, defects = build(options.out / "small", options.arch, seeds)
            print(f"{count} {what} in {options.out}, of seeds from {options.seed}; {defects} defects")
            return min(defects, 1)
    count = build_small(options.out / "small", options.arch, options.seed, own)
    made = 0
    for name, make in (("random", generate), ("soup", brew)):
        seeds = range(options.seed, options.seed + options.random)[own]
        made += build_random(options.out / "small", options.arch, name, make, seeds)
    large = dict(list(LARGE.items())[own])
    for name, sizes in large.items():
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        kernel.compile(f"cuda:{options.arch}", sizes=sizes).save(options.out / "large" / name)
    print(f"{count} small, {made} random and {len(large)} large artifacts in {options.out}, seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
