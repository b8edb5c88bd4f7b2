"""Programs with a place for an attribute, and what a build of one says."""

import pytest

import texpr
from texpr.codegen.manifest_io import write_manifest
from texpr.grammar.diagnostics import TExprError

ROWS = "kernel f(A: f32[8], C: f32[8, 64]) { par 8 b %s { par 64 j %s { C[b, j] = A[b] } } }"
WARPS = "kernel f(A: f32[8], C: f32[8, 4, 64]) { par 8 b { par 4 w %s { par 64 j %s { C[b, w, j] = A[b] } } } }"
LONG = "kernel f(A: f32[N], C: f32[N]) %s { par N i { C[i] = A[i] } }"
FOLD = "kernel f(A: f32[9, 64], C: f32[9]) { par 9 i { C[i] = 1.0; seq 64 k %s { C[i] = C[i] * A[i, k] + 1.0 } } }"
PHASES = "kernel f(A: f32[64], C: f32[64]) %s { par 64 i { A[i] = 1.0 }; par 64 i { C[i] = A[63 - i] } }"
SUM = "kernel f(A: f32[1024], s: f32[1]) { s[0] = 0.0; seq 1024 k %s { s[0] += A[k] } }"
ROW_SUM = "kernel f(A: f32[64, 1024], C: f32[64]) { par 64 i #grid { C[i] = sum 1024 k %s { A[i, k] } } }"
COPY = "kernel f(A: f32[64], C: f32[64]) { par 64 i { C[i] = A[i] } }"
MADD = "kernel f(A: f32[64], C: f32[64]) %s { par 64 i { C[i] = A[i] * 3.0 + 1.0 %s } }"
EXPONENTIAL = "kernel f(A: f32[64], C: f32[64]) %s { par 64 i { C[i] = exp(A[i]) %s } }"
SCATTER = "kernel f(A: f32[64], I: i32[64], C: f32[64]) %s { par 64 i { C[I[i]] = A[i] %s } }"
SHARED = (
    "kernel f(A: f32[8], C: f32[8, 64]) { par 8 b { new shared s: i32[3]; new shared t: f32[4, 16] %s\n"
    "par 3 i { s[i] = 1 }; par 64 i { t[i / 16, i %% 16] = A[b] }\n"
    "par 64 i { C[b, i] = t[(63 - i) / 16, (63 - i) %% 16] + f32(s[0]) } } }"
)
MATMUL = (
    "kernel f(A: f32[512, 64], B: f32[64, 512], C: f32[512, 512]) %s {\n"
    "par 512 i, 512 j { C[i, j] = sum 64 k { A[i, k] * B[k, j] } } }"
)
SCALED = "kernel f(A: f32[64, 96], C: f32[64, 96]) { par 64 i, 96 j %s { C[i, j] = A[i, j] * 2.0 } }"
FULLY = "kernel f(A: f32[64]) { fully par 64 i %s { A[i] = 1.0 } }"


def built(program: str, target: str = "cuda-host:sm_90a") -> str:
    """Everything that a build says: mapping, text, manifest."""
    kernel = next(iter(texpr.parse(program)))
    made = kernel.compile(target, stop_after="emit")
    return f"{made.mapping}\n{made.source}\n{write_manifest(made.manifest)}"


def refusal(program: str, target: str, stage: str) -> set[str]:
    with pytest.raises(TExprError) as caught:
        for kernel in texpr.parse(program):
            kernel.compile(target, stop_after=stage)
    assert all(d.help for d in caught.value.diagnostics)
    return {d.code for d in caught.value.diagnostics}
