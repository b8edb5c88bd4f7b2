"""Size binding: names replaced by numbers, facts decided, constants folded."""

from typing import Any

import checked
import pytest

from texpr.grammar import ast
from texpr.grammar.check.bind import bind_sizes, free_sizes
from texpr.grammar.check.stage import show
from texpr.grammar.diagnostics import Diagnostic, TExprError

TILED = """
size B = 4
kernel f(A: f32[N, M], s: i64[1]) where N % B == 0, M < N or M == 7 {
    par N / B b #tile(B) { seq B i { A[b * B + i, 0] = select(i < M, 1.0, 0.0) } }
    s[0] = N * M + 1
}
"""


def core(text: str) -> ast.Kernel:
    (kernel,) = checked.core(text)
    return kernel


def refused(text: str, **sizes: Any) -> list[str]:
    with pytest.raises(TExprError) as found:
        bind_sizes(core(text), sizes)
    assert all(d.code == "E0211" for d in found.value.diagnostics)
    return [d.message for d in found.value.diagnostics]


def test_bound_sizes_are_constants_everywhere_and_the_rest_stays_free() -> None:
    assert free_sizes(core(TILED)) == ("N", "M")
    bound = bind_sizes(core(TILED), {"N": 16})
    assert free_sizes(bound) == ("M",)
    assert show(bound).splitlines() == [
        "kernel f(A: f32[16, M], s: i64[1]) sizes M where M < 16 or M == 7",
        "  par b: 4 (band 1) #tile(4)",
        "    seq i: 4",
        "      S0: A[b * 4 + i, 0] = select(i < M, 1.0:f32, 0.0:f32)",
        "  S1: s[0] = index(16 * M + 1)",
    ]


def test_a_constant_may_be_bound_to_another_value() -> None:
    assert "par b: 8 (band 1) #tile(2)" in show(bind_sizes(core(TILED), {"N": 16, "B": 2, "M": 1}))


def test_a_fact_that_does_not_hold_is_told_with_its_values() -> None:
    assert refused(TILED, N=18) == ["`N % B == 0` does not hold for N = 18, B = 4"]
    assert refused(TILED, N=8, M=9) == ["`M < N or M == 7` does not hold for M = 9, N = 8"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"Q": 3}, "`Q` is not a size of `f`"),
        ({"N": -1}, "the size `N` is from 0 to 2^63 - 1, -1 was given"),
        ({"N": 1 << 63}, f"the size `N` is from 0 to 2^63 - 1, {1 << 63} was given"),
        ({"N": True}, "the size `N` is an integer, True was given"),
        ({"N": "8"}, "the size `N` is an integer, '8' was given"),
        ({"N": 8, "B": 0}, "`%` divides by 0 with these sizes"),
    ],
)
def test_what_is_no_size_is_refused(sizes: dict[str, object], message: str) -> None:
    assert message in refused(TILED, **sizes)


def test_a_number_that_does_not_fit_64_bits_is_refused() -> None:
    assert refused(TILED, N=1 << 40, M=1 << 40)[-1] == "`N * M + 1` does not fit 64 bits with these sizes"


def test_a_negative_shape_is_refused_and_a_negative_extent_is_empty() -> None:
    text = "kernel f(A: f32[N - 4]) { par N - 5 i { A[i] = 0.0 } }"
    assert refused(text, N=3) == ["an extent of `A` is -1 with these sizes"]
    assert "par i: -1" in show(bind_sizes(core(text), {"N": 4}))


def test_an_inexact_division_is_a_warning_once_the_sizes_are_known() -> None:
    warnings: list[Diagnostic] = []
    text = "kernel f(A: f32[N]) { par N / 16 i { A[i] = 0.0 } }"
    bind_sizes(core(text), {"N": 48}, warnings=warnings)
    assert warnings == []
    bind_sizes(core(text), {"N": 49}, warnings=warnings)
    assert [w.message for w in warnings] == ["49 / 16 floors: 48 of 49 are missed"]


def test_the_length_of_a_flat_buffer_follows_from_the_sizes() -> None:
    text = "par M i, N j { C[i * N + j] = A[j * M + i] }"
    bound = bind_sizes(core(text), {"M": 3, "N": 5})
    assert [b.shape for b in bound.buffers] == [(ast.IndexConst(value=15),)] * 2
