"""A product of matrices of 16 bits in Triton as it compiles for sm_80: `mma.sync` and `cp.async`, in machine code for
the GPU at hand. Tiles in bands, autotuned for each size among those of Triton's tutorial and what was best here."""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.nvidia import compiler

AMPERE, BAND = 80, 8
TILES = (  # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 4), (128, 128, 64, 3, 8), (128, 128, 32, 4, 4),
    (128, 128, 32, 5, 4), (256, 64, 32, 4, 4), (64, 256, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4),
    (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4),
)  # fmt: skip


_usual = compiler.sm_arch_from_capability


def _machine_code(capability: int) -> str:
    """What the assembler is told: of what is compiled for sm_80, the GPU at hand."""
    major, minor = torch.cuda.get_device_capability()
    return _usual(10 * major + minor if capability == AMPERE else capability)


compiler.sm_arch_from_capability = _machine_code
CHOICES = [
    triton.Config({"rows": rows, "columns": columns, "depth": depth}, num_stages=stages, num_warps=warps)
    for rows, columns, depth, stages, warps in TILES
]


@triton.autotune(configs=CHOICES, key=["m", "n", "k", "a_k", "b_k"])
@triton.jit
def _product(
    a, b, c, m, n, k, a_row, a_k, b_k, b_column, whole: tl.constexpr, band: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    down, across = tl.cdiv(m, rows), tl.cdiv(n, columns)
    number, each = tl.program_id(0), band * across
    first = number // each * band
    height = min(down - first, band)
    row, column = (first + number % each % height) * rows, number % each // height * columns
    i, j, at = row + tl.arange(0, rows), column + tl.arange(0, columns), tl.arange(0, depth)
    at_a = a + (i % m)[:, None] * a_row + at[None, :] * a_k  # a row behind the last one is another's
    at_b = b + at[:, None] * b_k + (j % n)[None, :] * b_column
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    for step in range(tl.cdiv(k, depth)):
        if whole:
            left, right = tl.load(at_a), tl.load(at_b)
        else:
            left = tl.load(at_a, at[None, :] < k - step * depth, 0.0)
            right = tl.load(at_b, at[:, None] < k - step * depth, 0.0)
        sums = tl.dot(left, right, sums)
        at_a += depth * a_k
        at_b += depth * b_k
    tl.store(c + i[:, None] * n + j[None, :], sums.to(c.dtype.element_ty), (i[:, None] < m) & (j[None, :] < n))


def gemm(a: Any, b: Any, out: Any) -> None:
    """The product of two matrices, either of which may be a transposed view. Raises ValueError for a batch of them, and
    where the machine code has no `mma.sync`."""
    if a.dim() != 2:
        raise ValueError("a product of two matrices")
    (m, k), n = a.shape, b.shape[1]

    def grid(choice: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, choice["rows"]) * triton.cdiv(n, choice["columns"]),)

    whole = k % max(choice[2] for choice in TILES) == 0
    made = _product[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), whole, BAND, arch=f"sm{AMPERE}")
    if "mma.sync" not in made.asm["ptx"] or "wgmma" in made.asm["ptx"]:
        raise ValueError("this Triton makes other instructions than those of sm_80")
