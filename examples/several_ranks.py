"""A contraction in several processes, each with a part of the blocks:

mpiexec -n 2 python examples/several_ranks.py        # pip install "texpr[mpi]"; one BLAS thread: OMP_NUM_THREADS=1
"""

import numpy as np

from texpr.tasks import Engine, Tensor, einsum, grid, mpi, tiled


def main() -> None:
    transport = mpi()
    n = tiled(600, 128)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((600, 600)), rng.standard_normal((600, 600))  # each rank copies its own blocks
    x, y = (Tensor(name, (n, n), data=data.copy(), distribution=grid(2, 2)) for name, data in (("A", a), ("B", b)))
    z = Tensor("C", (n, n), distribution=grid(2, 2))
    with Engine(workers=1, transport=transport) as engine:
        tasks = einsum(engine, "ik,kj->ij", x, y, out=z)
        c = engine.array(z)  # all of it, at every rank
    difference = float(np.abs(c - a @ b).max())
    print(f"rank {transport.rank} of {transport.size}: {tasks} tasks, greatest difference {difference:.1e}", flush=True)
    assert difference < 1e-10


if __name__ == "__main__":
    main()
