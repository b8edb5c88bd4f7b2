# ruff: noqa: N803, N806 -- arrays and sizes have the names that the kernels give them
"""The memory-bound kernels by hand in Numba, by the names of `memory_problems.PROBLEMS`, in f32.

Each is what a careful user writes: `prange` over rows, panels of columns or tiles, the fast-math flags that the
language's own sums allow (`reassoc`, `contract`; no `nnan`), inner loops that LLVM vectorises.
"""

import math
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange

FLAGS = {"reassoc", "contract"}
PANEL = 1024  # columns of a panel
TILE = 32  # of a transposition
ONE, HALF, ROOT = np.float32(1.0), np.float32(0.5), np.float32(math.sqrt(0.5))


def fast(function: Any) -> Any:
    return njit(parallel=True, fastmath=FLAGS)(function)


# ---- elementwise -----------------------------------------------------------------------------------------------------


@fast
def add_gelu(A: Any, B: Any, Y: Any) -> None:
    for i in prange(A.shape[0]):
        for j in range(A.shape[1]):
            x = A[i, j] + B[i, j]
            Y[i, j] = HALF * x * (ONE + math.erf(x * ROOT))


@fast
def swiglu(A: Any, B: Any, Y: Any) -> None:
    for i in prange(A.shape[0]):
        for j in range(A.shape[1]):
            Y[i, j] = A[i, j] / (ONE + math.exp(-A[i, j])) * B[i, j]


@fast
def copy_offset(X: Any, Y: Any) -> None:
    for i in prange(Y.size):
        Y[i] = X[i + 1]


@fast
def jacobi2d(X: Any, Y: Any) -> None:
    fifth = np.float32(0.2)
    for i in prange(1, X.shape[0] - 1):
        for j in range(1, X.shape[1] - 1):
            Y[i, j] = fifth * (X[i, j] + X[i, j - 1] + X[i, j + 1] + X[i - 1, j] + X[i + 1, j])


# ---- rows ------------------------------------------------------------------------------------------------------------


@fast
def row_sum(X: Any, S: Any) -> None:
    for i in prange(X.shape[0]):
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            total += X[i, j]
        S[i] = total


@fast
def softmax(X: Any, Y: Any) -> None:
    for i in prange(X.shape[0]):
        top = np.float32(-np.inf)
        for j in range(X.shape[1]):
            top = max(top, X[i, j])
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            Y[i, j] = math.exp(X[i, j] - top)
            total += Y[i, j]
        scale = ONE / total
        for j in range(X.shape[1]):
            Y[i, j] *= scale


@fast
def rmsnorm(X: Any, G: Any, Y: Any) -> None:
    for i in prange(X.shape[0]):
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            total += X[i, j] * X[i, j]
        scale = ONE / np.float32(math.sqrt(total / np.float32(X.shape[1]) + np.float32(1e-6)))
        for j in range(X.shape[1]):
            Y[i, j] = X[i, j] * scale * G[j]


@fast
def layernorm(X: Any, G: Any, B: Any, Y: Any) -> None:
    for i in prange(X.shape[0]):
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            total += X[i, j]
        mean = total / np.float32(X.shape[1])
        squares = np.float32(0.0)
        for j in range(X.shape[1]):
            off = X[i, j] - mean
            squares += off * off
        scale = ONE / np.float32(math.sqrt(squares / np.float32(X.shape[1]) + np.float32(1e-5)))
        for j in range(X.shape[1]):
            Y[i, j] = (X[i, j] - mean) * scale * G[j] + B[j]


@fast
def l2_normalise(X: Any, Y: Any) -> None:
    for i in prange(X.shape[0]):
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            total += X[i, j] * X[i, j]
        scale = ONE / np.float32(math.sqrt(max(total, np.float32(1e-24))))
        for j in range(X.shape[1]):
            Y[i, j] = X[i, j] * scale


@fast
def cross_entropy(X: Any, T: Any, L: Any) -> None:
    for i in prange(X.shape[0]):
        top = np.float32(-np.inf)
        for j in range(X.shape[1]):
            top = max(top, X[i, j])
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            total += math.exp(X[i, j] - top)
        L[i] = math.log(total) + top - X[i, T[i]]


@fast
def argmax_rows(X: Any, I: Any) -> None:  # noqa: E741 -- as the program calls it
    for i in prange(X.shape[0]):
        top = np.float32(-np.inf)
        for j in range(X.shape[1]):
            top = max(top, X[i, j])
        at = 0
        for j in range(X.shape[1]):
            if X[i, j] == top:
                at = j
                break
        I[i] = at


@fast
def cumsum_rows(X: Any, Y: Any) -> None:
    for i in prange(X.shape[0]):
        total = np.float32(0.0)
        for j in range(X.shape[1]):
            total += X[i, j]
            Y[i, j] = total


@fast
def matrix_vector(A: Any, X: Any, Y: Any) -> None:
    for i in prange(A.shape[0]):
        total = np.float32(0.0)
        for j in range(A.shape[1]):
            total += A[i, j] * X[j]
        Y[i] = total


