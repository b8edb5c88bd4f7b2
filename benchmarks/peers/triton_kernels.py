"""Some of the memory-bound problems as short Triton kernels, with the usual choices; and a read-only sum.

Each function takes the inputs in the order of the program's, and the output; rows of more than MAX_ROW elements have
no kernel here.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

MAX_ROW = 1 << 16
PIECE = 1024  # elements of a program of an elementwise kernel
TILE = 64  # of a transpose
READERS = 16  # programs of a read-only sum on each multiprocessor


@triton.jit
def _add_gelu(a, b, y, count, piece: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * piece + tl.arange(0, piece)
    some = at < count
    x = tl.load(a + at, some).to(tl.float32) + tl.load(b + at, some).to(tl.float32)
    tl.store(y + at, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), some)


@triton.jit
def _swiglu(a, b, y, count, piece: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * piece + tl.arange(0, piece)
    some = at < count
    x = tl.load(a + at, some).to(tl.float32)
    tl.store(y + at, x * tl.sigmoid(x) * tl.load(b + at, some).to(tl.float32), some)


@triton.jit
def _row_sum(x, s, width, row: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, row)
    tl.store(s + i, tl.sum(tl.load(x + i * width + j, j < width, 0.0).to(tl.float32), 0))


@triton.jit
def _softmax(x, y, width, row: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, row)
    value = tl.load(x + i * width + j, j < width, float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + i * width + j, value / tl.sum(value, 0), j < width)


@triton.jit
def _rmsnorm(x, g, y, width, row: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, row)
    value = tl.load(x + i * width + j, j < width, 0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + 1e-6)
    tl.store(y + i * width + j, value * scale * tl.load(g + j, j < width).to(tl.float32), j < width)


@triton.jit
def _layernorm(x, g, b, y, width, row: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, row)
    value = tl.load(x + i * width + j, j < width, 0.0).to(tl.float32)
    value = tl.where(j < width, value - tl.sum(value, 0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + 1e-5)
    weight, bias = tl.load(g + j, j < width).to(tl.float32), tl.load(b + j, j < width).to(tl.float32)
    tl.store(y + i * width + j, value * scale * weight + bias, j < width)


@triton.jit
def _matrix_vector(a, x, y, width, row: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, row)
    terms = tl.load(a + i * width + j, j < width, 0.0).to(tl.float32) * tl.load(x + j, j < width, 0.0).to(tl.float32)
    tl.store(y + i, tl.sum(terms, 0))


@triton.jit
def _transpose(x, y, rows, columns, tile: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    j = tl.program_id(1).to(tl.int64) * tile + tl.arange(0, tile)
    value = tl.load(x + i[:, None] * columns + j[None, :], (i < rows)[:, None] & (j < columns)[None, :])
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(value), (j < columns)[:, None] & (i < rows)[None, :])


@triton.jit
def _read(x, s, count, programs, piece: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * piece
    total = tl.zeros((piece,), tl.float32)
    for start in range(first, count, programs.to(tl.int64) * piece):
        at = start + tl.arange(0, piece)
        total += tl.load(x + at, at < count, 0.0)
    tl.store(s + tl.program_id(0), tl.sum(total, 0))


def _elementwise(kernel: Any) -> Callable[..., None]:
    def call(*arrays: Any) -> None:
        count = arrays[-1].numel()
        kernel[(triton.cdiv(count, PIECE),)](*arrays, count, piece=PIECE)

    return call


def _by_rows(kernel: Any) -> Callable[..., None]:
    def call(*arrays: Any) -> None:
        rows, width = arrays[0].shape
        row = triton.next_power_of_2(width)
        warps = min(max(row // 1024, 4), 32)
        kernel[(rows,)](*arrays, width, row=row, num_warps=warps)

    return call


def _transposed(x: Any, y: Any) -> None:
    rows, columns = x.shape
    _transpose[(triton.cdiv(rows, TILE), triton.cdiv(columns, TILE))](x, y, rows, columns, tile=TILE)


def read_only(x: Any, partials: Any) -> None:
    """Sums of the parts of x: one for each element of `partials`."""
    _read[(partials.numel(),)](x, partials, x.numel(), partials.numel(), piece=2048, num_warps=8)


def readers() -> int:
    """How many parts a read-only sum has."""
    return int(torch.cuda.get_device_properties(0).multi_processor_count) * READERS


BY_ROWS = {
    "row_sum": _row_sum, "softmax": _softmax, "rmsnorm": _rmsnorm, "layernorm": _layernorm,
    "matrix_vector": _matrix_vector,
}  # fmt: skip
PEERS: dict[str, Callable[..., None]] = {
    "add_gelu": _elementwise(_add_gelu),
    "swiglu": _elementwise(_swiglu),
    "transpose": _transposed,
    **{name: _by_rows(kernel) for name, kernel in BY_ROWS.items()},
}


def has(name: str, columns: int) -> bool:
    return name in PEERS and (name not in BY_ROWS or columns <= MAX_ROW)
