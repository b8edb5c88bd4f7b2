# ruff: noqa: N803 -- arrays have the names that the kernels give them
"""Hand-written Numba kernels that the CPU backend is measured against.

Each is what a careful user writes: `prange` on the outer loop, `fastmath={"reassoc", "contract"}`, f32 arrays.
`matmul_three_loops` is the seed's program word for word.
"""

import math
from typing import Any

import numpy as np
from numba import njit, prange

FLAGS = {"reassoc", "contract"}


@njit(parallel=True)
def matmul_three_loops(A: Any, B: Any, C: Any) -> None:
    for i in prange(A.shape[0]):
        for j in range(B.shape[1]):
            for k in range(A.shape[1]):
                C[i, j] += A[i, k] * B[k, j]


@njit(parallel=True, fastmath=FLAGS)
def vadd(A: Any, B: Any, C: Any) -> None:
    for i in prange(A.size):
        C[i] = A[i] + B[i]


@njit(parallel=True, fastmath=FLAGS)
def saxpy(alpha: Any, X: Any, Y: Any) -> None:
    for i in prange(X.size):
        Y[i] = np.float32(alpha) * X[i] + Y[i]


@njit(parallel=True, fastmath=FLAGS)
def gelu(X: Any, Y: Any) -> None:
    half, scale, one = np.float32(0.5), np.float32(math.sqrt(0.5)), np.float32(1.0)
    for i in prange(X.size):
        Y[i] = half * X[i] * (one + math.erf(X[i] * scale))


@njit(parallel=True, fastmath=FLAGS)
def row_sums(A: Any, s: Any) -> None:
    for i in prange(A.shape[0]):
        total = np.float32(0.0)
        for j in range(A.shape[1]):
            total += A[i, j]
        s[i] = total


COLUMNS = 1024


@njit(parallel=True, fastmath=FLAGS)
def column_sums(A: Any, s: Any) -> None:
    for chunk in prange((A.shape[1] + COLUMNS - 1) // COLUMNS):
        first = chunk * COLUMNS
        last = min(first + COLUMNS, A.shape[1])
        for j in range(first, last):
            s[j] = np.float32(0.0)
        for i in range(A.shape[0]):
            for j in range(first, last):
                s[j] += A[i, j]


@njit(parallel=True, fastmath=FLAGS)
def total(A: Any, s: Any) -> None:
    found = np.float32(0.0)
    for i in prange(A.size):
        found += A[i]
    s[0] = found


@njit(parallel=True, fastmath=FLAGS)
def greatest(A: Any, s: Any) -> None:
    found = np.float32(-np.inf)
    for i in prange(A.size):
        found = max(found, A[i])
    s[0] = found


@njit(parallel=True, fastmath=FLAGS)
def softmax(X: Any, Y: Any) -> None:
    for i in prange(X.shape[0]):
        top = np.float32(-np.inf)
        for j in range(X.shape[1]):
            top = max(top, X[i, j])
        found = np.float32(0.0)
        for j in range(X.shape[1]):
            Y[i, j] = math.exp(X[i, j] - top)
            found += Y[i, j]
        for j in range(X.shape[1]):
            Y[i, j] /= found
