"""Contractions by tasks on blocks have NumPy's results, and cost nothing where blocks are zero."""

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from test_tensors import refused

from texpr.tasks import Engine, TaskContext, Tensor, einsum, may_accumulate, may_read, tiled

ENGINES: dict[str, dict[str, Any]] = {
    "home": {"workers": 2},
    "out of core": {"workers": {"fast": 2}, "memories": {"fast": 4 * 8 * 16}},
    "both": {"workers": {"home": 1, "fast": 1}, "memories": {"fast": None}},
}
SPACES = {"i": tiled(5, 2), "j": tiled(4, 4), "k": tiled(7, (3, 4)), "l": tiled(3, 2)}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(**ENGINES[request.param], debug=True) as made:
        yield made


def tensor(name: str, letters: str, **options: Any) -> Tensor:
    spaces = tuple(SPACES[letter] for letter in letters)
    data = numpy.random.default_rng(len(name)).integers(-5, 6, tuple(space.extent for space in spaces))
    return Tensor(name, spaces, data=numpy.array(data, float), **options)


@pytest.mark.parametrize(
    ("subscripts", "tasks"),
    [
        ("ik,kj->ij", 6), ("ij->ji", 3), ("ik,kl,lj->ji", 12), ("ik->k", 6), ("ik,ik->", 6), ("i,j->ij", 3),
        ("ii->i", 3), ("k,kl->kl", 4),
    ],
)  # fmt: skip
def test_contractions_are_those_of_numpy(engine: Engine, subscripts: str, tasks: int) -> None:
    before, _, after = subscripts.partition("->")
    operands = [tensor("A" * (n + 1), letters) for n, letters in enumerate(before.split(","))]
    out = tensor("OUT", after)
    expected = out.at_home() - 2 * numpy.einsum(subscripts, *(operand.at_home() for operand in operands))
    assert einsum(engine, subscripts, *operands, out=out, alpha=-2) == tasks
    assert numpy.array_equal(engine.array(out), expected)


def test_one_block_may_be_several_operands(engine: Engine) -> None:
    a, out = tensor("A", "ii"), tensor("B", "ii")
    expected = out.at_home() + a.at_home() @ a.at_home()
    einsum(engine, "ik,kj->ij", a, a, out=out)
    assert numpy.array_equal(engine.array(out), expected)


def test_slices_and_blocks_are_operands(engine: Engine) -> None:
    space = tiled(10, 3, {"occ": (0, 4), "virt": (4, 10)})
    rng = numpy.random.default_rng(0)
    a, b = (Tensor(name, (space, space), data=rng.integers(0, 5, (10, 10)) * 1.0) for name in "AB")
    out, vector = Tensor("C", (space["occ"], space["occ"])), Tensor("D", (space["occ"],))
    expected = a.at_home()[:4, 4:] @ b.at_home()[4:, :4]
    expected_vector = a.at_home()[:4, 0:3] @ b.at_home()[4:7, 0:3].T @ numpy.ones(3)
    assert einsum(engine, "ik,kj->ij", a["occ", "virt"], b["virt", "occ"], out=out) == 2 * 2 * 2
    assert einsum(engine, "ik,jk->i", a["occ", 0], b[2, 0], out=vector) == 2
    assert numpy.array_equal(engine.array(out), expected)
    assert numpy.array_equal(engine.array(vector), expected_vector)


def test_products_of_zero_blocks_are_not_made() -> None:
    space = tiled(8, 2)
    data = numpy.kron(numpy.tril(numpy.ones((4, 4))), numpy.ones((2, 2)))
    lower = Tensor("L", (space, space), zero=lambda i, j: j > i, data=data)
    out = Tensor("C", (space, space), zero=lambda i, j: j > i)
    with Engine(1) as engine:
        assert einsum(engine, "ik,kj->ij", lower, lower, out=out) == sum(
            i - j + 1 for i in range(4) for j in range(i + 1)
        )
        assert numpy.array_equal(engine.array(out), data @ data)


def test_a_task_submits_contractions_as_its_children(engine: Engine) -> None:
    a, out = tensor("A", "ik"), tensor("B", "i")
    expected = out.at_home() + a.at_home().sum(1)

    def parent(context: TaskContext) -> None:
        einsum(context, "ik->i", a, out=out)

    engine.submit(parent, may_read(a), may_accumulate(out))
    assert numpy.array_equal(engine.array(out), expected)


@pytest.mark.parametrize(
    ("subscripts", "said", "operands"),
    [
        ("ik,kj", "and an arrow", "ik,kj"),
        ("i1,1j->ij", "indices of one letter", "ik,kj"),
        ("ik->ij", "it has 1 operands, and 2 are given", "ik,kj"),
        ("ikl,kj->ij", "`ikl` has 3 indices, and Tensor(A, float64[5, 7], 3x2 blocks) has 2", "ik,kj"),
        ("ik,kj->im", "each index behind the arrow stands there once, and before it: `im`", "ik,kj"),
        ("ij,jk->ii", "stands there once", "ij,jk"),
        ("ik,kj->ij", "index k has tiles (3, 4) in Tensor(A, float64[5, 7], 3x2 blocks) and (2, 1)", "ik,lj"),
    ],
)  # fmt: skip
def test_what_is_no_contraction_is_refused(subscripts: str, said: str, operands: str) -> None:
    given = [tensor("A" * (n + 1), letters) for n, letters in enumerate(operands.split(","))]
    out = tensor("C", "ij")
    with Engine(1) as engine:
        refused("E0703", said, lambda: einsum(engine, subscripts, *given, out=out))
        refused("E0703", "A is both an operand and `out`", lambda: einsum(engine, "ik->ik", given[0], out=given[0]))
        refused("E0703", "not a ndarray", lambda: einsum(engine, "i->i", numpy.ones(2), out=out))  # type: ignore[arg-type]  # on purpose
        assert engine.counters.submitted == 0
