"""A product of matrices of 16 bits in Triton, as its tutorials write it: tiles in bands, autotuned for each size, loads
by tensor maps where rows begin at multiples of 16 bytes, else by pointers."""

from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BAND = 8
TILES = ((64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 64), (128, 256, 64))  # rows, columns, depth
DEPTHS = (3, 4)  # stages
MAP_BYTES = 16  # of which the rows of a tensor map are multiples


def _boxes(given: dict[str, Any]) -> None:
    """The boxes of a choice."""
    rows, columns, depth = (given[name] for name in ("rows", "columns", "depth"))
    if not isinstance(given["a"], TensorDescriptor):
        return
    given["a"].block_shape = [depth, rows] if given["a_turned"] else [rows, depth]
    given["b"].block_shape = [columns, depth] if given["b_turned"] else [depth, columns]
    given["c"].block_shape = [rows, columns]


CHOICES = [
    triton.Config(
        {"rows": rows, "columns": columns, "depth": depth},
        num_stages=stages,
        num_warps=8 if rows * columns > 64 * 128 else 4,
        pre_hook=_boxes,
    )
    for rows, columns, depth in TILES
    for stages in DEPTHS
]


@triton.jit
def _place(m, n, rows: tl.constexpr, columns: tl.constexpr, band: tl.constexpr):
    down, across = tl.cdiv(m, rows), tl.cdiv(n, columns)
    number, each = tl.program_id(0), band * across
    first = number // each * band
    height = min(down - first, band)
    return (first + number % each % height) * rows, number % each // height * columns


@triton.autotune(configs=CHOICES, key=["m", "n", "k", "a_turned", "b_turned"])
@triton.jit
def _by_boxes(
    a, b, c, m, n, k, a_turned: tl.constexpr, b_turned: tl.constexpr, band: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    row, column = _place(m, n, rows, columns, band)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    for step in range(tl.cdiv(k, depth)):
        at = step * depth
        left = a.load([at, row]).T if a_turned else a.load([row, at])
        right = b.load([column, at]).T if b_turned else b.load([at, column])
        sums = tl.dot(left, right, sums)
    c.store([row, column], sums.to(c.dtype))


@triton.autotune(configs=CHOICES, key=["m", "n", "k", "a_turned", "b_turned"])
@triton.jit
def _by_pointers(
    a, b, c, m, n, k, a_row, a_k, b_k, b_column, a_turned: tl.constexpr, b_turned: tl.constexpr, band: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    row, column = _place(m, n, rows, columns, band)
    i, j, at = row + tl.arange(0, rows), column + tl.arange(0, columns), tl.arange(0, depth)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    for step in range(tl.cdiv(k, depth)):
        some = step * depth + at
        left = tl.load(a + i[:, None] * a_row + some[None, :] * a_k, (i[:, None] < m) & (some[None, :] < k), 0.0)
        right = tl.load(b + some[:, None] * b_k + j[None, :] * b_column, (some[:, None] < k) & (j[None, :] < n), 0.0)
        sums = tl.dot(left, right, sums)
    tl.store(c + i[:, None] * n + j[None, :], sums.to(c.dtype.element_ty), (i[:, None] < m) & (j[None, :] < n))


def gemm(a: Any, b: Any, out: Any) -> None:
    """The product of two matrices, either of which may be a transposed view. Raises ValueError for a batch of them."""
    if a.dim() != 2:
        raise ValueError("a product of two matrices")
    (m, k), n = a.shape, b.shape[1]
    turned = not a.is_contiguous(), not b.is_contiguous()
    plain = tuple(array.mT if other else array for array, other in zip((a, b), turned, strict=True))

    def grid(choice: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, choice["rows"]) * triton.cdiv(n, choice["columns"]),)

    if all(array.stride(0) * array.element_size() % MAP_BYTES == 0 for array in (*plain, out)):
        boxes = (TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1]) for x in (*plain, out))
        _by_boxes[grid](*boxes, m, n, k, *turned, BAND)
    else:
        _by_pointers[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), *turned, BAND)
