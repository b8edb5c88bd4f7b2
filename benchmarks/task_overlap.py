"""A contraction out of core on GPUs: how near it comes to what the bus and the multiplications allow.

    python benchmarks/task_overlap.py [--tiles 8] [--tile 4096] [--dtype f32] [--share 0.25] [--gpus 1] [--workers 2]
        [--traces FOLDER]

C += A @ B in square tiles, where all GPUs together hold a share of the data. In the same run are measured: copies of
tiles in and out alone, and products of tiles alone, by the same function. The limit is the longest of these for the
bytes that the run moved and the products that it made; the bar is 0.8 of it. The contraction is made twice: the first
time, pages of the host are locked as blocks are first moved. Some rows of some blocks are compared with NumPy; sums are
integers, which are exact in f32. Needs torch and GPUs.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy

from texpr.runtime.tasks.cuda_device import CudaDevice
from texpr.runtime.tracing.summary import Summary, summarise
from texpr.runtime.tracing.trace_file import read_trace
from texpr.tasks import Engine, LeastTransfer, Tensor, einsum, gpu, tiled


def bytes_per_second(device: CudaDevice, tile: Any, count: int = 32) -> tuple[float, float]:
    """Of copies of tiles in, and out, one after the other, from memory whose pages are locked: of so many tiles, as one
    alone would come from a cache."""
    device.enter()
    queue, address = device.queue(), device.allocate(tile.nbytes)
    tiles = [tile.copy() for _ in range(count)]
    for each in tiles:
        device.lock(each)
    found = []
    for inwards in (True, False):
        begin = time.perf_counter()
        for each in 3 * tiles:
            if inwards:
                device.copy_in(address, each, queue)
            else:
                device.copy_out(each, address, queue)
            device.finish(queue)
        found.append(3 * count * tile.nbytes / (time.perf_counter() - begin))
    for each in tiles:
        device.unlock(each)
    device.free(address)
    return found[0], found[1]


def product_seconds(tile: Any, repeat: int = 50) -> float:
    """Of one product of tiles and its addition, by torch as `einsum` does it."""
    import torch

    a, b, c = (torch.as_tensor(tile).cuda() for _ in range(3))
    for count in (3, repeat):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            c += torch.einsum("ik,kj->ij", a, b)
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeat


def contraction(options: argparse.Namespace, gpus: int) -> tuple[list[float], Summary]:
    """The seconds of both runs on some GPUs, and what the trace of both says."""
    space = tiled(options.tiles * options.tile, options.tile)
    a, b, c = (Tensor(name, (space, space), dtype=options.dtype) for name in "ABC")
    rng = numpy.random.default_rng(0)
    values = rng.integers(-2, 3, (options.tile, options.tile), dtype="i1").astype(a.dtype)
    for number, block in enumerate((*a.blocks(), *b.blocks())):
        turn = 1 + 7 * number % (options.tile - 1)
        block.home[:turn], block.home[turn:] = values[-turn:], values[:-turn]
    bound = int(3 * options.share * options.tiles**2 * c.block((0, 0)).size_bytes / gpus)
    memories = {f"gpu{k}": gpu(k, bound=bound) for k in range(gpus)}
    crews = dict.fromkeys(memories, options.workers)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(options.traces or folder) / f"overlap-{gpus}.json"
        with Engine(crews, memories=memories, policy=LeastTransfer(), trace=trace) as engine:
            seconds: list[float] = []
            for _ in range(2):
                begin = time.perf_counter()
                einsum(engine, "ik,kj->ij", a, b, out=c)
                engine.wait()
                engine.flush(c)
                seconds.append(time.perf_counter() - begin)
        summary = summarise(read_trace(trace))
    for i, j in {(0, 0), *map(tuple, rng.integers(0, options.tiles, (6, 2)).tolist())}:
        some = slice(i + j, None, options.tile // 2)
        rows = sum(a.block((i, k)).home[some].astype("f4") @ b.block((k, j)).home for k in range(options.tiles))
        found = c.block((i, j)).home[some]
        worst = float(numpy.abs(found - 2 * rows).max())
        limit = 2 * options.tiles * float(numpy.finfo(found.dtype).eps) * float(numpy.abs(2 * rows).max() + 1)
        assert worst <= limit, f"block {i}, {j} is wrong by {worst}"
    return seconds, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=int, default=8)
    parser.add_argument("--tile", type=int, default=4096)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--traces", help="where the traces are kept")
    options = parser.parse_args()
    tile = numpy.ones((options.tile, options.tile), {"f32": "f4", "f64": "f8", "f16": "f2"}[options.dtype])
    device = CudaDevice(0)
    into, out = bytes_per_second(device, tile)
    device.close()
    each = product_seconds(tile)
    print(f"copies {into / 1e9:.1f} GB/s in, {out / 1e9:.1f} GB/s out; a product {each * 1e3:.3f} ms")
    contraction(argparse.Namespace(**vars(options) | {"tiles": 2, "share": 1}), options.gpus)  # loads libraries
    times = {}
    for gpus in sorted({1, options.gpus}):
        (first, seconds), summary = contraction(options, gpus)
        times[gpus] = seconds
        inwards = sum(size for (source, _), (_, size) in summary.moved.items() if source == "home") / gpus / 2
        outwards = sum(size for (_, target), (_, size) in summary.moved.items() if target == "home") / gpus / 2
        peers = sum(size for pair, (_, size) in summary.moved.items() if "home" not in pair)
        limit = max(inwards / into, outwards / out, options.tiles**3 * each / gpus)
        print(
            f"{gpus} GPUs: {first:.3f} s, then {seconds:.3f} s, limit {limit:.3f} s: {limit / seconds:.0%}; "
            f"{peers / 2e9:.2f} GB by peers"
        )
        print(summary)
    if options.gpus > 1:
        print(f"{options.gpus} GPUs are {times[1] / times[options.gpus]:.2f} times one")


if __name__ == "__main__":
    main()
