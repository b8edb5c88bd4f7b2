"""One memory-bound kernel on a GPU: compared with float64, then timed with its peers and what sets its limit."""

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory_problems import Case, Numbers, Shape, arrays_of, error_of

ROTATED_BYTES, MAX_SETS = 400 << 20, 8  # what the arrays of all sets take at least
COPY_BYTES = 256 << 20  # of one side of a device copy at most
GRAPH_MS, MAX_LAUNCHES = 3.0, 60
SLOW_MS, CUT_S = 100.0, 5.0  # of one launch: timed once; left
TYPES = {"f32": "float32", "bf16": "bfloat16", "i32": "int32", "i64": "int64"}


class CutOffError(Exception):
    """A launch that takes too long."""


class TorchDraws:
    """Arrays of PyTorch on the GPU."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def _of(self, dtype: str) -> dict[str, Any]:
        return {"device": "cuda", "dtype": getattr(self._torch, TYPES[dtype])}

    def normal(self, shape: Shape, dtype: str) -> Any:
        return self._torch.randn(shape, **self._of(dtype))

    def uniform(self, shape: Shape, dtype: str) -> Any:
        return self._torch.rand(shape, **self._of(dtype))

    def below(self, limit: int, shape: Shape, dtype: str) -> Any:
        return self._torch.randint(0, limit, shape, **self._of(dtype))

    def permutation(self, count: int, dtype: str) -> Any:
        return self._torch.randperm(count, **self._of(dtype))

    def full(self, shape: Shape, value: float, dtype: str) -> Any:
        return self._torch.full(shape, value, **self._of(dtype))


def first_call(torch: Any, call: Callable[[], object], limit_s: float = math.inf) -> float:
    """Milliseconds of a second call, after a first one that is waited for so long. Raises CutOffError."""
    done = torch.cuda.Event()
    begin = time.monotonic()
    call()
    done.record()
    while not done.query():
        if time.monotonic() - begin > limit_s:
            raise CutOffError
        time.sleep(1e-3)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


class Loop:
    """Calls that no graph holds, with a graph's face."""

    def __init__(self, act: Callable[[int, int], object], launches: int, stream: Any) -> None:
        self._act, self._launches, self._stream = act, launches, stream

    def replay(self) -> None:
        for number in range(self._launches):
            self._act(number, self._stream.cuda_stream)


def measure(torch: Any, case: Case, artifact: Path, rounds: int, *, compiles: bool) -> dict[str, Any]:
    """The row of one kernel. Raises CutOffError."""
    import cupy
    from cupyx.scipy.special import erf
    from gpu_timing import Graph, filled_graph, interleaved, launches_in

    from texpr.runtime.load import load

    problem, _, dtype = case
    kernel = load(artifact)
    parameters = kernel.manifest.parameters
    sizes = {name: value for name, value in kernel.manifest.sizes.items() if value is not None}
    draws = TorchDraws(torch)
    first = arrays_of(problem, parameters, sizes, draws)
    moved = sum(array.nbytes for array in first.values())
    (output,) = (p.name for p in parameters if p.writes)
    inputs = [p.name for p in parameters if p.mode != "write"]

    def as_wide(array: Any) -> Any:
        return cupy.from_dlpack(array.double() if array.is_floating_point() else array)

    want = problem.expected(Numbers(cupy, erf), {name: as_wide(array) for name, array in first.items()})
    torch.cuda.synchronize()
    took = first_call(torch, lambda: kernel(**first), CUT_S)
    error = error_of(cupy, as_wide(first[output]), want, exact=problem.exact)
    row: dict[str, Any] = {"bytes": moved, "error": error, "right": error <= problem.tolerance(dtype), "failed": {}}
    if not row["right"]:
        return row
    count = min(MAX_SETS, max(2, math.ceil(ROTATED_BYTES / moved)))
    sets = [first, *(arrays_of(problem, parameters, sizes, draws) for _ in range(count - 1))]
    graphs: dict[str, tuple[Graph, int]] = {}

    def add(name: str, call: Callable[[dict[str, Any]], Any], waits: bool = False) -> None:
        def act(number: int, stream: int) -> object:
            return call(sets[number % count])

        if waits:
            each = first_call(torch, lambda: call(first))
            stream, launches = torch.cuda.Stream(), launches_in(GRAPH_MS, each, MAX_LAUNCHES)
            graphs[name] = (Loop(act, launches, stream), stream), launches
        else:
            graphs[name] = filled_graph(torch, act, GRAPH_MS, MAX_LAUNCHES)

    if took <= SLOW_MS:
        add("texpr", lambda arrays: kernel(**arrays))
    for name, call, waits in peers_of(torch, case, inputs, output, compiles=compiles):
        try:
            got = call(first)
            peer_error = error_of(cupy, as_wide(got), want, exact=problem.exact)
            row["failed"] |= {f"{name}, error": peer_error} if not peer_error <= problem.tolerance(dtype) else {}
            del got
            for arrays in sets[1:]:  # what a peer makes of arrays once is made here, and in no graph
                call(arrays)
            add(name, call, waits)
        except Exception as why:  # a peer's own errors, of any class: it has no figure, and the row says why
            row["failed"][name] = f"{type(why).__name__}: {str(why)[:300]}"
    del want
    cupy.get_default_memory_pool().free_all_blocks()
    written = first[output].nbytes
    limits = limit_graphs(torch, moved, count, reads=written < 0.05 * moved)
    found = interleaved(torch, {**graphs, **{name: each[0] for name, each in limits.items()}}, rounds)
    row["ms"] = {name: found[name] for name in graphs} | ({} if took <= SLOW_MS else {"texpr": [took]})
    row["limit"] = {name: each[1] / statistics.median(found[name]) / 1e6 for name, each in limits.items()}
    return row


