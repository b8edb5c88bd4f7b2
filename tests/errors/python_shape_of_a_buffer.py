from texpr.language import *


def main(A: f32["N", "2 * M"], B: f32["N"]):
    t = new(f32[16])
    for i in par(A.shape[0]):
        for j in seq(A.shape[1]):
            B[i] += A[i, j]
        for j in seq(t.shape[0]):
            B[i] += A.sum()
    for i in par(len(A)):
        B[i] = 1.0
