"""Time the GEMM that is written by hand in the project's types beside a prototype's kernel and cuBLAS, on a GPU.

    python tests/gpu/trials.py build OUT [--prototype GEMM.cu]    where the compiler is, without a GPU
    python tests/gpu/trials.py run OUT [--rounds 12]              with torch (CUDA); nothing of the compiler

`build` writes a cubin of `tests/polyhedral/gemm_by_hand.py` for each size, and one of the prototype's text. `run`
checks each against float64 on fresh inputs, with a poisoned output, twice with equal bits; then it times bursts: a
lead-in and a graph of launches of one variant after an idle time, variants in random order, medians. It prints the
ratios as JSON, and leaves all figures in OUT/report.json.
"""

import argparse
import ctypes
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SIZES = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (8192, 4096, 4096))
RAGGED = ((520, 776, 1096), (1320, 776, 1096), (1000, 1000, 1000))
PROTOTYPE = {"CM": 2}  # its switches: 128 x 256, two blocks share the tile of B
PROTOTYPE_SHARED = 4 * (128 + 256) * 128 + 2 * 4 * 2 * 16 * 128 + 16 * 4
BURST_MS, IDLE_MS, LEAD_MS = 10.0, 60.0, 10.0


# ---- building ----------------------------------------------------------------------------------------------------


def build(out: Path, prototype: Path | None) -> None:
    """The cubins and `trials.json`."""
    sys.path.insert(0, str(ROOT / "tests" / "polyhedral"))
    from gemm_by_hand import Shape, gemm

    from texpr.codegen.cuda.emit import emit_cuda
    from texpr.codegen.plan import plan
    from texpr.codegen.toolchain import compile_cubin, find_nvcc

    rows = []
    for m, n, k in (*RAGGED, *SIZES):
        shape = Shape(m, n, k)
        mapped = gemm(shape)
        planned = plan(mapped)
        text = emit_cuda(planned, mapped.target)
        name = f"gemm_{m}_{n}_{k}.cubin"
        (out / name).write_bytes(compile_cubin(text.source, "sm_90a", werror=True))
        (out / f"{name}.cu").write_text(text.source)
        described = [text.maps["gemm_0"][own] for _, own in text.arguments["gemm_0"]]
        maps = [{"buffer": d.buffer, "box": list(d.box), "swizzle": d.swizzle_bytes} for d in described]
        rows.append(
            {
                "size": [m, n, k],
                "timed": (m, n, k) in SIZES,
                "cubin": name,
                "blocks": 2 * shape.clusters,
                "threads": 384,
                "shared": planned.shared_bytes["gemm_0"],
                "maps": maps,
            }
        )
    if prototype is not None:
        switches = [f"-D{name}={value}" for name, value in PROTOTYPE.items()]
        flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-cubin"]
        target = ["-o", str(out / "prototype.cubin"), str(prototype)]
        subprocess.run([find_nvcc().path, *flags, *switches, *target], check=True)
    (out / "trials.json").write_text(json.dumps(rows))
    print(len(rows), "sizes", "and the prototype" if prototype else "without a prototype")


# ---- running -----------------------------------------------------------------------------------------------------


class Driver:
    """The few functions of the CUDA driver that a launch with tensor maps takes."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def ask(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: CUresult {code}")

    def function(self, image: bytes, symbol: str, shared: int) -> ctypes.c_void_p:
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        self.ask("cuModuleLoadData", ctypes.byref(module), image)
        self.ask("cuModuleGetFunction", ctypes.byref(found), module, symbol.encode())
        self.ask("cuFuncSetAttribute", found, 8, shared)  # the greatest size of dynamic shared memory
        return found

    def tensor_map(self, tensor: Any, box: list[int], swizzle_bytes: int) -> tuple[Any, int]:
        """The map of a matrix in bf16, and its address; box and shape in the program's order."""
        memory = ctypes.create_string_buffer(192)
        address = (ctypes.addressof(memory) + 63) // 64 * 64
        rows, columns = tensor.shape
        swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle_bytes]
        self.ask(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(address),
            9,  # bf16
            2,
            ctypes.c_void_p(tensor.data_ptr()),
            (ctypes.c_uint64 * 2)(columns, rows),
            (ctypes.c_uint64 * 1)(tensor.stride(0) * 2),
            (ctypes.c_uint32 * 2)(box[1], box[0]),
            (ctypes.c_uint32 * 2)(1, 1),
            0,
            swizzle,
            2,  # L2 promotion to 128 bytes
            0,
        )
        return memory, address


class Variant:
    """A kernel bound to its arrays."""

    def __init__(
        self, driver: Driver, function: Any, grid: int, block: int, shared: int, maps: Any, values: Any
    ) -> None:
        self.driver, self.function, self.grid, self.block, self.shared = driver, function, grid, block, shared
        pointers = [address for _, address in maps] + [ctypes.addressof(value) for value in values]
        self.arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        self.keep = (maps, values)

    def __call__(self) -> None:
        import torch

        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = (self.grid, 1, 1, self.block, 1, 1, self.shared)
        self.driver.ask("cuLaunchKernel", self.function, *shape, stream, self.arguments, None)


