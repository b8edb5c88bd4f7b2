# ruff: noqa: N803, N806 -- arrays and sizes have the names that the kernels give them
"""Norms and pools of images by hand in Numba, by the names of `memory_problems`, in f32: see `numba_memory`."""

import math
from typing import Any

import numpy as np
from numba import prange
from peers.numba_memory import ONE, fast


@fast
def batch_norm(X: Any, G: Any, O: Any, Y: Any) -> None:  # noqa: E741 -- as the program calls it
    B, C, H, W = X.shape
    count = np.float32(B * H * W)
    for c in prange(C):
        total = np.float32(0.0)
        for b in range(B):
            for h in range(H):
                for w in range(W):
                    total += X[b, c, h, w]
        mean = total / count
        squares = np.float32(0.0)
        for b in range(B):
            for h in range(H):
                for w in range(W):
                    off = X[b, c, h, w] - mean
                    squares += off * off
        scale = ONE / np.float32(math.sqrt(squares / count + np.float32(1e-5)))
        for b in range(B):
            for h in range(H):
                for w in range(W):
                    Y[b, c, h, w] = (X[b, c, h, w] - mean) * scale * G[c] + O[c]


@fast
def group_norm(X: Any, G: Any, O: Any, Y: Any) -> None:  # noqa: E741 -- as the program calls it
    B, groups, D, H, W = X.shape
    count = np.float32(D * H * W)
    for task in prange(B * groups):
        b, g = task // groups, task % groups
        total = np.float32(0.0)
        for d in range(D):
            for h in range(H):
                for w in range(W):
                    total += X[b, g, d, h, w]
        mean = total / count
        squares = np.float32(0.0)
        for d in range(D):
            for h in range(H):
                for w in range(W):
                    off = X[b, g, d, h, w] - mean
                    squares += off * off
        scale = ONE / np.float32(math.sqrt(squares / count + np.float32(1e-5)))
        for d in range(D):
            for h in range(H):
                for w in range(W):
                    Y[b, g, d, h, w] = (X[b, g, d, h, w] - mean) * scale * G[g, d] + O[g, d]


@fast
def instance_norm(X: Any, Y: Any) -> None:
    B, C, H, W = X.shape
    count = np.float32(H * W)
    for task in prange(B * C):
        b, c = task // C, task % C
        total = np.float32(0.0)
        for h in range(H):
            for w in range(W):
                total += X[b, c, h, w]
        mean = total / count
        squares = np.float32(0.0)
        for h in range(H):
            for w in range(W):
                off = X[b, c, h, w] - mean
                squares += off * off
        scale = ONE / np.float32(math.sqrt(squares / count + np.float32(1e-5)))
        for h in range(H):
            for w in range(W):
                Y[b, c, h, w] = (X[b, c, h, w] - mean) * scale


@fast
def rmsnorm_channels(X: Any, G: Any, Y: Any) -> None:
    B, C, H, W = X.shape
    for task in prange(B * H):
        b, h = task // H, task % H
        total = np.zeros(W, np.float32)
        for c in range(C):
            for w in range(W):
                total[w] += X[b, c, h, w] * X[b, c, h, w]
        for w in range(W):
            total[w] = ONE / np.float32(math.sqrt(total[w] / np.float32(C) + np.float32(1e-6)))
        for c in range(C):
            for w in range(W):
                Y[b, c, h, w] = X[b, c, h, w] * total[w] * G[c]


@fast
def softmax_channels(X: Any, Y: Any) -> None:
    B, C, H, W = X.shape
    for task in prange(B * H):
        b, h = task // H, task % H
        top = np.full(W, -np.inf, np.float32)
        total = np.zeros(W, np.float32)
        for c in range(C):
            for w in range(W):
                top[w] = max(top[w], X[b, c, h, w])
        for c in range(C):
            for w in range(W):
                found = math.exp(X[b, c, h, w] - top[w])
                Y[b, c, h, w] = found
                total[w] += found
        for w in range(W):
            total[w] = ONE / total[w]
        for c in range(C):
            for w in range(W):
                Y[b, c, h, w] *= total[w]


@fast
def max_pool_2d(X: Any, Y: Any) -> None:
    B, C, H, W = Y.shape
    for task in prange(B * C):
        b, c = task // C, task % C
        for h in range(H):
            for w in range(W):
                top = np.float32(-np.inf)
                for y in range(3):
                    for x in range(3):
                        top = max(top, X[b, c, 2 * h + y, 2 * w + x])
                Y[b, c, h, w] = top


@fast
def average_pool_2d(X: Any, Y: Any) -> None:
    B, C, H, W = Y.shape
    quarter = np.float32(0.25)
    for task in prange(B * C):
        b, c = task // C, task % C
        for h in range(H):
            for w in range(W):
                total = X[b, c, 2 * h, 2 * w] + X[b, c, 2 * h, 2 * w + 1]
                total += X[b, c, 2 * h + 1, 2 * w] + X[b, c, 2 * h + 1, 2 * w + 1]
                Y[b, c, h, w] = quarter * total
