from texpr.language import *


def main(A: f32["N"]):
    for i in par("N"):
        if 0 < i < 5:
            A[i] = 1.0
        if i in (1, 2):
            A[i] = 2.0
        if A[i] is None:
            A[i] = 3.0
