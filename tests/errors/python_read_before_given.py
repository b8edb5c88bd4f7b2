from texpr.language import *


def main(A: f32["N", "K"], C: f32["N"]):
    for i in par("N"):
        C[i] = sum(x * (x := A[i, k]) for k in seq("K"))
        C[i] = sum((y := A[i, k]) * y for k in seq("K"))
        C[i] = sum(sum(z + A[i, j] for j in seq("K")) * (z := A[i, k]) for k in seq("K"))
