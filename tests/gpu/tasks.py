"""Tasks on GPUs: compiled kernels, torch and CuPy on blocks, small memories, peers, and what fails.

    python tests/gpu/tasks.py build OUT [--arch sm_90a]    where the compiler is, without a GPU
    python tests/gpu/tasks.py run OUT                      with NumPy, torch, CuPy and cuda-bindings; no compiler

Uses two GPUs where there are two. One line says of each check whether it is right or wrong. Integers must be exact;
floats are compared with float64. After every engine, the memory that is free must be what it was.
"""

import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from build_or_run import build_or_run

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

PROGRAMS = {
    "add": "kernel add(X: i32[N], Y: i32[N]) { seq 1 t { par N i { Y[i] += X[i] } } }",
    "change": "kernel change(X: i32[N], inout Y: i32[N]) { par N i { Y[i] = (2 * Y[i] + X[i]) % 1009 } }",
    "reverse": "kernel reverse(X: i32[N], Y: i32[N]) { par N i { Y[i] = X[N - 1 - i] + 1 } }",
    "matmul": "kernel matmul(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {\n"
    "    par M i, N j { seq K k { C[i, j] += A[i, k] * B[k, j] } }\n}",
}
EXAMPLES = ("blocked_cholesky", "coupled_cluster", "tiled_contraction")
SHORT, LONG, TILES = 1000, 1003, 6  # elements of blocks of the random graphs


def build(out: Path, arch: str) -> None:
    """An artifact of free sizes for each program."""
    import texpr

    for name, text in PROGRAMS.items():
        texpr.parse(text).only.compile(f"cuda:{arch}").save(out / name)
    print(len(PROGRAMS), "artifacts for", arch)


