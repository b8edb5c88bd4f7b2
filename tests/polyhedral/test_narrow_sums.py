"""On a CPU no sum is rounded to a narrow type at each addition: it accumulates in f32, whatever it is stored in."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import texpr
from texpr.grammar.index.expr import const
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.grammar.types import ELEMENT_TYPES
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

PRODUCT = "kernel k(A: T[M, K], B: T[K, N], S: R[M, N]) { par M i, N j { S[i, j] = sum K k { A[i, k] * B[k, j] } } }"
BATCH = """kernel k(A: T[2, M, K], B: T[2, K, N], S: R[2, M, N]) {
    par 2 b, M i, N j { S[b, i, j] = sum K k { A[b, i, k] * B[b, k, j] } }
}"""
PROGRAMS = {
    "product": PRODUCT,
    "batch": BATCH,
    "added": """kernel k(A: T[M, K], B: T[K, N], inout S: R[M, N]) {
        par M i, N j { seq K k { S[i, j] += A[i, k] * B[k, j] } }
    }""",
    "columns": "kernel k(A: T[K, N], S: R[N]) where K >= 1 { par N j { S[j] = sum K k { A[k, j] } } }",
    "rows": "kernel k(A: T[N, K], S: R[N]) { par N j { S[j] = sum K k { A[j, k] } } }",
    "means": "kernel k(A: T[K, N], S: R[N]) where K >= 1 { par N j { S[j] = sum K k { A[k, j] } / f32(K) } }",
    "sequential": "kernel k(A: T[K, N], inout S: R[N]) { seq K k { par N j { S[j] += A[k, j] } } }",
    "ordered": "kernel k(A: T[K, N], inout S: R[N]) { par N j { seq K k #ordered { S[j] += A[k, j] } } }",
    "parallel": "kernel k(A: T[K, N], inout S: R[N]) { par K k, N j { S[j] += A[k, j] } }",
    "total": "kernel k(A: T[K, N], inout S: R[1]) { par K k, N j { S[0] += A[k, j] / 16.0 } }",
    "local": "kernel k(A: T[N, K], S: R[N]) { par N j { new s: R ; s = 0.0 ; seq K k { s += A[j, k] } ; S[j] = s } }",
    "locals": """kernel k(A: T[K, N], S: R[N]) {
        par N j { new s: R ; s = 0.0 ; seq K k { s += A[k, j] } ; S[j] = s }
    }""",
    "convolution": """kernel k(A: T[N + K - 1], B: T[K], S: R[N]) where K >= 1 {
        par N j { S[j] = sum K k { A[j + k] * B[k] } }
    }""",
    "triangle": "kernel k(A: T[K, K], S: R[K]) { par K i { S[i] = sum i + 1 k { A[k, i] } } }",
    "condition": "kernel k(A: T[K, N], inout S: R[N]) { par N j { seq K k { if k + j > 2 { S[j] += A[k, j] } } } }",
    "data": "kernel k(A: T[K, N], inout S: R[N]) { par N j { seq K k { if A[k, j] > 0.6 { S[j] += A[k, j] } } } }",
    "gathered": "kernel k(A: T[K], B: i32[K], inout S: R[N]) { par K k { atomic S[B[k]] += A[k] } }",
    "workspace": """kernel k(A: T[K, N], S: R[N]) {
        new s: R[N]
        par N j { s[j] = 0.0 } ; par K k, N j { s[j] += A[k, j] } ; par N j { S[j] = s[j] }
    }""",
}
STATES = {
    "read after": """kernel k(A: T[K, N], inout S: R[N], W: R[K, N]) {
        seq K k { par N j { S[j] += A[k, j] ; W[k, j] = S[j] } }
    }""",
    "read by itself": "kernel k(inout S: R[N]) { seq 9 t { par N j { S[j] += 0.01 * S[j] } } }",
}


def kernel_of(text: str, dtype: str, result: str) -> texpr.Kernel:
    return texpr.parse(text.replace("T[", f"{dtype}[").replace(": R", f": {result}")).only


def arrays(kernel: texpr.Kernel, seed: int, **sizes: int) -> dict[str, Any]:
    """Floats from .5 to 1, of which each narrow partial sum would lose some; subscripts within bounds."""
    rng = np.random.default_rng(seed)
    found = {}
    for buffer in kernel.core(sizes=sizes).params:
        shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
        values = rng.integers(0, sizes["N"], shape) if buffer.dtype.is_integer else rng.uniform(0.5, 1.0, shape)
        found[buffer.name] = np.asarray(values).astype(storage(buffer.dtype))
    return found


def mapped(kernel: texpr.Kernel, **sizes: int) -> MappedProgram:
    program: MappedProgram = kernel.compile("cpu", sizes=sizes, stop_after="map").build.result("map")
    return program


def check(text: str, dtype: str, found: Any, values: dict[str, Any], **sizes: int) -> None:
    """Every result is within the interpreter's bound of the same sum in f32, and one rounding, of the exact one."""
    wide = kernel_of(text, dtype, "f32").core(sizes=sizes)
    given = {b.name: values[b.name].astype(storage(b.dtype)) for b in wide.params}
    right = interpret(wide, given, float64=True)
    value, stored = right.outputs["S"], ELEMENT_TYPES[dtype]
    bound = 4 * right.bounds["S"] + 1.01 * 2.0 ** -(stored.mantissa + 1) * np.abs(value)
    assert np.all(np.abs(found.astype(np.float64) - value) <= bound)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
@given(
    dtype=st.sampled_from(["bf16", "f16"]),
    m=st.sampled_from([1, 3, 4, 5, 9]),
    n=st.sampled_from([1, 2, 7, 16, 33]),
    k=st.sampled_from([1, 2, 3, 5, 40, 61]),
    seed=st.integers(0, 99),
)
@settings(max_examples=6)
def test_a_narrow_sum_is_rounded_once(name: str, dtype: str, m: int, n: int, k: int, seed: int) -> None:
    text = PROGRAMS[name]
    sizes = {
        size: count for size, count in {"M": m, "N": n, "K": k}.items() if f"{size}," in text or f"{size}]" in text
    }
    kernel = kernel_of(text, dtype, dtype)
    values = arrays(kernel, seed, **sizes)
    check(text, dtype, simulate(mapped(kernel, **sizes), values)["S"], values, **sizes)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("m", [1, 3, 17])
def test_the_text_of_few_rows_rounds_once(dtype: str, m: int) -> None:
    kernel, sizes = kernel_of(PRODUCT, dtype, dtype), {"M": m, "N": 257, "K": 131}
    values = arrays(kernel, m, **sizes)
    kernel.compile("cpu", sizes=sizes)(**values)
    check(PRODUCT, dtype, values["S"], values, **sizes)


@pytest.mark.parametrize("name", STATES)
def test_what_is_read_between_its_additions_is_a_value_of_its_type(name: str) -> None:
    program = mapped(kernel_of(STATES[name], "bf16", "bf16"), N=5, **({"K": 9} if "K" in STATES[name] else {}))
    assert isinstance(program.candidate, Candidate) and not program.candidate.kept
    assert any("each sum is a value of bf16" in line for line in program.report.notes)


def test_rows_of_few_are_carried_together() -> None:
    program = mapped(kernel_of(PRODUCT, "bf16", "bf16"), M=4, N=64, K=64)
    (row,) = (b for b in program.buffers.values() if b.name == "S_row")
    assert row.dtype.name == "f32" and row.layout.shape[0] == const(4)