# ---- columns ---------------------------------------------------------------------------------------------------------


@fast
def column_sum(X: Any, S: Any) -> None:
    for panel in prange((X.shape[1] + PANEL - 1) // PANEL):
        first = panel * PANEL
        last = min(first + PANEL, X.shape[1])
        S[first:last] = np.float32(0.0)
        for i in range(X.shape[0]):
            for j in range(first, last):
                S[j] += X[i, j]


@fast
def vector_matrix(X: Any, A: Any, Y: Any) -> None:
    for panel in prange((A.shape[1] + PANEL - 1) // PANEL):
        first = panel * PANEL
        last = min(first + PANEL, A.shape[1])
        Y[first:last] = np.float32(0.0)
        for i in range(A.shape[0]):
            for j in range(first, last):
                Y[j] += X[i] * A[i, j]


@fast
def cumsum_columns(X: Any, Y: Any) -> None:
    for panel in prange((X.shape[1] + PANEL - 1) // PANEL):
        first = panel * PANEL
        last = min(first + PANEL, X.shape[1])
        total = np.zeros(PANEL, np.float32)
        for i in range(X.shape[0]):
            for j in range(first, last):
                total[j - first] += X[i, j]
                Y[i, j] = total[j - first]


@fast
def argmax_columns(X: Any, I: Any) -> None:  # noqa: E741 -- as the program calls it
    for panel in prange((X.shape[1] + PANEL - 1) // PANEL):
        first = panel * PANEL
        last = min(first + PANEL, X.shape[1])
        top = np.full(PANEL, -np.inf, np.float32)
        at = np.zeros(PANEL, np.int32)
        for i in range(X.shape[0]):
            for j in range(first, last):
                better = X[i, j] > top[j - first]
                at[j - first] = i if better else at[j - first]
                top[j - first] = X[i, j] if better else top[j - first]
        for j in range(first, last):
            I[j] = at[j - first]


# ---- permutes and gathers --------------------------------------------------------------------------------------------


@fast
def transpose(X: Any, Y: Any) -> None:
    M, N = X.shape
    for tile in prange((M + TILE - 1) // TILE):
        first, last = tile * TILE, min((tile + 1) * TILE, M)
        for left in range(0, N, TILE):
            for j in range(left, min(left + TILE, N)):
                for i in range(first, last):
                    Y[j, i] = X[i, j]


@fast
def permute_3d(X: Any, Y: Any) -> None:
    P, Q, R = X.shape
    for j in prange(Q):
        for top in range(0, P, TILE):
            for left in range(0, R, TILE):
                for k in range(left, min(left + TILE, R)):
                    for i in range(top, min(top + TILE, P)):
                        Y[k, j, i] = X[i, j, k]


@fast
def nchw_to_nhwc(X: Any, Y: Any) -> None:
    B, C, H, W = X.shape
    for task in prange(B * H):
        b, h = task // H, task % H
        for top in range(0, C, TILE):
            for left in range(0, W, TILE):
                for w in range(left, min(left + TILE, W)):
                    for c in range(top, min(top + TILE, C)):
                        Y[b, h, w, c] = X[b, c, h, w]


@fast
def gather_rows(R: Any, E: Any, Y: Any) -> None:
    for i in prange(Y.shape[0]):
        row = R[i]
        for j in range(Y.shape[1]):
            Y[i, j] = E[row, j]


@fast
def histogram(K: Any, H: Any) -> None:
    parts = get_num_threads()
    counts = np.zeros((parts, 4, 256), np.int32)
    for part in prange(parts):
        first, last = K.size * part // parts, K.size * (part + 1) // parts
        for i in range(first, last):
            counts[part, i % 4, K[i]] += 1
    for b in range(256):
        H[b] = counts[:, :, b].sum()


# ---- sums of everything ----------------------------------------------------------------------------------------------


@fast
def dot(X: Any, Y: Any, S: Any) -> None:
    total = np.float32(0.0)
    for i in prange(X.size):
        total += X[i] * Y[i]
    S[0] = total


@fast
def mean_squared_error(X: Any, Y: Any, L: Any) -> None:
    total = np.float32(0.0)
    for i in prange(X.size):
        off = X[i] - Y[i]
        total += off * off
    L[0] = total / np.float32(X.size)


@fast
def kl_divergence(X: Any, Y: Any, L: Any) -> None:
    total = np.float32(0.0)
    for i in prange(X.size):
        y = Y[i]
        total += (y * math.log(y) if y > 0 else np.float32(0.0)) - y * X[i]
    L[0] = total / np.float32(X.size)


@fast
def huber_loss(X: Any, Y: Any, L: Any) -> None:
    total = np.float32(0.0)
    for i in prange(X.size):
        far = abs(X[i] - Y[i])
        total += HALF * far * far if far < ONE else far - HALF
    L[0] = total / np.float32(X.size)
