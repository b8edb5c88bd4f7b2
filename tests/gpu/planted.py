"""Artifacts with planted faults, to show that the sanitizers see kernels launched from a manifest.

    python tests/gpu/planted.py OUT

`OUT/small` gets a permutation in shared memory without its barrier (racecheck must report it) and a vector sum without
its guard (memcheck must). Run `verify.py OUT --small-only` under each tool.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "properties"))

from differential import random_arguments

import texpr
from texpr.codegen.artifact import save_artifact
from texpr.codegen.toolchain import compile_cubin
from texpr.runtime.host_arrays import storable

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
FAULTS = {
    "gather_in_block": ({"M": 3}, "tx::sync_block(0);", ""),
    "vector_add": ({"N": 1000}, "if (i_first < 1000)", "if (i_first < 1000000)"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out / "small"
    out.mkdir(parents=True, exist_ok=True)
    for name, (sizes, right, wrong) in FAULTS.items():
        kernel = texpr.load(KERNELS / f"{name}.tex").only
        compiled = kernel.compile("cuda:sm_90a", sizes=sizes)
        assert right in compiled.source, compiled.source
        broken = compiled.source.replace(right, wrong)
        save_artifact(out / name, compiled.manifest, {f"{name}.cubin": compile_cubin(broken, "sm_90a")})
        values = random_arguments(kernel.core(sizes=sizes), sizes, 1)
        arrays = {f"in_{n}": storable(np.asarray(v)) for n, v in values.items()}
        for parameter in compiled.manifest.parameters:
            if parameter.mode != "read":
                shape = values[parameter.name].shape
                arrays[f"ref_{parameter.name}"] = np.zeros(shape)
                arrays[f"bound_{parameter.name}"] = np.full(shape, np.inf)
                arrays[f"und_{parameter.name}"] = np.ones(shape, bool)
        np.savez(out / f"{name}.npz", allow_pickle=False, sizes_=np.empty((0, 2), "U40"), **arrays)
    print(f"{len(FAULTS)} broken artifacts in {out}")


if __name__ == "__main__":
    main()
