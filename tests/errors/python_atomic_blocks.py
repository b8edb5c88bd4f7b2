from texpr.language import *


def main(A: f32["N"]):
    for i in par("N"):
        with atomic:
            A[i] = 1.0
            for k in seq(3):
                A[k] += 1.0
        with atomic:
            pass
        with open("x") as f:
            A[i] = 1.0
        with attr("tf32"):
            A[i] += 1.0
        with attr("#fast"):
            with attr("#strict"):
                x = A[i]
                A[i] = x
