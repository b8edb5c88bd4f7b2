from texpr.language import *


def main(A: f32["N"]):
    for i in range(10):
        A[i] = 1.0
    for i, j in par("N"):
        A[i] = 2.0
    for i in par():
        A[i] = 3.0
    for A[0] in seq("N"):
        A[1] = 3.0
    for i in par("N"):
        A[i] = 1.0
    else:
        A[0] = 1.0
    for i in par(range(0, 10, 2)):
        A[i] = 1.0
