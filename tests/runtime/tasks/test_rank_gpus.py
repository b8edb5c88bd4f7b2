"""Engines of several ranks, each with GPUs: what these have of blocks of other ranks passes by memory of the host."""

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from fake_gpu import FakeGpu, on_gpu
from rank_stress import on_ranks, scattered
from test_engine import put, vector
from test_tensors import refused

from texpr.runtime.transport import fake
from texpr.tasks import Engine, Tensor, accumulate, read, read_write, tiled, write

Gpus = dict[str, FakeGpu]


def run(do: Callable[[Engine], Any], *, near: bool, gpus: int = 1, seed: int = 3, **options: Any) -> list[Any]:
    """What a program gives at each of two ranks, and the devices of each."""

    def rank(transport: Any) -> tuple[Any, list[Any]]:
        memories = {f"gpu{k}": FakeGpu(k, bound=4 * 32) for k in range(gpus)}
        crews = {"home": 1, **dict.fromkeys(memories, 2)}
        with Engine(crews, memories=memories, transport=transport, debug=True, **options) as engine:
            found = do(engine)
        assert all(memory.device.closed for memory in memories.values())
        return found, [memory.device for memory in memories.values()]

    return on_ranks(fake(2, seed, silence_s=20.0, near=near), rank)


WAYS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "add": (accumulate, lambda x, y: numpy.add(y, x, out=y)),
    "change": (read_write, lambda x, y: numpy.add(2 * y, x, out=y)),
    "write": (write, lambda x, y: numpy.copyto(y, x + 1)),
}


@pytest.mark.parametrize("seed", range(6))
def test_random_kernels_on_gpus_of_two_ranks_give_what_one_after_another_gives(seed: int) -> None:
    wanted = numpy.arange(24.0)

    def program(engine: Engine) -> Any:
        rng = random.Random(seed)  # the same program at every rank
        data = wanted.copy() if engine._flow.rank == 0 else numpy.empty(24)
        tensor = Tensor("T", (tiled(24, 4),), data=numpy.arange(24.0), packed=True)
        parts = numpy.split(data, 6)
        for _ in range(40):
            source, target = rng.sample(range(6), 2)
            access, body = WAYS[rng.choice(sorted(WAYS))]
            engine.submit(on_gpu(body), read(tensor[source]), access(tensor[target]))
            if engine._flow.rank == 0:
                body(parts[source], parts[target])
        found = engine.array(tensor)
        if engine._flow.rank == 0:
            assert numpy.array_equal(found, data)
        return found

    (zero, _), (one, _) = run(program, near=seed % 2 > 0, gpus=1 + seed % 3 // 2, seed=seed, placement=scattered)
    assert numpy.array_equal(zero, one) and not numpy.array_equal(zero, wanted)


@pytest.mark.parametrize("near", [False, True])
def test_what_a_gpu_has_of_another_rank_passes_by_memory_that_is_used_again(near: bool) -> None:
    def program(engine: Engine) -> tuple[list[float], list[int]]:
        a, b = vector(tiles=8), vector("B", 8)
        for k in range(8):
            engine.submit(put, write(a[k]), args=(a[k], float(k)))
            engine.submit(on_gpu(lambda x, y: numpy.copyto(y, 3 * x)), read(a[k]), write(b[7 - k]))
            engine.wait()  # one at a time
        nodes = engine._flow.holdings.nodes[2:]
        return engine.array(b)[::4].tolist(), [len(node._all_passages) for node in nodes]

    ranks = run(program, near=near, placement=lambda task, ranks: ranks - 1)
    for (values, passages), _ in ranks:
        assert values == [3.0 * k for k in range(7, -1, -1)]
        assert passages == [0] or not near
    _, [device] = ranks[1]
    assert device.counts["copy_in"] == 8
    assert ranks[1][0][1] == [0 if near else 1]


def test_sums_of_gpus_at_two_ranks_are_added_where_the_block_is() -> None:
    def program(engine: Engine) -> list[float]:
        s = vector("S", 2)
        for number in range(1, 9):
            engine.submit(on_gpu(lambda x, k=number: numpy.add(x, k, out=x)), accumulate(s[number % 2]))
        return engine.array(s)[::4].tolist()

    for near in (False, True):
        for found, [device] in run(program, near=near, placement=scattered):
            assert found == [20.0, 16.0]
            assert "add" not in device.counts  # the transport adds


@pytest.mark.parametrize(("failing", "said"), [("copy_in", "A[0] has no value"), ("copy_out", "B[1] has no value")])
def test_a_gpu_that_fails_at_one_rank_fails_its_tasks_at_all(failing: str, said: str) -> None:
    def rank(transport: Any) -> None:
        memory = FakeGpu()
        if transport.rank == 1:
            memory.device.failing.add(failing)
        with Engine({"gpu": 1}, memories={"gpu": memory}, transport=transport) as engine:
            a, b = vector(), vector("B")
            there = on_gpu(lambda x, y: numpy.copyto(y, x))
            engine.submit(there, read(a[1]), write(b[0]))  # at rank 0, from rank 1
            engine.submit(there, read(a[0]), write(b[1]))  # at rank 1, from rank 0
            refused("E0715" if failing == "copy_in" else "E0710", said, lambda: engine.array(b))

    on_ranks(fake(2, 3, silence_s=20.0), rank)
