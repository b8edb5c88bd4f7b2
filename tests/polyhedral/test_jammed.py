"""Products on a CPU, of which a few rows and a few products are taken together inside the innermost loop."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from stages import mapped, only_launch

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.on_cores import Cores
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.mapped.walks import every_node
from texpr.polyhedral.simulate.stage import simulate

PRODUCT = (
    "kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) { par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } } }"
)
ADDED = """kernel k(A: f32[K, M], B: f32[K, N], inout C: f32[M, N]) {
    par M i, N j { seq K k { C[i, j] += A[k, i] * B[k, j] } }
}"""
TWO = """kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j {
        C[i, j] = sum K k { A[i, k] * B[k, j] }
        C[i, j] += maximum K l { A[i, l] * B[l, j] }
    }
}"""
WINDOW = """kernel k(A: f32[M, 3, K], B: f32[K, N + 2], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum 3 s, K k { A[i, s, k] * B[k, j + s] } }
}"""
SHORT = {"M": 20, "N": 64, "K": 64}  # longer sides have panels (`test_panels.py`)
SIZES = ((8, 5, 8), (7, 3, 9), (4, 1, 1), (5, 2, 4))


def jam_of(text: str, **sizes: int) -> dict[str, int]:
    (choice,) = mapped(text, "cpu", **sizes).candidate.launches.values()
    assert isinstance(choice, Cores)
    return dict(choice.jam)


def arrays(text: str, m: int, n: int, k: int) -> dict[str, Any]:
    rng = np.random.default_rng([m, n, k])
    first = {ADDED: (k, m), WINDOW: (m, 3, k)}.get(text, (m, k))
    shapes = {"A": first, "B": (k, n + 2 * (text is WINDOW)), "C": (m, n)}
    return {name: rng.integers(-8, 9, shape).astype(np.float32) for name, shape in shapes.items()}


def wanted(text: str, given: dict[str, Any]) -> Any:
    a, b, c = given["A"], given["B"], given["C"]
    if text is ADDED:
        return c + a.T @ b
    if text is WINDOW:
        return sum(a[:, s] @ b[:, s : s + c.shape[1]] for s in range(3))
    return a @ b + ((a[:, :, None] * b).max(1) if text is TWO else 0)


@pytest.mark.parametrize("text", [PRODUCT, ADDED, TWO, WINDOW], ids=["product", "added", "two", "window"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sums_are_those_of_the_program(text: str, m: int, n: int, k: int) -> None:
    given = arrays(text, m, n, k)
    found = simulate(mapped(text, "cpu", M=m, N=n, K=k), given)
    np.testing.assert_array_equal(found["C"], wanted(text, given))


@pytest.mark.parametrize("text", [WINDOW], ids=["window"])
def test_the_text_with_free_sizes_is_right_at_each(text: str) -> None:
    made = texpr.parse(text.replace(") {", ") where K <= 64 {", 1)).only.compile("cpu")
    assert "for i_one in range(4):" in made.source
    for m, n, k in (*SIZES, (0, 3, 4), (3, 0, 4), (3, 3, 0), (9, 40, 33)):
        given = arrays(text, m, n, k)
        right = wanted(text, given)
        given["C"][...] = np.nan
        made(**given)
        np.testing.assert_array_equal(given["C"], right)


@cache
def of_three_less() -> texpr.Compiled:
    text = WINDOW.replace(") {", ") where K <= 64 {", 1).replace("K k", "K - 3 k")
    return texpr.parse(text).only.compile("cpu")


@pytest.mark.parametrize("k", [0, 1, 2, 3, 6])
def test_a_sum_of_less_than_no_iterations_adds_nothing(k: int) -> None:
    made = of_three_less()
    assert "for i_one in range(4):" in made.source
    given = arrays(WINDOW, 6, 33, k)
    right = wanted(WINDOW, {**given, "A": given["A"][..., : max(0, k - 3)], "B": given["B"][: max(0, k - 3)]})
    made(**given)
    np.testing.assert_array_equal(given["C"], right)


def test_whole_groups_have_no_guard_and_no_rest() -> None:
    launch = only_launch(mapped(PRODUCT, "cpu", **SHORT))
    assert not any(isinstance(node, Guard) for node in every_node(launch.body))
    assert [node.index for node in every_node(launch.body) if isinstance(node, Loop)] == [
        "j", "i_one", "k_group", "j", "i_one_1", "k_one",
    ]  # fmt: skip
    ragged = only_launch(mapped(PRODUCT, "cpu", M=21, N=64, K=66))
    assert any(isinstance(node, Guard) and node.orelse for node in every_node(ragged.body))


def test_what_is_read_without_a_core_index_is_shared() -> None:
    assert jam_of(PRODUCT, **SHORT) == {"i": 4, "k": 4}
    assert jam_of(WINDOW, M=64, N=64, K=64) == {"i": 4, "k": 4}
    assert jam_of(PRODUCT, M=64, N=64, K=3) == {"i": 4, "k": 3}


@pytest.mark.parametrize(
    ("rows", "a", "b", "depth", "term"),
    [
        ("M", "M, K", "M, K, N", "K", "A[i, k] * B[i, k, j]"),  # every row has a B of its own
        ("M", "M, M", "M, N", "i + 1", "A[i, k] * B[k, j]"),  # rows of several lengths
        ("M", "M, 5000", "5000, N", "5000", "A[i, k] * B[k, j]"),  # a long sum
        ("2", "2, K", "K, N", "K", "A[i, k] * B[k, j]"),  # no whole group
    ],
)
def test_other_bands_run_row_by_row(rows: str, a: str, b: str, depth: str, term: str) -> None:
    header = f"kernel k(A: f32[{a}], B: f32[{b}], C: f32[{rows}, N])"
    text = f"{header} {{ par {rows} i, N j {{ C[i, j] = sum {depth} k {{ {term} }} }} }}"
    assert jam_of(text, **{name: SHORT[name] for name in "MNK" if name in header[7:]}) == {}


def test_a_jam_from_outside_is_one_of_those_that_there_are() -> None:
    kernel = texpr.parse(PRODUCT).only
    sizes = {"M": 16, "N": 16, "K": 16}
    found = mapped(PRODUCT, "cpu", **sizes).candidate
    assert isinstance(found, Candidate)
    ((name, choice),) = found.launches.items()
    assert isinstance(choice, Cores)
    for jam, said in (
        ({"i": 4}, "are not taken together"),
        ({"j": 4, "k": 4}, "are not taken"),
        ({"i": 0, "k": 4}, "less than one"),
    ):
        wrong = replace(found, launches={name: replace(choice, jam=jam)})
        with pytest.raises(TExprError, match=said):
            kernel.compile("cpu", sizes=sizes, mapping=wrong)
    other = replace(found, launches={name: replace(choice, jam={"i": 3, "k": 5})})
    given = arrays(PRODUCT, 16, 16, 16)
    kernel.compile("cpu", sizes=sizes, mapping=other)(**given)
    np.testing.assert_array_equal(given["C"], given["A"] @ given["B"])
