"""Run saved artifacts on a GPU: verify every kernel against its float64 reference, then time the large ones.

    python tests/gpu/verify.py ARTIFACTS [--small-only] [--json FILE]

Needs texpr.runtime, NumPy, ml_dtypes, cuda-core and CuPy; nothing of the compiler. Under compute-sanitizer use
`--small-only`: one process runs all kernels. Outputs are poisoned with 0xFF bytes before each run. Large kernels are
verified against CuPy in float64 on fresh random data before they are timed (CUDA events, median of 20 after a
lead-in, rotating over input sets that exceed the L2), and a device copy of the same bytes is timed beside each.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from texpr.codegen.manifest import evaluate
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.arrays import CUDA, ArrayView
from texpr.runtime.compare import compare
from texpr.runtime.gpu_arrays import on_gpu
from texpr.runtime.host_arrays import numpy_dtype
from texpr.runtime.load import load


def strided(values: np.ndarray, strides: tuple[int, ...], *, poison: bool) -> np.ndarray:
    """A copy with the given strides in elements, on memory aligned to 256 bytes; `poison` fills it with 0xFF."""
    size = values.dtype.itemsize
    reach = 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) if values.size else 0
    memory = np.zeros(reach * size + 256, np.uint8)
    array = np.ndarray(values.shape, values.dtype, memory.data, -memory.ctypes.data % 256, [s * size for s in strides])
    if poison:
        memory[...] = 0xFF
    else:
        array[...] = values
    return array


def verify_small(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for data in sorted(folder.glob("*.npz")):
        launcher = load(folder / data.stem)
        row: dict[str, Any] = {"kernel": data.stem, "outputs": {}}
        with np.load(data, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        free = {name: int(value) for name, value in content["sizes_"]}
        arguments: dict[str, Any] = {}
        for p in launcher.manifest.parameters:
            value = content[f"in_{p.name}"]
            if p.scalar:
                arguments[p.name] = value.item()
                continue
            value = value.view(numpy_dtype(ELEMENT_TYPES[p.dtype]))
            sizes = {**{k: v for k, v in launcher.manifest.sizes.items() if v is not None}, **free}
            strides = (1,) if p.flat else tuple(evaluate(s, sizes) for s in p.strides)
            arguments[p.name] = strided(value, strides, poison=p.mode == "write")
        try:
            with on_gpu(arguments) as (device, stream):
                launcher(**device, **free, stream=stream)
        except TExprError as wrong:
            row["error"] = str(wrong)[:300]
        else:
            for p in launcher.manifest.parameters:
                if p.mode != "read":
                    n = p.name
                    got = arguments[n].reshape(content[f"ref_{n}"].shape)
                    found = compare(n, got, content[f"ref_{n}"], content[f"bound_{n}"], content[f"und_{n}"])
                    row["outputs"][n] = {
                        "elements": found.elements, "undecided": found.undecided, "wrong": found.wrong,
                        "ratio_to_bound": found.ratio, "greatest_error": found.greatest_error,
                    }  # fmt: skip
        row["passed"] = "error" not in row and all(o["wrong"] == 0 for o in row["outputs"].values())
        rows.append(row)
    return rows


# The meaning of the timed kernels, in float64 by CuPy: name -> function of (arrays by name) giving outputs by name.
def references(cp: Any) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    def softmax(a: dict[str, Any]) -> dict[str, Any]:
        e = cp.exp(a["X"] - a["X"].max(axis=1, keepdims=True))
        return {"Y": e / e.sum(axis=1, keepdims=True)}

    def rmsnorm(a: dict[str, Any]) -> dict[str, Any]:
        return {"Y": a["X"] / cp.sqrt((a["X"] ** 2).mean(axis=1, keepdims=True) + 1e-6) * a["G"]}

    return {
        "vector_add": lambda a: {"C": a["A"] + a["B"]},
        "transpose": lambda a: {"B": a["A"].T},
        "ragged": lambda a: {"B": a["A"] ** 2},
        "softmax": softmax,
        "rmsnorm_bf16": rmsnorm,
        "sum_axis0": lambda a: {"S": a["A"].sum(axis=0)},
        "sum_axis1": lambda a: {"S": a["A"].sum(axis=1)},
        "matmul": lambda a: {"C": a["A"] @ a["B"]},
        "matmul_tiled": lambda a: {"C": a["A"] @ a["B"]},
    }


class DeviceArray:
    """Device memory with a shape and an element type; bf16 travels as its bits."""

    def __init__(self, cp: Any, shape: tuple[int, ...], dtype: str, *, fill: bool) -> None:
        self.cp, self.dtype = cp, ELEMENT_TYPES[dtype]
        plain = {"f32": cp.float32, "f16": cp.float16, "f64": cp.float64}.get(dtype, cp.uint16)
        if not fill:
            self.data = cp.full(shape, 0xFFFF if dtype == "bf16" else cp.nan, plain)
        elif dtype == "bf16":
            bits = (cp.random.uniform(-1, 1, shape, dtype=cp.float32)).view(cp.uint32)
            self.data = (bits >> 16).astype(cp.uint16)
        else:
            self.data = cp.random.uniform(-1, 1, shape, dtype=cp.float32).astype(plain)

    def view(self) -> ArrayView:
        strides = tuple(s // self.data.itemsize for s in self.data.strides)
        pointer = self.data.data.ptr
        return ArrayView(
            pointer=pointer, shape=self.data.shape, strides=strides, dtype=self.dtype, device=(CUDA, 0), readonly=False
        )

    def wide(self) -> Any:
        if self.dtype.name == "bf16":
            return (self.data.astype(self.cp.uint32) << 16).view(self.cp.float32).astype(self.cp.float64)
        return self.data.astype(self.cp.float64)


@contextmanager
def timed(cp: Any, into: list[float]) -> Iterator[None]:
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    yield
    stop.record()
    stop.synchronize()
    into.append(cp.cuda.get_elapsed_time(start, stop) * 1e3)


def time_large(folder: Path) -> list[dict[str, Any]]:
    import cupy as cp

    rows = []
    meanings = references(cp)
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        launcher = load(path)
        sizes = {name: value for name, value in launcher.manifest.sizes.items() if value is not None}
        sets = []
        for _ in range(2):
            arrays = {}
            for p in launcher.manifest.parameters:
                shape = tuple(evaluate(extent, sizes) for extent in p.shape)
                arrays[p.name] = DeviceArray(cp, shape, p.dtype, fill=p.mode != "write")
            sets.append(arrays)
        views = [{name: array.view() for name, array in arrays.items()} for arrays in sets]
        for each in views:
            launcher(**each, stream=cp.cuda.Stream.null)
        expected = meanings[path.name]({name: array.wide() for name, array in sets[0].items()})
        error = 0.0
        for name, want in expected.items():
            got = sets[0][name].wide()
            error = max(error, float(cp.linalg.norm(got - want) / cp.linalg.norm(want)))
        del expected
        times: list[float] = []
        for k in range(25):
            with timed(cp, times):
                launcher(**views[k % 2], stream=cp.cuda.Stream.null)
        moved = sum(array.data.nbytes for array in sets[0].values())
        source = cp.empty(moved // 2, cp.uint8)
        target = cp.empty(moved // 2, cp.uint8)
        copies: list[float] = []
        for _ in range(25):
            with timed(cp, copies):
                cp.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, moved // 2, 3, 0)
        median, copy = float(np.median(times[5:])), float(np.median(copies[5:]))
        row = {
            "kernel": path.name, "sizes": sizes, "relative_error": error, "time_us": median, "bytes": moved,
            "gb_per_s": moved / median / 1e3, "copy_us": copy, "copy_ratio": copy / median,
        }  # fmt: skip
        if "matmul" in path.name:
            flops = 2 * sizes["M"] * sizes["N"] * sizes["K"]
            dtype = cp.float16 if path.name == "matmul" else cp.float32
            a, b = (cp.random.uniform(-1, 1, (sizes["M"], sizes["K"])).astype(dtype) for _ in range(2))
            peer: list[float] = []
            for _ in range(15):
                with timed(cp, peer):
                    cp.matmul(a, b)
            row |= {"tflops": flops / median / 1e6, "cublas_us": float(np.median(peer[5:]))}
        row["passed"] = bool(error < 1e-2)
        rows.append(row)
        del sets, views, source, target
        cp.get_default_memory_pool().free_all_blocks()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifacts", type=Path)
    parser.add_argument("--small-only", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import cupy as cp

    if options.small_only:  # a pool rounds allocations up, and memcheck would not see small overruns
        cp.cuda.set_allocator(None)
    small = verify_small(options.artifacts / "small")
    failed = [row for row in small if not row["passed"]]
    for row in failed:
        print(json.dumps(row))
    print(f"small: {len(small) - len(failed)} passed, {len(failed)} failed")
    large = [] if options.small_only else time_large(options.artifacts / "large")
    for row in large:
        shown = {k: (round(v, 4) if isinstance(v, float) else v) for k, v in row.items()}
        print(json.dumps(shown))
    if options.json:
        device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
        result = {
            "command": " ".join(sys.argv), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "device": device, "small": small, "large": large,
        }  # fmt: skip
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(failed) or any(not row["passed"] for row in large))


if __name__ == "__main__":
    main()