class Anywhere:
    """Tasks run where chance says."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def place(self, task: Any, load: Any) -> int:
        return self.rng.choice(sorted(load))


class InTurns:
    """Tasks run where their last argument says."""

    def place(self, task: Any, load: Any) -> int:
        node: int = task.args[-1]
        return node


def gpus() -> int:
    import torch

    return min(2, torch.cuda.device_count())


def random_graph(kernels: dict[str, Any], seed: int) -> None:
    """Kernels of random blocks at random GPUs and at home, in memories that hold half of the blocks."""
    import numpy

    from texpr.tasks import (
        Engine,
        FunctionDefinition,
        Tensor,
        accumulate,
        gpu,
        on_arrays,
        read,
        read_write,
        tiled,
        write,
    )

    rng = random.Random(seed)
    extent = rng.choice([SHORT, LONG])
    data = [numpy.arange(extent, dtype="i4") % 97 + k for k in range(TILES)]
    tensor = Tensor("T", (tiled(TILES * extent, extent),), dtype="i32", data=numpy.concatenate(data), packed=True)
    ways: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
        "add": (accumulate, lambda x, y: numpy.add(y, x, out=y)),
        "change": (read_write, lambda x, y: numpy.copyto(y, (2 * y + x) % 1009)),
        "reverse": (write, lambda x, y: numpy.copyto(y, x[::-1] + 1)),
    }
    bound = TILES // 2 * 4 * extent
    memories = {f"gpu{k}": gpu(k, bound=bound) for k in range(gpus())}
    crews = {"home": 1, **dict.fromkeys(memories, 2)}
    with Engine(crews, memories=memories, policy=Anywhere(seed), debug=True) as engine:
        for _ in range(120):
            source, target = rng.sample(range(TILES), 2)
            large = max(data[source].max(), data[target].max()) > 1 << 28
            name = "change" if large else rng.choice(sorted(ways))
            access, body = ways[name]
            if rng.random() < 0.25:
                engine.submit(on_arrays(body), read(tensor[source]), access(tensor[target]))
            elif rng.random() < 0.5:
                both = FunctionDefinition(cpu=on_arrays(lambda x, y, *blocks, f=body: f(x, y)), cuda=kernels[name])
                engine.submit(both, tensor[source], tensor[target])
            else:
                engine.submit(kernels[name], tensor[source], tensor[target])
            body(data[source], data[target])
        assert numpy.array_equal(engine.array(tensor), numpy.concatenate(data)), "wrong elements"


def product_by_kernels(kernels: dict[str, Any], extent: int, tile: int) -> None:
    """C += A @ B by a compiled kernel of free sizes, with smaller tiles at the ends."""
    import numpy

    from texpr.tasks import Engine, Tensor, gpu, tiled

    space, rng = tiled(extent, tile), numpy.random.default_rng(7)
    a, b, c = (rng.standard_normal((extent, extent), dtype="f4") for _ in range(3))
    want = c + a.astype("f8") @ b.astype("f8")
    tensors = [
        Tensor(n, (space, space), dtype="f32", data=v, packed=True) for n, v in zip("ABC", (a, b, c), strict=True)
    ]
    tiles = len(list(tensors[0].blocks()))
    side = round(tiles**0.5)
    memories = {f"gpu{k}": gpu(k, bound=8 * 4 * tile * tile) for k in range(gpus())}
    with Engine(dict.fromkeys(memories, 2), memories=memories, debug=True) as engine:
        for i in range(side):
            for j in range(side):
                for k in range(side):
                    engine.submit(kernels["matmul"], tensors[0][i, k], tensors[1][k, j], tensors[2][i, j])
        found = engine.array(tensors[2])
    error = float(numpy.linalg.norm(found - want) / numpy.linalg.norm(want))
    assert error < 1e-5, f"an error of {error:.1e}"


def contraction(dtype: str, tolerance: float) -> None:
    """`einsum` by torch, in memories that hold a part."""
    import numpy

    from texpr.tasks import Engine, Tensor, einsum, gpu, tiled

    space, rng, kind = tiled(700, 128), numpy.random.default_rng(8), {"f16": "f2", "f32": "f4", "f64": "f8"}[dtype]
    a, b = (rng.standard_normal((700, 700)).astype(kind) for _ in range(2))
    want = a.astype("f8") @ b.astype("f8")
    tensors = [Tensor(n, (space, space), dtype=dtype, data=v) for n, v in (("A", a), ("B", b))]
    c = Tensor("C", (space, space), dtype=dtype)
    memories = {f"gpu{k}": gpu(k, bound=10 * 128 * 128 * 8) for k in range(gpus())}
    with Engine(dict.fromkeys(memories, 2), memories=memories) as engine:
        einsum(engine, "ik,kj->ij", *tensors, out=c)
        found = engine.array(c)
    error = float(numpy.linalg.norm(found.astype("f8") - want) / numpy.linalg.norm(want))
    assert error < tolerance, f"an error of {error:.1e}"


def functions_of(library: str) -> None:
    """Functions of torch and CuPy on the stream of their worker, behind long ones."""
    import numpy

    from texpr.tasks import Engine, FunctionDefinition, Tensor, gpu, on_arrays, read, read_write, tiled

    data = numpy.arange(1 << 22, dtype="f4")
    tensor, sums = Tensor("T", (tiled(1 << 22, 1 << 20),), dtype="f32", data=data), Tensor("S", (tiled(4, 1),))

    def double(x: Any) -> None:
        for _ in range(20):
            x *= 2
        x /= 1 << 19

    def total(x: Any, s: Any) -> None:
        s += x.sum()

    cases = [FunctionDefinition(cuda=on_arrays(f, library=library)) for f in (double, total)]
    want = [2 * data[k << 20 : (k + 1) << 20].astype("f8").sum() for k in range(4)]
    with Engine({"gpu": 3}, memories={"gpu": gpu(0)}) as engine:
        for block in range(4):
            engine.submit(cases[0], read_write(tensor[block]))
        for block in range(4):
            engine.submit(cases[1], read(tensor[block]), read_write(sums[block]))
        found = engine.array(sums)
    assert numpy.allclose(found, want, rtol=1e-4), f"{found} for {want}"


def by_peers() -> None:
    """A block that one GPU has made goes to the other without going home."""
    import tempfile

    import numpy

    from texpr.runtime.tracing.summary import summarise
    from texpr.runtime.tracing.trace_file import read_trace
    from texpr.tasks import Engine, FunctionDefinition, Tensor, accumulate, gpu, on_arrays, read, tiled, write

    fill = FunctionDefinition(cuda=on_arrays(lambda x, node: x.fill_(3), library="torch"), name="fill")
    add = FunctionDefinition(cuda=on_arrays(lambda x, s, node: s.add_(x), library="torch"), name="add")
    tensor, sums = (Tensor(name, (tiled(4 << 20, 1 << 20),), dtype="f32") for name in "TS")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        memories = {"one": gpu(0), "other": gpu(1)}
        with Engine({"one": 1, "other": 1}, memories=memories, policy=InTurns(), trace=trace) as engine:
            for k in range(4):
                engine.submit(fill, write(tensor[k]), args=(1,))
                engine.submit(add, read(tensor[k]), accumulate(sums[k]), args=(1,))
                engine.submit(add, read(tensor[k]), accumulate(sums[k]), args=(2,))
            found = engine.array(sums)
        moved = summarise(read_trace(trace)).moved
    assert numpy.all(found == 6), f"{found[:4]} for 6"
    peers = sum(count for pair, (count, _) in moved.items() if "home" not in pair)
    assert peers == 4, f"{peers} copies by peers of 4: {dict(moved)}"


def refused(code: str, said: str, call: Callable[[], object]) -> None:
    from texpr.grammar.diagnostics import TExprError

    try:
        call()
    except TExprError as why:
        assert why.diagnostics[0].code == code and said in str(why), f"said: {why}"
        print(f"    {str(why).splitlines()[0][:150]}")
        return
    raise AssertionError("it was not refused")


def sums_of_every_type() -> None:
    """What tasks add on a GPU is added to what is at home, by the device or by the host; several blocks have no round
    number of elements."""
    import ml_dtypes
    import numpy

    from texpr.tasks import Engine, FunctionDefinition, Tensor, accumulate, gpu, on_arrays, tiled

    ones = FunctionDefinition(cuda=on_arrays(lambda sums, term: sums.add_(term), library="torch"))
    codes = {"i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "f16": "f2", "f32": "f4", "f64": "f8"}
    types = {name: numpy.dtype(code) for name, code in codes.items()} | {"bf16": numpy.dtype(ml_dtypes.bfloat16)}
    rng = numpy.random.default_rng(0)
    for name, dtype in types.items():
        home = rng.integers(0, 100, 100_003).astype(dtype)
        wanted = (home + dtype.type(3)) + dtype.type(3) if name in ("f16", "bf16") else home + dtype.type(6)
        total = Tensor("S", (tiled(home.size, 33_331),), name, data=home.copy(), packed=True)
        with Engine({"gpu": 1}, memories={"gpu": gpu(0, bound=1 << 20)}, debug=True) as engine:
            for _ in range(2):
                for block in total.blocks():
                    engine.submit(ones, accumulate(block), args=(3,))
                engine.wait()
                engine.flush(total)
            found = engine.array(total)
        assert found.dtype == dtype and (found == wanted).all(), name
    for extent in (1 << 24) + 5, (1 << 24) - 3:  # in two pieces, and in one
        total = Tensor("S", (tiled(extent, extent),), "f32")
        with Engine({"gpu": 1}, memories={"gpu": gpu(0)}, debug=True) as engine:
            for _ in range(3):
                engine.submit(ones, accumulate(total[0]), args=(1,))
                engine.flush(total)
            assert (engine.array(total) == 3).all(), extent


def example(name: str, count: int) -> None:
    """An example compares its result with NumPy's."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--gpus", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "greatest difference" in done.stdout, done.stderr


