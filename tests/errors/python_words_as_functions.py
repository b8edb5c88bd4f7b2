from texpr.language import *


def main(A: f32["N"], B: out(f32["N"])):
    for i in par("N"):
        B[i] = A[size(i)] + inp(A[i]) + out(A[i])
