"""Products of matrices whose rows begin where no tensor map has them, and such whose sizes a call decides."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.index.text import in_words
from texpr.polyhedral.mapped.candidate import Candidate, Cases
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.simulate.stage import simulate

PLAIN = """kernel g(A: bf16[M, K]%s, B: bf16[K, N], C: bf16[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""
BATCH = """kernel g(A: f16[P, M, K], B: f16[P, N, K], C: f32[P, M, N]) {
    par P p, M i, N j { C[p, i, j] = sum K k { A[p, i, k] * B[p, j, k] } }
}"""


def mapping(program: str, **how: Any) -> Any:
    return texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", **how).mapping


def operands(*shapes: tuple[int, ...], dtype: Any = ml_dtypes.bfloat16) -> list[Any]:
    random = np.random.default_rng(5)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def off(got: Any, want: Any) -> float:
    return float(np.linalg.norm(got.astype(float) - want) / max(np.linalg.norm(want), 1e-30)) if want.size else 0.0


@pytest.mark.parametrize(
    ("sizes", "laid"),
    [
        ({"M": 1023, "N": 1025, "K": 1027}, "ABC"),
        ({"M": 512, "N": 512, "K": 516}, "A"),
        ({"M": 511, "N": 510, "K": 512}, "BC"),
        ({"M": 511, "N": 512, "K": 512}, ""),
    ],
)
def test_rows_that_begin_anywhere_are_copied_to_where_boxes_have_them(sizes: dict[str, int], laid: str) -> None:
    found = mapping(PLAIN % "", sizes=sizes).candidate
    assert found.laid == frozenset(laid)
    assert sum(isinstance(choice, Piped) for choice in found.launches.values()) == 1
    assert len(found.launches) == 1 + len(laid)


def smaller(candidate: Candidate) -> Candidate:
    """The same with tiles for small sizes."""
    own = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=2)
    launches = {name: own if isinstance(choice, Piped) else choice for name, choice in candidate.launches.items()}
    return Candidate(launches=launches, laid=candidate.laid)


def test_such_products_are_right() -> None:
    own = smaller(mapping(PLAIN % "", M=1023, N=1025, K=1027).candidate)
    a, b = operands((65, 71), (71, 67))
    got = simulate(
        mapping(PLAIN % "", mapping=own, M=65, N=67, K=71).program,
        {"A": a, "B": b, "C": np.full((65, 67), np.nan).astype(a.dtype)},
    )["C"]
    assert off(got, a.astype(float) @ b.astype(float)) < 4e-3
    own = smaller(mapping(BATCH, P=4, M=513, N=511, K=513).candidate)
    a, b = operands((2, 33, 69), (2, 41, 69), dtype=np.float16)
    program = mapping(BATCH, mapping=own, P=2, M=33, N=41, K=69).program
    got = simulate(program, {"A": a, "B": b, "C": np.full((2, 33, 41), np.nan, np.float32)})["C"]
    assert off(got, a.astype(float) @ b.astype(float).swapaxes(1, 2)) < 1e-6


def test_an_array_whose_rows_are_none_is_refused() -> None:
    own = mapping(PLAIN % "", M=1023, N=1025, K=1027).candidate
    with pytest.raises(texpr.TExprError, match="the candidate lays rows of X, which is no parameter that has them"):
        mapping(PLAIN % "", M=65, N=67, K=71, mapping=Candidate(launches=own.launches, laid=frozenset("X")))


def test_the_cases_of_sizes_that_a_call_decides_are_what_tensor_maps_ask() -> None:
    found = mapping(PLAIN % "").candidate
    assert isinstance(found, Cases)
    large, small, laid = found.cases
    assert in_words(large.when) == in_words(small.when) + " and M * N >= 4194304"
    assert in_words(small.when) == in_words(laid.when) + (
        " and M <= 2097152 and N <= 2097152 and K % 8 == 0 and N % 8 == 0"
    )
    assert in_words(laid.when) == "K >= 1 and M >= 1 and N >= 1 and K <= 131072"
    forms = [{type(c) for c in case.candidate.launches.values()} for case in found.cases]
    assert Piped in forms[2] and forms[:2] == [{Piped}, {Piped}]
    assert not any(isinstance(choice, Piped) for choice in found.otherwise.launches.values())
    assert mapping(PLAIN % "", mapping=found).candidate == found


def test_an_array_that_may_begin_anywhere_has_a_case_too() -> None:
    found = mapping(PLAIN % " #align(2)", M=512, N=512, K=512).candidate
    assert isinstance(found, Cases) and found.otherwise.laid == {"A"}
    assert [in_words(case.when) for case in found.cases] == ["address(A) % 16 == 0"]


@pytest.mark.gxx
def test_one_artifact_serves_every_size() -> None:
    kernel = texpr.parse(PLAIN % " #align(2)").only.compile("cuda-host:sm_90a")
    for rows, columns, depth, behind in (
        (72, 136, 40, 0), (1, 8, 8, 0), (70, 133, 41, 0), (72, 136, 40, 3), (0, 8, 8, 0), (8, 0, 8, 0), (8, 8, 0, 0)
    ):  # fmt: skip
        a, b = operands((rows, depth), (depth, columns))
        room = np.zeros(a.size + behind, a.dtype)
        room[behind:] = a.ravel()
        c = np.full((rows, columns), np.nan).astype(a.dtype)
        kernel(A=room[behind:].reshape(a.shape), B=b, C=c)
        assert off(c, a.astype(float) @ b.astype(float)) < 4e-3


def test_a_product_with_one_row_is_that_of_a_matrix_and_a_vector() -> None:
    text = """kernel g(A: bf16[1, K], B: bf16[N, K], C: bf16[1, N]) {
        par 1 i, N j { C[i, j] = sum K k { A[i, k] * B[j, k] } }
    }"""
    own = mapping(text, N=4096, K=4096).candidate.launches["g_0"]
    assert own.grid == ("j",) and own.shared_out == ("k",)
    a, b = operands((1, 72), (5, 72))
    got = simulate(mapping(text, N=5, K=72).program, {"A": a, "B": b, "C": np.full((1, 5), np.nan).astype(a.dtype)})
    assert off(got["C"], a.astype(float) @ b.astype(float).T) < 4e-3


PARTS = {
    "rows of a caller's array, copied": (
        "kernel g(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) {"
        " par M - 8 i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } } }",
        {"M": 513, "N": 511, "K": 515},
        {"M": 35, "N": 43, "K": 33},
    ),
    "rows of a workspace": (
        "kernel g(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) { new t: bf16[M, K];"
        " par M - 8 i, K k { t[i, k] = 2.0 * A[i, k] }"
        " par M - 8 i, N j { C[i, j] = 0.5 * sum K k { t[i, k] * B[k, j] } } }",
        {"M": 512, "N": 512, "K": 512},
        {"M": 40, "N": 40, "K": 24},
    ),
}


@pytest.mark.parametrize("kind", PARTS)
def test_boxes_may_take_along_rows_that_nothing_wrote(kind: str) -> None:
    program, large, sizes = PARTS[kind]
    chosen = mapping(program, **large).candidate
    launches = {
        name: replace(own, tile={own.across: 64, own.along: 64}, stages=2, persistent=1, cluster=1, split=1)
        if isinstance(own, Piped)
        else own
        for name, own in chosen.launches.items()
    }
    assert any(isinstance(c, Piped) for c in launches.values())
    own = mapping(program, mapping=replace(chosen, launches=launches), **sizes).program
    a, b = operands((sizes["M"], sizes["K"]), (sizes["K"], sizes["N"]))
    c = np.full((sizes["M"], sizes["N"]), np.nan).astype(a.dtype)
    got = simulate(own, {"A": a, "B": b, "C": c})["C"].astype(float)
    assert off(got[:-8], a[:-8].astype(float) @ b.astype(float)) < 4e-3
    assert np.isnan(got[-8:]).all()  # nobody writes there
