from texpr.language import *


def main(A: f32["N"]):
    for i in par("N"):
        x = A[i]
        x = x + 1.0
        i = 2
        A[i] = x
