"""Empty tasks per second, beside other engines in the same run.

    python benchmarks/tasks.py [--tasks 20000] [--workers 2] [--repeat 3] [--scale]

Each task of ours has three accesses (two blocks read, one written), whose dependences are inferred and whose residency
is kept; those of the others have none. `independent`: every task has blocks of its own among 3 x 10 000, which were
used before, or in `first touch` were not (the first 10 000 of them); `chain`: each reads what the one before it wrote.
Prints thousands of tasks per second, best of N, from the first submission to the last end, and in brackets the
microseconds of CPU time of a task in that run, which other programs on the machine disturb less. With `--scale`, ours
at 10^3 to 10^6 tasks, among the same blocks.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from texpr.runtime.tasks.engine import Engine
from texpr.runtime.tasks.permissions import read, write
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.tensors import Tensor

BLOCKS = 10_000
Times = tuple[float, float]  # seconds of the clock, and of this process on all cores


def now() -> Times:
    return time.perf_counter(), time.process_time()


def since(begin: Times) -> Times:
    wall, cpu = now()
    return wall - begin[0], cpu - begin[1]


def nothing(*args: object) -> None:
    pass


def ours(kind: str, tasks: int, workers: int) -> Times:
    space = tiled(BLOCKS, 1)
    a, b, c = (Tensor(name, (space,)) for name in "ABC")
    x, y, z = (list(tensor.blocks()) for tensor in (a, b, c))
    with Engine(workers) as engine:
        for n in range(BLOCKS if kind != "first" else 0):
            engine.submit(nothing, read(x[n]), read(y[n]), write(z[n]))
        engine.wait()
        begin = now()
        for k in range(tasks):
            n = k % BLOCKS
            if kind == "chain":
                engine.submit(nothing, read(x[n]), read(z[k % 2]), write(z[(k + 1) % 2]))
            else:
                engine.submit(nothing, read(x[n]), read(y[n]), write(z[n]))
        engine.wait()
        return since(begin)


def futures(kind: str, tasks: int, workers: int) -> Times:
    with ThreadPoolExecutor(workers) as pool:
        begin = now()
        if kind == "chain":
            for _ in range(tasks):
                pool.submit(nothing).result()
        else:
            wait([pool.submit(nothing) for _ in range(tasks)])
        return since(begin)


def dask(kind: str, tasks: int, workers: int) -> Times:
    import dask.threaded

    graph: dict[str, tuple[object, ...]] = {"t0": (nothing, 0)}
    chain = kind == "chain"
    graph |= {f"t{k}": (nothing, f"t{k - 1}" if chain else k) for k in range(1, tasks)}
    wanted = [f"t{tasks - 1}"] if chain else list(graph)
    begin = now()
    dask.threaded.get(graph, wanted, num_workers=workers)
    return since(begin)


def ray(kind: str, tasks: int, workers: int) -> Times:
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, ignore_reinit_error=True, log_to_driver=False)
    empty = ray.remote(nothing)
    begin = now()
    if kind == "chain":
        last = empty.remote()
        for _ in range(tasks - 1):
            last = empty.remote(last)
        ray.get(last)
    else:
        ray.get([empty.remote() for _ in range(tasks)])
    return since(begin)


Bench = Callable[[str, int, int], Times]
ENGINES: dict[str, tuple[str, Bench, int]] = {  # the module that is needed, and how many times fewer tasks it gets
    "texpr.tasks": ("texpr", ours, 1),
    "concurrent.futures": ("concurrent", futures, 1),
    "dask.threaded": ("dask", dask, 2),
    "ray": ("ray", ray, 20),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scale", action="store_true")
    options = parser.parse_args()
    kinds = ("first", "independent", "chain")
    print(f"{'thousands of tasks/s':<22}" + "".join(f"{kind:>20}" for kind in ("first touch", *kinds[1:])))
    for name, (module, bench, fewer) in ENGINES.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name:<22}{'not installed':>40}")
            continue
        count = options.tasks // fewer
        cells = []
        for kind in kinds:
            if kind == "first" and bench is not ours:
                cells.append(f"{'-':>20}")
                continue
            wall, cpu = min(bench(kind, count, options.workers) for _ in range(options.repeat))
            cells.append(f"{count / wall / 1000:>10.1f} ({cpu / count * 1e6:5.1f})")
        print(f"{name:<22}" + "".join(f"{cell:>20}" for cell in cells))
    if options.scale:
        print(f"{'texpr.tasks, us/task':<22}" + "".join(f"{kind:>20}" for kind in ("first touch", *kinds[1:])))
        for count in (1_000, 10_000, 100_000, 1_000_000):
            times = [ours(kind, count, options.workers) for kind in kinds]
            cells = [f"{wall / count * 1e6:.1f} ({cpu / count * 1e6:5.1f})" for wall, cpu in times]
            print(f"{count:<22}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