def no_such_gpu() -> None:
    from texpr.tasks import Engine, gpu

    refused("E0717", "GPU 99 failed", lambda: Engine({"gpu": 1}, memories={"gpu": gpu(99)}))


def more_than_there_is(kernels: dict[str, Any]) -> None:
    """A block for which a GPU has no room fails its task, and the engine goes on."""
    import numpy

    from texpr.tasks import Engine, FunctionDefinition, Tensor, gpu, on_arrays, tiled, write

    x, y = (Tensor(n, (tiled(64, 16),), dtype="i32", data=numpy.arange(64, dtype="i4")) for n in "XY")
    huge = Tensor("H", (tiled(1 << 36, 1 << 36),), dtype="i32")
    fill = FunctionDefinition(cuda=on_arrays(lambda h: h.fill_(1), library="torch"), name="fill")
    with Engine({"gpu": 1}, memories={"gpu": gpu(0, bound=1 << 40)}) as engine:
        engine.submit(fill, write(huge[0]))
        refused("E0715", "cuMemAlloc", engine.wait)
        engine.submit(kernels["add"], x[0], y[0])
        assert engine.array(y)[:16].tolist() == [2 * k for k in range(16)], "wrong elements"


def run(out: Path) -> int:
    """Check all; 0 when all are right."""
    import torch

    from texpr.runtime.load import load

    kernels = {name: load(out / name) for name in PROGRAMS}
    checks: dict[str, Callable[[], object]] = {
        **{f"random graph {seed}": partial(random_graph, kernels, seed) for seed in range(12)},
        "product by a kernel": partial(product_by_kernels, kernels, 1000, 256),
        "product by a kernel, odd": partial(product_by_kernels, kernels, 517, 129),
        "contraction f32": partial(contraction, "f32", 1e-3),
        "contraction f64": partial(contraction, "f64", 1e-12),
        "functions of torch": partial(functions_of, "torch"),
        "functions of CuPy": partial(functions_of, "cupy"),
        "sums of every type": sums_of_every_type,
        **{f"{name} on {n}": partial(example, name, n) for name in EXAMPLES for n in range(1, gpus() + 1)},
        "no such GPU": no_such_gpu,
        "more than there is": partial(more_than_there_is, kernels),
    }
    if gpus() > 1:
        checks["by peers"] = by_peers
    wrong = 0
    for name, check in checks.items():
        torch.cuda.synchronize()
        before = [torch.cuda.mem_get_info(k)[0] for k in range(gpus())]
        try:
            check()
        except Exception:
            wrong += 1
            print(f"{name}: WRONG\n" + traceback.format_exc(limit=-6), flush=True)
            continue
        torch.cuda.empty_cache()
        lost = [b - torch.cuda.mem_get_info(k)[0] for k, b in enumerate(before)]
        print(f"{name}: right" + (f"; {lost} bytes are not given back" if max(lost) > 0 else ""), flush=True)
    print(f"{len(checks)} checks on {gpus()} GPUs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
