"""Transports of one rank and of several fake ones keep the rules of `interface`, and not more."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from rank_stress import on_ranks

from texpr.runtime.transport import Local, Spot, Transport, fake

ENGINES: dict[str, Callable[[], list[Any]]] = {
    "local": lambda: [Local()],
    "fake": lambda: fake(3, seed=5),
    "near": lambda: fake(3, seed=5, near=True),
}


def over(transport: Transport, handle: Any) -> None:
    while not transport.test(handle):
        pass


def heard(transport: Transport) -> tuple[int, bytes]:
    while (found := transport.heard()) is None:
        pass
    return found


def exchange(transport: Transport) -> tuple[list[int], list[int], int, bytes]:
    """Each rank puts to the next one, and adds to rank 0; what is there in the end, a ticket, and what the one before
    said."""
    after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    home = transport.expose(7, 64).view(numpy.int64)
    transport.barrier()
    over(transport, transport.nb_put(Spot(7, after, 8), numpy.array([transport.rank + 1, 5])))
    over(transport, transport.nb_accumulate(Spot(7, 0, 32), numpy.full(2, 10)))
    transport.flush(after)
    transport.flush(0)
    ticket = transport.fetch_add(2)
    for word in (b"first", b"%d" % transport.rank):
        transport.tell(after, word)
    assert heard(transport) == (before, b"first")
    _, said = heard(transport)
    transport.barrier()
    reached = transport.reach(7, after)
    if reached is not None:
        there = reached.view(numpy.int64)
        assert there[1:3].tolist() == [transport.rank + 1, 5]
        there[7] = transport.rank
    transport.barrier()
    if transport.reach(7, before) is not None:
        assert home[7] == before
        home[7] = 0
    got = numpy.empty(2, numpy.int64)
    over(transport, transport.nb_get(Spot(7, 0, 32), got))
    mine = home.tolist()
    transport.conceal(7)
    return mine, got.tolist(), ticket, said


@pytest.mark.parametrize("kind", ENGINES)
def test_what_is_put_added_got_and_said_arrives(kind: str) -> None:
    ranks = ENGINES[kind]()
    found = on_ranks(ranks, exchange)
    for rank, (mine, got, _, said) in enumerate(found):
        before = (rank - 1) % len(ranks)
        sums = [10 * len(ranks)] * 2
        assert mine == [0, before + 1, 5, 0, *(sums if rank == 0 else [0, 0]), 0, 0]
        assert got == sums and said == b"%d" % before
    assert sorted(ticket for _, _, ticket, _ in found) == [2 * k for k in range(len(ranks))]


def test_what_nobody_flushes_may_be_missing() -> None:
    def forgets(seed: int) -> bool:
        left, right = fake(2, seed)
        found = on_ranks([left, right], lambda rank: rank.expose(0, 8).view(numpy.int64))
        over(left, left.nb_put(Spot(0, 1, 0), numpy.array([3])))
        return bool(found[1][0] == 0)

    assert sum(map(forgets, range(20))) > 10


@pytest.mark.parametrize("kind", ENGINES)
def test_sums_are_of_the_types_that_mpi_adds(kind: str) -> None:
    known = {
        name: ENGINES[kind]()[0].adds(numpy.dtype(name))
        for name in ("float16", "float32", "float64", "int8", "uint64", "bool")
    }
    assert known == {"float16": False, "float32": True, "float64": True, "int8": True, "uint64": True, "bool": False}
