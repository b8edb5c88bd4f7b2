"""Which compiler makes the fastest cubin of a text."""

import pytest

import texpr
from texpr.codegen import toolchain

PRODUCT = (
    "kernel p(A: {t}[{a}], B: {t}[{b}], C: {t}[M, N]) {{ par M i, N j {{ C[i, j] = sum K k {{ A[{x}] * B[{y}] }} }} }}"
)
CASES = {
    "whole tiles": ("f32", "nn", 4096, ""),
    "columns of whole tiles": ("f32", "tn", 4096, ""),
    "tiles with rows of what is summed": ("f32", "nt", 4096, ""),
    "tiles that are cut": ("f32", "nn", 1023, ""),
    "short sums in a row": ("f32", "nn", 512, "nvcc"),
    "tensor cores": ("bf16", "nn", 4096, ""),
}


def made(dtype: str, case: str, size: int) -> texpr.Compiled:
    left, right = ("M, K", "i, k") if case[0] == "n" else ("K, M", "k, i"), ("K, N", "k, j")
    if case[1] == "t":
        right = ("N, K", "j, k")
    text = PRODUCT.format(t=dtype, a=left[0], x=left[1], b=right[0], y=right[1])
    return texpr.parse(text, "p").only.compile("cuda:sm_90a", M=size, N=size, K=size)


@pytest.mark.parametrize("name", CASES)
def test_long_rows_of_products_are_best_by_nvcc(name: str) -> None:
    dtype, case, size, best = CASES[name]
    compiled = made(dtype, case, size)
    assert compiled.build.result("emit").best_by == best


@pytest.mark.parametrize(("named", "size", "by"), [("", 512, "nvcc"), ("", 4096, ""), ("nvrtc", 512, "nvrtc")])
def test_a_cubin_is_made_by_the_best_compiler_unless_one_is_named(
    named: str, size: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from texpr import execute

    asked: list[str] = []
    tool = toolchain.Compiler("/opt/tool", "1")
    monkeypatch.setattr(execute, "_compiler_asked_for", lambda: named)
    monkeypatch.setattr("texpr.cache.cached", lambda kind, parts, make: make())
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: tool)
    monkeypatch.setattr(toolchain, "find_nvrtc", lambda: tool)
    monkeypatch.setattr(toolchain, "compile_cubin", lambda source, arch, by: asked.append(by) or b"")
    execute.cubin_of(made("f32", "nn", size).build)
    assert asked == [by]
