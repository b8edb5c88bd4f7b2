"""Build everything that the GPU script needs: artifacts of all test kernels, inputs, float64 references, bounds.

    python tests/gpu/build.py OUT [--arch sm_90a] [--seed N]

Runs where the compiler is, without a GPU. `OUT/small` holds every kernel at its first sizes (and with its dynamic
sizes free), `OUT/large` the kernels that `verify.py` times. Inputs are drawn fresh from the seed.
"""

import argparse
import time
import tomllib
from pathlib import Path

import numpy as np

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


def build_small(out: Path, arch: str, seed: int) -> int:
    cases = tomllib.loads((KERNELS / "cases.toml").read_text(encoding="utf-8"))
    count = 0
    for name, case in cases.items():
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        variants = [(f"{name}-{k}", sizes, sizes) for k, sizes in enumerate(case["sizes"])]
        if "dynamic" in case:
            sizes = case["sizes"][0]
            variants.append((f"{name}-dynamic", {k: v for k, v in sizes.items() if k not in case["dynamic"]}, sizes))
        for label, bound, sizes in variants:
            try:
                compiled = kernel.compile(f"cuda:{arch}", sizes=bound)
                compiled.save(out / label)
            except texpr.TExprError as wrong:
                print(f"{label}: {wrong}")
                continue
            core = kernel.core(sizes=sizes)
            values, solved = make_arguments(core, sizes, seed + count, {})
            reference = interpret(core, values, float64=True, sizes=solved)
            arrays = {f"in_{n}": np.asarray(v) for n, v in values.items()}
            for parameter in compiled.manifest.parameters:
                if parameter.mode != "read":
                    n = parameter.name
                    arrays[f"ref_{n}"] = reference.outputs[n]
                    arrays[f"bound_{n}"] = reference.bounds.get(n, np.zeros(reference.outputs[n].shape))
                    arrays[f"und_{n}"] = reference.undecided.get(n, np.zeros(reference.outputs[n].shape, bool))
            raw = {n: storable(v) for n, v in arrays.items()}
            free = np.array([[k, str(solved[k])] for k in compiled.dynamic], dtype="U40").reshape(-1, 2)
            np.savez(out / f"{label}.npz", allow_pickle=False, sizes_=free, **raw)
            count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    options = parser.parse_args()
    (options.out / "small").mkdir(parents=True, exist_ok=True)
    count = build_small(options.out / "small", options.arch, options.seed)
    for name, sizes in LARGE.items():
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        kernel.compile(f"cuda:{options.arch}", sizes=sizes).save(options.out / "large" / name)
    print(f"{count} small and {len(LARGE)} large artifacts in {options.out}, seed {options.seed}")


if __name__ == "__main__":
    main()