def ours(driver: Driver, out: Path, row: dict[str, Any], arrays: dict[str, Any]) -> Variant:
    function = driver.function((out / row["cubin"]).read_bytes(), "gemm_0", row["shared"])
    maps = [driver.tensor_map(arrays[m["buffer"]], m["box"], m["swizzle"]) for m in row["maps"]]
    return Variant(driver, function, row["blocks"], row["threads"], row["shared"], maps, [])


def prototype(driver: Driver, out: Path, row: dict[str, Any], arrays: dict[str, Any]) -> Variant:
    m, n, k = row["size"]
    function = driver.function((out / "prototype.cubin").read_bytes(), "gemm", PROTOTYPE_SHARED)
    boxes = {"A": [128, 64], "B": [128, 64], "C": [16, 64]}
    maps = [driver.tensor_map(arrays[name], box, 128) for name, box in boxes.items()]
    values = [ctypes.c_uint64(arrays["C"].data_ptr()), *(ctypes.c_int(x) for x in (m, n, k)), ctypes.c_uint64(0)]
    return Variant(driver, function, row["blocks"], 384, PROTOTYPE_SHARED, maps, values)


def checked(variant: Callable[[], None], arrays: dict[str, Any], want: Any) -> float:
    """The relative error; infinite where an element is missing, or two runs differ."""
    import torch

    results = []
    for _ in range(2):
        arrays["C"].fill_(float("nan"))
        variant()
        torch.cuda.synchronize()
        results.append(arrays["C"].clone())
    if not torch.equal(results[0].view(torch.int16), results[1].view(torch.int16)):
        return float("inf")
    error = float((results[0].double() - want).norm() / want.norm())
    return error if error == error else float("inf")


def graph_of(launch: Callable[[], None], count: int) -> Any:
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            launch()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(count):
            launch()
    return graph


def burst(graph: Any, lead: Any) -> float:
    """Milliseconds of a graph, after an idle time and a lead-in of the same variant."""
    import torch

    time.sleep(IDLE_MS / 1000)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    lead.replay()
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def run(out: Path, rounds: int) -> int:
    """Check all, time the great sizes; 0 when all are right."""
    import torch

    driver = Driver()
    rows = json.loads((out / "trials.json").read_text())
    torch.zeros(1, device="cuda")
    wrong, report = 0, []
    for row in rows:
        m, n, k = row["size"]
        seed = random.randrange(1 << 30)
        torch.manual_seed(seed)
        arrays = {
            name: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            for name, shape in (("A", (m, k)), ("B", (n, k)), ("C", (m, n)))
        }
        want = arrays["A"].double() @ arrays["B"].double().T
        variants: dict[str, Callable[[], None]] = {"texpr": ours(driver, out, row, arrays)}
        if (out / "prototype.cubin").exists():
            variants["prototype"] = prototype(driver, out, row, arrays)
        a, b, c = arrays["A"], arrays["B"].T, arrays["C"]
        for name in ("cublas", "cublas again"):
            variants[name] = lambda a=a, b=b, c=c: torch.matmul(a, b, out=c)  # type: ignore[misc]  # bound by default
        errors = {name: checked(launch, arrays, want) for name, launch in variants.items()}
        wrong += sum(error > 2.5e-3 for error in errors.values())
        found: dict[str, Any] = {"size": row["size"], "seed": seed, "errors": errors}
        del want
        if row["timed"]:
            found |= timed(variants, m * n * k * 2, rounds)
        print(json.dumps(found), flush=True)
        report.append(found)
    (out / "report.json").write_text(json.dumps(report, indent=1))
    print("wrong:", wrong)
    return 1 if wrong else 0


def timed(variants: dict[str, Callable[[], None]], flop: int, rounds: int) -> dict[str, Any]:
    """TFLOP/s by variant, and the ratios of ours to the others."""
    count = max(4, round(BURST_MS / (flop / 700e12 * 1e3)))
    lead = max(4, round(LEAD_MS / (flop / 700e12 * 1e3)))
    graphs = {name: (graph_of(launch, count), graph_of(launch, lead)) for name, launch in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name in random.sample(list(variants), len(variants)):
            times[name].append(burst(*graphs[name]) / count)
    rates = {name: flop / statistics.median(each) / 1e9 for name, each in times.items()}
    ratios = {name: rates["texpr"] / rate for name, rate in rates.items() if name != "texpr"}
    return {"tflops": rates, "ratio": ratios, "launches": count, "ms": times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--prototype", type=Path, help="the prototype's text, beside the headers that it includes")
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    if args.what == "run":
        return run(args.out, args.rounds)
    args.out.mkdir(parents=True, exist_ok=True)
    build(args.out, args.prototype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
