"""Sums of products on a CPU in packed panels: the program's results in any form, at any size, and what has panels."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from stages import mapped, program

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.on_cores import Cores, Panels
from texpr.polyhedral.simulate.stage import simulate

pytestmark = pytest.mark.usefixtures("threads")  # tiles are shared out


def of(a: str, b: str, body: str, c: str = "C: f32[M, N]") -> str:
    return f"kernel k(A: f32[{a}], B: f32[{b}], {c}) {{ par M i, N j {{ {body} }} }}"


TEXTS = {
    "nn": of("M, K", "K, N", "C[i, j] = sum K k { A[i, k] * B[k, j] }"),
    "nt": of("M, K", "N, K", "C[i, j] = sum K k { A[i, k] * B[j, k] }"),
    "tn": of("K, M", "K, N", "C[i, j] = sum K k { B[k, j] * A[k, i] }"),
    "tt": of("K, M", "N, K", "C[i, j] = sum K k { A[k, i] * B[j, k] }"),
    "turned": of("M, K", "K, N", "C[j, i] = sum K k { A[i, k] * B[k, j] }", "C: f32[N, M]"),
    "added": of("M, K", "K, N", "seq K k { C[i, j] += A[i, k] * B[k, j] }", "inout C: f32[M, N]"),
    "flat": of("M * K", "K * N", "C[i * N + j] = sum K k { A[i * K + k] * B[k * N + j] }", "C: f32[M * N]"),
    "beside": of("M, K", "K, N", "C[i, j] = max(0.0, D[j] + 2.0 * sum K k { A[i, k] * B[k, j] })",
                 "D: f32[N], C: f32[M, N]"),
    "edge": of("M, K", "K, N", "C[i, j] = sum K k { select(k < i, A[i, k], 0.0) * B[k, j] }"),
    "shifted": of("M, K + 2", "K, N + 1", "C[i, j] = sum K k { A[i, k + 2] * B[k, j + 1] }"),
    "strict": of("M, K", "K, N", "C[i, j] = 0.0; seq K k { C[i, j] += A[i, k] * B[k, j] #strict }"),
    "half": of("M, K", "K, N", "C[i, j] = sum K k { f32(A[i, k]) * f32(B[k, j]) }").replace("A: f32", "A: f16"),
    "whole": of("M, K", "K, N", "C[i, j] = sum K k { A[i, k] * B[k, j] }").replace("f32", "i32"),
    "wide": of("M, K", "K, N", "C[i, j] = sum K k { A[i, k] * B[k, j] }").replace("f32", "f64"),
    "batch": """kernel k(A: f32[P, M, K], B: f32[K, N], C: f32[P, M, N]) {
        par P b, M i, N j { C[b, i, j] = sum K k { A[b, i, k] * B[k, j] } }
    }""",
}  # fmt: skip
SIZES = ((5, 9, 11), (4, 8, 8), (1, 1, 1))
TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32}


def sizes_of(text: str, m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k} | ({"P": 3} if "P b" in text else {})


def arrays(text: str, **sizes: int) -> dict[str, Any]:
    rng = np.random.default_rng(list(sizes.values()))
    found: dict[str, Any] = {}
    for buffer in program(text, **sizes).kernel.params:
        shape = tuple(extent.value for extent in buffer.shape)  # type: ignore[union-attr]  # sizes are bound
        found[buffer.name] = rng.integers(-8, 9, shape).astype(TYPES[buffer.dtype.name])
    return found


def small(text: str, depth: int = 4, **sizes: int) -> Candidate:
    """Panels of 2 by 4 sums, a few products deep, in tiles of 4 by 8."""
    own = mapped(text, "cpu", **dict.fromkeys(sizes, 100)).candidate
    assert isinstance(own, Candidate)
    ((name, choice),) = own.launches.items()
    assert isinstance(choice, Panels)
    tile, each = {choice.across: 4, choice.along: 8}, {choice.across: 2, choice.along: 4}
    return replace(own, launches={name: replace(choice, tile=tile, each=each, depth=depth)}, shared=frozenset())


EMPTY = [("nn", (3, 5, 0)), ("added", (3, 5, 0)), ("beside", (3, 5, 0)), ("nn", (0, 5, 3)), ("nn", (3, 0, 3))]


@pytest.mark.parametrize(("name", "m_n_k"), [*product(TEXTS, SIZES), *EMPTY], ids=str)
def test_sums_are_those_of_the_program(name: str, m_n_k: tuple[int, int, int]) -> None:
    text = TEXTS[name]
    sizes = sizes_of(text, *m_n_k)
    given = arrays(text, **sizes)
    wanted = interpret(program(text, **sizes).kernel, given).outputs["C"]
    found = simulate(mapped(text, "cpu", small(text, **sizes), **sizes), given)
    np.testing.assert_array_equal(found["C"], wanted)


def test_a_long_sum_is_made_in_chunks_that_are_added_in_f64() -> None:
    text, sizes = TEXTS["nn"], {"M": 2, "N": 2, "K": 4097}
    own = mapped(text, "cpu", small(text, 1024, **sizes), **sizes)
    assert "C_total" in own.buffers and own.buffers["C_total"].dtype.name == "f64"
    given = {
        "A": np.ones((2, 4097), np.float32),
        "B": np.full((4097, 2), 4097.0, np.float32),
        "C": np.zeros((2, 2), np.float32),
    }
    np.testing.assert_array_equal(simulate(own, given)["C"], np.full((2, 2), 4097.0**2, np.float32))
    assert "C_total" not in mapped(text, "cpu", M=100, N=100, K=4096).buffers


def test_compiled_text_is_right_at_every_size() -> None:
    text = TEXTS["beside"]
    made = texpr.parse(text).only.compile("cpu")
    assert made.source.count("multiply(") == 1 and "prange" in made.source
    for m, n, k in ((300, 70, 260), (7, 300, 5), (1, 1, 4099), (0, 3, 4), (3, 0, 4), (3, 3, 0), (67, 65, 1)):
        given = arrays(text, M=m, N=n, K=k)
        right = np.maximum(0.0, given["D"] + 2.0 * (given["A"] @ given["B"]))
        given["C"][...] = np.nan
        made(**given)
        np.testing.assert_array_equal(given["C"], right)


@pytest.mark.parametrize(("bits", "count"), [(128, 16), (256, 16), (512, 32)])
def test_a_panel_is_multiplied_in_pieces_that_registers_hold(
    monkeypatch: pytest.MonkeyPatch, bits: int, count: int
) -> None:
    from texpr.codegen.cpu import library, multiply

    monkeypatch.setattr(multiply, "_registers", lambda: (bits, count))
    scope: dict[str, Any] = dict(vars(library))
    text = """@njit("void(int64, int64, int64, int64)", error_model="numpy")
