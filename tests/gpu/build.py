"""Build everything that the GPU script needs: artifacts of all test kernels, inputs, float64 references, bounds.

    python tests/gpu/build.py OUT [--arch sm_90a] [--seed N] [--random PROGRAMS]

Runs where the compiler is, without a GPU. `OUT/small` holds every kernel at its first sizes (and with its dynamic
sizes free), `OUT/large` the kernels that `verify.py` times. Inputs are drawn fresh from the seed.
"""

import argparse
import sys
import time
import tomllib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "properties"))

from differential import special_arguments
from programs import generate

import texpr
from texpr.grammar.interpret import interpret
from texpr.runtime.host_arrays import storable
from texpr.trial import make_arguments

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
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


def write_case(
    out: Path, label: str, kernel: texpr.Kernel, arch: str, bound: dict[str, int], sizes: dict[str, int], values: dict
) -> bool:
    """An artifact, its inputs and its reference; False and a line of text where it is refused."""
    try:
        compiled = kernel.compile(f"cuda:{arch}", sizes=bound)
        compiled.save(out / label)
    except texpr.TExprError as wrong:
        print(f"{label}: {wrong}")
        return False
    reference = interpret(kernel.core(sizes=sizes), values, float64=True, sizes=sizes)
    arrays = {f"in_{n}": np.asarray(v) for n, v in values.items()}
    for parameter in compiled.manifest.parameters:
        if parameter.mode != "read":
            n = parameter.name
            arrays[f"ref_{n}"] = reference.outputs[n]
            arrays[f"bound_{n}"] = reference.bounds.get(n, np.zeros(reference.outputs[n].shape))
            arrays[f"und_{n}"] = reference.undecided.get(n, np.zeros(reference.outputs[n].shape, bool))
    free = np.array([[k, str(sizes[k])] for k in compiled.dynamic], dtype="U40").reshape(-1, 2)
    raw = {n: storable(v) for n, v in arrays.items()}
    np.savez(out / f"{label}.npz", allow_pickle=False, sizes_=free, **raw)
    return True


def build_small(out: Path, arch: str, seed: int) -> int:
    """Every test kernel at all its sizes, and with its dynamic sizes free."""
    cases = tomllib.loads((KERNELS / "cases.toml").read_text(encoding="utf-8"))
    count = 0
    for name, case in cases.items():
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        variants = [(f"{name}-{k}", sizes, sizes) for k, sizes in enumerate(case["sizes"])]
        if "dynamic" in case:
            sizes = case["sizes"][0]
            variants.append((f"{name}-dynamic", {k: v for k, v in sizes.items() if k not in case["dynamic"]}, sizes))
        for label, bound, sizes in variants:
            values, solved = make_arguments(kernel.core(sizes=sizes), sizes, seed + count, {})
            count += write_case(out, label, kernel, arch, bound, solved, values)
    return count


def build_random(out: Path, arch: str, first: int, programs: int) -> int:
    """Accepted programs of the generator, with special values among their inputs."""
    count = 0
    for seed in range(first, first + programs):
        case = generate(seed)
        kernel = texpr.parse(case.text, f"random_{seed}").only
        try:
            kernel.compile("cpu", sizes=case.sizes, stop_after="prove")
        except texpr.TExprError:
            continue
        values = special_arguments(kernel, case.sizes, seed)
        count += write_case(out, f"random-{seed}", kernel, arch, case.sizes, case.sizes, values)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--random", type=int, default=0, help="programs of the generator to add")
    options = parser.parse_args()
    (options.out / "small").mkdir(parents=True, exist_ok=True)
    count = build_small(options.out / "small", options.arch, options.seed)
    made = build_random(options.out / "small", options.arch, options.seed, options.random)
    for name, sizes in LARGE.items():
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        kernel.compile(f"cuda:{options.arch}", sizes=sizes).save(options.out / "large" / name)
    print(f"{count} small, {made} random and {len(LARGE)} large artifacts in {options.out}, seed {options.seed}")


if __name__ == "__main__":
    main()
