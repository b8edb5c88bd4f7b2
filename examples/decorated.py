"""A kernel as a Python function: it runs on NumPy arrays, and its text, mapping and code can be printed."""

import numpy as np

import texpr
from texpr import f32, par, seq


@texpr.kernel
def matmul(A: f32["M", "K"], B: f32["K", "N"], C: f32["M", "N"]):
    for i, j in par("M", "N"):
        C[i, j] = 0.0
        for k in seq("K"):
            C[i, j] += A[i, k] * B[k, j]


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((128, 64), np.float32), rng.random((64, 96), np.float32)
    c = np.empty((128, 96), np.float32)
    matmul(a, b, c)
    print("greatest difference from NumPy:", float(np.abs(c - a @ b).max()))
    print(matmul)
    print(matmul.compile("cuda:sm_90a", M=128, K=64, N=96).mapping)


if __name__ == "__main__":
    main()