def run(c, a, b, k):
    multiply(pointer_f32(c), pointer_f32(a), pointer_f32(b), k, 3, 21, 24, 1, 3, 21, 1)
"""
    exec(text, scope)
    a, b = (np.arange(5 * n, dtype=np.float32).reshape(5, n) for n in (3, 21))
    for products in (0, 1, 5):
        c = np.ones((3, 24), np.float32)
        scope["run"](c.ctypes.data, a.ctypes.data, b.ctypes.data, products)
        wanted = np.ones((3, 24), np.float32)
        wanted[:, :21] += a[:products].T @ b[:products]
        np.testing.assert_array_equal(c, wanted)


def choice_of(text: str, **sizes: int) -> Cores | Panels:
    (choice,) = mapped(text, "cpu", **sizes).candidate.launches.values()
    assert isinstance(choice, Cores | Panels)
    return choice


def test_panels_are_shaped_by_the_sides() -> None:
    one = choice_of(TEXTS["nn"], M=1024, N=1024, K=1024)
    assert isinstance(one, Panels)
    assert (dict(one.tile), dict(one.each)) == ({"i": 258, "j": 256}, {"i": 6, "j": 64})
    narrow = choice_of(TEXTS["nn"], M=1024, N=32, K=1024)
    assert isinstance(narrow, Panels) and dict(narrow.each) == {"i": 12, "j": 32}
    turned = choice_of(TEXTS["turned"], M=1024, N=1024, K=1024)
    assert isinstance(turned, Panels) and (turned.along, turned.across) == ("i", "j")


@pytest.mark.parametrize(
    "text",
    [
        of("M, K", "K, N", "C[i, j] = sum K k #ordered { A[i, k] * B[k, j] }"),  # in the order of the text
        of("M, K", "M, N", "C[i, j] = sum i + 1 k { A[i, k] * B[k, j] }").replace(
            "K]", "M]"
        ),  # sums of several lengths
        of("M, K", "K, N", "C[i, j] = maximum K k { A[i, k] * B[k, j] }"),
        of("M, K", "K, N", "C[i, j] = sum K k { A[i, k] * A[i, k] * B[k, j] }"),
        of("M, 3, K", "K, N + 2", "C[i, j] = sum 3 s, K k { A[i, s, k] * B[k, j + s] }"),  # two loops
    ],
)
def test_other_bands_have_loops(text: str) -> None:
    sizes = {name: 100 for name in "MNK" if f"{name}]" in text or f"{name}," in text}
    assert isinstance(choice_of(text, **sizes), Cores)


def test_short_sides_have_loops() -> None:
    for sizes in ({"M": 8, "N": 512, "K": 512}, {"M": 512, "N": 8, "K": 512}, {"M": 512, "N": 512, "K": 8}):
        assert isinstance(choice_of(TEXTS["nn"], **sizes), Cores)


def test_panels_from_outside_are_such() -> None:
    text, sizes = TEXTS["nn"], {"M": 100, "N": 100, "K": 100}
    own = choice_of(text, **sizes)
    assert isinstance(own, Panels)
    for change, said in (
        ({"along": "i"}, "no sides of a sum of products"),
        ({"tile": {"i": 66}}, "`tile` gives i and j"),
        ({"tile": {"i": 66, "j": 65}}, "no multiple"),
        ({"depth": 100}, "4096 is no multiple of 100"),
        ({"each": {"i": 66, "j": 64}, "tile": {"i": 66, "j": 64}}, "registers hold"),
        ({"tile": {"i": 6000, "j": 64000}}, "bytes for its panels"),
    ):
        with pytest.raises(TExprError, match=said):
            mapped(text, "cpu", Candidate(launches={"k_0": replace(own, **change)}), **sizes)
