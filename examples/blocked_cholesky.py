"""The Cholesky factor of a matrix in blocks: which task waits for which follows from what each of them touches.

python examples/blocked_cholesky.py [--gpus 2]
mpiexec -n 2 python examples/blocked_cholesky.py --mpi
"""

from typing import Any

import numpy as np
from where import everywhere, linalg, options

from texpr.tasks import Engine, Tensor, accumulate, read, read_write, tiled


@everywhere
def factor(diagonal: Any) -> None:
    diagonal[...] = linalg(diagonal).cholesky(diagonal)


@everywhere
def solve(diagonal: Any, below: Any) -> None:
    below[...] = linalg(below).solve(diagonal, below.T).T


@everywhere
def subtract(left: Any, right: Any, block: Any) -> None:
    block -= left @ right.T


@everywhere
def subtract_own(left: Any, block: Any) -> None:
    block -= left @ left.T


def cholesky(engine: Engine, a: Tensor) -> None:
    """Submit the tasks that make the lower blocks of `a` those of its factor."""
    n, _ = a.n_tiles
    for k in range(n):
        engine.submit(factor, read_write(a[k, k]))
        for i in range(k + 1, n):
            engine.submit(solve, read(a[k, k]), read_write(a[i, k]))
        for i in range(k + 1, n):
            engine.submit(subtract_own, read(a[i, k]), accumulate(a[i, i]))
            for j in range(k + 1, i):
                engine.submit(subtract, read(a[i, k]), read(a[j, k]), accumulate(a[i, j]))


def main() -> None:
    rng = np.random.default_rng(0)
    m = rng.standard_normal((200, 200))
    m = m @ m.T + 200 * np.eye(200)
    space = tiled(200, 48)
    a = Tensor("A", (space, space), data=m.copy())
    with Engine(**options()) as engine:
        cholesky(engine, a)
        found = np.tril(engine.array(a))
        print(engine.counters.finished, "tasks")
    difference = float(np.abs(found - np.linalg.cholesky(m)).max())
    print("greatest difference from NumPy:", difference)
    assert difference < 1e-10


if __name__ == "__main__":
    main()