def limit_graphs(torch: Any, moved: int, count: int, *, reads: bool) -> dict[str, tuple[tuple[Any, int], int]]:
    """What sets the limit: graphs with the bytes that a launch of each moves."""
    from gpu_timing import graph_of, launches_in

    launches = launches_in(GRAPH_MS, moved / 4e9, MAX_LAUNCHES)
    if not reads:
        half = min(moved // 2, COPY_BYTES) // 8192 * 4096
        pairs = [tuple(torch.randn(half, device="cuda", dtype=torch.bfloat16) for _ in range(2)) for _ in range(count)]
        copy = graph_of(torch, lambda n, _: pairs[n % count][0].copy_(pairs[n % count][1]), launches)
        return {"copy": ((copy, launches), 4 * half)}
    from peers import triton_kernels

    sources = [torch.randn(moved // 4, device="cuda") for _ in range(count)]
    parts = torch.empty(triton_kernels.readers(), device="cuda")
    own = graph_of(torch, lambda n, _: triton_kernels.read_only(sources[n % count], parts), launches)
    total = graph_of(torch, lambda n, _: sources[n % count].sum(), launches)
    size = moved // 4 * 4
    return {"read": ((own, launches), size), "torch's sum": ((total, launches), size)}


Peer = tuple[str, Callable[[dict[str, Any]], Any], bool]
"""Its name, what it makes of the arrays, and whether it waits for the GPU."""


def peers_of(torch: Any, case: Case, inputs: list[str], output: str, *, compiles: bool) -> list[Peer]:
    from peers import torch_kernels, triton_kernels

    problem, (_, columns), _ = case
    name = problem.program
    eager, waits = torch_kernels.PEERS[name], name in torch_kernels.WAITS

    def of(call: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
        return lambda arrays: call(*(arrays[each] for each in inputs))

    found: list[Peer] = [("torch", of(eager), waits)]
    found += [(key, of(call), False) for key, call in torch_kernels.ALSO.get(name, {}).items()]
    if compiles and not waits:
        torch._dynamo.reset()
        found.append(("torch.compile", of(torch.compile(eager, dynamic=False)), False))
    if triton_kernels.has(name, columns):
        call = triton_kernels.PEERS[name]

        def triton(arrays: dict[str, Any]) -> Any:
            call(*(arrays[each] for each in inputs), arrays[output])
            return arrays[output]

        found.append(("triton", triton, False))
    try:
        import quack
        from quack.rmsnorm import layernorm_fwd
    except ImportError:
        return found
    kept: dict[int, Any] = {}

    def words(vector: Any) -> Any:
        """A vector in f32, as LayerNorm's have to be there, made at the first call."""
        place = vector.data_ptr()
        if place not in kept:
            kept[place] = vector.float()
        return kept[place]

    ways: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: quack.softmax(x),
        "rmsnorm": lambda x, g: quack.rmsnorm(x, g, eps=1e-6),
        "layernorm": lambda x, g, b: layernorm_fwd(x, words(g), words(b), eps=1e-5),
        "cross_entropy": lambda x, t: quack.cross_entropy(x, t, reduction="none"),
    }
    return [*found, *((("quack", of(ways[name]), False),) if name in ways else ())]
