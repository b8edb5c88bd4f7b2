"""The checker: surface programs against the text of their core trees."""

from texpr.grammar import ast
from texpr.grammar.check import check, show
from texpr.grammar.parser import parse
from texpr.grammar.source import SourceText

MATMUL = """
kernel matmul(A: f16[M, K], B: f16[K, N], C: f32[M, N]) {
    par M i, N j #tile(128, 64) {
        C[i, j] = sum K k { A[i, k] * B[k, j] }
    }
}
"""

SEED = """
par M i {
    par N j {
        seq K k {
            C[i * N + j] += A[i * K + k] * B[k * N + j]
        }
    }
}
"""


def core(text: str, **given: object) -> tuple[ast.Kernel, ...]:
    return check(parse(SourceText("t.tex", text)), **given)  # type: ignore[arg-type]


def body(text: str) -> list[str]:
    """The lines of the only kernel's core after its head."""
    (kernel,) = core(text)
    return [line.strip() for line in show(kernel).splitlines()[1:]]


def test_a_reduction_binds_the_identity_and_accumulates_in_a_seq() -> None:
    assert body(MATMUL) == [
        "par i: M (band 1) #tile(128, 64)",
        "par j: N (band 1) #tile(128, 64)",
        "S0: C[i, j] = 0.0:f32",
        "seq k: K",
        "S1: C[i, j] add= mul.f32(f32(A[i, k]), f32(B[k, j]))",
    ]


def test_the_seeds_program_is_one_bare_kernel_with_flat_buffers_in_order_of_appearance() -> None:
    (kernel,) = core(SEED)
    assert kernel.bare
    assert [b.name for b in kernel.buffers] == ["C", "A", "B"]
    assert [s.name for s in kernel.sizes] == ["M", "N", "K"]
    assert "C: f32[M * N] flat" in show(kernel)
