"""The doubles equations of a coupled-cluster-like model in spin blocks: contractions of four-index tensors, iterated.

Occupied and virtual orbitals have tiles of either spin. A block of a tensor is zero where the spins of its upper and
lower indices do not add up to the same: such blocks have no memory, and their products are not made.

    python examples/coupled_cluster.py [--gpus 2]
    mpiexec -n 2 python examples/coupled_cluster.py --mpi
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from where import everywhere, options

from texpr.tasks import Engine, Tensor, TiledSpace, einsum, read, tiled, write

OCC, VIRT, ROUNDS = (3, 3), (5, 5), 3  # extents of tiles, those with spin up first


def conserved(*tiles: int) -> bool:
    """Whether the block with these tiles may be other than zero; each space has one tile of either spin."""
    spins = [1 if tile == 0 else -1 for tile in tiles]
    return spins[0] + spins[1] == spins[2] + spins[3]


def tensor(name: str, spaces: tuple[TiledSpace, ...], rng: Any = None) -> Tensor:
    found = Tensor(name, spaces, zero=lambda *tiles: not conserved(*tiles))
    if rng is None:
        return found
    data = np.zeros(found.shape)
    for block in found.blocks():
        if not block.is_zero:
            part = (slice(s.bounds[t], s.bounds[t + 1]) for s, t in zip(spaces, block.index, strict=True))
            data[tuple(part)] = rng.standard_normal(block.shape) * 0.1
    return Tensor(name, spaces, zero=found.zero, data=data)


def residual(contract: Callable[..., object], t: Any, v: dict[str, Any], r: Any) -> None:
    """r += what the amplitudes t contribute: ladders of particles and of holes, and rings with both of their signs."""
    contract("ijef,efab->ijab", t, v["pp"], r, 0.5)
    contract("ijmn,mnab->ijab", v["hh"], t, r, 0.5)
    contract("imae,mbej->ijab", t, v["ph"], r, 1)
    contract("jmae,mbei->ijab", t, v["ph"], r, -1)


@everywhere
def divide(given: Any, denominators: Any, target: Any) -> None:
    target[...] = given / denominators


def main() -> None:
    rng = np.random.default_rng(0)
    o, u = tiled(sum(OCC), OCC), tiled(sum(VIRT), VIRT)
    doubles = (o, o, u, u)
    spaces = {"pp": (u, u, u, u), "hh": (o, o, o, o), "ph": (o, u, u, o)}
    v = {name: tensor(name, own, rng) for name, own in spaces.items()}
    first, d = tensor("V", doubles, rng), Tensor("D", doubles, data=2 + rng.random((o.extent,) * 2 + (u.extent,) * 2))
    dense = {name: own.at_home() for name, own in (*v.items(), ("V", first), ("D", d))}

    amplitudes = tensor("T0", doubles)
    with Engine(**options(1 << 16)) as engine:
        for number in range(1, ROUNDS + 1):
            r, amplitudes_new = tensor(f"R{number}", doubles), tensor(f"T{number}", doubles)

            def contract(subscripts: str, x: Tensor, y: Tensor, out: Tensor, alpha: float) -> None:
                einsum(engine, subscripts, x, y, out=out, alpha=alpha, name=subscripts)

            einsum(engine, "ijab->ijab", first, out=r, name="begin")
            residual(contract, amplitudes, v, r)
            for block in r.blocks():
                if not block.is_zero:
                    new = amplitudes_new.block(block.index)
                    engine.submit(divide, read(block), read(d.block(block.index)), write(new))
            engine.deallocate(r)
            engine.deallocate(amplitudes)
            amplitudes = amplitudes_new
        found = engine.array(amplitudes)
        print(engine.counters.finished, "tasks,", engine.counters.transfers, "transfers")

    def contract_dense(subscripts: str, x: Any, y: Any, out: Any, alpha: float) -> None:
        out += alpha * np.einsum(subscripts, x, y, optimize=True)

    t = np.zeros_like(dense["V"])
    for _ in range(ROUNDS):
        whole = dense["V"].copy()
        residual(contract_dense, t, dense, whole)
        t = whole / dense["D"]
    difference = float(np.abs(found - t).max())
    print("greatest difference from NumPy:", difference)
    assert difference < 1e-12 and np.abs(found).max() > 0.1


if __name__ == "__main__":
    main()
