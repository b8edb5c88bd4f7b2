"""A contraction in tiles, in a memory that holds a quarter of the data: blocks come and go while tasks run.

python examples/tiled_contraction.py [--gpus 2] [--trace run.json]
mpiexec -n 2 python examples/tiled_contraction.py --mpi
"""

import numpy as np
from where import options

from texpr.tasks import Engine, Tensor, einsum, tiled


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 240, 240))
    n = tiled(240, 64)
    x, y, z = Tensor("A", (n, n), data=a), Tensor("B", (n, n), data=b), Tensor("C", (n, n))
    bound = 3 * a.nbytes // 4
    with Engine(**options(bound)) as engine:
        tasks = einsum(engine, "ik,kj->ij", x, y, out=z)
        c = engine.array(z)
        print(f"{tasks} tasks, {engine.counters.transfers} transfers, at most {bound} bytes of {3 * a.nbytes}")
    difference = float(np.abs(c - a @ b).max())
    print("greatest difference from NumPy:", difference)
    assert difference < 1e-10


if __name__ == "__main__":
    main()
