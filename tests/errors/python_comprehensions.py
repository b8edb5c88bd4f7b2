from texpr.language import *


def main(A: f32["N"], C: f32["M"]):
    for i in par("M"):
        C[i] = sum([A[k] for k in seq("N")])
        C[i] = max({A[k] for k in seq("N")})
        C[i] = exp(A[k] for k in seq("N"))
        C[i] = sum(A[k] for k in seq("N") if k > 2)
        C[i] = sum(A[k] * A[l] for k in seq("N") for l in seq("N"))
        C[i] = sum(A[k] for k in range(10))
        C[i] = sum(A[i], 3)
