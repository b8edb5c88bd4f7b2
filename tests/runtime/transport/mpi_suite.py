"""What several ranks do under MPI, as a program for a launcher:

    python tests/runtime/transport/mpi_launch.py [--ranks 2] -- [--seeds 6] [--only NAME]

Every rank compares its own results, with those of a sequential run where there is one, and prints a line. With
`--only` one of the endings is run, in which a rank dies or errs.
"""

import argparse
import itertools
import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import several_ranks
from blocked_cholesky import cholesky
from fake_gpu import FakeGpu, on_gpu
from rank_stress import DISTRIBUTIONS, ENGINES, calm, run_rank
from task_stress import expected, random_program, run
from test_transports import exchange

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.transport import mpi
from texpr.runtime.transport.mpi import MpiRank
from texpr.tasks import Engine, Tensor, accumulate, einsum, grid, on_arrays, read, read_write, tiled, write


def operations(transport: MpiRank) -> None:
    mine, got, ticket, said = exchange(transport)
    before, size = (transport.rank - 1) % transport.size, transport.size
    assert mine[:4] == [0, before + 1, 5, 0] and got == [10 * size] * 2 and said == b"%d" % before, (mine, got, said)
    assert ticket in range(0, 2 * size, 2)


def random_programs(transport: MpiRank, seeds: int) -> None:
    """What `rank_stress` does, and on one rank `task_stress`."""
    for seed in range(seeds):
        rng = random.Random(seed)
        options = ENGINES[seed % len(ENGINES)] | {"debug": seed % 3 > 0}
        distribution = rng.choice(DISTRIBUTIONS)
        program = random_program(rng, 40, any(options.get("memories", {}).values()))
        program = calm(program) if seed % 2 else program
        if transport.size == 1:
            found = list(run(program, {"workers": 2, "transport": transport}))
        else:
            found = run_rank(program, transport, options, distribution)
        assert found == list(expected(program)), f"seed {seed}: {found}, not {expected(program)}"


@on_arrays
def gemm(x: Any, y: Any, z: Any) -> None:
    z += x @ y


