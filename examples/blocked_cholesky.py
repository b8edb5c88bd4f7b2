"""The Cholesky factor of a matrix in blocks: which task waits for which follows from what each of them touches."""

from typing import Any

import numpy as np

from texpr.tasks import Engine, Tensor, accumulate, on_arrays, read, read_write, tiled


@on_arrays
def factor(diagonal: Any) -> None:
    diagonal[...] = np.linalg.cholesky(diagonal)


@on_arrays
def solve(diagonal: Any, below: Any) -> None:
    below[...] = np.linalg.solve(diagonal, below.T).T


@on_arrays
def subtract(left: Any, right: Any, block: Any) -> None:
    block -= left @ right.T


@on_arrays
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
    with Engine(workers=2) as engine:
        cholesky(engine, a)
        found = np.tril(engine.array(a))
        print(engine.counters.finished, "tasks")
    difference = float(np.abs(found - np.linalg.cholesky(m)).max())
    print("greatest difference from NumPy:", difference)
    assert difference < 1e-10


if __name__ == "__main__":
    main()
