"""Compare every atom on a GPU with NumPy: the kernels of `tests/atoms`, bit by bit where they are exact.

    python tests/gpu/atoms.py build OUT [--arch sm_90a]    where the compiler is, without a GPU
    python tests/gpu/atoms.py run OUT                      with NumPy, ml_dtypes and CuPy; nothing of the compiler

`build` writes one cubin for each family, and for every case its inputs and what its outputs must be.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from build_or_run import build_or_run

ATOMS = Path(__file__).resolve().parents[1] / "atoms"


def build(out: Path, arch: str) -> None:
    """The cubins, `atoms.json` and `atoms.npz`."""
    sys.path.insert(0, str(ATOMS))
    from families import families, has

    from texpr.codegen.toolchain import compile_cubin

    rows, arrays = [], {}
    for family in families(full=True):
        text = "".join(text for least, text in family.texts.items() if has(arch, least))
        if not text:
            continue
        (out / f"{family.name}.cubin").write_bytes(compile_cubin(text, arch))
        for case in family.cases:
            if not has(arch, case.arch):
                continue
            for kind in ("inputs", "want", "within", "before"):
                for k, data in enumerate(map(np.asarray, getattr(case, kind))):
                    known = data.dtype.isbuiltin == 1  # the file has no types of ml_dtypes
                    arrays[f"{len(rows)}_{kind}_{k}"] = data if known else data.view(f"u{data.dtype.itemsize}")
            keep = ("name", "symbol", "grid", "block", "shared_bytes")
            row = {name: getattr(case, name) for name in keep} | {"sizes": list(case.sizes), "family": family.name}
            row["dtypes"] = [want.dtype.name for want in case.want]
            rows.append(row | {kind: len(getattr(case, kind)) for kind in ("inputs", "want", "within", "before")})
    np.savez_compressed(out / "atoms.npz", **arrays)
    (out / "atoms.json").write_text(json.dumps(rows))
    print(len(rows), "cases of", len({row["family"] for row in rows}), "families for", arch)


@dataclass
class Loaded:
    """A case as `cases.wrong` and `cases.outputs` want it."""

    name: str
    want: tuple
    within: tuple
    before: tuple


def whole(data: np.ndarray) -> np.ndarray:
    """The bytes of an array and what is left of its last 16, which the kernels may read: nothing uninitialised."""
    found = np.zeros(-(-data.nbytes // 16) * 16, np.uint8)
    found[: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
    return found


def run(out: Path) -> int:
    """Launch every kernel; 0 when all are right."""
    import cupy
    import ml_dtypes

    sys.path.insert(0, str(ATOMS))
    from compared import outputs, wrong

    rows, arrays = json.loads((out / "atoms.json").read_text()), np.load(out / "atoms.npz")
    modules, counts, failed = {}, {}, 0
    for number, row in enumerate(rows):
        parts = {
            kind: tuple(arrays[f"{number}_{kind}_{k}"] for k in range(row[kind]))
            for kind in ("inputs", "want", "within", "before")
        }
        types = [np.dtype(getattr(ml_dtypes, name, name)) for name in row["dtypes"]]
        want = tuple(a.view(t) for a, t in zip(parts["want"], types, strict=True))
        case = Loaded(row["name"], want, parts["within"], parts["before"])
        if row["family"] not in modules:
            modules[row["family"]] = cupy.RawModule(path=str(out / f"{row['family']}.cubin"))
        kernel = modules[row["family"]].get_function(row["symbol"])
        if row["shared_bytes"] > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = row["shared_bytes"]
        given = [cupy.asarray(whole(a)) for a in parts["inputs"]]
        found = outputs(case)
        places = [cupy.asarray(whole(a)) for a in found]
        sizes = [np.int64(size) for size in row["sizes"]]
        kernel((row["grid"],), (row["block"],), (*given, *places, *sizes), shared_mem=row["shared_bytes"])
        got = [cupy.asnumpy(p)[: a.nbytes].view(a.dtype).reshape(a.shape) for p, a in zip(places, found, strict=True)]
        said = wrong(case, got)
        good, bad = counts.get(row["family"], (0, 0))
        counts[row["family"]] = (good + (not said), bad + bool(said))
        failed += bool(said)
        if said and failed <= 40:
            print(said)
    for family, (good, bad) in counts.items():
        print(f"{family}: {good} right, {bad} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