def contraction(transport: MpiRank) -> None:
    n = tiled(50, 16)
    a, b = (numpy.random.default_rng(seed).integers(-9, 9, (50, 50)) for seed in (1, 2))
    for placement in ({}, {"placement": lambda task, ranks: task.number * 7 // 3 % ranks}):
        x, y = Tensor("A", (n, n), "i64", data=a.copy()), Tensor("B", (n, n), "i64", data=b.copy())
        z = Tensor("C", (n, n), "i64")
        with Engine(1, transport=transport, **placement) as engine:
            for i, j, k in itertools.product(range(4), repeat=3):
                engine.submit(gemm, read(x[i, k]), read(y[k, j]), accumulate(z[i, j]))
            assert numpy.array_equal(engine.array(z), a @ b)


def on_gpus(transport: MpiRank) -> None:
    """Each rank has a GPU, in memory of its host, with room for four blocks of a contraction."""
    n = tiled(24, 8)
    a, b = (numpy.random.default_rng(seed).integers(-9, 9, (24, 24)) for seed in (3, 4))
    x, y = (Tensor(name, (n, n), "i64", data=data, packed=True) for name, data in (("A", a), ("B", b)))
    z = Tensor("C", (n, n), "i64")
    memory = FakeGpu(bound=4 * 8 * 8 * 8)

    def product(x: Any, y: Any, z: Any) -> None:
        z += (x.reshape(8, 8) @ y.reshape(8, 8)).reshape(-1)

    with Engine({"gpu": 2}, memories={"gpu": memory}, transport=transport, debug=True) as engine:
        for i, j, k in itertools.product(range(3), repeat=3):
            engine.submit(on_gpu(product), read(x[i, k]), read(y[k, j]), accumulate(z[i, j]))
        assert numpy.array_equal(engine.array(z), a @ b)


def whole_programs(transport: MpiRank) -> None:
    """A blocked Cholesky factorisation, and a contraction in spin blocks and all others that `einsum` submits."""
    rng = numpy.random.default_rng(0)
    m = rng.standard_normal((100, 100))
    m = m @ m.T + 100 * numpy.eye(100)
    space = tiled(100, 24)
    a = Tensor("A", (space, space), data=m.copy(), distribution=grid(2, 2))
    t = Tensor("T", (tiled(8, 3), tiled(9, 4), space), data=rng.standard_normal((8, 9, 100)))
    out = Tensor("O", (tiled(9, 4), tiled(8, 3)), zero=lambda i, j: i > j)
    with Engine(1, transport=transport) as engine:
        cholesky(engine, a)
        factor = numpy.tril(engine.array(a))
        whole = engine.array(t)
        einsum(engine, "abm,abm->ba", t, t, out=out, alpha=2)
        found = engine.array(out)
    wanted = 2 * numpy.einsum("abm,abm->ba", whole, whole)
    for block in out.blocks():
        if block.is_zero:
            out.put_into(wanted, block, 0)
    assert numpy.allclose(factor, numpy.linalg.cholesky(m)) and numpy.allclose(found, wanted)


def busy_target(transport: MpiRank) -> None:
    """While the last rank computes in Python, the others get at its blocks; it goes on until they have."""
    size, last = transport.size, transport.size - 1
    a, b = (Tensor(name, (tiled(4 * size, 4),)) for name in "AB")
    done = [Path(tempfile.gettempdir()) / f"texpr-busy-{os.getppid()}-{rank}" for rank in range(last)]

    def spin(x: Any) -> None:
        while not all(path.exists() for path in done):
            for _ in range(100_000):
                pass
        x += 1

    def more(x: Any, y: Any) -> None:
        y += x + 1
        done[transport.rank].touch()

    try:
        with Engine(1, transport=transport) as engine:
            engine.submit(on_arrays(spin), read_write(b.block((last,))))
            for k in range(last):
                engine.submit(on_arrays(more), read(a.block((last,))), read_write(b.block((k,))))
            assert engine.array(b).sum() == 4.0 * size
    finally:
        if transport.rank != last:
            done[transport.rank].unlink(missing_ok=True)


def failures(transport: MpiRank) -> None:
    a = Tensor("A", (tiled(16, 4),))

    def fails(x: Any) -> None:
        raise ValueError("on purpose")

    with Engine(1, transport=transport) as engine:
        for block in a.blocks():
            engine.submit(on_arrays(fails), write(block))
        try:
            engine.wait()
        except TExprError as failed:
            told = str(failed)
        assert "E0715" in told and "ValueError: on purpose" in told and told.count("fails#") == 4, told
        for block in a.blocks():
            engine.submit(on_arrays(numpy.ndarray.fill), write(block), args=(2.0,))
        assert engine.array(a).sum() == 32


# endings


def _tasks(engine: Engine, rank: int, at: Callable[[], None]) -> None:
    a = Tensor("A", (tiled(16, 4),))
    for k in range(40):
        engine.submit(on_arrays(numpy.ndarray.fill), write(a.block((k % 4,))), args=(float(k),))
        if k == 20 and rank == 1:
            at()
    engine.wait()


def killed(transport: MpiRank) -> None:
    with Engine(1, transport=transport) as engine:
        _tasks(engine, transport.rank, lambda: os.kill(os.getpid(), signal.SIGKILL))


def stopped(transport: MpiRank) -> None:
    """It neither dies nor says anything."""
    with Engine(1, transport=transport) as engine:
        _tasks(engine, transport.rank, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def raising(transport: MpiRank) -> None:
    def fail() -> None:
        raise KeyError("lost my keys")

    with Engine(1, transport=transport) as engine:
        _tasks(engine, transport.rank, fail)


def raising_before(transport: MpiRank) -> None:
    if transport.rank == 1:
        raise KeyError("no engine yet")
    with Engine(1, transport=transport) as engine:
        _tasks(engine, transport.rank, lambda: None)


def differing(transport: MpiRank) -> None:
    with Engine(1, transport=transport) as engine:
        a = Tensor("A", (tiled(16, 4),))
        for k in range(40):
            block = a.block((k % 4 if k != 30 or transport.rank == 0 else 1,))
            engine.submit(on_arrays(numpy.ndarray.fill), write(block), args=(1.0,))


ENDINGS = {do.__name__: do for do in (killed, stopped, raising, raising_before, differing)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", choices=ENDINGS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transport = mpi(silence_s=2.0 if options.only == "stopped" else 60.0)
    if options.only:
        ENDINGS[options.only](transport)
        return
    began = time.monotonic()
    operations(transport)
    contraction(transport)
    on_gpus(transport)
    whole_programs(transport)
    several_ranks.main()
    random_programs(transport, options.seeds)
    failures(transport)
    if transport.size > 1:
        busy_target(transport)
    print(f"rank {transport.rank} of {transport.size}: right, in {time.monotonic() - began:.2f} s", flush=True)


if __name__ == "__main__":
    main()
