from texpr.language import *


def main(A: f32["N +"], B: inp(f32["N", "M"], "#strides(1, M"), C: f32["N; M"]):
    for i in par("N - ", "#tile(64,"):
        A[i] = 1.0
    for i in par("N j, M"):
        A[i] = 1.0
    for i in par("N", "tile(64)"):
        A[i] = 1.0
    for i in par("N\u0020*"):
        A[i] = 1.0
