"""Compare every header primitive on a GPU with the host build of the same text: conversions, operators, updates.

    python tests/gpu/primitives.py build OUT [--arch sm_90a]    where the compilers are, without a GPU
    python tests/gpu/primitives.py run OUT                      with NumPy, ml_dtypes and CuPy; nothing of the compiler

`build` writes one cubin, and for every kernel its inputs and what the host build made of them. `run` asks for equal
bits (any NaN equals any NaN), and prints the greatest distance in ulp where the functions of the two machines differ.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from build_or_run import build_or_run

CODEGEN = Path(__file__).resolve().parents[1] / "codegen"
FUNCTIONS_ULP = 6  # of the functions that two mathematics libraries round differently
ROUNDED = (
    "exp",
    "exp2",
    "log",
    "log2",
    "rsqrt",
    "tanh",
    "sigmoid",
    "erf",
    "normcdf",
    "sin",
    "cos",
    "pow",
    "expm1",
    "log1p",
    "xlogy",
)


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, CODEGEN / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def build(out: Path, arch: str) -> None:
    """One text with all kernels, its cubin, and the host's results."""
    from texpr.codegen.cuda.emit import emit_cuda
    from texpr.codegen.host_run import HostArray, HostModule
    from texpr.codegen.toolchain import compile_cubin
    from texpr.grammar import numerics

    casts, ops = module("test_host_header_casts"), module("test_cuda_numerics")
    builders = module("conftest").build.__wrapped__()
    texts = [ops.all_cases(builders), emit_cuda(ops.update_launches(builders), ops.TARGET).source]
    pairs = [(s, t) for s in casts.TYPES for t in casts.TYPES]
    texts.append('#include "texpr/kernel.cuh"\n' + "".join(casts.kernel(s, t) for s, t in pairs))
    (out / "primitives.cubin").write_bytes(compile_cubin("\n".join(texts), arch))
    host = HostModule("\n".join(texts))
    rows: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}

    def add(symbol: str, inputs: list[Any], result: Any, grid: int, block: int, count: int | None, ulp: int) -> None:
        number = len(rows)
        stored = [a.view(np.dtype(f"u{a.itemsize}")) for a in (*inputs, result.copy())]
        pointers = [HostArray(a.ctypes.data, a.nbytes) for a in (*inputs, result)]
        report = host.launch(symbol, [*pointers, *([count] if count is not None else [])], (grid, 1, 1), block)
        assert report is None, report
        for k, data in enumerate((*stored, result.view(stored[-1].dtype))):
            arrays[f"{number}_{k}"] = data
        kind = str(result.dtype) if result.dtype.kind in "fV" or result.dtype.itemsize < 4 else result.dtype.name
        rows.append({"symbol": symbol, "grid": grid, "block": block, "count": count, "ulp": ulp, "dtype": kind})

    for source, target in pairs:
        data = np.ascontiguousarray(casts.patterns(source)[:: 1 if source.bits <= 16 else 29])
        result = np.zeros(len(data), numerics.storage(target))
        add(casts.symbol(source, target), [data], result, 1, 1, len(data), 0)
    for number, (fn, arity, dtype) in enumerate(ops.CASES):
        inputs = [np.ascontiguousarray(a) for a in ops.inputs(dtype, arity)]
        result = np.zeros(ops.N, numerics.storage(ops.result_type(fn, dtype)))
        add(f"k_{number}", inputs, result, ops.N // 32, 32, None, FUNCTIONS_ULP if fn in ROUNDED else 0)
    for number, (op, dtype) in enumerate(ops.UPDATES):
        storage = numerics.storage(dtype)
        low = 1 if op.value == "mul" else 0
        values = np.array([low + (k % 13 == 0) for k in range(64)]).astype(storage)  # sums are exact in any order
        for kind in ("u", "a"):
            add(f"{kind}_{number}", [values], np.ones(64, storage), 1, 64, None, 0)
    np.savez_compressed(out / "primitives.npz", **arrays)
    (out / "primitives.json").write_text(json.dumps(rows))
    print(len(rows), "kernels")


def distance(got: Any, want: Any) -> int:
    """The greatest distance in ulp; NaN equals NaN."""
    if got.dtype.kind in "iub":
        return int(np.max(got != want)) if got.size else 0
    with np.errstate(all="ignore"):
        nan = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    if not np.array_equal(*nan):
        return 1 << 62
    unsigned = np.dtype(f"u{got.itemsize}")
    half = 1 << (8 * got.itemsize - 1)
    bits = [a.view(unsigned) for a in (got[~nan[0]], want[~nan[0]])]
    differ = bits[0] != bits[1]
    ordered = [[int(x) if x < half else half - int(x) for x in b[differ]] for b in bits]
    return max((abs(a - b) for a, b in zip(*ordered, strict=True)), default=0)


def run(out: Path) -> int:
    """Launch every kernel; 0 when all agree."""
    import cupy
    import ml_dtypes

    rows, arrays = json.loads((out / "primitives.json").read_text()), np.load(out / "primitives.npz")
    code = cupy.RawModule(path=str(out / "primitives.cubin"))
    wrong, worst = 0, {"": 0}
    for number, row in enumerate(rows):
        count = sum(1 for k in range(5) if f"{number}_{k}" in arrays)
        *inputs, before, want = (arrays[f"{number}_{k}"] for k in range(count))
        pointers = [cupy.asarray(a) for a in (*inputs, before)]
        more = [] if row["count"] is None else [np.int64(row["count"])]
        code.get_function(row["symbol"])((row["grid"],), (row["block"],), (*pointers, *more))
        dtype = np.dtype(getattr(ml_dtypes, row["dtype"], row["dtype"]))
        apart = distance(cupy.asnumpy(pointers[-1]).view(dtype), want.view(dtype))
        worst[row["symbol"]] = apart
        if apart > row["ulp"]:
            wrong += 1
            print("differs:", row, "by", apart, "ulp")
    print(f"{len(rows)} kernels, {wrong} differ; greatest distance of a function {max(worst.values())} ulp")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
