from texpr.language import *


def main(A: f32["N"]):
    for i in par(extent="N"):
        A[i] = max(A[i], other=1.0)
        A[i] = exp(*A)
