# ruff: noqa: N803 -- constants of Triton are capitals
"""Triton from a kernel's source to a Hopper cubin, without a GPU: for `benchmarks/compile_cubins.py`, in its own
environment. Kernels as in its tutorials; a case is compiled for another tile first where it is asked for `warm`.

    python benchmarks/peers/triton_compile.py CASE new|warm
"""

import json
import os
import sys
import time
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    group = pid // (GROUP * across)
    high = min(tl.cdiv(M, BM) - group * GROUP, GROUP)
    row = group * GROUP + (pid % (GROUP * across)) % high
    column = (pid % (GROUP * across)) // high
    i, j, k = (row * BM + tl.arange(0, BM)) % M, (column * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    at_a, at_b = a + i[:, None] * K + k[None, :], b + k[:, None] * N + j[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        x = tl.load(at_a, mask=k[None, :] < K - step * BK, other=0.0)
        y = tl.load(at_b, mask=k[:, None] < K - step * BK, other=0.0)
        sums = tl.dot(x, y, sums, input_precision=PRECISION)
        at_a += BK
        at_b += BK * N
    i, j = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    tl.store(c + i[:, None] * N + j[None, :], sums.to(c.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    own = tl.load(x + row * columns + j, mask=j < columns, other=-float("inf"))
    e = tl.exp(own - tl.max(own, axis=0))
    tl.store(y + row * columns + j, e / tl.sum(e, axis=0), mask=j < columns)


@triton.jit
def add_gelu(a, b, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n)
    tl.store(y + at, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=at < n)


Tile = dict[str, Any]
CASES: dict[str, tuple[Any, str, Tile, Tile, int]] = {  # kernel, element, its constants, others, warps
    "matmul f32": (
        matmul, "fp32", {"BM": 64, "BN": 64, "BK": 32, "GROUP": 8, "PRECISION": "ieee"}, {"BK": 16}, 4,
    ),
    "matmul bf16": (
        matmul, "bf16", {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "PRECISION": "tf32"}, {"BK": 32}, 8,
    ),
    "softmax": (softmax, "fp32", {"BLOCK": 4096}, {"BLOCK": 2048}, 4),
    "add+gelu": (add_gelu, "fp32", {"BLOCK": 1024}, {"BLOCK": 512}, 4),
}  # fmt: skip


def cubin(case: str, other: bool) -> bytes:
    kernel, element, constants, others, warps = CASES[case]
    values = constants | (others if other else {})
    names = [parameter.name for parameter in kernel.params]
    plain = [name for name in names if name not in values]
    signature = {name: f"*{element}" if name.islower() and len(name) == 1 and name != "n" else "i32" for name in plain}
    attributes = {(number,): [["tt.divisibility", 16]] for number, name in enumerate(names) if name in plain}
    source = ASTSource(kernel, signature | dict.fromkeys(values, "constexpr"), constexprs=values, attrs=attributes)
    options = {"num_warps": warps, "num_stages": 3}
    found: bytes = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]
    return found


def main() -> None:
    case, way = sys.argv[1:]
    if way == "warm":
        cubin(case, other=True)
    before, begun = os.times(), time.perf_counter()
    size = len(cubin(case, other=False))
    wall, after = time.perf_counter() - begun, os.times()
    print(json.dumps({"wall": wall, "cpu": sum(after[:4]) - sum(before[:4]), "bytes": size}))


main()
